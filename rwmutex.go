package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// RWMutex is a read/write lock on a path, among all clients of the ensemble: readers hold it
// together, and a writer holds it alone. It is reusable, safe for many goroutines, and costs
// nothing until it is acquired.
//
// Each of its two sides is a [Mutex], with all of its methods. Readers and writers wait in one
// queue: a reader that queues after a writer waits for it, so neither side starves.
type RWMutex struct{ read, write Mutex }

// NewRWMutex returns the read/write lock on path, to which the rules of [NewMutex] apply, and sends
// nothing. The options apply to both sides.
//
// Both sides re-enter: give Acquire the context of the hold ([Hold.Context]), or a context with an
// owner ([WithOwner]).
//
// A writer may also read: its owner gets the read lock at once, for one request. The two are
// released in any order. While the owner still reads after the release of the write lock, other
// readers are granted, and writers wait. After such a downgrade, continue with the context of the
// read hold, because the context of the write hold ends with the write lock. So ReadLock().Do with
// the writer's context ends the context of its function when the write lock is released. If another
// client deletes the read lock's node, reads under that write hold return ErrLost until it is
// released. Near the end of the sequence counter, reads under a write hold return
// ErrSequenceExhausted.
//
// A reader may not write: the write lock returns [ErrUpgrade] at once to an owner that has only the
// read lock. The calls of one owner for both sides run one after the other: the later call waits
// until the earlier one is granted or has ended, and a try returns ErrNotAcquired. Until an owner
// has released a hold that was lost, both sides return ErrLost to it, except a side that it still
// holds.
//
// A Mutex on the same path excludes readers and writers, but has owners of its own: it also waits
// for a reader or a writer of the same owner, and they wait for it.
//
// The nodes have the names that Curator's InterProcessReadWriteLock uses since version 5.5, and Go
// and Java clients share a lock. The downgrade of an older Curator lets in a reader alongside a
// writer. Curator's InterProcessMutex on the same path does not see readers and writers at all.
func NewRWMutex(s *Session, path string, opts ...RWMutexOption) (*RWMutex, error) {
	if !s.isConnected() {
		return nil, &Error{Op: "new rwmutex", Path: path, Err: errNoSession}
	}
	o := newLockOptions(opts)
	read, err := mutexOf(s, path, queue.ReadName, o, readSide{})
	if err != nil {
		return nil, &Error{Op: "new rwmutex", Path: path, Err: badArgument{err}}
	}
	write, _ := mutexOf(s, path, queue.WriteName, o, writeSide{})
	read.kind, read.traced = "ReadLock", KindRead
	write.kind, write.traced = "WriteLock", KindWrite
	return &RWMutex{read, write}, nil
}

// ReadLock returns the side that readers hold together. Its Once returns an error, because Once needs a
// lock that one caller holds alone: call WriteLock().Once.
func (m *RWMutex) ReadLock() *Mutex { return &m.sides().read }

// WriteLock returns the side that one writer holds alone.
func (m *RWMutex) WriteLock() *Mutex { return &m.sides().write }

// Path returns the path as given to NewRWMutex.
func (m *RWMutex) Path() string { return m.sides().read.Path() }

// String returns the path, in one word.
func (m *RWMutex) String() string { return "RWMutex(" + m.Path() + ")" }

// Participants returns the queue, as [Mutex.Participants] does. The first readers in it hold
// together. A writer that also reads has two nodes.
func (m *RWMutex) Participants(ctx context.Context) ([]Participant, error) {
	if m == nil || !m.read.isMade() {
		return nil, &Error{Op: "participants", Err: errNoRWMutex}
	}
	return m.read.Participants(ctx)
}

// First returns the first in the queue, as [Mutex.First] does. If it is a reader (Shared), other
// readers may hold the lock, too.
func (m *RWMutex) First(ctx context.Context) (Participant, error) {
	if m == nil || !m.read.isMade() {
		return Participant{}, &Error{Op: "first", Err: errNoRWMutex}
	}
	return m.read.First(ctx)
}

// sides is for methods that return no error.
func (m *RWMutex) sides() *RWMutex {
	if m == nil || !m.read.isMade() {
		panic(fmt.Errorf("zklock: %w", errNoRWMutex))
	}
	return m
}

// pair is two shares of one owner in a lock, of which the second stands on the first's node: a node of its own that is made only while that
// is there, under a name that is chosen once. A transaction whose answer was lost is sent again, and "node exists" is success. It may also
// arrive late, as long as the first's node is there. So the second's node goes after the first's, and after the second was released. Its
// token is the first's.
type pair struct {
	noState
	first *lockData
	node  string // the second's, absolute

	// Guarded by the lockTable.
	byFirst bool            // the first needs it
	second  *lockData       // the share that needs it, which can be the next one before the last one has left
	after   *nodes.Deletion // of the first's node, if that is being deleted
	lost    error           // somebody has taken the second's node away: another with its name could be deleted, too
	heard   int64           // the zxid of the last message in the second's node that a hold was given
}

// leavePair removes a share from its pair. after is the deletion of the first's node; nil if that
// does not exist, or if the second leaves. If neither needs the second's node any more, leavePair
// has it deleted.
func (p *pair) leavePair(d *lockData, after *nodes.Deletion) *nodes.Deletion {
	d.table.mu.Lock()
	switch d {
	case p.first:
		p.byFirst, p.after = false, after
	case p.second:
		p.second = nil
	}
	needed := p.byFirst || p.second != nil
	d.table.mu.Unlock()
	if needed {
		return nil
	}
	return p.first.e.reaper.DeleteAfter(p.after, p.node)
}

// giveBack of the second waits for no deletion: its node stays until the first is released, too.
func (p *pair) giveBack(d *lockData) (xs [2]*nodes.Deletion) {
	if p.first != d {
		xs[0] = p.leavePair(d, nil)
		return xs
	}
	xs[0] = d.root.handOff(d.e, d.node, true, nil)
	xs[1] = p.leavePair(d, xs[0])
	return xs
}

func (p *pair) lossLocked(d *lockData) {
	if p.first != d {
		p.lost = d.lost
	}
}

// afterLoss removes the lost share, so that the other share's node is not kept for it.
func (p *pair) afterLoss(d *lockData, cause error) {
	if d.e.HasEnded() {
		return
	}
	var after *nodes.Deletion
	if p.first == d && !errors.Is(cause, link.ErrNodeGone) {
		after = d.e.reaper.Delete(d.node)
	}
	p.leavePair(d, after)
}

// isNewsLocked rejects a message that an earlier second was given: the node stays after its hold,
// with the message in it.
func (p *pair) isNewsLocked(d *lockData, written int64) bool {
	if p.first == d {
		return true
	}
	isNews := written > p.heard
	p.heard = max(p.heard, written)
	return isNews
}

// writeSide and readSide are the recipe of a read/write lock's sides. An owner that has the write lock may take the read lock, too: it makes a
// reader's node with the writer's number. A waiter behind the writer's node finds the reader's when that goes, and lists
// (queue.Rule.staysAlone).
//
//	write lock held ──▶ one transaction: the writer's node is there, make the reader's ──▶ both held, released in any order
//
// The token of the reader's node is larger than the tokens that those in the queue will have.
type (
	writeSide struct{ plain }
	readSide  struct{ plain }
)

func (writeSide) otherShare() string { return queue.ReadName }

func (readSide) otherShare() string { return queue.WriteName }

// besideLocked rejects an upgrade: the owner has the read lock.
func (s writeSide) besideLocked(t *lockTable, d *lockData) (*acquisition, error) {
	r, busy, err := t.heldLocked(d.key, s.otherShare())
	if r != nil {
		err = ErrUpgrade
	}
	return busy, err
}

// besideLocked makes the new share the second of a pair, if the owner has the write lock.
func (s readSide) besideLocked(t *lockTable, d *lockData) (*acquisition, error) {
	w, busy, err := t.heldLocked(d.key, s.otherShare())
	if w == nil {
		return busy, err
	}
	if w.root.nearTheEnd(w.node) { // the reader's node would keep the root from being made again
		return nil, ErrSequenceExhausted
	}
	p, isPair := w.state.(*pair)
	if !isPair {
		p = &pair{first: w, node: queue.DowngradedPath(w.node, uuid.NewString()), byFirst: true}
	}
	if p.lost != nil {
		return nil, p.lost
	}
	w.state, d.state, p.second = p, p, d
	return nil, nil
}

// beforeQueue takes the read lock for an owner that has the write lock. It returns errRequeue if there is none, or it was released meanwhile:
// then the owner queues.
func (s readSide) beforeQueue(a *acquisition) error {
	p, isPair := a.d.state.(*pair)
	if !isPair {
		return s.plain.beforeQueue(a)
	}
	d, w := a.d, p.first
	w.e.attempts.Add(1)
	err := makeDowngraded(a, p)
	w.e.attempts.Add(-1)
	if err == nil {
		return nil
	}
	if err == errRequeue && d.table.has(w) { // nobody released it
		w.e.LoseNode(w.node, link.ErrNodeGone)
	}
	p.leavePair(d, nil)
	t := d.table
	t.mu.Lock()
	defer t.mu.Unlock()
	d.state = noState{}
	switch {
	case err != errRequeue && !errors.Is(err, link.ErrSessionEnded): // it failed by itself
	case w.lost != nil:
		return w.lost
	case t.byKey[w.key] == w: // it is just hearing of it
		return lostBecause(cmp.Or(w.e.Cause(), link.ErrNodeGone))
	default:
		return errRequeue
	}
	return err
}

// makeDowngraded makes the reader's node, and grants on it. It returns errRequeue if the writer's node is gone.
func makeDowngraded(a *acquisition, p *pair) error {
	w, node := p.first, p.node
	if err := w.e.nodes.Claim(node); err != nil {
		return err
	}
	at := &attempt{acquisition: a, grantBasis: grantBasis{e: w.e, node: node, token: w.token, rootCzxid: w.rootCzxid, state: p}}
	ops := wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: w.node, Version: -1},
		{Op: wire.OpCreate, Create: wire.CreateRequest{Path: node, Data: a.opts.data, ACL: wireACL(w.root.acl), Flags: wire.FlagEphemeral}},
	}}
	for {
		i, err := w.e.Multi(a.ctx, ops, false)
		if errors.Is(err, zk.ErrNodeExists) { // an earlier try made it, or an earlier read lock of this writer
			err = nil
		}
		if err == nil {
			if err = at.grant(); err != errRequeue {
				return err
			}
			err = zk.ErrConnectionClosed // somebody deleted it before anybody had it: again, after a pause
		}
		switch r, err := at.findingOf(err); {
		case err != nil && i == 0:
			return reply.Denied(err, "check", "READ", w.node)
		case err != nil:
			return reply.Denied(err, "create", "CREATE", w.root.path)
		case r == queue.Absent:
			return errRequeue
		}
	}
}

// has says whether a share is held, or lost and not released.
func (t *lockTable) has(d *lockData) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKey[d.key] == d
}

// heldLocked returns the owner's other share if it is held; otherwise its acquisition, or its loss.
func (t *lockTable) heldLocked(key lockKey, other string) (d *lockData, busy *acquisition, err error) {
	key.share = other
	d = t.byKey[key]
	switch {
	case d == nil:
		return nil, nil, nil
	case d.acquiring != nil:
		return nil, d.acquiring, nil
	case d.lost != nil:
		return nil, nil, d.lost
	case d.e.HasEnded():
		return nil, nil, lostBecause(d.e.Cause())
	}
	return d, nil, nil
}
