package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// The lock root: its creation, the Session's notes about it, the deletion of its lock nodes, and
// the restart of its sequence counter.

// Root is the lock root: the parent node of a queue. It creates that node, and restarts its
// sequence counter.
type Root struct {
	path string // absolute
	o    RootOptions
}

// RootOptions are what a lock root is created with, and what its nodes mean.
type RootOptions struct {
	Chroot    string // "" for none; it is never created
	Given     string // the lock's path as the user gave it, below the chroot
	ACL       []wire.ACL
	Container bool // the lock root is a container, and so are the parents that are created with it
	Rule      queue.Rule
	Notes     *Notes
	Second    *Root               // another root of the lock: it is created with this one, and nodes in it are deleted with a node of this one; nil for none
	Also      *wire.CreateRequest // a node that is created with the roots; nil for none
}

// NewRoot returns the lock root on an absolute path. It sends nothing.
func NewRoot(path string, o RootOptions) *Root { return &Root{path, o} }

// At returns a root of the same lock on another path, for nodes with these markers.
func (r *Root) At(path string, markers ...string) *Root {
	o := r.o
	o.Rule.Markers, o.Second, o.Also = markers, nil, nil
	return &Root{path, o}
}

// Path returns the absolute path.
func (r *Root) Path() string { return r.path }

// Given returns the lock's path as the user gave it, below the chroot.
func (r *Root) Given() string { return r.o.Given }

// ShownPath is the name of the lock in logs: the path as given, below its chroot. The nodes of a
// recipe may be in paths below it.
func (r *Root) ShownPath() string { return r.o.Chroot + r.o.Given }

// ACL returns the ACL of the root and its nodes.
func (r *Root) ACL() []wire.ACL { return r.o.ACL }

// IsContainer reports whether the root is created as a container.
func (r *Root) IsContainer() bool { return r.o.Container }

// Rule returns the rule that decides which of the nodes hold.
func (r *Root) Rule() queue.Rule { return r.o.Rule }

// Notes contains a Session's notes on lock roots. The zero value has none. A recipe's
// notes have a type of their own, and the engine does not read them.
type Notes struct {
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
	isUsed   bool      // a call of this Session has begun to take the lock
	deletion *Deletion // of the lock root with a node of ours; nil if none has begun since then
}

// isEvictedFirst: each use of a lock makes these notes.
func (*newRootNotes) isEvictedFirst() {}

// maxNotes limits the notes of a Session, even if each order has a lock path of its own (I7).
const maxNotes = 4096

// Note changes the Session's notes of type N on a lock root, and returns the notes from before the
// change.
func Note[N comparable](root *Root, change func(*N)) (before N) {
	r, key := root.o.Notes, noteKey{root.path, (*N)(nil)}
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

// NotesOn returns the Session's notes of type N on a lock root.
func NotesOn[N comparable](root *Root) N { return Note(root, func(*N) {}) }

// evictLocked deletes notes if there are too many, because most of them only save round trips and
// warnings: first the notes that have a method isEvictedFirst, and then all but those that have a
// method IsLasting, unless these fill half of the table.
func (r *Notes) evictLocked() {
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
		_, lasts := n.(interface{ IsLasting() })
		return !lasts
	})
	if r.notes == nil || len(r.notes) >= maxNotes/2 {
		r.notes = make(map[noteKey]any)
	}
}

// RootCreate is the creation of a lock root, and perhaps of all its parents below the chroot, in
// one batch; or of the parents alone (newroot.go).
type RootCreate struct {
	paths     []string       // the last is the lock root, or its parent
	all       bool           // the parents are included
	plain     bool           // not as containers, which the servers do not support
	responses []<-chan error // nil once they have arrived
	made      bool           // the last of the paths existed afterwards
	isOurs    bool           // this creation created it
	second    <-chan error   // response to the create of the lock's second root; nil if none was sent
	rejection error
	retry     link.Backoff
}

// make sends the creates for the lock root. Requests that are sent next reach the servers after
// them. If such a request found no root, the caller calls make again with the previous RootCreate:
// then make also creates the parents, from the top, whether they exist or not. The first time, only
// highest and the parents below it are created with the root: they belong to the recipe. An error
// means that the root cannot be created. last gets the errors of the requests; it may be nil.
func (r *Root) make(ctx context.Context, z *link.ZKSession, before *RootCreate, highest string, last *link.LastError) (*RootCreate, error) {
	if ctx.Err() != nil { // no call waits any more
		return nil, link.ErrCtxEnded
	}
	m := &RootCreate{all: before != nil}
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
	for p := r.path; p != r.o.Chroot && p != "/" && (m.all || len(p) >= len(highest)); p = path.Dir(p) {
		m.paths = append(m.paths, p)
	}
	slices.Reverse(m.paths)
	if _, err := z.WaitAttached(ctx); err != nil {
		return nil, err
	}
	for _, p := range m.paths {
		m.responses = append(m.responses, r.sendCreate(z, p, m, last))
	}
	if r.o.Second != nil { // if this create or the next one fails, the recipe creates that node when it needs it
		m.second = r.sendCreate(z, r.o.Second.path, m, last)
	}
	if r.o.Also != nil {
		ask(z, wire.OpCreate, *r.o.Also, nil)
	}
	return m, nil
}

// sendCreate sends the create of the lock root or of a parent.
func (r *Root) sendCreate(z *link.ZKSession, path string, m *RootCreate, last *link.LastError) <-chan error {
	op, create := wire.OpCreate, wire.CreateRequest{Path: path, ACL: r.o.ACL, Flags: wire.FlagPersistent}
	if r.o.Container && !m.plain {
		op, create.Flags = wire.OpCreateContainer, wire.FlagContainer
	}
	return ask(z, op, create, last)
}

// outcome waits for the responses, and reports whether the lock root existed after them. It may
// return false without an error: a response was lost, or a parent is missing. A rejection is
// returned only if the node is known to be missing, because a node that we may not create may
// exist.
func (r *Root) outcome(ctx context.Context, z *link.ZKSession, m *RootCreate) (made bool, err error) {
	container := r.o.Container && !m.plain
	for i, response := range m.responses {
		p := m.paths[i]
		err, ended := link.Await(ctx, z, response)
		if ended != nil {
			return false, ended
		}
		switch noNode := errors.Is(err, zk.ErrNoNode); {
		case errors.Is(err, link.ErrClosed):
			return false, err
		case noNode && path.Dir(p) == r.o.Chroot:
			return false, errChrootLost(r.o.Chroot)
		case noNode: // the parent, whose create was rejected, is missing
		case container && reply.ServerCode(err) == wire.Unimplemented: // servers before 3.5.3
			m.rejection, m.plain = nil, true
		case errors.Is(err, link.ErrHungUp):
			m.rejection = fmt.Errorf("creating %s: %w", p, err)
		case reply.IsRefusal(err) && !errors.Is(err, zk.ErrNodeExists): // the parent, whose create was rejected, exists
			m.rejection = fmt.Errorf("creating %s: %w", p, reply.Denied(err, "create", "CREATE", path.Dir(p)))
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

// Ensure creates the lock root and the missing parents below the chroot. It does not matter if
// another client creates one first, or deletes one in between. m is nil if nothing was sent.
func (r *Root) Ensure(ctx context.Context, z *link.ZKSession) (m *RootCreate, err error) {
	if r.path == r.o.Chroot {
		return nil, errChrootLost(r.o.Chroot)
	}
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

// UndoCreate deletes the containers that m has created and in which no node was created: the
// servers remove only containers that have had a child. m may be nil. hadNode reports that a node
// was created in the root, but none in the second root. Both are deleted or none, because a client
// that has a node in one is about to use the other. No promise depends on it: the deletion fails if
// another client uses the container, and a client that is about to use it creates it again.
func (r *Root) UndoCreate(z *link.ZKSession, m *RootCreate, hadNode bool) {
	if m == nil || !r.o.Container || m.plain {
		return
	}
	switch n := len(m.responses); {
	case r.o.Second != nil:
		if isMade(m.second) {
			deleteEmpty(z, r.path, r.o.Second.path)
		}
	case !hadNode && (m.isOurs || n > 0 && isMade(m.responses[n-1])):
		deleteEmpty(z, m.paths[len(m.paths)-1])
	}
}

// deleteEmpty deletes nodes to which no client has written, in one transaction.
func deleteEmpty(z *link.ZKSession, paths ...string) {
	var ops wire.MultiRequest
	for _, p := range paths {
		ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpDelete, Path: p, Version: 0})
	}
	ask(z, wire.OpMulti, ops, nil)
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

// NearTheEnd reports whether a node's suffix is near the end of the lock root's counter. zklock
// then restarts the counter when the queue is empty, by creating the root again.
func (r *Root) NearTheEnd(node string) bool {
	mem, ok := queue.Parse(node[len(r.path)+1:], r.o.Rule.Markers)
	return ok && (mem.PastTheEnd() || mem.Seq >= queue.CounterNearEnd)
}

// WarnOfTheEnd logs that the counter is near its end: once, or at most a few times, for each lock
// path and Session.
func (r *Root) WarnOfTheEnd(e *ZKSession, node string) {
	if !r.NearTheEnd(node) {
		return
	}
	before := Note(r, func(n *rootNotes) { n.warned = true })
	if !before.warned {
		e.Log.Warn("zklock: the lock root's sequence counter is near its end; zklock restarts it when the queue is empty",
			"path", r.ShownPath(), "node", node)
	}
}

// DeleteNode deletes a lock node and the further nodes that belong to it, in the second root. If a
// node was near the end of its root's counter, DeleteNode then restarts the counter: restarted gets
// the result (startAgain); otherwise it is nil. A record is taken back with the node. withRoot also
// deletes the lock root, if no other node is in it.
func (r *Root) DeleteNode(e *ZKSession, withRoot bool, record *GrantRecord, node string, further ...string) (xs []*Deletion, restarted <-chan error) {
	x := e.Reaper.add(&Deletion{node: node, root: withRoot, record: record})
	r.noteDeletion(withRoot, x)
	xs, restarted = []*Deletion{x}, r.RestartAfter(e, node, x)
	if len(further) > 0 {
		x = e.Reaper.ToDelete(further...)
		if xs = append(xs, x); restarted == nil {
			restarted = r.o.Second.RestartAfter(e, further[0], x)
		}
	}
	e.Reaper.Begin(xs...)
	return xs, restarted
}

// HandOff is DeleteNode for the node of a hold, and the caller begins it. If the hold may hand off
// the lock (queue.Rule.HandsOff), the next waiter gets it in the same transaction: a waiter of this
// ZooKeeper session that is directly behind the node. paired reports that another node of the owner
// depends on it. No lock root is deleted in a handoff.
func (r *Root) HandOff(e *ZKSession, node string, paired, withRoot bool, record *GrantRecord) *Deletion {
	x := &Deletion{node: node, root: withRoot}
	if r.o.Rule.HandsOff(paired) {
		x.record, x.handsOff = record, true
	}
	x = e.Reaper.add(x)
	r.noteDeletion(withRoot, x)
	r.RestartAfter(e, node, x)
	return x
}

func (r *Root) noteDeletion(withRoot bool, x *Deletion) {
	if withRoot {
		Note(r, func(n *newRootNotes) { n.deletion = x })
	}
}

// RestartAfter restarts the counter after a deletion, if the node was near its end. The channel
// gets the result; it is nil if nothing is to restart.
func (r *Root) RestartAfter(e *ZKSession, node string, x *Deletion) <-chan error {
	if !r.NearTheEnd(node) {
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
func (r *Root) warnNotRemoved(e *ZKSession, err error) {
	before := Note(r, func(n *rootNotes) { n.notRemoved = err.Error() })
	if before.notRemoved != err.Error() {
		e.Log.Warn("zklock: could not remove the empty lock root to start its sequence counter again", "path", r.ShownPath(), "node", r.path, "err", err)
	}
}

// startAgain removes the lock root if it is empty, and if we would create it again with the same
// data and ACL. (A Stat does not distinguish a container from a persistent node.) A root with a
// record of ours is created again with that record in one transaction, because the record may show
// that a holder disappeared. The deletion fails if a client has queued meanwhile. The error is the
// reason why the empty root remains. If another client creates the root again between our read and
// the deletion, the new root is deleted, because it is just as empty.
func (r *Root) startAgain(e *ZKSession) error {
	ctx := context.Background()
	var root wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: r.path}, &root); err != nil {
		return reply.Ignoring(reply.Denied(err, "get", "READ", r.path), zk.ErrNoNode)
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
		return reply.Ignoring(reply.Denied(err, "getACL", "READ", r.path), zk.ErrNoNode)
	}
	same := func(is, ours wire.ACL) bool { // servers replace the scheme auth by the user
		return is.Perms == ours.Perms && (is.ID == ours.ID || ours.ID.Scheme == "auth")
	}
	if !slices.EqualFunc(acl.ACL, r.o.ACL, same) {
		return fmt.Errorf("%s has an ACL other than the one that the Mutex sets (WithACL)", r.path)
	}
	ops := []wire.MultiOp{{Op: wire.OpCheck, Path: r.path, Version: root.Stat.Version}, {Op: wire.OpDelete, Path: r.path, Version: -1}}
	if record != "" {
		ops = append(ops, wire.MultiOp{Op: wire.OpCreate, Create: wire.CreateRequest{Path: r.path, Data: []byte(record), ACL: r.o.ACL, Flags: wire.FlagPersistent}})
	}
	i, err := e.Multi(ctx, wire.MultiRequest{Ops: ops}, false)
	if i == 2 {
		err = reply.Denied(err, "create", "CREATE", path.Dir(r.path))
	}
	if err == nil {
		Note(r, func(n *rootNotes) { n.notRemoved = "" })
		e.Log.Info("zklock: removed the empty lock root to start its sequence counter again", "path", r.ShownPath(), "node", r.path)
	}
	return reply.Ignoring(reply.Denied(err, "delete", "DELETE", path.Dir(r.path)), zk.ErrNotEmpty, zk.ErrNoNode, zk.ErrBadVersion)
}

// HoldsInFront reports whether the first node in a root's queue holds, or is about to hold.
func (r *Root) HoldsInFront(node string) bool {
	mem, isMember := queue.Parse(path.Base(node), r.o.Rule.Markers)
	return isMember && !mem.PastTheEnd()
}

// errChrootLost is for a chroot that Connect has found or created.
func errChrootLost(chroot string) error {
	return fmt.Errorf("%w: the servers have lost %s since this Session connected: create it again, or let another Connect with WithCreateChroot do so", ErrNoChroot, chroot)
}
