package zklock

import (
	"errors"
	"fmt"
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
			if !a.opts.failOnLoss {
				continue
			}
			err = fmt.Errorf("%w: %w", ErrSessionExpired, err)
		}
		a.d.table.fail(a, err) // nobody hears of it if nobody waits
		return
	}
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
	backoff := link.NewBackoff()
	for {
		start := time.Now()
		if err := a.queue(e, by); !errors.Is(err, errRequeue) {
			return err
		}
		if time.Since(start) > 5*time.Second {
			backoff = link.NewBackoff()
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
	at, err := a.makeNode(e, by)
	if err != nil {
		return err
	}
	err = at.follow()
	if at.queued {
		e.watches.countWaiters(-1)
	}
	if at.turn != nil {
		e.nodes.StepOut(at.turn)
	}
	if err != nil {
		err = a.giveUp(e, at.node, err, at.held...)
	}
	return err
}

// makeNode makes the node, and the lock root first if there is none. Before it makes anything in a lock root that this Session does not
// know, it looks at who uses the path.
func (a *acquisition) makeNode(e *era, by recipe) (*attempt, error) {
	root, fits := a.d.root, a.d.root.fits == nil
	for missing := false; ; missing = true {
		if !fits && !root.wasThere() {
			if err := root.fits(a.ctx, e, root); err != nil {
				return nil, err
			}
			fits = true
		}
		if missing {
			if err := root.ensure(a.ctx, e.Era); err != nil {
				return nil, err
			}
		}
		c, err := e.create(a.ctx, root, a.opts.data)
		if err != nil {
			return nil, err
		}
		var early *nodes.Listing
		var record <-chan dataRead
		if c.sent && root.wasThere() {
			// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip.
			early = e.lists.List(root.path)
			if root.recorded {
				record = e.askData(root.path)
			}
		}
		err = c.finish() // at the latest with the session
		switch {
		case err == nil:
			root.note(true)
			root.warnOfTheEnd(e, c.node)
			a.d.mark = nil
			return &attempt{acquisition: a, recipe: by, e: e, node: c.node, token: c.token, walk: queue.Begin(e.ID, early != nil, root.recorded),
				list: early, early: record, retry: link.NewBackoff()}, nil
		case !errors.Is(err, zk.ErrNoNode):
			return nil, err
		}
		root.note(false)
	}
}

// giveUp deletes the node and waits a little until it is gone, so that the caller finds it gone when it gets the error (I4).
// At the end of the counter, the caller also finds the lock root gone, so that another try succeeds, or reads why it stays.
func (a *acquisition) giveUp(e *era, node string, why error, further ...string) error {
	if errors.Is(why, ErrClosed) || e.IsOver() {
		return why // it goes with its session
	}
	x, restarted := a.d.root.erase(e, a.d.mark, node, further...)
	late := make(chan struct{})
	t := time.AfterFunc(grace, func() { close(late) })
	defer t.Stop()
	select {
	case <-x.Done:
	case <-x.Refused:
	case <-e.Over():
	case <-late:
	}
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
