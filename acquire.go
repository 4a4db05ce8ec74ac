package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// An acquisition runs on a goroutine of its own, and its call waits for the outcome. No request, pause or wait of it is given the caller's
// context: a.ctx ends when the call has left (lockTable.leave).

// callerIn looks up the caller in its context. Most contexts carry no hold of the path: one look-up,
// which allocates nothing, shows that.
func callerIn(ctx context.Context, t *lockTable, root *lockRoot, other string) caller {
	by := caller{owner: ownerSet(ctx), wait: waitIn(ctx, root.path)}
	if by.inner, _ = ctx.Value(root).(*Hold); by.inner == nil || root.isFresh {
		return by
	}
	for i, share := range [2]string{root.share, other} {
		if share == "" {
			break
		}
		k := holdKey{table: t, root: root.path, share: share}
		if k.fits(by.inner) {
			by.under[i] = by.inner.d
		} else if h := heldIn(ctx, k); h != nil {
			by.under[i] = h.d
		}
	}
	return by
}

// run queues in one ZooKeeper session after the other, until the lock is granted, the acquisition fails, or nobody waits.
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
		a.d.table.fail(a, err) // nobody hears of it if nobody waits
		return
	}
}

// finished wakes the call that has left, and the owner's other calls: nothing is left to do.
func (a *acquisition) finished() {
	t := a.d.table
	t.mu.Lock()
	t.left = slices.DeleteFunc(t.left, func(other *acquisition) bool { return other == a })
	t.mu.Unlock()
	a.left = nil // nothing is to hang on those that were left before those
	close(a.done)
	a.cancel()
}

// acquire queues in a ZooKeeper session until the lock is granted. It queues again each time our node is gone through no
// fault of ours, or has no place of its own. The end of the session is an error, even if the loss of the node is seen first.
//
// A recipe may know a shorter way.
func (a *acquisition) acquire(by recipe) error {
	if err := by.beforeQueue(a); err != errRequeue {
		return err
	}
	e, err := attachedSession(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.attempts.Add(1)
	defer e.attempts.Add(-1)
	var backoff link.Backoff
	for {
		start := time.Now()
		if a.made.Load() > 0 { // what was ahead of an earlier node is not known to be any more
			a.d.table.noteBehind(a, position{})
		}
		if err := a.queue(e, by); !errors.Is(err, errRequeue) {
			return err
		}
		if time.Since(start) > 5*time.Second {
			backoff = link.Backoff{}
		}
		// Somebody may be deleting our nodes, or making others with our numbers. Do not race with them.
		if err := e.PauseUnder(a.ctx, backoff.Next()); err != nil {
			return err
		}
		if _, err := e.WaitAttached(a.ctx); err != nil {
			return err
		}
	}
}

// queue makes a node and follows it to the front. It returns nil when the lock was granted. After an error the node is
// deleted, or the reaper has it, or it died with its session.
func (a *acquisition) queue(e *zkSession, by recipe) error {
	at, err := a.makeNode(e, by)
	if err != nil {
		return err
	}
	return at.carryOut()
}

// carryOut follows the node to the front, as queue does.
func (a *attempt) carryOut() error {
	e := a.e
	err := a.wait()
	if a.queued {
		e.watches.countWaiters(-1)
	}
	a.leaveQueue()
	if err != nil {
		if a.opened != nil {
			e.LetGo(a.opened, a.node)
		}
		err = a.giveUp(err)
		a.recipe.gaveUp(a)
	}
	return err
}

// makeNode makes the node, and the lock root with it if there is none.
//
// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip. So is one more flight if the lock root
// is not there, which then goes ahead of both, and one more if its parents are not there either.
func (a *acquisition) makeNode(e *zkSession, by recipe) (_ *attempt, err error) {
	root, at := a.d.root, a.attemptIn(e, by, false)
	defer func() {
		if err != nil {
			by.gaveUp(at)
		}
	}()
	for {
		by.creating(at)
		c, err := e.create(a.ctx, root, a.opts.data)
		if err != nil {
			return nil, err
		}
		c.last = &a.last
		at.machine.Early, at.list = c.sent, nil
		if c.sent {
			at.list = e.lists.List(root.path)
			by.listing(at)
		}
		err = c.finish() // at the latest with the session
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		at.node = c.node
		if unfit := by.created(at); unfit != nil {
			if err == nil {
				unfit = at.giveUp(unfit)
			}
			return nil, unfit
		}
		if err == nil {
			return at.adopt(c), nil
		}
		roots, err := root.make(a.ctx, e.ZKSession, at.roots, root.shownPath(), &a.last)
		if err != nil {
			return nil, err
		}
		at.roots = roots
	}
}

// attemptIn returns an attempt that has no node yet. early reports that its list is sent before the
// node is known to be made.
func (a *acquisition) attemptIn(e *zkSession, by recipe, early bool) *attempt {
	at := &attempt{acquisition: a, grantBasis: grantBasis{e: e}, recipe: by, machine: queue.Begin(e.ID, early, false)}
	at.state = by.newState(at, a.before)
	a.before = at.state
	return at
}

// adopt begins it: the node is made.
func (a *attempt) adopt(c *nodeCreate) *attempt {
	a.d.root.warnOfTheEnd(a.e, c.node)
	a.made.Add(1)
	a.node, a.token = c.node, c.token
	return a
}

// giveUp deletes the attempt's nodes and waits a little for that, so that they no longer exist when
// the caller gets the error (I4). At the end of the counter the lock root no longer exists either, so
// that another try succeeds, or the error has the reason why it stays.
func (a *attempt) giveUp(why error) error {
	e := a.e
	if errors.Is(why, ErrClosed) || e.HasEnded() {
		return why // they are deleted with their session
	}
	x, restarted := a.state.deleteNodes(a.d.root, &a.grantBasis)
	late := make(chan struct{})
	t := time.AfterFunc(grace, func() { close(late) })
	defer t.Stop()
	awaitGone(e, x, late)
	if restarted != nil && errors.Is(why, ErrSequenceExhausted) && isClosed(x.Done) {
		select {
		case err := <-restarted:
			if err != nil {
				return fmt.Errorf("%w; the lock root cannot be made anew: %w", why, err)
			}
		case <-e.Ended():
		case <-late:
		}
	}
	return why
}

// awaitGone waits until a deletion has ended, or cannot end.
func awaitGone(e *zkSession, x *nodes.Deletion, late <-chan struct{}) {
	select {
	case <-x.Done:
	case <-x.Refused:
	case <-e.Ended():
	case <-late:
	}
}

// reentered logs, once a hold, that two handles which re-entered with the same handle's context are
// held at the same time. A goroutine that re-enters in nested calls should use the innermost handle's
// context, so these are probably two goroutines, which do not exclude each other. If an owner is set,
// or the handles are readers', that is on purpose.
func reentered(ctx context.Context, t *lockTable, root *lockRoot, by caller, h *Hold) {
	if by.owner != (Owner{}) || by.under[0] != h.d || root.rule.IsShared() {
		return
	}
	outer := heldIn(ctx, holdKey{table: t, root: root.path, share: root.share})
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
