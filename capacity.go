package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// The first client in a semaphore's queue has created its leases (leases.go). It lists the leases
// and reads the limit until the limit has capacity for them.

// permitAttempt is an attempt with the state of a semaphore.
type permitAttempt struct {
	*attempt
	*permitState
}

// askLeases requests a snapshot. It includes the queue if we have no node there.
func (a permitAttempt) askLeases() (now leaseSnapshot) {
	if a.node == "" {
		now.queue = a.e.Lists.List(a.d.root.Path())
	}
	now.list, now.limit = a.e.Lists.List(a.p.leases.Path()), a.p.askLimit(a.e)
	return now
}

// awaitCapacity waits until the limit has capacity for our leases, and returns the limit. Only the
// first client in the queue calls it, so a freed permit wakes one waiter. A try does not wait here.
//
// The first snapshot sets no watch. Most calls need no second one, and a watch costs an event after
// the release.
func (a permitAttempt) awaitCapacity(early leaseSnapshot) (limit int, err error) {
	e, p := a.e, a.p
	var by leaseWait
	var on, onLimit *node.Watch
	defer func() {
		e.Watches.Leave(on)
		e.Watches.Leave(onLimit)
	}()
	for watching := false; ; {
		if watching {
			on = e.Watches.Keep(on, node.WatchKey{Path: p.leases.Path(), Op: wire.OpGetChildren2})
			if p.limit != "" {
				onLimit = e.Watches.Keep(onLimit, node.WatchKey{Path: p.limit, Op: p.limitWatch()})
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
		case len(a.earlier) > 0: // the leases before ours may be our own, whose deletion has begun
			if err := a.awaitEarlier(); err != nil {
				return 0, err
			}
			continue
		}
		if err := a.noCapacityYet(&by, at, n, now.list.Names); err != nil {
			return 0, err
		}
		a.list = nil // the queue changes while we wait
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
		// The event of one lease frees one permit. If we lack only one, the next snapshot grants
		// and needs no watch.
		watching = !moved && at.Blockers+p.k-1 > n // not n+1 on the right: n may be the largest int
	}
}

// capacityIn returns the position of our leases in a snapshot, Front or Behind, and the limit. If
// known is false, the caller must request another snapshot.
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
	a.rootCzxid, a.leases = now.list.Root.Czxid, len(queue.Members(now.list.Names, a.p.leases.Rule().Markers))
	switch at.Kind {
	case queue.Front, queue.Behind:
		return at, n, true, nil
	case queue.Exhausted:
		return at, n, true, fmt.Errorf("%w: the leases are past the last number that zklock uses; try again when all of them are gone", ErrSequenceExhausted)
	}
	return at, n, true, errRequeue // a lease was deleted, or has no position of its own
}

// warnOfMore logs that more leases precede ours than a fixed limit allows, if that has lasted for
// namedAfter. For a shorter time it is normal, because clients create leases that they then
// withdraw. It logs once for each path and Session. A shared limit can fall, so it never logs about
// one.
func (a permitAttempt) warnOfMore(by *leaseWait) {
	switch leases := a.p.leases; {
	case by.ahead <= by.limit || a.p.limit != "":
		by.crowded = time.Time{}
	case by.crowded.IsZero():
		by.crowded = time.Now()
	case time.Since(by.crowded) >= namedAfter:
		before := node.Note(a.d.root.Root, func(now *recipeNotes) { now.crowded = true })
		if !before.crowded {
			a.e.Log.Warn("zklock: more permits are in use than this semaphore has", "path", leases.ShownPath(),
				"permits", by.limit, "leases", by.ahead, "node", by.at.predecessor)
		}
	}
}

// leaseWait describes, for logs and errors, which leases the first client in the queue waits for:
// the owner of the first lease, and the number of leases before ours. Leases are granted in their
// order, so the description is right whatever the limit is now.
type leaseWait struct {
	at    position
	ahead int // how many leases precede ours
	limit int
	first string               // absolute path of the first lease; "" if none precedes ours
	who   string               // who created it; "" if not known
	asked <-chan node.DataRead // its data, requested to identify the creator; nil if no request is under way

	crowded time.Time // since when more leases precede ours than the limit allows
}

// namedAfter is how long the first client in the queue waits before it identifies the holder. A
// shorter wait is not worth the request.
const namedAfter = 500 * time.Millisecond

// noCapacityYet records the position of our leases under the limit and the holder that the call
// waits for. It returns ErrNotAcquired if the call is a try.
func (a permitAttempt) noCapacityYet(by *leaseWait, p queue.Position, n int, names []string) error {
	leases, first := a.p.leases, ""
	by.at = position{node: a.held[0], rank: 1, holds: true, why: a.p.overLimit(n)}
	if by.ahead, by.limit = p.Blockers, n; p.Blockers > 0 {
		by.at.predecessor = leases.Path() + "/" + p.Predecessor
		first = leases.Path() + "/" + queue.FrontOf(names, leases.Rule().Markers)
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
	a.beginWait(by.at)
	return nil
}

// noteHolder records the position with the known holder, and reports whether the call waits.
func (a permitAttempt) noteHolder(by *leaseWait) (wait bool) {
	if by.at.blockerText = by.who; by.who != "" && by.ahead > 1 {
		by.at.blockerText += fmt.Sprintf(", and %d more", by.ahead-1)
	}
	return a.d.table.noteBehind(a.acquisition, by.at)
}

// awaitChange waits for a change of the leases, the limit or the connection. moved reports whether
// the snapshot of the caller belongs to an older connection. Events are hints: the caller requests
// another snapshot.
func (a permitAttempt) awaitChange(by *leaseWait, on, onLimit *node.Watch, seen uint64) (moved bool, err error) {
	a.retry = link.Backoff{}
	var limitFired <-chan struct{}
	if onLimit != nil {
		limitFired = onLimit.Fired
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
		case <-on.Fired:
			return false, nil
		case <-limitFired:
			return false, nil
		case <-ask:
			if a.warnOfMore(by); by.who == "" && by.asked == nil {
				by.asked = a.e.StartRead(by.first)
			}
		case got := <-by.asked:
			if by.asked = nil; got.Err == nil {
				by.who = whoIs(by.first, got.Data, got.Stat)
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

func armedAll(ctx context.Context, z *link.ZKSession, all ...*node.Watch) (err error) {
	for _, on := range all {
		if on != nil && err == nil {
			err = on.WaitArmed(ctx, z)
		}
	}
	return err
}

// maxHints is the largest number of waiters that are notified at a time.
const maxHints = 64

// hintWaiters wakes waiters if there is capacity for more than one. The deletion of our node wakes
// the next in line, so hints are for the waiters after it. hintWaiters wakes twice as many as there
// is capacity for, because more permits may be free when they list. A hint only makes a waiter
// list.
func (a permitAttempt) hintWaiters(room int) {
	if room < 2 {
		return
	}
	e, root, self, now := a.e, a.d.root, nameOf(a.node), a.list
	if now == nil { // an event granted us, or we waited first in the queue
		now = e.Lists.List(root.Path())
	}
	e.Carrier.Spawn(func() {
		if now.Wait(context.Background(), e.ZKSession) != nil {
			return
		}
		names := queue.NamesBehind(self, now.Names, root.Rule().Markers)
		names = names[min(1, len(names)):]
		hintAll(e, root.Path(), names[:hintsFor(room, len(names))])
	})
}

// hintsFor returns how many of the waiters get a hint. room is 2 or more, up to the largest int,
// because a fixed limit may be that large.
func hintsFor(room, waiters int) int { return min(2*(min(room, maxHints)-1), maxHints, waiters) }

// hintAll makes waiters list, in the order of the queue. A waiter behind a node of our own session
// is notified in this process. Any other waiter watches its own node and its predecessor. So
// hintAll writes every second node, with unchanged data, and each write notifies two waiters.
func hintAll(e *node.ZKSession, root string, names []string) {
	own := make(map[string]*node.Waiter)
	for _, w := range e.Own.Waiting() {
		own[w.Node] = w
	}
	var written []string
	var asked []<-chan node.DataRead
	hears := false // the previous write also notifies this waiter
	for _, name := range names {
		node := root + "/" + name
		w := own[node]
		if w != nil {
			w.Notify(queue.HandoffUnknown)
		} else if !hears {
			written, asked = append(written, node), append(asked, e.StartRead(node))
		}
		hears = w == nil && !hears
	}
	for i, ch := range asked {
		if got := <-ch; got.Err == nil {
			write := wire.SetDataRequest{Path: written[i], Data: got.Data, Version: got.Stat.Version}
			e.Carrier.Send(e.ZKSession, mux.NewRequest(wire.OpSetData, write, func(mux.Reply) {}))
		}
	}
}

// limitOf waits for the limit. If its node is missing, limitOf creates it; with WithContainer it
// returns the number given to NewSemaphore instead. If known is false, the caller must request the
// limit again.
func (a permitAttempt) limitOf(asked <-chan node.DataRead) (n int, known bool, err error) {
	p := a.p
	if p.limit == "" {
		return p.n, true, nil
	}
	got, err := link.Await(a.ctx, a.e.ZKSession, asked)
	if err != nil {
		return 0, false, err
	}
	if errors.Is(got.Err, zk.ErrNoNode) && p.leases.IsContainer() {
		return p.n, true, nil // no client has set a limit
	}
	if errors.Is(got.Err, zk.ErrNoNode) {
		got.Err = p.makeLimit(a.ctx, a.e.ZKSession, p.n, false)
		_, err = a.findingOf(got.Err)
		return 0, false, err
	}
	if r, err := a.findingOf(reply.Denied(got.Err, "get", "READ", p.limit)); err != nil || r != queue.Exists {
		return 0, false, err
	}
	n, err = parseLimit(p.limit, got.Data)
	return n, err == nil, err
}
