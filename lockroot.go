package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// The lock root: its creation, the Session's notes about it, the deletion of its lock nodes, and
// the restart of its sequence counter.

// lockRoot is the parent node of a queue. It creates that node, and restarts its sequence counter.
type lockRoot struct {
	path      string // absolute
	chroot    string // "" for none; it is never created
	given     string // as given to NewMutex
	acl       []wire.ACL
	container bool // the lock root is a container, and so are the parents that are created with it
	rule      queue.Rule
	noReentry bool // an owner that holds the lock gets an error from its next call
	roots     *roots

	// Set by a recipe.
	share   string // the name of an owner's share: each share has owners of its own
	isFresh bool   // each call takes a new share, and never re-enters one
}

// shownPath is the name of the lock in logs: the path as given, below its chroot. The nodes of a
// recipe may be in paths below it.
func (r *lockRoot) shownPath() string { return r.chroot + r.given }

// roots contains a Session's notes on lock roots. A recipe's notes have a type of their own, and
// the engine does not read them.
type roots struct {
	mu    sync.Mutex
	notes map[noteKey]any // pointers to notes that are not zero
	found atomic.Int64    // how many roots in succession existed when a lock was first taken (newroot.go)
}

// noteKey identifies the notes of one type on one lock root.
type noteKey struct {
	path string
	kind any // a nil pointer to the type
}

// rootNotes are the engine's own notes.
type rootNotes struct {
	warned     bool
	notRemoved string // why the root could not be removed, as logged
}

// newRootNotes are the notes on a lock root that a transaction may create.
type newRootNotes struct {
	isUsed   bool            // a call of this Session has begun to take the lock
	deletion *nodes.Deletion // of the lock root with a node of ours; nil if none has begun since then
}

// isEvictedFirst: each use of a lock makes these notes.
func (*newRootNotes) isEvictedFirst() {}

// maxNotes limits the notes of a Session, even if each order has a lock path of its own (I7).
const maxNotes = 4096

// note changes the Session's notes of type N on a lock root, and returns the notes from before the
// change.
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

// evictLocked deletes notes if there are too many, because most of them only save round trips and
// warnings: first the notes that have a method isEvictedFirst, and then all but those that have a
// method isLasting, unless these fill half of the table.
func (r *roots) evictLocked() {
	if r.notes != nil && len(r.notes) < maxNotes {
		return
	}
	maps.DeleteFunc(r.notes, func(_ noteKey, n any) bool {
		_, first := n.(interface{ isEvictedFirst() })
		return first
	})
	if r.notes != nil && len(r.notes) < maxNotes/2 {
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

// rootCreate is the creation of a lock root, and perhaps of all its parents below the chroot, in
// one batch; or of the parents alone (newroot.go).
type rootCreate struct {
	paths     []string       // the last is the lock root, or its parent
	all       bool           // the parents are included
	plain     bool           // not as containers, which the servers do not support
	responses []<-chan error // nil once they have arrived
	made      bool           // the last of the paths existed afterwards
	isOurs    bool           // this creation created it
	rejection error
	retry     link.Backoff
}

// make sends the creates for the lock root. Requests that are sent next reach the servers after
// them. If such a request found no root, the caller calls make again with the previous rootCreate:
// then make also creates the parents, from the top, whether they exist or not. The first time, only
// highest and the parents below it are created with the root: they belong to the recipe. An error
// means that the root cannot be created. last gets the errors of the requests; it may be nil.
func (r *lockRoot) make(ctx context.Context, z *link.ZKSession, before *rootCreate, highest string, last *link.LastError) (*rootCreate, error) {
	if ctx.Err() != nil { // no call waits any more
		return nil, link.ErrCtxEnded
	}
	m := &rootCreate{all: before != nil}
	if m.all {
		made, err := r.outcome(ctx, z, before)
		if err != nil {
			return nil, err
		}
		m.retry, m.plain = before.retry, before.plain
		if made || before.all { // another client deletes the root, or the connection was lost
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

// sendCreate sends the create of the lock root or of a parent.
func (r *lockRoot) sendCreate(z *link.ZKSession, path string, container bool, last *link.LastError) <-chan error {
	op, create := wire.OpCreate, wire.CreateRequest{Path: path, ACL: r.acl, Flags: wire.FlagPersistent}
	if container {
		op, create.Flags = wire.OpCreateContainer, wire.FlagContainer
	}
	return ask(z, op, create, last)
}

// outcome waits for the responses, and reports whether the lock root existed after them. It may
// return false without an error: a response was lost, or a parent is missing. A rejection is
// returned only if the node is known to be missing, because a node that we may not create may
// exist.
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
		case noNode: // the parent, whose create was rejected, is missing
		case container && reply.ServerCode(err) == wire.Unimplemented: // servers before 3.5.3
			m.rejection, m.plain = nil, true
		case errors.Is(err, link.ErrHungUp):
			m.rejection = fmt.Errorf("creating %s: %w", path, err)
		case reply.IsRefusal(err) && !errors.Is(err, zk.ErrNodeExists): // the parent, whose create was rejected, exists
			m.rejection = fmt.Errorf("creating %s: %w", path, reply.Denied(err, "create", "CREATE", parentOf(path)))
		default: // the parent exists too, or the result is unknown
			m.rejection, m.made = nil, i == len(m.paths)-1 && (err == nil || errors.Is(err, zk.ErrNodeExists))
			m.isOurs = m.made && err == nil
		}
	}
	if m.responses = nil; m.made {
		return true, nil
	}
	return false, m.rejection
}

// ensure creates the lock root and the missing parents below the chroot. It does not matter if
// another client creates one first, or deletes one in between. m is nil if nothing was sent.
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

// undoCreate deletes the container that this rootCreate created last, and that no node of ours came to use,
// because the servers remove only containers that have had a child. No promise depends on it: the
// deletion fails if another client uses the container, and a client that is about to use it creates
// it again.
func (r *lockRoot) undoCreate(z *link.ZKSession, m *rootCreate) {
	if m == nil || !r.container || m.plain {
		return
	}
	if n := len(m.responses); m.isOurs || n > 0 && isMade(m.responses[n-1]) {
		ask(z, wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpDelete, Path: m.paths[len(m.paths)-1], Version: 0}}}, nil)
	}
}

// isMade reports whether the response to a create has arrived, and is a success. It takes the
// response.
func isMade(response <-chan error) bool {
	select {
	case err := <-response:
		return err == nil
	default:
		return false
	}
}

// ask sends a request. The channel gets the request's error, once.
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

// nearTheEnd reports whether a node's suffix is near the end of the lock root's counter. zklock
// then restarts the counter when the queue is empty, by creating the root again.
func (r *lockRoot) nearTheEnd(node string) bool {
	mem, ok := queue.Parse(node[len(r.path)+1:], r.rule.Markers)
	return ok && (mem.PastTheEnd() || mem.Seq >= queue.CounterNearEnd)
}

// warnOfTheEnd logs that the counter is near its end: once, or at most a few times, for each lock
// path and Session.
func (r *lockRoot) warnOfTheEnd(e *zkSession, node string) {
	if !r.nearTheEnd(node) {
		return
	}
	before := note(r, func(n *rootNotes) { n.warned = true })
	if !before.warned {
		e.Log.Warn("zklock: the lock root's sequence counter is near its end; zklock restarts it when the queue is empty",
			"path", r.shownPath(), "node", node)
	}
}

// deleteNode deletes a lock node and the further nodes that belong to it. If the node was near the
// end of the counter, deleteNode then restarts the counter: restarted gets the result (startAgain);
// otherwise it is nil. A record is taken back with the node. withRoot also deletes the lock root, if
// no other node is in it.
func (r *lockRoot) deleteNode(e *zkSession, withRoot bool, record *nodes.GrantRecord, node string, further ...string) (x *nodes.Deletion, restarted <-chan error) {
	switch {
	case record != nil:
		x = e.reaper.DeleteRecorded(node, record)
	case withRoot:
		x = e.reaper.DeleteWithRoot(node)
	default:
		x = e.reaper.DeleteAll(append([]string{node}, further...))
	}
	r.noteDeletion(withRoot, x)
	return x, r.restarting(e, node, x)
}

// handOff is deleteNode for the node of a hold. It also hands the lock to the next waiter, if that
// waiter's node belongs to this ZooKeeper session. paired reports that another node of the owner
// depends on it. No lock root is deleted in a handoff.
func (r *lockRoot) handOff(e *zkSession, node string, paired, withRoot bool, record *nodes.GrantRecord) *nodes.Deletion {
	x := e.reaper.HandOff(node, r.rule, paired, withRoot, record)
	r.noteDeletion(withRoot, x)
	r.restarting(e, node, x)
	return x
}

func (r *lockRoot) noteDeletion(withRoot bool, x *nodes.Deletion) {
	if withRoot {
		note(r, func(n *newRootNotes) { n.deletion = x })
	}
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

// warnNotRemoved logs why the empty lock root could not be removed. Each release tries again, so
// the same reason is not logged twice in a row.
func (r *lockRoot) warnNotRemoved(e *zkSession, err error) {
	before := note(r, func(n *rootNotes) { n.notRemoved = err.Error() })
	if before.notRemoved != err.Error() {
		e.Log.Warn("zklock: could not remove the empty lock root to start its sequence counter again", "path", r.shownPath(), "node", r.path, "err", err)
	}
}

// startAgain removes the lock root if it is empty, and if we would create it again with the same
// data and ACL. (A Stat does not distinguish a container from a persistent node.) A root with a
// record of ours is created again with that record in one transaction, because the record may show
// that a holder disappeared. The deletion fails if a client has queued meanwhile. The error is the
// reason why the empty root remains. If another client creates the root again between our read and
// the deletion, the new root is deleted, because it is just as empty.
func (r *lockRoot) startAgain(e *zkSession) error {
	ctx := context.Background()
	var root wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: r.path}, &root); err != nil {
		return ignoring(reply.Denied(err, "get", "READ", r.path), zk.ErrNoNode)
	}
	record, isOurs := queue.ParseRecord(root.Data)
	created := (uint32(root.Stat.Cversion) + uint32(root.Stat.NumChildren)) / 2 // children ever created: Cversion counts deletions too
	switch {
	case created < queue.CounterNearEnd, root.Stat.NumChildren > 0:
		return nil
	case !isOurs:
		return fmt.Errorf("%s has data that zklock did not write", r.path)
	}
	var acl wire.ACLResponse
	if _, err := e.Read(ctx, wire.OpGetACL, wire.PathRequest{Path: r.path}, &acl); err != nil {
		return ignoring(reply.Denied(err, "getACL", "READ", r.path), zk.ErrNoNode)
	}
	same := func(is, ours wire.ACL) bool { // servers replace the scheme auth by the user
		return is.Perms == ours.Perms && (is.ID == ours.ID || ours.ID.Scheme == "auth")
	}
	if !slices.EqualFunc(acl.ACL, r.acl, same) {
		return fmt.Errorf("%s has an ACL other than the one that the Mutex sets (WithACL)", r.path)
	}
	ops := []wire.MultiOp{{Op: wire.OpCheck, Path: r.path, Version: root.Stat.Version}, {Op: wire.OpDelete, Path: r.path, Version: -1}}
	if record != "" {
		ops = append(ops, wire.MultiOp{Op: wire.OpCreate, Create: wire.CreateRequest{Path: r.path, Data: []byte(record), ACL: r.acl, Flags: wire.FlagPersistent}})
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

// holdsInFront reports whether the first node in a root's queue holds, or is about to hold.
func (r *lockRoot) holdsInFront(node string) bool {
	mem, isMember := queue.Parse(nameOf(node), r.rule.Markers)
	return isMember && queue.HoldersOf([]queue.Member{mem})[0]
}
