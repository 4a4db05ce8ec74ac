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

// How an acquisition runs. It has a goroutine of its own, and its call waits for the outcome. No
// request, pause or wait of the acquisition gets the caller's context: a.ctx ends when the call has
// left (lockTable.leave).

// callerIn looks up the caller in its context. Most contexts carry no hold of the path: one
// look-up, which allocates nothing, shows that.
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
	t.left = slices.DeleteFunc(t.left, func(other *acquisition) bool { return other == a })
	t.mu.Unlock()
	a.left = nil // do not keep the earlier acquisitions reachable
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
	e, err := attachedSession(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.attempts.Add(1)
	defer e.attempts.Add(-1)
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
func (a *acquisition) queue(e *zkSession, by recipe) error {
	at, err := a.makeNode(e, by)
	if err != nil {
		return err
	}
	err = at.wait()
	if at.queued {
		e.watches.countWaiters(-1)
	}
	at.leaveQueue()
	if err != nil {
		err = at.giveUp(err)
		by.gaveUp(at)
	}
	return err
}

// makeNode creates the node, and the lock root if it is missing.
//
// The list is sent in the same batch as the create, after it, so an uncontended acquire takes one
// round trip. A missing lock root costs one more batch, which sends the root's create before both,
// or creates both together (newroot.go). Missing parents of the root cost another batch.
func (a *acquisition) makeNode(e *zkSession, by recipe) (_ *attempt, err error) {
	root, at := a.d.root, a.attemptIn(e, by)
	defer func() {
		if err != nil {
			by.gaveUp(at)
		}
	}()
	withRoot, learns := a.beginCreate()
	for tries := 0; ; learns = false {
		by.creating(at)
		c, err := e.create(a.ctx, root, a.opts.data, withRoot)
		if err != nil {
			return nil, err
		}
		c.last = &a.last
		a.newLost = a.newLost || withRoot && !c.withRoot // the transaction is too long
		withRoot = c.withRoot
		at.machine.Early, at.list = c.sent && !withRoot, nil
		if at.machine.Early {
			at.list = e.lists.List(root.path)
			if a.opts.delay > 0 { // a later read may need a sync
				at.delay.early, at.delay.with = e.startRead(root.path), at.list
			}
			by.listing(at)
		}
		if withRoot {
			tries++
		}
		err = c.finish() // the session's end is the latest end of this wait
		a.newLost = a.newLost || withRoot && !c.madeRoot && (c.denied == nil || !c.withRoot)
		step := queue.CreateDenied
		if err != nil {
			if step = at.afterRejection(c, tries); step == queue.CreateDenied {
				return nil, err
			}
		}
		if learns {
			root.learn(c.madeRoot || errors.Is(c.denied, zk.ErrNoNode))
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
		if withRoot, err = at.createRoots(step); err != nil {
			return nil, err
		}
	}
}

// attemptIn returns an attempt that has no node yet.
func (a *acquisition) attemptIn(e *zkSession, by recipe) *attempt {
	at := &attempt{acquisition: a, grantBasis: grantBasis{e: e}, recipe: by, machine: queue.Begin(e.ID, a.opts.delay > 0)}
	at.state = by.newState(at, a.before)
	a.before = at.state
	return at
}

// adopt begins the wait of a node, which exists. If it is the first node of a new lock root, the
// attempt needs no list.
func (a *attempt) adopt(c *nodeCreate) *attempt {
	a.d.root.warnOfTheEnd(a.e, c.node)
	a.made.Add(1)
	a.node, a.token, a.madeRoot = c.node, c.token, c.madeRoot
	if c.madeRoot {
		a.rootCzxid, a.machine = c.token, a.machine.MadeRoot()
	}
	return a
}

// giveUp deletes the attempt's nodes and waits a short time for their deletion, so that they no
// longer exist when the caller gets the error (I4). At the end of the counter giveUp also waits
// until the lock root is deleted, so that another try succeeds; otherwise the error has the reason
// why the root remains.
func (a *attempt) giveUp(why error) error {
	e := a.e
	if errors.Is(why, ErrClosed) || e.HasEnded() {
		return why // the nodes are deleted with their session
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
				return fmt.Errorf("%w; the lock root cannot be created again: %w", why, err)
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
// held at the same time. A goroutine that re-enters in nested calls has the innermost handle's
// context, so these are probably two goroutines, which do not exclude each other. If an owner is
// set, or the handles belong to readers, that is intended.
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
