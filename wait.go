package zklock

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
)

// wait does what the walk says, until the lock is granted.
func (a *attempt) wait() error {
	for {
		a.logIfLong()
		var err error
		if next := a.machine.Next; a.queued && (next == queue.ToReadRecord || next == queue.ToWriteRecord || next == queue.ToGrant) {
			// No client is ahead any more, and no server may respond to what comes before the grant.
			a.d.table.noteBehind(a.acquisition, position{node: a.node})
		}
		switch a.machine.Next {
		case queue.ToList:
			err = a.listQueue()
		case queue.ToWaitBehind:
			err = a.waitBehind()
		case queue.ToAwaitHandoff:
			err = a.awaitHandoff()
		case queue.ToWatchOwn:
			err = a.watchOwn()
		case queue.ToWatchBlocker:
			err = a.watchBlockers()
		case queue.ToAwait:
			err = a.await()
		case queue.ToGrant:
			return a.recipe.whenFirst(a)
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
	w := &a.machine
	a.blockers = slices.DeleteFunc(a.blockers, blocker.hasEnded)
	if !w.Early {
		a.list = a.e.lists.List(a.d.root.path)
		a.recipe.listing(a)
	}
	r, err := a.findingOf(a.list.Wait(a.ctx, a.e.ZKSession))
	switch {
	case err != nil:
		return err
	case r != queue.Exists:
		*w = w.NotListed(r)
		return nil
	}
	root, self := a.d.root, nameOf(a.node)
	p := queue.PositionOf(root.rule, self, a.list.Names)
	if p.Kind != queue.Missing {
		if err := a.recipe.listed(a); err != nil {
			return err
		}
	}
	a.pos, *w = p, w.Listed(p, a.list.Conn)
	a.rootCzxid = a.list.Root // a root that is made again has lost our node
	return nil
}

// waitBehind notes where the node stands, and has the predecessor tell us if it is a node of our own session. Tries end here.
func (a *attempt) waitBehind() error {
	e, root, w := a.e, a.d.root, &a.machine
	if len(a.left) > 0 {
		// Calls that have left were making nodes, mostly because no server answered. We may stand behind one of those, which
		// is being deleted: a try must not take it for somebody.
		if err := a.awaitLeft(); err != nil {
			return err
		}
		*w = w.ListAgain()
		return nil
	}
	at := positionOf(e, root, a.node, a.pos)
	if err := a.recipe.whenBehind(a, at); err != nil {
		return err
	}
	a.list = nil
	if a.handoff != nil { // it may have been told to list while the predecessor stands
		e.nodes.Leave(a.handoff)
		a.handoff = nil
	}
	if !w.NoHandoff {
		a.handoff = e.nodes.WaitBehind(at.predecessor, a.node)
	}
	a.waits(at)
	*w = w.WaitsBehind(a.handoff != nil)
	return nil
}

// watchOwn watches our own node first, in one flight with the others. If both nodes are deleted, we must hear about ours.
//
// A watch that is set on a node ahead already is used, although its event may have come since we asked for the list. If list
// and event came over one connection, a list that shows the node is older than its deletion; and the rule grants only if they did.
func (a *attempt) watchOwn() error {
	a.onOwn = a.e.watches.startWatch(a.node)
	before := a.blockers
	a.blockers = nil
	for _, name := range append([]string{a.pos.Predecessor}, a.pos.Further...) {
		a.blockers = append(a.blockers, a.watchBlocker(before, a.d.root.path+"/"+name))
	}
	for _, m := range before {
		if !slices.Contains(a.blockers, m) {
			m.stopWatching(a.e)
		}
	}
	return a.armed(a.onOwn)
}

// watchBlocker has us hear of the end of a node ahead.
func (a *attempt) watchBlocker(before []blocker, path string) blocker {
	if i := slices.IndexFunc(before, func(m blocker) bool { return m.path() == path }); i >= 0 {
		return before[i]
	}
	if waiter := a.e.nodes.WaitForEnd(path, a.node); waiter != nil {
		return blocker{waiter: waiter}
	}
	return blocker{on: a.e.watches.startWatch(path)}
}

// watchBlockers waits until the watch on the next of those ahead is set. If it is the predecessor, watchBlockers notes who made that node.
func (a *attempt) watchBlockers() error {
	i := a.machine.At
	m := a.blockers[i]
	switch {
	case m.waiter != nil:
		a.machine = a.machine.WillBeNotified()
		return nil
	case i > 0:
		return a.armedFurther(m.on)
	}
	err := a.armed(m.on)
	if who := m.who(); err == nil && who != "" {
		a.d.table.noteBlocker(a.acquisition, m.on.path, who)
	}
	return err
}

// armed waits until a watch is set. A watch on a node that is gone counts as fired (watcher.go).
func (a *attempt) armed(on *watch) error {
	w := &a.machine
	err := on.waitArmed(a.ctx, a.e.ZKSession)
	if err == nil {
		*w = w.Watched(queue.Exists, on.stat.EphemeralOwner, on.conn)
		return nil
	}
	r := queue.Unknown
	if a.ctx.Err() == nil && errors.Is(err, zk.ErrNoAuth) { // an ACL forbids reading: poll
		a.retry = link.Backoff{}
		err = a.e.PauseUnder(a.ctx, lease.Heartbeat(a.e.Timeout()))
	} else {
		r, err = a.findingOf(err)
	}
	if err == nil {
		*w = w.Watched(r, 0, on.conn)
	}
	return err
}

// armedFurther is armed for a watch on a node ahead of the predecessor. We can do without that watch.
func (a *attempt) armedFurther(on *watch) error {
	err := on.waitArmed(a.ctx, a.e.ZKSession)
	switch {
	case err == nil:
		a.machine = a.machine.Watched(queue.Exists, on.stat.EphemeralOwner, on.conn)
		return nil
	case a.ctx.Err() != nil:
		return link.ErrCtxEnded
	case a.e.HasEnded():
		return a.e.EndErr()
	case errors.Is(err, ErrClosed):
		return err
	}
	r := queue.Unknown
	if errors.Is(err, zk.ErrNoNode) {
		r = queue.Absent
	}
	a.machine = a.machine.Watched(r, 0, on.conn)
	return nil
}

// awaitHandoff waits for word from the predecessor, whose node is of the same session. That takes no connection.
func (a *attempt) awaitHandoff() error {
	a.retry = link.Backoff{}
	select {
	case t := <-a.handoff.Told:
		a.machine = a.machine.HandedOff(t)
		return nil
	case <-a.logNow:
		return nil
	case <-a.e.Ended():
		return a.e.EndErr()
	case <-a.ctx.Done():
		return link.ErrCtxEnded
	}
}

// await waits for an event, or for another connection. Events are hints; queue.Machine says when they are enough.
func (a *attempt) await() error {
	a.retry = link.Backoff{}
	e, w := a.e, &a.machine
	i, also := w.Awaited()
	fired, notified := a.blockers[i].ends()
	var alsoFired <-chan struct{}
	var alsoNotified <-chan queue.Handoff
	if also >= 0 {
		alsoFired, alsoNotified = a.blockers[also].ends()
	}
	for {
		conn, changed, err := e.AttachedConn()
		if err != nil {
			return err
		}
		if *w = w.Reconnected(conn); w.Next != queue.ToAwait {
			return nil
		}
		select {
		case <-fired:
			return a.rule(i, a.blockers[i].on.event == zk.EventNodeDeleted)
		case t := <-notified:
			a.blockers[i] = blocker{}
			return a.rule(i, t == queue.AheadIsGone)
		case <-alsoFired:
			return a.rule(also, a.blockers[also].on.event == zk.EventNodeDeleted)
		case t := <-alsoNotified:
			a.blockers[also] = blocker{}
			return a.rule(also, t == queue.AheadIsGone)
		case <-a.onOwn.fired:
			*w = w.OwnEvent(a.onOwn.event == zk.EventNodeDeleted)
			return nil
		case <-a.logNow:
			return nil
		case <-changed:
		case <-e.Ended():
			return e.EndErr()
		case <-a.ctx.Done():
			return link.ErrCtxEnded
		}
	}
}

// rule asks whether the event of one of those ahead grants. It looks for our own node's event last. If that event comes later,
// grant sees it, or it finds the lock under the lease and ends the hold.
func (a *attempt) rule(i int, isDeletion bool) error {
	conn, _, err := a.e.AttachedConn()
	if err != nil {
		return err
	}
	if a.machine = a.machine.BlockerEvent(i, isDeletion, conn, a.onOwn.hasFired()); a.machine.Next == queue.ToAwait {
		a.moveUp()
	}
	return nil
}

// moveUp notes where the node stands when one of those ahead has gone, and the others are waited for without a list.
func (a *attempt) moveUp() {
	i, _ := a.machine.Awaited()
	m := a.blockers[i]
	at := a.d.table.position(a.acquisition)
	at.rank, at.predecessor, at.blockerText = a.machine.Left()+1, m.path(), m.who()
	at.holds = at.rank == 2 && a.pos.LastHolds
	if a.e.IsHeld(at.predecessor) {
		at.blockerText = ourselves
	}
	a.d.table.noteBehind(a.acquisition, at)
}
