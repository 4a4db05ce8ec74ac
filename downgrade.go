package zklock

import (
	"cmp"
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// downgrade is how an owner that has the write lock takes the read lock, too: a reader's node with the writer's number. Whoever stood
// behind the writer's node finds the reader's when that goes, and lists (queue.Rule.staysAlone).
//
//	write lock held ──▶ one transaction: the writer's node is there, make the reader's ──▶ both held, released in any order
//
// There is one reader's node for a writer's, under a name that is chosen once: a transaction whose answer was lost is sent again,
// and "node exists" is success. It may also arrive late, as long as the writer's node is there. So the reader's node goes after the
// writer's, and after the read lock was released. Its token is the writer's: that of the node is larger than the tokens that those
// in the queue will have.
type downgrade struct {
	writer *lockData
	node   string // the reader's, absolute

	// Guarded by the lockTable.
	byWriter bool            // the writer needs it
	reader   *lockData       // the share in the read lock that needs it, which can be the next one before the last one has left
	after    *nodes.Deletion // of the writer's node, if that is being deleted
	lost     error           // somebody has taken the read lock's node away: another with its name could be deleted, too
}

// otherSide returns the mode that an owner may have beside this one; "" if there is none.
func otherSide(mode string) string {
	switch mode {
	case queue.ReadName:
		return queue.WriteName
	case queue.WriteName:
		return queue.ReadName
	}
	return ""
}

// besideLocked says what follows for a new acquisition from the other side of the same lock. Its owner has the write lock: down is
// how it takes the read lock. It queues for the other side: busy is that acquisition. It has the read lock: ErrUpgrade. It had the other
// side, and lost it: that loss.
func (t *lockTable) besideLocked(key lockKey) (down *downgrade, busy *acquisition, err error) {
	d := t.byKey[lockKey{key.path, otherSide(key.mode), key.owner}]
	switch {
	case d == nil:
		return nil, nil, nil
	case d.acquiring != nil:
		return nil, d.acquiring, nil
	case d.lost != nil:
		return nil, nil, d.lost
	case d.e.IsOver():
		return nil, nil, lostBecause(d.e.Why())
	case key.mode == queue.WriteName:
		return nil, nil, ErrUpgrade
	case d.root.nearTheEnd(d.node): // the reader's node would keep the root from being made anew
		return nil, nil, ErrSequenceExhausted
	case d.down == nil:
		d.down = &downgrade{writer: d, node: queue.DowngradedPath(d.node, uuid.NewString()), byWriter: true}
	case d.down.lost != nil:
		return nil, nil, d.down.lost
	}
	return d.down, nil, nil
}

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

// loseDowngrade is for a hold that was lost while its session may go on: the other side's node must not go on for its sake.
func (d *lockData) loseDowngrade(cause error) {
	if d.e.IsOver() {
		return
	}
	d.table.mu.Lock()
	down := d.down
	d.table.mu.Unlock()
	if down == nil {
		return
	}
	var after *nodes.Deletion
	if down.writer == d && !errors.Is(cause, link.ErrNodeGone) {
		after = d.e.reaper.Erase(d.node)
	}
	d.leaveDowngrade(after)
}
