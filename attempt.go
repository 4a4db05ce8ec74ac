package zklock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// An acquisition runs on a goroutine of its own. Its calls wait for their outcomes, each under its own context. No request,
// pause or wait here is given a caller's context: a.ctx ends when the last call has left (lockTable.leave).

// errRequeue says that our node does not stand in the queue, or not in a place of its own: begin again at the tail.
var errRequeue = errors.New("queue again")

// run queues in one ZooKeeper session after the other, until the lock is granted, the acquisition fails, or nobody waits.
func (a *acquisition) run() {
	defer a.finished()
	for a.ctx.Err() == nil {
		err := a.acquire()
		switch {
		case err == nil: // granted
			return
		case errors.Is(err, errEraOver):
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
func (a *acquisition) acquire() error {
	e, err := a.link.attachedEra(a.ctx)
	if err != nil {
		return err
	}
	e.attempts.Add(1)
	defer e.attempts.Add(-1)
	backoff := newBackoff()
	for {
		start := time.Now()
		if err := a.queue(e); !errors.Is(err, errRequeue) {
			return err
		}
		if time.Since(start) > 5*time.Second {
			backoff = newBackoff()
		}
		// Somebody may be deleting our nodes, or making others with our numbers. Do not race with them.
		if err := a.pause(e, backoff.next()); err != nil {
			return err
		}
		if _, err := e.waitAttached(a.ctx); err != nil {
			return err
		}
	}
}

// queue makes a node and follows it to the front. It returns nil when the lock was granted. After an error the node is
// deleted, or the reaper has it, or it died with its session.
func (a *acquisition) queue(e *era) error {
	at, err := a.make(e)
	if err != nil {
		return err
	}
	err = at.follow()
	if at.queued {
		e.countWaiters(-1)
	}
	if at.behind != nil {
		e.nodes.stepOut(at.behind)
	}
	if err != nil {
		err = a.giveUp(e, at.node, err)
	}
	return err
}

// make makes the node, and the lock root first if there is none.
func (a *acquisition) make(e *era) (*attempt, error) {
	root := a.d.root
	for {
		c, err := e.create(a.ctx, root.path, a.opts.data, root.acl)
		if err != nil {
			return nil, err
		}
		var early *listing
		if c.sent && root.wasThere() {
			// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip.
			early = e.list(listKind{root: root.path})
		}
		err = c.finish() // at the latest with the session
		switch {
		case err == nil:
			root.note(true)
			root.warnOfTheEnd(e, c.node)
			return &attempt{acquisition: a, e: e, node: c.node, token: c.token, walk: walk{early: early != nil, session: e.id}, list: early, retry: newBackoff()}, nil
		case !errors.Is(err, zk.ErrNoNode):
			return nil, err
		}
		root.note(false)
		if err := root.make(a.ctx, e); err != nil {
			return nil, err
		}
	}
}

// giveUp deletes the node and waits a little until it is gone, so that the caller finds it gone when it gets the error (I4).
// At the end of the counter, the caller also finds the lock root gone, so that another try succeeds, or reads why it stays.
func (a *acquisition) giveUp(e *era, node string, why error) error {
	if errors.Is(why, ErrClosed) || e.isOver() {
		return why // it goes with its session
	}
	x, restarted := a.d.root.erase(e, node)
	late := make(chan struct{})
	t := time.AfterFunc(grace, func() { close(late) })
	defer t.Stop()
	select {
	case <-x.done:
	case <-x.refused:
	case <-e.over:
	case <-late:
	}
	if restarted != nil && errors.Is(why, ErrSequenceExhausted) && isClosed(x.done) {
		select {
		case err := <-restarted:
			if err != nil {
				return fmt.Errorf("%w; the lock root cannot be made anew: %w", why, err)
			}
		case <-e.over:
		case <-late:
		}
	}
	return why
}

// pause waits for d. If the acquisition cannot go on, it returns at once, with the reason.
func (a *acquisition) pause(e *era, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-e.over:
		return e.overErr()
	case <-a.ctx.Done():
		return errCtxEnded
	}
}

// attempt is one node's way to the front of its queue. It does what the walk says (walk.go).
type attempt struct {
	*acquisition
	e     *era
	node  string // absolute
	token int64  // its czxid

	walk               walk
	list               *listing
	place              place
	predecessor        string // absolute
	own, ahead, second *watch
	behind             *waiter // if its predecessor is of the same session
	queued             bool    // it counts among those that wait
	retry              backoff // between requests whose errors say nothing
}

// follow does what the walk says, until the lock is granted.
func (a *attempt) follow() error {
	e, root := a.e, a.d.root
	for {
		a.sayIfLong()
		var err error
		switch w := &a.walk; w.next {
		case toList:
			if a.ahead != nil && (a.ahead.hasFired() || a.ahead.hasFailed()) {
				a.ahead = nil
			}
			if !w.early {
				a.list = e.list(listKind{root: root.path})
			}
			var r finding
			if r, err = a.findingOf(a.list.wait(a.ctx, e.zkSession)); err != nil {
				return err
			}
			if r != isThere {
				*w = w.notListed(r)
				continue
			}
			a.place = placeOf(nameOf(a.node), a.list.names, root.markers)
			*w = w.listed(a.place, a.list.conn)
		case toStandBehind:
			if len(a.left) > 0 {
				// Calls that have left were making nodes, mostly because no server answered. We may stand behind one of those, which
				// is being deleted: a try must not take it for somebody.
				if err := a.awaitLeft(); err != nil {
					return err
				}
				*w = w.anew(toList)
				continue
			}
			a.list, a.predecessor = nil, root.path+"/"+a.place.predecessor
			at := position{node: a.node, place: a.place.ahead + 1, predecessor: a.predecessor}
			if e.holds(a.predecessor) {
				at.ahead = ourselves
			}
			if !a.d.table.behind(a.acquisition, at) {
				return ErrNotAcquired
			}
			if !a.queued {
				a.queued = true
				e.countWaiters(1)
				e.log.debug("zklock: queued", func() []any {
					return []any{"path", root.path, "node", a.node, "place", at.place, "predecessor", a.predecessor}
				})
				a.sayNow = time.After(a.toSay - time.Since(a.since))
			}
			a.behind = nil
			if !w.tied {
				a.behind = e.nodes.standBehind(a.predecessor, a.node, root.markers)
			}
			*w = w.stoodBehind(a.behind != nil)
		case toAwaitTurn:
			a.retry = newBackoff()
			err = a.awaitTurn()
		case toWatchOwn:
			// Watch our own node first, in one flight with the others. If both nodes are deleted, we must hear about ours.
			//
			// A watch that is set on the predecessor already is used, although its event may have come since we asked for the
			// list. If list and event came over one connection, a list that shows the node is older than its deletion; and the
			// rule grants only if they did.
			a.own = e.startWatch(a.node)
			if a.ahead == nil || a.ahead.path != a.predecessor {
				a.ahead = e.startWatch(a.predecessor)
			}
			if a.second = nil; w.second {
				a.second = e.startWatch(root.path + "/" + a.place.second)
			}
			err = a.armed(&a.own)
		case toWatchAhead:
			if err = a.armed(&a.ahead); err == nil && a.ahead != nil && a.ahead.err == nil {
				a.d.table.noteAhead(a.acquisition, a.predecessor, whoIs(a.predecessor, a.ahead.data, a.ahead.stat))
			}
		case toWatchSecond:
			err = a.secondArmed()
		case toAwait:
			a.retry = newBackoff()
			err = a.await()
		case toGrant:
			return a.grant()
		case toQueueAgain:
			return errRequeue
		case toEnd:
			return a.exhausted()
		}
		if err != nil {
			return err
		}
	}
}

// awaitLeft waits until the acquisitions that had been left before ours began have ended.
func (a *attempt) awaitLeft() error {
	for ; len(a.left) > 0; a.left = a.left[1:] {
		select {
		case <-a.left[0].done:
		case <-a.e.over:
			return a.e.overErr()
		case <-a.ctx.Done():
			return errCtxEnded
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
	if a.behind != nil && at.ahead == "" {
		return
	}
	who := "behind"
	if at.place == 2 {
		who = "holder"
	}
	a.e.log.info("zklock: still waiting for the lock", "path", a.d.root.path, "node", a.node, "waited", waited.Round(time.Second),
		"place", at.place, who, at.ahead)
}

// ourselves is who holds if a hold of this Session does.
const ourselves = "another owner in this Session"

// exhausted says that nobody is granted at the end of the counter, and what has to go first.
func (a *attempt) exhausted() error {
	way := a.place.predecessor
	for _, child := range a.list.names { // one that takes no part in the queue keeps the root from being made anew, too
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
	err := (*on).waitArmed(a.ctx, a.e.zkSession)
	if err == nil {
		*w = w.watched(isThere, (*on).stat.EphemeralOwner, (*on).conn)
		return nil
	}
	r := notTold
	if a.ctx.Err() == nil && errors.Is(err, zk.ErrNoAuth) { // an ACL forbids reading: poll
		a.retry = newBackoff()
		err = a.pause(a.e, heartbeat(a.e.sessionTimeout()))
	} else {
		r, err = a.findingOf(err)
	}
	if err != nil {
		return err
	}
	if *w = w.watched(r, 0, (*on).conn); w.next != toAwait {
		*on = nil
	} else { // the predecessor is gone: who was ahead of it says nothing new
		a.second = nil
	}
	return nil
}

// secondArmed is armed for the watch on the node ahead of the predecessor. We can do without that watch.
func (a *attempt) secondArmed() error {
	w := &a.walk
	err := a.second.waitArmed(a.ctx, a.e.zkSession)
	switch {
	case err == nil:
		*w = w.watched(isThere, 0, 0)
		return nil
	case a.ctx.Err() != nil:
		return errCtxEnded
	case a.e.isOver():
		return a.e.overErr()
	case errors.Is(err, ErrClosed):
		return err
	}
	a.second = nil
	r := notTold
	if errors.Is(err, zk.ErrNoNode) {
		r = isGone
	}
	*w = w.watched(r, 0, 0)
	return nil
}

// awaitTurn waits for word from the predecessor, whose node is of the same session. That takes no connection.
func (a *attempt) awaitTurn() error {
	select {
	case t := <-a.behind.told:
		a.walk = a.walk.turned(t)
		return nil
	case <-a.sayNow:
		return nil
	case <-a.e.over:
		return a.e.overErr()
	case <-a.ctx.Done():
		return errCtxEnded
	}
}

// await waits for an event, or for another connection. Events are hints; inFrontNow says when one is enough.
func (a *attempt) await() error {
	e, w := a.e, &a.walk
	var secondFired <-chan struct{}
	if a.second != nil {
		secondFired = a.second.fired
	}
	for {
		conn, changed, err := e.attachedConn()
		if err != nil {
			return err
		}
		if *w = w.moved(conn); w.next != toAwait {
			return nil
		}
		select {
		case <-a.ahead.fired:
			return a.rule()
		case <-a.own.fired:
			*w = w.ownEvent(a.own.event == zk.EventNodeDeleted)
			return nil
		case <-secondFired:
			*w = w.secondEvent()
			return nil
		case <-a.sayNow:
			return nil
		case <-changed:
		case <-e.over:
			return e.overErr()
		case <-a.ctx.Done():
			return errCtxEnded
		}
	}
}

// rule asks whether the predecessor's event grants. It looks for our own node's event last. If that event comes later, grant
// sees it, or it finds the lock under the lease and ends the hold.
func (a *attempt) rule() error {
	conn, _, err := a.e.attachedConn()
	if err != nil {
		return err
	}
	a.walk = a.walk.ruled(inFrontNow(a.walk.evidence(a.ahead.event == zk.EventNodeDeleted, conn, a.own.hasFired())))
	return nil
}

// findingOf says what came of a request. It returns an error if the attempt cannot go on. If the request says nothing, it
// pauses and returns notTold.
func (a *attempt) findingOf(err error) (finding, error) {
	switch {
	case err == nil:
		return isThere, nil
	case a.ctx.Err() != nil:
		return notTold, errCtxEnded
	case a.e.isOver():
		return notTold, a.e.overErr()
	case errors.Is(err, zk.ErrNoNode):
		return isGone, nil
	case errors.Is(err, ErrClosed), isRefusal(err):
		return notTold, err
	}
	return notTold, a.pause(a.e, a.retry.next())
}

// grant gives the lock to all calls that wait in this attempt, if the ZooKeeper session that made the node is the current
// one (I3) and its lease has room. If the lease went stale during the wait, grant renews it first.
//
// From the moment the lock is under the lease, the deletion of its node is a loss. The watch on our own node, if there is
// one, says whether the node was deleted before that moment.
func (a *attempt) grant() error {
	e, d := a.e, a.d
	d.table.prepare(a.acquisition, e, a.node, a.token)
	for renewed := false; ; renewed = true {
		ok, err := e.hold(a.node, d)
		switch {
		case errors.Is(err, ErrNoRoom):
			return err
		case err != nil:
			return e.overErr()
		}
		if ok {
			break
		}
		if renewed {
			if err := a.pause(e, heartbeat(e.sessionTimeout())/2); err != nil {
				return err
			}
		}
		_, err = e.check(a.ctx, a.node)
		if errors.Is(err, zk.ErrNoAuth) {
			return fmt.Errorf("%w: %w", errUnreadable, denied(err, "check", "READ", a.node))
		}
		switch r, err := a.findingOf(err); {
		case err != nil:
			return err
		case r == isGone:
			return errRequeue
		}
	}
	if own := a.own; own != nil && own.hasFired() && own.event == zk.EventNodeDeleted {
		e.unhold(a.node)
		return errRequeue
	}
	if !d.table.grant(a.acquisition) { // here the lock becomes ours
		e.unhold(a.node)
		if a.ctx.Err() != nil {
			return errCtxEnded
		}
		return errRequeue // it was lost between the two, and nobody had it
	}
	if a.opts.revoke != nil {
		listenForRevocation(d, e, a.node, a.opts.revoke)
	}
	return nil
}
