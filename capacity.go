package zklock

import (
	"context"
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// A semaphore's first in line looks at the leases and at the limit until there is room for its own (leases.go). A shared limit is in a
// node (permits.go).

// askLeases looks at the queue, too, if we do not stand in it.
func (a permitAttempt) askLeases() (now leaseSnapshot) {
	if a.node == "" {
		now.queue = a.e.lists.List(a.d.root.path)
	}
	now.list, now.limit = a.e.lists.List(a.p.leases.path), a.p.askLimit(a.e)
	return now
}

// awaitCapacity waits until the limit has room for the leases, and returns it. Only who is in front of the queue does that: so a permit that is freed
// wakes one waiter. Tries end here.
//
// The first look takes no watch. Most calls need no other, and a watch costs an event after all is over.
func (a permitAttempt) awaitCapacity(early leaseSnapshot) (limit int, err error) {
	e, p := a.e, a.p
	var by leaseWait
	var on, onLimit *watch
	defer func() {
		e.watches.leave(on)
		e.watches.leave(onLimit)
	}()
	for watching := false; ; {
		if watching {
			on = e.watches.keep(on, watchKey{path: p.leases.path, op: wire.OpGetChildren2})
			if p.limit != "" {
				onLimit = e.watches.keep(onLimit, watchKey{path: p.limit, op: p.limitWatch()})
			}
		}
		now := early
		if early = (leaseSnapshot{}); now.list == nil {
			now = a.askLeases()
		}
		at, n, known, err := a.capacityIn(now)
		switch {
		case err != nil:
			return 0, err
		case !known:
			continue
		case at.Kind == queue.Front:
			return n, nil
		case len(a.left) > 0: // those leases ahead may be our own, which are being deleted
			if err := a.awaitLeft(); err != nil {
				return 0, err
			}
			continue
		}
		if err := a.noCapacityYet(&by, at, n, now.list.Names); err != nil {
			return 0, err
		}
		a.list = nil // the queue will have changed
		if !watching {
			watching = true
			continue
		}
		if r, err := a.findingOf(armedAll(a.ctx, e.ZKSession, on, onLimit)); err != nil {
			return 0, err
		} else if r != queue.Exists {
			continue
		}
		moved, err := a.awaitChange(&by, on, onLimit, now.list.Conn)
		if err != nil {
			return 0, err
		}
		// The event of one lease frees one permit. If that is all we lack, the next look grants, and needs no watch.
		watching = !moved && at.Blockers+p.k-1 > n // n may be the largest int
	}
}

// capacityIn says where the leases stand by a look, in front or behind, and under which limit. known is false if the look has to be repeated.
func (a permitAttempt) capacityIn(now leaseSnapshot) (at queue.Position, n int, known bool, err error) {
	n, known, err = a.limitOf(now.limit)
	if err != nil || !known {
		return at, n, false, err
	}
	r, err := a.findingOf(now.list.Wait(a.ctx, a.e.ZKSession))
	switch {
	case err != nil:
		return at, n, false, err
	case r == queue.Absent:
		return at, n, true, errRequeue
	case r != queue.Exists:
		return at, n, false, nil
	}
	at = queue.PositionOfLeases(namesOf(a.held), now.list.Names, n)
	a.rootCzxid, a.leases = now.list.Root, len(queue.Members(now.list.Names, a.p.leases.rule.Markers))
	switch at.Kind {
	case queue.Front, queue.Behind:
		return at, n, true, nil
	case queue.Exhausted:
		return at, n, true, fmt.Errorf("%w: the leases are past the last number that zklock uses; try again when all of them are gone", ErrSequenceExhausted)
	}
	return at, n, true, errRequeue // a lease is gone, or has no place of its own
}

// warnOfMore logs that more leases were granted than a fixed limit allows, if there have been for a while: some are made in vain. It does so
// once for each path and Session. (A shared limit falls.)
func (a permitAttempt) warnOfMore(by *leaseWait) {
	switch leases := &a.p.leases; {
	case by.ahead <= by.limit || a.p.limit != "":
		by.crowded = time.Time{}
	case by.crowded.IsZero():
		by.crowded = time.Now()
	case time.Since(by.crowded) >= namedAfter:
		before := note(a.d.root, func(now *semaphoreNotes) { now.crowded = true })
		if !before.crowded {
			a.e.Log.Warn("zklock: more permits are in use than this semaphore has", "path", leases.chroot+leases.given,
				"permits", by.limit, "leases", by.ahead, "node", by.at.predecessor)
		}
	}
}

// leaseWait says who is in the way of the front of the queue, for people: who made the first of all leases, and how many there are beside
// that. It holds whatever the limit is now, because leases are granted in their order.
type leaseWait struct {
	at    position
	ahead int // how many leases
	limit int
	first string          // of those, absolute; "" if there are none
	who   string          // made it; "" if that is not known
	asked <-chan dataRead // for that; nil if it is not

	crowded time.Time // since when more have been ahead than the limit allows
}

// namedAfter is how long the front of the queue waits before it asks who holds: a request that a short wait is not worth.
const namedAfter = 500 * time.Millisecond

// noCapacityYet notes where the leases stand under the limit, and what the call waits for: it is first in line. A try does not wait.
func (a permitAttempt) noCapacityYet(by *leaseWait, p queue.Position, n int, names []string) error {
	leases, first := &a.p.leases, ""
	by.at = position{node: a.held[0], rank: 1, holds: true, why: a.p.overLimit(n)}
	if by.ahead, by.limit = p.Blockers, n; p.Blockers > 0 {
		by.at.predecessor = leases.path + "/" + p.Predecessor
		first = leases.path + "/" + queue.FrontOf(names, leases.rule.Markers)
	}
	a.warnOfMore(by)
	if first != by.first {
		if by.first, by.who, by.asked = first, "", nil; a.e.IsHeld(first) {
			by.who = ourselves
		}
	}
	if !a.noteHolder(by) {
		return ErrNotAcquired
	}
	a.waits(by.at)
	return nil
}

// noteHolder notes the position with what is known of who holds, and says whether the call waits.
func (a permitAttempt) noteHolder(by *leaseWait) (wait bool) {
	if by.at.blockerText = by.who; by.who != "" && by.ahead > 1 {
		by.at.blockerText += fmt.Sprintf(", and %d more", by.ahead-1)
	}
	return a.d.table.noteBehind(a.acquisition, by.at)
}

// awaitChange waits until the leases or the limit change, or the connection does. moved says that what was seen is of another
// connection. Events are hints: a look follows.
func (a permitAttempt) awaitChange(by *leaseWait, on, onLimit *watch, seen uint64) (moved bool, err error) {
	a.retry = link.Backoff{}
	var limitFired <-chan struct{}
	if onLimit != nil {
		limitFired = onLimit.fired
	}
	var ask <-chan time.Time
	if isUnknown := by.first != "" && by.who == "" && by.asked == nil; isUnknown || !by.crowded.IsZero() {
		ask = time.After(namedAfter)
	}
	for {
		a.logIfLong()
		conn, changed, err := a.e.AttachedConn()
		if err != nil || conn != 0 && conn != seen {
			return true, err
		}
		select {
		case <-on.fired:
			return false, nil
		case <-limitFired:
			return false, nil
		case <-ask:
			if a.warnOfMore(by); by.who == "" && by.asked == nil {
				by.asked = a.e.startRead(by.first)
			}
		case got := <-by.asked:
			if by.asked = nil; got.err == nil {
				by.who = whoIs(by.first, got.data, got.stat)
				a.noteHolder(by)
			}
		case <-a.logNow:
		case <-changed:
		case <-a.e.Ended():
			return true, a.e.EndErr()
		case <-a.ctx.Done():
			return true, link.ErrCtxEnded
		}
	}
}

func armedAll(ctx context.Context, z *link.ZKSession, all ...*watch) (err error) {
	for _, on := range all {
		if on != nil && err == nil {
			err = on.waitArmed(ctx, z)
		}
	}
	return err
}

// maxHints is how many are told at a time that there is room.
const maxHints = 64

// hintWaiters has those who wait look for room, if there is some beside what the next in line takes, which the end of our node wakes. Twice as many
// look as there is room for: by then, more permits may be free. It is a hint: nothing rests on it.
func (a permitAttempt) hintWaiters(room int) {
	if room < 2 {
		return
	}
	e, root, self, now := a.e, a.d.root, nameOf(a.node), a.list
	if now == nil { // an event brought us to the front, or we have waited there
		now = e.lists.List(root.path)
	}
	e.Carrier.Spawn(func() {
		if now.Wait(context.Background(), e.ZKSession) != nil {
			return
		}
		names := queue.NamesBehind(self, now.Names, root.rule.Markers)
		names = names[min(1, len(names)):]
		e.hintAll(root.path, names[:hintsFor(room, len(names))])
	})
}

// hintsFor returns how many of so many waiters are told that there is room: 2 or more, up to the
// largest int, because a fixed limit may be that large.
func hintsFor(room, waiters int) int { return min(2*(min(room, maxHints)-1), maxHints, waiters) }

// hintAll tells waiters to list, in the order in which they stand. One that stands behind a node of our own session hears it here. The others
// watch their own node and the one ahead of it: so every other node is written, as it is.
func (e *zkSession) hintAll(root string, names []string) {
	own := make(map[string]*nodes.Waiter)
	for _, w := range e.nodes.Waiting() {
		own[w.Node] = w
	}
	var written []string
	var asked []<-chan dataRead
	hears := false // what is written to the one ahead
	for _, name := range names {
		node := root + "/" + name
		w := own[node]
		if w != nil {
			w.Notify(queue.HandoffUnknown)
		} else if !hears {
			written, asked = append(written, node), append(asked, e.startRead(node))
		}
		hears = w == nil && !hears
	}
	for i, ch := range asked {
		if got := <-ch; got.err == nil {
			write := wire.SetDataRequest{Path: written[i], Data: got.data, Version: got.stat.Version}
			e.Carrier.Send(e.ZKSession, mux.NewRequest(wire.OpSetData, write, func(mux.Reply) {}))
		}
	}
}
