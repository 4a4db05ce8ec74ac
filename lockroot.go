package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// lockRoot is the node above a queue. It knows how to make it, and how to start its sequence counter again.
type lockRoot struct {
	path      string // absolute
	chroot    string // "" for none; it is not made
	given     string // as given to NewMutex
	acl       []zk.ACL
	container bool // so are the parents that are made with it
	rule      queue.Rule
	noReentry bool // a call of an owner that holds it is an error
	roots     *roots

	// What a recipe says of it.
	share   string // the name of what an owner has here: shares with other names have owners of their own
	isFresh bool   // each call takes a share of its own, and re-enters none
}

// shownPath is what logs call the lock: the path as given, below its chroot. The nodes of a recipe may be further down.
func (r *lockRoot) shownPath() string { return r.chroot + r.given }

// roots has a Session's notes on lock roots. A recipe's notes have a type of their own, and the
// engine does not read them.
type roots struct {
	mu    sync.Mutex
	notes map[noteKey]any // pointers to notes that are not zero
}

// noteKey identifies the notes of one type on one lock root.
type noteKey struct {
	path string
	kind any // a nil pointer to the type
}

// rootNotes are the notes that the engine makes.
type rootNotes struct {
	warned     bool
	notRemoved string // why it could not be removed, as logged
}

// maxNotes bounds the notes of a Session, also if each order has a lock path of its own (I7).
const maxNotes = 4096

// note changes the Session's notes of type N on a lock root, and returns the notes before that.
func note[N comparable](root *lockRoot, change func(*N)) (before N) {
	r, key := root.roots, noteKey{root.path, (*N)(nil)}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, isThere := r.notes[key].(*N)
	if isThere {
		before = *now
	} else {
		now = new(N)
	}
	switch change(now); {
	case *now == *new(N):
		delete(r.notes, key)
	case !isThere:
		r.evictLocked()
		r.notes[key] = now
	}
	return before
}

// notesOn returns the Session's notes of type N on a lock root.
func notesOn[N comparable](root *lockRoot) (now N) {
	root.roots.mu.Lock()
	defer root.roots.mu.Unlock()
	if n, ok := root.roots.notes[noteKey{root.path, (*N)(nil)}].(*N); ok {
		now = *n
	}
	return now
}

// evictLocked deletes the notes if there are too many, because most of them only save round trips
// and warnings. It keeps those with a method isLasting, unless they fill half of the table.
func (r *roots) evictLocked() {
	if r.notes != nil && len(r.notes) < maxNotes {
		return
	}
	maps.DeleteFunc(r.notes, func(_ noteKey, n any) bool {
		_, lasts := n.(interface{ isLasting() })
		return !lasts
	})
	if r.notes == nil || len(r.notes) >= maxNotes/2 {
		r.notes = make(map[noteKey]any)
	}
}

// rootCreate is the creation of a lock root, and perhaps of all its parents below the chroot, in one flight.
type rootCreate struct {
	paths     []string       // the lock root is the last
	all       bool           // the parents are among them
	plain     bool           // there are no containers: the servers know none
	responses []<-chan error // nil once they are here
	made      bool           // the lock root was there after it
	isOurs    bool           // the last one was made by it
	rejection error
	retry     link.Backoff
}

// make sends the creation of the lock root. What is sent next reaches the servers after it. If that found no root, make is called again with
// what went ahead: then the parents go with it, from the top, whether they are there or not. The
// first time, only highest and the parents below it are created with it: they are the recipe's own.
// An error says that the root cannot be made. last gets the errors of the requests; it may be nil.
func (r *lockRoot) make(ctx context.Context, z *link.ZKSession, before *rootCreate, highest string, last *link.LastError) (*rootCreate, error) {
	if ctx.Err() != nil { // nobody waits any more
		return nil, link.ErrCtxEnded
	}
	m := &rootCreate{all: before != nil}
	if m.all {
		made, err := r.outcome(ctx, z, before)
		if err != nil {
			return nil, err
		}
		m.retry, m.plain = before.retry, before.plain
		if made || before.all { // somebody deletes it, or the connection was lost
			if err := z.PauseUnder(ctx, m.retry.Next()); err != nil {
				return nil, err
			}
		}
	}
	for path := r.path; path != r.chroot && path != "/" && (m.all || len(path) >= len(highest)); path = parentOf(path) {
		m.paths = append(m.paths, path)
	}
	slices.Reverse(m.paths)
	if _, err := z.WaitAttached(ctx); err != nil {
		return nil, err
	}
	for _, path := range m.paths {
		m.responses = append(m.responses, r.sendCreate(z, path, r.container && !m.plain, last))
	}
	return m, nil
}

// sendCreate asks for the creation of the lock root or of a parent.
func (r *lockRoot) sendCreate(z *link.ZKSession, path string, container bool, last *link.LastError) <-chan error {
	op, create := wire.OpCreate, wire.CreateRequest{Path: path, ACL: wireACL(r.acl), Flags: wire.FlagPersistent}
	if container {
		op, create.Flags = wire.OpCreateContainer, wire.FlagContainer
	}
	return ask(z, op, create, last)
}

// outcome waits for the answers, and says whether the lock root was there after them. It may say no, and nothing else: the answer was
// lost, or a parent is missing. A refusal is told only if the node is known to be missing: what may not be made may be there.
func (r *lockRoot) outcome(ctx context.Context, z *link.ZKSession, m *rootCreate) (made bool, err error) {
	container := r.container && !m.plain
	for i, response := range m.responses {
		path := m.paths[i]
		err, ended := link.Await(ctx, z, response)
		if ended != nil {
			return false, ended
		}
		switch noNode := errors.Is(err, zk.ErrNoNode); {
		case errors.Is(err, ErrClosed):
			return false, err
		case noNode && parentOf(path) == r.chroot:
			return false, errChrootLost(r.chroot)
		case noNode: // what was refused above it is missing
		case container && reply.ServerCode(err) == wire.Unimplemented: // servers before 3.5.3
			m.rejection, m.plain = nil, true
		case errors.Is(err, link.ErrHungUp):
			m.rejection = fmt.Errorf("making %s: %w", path, err)
		case reply.IsRefusal(err) && !errors.Is(err, zk.ErrNodeExists): // what was refused above it is there
			m.rejection = fmt.Errorf("making %s: %w", path, reply.Denied(err, "create", "CREATE", parentOf(path)))
		default: // the same, or nobody knows
			m.rejection, m.made = nil, path == r.path && (err == nil || errors.Is(err, zk.ErrNodeExists))
			m.isOurs = m.made && err == nil
		}
	}
	if m.responses = nil; m.made {
		return true, nil
	}
	return false, m.rejection
}

// ensure makes the lock root and the parents it lacks, below the chroot. It does not matter if
// another client makes one first, or deletes one in between. m is nil if nothing was sent.
func (r *lockRoot) ensure(ctx context.Context, z *link.ZKSession) (m *rootCreate, err error) {
	for {
		next, err := r.make(ctx, z, m, r.path, nil)
		if err != nil {
			return m, err
		}
		m = next
		if made, err := r.outcome(ctx, z, m); made || err != nil {
			return m, err
		}
	}
}

// undoCreate has a container deleted that this making made, and that no node of ours came to use: the servers remove only those that have had a
// child. Nothing rests on it: it fails if somebody uses the container, and whoever is about to makes it again.
func (r *lockRoot) undoCreate(z *link.ZKSession, m *rootCreate) {
	if m == nil || !r.container || m.plain {
		return
	}
	if n := len(m.responses); m.isOurs || n > 0 && isMade(m.responses[n-1]) {
		ask(z, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpDelete, Path: r.path, Version: 0}}}, nil)
	}
}

// isMade reports whether the response to a create is here, and is a success. It takes the response.
func isMade(response <-chan error) bool {
	select {
	case err := <-response:
		return err == nil
	default:
		return false
	}
}

// ask sends a request, and returns its error once.
func ask(z *link.ZKSession, op wire.Op, body wire.Record, last *link.LastError) <-chan error {
	ch := make(chan error, 1)
	if !z.Carrier.Send(z, mux.NewRequest(op, body, func(a mux.Reply) {
		err := reply.ErrOf(a)
		last.Note(err)
		ch <- err
	})) {
		ch <- zk.ErrConnectionClosed
	}
	return ch
}

// nearTheEnd says whether a node's suffix is near the end of the lock root's counter. Then zklock starts the counter again
// when the queue is empty, by making the root again.
func (r *lockRoot) nearTheEnd(node string) bool {
	mem, ok := queue.Parse(node[len(r.path)+1:], r.rule.Markers)
	return ok && (mem.PastTheEnd() || mem.Seq >= queue.CounterNearEnd)
}

// warnOfTheEnd logs that the counter is near its end: once, or at most a few times, for each lock path and Session.
func (r *lockRoot) warnOfTheEnd(e *zkSession, node string) {
	if !r.nearTheEnd(node) {
		return
	}
	before := note(r, func(n *rootNotes) { n.warned = true })
	if !before.warned {
		e.Log.Warn("zklock: the lock root's sequence counter is near its end; zklock starts it again when the queue is empty",
			"path", r.shownPath(), "node", node)
	}
}

// deleteNode has a lock node deleted, and those that belong to it. If the node was near the end of the counter, it then starts the counter
// again: restarted has what came of that (startAgain), otherwise it is nil. A record is taken back with the node.
func (r *lockRoot) deleteNode(e *zkSession, record *nodes.GrantRecord, node string, further ...string) (x *nodes.Deletion, restarted <-chan error) {
	if record != nil {
		x = e.reaper.DeleteRecorded(node, record)
	} else {
		x = e.reaper.DeleteAll(append([]string{node}, further...))
	}
	return x, r.restarting(e, node, x)
}

// handOff is erase for the node of a hold. It also passes the turn to the next in line, if that is
// a node of this ZooKeeper session. paired reports that another node of the owner depends on it.
func (r *lockRoot) handOff(e *zkSession, node string, paired bool, record *nodes.GrantRecord) *nodes.Deletion {
	x := e.reaper.HandOff(node, r.rule, paired, record)
	r.restarting(e, node, x)
	return x
}

func (r *lockRoot) restarting(e *zkSession, node string, x *nodes.Deletion) <-chan error {
	if !r.nearTheEnd(node) {
		return nil
	}
	restarted := make(chan error, 1)
	e.Carrier.Spawn(func() {
		select {
		case <-x.Done:
			err := r.startAgain(e)
			if err != nil {
				r.warnNotRemoved(e, err)
			}
			restarted <- err
		case <-e.Ended():
		}
	})
	return restarted
}

// warnNotRemoved logs why the empty lock root could not be removed: again only if the reason is another, as each release tries again.
func (r *lockRoot) warnNotRemoved(e *zkSession, err error) {
	before := note(r, func(n *rootNotes) { n.notRemoved = err.Error() })
	if before.notRemoved != err.Error() {
		e.Log.Warn("zklock: could not remove the empty lock root to start its sequence counter again", "path", r.shownPath(), "node", r.path, "err", err)
	}
}

// startAgain removes the lock root if it is empty, and if we would make it again just as it is. (A Stat does not tell a
// container from a persistent node.) A root with a record of ours is made again with it in one transaction: it may say that a holder
// disappeared. The deletion fails if somebody has queued meanwhile. The error says why the
// empty root stays. If somebody else makes the root again between the look and the deletion, it is that root that
// goes, as empty as it is.
func (r *lockRoot) startAgain(e *zkSession) error {
	ctx := context.Background()
	var root wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: r.path}, &root); err != nil {
		return ignoring(reply.Denied(err, "get", "READ", r.path), zk.ErrNoNode)
	}
	record, isOurs := queue.ParseRecord(root.Data)
	created := (uint32(root.Stat.Cversion) + uint32(root.Stat.NumChildren)) / 2 // children ever: Cversion counts deletions too
	switch {
	case created < queue.CounterNearEnd, root.Stat.NumChildren > 0:
		return nil
	case !isOurs:
		return fmt.Errorf("%s has data of somebody else", r.path)
	}
	var acl wire.ACLResponse
	if _, err := e.Read(ctx, wire.OpGetACL, wire.PathRequest{Path: r.path}, &acl); err != nil {
		return ignoring(reply.Denied(err, "getACL", "READ", r.path), zk.ErrNoNode)
	}
	same := func(is, ours wire.ACL) bool { // servers put the user in the place of the scheme auth
		return is.Perms == ours.Perms && (is.ID == ours.ID || ours.ID.Scheme == "auth")
	}
	if !slices.EqualFunc(acl.ACL, wireACL(r.acl), same) {
		return fmt.Errorf("%s has another ACL than the Mutex gives it (WithACL)", r.path)
	}
	ops := []wire.MultiOp{{Op: wire.OpCheck, Path: r.path, Version: root.Stat.Version}, {Op: wire.OpDelete, Path: r.path, Version: -1}}
	if record != "" {
		ops = append(ops, wire.MultiOp{Op: wire.OpCreate, Create: wire.CreateRequest{Path: r.path, Data: []byte(record), ACL: wireACL(r.acl), Flags: wire.FlagPersistent}})
	}
	i, err := e.Multi(ctx, wire.MultiRequest{Ops: ops}, false)
	if i == 2 {
		err = reply.Denied(err, "create", "CREATE", parentOf(r.path))
	}
	if err == nil {
		note(r, func(n *rootNotes) { n.notRemoved = "" })
		e.Log.Info("zklock: removed the empty lock root to start its sequence counter again", "path", r.shownPath(), "node", r.path)
	}
	return ignoring(reply.Denied(err, "delete", "DELETE", parentOf(r.path)), zk.ErrNotEmpty, zk.ErrNoNode, zk.ErrBadVersion)
}

func wireACL(acl []zk.ACL) []wire.ACL {
	w := make([]wire.ACL, len(acl))
	for i, a := range acl {
		w[i] = wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: a.Scheme, ID: a.ID}}
	}
	return w
}
