package zklock

import (
	"cmp"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// downgrade takes the read lock for an owner that has the write lock. It returns errRequeue if the write lock was released
// meanwhile: then the owner queues.
func (a *acquisition) downgrade() error {
	d, w := a.d, a.d.down.writer
	w.e.attempts.Add(1)
	err := a.makeDowngraded()
	w.e.attempts.Add(-1)
	if err == nil {
		return nil
	}
	if err == errRequeue && d.table.has(w) { // nobody released it
		w.e.LoseNode(w.node, link.ErrNodeGone)
	}
	d.leaveDowngrade(nil)
	t := d.table
	t.mu.Lock()
	defer t.mu.Unlock()
	d.down = nil
	switch {
	case err != errRequeue && !errors.Is(err, link.ErrOver): // it failed by itself
	case w.lost != nil:
		return w.lost
	case t.byKey[w.key] == w: // it is just hearing of it
		return lostBecause(cmp.Or(w.e.Why(), link.ErrNodeGone))
	default:
		return errRequeue
	}
	return err
}

// makeDowngraded makes the reader's node, and grants on it. It returns errRequeue if the writer's node is gone.
func (a *acquisition) makeDowngraded() error {
	w, node := a.d.down.writer, a.d.down.node
	at := &attempt{acquisition: a, e: w.e, node: node, token: w.token, rootCzxid: w.rootCzxid, retry: link.NewBackoff()}
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
			return answer.Denied(err, "check", "READ", w.node)
		case err != nil:
			return answer.Denied(err, "create", "CREATE", w.root.path)
		case r == queue.IsGone:
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

// giveBack begins the deletions that a released hold waits for. A reader beside its own writer waits for none: its node stays until
// the write lock is released, too.
func (d *lockData) giveBack(held []string) (xs [2]*nodes.Deletion) {
	if down := d.down; down != nil && down.writer != d {
		xs[0] = d.leaveDowngrade(nil)
		return xs
	}
	xs[0] = d.root.release(d.e, held, d.down != nil, d.mark)
	xs[1] = d.leaveDowngrade(xs[0])
	return xs
}

// leaveDowngrade takes the writer's or the reader's share from its downgrade, if there is one. after is the deletion of the writer's
// node, nil if that is gone or it is the reader that leaves. If neither needs the reader's node any more, leaveDowngrade has it
// deleted.
func (d *lockData) leaveDowngrade(after *nodes.Deletion) *nodes.Deletion {
	d.table.mu.Lock()
	down := d.down
	if down == nil {
		d.table.mu.Unlock()
		return nil
	}
	switch d {
	case down.writer:
		down.byWriter, down.after = false, after
	case down.reader:
		down.reader = nil
	}
	needed := down.byWriter || down.reader != nil
	d.table.mu.Unlock()
	if needed {
		return nil
	}
	return down.writer.e.reaper.EraseAfter(down.after, down.node)
}
