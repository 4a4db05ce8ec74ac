package zklock

import (
	"context"
	"fmt"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// A semaphore's first in line looks at the leases and at the limit until there is room for its own (permits.go). A shared limit is in a
// node (limit.go).

// look is a look at the leases and the limit, in one flight.
type look struct {
	list  *nodes.Listing
	limit <-chan dataRead
}

func (p *permits) look(e *era) look { return look{e.lists.List(p.leases.path), p.askLimit(e)} }

// awaitRoom waits until the limit has room for the leases. Only who is in front of the queue does that: so a permit that is freed
// wakes one waiter. Tries end here.
//
// The first look takes no watch. Most calls need no other, and a watch costs an event after all is over.
func (a *attempt) awaitRoom(early *look) error {
	e, p := a.e, a.permits()
	for watching := false; ; {
		var on, onLimit *watch
		if watching {
			on = e.watches.start(watchKey{p.leases.path, wire.OpGetChildren2})
			if p.limit != "" {
				onLimit = e.watches.startWatch(p.limit)
			}
		}
		now := early
		if early = nil; now == nil {
			l := p.look(e)
			now = &l
		}
		at, n, known, err := a.roomIn(now)
		switch {
		case err != nil:
			return err
		case !known:
			continue
		case at.Kind == queue.Front:
			return nil
		case at.Kind == queue.Exhausted:
			return fmt.Errorf("%w: the leases are past the last number that zklock uses; try again when all of them are gone", ErrSequenceExhausted)
		case at.Kind != queue.Behind: // a lease is gone, or has no place of its own
			return errRequeue
		case len(a.left) > 0: // those leases ahead may be our own, which are being deleted
			if err := a.awaitLeft(); err != nil {
				return err
			}
			continue
		}
		if err := a.notRoomYet(at, n); err != nil {
			return err
		}
		if !watching {
			watching = true
			continue
		}
		if r, err := a.findingOf(armedAll(a.ctx, e.Era, on, onLimit)); err != nil {
			return err
		} else if r != queue.IsThere {
			continue
		}
		moved, err := a.awaitChange(on, onLimit, now.list.Conn)
		if err != nil {
			return err
		}
		// The event of one lease frees one permit. If that is all we lack, the next look grants, and needs no watch.
		watching = !moved && at.Ahead+p.k > n+1
	}
}

// roomIn says where the leases stand by a look, and under which limit. known is false if the look has to be repeated.
func (a *attempt) roomIn(now *look) (at queue.Place, n int, known bool, err error) {
	n, known, err = a.limitOf(now.limit)
	if err != nil || !known {
		return at, n, false, err
	}
	r, err := a.findingOf(now.list.Wait(a.ctx, a.e.Era))
	switch {
	case err != nil:
		return at, n, false, err
	case r == queue.IsGone:
		return queue.Place{Kind: queue.Missing}, n, true, nil
	case r != queue.IsThere:
		return at, n, false, nil
	}
	at = queue.PlaceOfLeases(namesOf(a.held), now.list.Names, n)
	a.rootCzxid = now.list.Root
	return at, n, true, nil
}

// notRoomYet notes where the leases stand under the limit, and what the call waits for. A try does not wait.
func (a *attempt) notRoomYet(p queue.Place, n int) error {
	at := position{node: a.held[0], place: p.Ahead + 1, why: a.permits().overLimit(n)}
	if p.Predecessor != "" {
		at.predecessor = a.permits().leases.path + "/" + p.Predecessor
	}
	if a.e.IsHeld(at.predecessor) {
		at.who = ourselves
	}
	if !a.d.table.behind(a.acquisition, at) {
		return ErrNotAcquired
	}
	a.waits(at)
	return nil
}

// awaitChange waits until the leases or the limit change, or the connection does. moved says that what was seen is of another
// connection. Events are hints: a look follows.
func (a *attempt) awaitChange(on, onLimit *watch, seen uint64) (moved bool, err error) {
	a.retry = link.NewBackoff()
	var limitFired <-chan struct{}
	if onLimit != nil {
		limitFired = onLimit.fired
	}
	for {
		a.sayIfLong()
		conn, changed, err := a.e.AttachedConn()
		if err != nil || conn != 0 && conn != seen {
			return true, err
		}
		select {
		case <-on.fired:
			return false, nil
		case <-limitFired:
			return false, nil
		case <-a.sayNow:
		case <-changed:
		case <-a.e.Over():
			return true, a.e.OverErr()
		case <-a.ctx.Done():
			return true, link.ErrCtxEnded
		}
	}
}

func armedAll(ctx context.Context, z *link.Era, all ...*watch) (err error) {
	for _, on := range all {
		if on != nil && err == nil {
			err = on.waitArmed(ctx, z)
		}
	}
	return err
}

// behind has a try look past the queue: it fails if no permit is free. If there is one, whoever is ahead is just taking it, and the try
// stays in the queue, for as long as tries wait for answers.
func (p *permits) behind(a *attempt, at position) error {
	if a.d.table.behind(a.acquisition, at) {
		return nil
	}
	for {
		n, known, err := a.limitOf(p.askLimit(a.e))
		switch {
		case err != nil:
			return err
		case !known:
			continue
		}
		leases := a.e.lists.List(p.leases.path)
		r, err := a.findingOf(leases.Wait(a.ctx, a.e.Era))
		switch {
		case err != nil:
			return err
		case r == queue.NotTold:
			continue
		case len(queue.Members(leases.Names, p.leases.rule.Markers))+p.k > n:
			at.why = p.overLimit(n)
			a.d.table.behind(a.acquisition, at)
			return ErrNotAcquired
		}
		return nil
	}
}
