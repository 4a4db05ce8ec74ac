package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
)

// How an acquisition runs. It has a goroutine of its own, and its call waits for the outcome. No
// request, pause or wait of the acquisition gets the caller's context: a.ctx ends when the call has
// left (lockTable.leave).

// callerIn looks up the caller in its context. Most contexts carry no hold of the path: one
// look-up, which allocates nothing, shows that.
func callerIn(ctx context.Context, t *lockTable, root *lockRoot, other string) caller {
	by := caller{owner: ownerSet(ctx), wait: waitIn(ctx, root.Path())}
	if by.inner, _ = ctx.Value(root).(*Hold); by.inner == nil || root.isFresh {
		return by
	}
	for i, share := range [2]string{root.share, other} {
		if share == "" {
			break
		}
		k := holdKey{table: t, root: root.Path(), share: share}
		if k.fits(by.inner) {
			by.under[i] = by.inner.d
		} else if h := heldIn(ctx, k); h != nil {
			by.under[i] = h.d
		}
	}
	return by
}

// run queues in one ZooKeeper session after another until the lock is granted, the acquisition
// fails, or no call waits any more.
func (a *acquisition) run(by recipe) {
	defer a.finished()
	for a.ctx.Err() == nil {
		err := a.acquire(by)
		switch {
		case err == nil: // granted
			return
		case errors.Is(err, link.ErrSessionEnded):
			hungUp := a.last.HungUp()
			if hungUp == nil {
				continue
			}
			err = hungUp // the next session would end at the same request
		}
		a.d.table.fail(a, err) // without effect if no call waits
		return
	}
}

// finished wakes the call that has left, and the owner's other calls, because the acquisition has
// nothing left to do.
func (a *acquisition) finished() {
	t := a.d.table
	t.mu.Lock()
	t.leaving = slices.DeleteFunc(t.leaving, func(other *acquisition) bool { return other == a })
	t.mu.Unlock()
	a.earlier = nil // do not keep the earlier acquisitions reachable
	close(a.done)
	a.cancel()
}

// acquire queues in a ZooKeeper session until the lock is granted. It queues again each time our
// node is deleted without our doing, or has no position of its own. The end of the session is an
// error, even if the loss of the node is detected first.
//
// A recipe may have a shorter way.
func (a *acquisition) acquire(by recipe) error {
	if err := by.beforeQueue(a); err != errRequeue {
		return err
	}
	e, err := node.AttachedSession(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.Attempting(1)
	defer e.Attempting(-1)
	var backoff link.Backoff
	for {
		start := time.Now()
		if a.made.Load() > 0 { // the predecessor of an earlier node may not block the new one
			a.d.table.noteBehind(a, position{})
		}
		if err := a.queue(e, by); !errors.Is(err, errRequeue) {
			return err
		}
		if time.Since(start) > 5*time.Second {
			backoff = link.Backoff{}
		}
		// Another client may be deleting our nodes, or creating nodes with our numbers. Do not race
		// with it.
		if err := e.PauseUnder(a.ctx, backoff.Next()); err != nil {
			return err
		}
		if _, err := e.WaitAttached(a.ctx); err != nil {
			return err
		}
	}
}

// queue creates a node and waits until it is first in the queue. It returns nil when the lock was
// granted. After an error the node is deleted, or the reaper is deleting it, or it was deleted with
// its session.
func (a *acquisition) queue(e *node.ZKSession, by recipe) error {
	at, err := a.makeNode(e, by)
	if err != nil {
		return err
	}
	err = at.wait()
	if at.queued {
		e.Watches.CountWaiters(-1)
	}
	at.leaveQueue()
	if err != nil {
		err = at.giveUp(err)
		at.undoRoots()
	}
	return err
}

// reentered logs, once a hold, that two handles which re-entered with the same handle's context are
// held at the same time. A goroutine that re-enters in nested calls has the innermost handle's
// context, so these are probably two goroutines, which do not exclude each other. If an owner is
// set, or the handles belong to readers, that is intended.
func reentered(ctx context.Context, t *lockTable, root *lockRoot, by caller, h *Hold) {
	if by.owner != (Owner{}) || by.under[0] != h.d || root.Rule().IsShared() {
		return
	}
	outer := heldIn(ctx, holdKey{table: t, root: root.Path(), share: root.share})
	t.mu.Lock()
	defer t.mu.Unlock()
	d := h.d
	if d.shared {
		return
	}
	h.outer = outer
	for other := range d.handles {
		if d.shared = other != h && other.outer == outer; d.shared {
			d.e.Log.Warn("zklock: two calls re-entered one hold at the same time; they do not exclude each other", d.attrs()...)
			return
		}
	}
}
