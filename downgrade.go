package zklock

import (
	"cmp"
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

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
