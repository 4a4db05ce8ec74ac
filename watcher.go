package zklock

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
)

// How an attempt waits for the nodes ahead of its own: it carries out the steps of queue.Machine,
// from the first list to the grant.

// wait carries out the steps that the state machine chooses, until the lock is granted.
func (a *attempt) wait() error {
	for {
		a.logIfLong()
		var err error
		if next := a.machine.Next; a.queued && (next == queue.ToReadRecord || next == queue.ToWriteRecord || next == queue.ToGrant) {
			// No node blocks ours any more. Note that now, because the requests before the grant
			// may get no response.
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
		case queue.ToReadRecord:
			err = a.readRecord()
		case queue.ToAwaitDelay:
			err = a.awaitDelay()
		case queue.ToWriteRecord:
			err = a.writeRecord()
		}
		switch {
		case err == errGranted:
			return nil
		case err != nil:
			return err
		}
	}
}

// listQueue lists the queue, unless a list has already been sent.
func (a *attempt) listQueue() error {
	w := &a.machine
	a.blockers = slices.DeleteFunc(a.blockers, blocker.hasEnded)
	if !w.Early {
		a.list = a.e.Lists.List(a.d.root.Path())
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
	p := a.list.PositionOf(root.Rule(), self)
	if p.Kind != queue.Missing {
		if err := a.recipe.listed(a); err != nil {
			return err
		}
	}
	a.pos, *w = p, w.Listed(p, a.list.Conn)
	a.rootCzxid = a.list.Root.Czxid
	return nil
}

// waitBehind stores the node's position. If the predecessor belongs to our own session, waitBehind
// registers for its handoff. Tries end here.
func (a *attempt) waitBehind() error {
	e, root, w := a.e, a.d.root, &a.machine
	if len(a.earlier) > 0 {
		// Calls that have left were creating nodes, usually because no server responded. One of
		// those nodes may block ours although it is being deleted, and a try must not take it for
		// another client's node.
		if err := a.awaitEarlier(); err != nil {
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
	a.leaveHandoff() // it may have been notified to list while the predecessor exists
	if !w.NoHandoff {
		a.handoff = e.Own.WaitBehind(at.predecessor, a.node)
	}
	a.beginWait(at)
	*w = w.WaitsBehind(a.handoff != nil)
	return nil
}

// watchOwn sets the watch on our own node first, in one batch with the watches on the blockers. If
// both nodes are deleted, we must be notified about ours.
//
// A watch that is already set on a blocker is used, although its event may have arrived since we
// requested the list. If list and event arrived over one connection, a list that shows the node is
// older than the node's deletion; and the rule grants only if they did.
func (a *attempt) watchOwn() error {
	a.onOwn = a.e.Watches.StartWatch(a.node)
	before := a.blockers
	names := append([]string{a.pos.Predecessor}, a.pos.Further...)
	a.blockers = make([]blocker, 0, len(names))
	for _, name := range names {
		a.blockers = append(a.blockers, a.watchBlocker(before, a.d.root.Path()+"/"+name))
	}
	for _, m := range before {
		if !slices.Contains(a.blockers, m) {
			m.stopWatching(a.e)
		}
	}
	return a.armed(a.onOwn)
}

// watchBlocker registers for the deletion of a blocker: with the node if it belongs to our session,
// otherwise with a watch.
func (a *attempt) watchBlocker(before []blocker, path string) blocker {
	if i := slices.IndexFunc(before, func(m blocker) bool { return m.path() == path }); i >= 0 {
		return before[i]
	}
	if waiter := a.e.Own.WaitForEnd(path, a.node); waiter != nil {
		return blocker{waiter: waiter}
	}
	return blocker{on: a.e.Watches.StartWatch(path)}
}

// watchBlockers waits until the watch on the next blocker is set. If that blocker is the
// predecessor, watchBlockers stores the watch, which describes its client.
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
	if err == nil && m.on.Err == nil {
		a.d.table.noteBlocker(a.acquisition, m.on)
	}
	return err
}

// armed waits until a watch is set. A watch on a node that does not exist counts as fired
// (node.Watch).
func (a *attempt) armed(on *node.Watch) error {
	w := &a.machine
	err := on.WaitArmed(a.ctx, a.e.ZKSession)
	if err == nil {
		*w = w.Watched(queue.Exists, on.Stat.EphemeralOwner, on.Conn)
		return nil
	}
	r := queue.Unknown
	if a.ctx.Err() == nil && errors.Is(err, zk.ErrNoAuth) { // an ACL forbids reading, so poll
		a.retry = link.Backoff{}
		err = a.e.PauseUnder(a.ctx, lease.Heartbeat(a.e.Timeout()))
	} else {
		r, err = a.findingOf(err)
	}
	if err == nil {
		*w = w.Watched(r, 0, on.Conn)
	}
	return err
}

// armedFurther is armed for a watch on a blocker other than the predecessor. The attempt can
// continue without that watch.
func (a *attempt) armedFurther(on *node.Watch) error {
	err := on.WaitArmed(a.ctx, a.e.ZKSession)
	switch {
	case err == nil:
		a.machine = a.machine.Watched(queue.Exists, on.Stat.EphemeralOwner, on.Conn)
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
	a.machine = a.machine.Watched(r, 0, on.Conn)
	return nil
}

// awaitHandoff waits for a handoff from the predecessor, whose node belongs to the same session.
// This wait needs no connection.
func (a *attempt) awaitHandoff() error {
	a.retry = link.Backoff{}
	select {
	case t := <-a.handoff.Notified:
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

// await waits for an event, or for another connection. Events are hints: queue.Machine decides
// whether they suffice.
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
			return a.rule(i, a.blockers[i].on.Event == zk.EventNodeDeleted)
		case t := <-notified:
			a.blockers[i] = blocker{}
			return a.rule(i, t == queue.BlockerDeleted)
		case <-alsoFired:
			return a.rule(also, a.blockers[also].on.Event == zk.EventNodeDeleted)
		case t := <-alsoNotified:
			a.blockers[also] = blocker{}
			return a.rule(also, t == queue.BlockerDeleted)
		case <-a.onOwn.Fired:
			*w = w.OwnEvent(a.onOwn.Event == zk.EventNodeDeleted)
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

// rule decides whether a blocker's event grants the lock. It checks for our own node's event last.
// If that event arrives later, grant detects it, or the event finds the lock under the lease and
// ends the hold.
func (a *attempt) rule(i int, isDeletion bool) error {
	conn, _, err := a.e.AttachedConn()
	if err != nil {
		return err
	}
	if a.machine = a.machine.BlockerEvent(i, isDeletion, conn, a.onOwn.HasFired()); a.machine.Next == queue.ToAwait {
		a.moveUp()
	}
	return nil
}

// moveUp stores the new position when one of the blockers was deleted and the attempt waits for the
// remaining ones without a list.
func (a *attempt) moveUp() {
	i, _ := a.machine.Awaited()
	m := a.blockers[i]
	at := a.d.table.position(a.acquisition)
	at.rank, at.predecessor, at.read, at.blockerText = a.machine.Left()+1, m.path(), m.on, ""
	at.holds = at.rank == 2 && a.pos.LastHolds
	if a.e.IsHeld(at.predecessor) {
		at.blockerText = ourselves
	}
	a.d.table.noteBehind(a.acquisition, at)
}
