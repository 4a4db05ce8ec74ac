package zklock

import (
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

// run queues in one ZooKeeper session after the other, until the lock is granted, the acquisition fails, or nobody waits.
func (a *acquisition) run(by recipe) {
	defer a.finished()
	for a.ctx.Err() == nil {
		err := a.acquire(by)
		switch {
		case err == nil: // granted
			return
		case errors.Is(err, link.ErrOver):
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
	if err := by.before(a); err != errRequeue {
		return err
	}
	e, err := attachedEra(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.attempts.Add(1)
	defer e.attempts.Add(-1)
	var backoff link.Backoff
	for {
		start := time.Now()
		if a.made.Load() > 0 { // what was ahead of an earlier node is not known to be any more
			a.d.table.behind(a, position{})
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
func (a *acquisition) queue(e *era, by recipe) error {
	if err := a.lookFirst(e); err != nil {
		return err
	}
	at, err := a.makeNode(e, by)
	if err != nil {
		return err
	}
	return at.toTheFront()
}

// toTheFront follows the node to the front, as queue does.
func (a *attempt) toTheFront() error {
	e := a.e
	err := a.follow()
	if a.queued {
		e.watches.countWaiters(-1)
	}
	a.stepOut()
	if err != nil {
		if a.opened != nil {
			e.LetGo(a.opened, a.node)
		}
		err = a.giveUp(e, a.node, err, a.held...)
		if a.d.root.more != nil && len(a.held) == 0 {
			a.d.root.takeBack(e.Era, a.roots)
		}
	}
	return err
}

// lookFirst returns ErrNotAcquired for a try that would stand behind somebody, if the one before did: so what fails again and again costs one
// read, and writes nothing. The list is synced, because no create goes ahead of it: a server that lags behind could show a holder
// who has released.
func (a *acquisition) lookFirst(e *era) error {
	root := a.d.root
	if root.more != nil || len(a.left) > 0 || !a.d.table.isTry(a) || !root.notes().ahead {
		return nil
	}
	now := e.lists.ListSynced(root.path)
	switch err := now.Wait(a.ctx, e.Era); {
	case a.ctx.Err() != nil:
		return link.ErrCtxEnded
	case err != nil:
		return nil // the create says why
	}
	p := queue.PlaceOfNext(root.rule, now.Names)
	if p.Kind != queue.Behind {
		root.note(func(n *rootNotes) { n.ahead = false })
		return nil
	}
	a.d.table.behind(a, positionOf(e, root, "", p))
	return ErrNotAcquired
}

// makeNode makes the node, and the lock root with it if there is none.
//
// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip. So is one more flight if the lock root
// is not there, which then goes ahead of both, and one more if its parents are not there either.
func (a *acquisition) makeNode(e *era, by recipe) (_ *attempt, err error) {
	root, m := a.d.root, (*making)(nil)
	defer func() {
		if err != nil {
			root.takeBack(e.Era, m)
		}
	}()
	isKnown := root.fits == nil || root.notes().fits
	for {
		var at *nodes.Listing
		if !isKnown { // before anything is made, and in the same flight
			at = e.lists.List(root.shownPath())
		}
		c, err := e.create(a.ctx, root, a.opts.data)
		if err != nil {
			return nil, err
		}
		c.last = &a.last
		made := a.attemptIn(e, by, c.sent)
		if c.sent {
			made.list = e.lists.List(root.path)
			by.listing(made)
		}
		err = c.finish() // at the latest with the session
		if at != nil && (err == nil || errors.Is(err, zk.ErrNoNode)) {
			if unfit := root.fits(a.ctx, e, root, at); unfit != nil {
				if err == nil {
					unfit = a.giveUp(e, c.node, unfit)
				}
				return nil, unfit
			}
			isKnown = true
			root.note(func(n *rootNotes) { n.fits = true })
		}
		switch {
		case err == nil:
			made.roots = m
			return made.begin(c), nil
		case !errors.Is(err, zk.ErrNoNode):
			return nil, err
		}
		next, err := root.make(a.ctx, e.Era, m, &a.last)
		if err != nil {
			return nil, err
		}
		m = next
	}
}

// attemptIn returns an attempt that is to begin. early says that its list is sent before its node is known to be made.
func (a *acquisition) attemptIn(e *era, by recipe, early bool) *attempt {
	return &attempt{acquisition: a, footing: footing{e: e}, recipe: by, walk: queue.Begin(e.ID, early, a.d.root.recorded)}
}

// begin begins it: the node is made.
func (a *attempt) begin(c *creation) *attempt {
	a.d.root.warnOfTheEnd(a.e, c.node)
	a.d.record = nil
	a.made.Add(1)
	a.node, a.token = c.node, c.token
	return a
}

// giveUp deletes the node and waits a little until it is gone, so that the caller finds it gone when it gets the error (I4).
// At the end of the counter, the caller also finds the lock root gone, so that another try succeeds, or reads why it stays.
func (a *acquisition) giveUp(e *era, node string, why error, further ...string) error {
	if errors.Is(why, ErrClosed) || e.IsOver() {
		return why // it goes with its session
	}
	x, restarted := a.d.root.erase(e, a.d.record, node, further...)
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
		case <-e.Over():
		case <-late:
		}
	}
	return why
}

// awaitGone waits until a deletion has ended, or cannot end.
func awaitGone(e *era, x *nodes.Deletion, late <-chan struct{}) {
	select {
	case <-x.Done:
	case <-x.Refused:
	case <-e.Over():
	case <-late:
	}
}
