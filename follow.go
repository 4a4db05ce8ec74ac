package zklock

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
)

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
		case queue.ToGrant:
			return a.recipe.front(a)
		case queue.ToQueueAgain:
			return errRequeue
		case queue.ToEnd:
			return a.exhausted()
		default:
			err = a.recipe.step(a)
		}
		switch {
		case err == errGranted:
			return nil
		case err != nil:
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
		a.recipe.listing(a)
	}
	r, err := a.findingOf(a.list.Wait(a.ctx, a.e.Era))
	switch {
	case err != nil:
		return err
	case r != queue.IsThere:
		*w = w.NotListed(r)
		return nil
	}
	root, self := a.d.root, nameOf(a.node)
	p := queue.PlaceOf(root.rule, self, a.list.Names)
	if root.refuses != nil && p.Kind != queue.Missing {
		if err := root.refuses(root, a.list.Names, self); err != nil {
			return err
		}
	}
	*w = w.Listed(p, a.list.Conn)
	if p.Kind == queue.Missing { // what was asked for with the list may be of another root, too
		a.early = nil
	}
	a.rootCzxid = a.list.Root // a root that is made anew has lost our node
	if a.second = p.Second; p.Predecessor != "" {
		a.predecessor = root.path + "/" + p.Predecessor
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
	at := position{node: a.node, place: w.Ahead + 1, predecessor: a.predecessor, holds: w.Holds}
	if e.IsHeld(a.predecessor) {
		at.who = ourselves
	}
	if err := a.recipe.behind(a, at); err != nil {
		return err
	}
	a.list, a.early = nil, nil
	if a.turn != nil { // it may have been told to list while the predecessor stands
		e.nodes.StepOut(a.turn)
		a.turn = nil
	}
	if !w.Tied {
		a.turn = e.nodes.StandBehind(a.predecessor, a.node, root.rule)
	}
	a.waits(at)
	*w = w.StoodBehind(a.turn != nil)
	return nil
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
