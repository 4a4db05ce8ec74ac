package zklock

import (
	"errors"
	"slices"
	"time"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
)

// How an acquisition runs. It has a goroutine of its own, and its call waits for the outcome. No
// request, pause or wait of the acquisition gets the caller's context: a.ctx ends when the call has
// left (lockTable.leave).

// run queues in one ZooKeeper session after another until the lock is granted, the acquisition
// fails, or no call waits any more.
func (a *acquisition) run(by recipe) {
	defer a.finished()
	// A call that has left also comes to beforeQueue, which takes the state of its share back.
	for begins := true; begins || a.ctx.Err() == nil; begins = false {
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
	if err := by.beforeQueue(a); err != errRequeue || a.ctx.Err() != nil {
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
