package zklock

import (
	"errors"
	"slices"

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
		if next := a.walk.Next; a.queued && (next == queue.ToReadRecord || next == queue.ToWriteRecord || next == queue.ToGrant) {
			// No client is ahead any more, and no server may respond to what comes before the grant.
			a.d.table.behind(a.acquisition, position{node: a.node})
		}
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
	a.onAhead = slices.DeleteFunc(a.onAhead, ahead.isOver)
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
	if p.Kind != queue.Missing {
		if err := a.recipe.listed(a); err != nil {
			return err
		}
	}
	a.place, *w = p, w.Listed(p, a.list.Conn)
	a.rootCzxid = a.list.Root // a root that is made anew has lost our node
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
	at := positionOf(e, root, a.node, a.place)
	if err := a.recipe.behind(a, at); err != nil {
		return err
	}
	a.list = nil
	if a.turn != nil { // it may have been told to list while the predecessor stands
		e.nodes.StepOut(a.turn)
		a.turn = nil
	}
	if !w.NoTurn {
		a.turn = e.nodes.StandBehind(at.predecessor, a.node)
	}
	a.waits(at)
	*w = w.StoodBehind(a.turn != nil)
	return nil
}

// watchOwn watches our own node first, in one flight with the others. If both nodes are deleted, we must hear about ours.
//
// A watch that is set on a node ahead already is used, although its event may have come since we asked for the list. If list
// and event came over one connection, a list that shows the node is older than its deletion; and the rule grants only if they did.
func (a *attempt) watchOwn() error {
	a.onOwn = a.e.watches.startWatch(a.node)
	before := a.onAhead
	a.onAhead = nil
	for _, name := range append([]string{a.place.Predecessor}, a.place.Further...) {
		a.onAhead = append(a.onAhead, a.lookOut(before, a.d.root.path+"/"+name))
	}
	for _, m := range before {
		if !slices.Contains(a.onAhead, m) {
			m.leave(a.e)
		}
	}
	return a.armed(a.onOwn)
}

// lookOut has us hear of the end of a node ahead.
func (a *attempt) lookOut(before []ahead, path string) ahead {
	if i := slices.IndexFunc(before, func(m ahead) bool { return m.path() == path }); i >= 0 {
		return before[i]
	}
	if told := a.e.nodes.HearOf(path, a.node); told != nil {
		return ahead{told: told}
	}
	return ahead{on: a.e.watches.startWatch(path)}
}

// watchAhead waits until the watch on the next of those ahead is set. If it is the predecessor, watchAhead notes who made that node.
func (a *attempt) watchAhead() error {
	i := a.walk.At
	m := a.onAhead[i]
	switch {
	case m.told != nil:
		a.walk = a.walk.WillBeTold()
		return nil
	case i > 0:
		return a.armedFurther(m.on)
	}
	err := a.armed(m.on)
	if who := m.who(); err == nil && who != "" {
		a.d.table.noteAhead(a.acquisition, m.on.path, who)
	}
	return err
}

// armed waits until a watch is set. A watch on a node that is gone counts as fired (watcher.go).
func (a *attempt) armed(on *watch) error {
	w := &a.walk
	err := on.waitArmed(a.ctx, a.e.Era)
	if err == nil {
		*w = w.Watched(queue.IsThere, on.stat.EphemeralOwner, on.conn)
		return nil
	}
	r := queue.NotTold
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
	err := on.waitArmed(a.ctx, a.e.Era)
	switch {
	case err == nil:
		a.walk = a.walk.Watched(queue.IsThere, on.stat.EphemeralOwner, on.conn)
		return nil
	case a.ctx.Err() != nil:
		return link.ErrCtxEnded
	case a.e.IsOver():
		return a.e.OverErr()
	case errors.Is(err, ErrClosed):
		return err
	}
	r := queue.NotTold
	if errors.Is(err, zk.ErrNoNode) {
		r = queue.IsGone
	}
	a.walk = a.walk.Watched(r, 0, on.conn)
	return nil
}

// awaitTurn waits for word from the predecessor, whose node is of the same session. That takes no connection.
func (a *attempt) awaitTurn() error {
	a.retry = link.Backoff{}
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

// await waits for an event, or for another connection. Events are hints; queue.Walk says when they are enough.
func (a *attempt) await() error {
	a.retry = link.Backoff{}
	e, w := a.e, &a.walk
	i, also := w.Awaited()
	fired, told := a.onAhead[i].ends()
	var alsoFired <-chan struct{}
	var alsoTold <-chan queue.Turn
	if also >= 0 {
		alsoFired, alsoTold = a.onAhead[also].ends()
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
		case <-fired:
			return a.rule(i, a.onAhead[i].on.event == zk.EventNodeDeleted)
		case t := <-told:
			a.onAhead[i] = ahead{}
			return a.rule(i, t == queue.AheadIsGone)
		case <-alsoFired:
			return a.rule(also, a.onAhead[also].on.event == zk.EventNodeDeleted)
		case t := <-alsoTold:
			a.onAhead[also] = ahead{}
			return a.rule(also, t == queue.AheadIsGone)
		case <-a.onOwn.fired:
			*w = w.OwnEvent(a.onOwn.event == zk.EventNodeDeleted)
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

// rule asks whether the event of one of those ahead grants. It looks for our own node's event last. If that event comes later,
// grant sees it, or it finds the lock under the lease and ends the hold.
func (a *attempt) rule(i int, isDeletion bool) error {
	conn, _, err := a.e.AttachedConn()
	if err != nil {
		return err
	}
	if a.walk = a.walk.AheadEvent(i, isDeletion, conn, a.onOwn.hasFired()); a.walk.Next == queue.ToAwait {
		a.moveUp()
	}
	return nil
}

// moveUp notes where the node stands when one of those ahead has gone, and the others are waited for without a list.
func (a *attempt) moveUp() {
	i, _ := a.walk.Awaited()
	m := a.onAhead[i]
	at := a.d.table.position(a.acquisition)
	at.place, at.predecessor, at.who = a.walk.Left()+1, m.path(), m.who()
	at.holds = at.place == 2 && a.place.LastHolds
	if a.e.IsHeld(at.predecessor) {
		at.who = ourselves
	}
	a.d.table.behind(a.acquisition, at)
}
