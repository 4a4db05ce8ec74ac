package zklock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// attempt is one node's way to the front of its queue. It does what the walk says (queue.Walk).
type attempt struct {
	*acquisition
	e     *era
	node  string // absolute
	token int64  // its czxid

	leases    []string // of a semaphore, once they are made
	rootCzxid int64    // of the node above ours, or above the leases, as last listed: no grant without a list that shows ours

	walk        queue.Walk
	list        *nodes.Listing
	predecessor string // absolute; in the way, if the walk is at its end
	second      string // the node ahead of it, by its name
	onOwn       *watch
	onAhead     *watch        // on the predecessor
	onSecond    *watch        // on the node ahead of it
	turn        *nodes.Waiter // if its predecessor is of the same session
	queued      bool          // it counts among those that wait

	// With a lock-delay (delay.go).
	early    <-chan dataRead // the record, if it was asked for with the node
	record   queue.Record    // as it was read
	version  int32           // of that
	delayEnd clock.Instant   // until when the delay lasts

	retry link.Backoff // between requests whose errors say nothing
}

// follow does what the walk says, until the lock is granted.
func (a *attempt) follow() error {
	for {
		a.sayIfLong()
		var err error
		switch a.walk.Next {
		case queue.ToList:
			err = a.listQueue()
		case queue.ToStandBehind:
			err = a.standBehind()
		case queue.ToAwaitTurn:
			err = a.awaitTurn()
		case queue.ToWatchOwn:
			err = a.watchOwn()
		case queue.ToWatchAhead:
			err = a.watchAhead()
		case queue.ToWatchSecond:
			err = a.watchSecond()
		case queue.ToAwait:
			err = a.await()
		case queue.ToReadRecord:
			err = a.readRecord()
		case queue.ToAwaitDelay:
			err = a.awaitDelay()
		case queue.ToWriteRecord:
			err = a.writeRecord()
		case queue.ToGrant:
			if a.d.root.permits != nil {
				return a.takePermits()
			}
			return a.grant()
		case queue.ToQueueAgain:
			return errRequeue
		case queue.ToEnd:
			return a.exhausted()
		}
		if err != nil {
			return err
		}
	}
}

// listQueue lists the queue, unless a list is on its way already.
func (a *attempt) listQueue() error {
	w := &a.walk
	if a.onAhead != nil && (a.onAhead.hasFired() || a.onAhead.hasFailed()) {
		a.onAhead = nil
	}
	if !w.Early {
		a.list = a.e.lists.List(a.d.root.path)
	}
	r, err := a.findingOf(a.list.Wait(a.ctx, a.e.Era))
	switch {
	case err != nil:
		return err
	case r != queue.IsThere:
		*w = w.NotListed(r)
		return nil
	}
	p := queue.PlaceOf(a.d.root.rule, nameOf(a.node), a.list.Names)
	*w = w.Listed(p, a.list.Conn)
	if p.Kind == queue.Missing { // what was asked for with the list may be of another root, too
		a.early = nil
	}
	a.rootCzxid = a.list.Root // a root that is made anew has lost our node
	if a.second = p.Second; p.Predecessor != "" {
		a.predecessor = a.d.root.path + "/" + p.Predecessor
	} else {
		a.predecessor = ""
	}
	return nil
}

// standBehind notes where the node stands, and has the predecessor tell us if it is a node of our own session. Tries end here.
func (a *attempt) standBehind() error {
	e, root, w := a.e, a.d.root, &a.walk
	if len(a.left) > 0 {
		// Calls that have left were making nodes, mostly because no server answered. We may stand behind one of those, which
		// is being deleted: a try must not take it for somebody.
		if err := a.awaitLeft(); err != nil {
			return err
		}
		*w = w.ListAgain()
		return nil
	}
	a.list, a.early = nil, nil
	at := position{node: a.node, place: w.Ahead + 1, predecessor: a.predecessor, holds: w.Holds}
	if e.IsHeld(a.predecessor) {
		at.who = ourselves
	}
	if root.permits != nil {
		if err := a.lookAhead(at); err != nil {
			return err
		}
	} else if !a.d.table.behind(a.acquisition, at) {
		return ErrNotAcquired
	}
	a.turn = nil
	if !w.Tied {
		a.turn = e.nodes.StandBehind(a.predecessor, a.node, root.rule)
	}
	a.waits(at)
	*w = w.StoodBehind(a.turn != nil)
	return nil
}

// waits counts the attempt among those that wait, once, and says so.
func (a *attempt) waits(at position) {
	if a.queued {
		return
	}
	a.queued = true
	a.e.watches.countWaiters(1)
	a.e.Log.Debug("zklock: queued", func() []any {
		return []any{"path", a.d.root.path, "node", at.node, "place", at.place, "predecessor", at.predecessor}
	})
	a.sayNow = time.After(a.toSay - time.Since(a.since))
}

// watchOwn watches our own node first, in one flight with the others. If both nodes are deleted, we must hear about ours.
//
// A watch that is set on the predecessor already is used, although its event may have come since we asked for the list. If list
// and event came over one connection, a list that shows the node is older than its deletion; and the rule grants only if they did.
func (a *attempt) watchOwn() error {
	watches := a.e.watches
	a.onOwn = watches.startWatch(a.node)
	if a.onAhead == nil || a.onAhead.path != a.predecessor {
		a.onAhead = watches.startWatch(a.predecessor)
	}
	if a.onSecond = nil; a.walk.Second {
		a.onSecond = watches.startWatch(a.d.root.path + "/" + a.second)
	}
	return a.armed(&a.onOwn)
}

// watchAhead waits until the watch on the predecessor is set, and notes who made that node.
func (a *attempt) watchAhead() error {
	if err := a.armed(&a.onAhead); err != nil {
		return err
	}
	if on := a.onAhead; on != nil && on.err == nil {
		a.d.table.noteAhead(a.acquisition, a.predecessor, whoIs(a.predecessor, on.data, on.stat))
	}
	return nil
}

// awaitLeft waits until the acquisitions that had been left before ours began have ended.
func (a *attempt) awaitLeft() error {
	for ; len(a.left) > 0; a.left = a.left[1:] {
		select {
		case <-a.left[0].done:
		case <-a.e.Over():
			return a.e.OverErr()
		case <-a.ctx.Done():
			return link.ErrCtxEnded
		}
	}
	return nil
}

// sayIfLong logs a wait that is long: our place, and who is directly ahead, which is the holder if we are second. That takes no
// request. A waiter behind one of its own session leaves it to that one, unless that one holds.
func (a *attempt) sayIfLong() {
	waited := time.Since(a.since)
	if !a.queued || waited < a.toSay {
		return
	}
	a.toSay = 2 * waited.Truncate(firstSaid)
	a.sayNow = time.After(a.toSay - waited)
	at := a.d.table.position(a.acquisition)
	if a.turn != nil && at.who == "" {
		return
	}
	who := "behind"
	if at.holds {
		who = "holder"
	}
	a.e.Log.Info("zklock: still waiting for the lock", "path", a.d.root.path, "node", a.node, "waited", waited.Round(time.Second),
		"place", at.place, who, at.who)
}

// ourselves is who holds if a hold of this Session does.
const ourselves = "another owner in this Session"

// exhausted says that nobody is granted at the end of the counter, and what has to go first.
func (a *attempt) exhausted() error {
	way := nameOf(a.predecessor)
	for _, child := range a.list.Names { // one that takes no part in the queue keeps the root from being made anew, too
		if way == "" && child != nameOf(a.node) {
			way = strings.Clone(child)
		}
	}
	if way == "" {
		return fmt.Errorf("%w: %s is past the last number that zklock uses; try again after a pause", ErrSequenceExhausted, nameOf(a.node))
	}
	return fmt.Errorf("%w: try again when %s and all other children are gone", ErrSequenceExhausted, shown(way))
}

// armed waits until a watch is set, and forgets it if it is not. A watch on a node that is gone counts as fired (watcher.go).
func (a *attempt) armed(on **watch) error {
	w := &a.walk
	err := (*on).waitArmed(a.ctx, a.e.Era)
	if err == nil {
		*w = w.Watched(queue.IsThere, (*on).stat.EphemeralOwner, (*on).conn)
		return nil
	}
	r := queue.NotTold
	if a.ctx.Err() == nil && errors.Is(err, zk.ErrNoAuth) { // an ACL forbids reading: poll
		a.retry = link.NewBackoff()
		err = a.e.PauseUnder(a.ctx, lease.Heartbeat(a.e.Timeout()))
	} else {
		r, err = a.findingOf(err)
	}
	if err != nil {
		return err
	}
	if *w = w.Watched(r, 0, (*on).conn); w.Next != queue.ToAwait {
		*on = nil
	} else { // the predecessor is gone: who was ahead of it says nothing new
		a.onSecond = nil
	}
	return nil
}

// watchSecond is armed for the watch on the node ahead of the predecessor. We can do without that watch.
func (a *attempt) watchSecond() error {
	w := &a.walk
	err := a.onSecond.waitArmed(a.ctx, a.e.Era)
	switch {
	case err == nil:
		*w = w.Watched(queue.IsThere, 0, 0)
		return nil
	case a.ctx.Err() != nil:
		return link.ErrCtxEnded
	case a.e.IsOver():
		return a.e.OverErr()
	case errors.Is(err, ErrClosed):
		return err
	}
	a.onSecond = nil
	r := queue.NotTold
	if errors.Is(err, zk.ErrNoNode) {
		r = queue.IsGone
	}
	*w = w.Watched(r, 0, 0)
	return nil
}

// awaitTurn waits for word from the predecessor, whose node is of the same session. That takes no connection.
func (a *attempt) awaitTurn() error {
	a.retry = link.NewBackoff()
	select {
	case t := <-a.turn.Told:
		a.walk = a.walk.Turned(t)
		return nil
	case <-a.sayNow:
		return nil
	case <-a.e.Over():
		return a.e.OverErr()
	case <-a.ctx.Done():
		return link.ErrCtxEnded
	}
}

// await waits for an event, or for another connection. Events are hints; queue.Walk says when one is enough.
func (a *attempt) await() error {
	a.retry = link.NewBackoff()
	e, w := a.e, &a.walk
	var secondFired <-chan struct{}
	if a.onSecond != nil {
		secondFired = a.onSecond.fired
	}
	for {
		conn, changed, err := e.AttachedConn()
		if err != nil {
			return err
		}
		if *w = w.Moved(conn); w.Next != queue.ToAwait {
			return nil
		}
		select {
		case <-a.onAhead.fired:
			return a.rule()
		case <-a.onOwn.fired:
			*w = w.OwnEvent(a.onOwn.event == zk.EventNodeDeleted)
			return nil
		case <-secondFired:
			*w = w.SecondEvent()
			return nil
		case <-a.sayNow:
			return nil
		case <-changed:
		case <-e.Over():
			return e.OverErr()
		case <-a.ctx.Done():
			return link.ErrCtxEnded
		}
	}
}

// rule asks whether the predecessor's event grants. It looks for our own node's event last. If that event comes later, grant
// sees it, or it finds the lock under the lease and ends the hold.
func (a *attempt) rule() error {
	conn, _, err := a.e.AttachedConn()
	if err != nil {
		return err
	}
	a.walk = a.walk.PredecessorEvent(a.onAhead.event == zk.EventNodeDeleted, conn, a.onOwn.hasFired())
	return nil
}

// findingOf says what came of a request. It returns an error if the attempt cannot go on. If the request says nothing, it
// pauses and returns queue.NotTold.
func (a *attempt) findingOf(err error) (queue.Finding, error) {
	switch {
	case err == nil:
		return queue.IsThere, nil
	case a.ctx.Err() != nil:
		return queue.NotTold, link.ErrCtxEnded
	case a.e.IsOver():
		return queue.NotTold, a.e.OverErr()
	case errors.Is(err, zk.ErrNoNode):
		return queue.IsGone, nil
	case errors.Is(err, ErrClosed), answer.IsRefusal(err):
		return queue.NotTold, err
	}
	return queue.NotTold, a.e.PauseUnder(a.ctx, a.retry.Next())
}
