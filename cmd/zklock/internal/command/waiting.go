package command

// The messages of a waiting run about the queue: the holder, since when, and our position.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/internal/queue"
)

const (
	firstLook  = 500 * time.Millisecond // a shorter wait is not reported
	nextLook   = time.Minute
	redrawNext = 10 * time.Second // where a look is drawn over the last one
	lookWithin = 5 * time.Second  // a look that takes longer is given up
	longQueue  = 100

	connectSlow = 5 * time.Second // connecting that takes longer is reported
)

// queueLook is one read of the queue: the holder, and our position if we are known to be, or to
// have been, in the queue.
type queueLook struct {
	holder  zklock.Participant // the first
	more    int                // how many other clients hold
	writer  zklock.Participant // the first that is not shared
	nobody  bool               // there is no holder
	place   int                // 1 is the holder's, and of a semaphore the first waiter's; 0 if it is not known
	granted bool               // we hold, and are about to be notified
	listed  int                // our position when the library last listed the queue, if place is not known; 0 if it did not
	waiting int                // how many are in the queue, including us if place is known
	ours    ourNode
	delayed time.Time // the end of the lock-delay for which the first in the queue waits; zero if it does not
}

// lookAt finds our position. We are the participants of this ZooKeeper session: one node, or as
// many leases of a semaphore as we wait with. If our node was deleted already, its token shows its
// position. Holders of permits are not in the line for them, and a client that waits with several
// leases is there once.
func lookAt(q lockQueue, session, token int64) queueLook {
	l := queueLook{ours: ourNode{session, token}}
	if q.isSemaphore {
		q.waiters = slices.CompactFunc(slices.Clone(q.waiters), func(a, b zklock.Participant) bool {
			id, ok := queue.ProtectionID(nameOf(a.Node))
			other, _ := queue.ProtectionID(nameOf(b.Node))
			return ok && id == other
		})
	}
	var others []zklock.Participant
	held, ahead := 0, 0
	for i, p := range q.all() {
		holds := i < len(q.holders)
		if i == 0 {
			l.delayed = p.DelayUntil
		}
		switch {
		case p.SessionID == session && session != 0 && l.place == 0:
			l.place, l.granted, l.ours.token = len(others)+1, holds, p.Token
			continue
		case p.SessionID == session && session != 0:
			continue
		case holds:
			held++
		case p.Token < token:
			ahead++
		}
		if l.place > 0 { // the token of our leases is larger than those of nodes that came after us and are behind us
			l.ours.token = min(l.ours.token, p.Token)
		}
		if !p.Shared && l.writer.Node == "" {
			l.writer = p
		}
		others = append(others, p)
	}
	l.waiting, l.more = len(others), max(held-1, 0)
	l.nobody = len(others) == 0 || held == 0 && (q.isSemaphore || !l.delayed.IsZero())
	if !l.nobody {
		l.holder = others[0]
	}
	if l.place == 0 && token != 0 {
		l.place = held + ahead + 1
	}
	if q.isSemaphore && !l.granted {
		l.waiting, l.place = l.waiting-held, max(l.place-held, 0)
	}
	if l.place > 0 {
		l.waiting++
	}
	return l
}

// drawn formats it as a line that may be cut, with the most important part first.
func (l queueLook) drawn() (head, tail string) {
	head = l.ourPlace()
	if l.place > 0 {
		head = strings.TrimSuffix(head, " in the queue")
	}
	if l.nobody {
		return head, ""
	}
	e := entryOf(l.holder)
	head += fmt.Sprintf("; held by %s (%v)", nameIn(e), e.since())
	if l.more > 0 {
		tail = fmt.Sprintf(", and %d more", l.more)
	}
	tail += ", " + e.lifetime()
	return head, fmt.Sprintf("%s, token %d", tail, e.Token)
}

// String formats it as one line.
func (l queueLook) String() string {
	if l.nobody {
		return l.ourPlace()
	}
	return l.ourPlace() + "; held by " + l.heldBy()
}

func (l queueLook) ourPlace() string {
	place := fmt.Sprintf("%d in the queue", l.waiting)
	switch {
	case l.place > 0:
		place = fmt.Sprintf("number %d of %d in the queue", l.place, l.waiting)
	case l.listed > 0:
		place += fmt.Sprintf(", we were number %d when it was last listed", l.listed)
	case l.waiting == 0:
		place = "the queue is empty"
	}
	return place
}

// heldBy describes the holder, and how many more there are.
func (l queueLook) heldBy() string {
	if l.more > 0 {
		return fmt.Sprintf("%s, and %d more", describe(l.holder), l.more)
	}
	return describe(l.holder)
}

// describe names a participant, and since when it is in the queue. No node shows when it got the
// lock: at once if it had no blocker, otherwise later.
func describe(p zklock.Participant) string {
	e := entryOf(p)
	text := fmt.Sprintf("%s, %s, token %d, queued since %s (%v)", nameIn(e), e.lifetime(), e.Token, e.queued(), e.since())
	if e.DelayUntil != nil {
		text += ", and waits for the lock-delay until " + e.DelayUntil.Local().Format(time.RFC3339)
	}
	return text
}

// lifetime names the session of the node, at whose end the servers delete it.
func (e entry) lifetime() string {
	if e.Session == "" {
		return "not ephemeral: it stays until it is deleted (zklock delete)"
	}
	return "session " + e.Session
}

// nameIn returns the name of a participant: host and pid, or its data, or its node.
func nameIn(e entry) string {
	switch {
	case e.Pid != 0:
		return e.process()
	case e.Data != "":
		return fmt.Sprintf("%.64q", e.Data)
	}
	return e.Node
}

// look reads the queue, but of a long one only the length and the holder: if hundreds of runs wait,
// and each reads the data of all, the servers are overloaded.
func (o *runOptions) look(ctx context.Context, s *zklock.Session, r recipe, last ourNode) (queueLook, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookWithin, errNoServer{lookWithin})
	defer cancel()
	list := func(root string) ([]string, error) {
		return ask(ctx, s, func(c *zk.Conn) ([]string, error) {
			names, _, err := c.Children(root)
			if errors.Is(err, zk.ErrNoNode) { // a deleted lock root is an empty queue
				return nil, nil
			}
			return names, err
		})
	}
	names, err := list(r.queued)
	if err != nil {
		return queueLook{}, err
	}
	if len(names) > longQueue {
		l := queueLook{waiting: len(names)}
		if r.held != r.queued {
			if names, err = list(r.held); err != nil || len(names) == 0 {
				l.nobody = true
				return l, err
			}
		}
		l.holder, err = ask(ctx, s, func(c *zk.Conn) (zklock.Participant, error) {
			node := r.held + "/" + frontOf(names)
			data, stat, err := c.Get(node)
			if err != nil {
				return zklock.Participant{}, err
			}
			return zklock.Participant{Node: node, Data: data, SessionID: stat.EphemeralOwner, Token: stat.Czxid, Created: time.UnixMilli(stat.Ctime)}, nil
		})
		l.nobody = errors.Is(err, zk.ErrNoNode) // it has just released
		if l.nobody {
			err = nil
		}
		return l, err
	}
	q, err := r.queue(ctx)
	if err != nil {
		return queueLook{}, err
	}
	session := s.Stats().SessionID
	return lookAt(q, session, last.tokenIn(session)), nil
}

// frontOf returns the name with the lowest sequence number, ten digits at its end.
func frontOf(names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
}

func sequence(name string) uint64 {
	n, err := strconv.ParseUint(name[max(0, len(name)-10):], 10, 32)
	if err != nil {
		return math.MaxUint64 // not in the queue
	}
	return n
}

func delayedUntil(t time.Time) string {
	return "the holder disappeared, and the lock-delay lasts until " + t.Local().Format(time.RFC3339)
}

// ourNode is the node that we waited with, as last seen, or the zero value if it was never seen.
type ourNode struct{ session, token int64 }

// tokenIn returns the node's token, or 0 if the node is of an earlier ZooKeeper session: then we
// are at the tail now.
func (n ourNode) tokenIn(session int64) int64 {
	if n.session != session {
		return 0
	}
	return n.token
}

// watchQueue reports the progress of the wait, once and then every minute, until ctx ends. On a
// terminal it does so in one line, which is removed afterwards.
func (o *runOptions) watchQueue(ctx context.Context, s *zklock.Session, r recipe) (ours ourNode) {
	next := time.NewTimer(firstLook)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ours
		case <-next.C:
		}
		again := nextLook
		if o.inPlace() {
			again = redrawNext
		}
		next.Reset(again)
		l, err := o.look(ctx, s, r, ourNode{})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			o.progress(fmt.Sprintf("waiting; the queue cannot be read: %v", o.unreached(cause(err))), "")
		default:
			if ours = l.ours; !l.granted {
				o.sayPlace(l)
			}
		}
	}
}

// noConnection returns the error of a wait that ended without a connection to a server.
func (o *runOptions) noConnection(w errWaited) error {
	err := o.unreached(fmt.Errorf("%w, and there is no connection to a server now", w))
	return exitf(codeUnreached(err), "%s: not acquired: %w", o.path, err)
}

// codeUnreached returns the exit code of a run that has reached no server. If rejected certificates
// or credentials were the only reason, the servers were there.
func codeUnreached(err error) int {
	if errors.Is(err, zklock.ErrCertificate) || errors.Is(err, zklock.ErrAuthFailed) {
		return exitRefused
	}
	return exitNoServer
}

func (o *runOptions) sayPlace(l queueLook) {
	switch {
	case l.place == 1 && !l.delayed.IsZero():
		o.progress("waiting: "+delayedUntil(l.delayed), "")
	case o.inPlace():
		head, tail := l.drawn()
		o.progress("waiting: "+head, tail)
	default:
		o.progress("waiting: "+l.String(), "")
	}
}

// progress reports the progress of the wait, and overwrites its last report where that is possible.
// Then the path is cut so that head fits.
func (o *runOptions) progress(head, tail string) {
	o.waited = true
	if !o.inPlace() {
		o.note("%s", head+tail)
		return
	}
	o.drawn = true
	path := cutFront(max(o.columns()-mostColumns("zklock: : "+head+"…")-1, shortestPath), o.path)
	fmt.Fprintf(o.stderr, "\rzklock: %s: %s", path, head+tail)
}

const shortestPath = 12

// cutFront cuts a text to this number of columns, and keeps its end.
func cutFront(columns int, text string) string {
	if mostColumns(text) <= columns {
		return text
	}
	r := []rune(text)
	for mostColumns("…"+string(r)) > columns {
		r = r[1:]
	}
	return "…" + string(r)
}

func (o *runOptions) inPlace() bool {
	return !o.quiet && o.logFormat != logJSON && o.redraws != nil && o.redraws()
}

// undraw removes the line that progress has drawn, before another program writes to the terminal.
func (o *runOptions) undraw() {
	if !o.drawn {
		return
	}
	o.drawn = false
	fmt.Fprint(o.stderr, "\r")
	if out, ok := o.stderr.(supervise.Output); ok {
		out.Flush() // for half a second at most, if the terminal is stopped
	}
}

func (o *runOptions) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.wait > 0 {
		return context.WithTimeoutCause(ctx, o.wait, errWaited{o.wait})
	}
	return context.WithCancel(ctx)
}

type errWaited struct{ after time.Duration }

func (e errWaited) Error() string { return fmt.Sprintf("gave up after %v", e.after) }
