package zklock

// A sequencer identifies the hold under which a request is made. The request carries it, and the
// resource checks with the ensemble that the hold still exists.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// ErrBadSequencer: the text is not the String of a Sequencer, or no hold of this lock has given it.
// Reject the request.
var ErrBadSequencer = errors.New("not a sequencer")

// errOtherRoot: the hold ended with its lock root.
var errOtherRoot = fmt.Errorf("%w: the lock root is not that of the sequencer: it was removed or made anew, or the sequencer is of another ensemble", ErrNotHeld)

// Sequencer identifies the hold under which a request is made. Its String travels with the request,
// for example in a header. It contains no secret and does not authenticate the sender.
type Sequencer struct {
	Path    string // of the lock, absolute: with the chroot
	Root    int64  // czxid of the node above Node; it changes if that node is created again
	Shared  bool   // of a reader or a semaphore: other clients may hold at the same time
	Permits int    // the number of a semaphore's permits; otherwise 0
	Token   int64  // as Hold.Token
	Node    string // as Hold.Node; for permits, the first of consecutive nodes
}

// The modes in the text of a Sequencer, and the names of the nodes in each.
const (
	modeExclusive, modeShared, modePermits = "exclusive", "shared", "permits"
)

var modeNodes = map[string][]string{
	modeExclusive: {queue.MutexName, queue.WriteName, queue.LatchName},
	modeShared:    {queue.ReadName},
	modePermits:   {queue.LeaseName},
}

// maxPermits is more than one hold can have, which depends on the servers' jute.maxbuffer
// (WithJuteMaxBuffer). A check does not cost more for more permits.
const maxPermits = math.MaxInt32

// Sequencer returns the identity of this hold, for [Session.CheckSequencer] at the resource. All
// handles of the owner return the same Sequencer, also after the hold has ended.
func (h *Hold) Sequencer() Sequencer {
	d := h.granted()
	q := Sequencer{Path: d.root.Path(), Root: d.rootCzxid, Shared: d.root.Rule().IsShared(), Token: d.token, Node: d.node}
	if d.root.share == queue.LeaseName {
		q.Path, q.Shared, q.Permits, q.Node = parentOf(d.root.Path()), true, len(d.held), slices.Min(d.held)
	}
	return q
}

// String returns a text for ParseSequencer: printable ASCII without spaces, some 110 bytes plus the
// path.
func (q Sequencer) String() string {
	mode := q.mode()
	if q.Permits != 0 {
		mode += "&permits=" + strconv.Itoa(q.Permits)
	}
	path := (&url.URL{Path: q.Path}).EscapedPath()
	return fmt.Sprintf("%s%s?root=%d&mode=%s&token=%d&node=%s", sequencerScheme, path, q.Root, mode, q.Token, nameOf(q.Node))
}

const sequencerScheme = "zklock:"

func (q Sequencer) mode() string {
	switch {
	case q.Permits != 0:
		return modePermits
	case q.Shared:
		return modeShared
	}
	return modeExclusive
}

// ParseSequencer parses the text that Sequencer.String returned, and does not check the hold. The
// error is [ErrBadSequencer].
func ParseSequencer(text string) (Sequencer, error) {
	// The errors are ignored: wherever parsing fails, the String of the result differs from the text.
	path, words, _ := strings.Cut(strings.TrimPrefix(text, sequencerScheme), "?")
	path, _ = url.PathUnescape(path)
	values, _ := url.ParseQuery(words)
	mode, above := values.Get("mode"), path
	q := Sequencer{Path: path, Shared: mode != modeExclusive}
	if mode == modePermits {
		above += "/leases"
	}
	q.Node = above + "/" + values.Get("node")
	q.Root, _ = strconv.ParseInt(values.Get("root"), 10, 64)
	q.Token, _ = strconv.ParseInt(values.Get("token"), 10, 64)
	q.Permits, _ = strconv.Atoi(values.Get("permits"))
	_, isNode := q.rule()
	if !isNode || q.String() != text || checkPath(path) != nil || q.Root < 1 || q.Token < 1 || q.Permits < 0 || q.Permits > maxPermits {
		err := fmt.Errorf("%w: %q; give what Sequencer.String returned", ErrBadSequencer, text[:min(len(text), node.MaxShown)])
		return Sequencer{}, &Error{Op: "parse sequencer", Err: badArgument{err}}
	}
	return q, nil
}

// rule returns the rule of the node's queue; false if no such hold can have the node.
func (q Sequencer) rule() (queue.Rule, bool) {
	name := nameOf(q.Node)
	id, _ := queue.ProtectionID(name)
	if _, err := uuid.Parse(id); err != nil {
		return queue.Rule{}, false
	}
	for _, marker := range modeNodes[q.mode()] {
		m, _ := queue.Parse(name, []string{marker})
		if m.PastTheEnd() || fmt.Sprintf("%s%010d", queue.ProtectedPath(parentOf(q.Node), id, marker), m.Seq) != q.Node {
			continue
		}
		markers := queue.Markers
		if marker == queue.LatchName || marker == queue.LeaseName {
			markers = []string{marker}
		}
		return queue.Rule{Name: marker, Markers: markers}, true
	}
	return queue.Rule{}, false
}

// CheckSequencer returns nil if the hold in the text still exists and is a hold of the lock on
// path, as given to the lock's New function. [ErrNotHeld] means that the hold has ended or its lock
// root was deleted. [ErrBadSequencer] means that no hold of this lock has given the text. In both
// cases reject the request. [ErrNotConnected] means that the connection ended before the reply, so
// another try may succeed. CheckSequencer waits for a connection until ctx ends.
//
// Nil proves that at some moment during the call a majority of the servers had all nodes of the
// hold, and no other client had been granted a lock that the hold excludes. The token in the text
// is not larger than the hold's.
//
// The hold may end right after, so compare tokens if the resource can. After a release or the end
// of the lease, CheckSequencer returns nil until the node is deleted. It cannot detect a forged
// text of a node that is first but not granted (docs/design.md). If the resource needs an exclusive
// lock, reject a Sequencer that is Shared. The Session needs READ on the lock root and its nodes.
func (s *Session) CheckSequencer(ctx context.Context, path, text string) error {
	if !s.isConnected() {
		return &Error{Op: "check sequencer", Path: path, Err: errNoSession}
	}
	q, err := ParseSequencer(text)
	switch bad := checkPath(path); {
	case ctx == nil:
		err = errNilContext
	case bad != nil:
		err = bad
	case err != nil:
		err = errors.Unwrap(err)
	case q.Path != s.chroot+path:
		err = badArgument{fmt.Errorf("%w of this lock: it is of another lock, %s", ErrBadSequencer, shown(q.Path))}
	default:
		err = s.forCaller(ctx, q.ask(ctx, s), nil)
	}
	if err != nil {
		return &Error{Op: "check sequencer", Path: path, Node: q.Node, Err: err}
	}
	return nil
}

// found is a server's result for a node, or for a transaction: then czxid is 0.
type found struct {
	conn  uint64
	czxid int64
	err   error
}

// ask sends a transaction that checks the node of the hold, a read of it, and a list of its root.
//
// The transaction needs the quorum: a server that is cut off can reply to it with neither a success
// nor a failure. A node's name has a uuid, so the node exists in no other lock root and in no other
// ensemble. The reads use the same connection, so the server replies to them after it has applied
// the transaction, and they show nothing older. They return the czxids, and the list shows the
// blockers, or the leases. A sync cannot replace the transaction, because it needs no quorum.
//
// The transaction does not check each lease: a short text that claims many permits would make us
// send as many checks.
func (q Sequencer) ask(ctx context.Context, s *Session) error {
	answers := make(chan found, 2) // of one connection, in the order of the requests
	check := wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCheck, Path: q.Node, Version: -1}}}
	checked := mux.NewRequest(wire.OpMulti, check, func(a mux.Reply) {
		f := found{conn: a.Conn, err: reply.ErrOf(a)}
		if f.err == nil {
			_, f.err = reply.ErrOfMulti(a, len(check.Ops))
		}
		f.err = reply.Denied(f.err, "check", "READ", q.Node)
		answers <- f
	})
	if err := link.TooLong(checked, s.opts.juteMaxBuffer); err != nil {
		return err
	}
	e, err := node.AttachedSession(ctx, s.link)
	if err != nil {
		return err
	}
	for _, r := range []*mux.Request{checked, askCzxid(q.Node, answers)} {
		if !e.Carrier.Send(e.ZKSession, r) {
			return unknown(zk.ErrConnectionClosed)
		}
	}
	list := e.Lists.List(parentOf(q.Node)) // is sent after them
	var got [2]found
	for i := range got {
		select {
		case got[i] = <-answers:
		case <-e.Ended():
			return unknown(e.EndErr())
		case <-ctx.Done():
			return link.ErrCtxEnded
		}
		if err := got[i].unclear(got[0].conn); err != nil {
			return err
		}
	}
	switch err := list.Wait(ctx, e.ZKSession); {
	case err == link.ErrCtxEnded:
		return err
	case err != nil && e.HasEnded(): // the list may still arrive
		return unknown(err)
	default:
		return q.verdict(got[0], got[1], found{list.Conn, list.Root.Czxid, err}, list.Names)
	}
}

func askCzxid(node string, answers chan<- found) *mux.Request {
	return mux.NewRequest(wire.OpExists, wire.PathWatchRequest{Path: node}, func(a mux.Reply) {
		var stat wire.Stat
		f := found{conn: a.Conn, err: reply.ErrOf(a)}
		if f.err == nil {
			f.err = a.Decode(&stat)
		}
		f.czxid, f.err = stat.Czxid, reply.Denied(f.err, "exists", "READ", node)
		answers <- f
	})
}

// unknown returns the error for a result that is not known, with the reason.
func unknown(why error) error {
	if errors.Is(why, ErrClosed) {
		return why
	}
	return fmt.Errorf("%w: it is not known whether the hold still exists: %w", ErrNotConnected, why)
}

// unclear returns an error unless the reply came over conn, and shows that a node exists or does
// not.
func (f found) unclear(conn uint64) error {
	switch {
	case f.err != nil && !errors.Is(f.err, zk.ErrNoNode) && reply.IsRefusal(f.err):
		return f.err
	case f.err != nil && !errors.Is(f.err, zk.ErrNoNode):
		return unknown(f.err)
	case f.conn != conn: // another server may have sent it, which may lag
		return unknown(zk.ErrConnectionClosed)
	}
	return nil
}

// verdict returns the result of the transaction, the read of the node and the list of its root,
// which has names.
func (q Sequencer) verdict(checked, node, list found, names []string) error {
	for _, f := range []found{checked, node, list} {
		if err := f.unclear(checked.conn); err != nil {
			return err
		}
	}
	rule, _ := q.rule()
	place := queue.SeenAt(rule, nameOf(q.Node), names)
	if q.Permits != 0 {
		place = queue.SeenLeases(nameOf(q.Node), q.Permits, names)
	}
	switch {
	case list.czxid != q.Root: // 0 if it does not exist
		return errOtherRoot
	case checked.err != nil, node.err != nil, place == queue.Missing: // it may have been deleted since the transaction
		return fmt.Errorf("%w: the hold is over", ErrNotHeld)
	// A reader may have its writer's token; permits of another client, the token of their node in the
	// queue.
	case q.Token > node.czxid, q.Token < node.czxid && !q.Shared:
		return badArgument{fmt.Errorf("%w: %s has another token than %d", ErrBadSequencer, nameOf(q.Node), q.Token)}
	case place != queue.Front: // it may hold later
		return fmt.Errorf("%w: %s waits, and nothing is held with it", ErrBadSequencer, nameOf(q.Node))
	}
	return nil
}
