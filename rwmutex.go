package zklock

import (
	"cmp"
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// RWMutex is a read/write lock on a path: among all clients of the ensemble, readers hold it
// together, and a writer holds it alone. It is safe for concurrent use. Each side is a [Mutex].
// Both sides wait in one queue, so neither starves, and Participants of either side returns that
// queue.
type RWMutex struct{ read, write *Mutex }

// NewRWMutex returns the read/write lock on path, and sends nothing. The rules of [NewMutex] apply.
//
// Both sides re-enter for an owner, as a Mutex does. A writer may also read: a call with its owner,
// or with the write hold's context, gets the read lock at once. The two holds may be released in
// any order. The context of the write hold ends with the write lock, so continue with the context
// of the read hold. If another client deletes the read lock's node, reads under the write hold
// return [ErrLost] until the write hold is released. Near the end of the sequence counter they
// return [ErrSequenceExhausted].
//
// A reader may not write: the write lock returns [ErrUpgrade] at once to an owner that has only the
// read lock. An owner's calls for both sides run one at a time. After a loss, both sides return
// ErrLost to the owner until it has released the lost hold. Until then, only a side that it still
// holds can be re-entered.
//
// A Mutex on the same path excludes readers and writers, but does not share their owners: under a
// read or write hold, it waits for that hold.
//
// Curator's InterProcessReadWriteLock shares the lock from version 5.5 on. Older versions admit a
// reader alongside a writer (docs/curator.md).
func NewRWMutex(s *Session, path string, opts ...RWMutexOption) (*RWMutex, error) {
	o := newLockOptions(opts)
	read, err := mutexOf(s, "new rwmutex", path, queue.ReadName, o, readSide{})
	if err != nil {
		return nil, err
	}
	write, _ := mutexOf(s, "new rwmutex", path, queue.WriteName, o, writeSide{})
	read.root.other, write.root.other = write.root.share, read.root.share
	read.kind, read.traced = "ReadLock", KindRead
	write.kind, write.traced = "WriteLock", KindWrite
	return &RWMutex{read, write}, nil
}

// ReadLock returns the side that readers hold together.
func (m *RWMutex) ReadLock() *Mutex { return m.made().read }

// WriteLock returns the side that one writer holds alone.
func (m *RWMutex) WriteLock() *Mutex { return m.made().write }

func (m *RWMutex) made() *RWMutex { return usable(m, m != nil && m.read.isMade(), errNoRWMutex) }

// pair is the state of an owner that has both sides of a lock. The second share rests on the first
// share's node: its own node is created only while the first's exists, under a name that is chosen
// once. So if the reply to the transaction is lost, the transaction is sent again, and "node
// exists" is success. A late copy of it can arrive for as long as the first node exists. So the
// second node is deleted after the first, and after the second share's release. Its token is the
// first's.
type pair struct {
	first *lockData
	node  string // of the second share, absolute

	// Guarded by the lockTable.
	byFirst bool           // the first share needs the node
	second  *lockData      // the share that needs the node; a later one may replace it before its call has left
	after   *node.Deletion // of the first share's node, if that is being deleted
	lost    error          // another client deleted the second node; it could also delete another node of that name
	heard   int64          // the zxid of the last message in the second node that a hold was given
}

// leavePair removes a share from its pair. after is the deletion of the first's node; it is nil if
// that node does not exist, or if the second leaves. If no share needs the second's node any more,
// leavePair has the node deleted.
func (p *pair) leavePair(d *lockData, after *node.Deletion) *node.Deletion {
	d.table.mu.Lock()
	switch d {
	case p.first:
		p.byFirst, p.after = false, after
	case p.second:
		p.noteLossLocked()
		p.second = nil
	}
	needed := p.byFirst || p.second != nil
	d.table.mu.Unlock()
	if needed {
		return nil
	}
	return p.first.e.Reaper.DeleteAfter(p.after, p.node)
}

// noteLossLocked notes that the second share was lost after its grant.
func (p *pair) noteLossLocked() {
	if s := p.second; s != nil && s.acquiring == nil && s.lost != nil {
		p.lost = s.lost
	}
}

// giveBack of the second waits for no deletion: its node stays until the first is released, too.
func (p *pair) giveBack(d *lockData) (xs [2]*node.Deletion) {
	if p.first != d {
		xs[0] = p.leavePair(d, nil)
		return xs
	}
	xs[0] = d.root.HandOff(d.e, d.node, true, false, nil)
	xs[1] = p.leavePair(d, xs[0])
	return xs
}

// afterLoss removes the lost share, so that the other share's node is not kept for it.
func (p *pair) afterLoss(d *lockData, cause error) {
	if d.e.HasEnded() {
		return
	}
	var after *node.Deletion
	if p.first == d && !errors.Is(cause, link.ErrNodeGone) {
		after = d.e.Reaper.Delete(d.node)
	}
	p.leavePair(d, after)
}

// writeSide and readSide are the recipes of a read/write lock's sides. An owner that has the write
// lock may take the read lock, too: it creates a reader's node with the writer's number. When the
// writer's node is deleted, the waiter behind it lists, and finds the reader's node
// (queue.Rule.staysAlone).
//
//	write lock held ──▶ check the writer's node, create the reader's ──▶ both held
//
// The check and the create are one transaction. The two are released in any order. The czxid of the
// reader's node is larger than the czxids of the nodes that already wait, so it is not the token.
type (
	writeSide struct{ plain }
	readSide  struct{ plain }
)

// admitLocked rejects an upgrade: the owner has the read lock.
func (writeSide) admitLocked(t *lockTable, d *lockData) (*acquisition, error) {
	r, busy, err := t.heldLocked(d.key, d.root.other)
	if r != nil {
		err = ErrUpgrade
	}
	return busy, err
}

// admitLocked makes the new share the second of a pair, if the owner has the write lock.
func (readSide) admitLocked(t *lockTable, d *lockData) (*acquisition, error) {
	w, busy, err := t.heldLocked(d.key, d.root.other)
	if w == nil {
		return busy, err
	}
	if w.root.NearTheEnd(w.node) { // the reader's node would prevent the root from being created again
		return nil, ErrSequenceExhausted
	}
	p, isPair := w.state.(*pair)
	if !isPair {
		p = &pair{first: w, node: queue.DowngradedPath(w.node, uuid.NewString()), byFirst: true}
	}
	if p.noteLossLocked(); p.lost != nil {
		return nil, p.lost
	}
	w.state, d.state, p.second = p, p, d
	return nil, nil
}

// beforeQueue takes the read lock for an owner that has the write lock. It returns errRequeue if
// the owner has none, or released it meanwhile: then the owner queues.
func (s readSide) beforeQueue(a *acquisition) error {
	p, isPair := a.d.state.(*pair)
	if !isPair {
		return s.plain.beforeQueue(a)
	}
	d, w := a.d, p.first
	w.e.Attempting(1)
	err := makeDowngraded(a, p)
	w.e.Attempting(-1)
	if err == nil {
		return nil
	}
	if err == errRequeue && d.table.has(w) { // no call released it
		w.e.LoseNode(w.node, link.ErrNodeGone)
	}
	p.leavePair(d, nil)
	t := d.table
	t.mu.Lock()
	defer t.mu.Unlock()
	d.state = noState{}
	switch {
	case err != errRequeue && !errors.Is(err, link.ErrSessionEnded): // it failed for a reason of its own
	case w.lost != nil:
		return w.lost
	case t.byKey[w.key] == w: // the loss is being reported
		return lostBecause(cmp.Or(w.e.Cause(), link.ErrNodeGone))
	default:
		return errRequeue
	}
	return err
}

// makeDowngraded creates the reader's node, and grants on it. It returns errRequeue if the writer's
// node does not exist.
func makeDowngraded(a *acquisition, p *pair) error {
	w, node := p.first, p.node
	if err := w.e.Own.Claim(node); err != nil {
		return err
	}
	at := &attempt{acquisition: a, grantBasis: grantBasis{e: w.e, node: node, token: w.token, rootCzxid: w.rootCzxid, state: p, heard: &p.heard}}
	ops := wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: w.node, Version: -1},
		{Op: wire.OpCreate, Create: wire.CreateRequest{Path: node, Data: a.opts.data, ACL: w.root.ACL(), Flags: wire.FlagEphemeral}},
	}}
	for {
		i, err := w.e.Multi(a.ctx, ops, false)
		if errors.Is(err, zk.ErrNodeExists) { // an earlier try created it, or an earlier read lock of this writer
			err = nil
		}
		if err == nil {
			if err = at.grant(); err != errRequeue {
				return err
			}
			err = zk.ErrConnectionClosed // another client deleted it before the grant: try again, after a pause
		}
		switch r, err := at.findingOf(err); {
		case err != nil && i == 0:
			return reply.Denied(err, "check", "READ", w.node)
		case err != nil:
			return reply.Denied(err, "create", "CREATE", w.root.Path())
		case r == queue.Absent:
			return errRequeue
		}
	}
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
