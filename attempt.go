package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// The driver of a walk (walk.go): it creates the node, and does what is next, until the lock is granted.

// attempt carries out an acquisition. The call that begins it does so on its own goroutine while there is only waiting to do,
// so that a waiter takes no goroutine of ours. The call leaves the rest to a goroutine when its context ends (a node is to be
// deleted, or others have joined), and when a failed request takes more than waiting.
type attempt struct {
	*acquisition
	link   *link
	root   *lockRoot
	opts   *mutexOptions
	call   *handle         // that carries it out; nil if a goroutine does
	driver context.Context // the call's, or the acquisition's if a goroutine carries it out

	e      *era      // nil if it is in none
	again  bool      // its node was gone through no fault of ours
	noRoot bool      // make the lock root first
	c      *creation // of the node, in e; nil if there is none
	early  *listing  // that was sent with the create
	at     *pursuit  // once the node is made
	retry  backoff   // between requests whose errors say nothing
}

// pursuit is how far a node has come.
type pursuit struct {
	walk               walk
	list               *listing
	place              place
	predecessor        string // absolute
	own, ahead, second *watch
	behind             *waiter // if its predecessor is of the same session
	queued             bool    // it counts among those that wait
	czxid              map[string]int64
}

// errRequeue says that our node is gone through no fault of ours: begin again at the tail.
var errRequeue = errors.New("queue again")

// left returns why the call, or the goroutine, stops carrying the attempt out once the driver has ended.
func (a *attempt) left() error {
	if a.call != nil {
		return errLeft
	}
	return context.Cause(a.ctx)
}

// begin carries the attempt out on the goroutine of a call, as far as that goroutine can. It returns false if another must go
// on (run).
func (a *attempt) begin(ctx context.Context, call *handle) bool {
	a.driver, a.call = ctx, call
	return a.carryOn()
}

// run goes on to the end.
func (a *attempt) run() {
	a.driver, a.call = a.ctx, nil
	a.carryOn()
}

func (a *attempt) carryOn() (ended bool) {
	defer func() {
		if ended {
			a.enter(nil)
			close(a.done)
			a.cancel(nil)
		}
	}()
	for a.ctx.Err() == nil || a.c != nil { // once it has ended, nobody waits
		err := a.acquire()
		switch {
		case err == nil:
			return true // granted
		case errors.Is(err, errLeft):
			return false
		case a.ctx.Err() != nil:
			return true // nobody waits
		case errors.Is(err, errEraOver):
			if !a.opts.failOnLoss {
				continue
			}
			err = fmt.Errorf("%w: %w", ErrSessionExpired, err)
		}
		a.d.table.fail(a.acquisition, err)
		return true
	}
	return true
}

// enter takes the attempt from the era that it is in to e, or to none.
func (a *attempt) enter(e *era) {
	if a.e != nil {
		a.e.attempts.Add(-1)
	}
	if a.e = e; e != nil {
		e.attempts.Add(1)
	}
}

// acquire queues in an era until the lock is granted. It queues again each time our node is gone through no fault of ours.
// The end of the era is an error, even if the loss of the node is seen first.
func (a *attempt) acquire() (err error) {
	if a.e == nil {
		e, err := a.link.attachedEra(a.driver)
		if err != nil {
			if a.driver.Err() != nil {
				return a.left()
			}
			return err
		}
		a.enter(e)
	}
	defer func() {
		if !errors.Is(err, errLeft) {
			a.enter(nil)
			a.again = false
		}
	}()
	backoff := newBackoff()
	for {
		if a.again {
			// Somebody deletes our nodes. Do not race with them.
			if err := a.pause(a.e, backoff.next()); err != nil {
				return err
			}
			if _, err := a.e.waitAttached(a.ctx); err != nil {
				return err
			}
			a.again = false
		}
		start := time.Now()
		err := a.queue()
		if !errors.Is(err, errRequeue) {
			return err
		}
		if a.again = true; a.call != nil {
			return errLeft
		}
		if time.Since(start) > 5*time.Second {
			backoff = newBackoff()
		}
	}
}

// queue makes a node in the era and follows it to the front. It returns nil when the lock was granted. After any other error
// than errLeft the node is deleted, or the reaper has it, or it died with its session. After errLeft a goroutine goes on
// with it.
func (a *attempt) queue() error {
	if a.at == nil {
		if err := a.make(); err != nil {
			return err
		}
	}
	err := a.follow()
	if errors.Is(err, errLeft) {
		return err
	}
	if at := a.at; at.queued {
		a.e.countWaiters(-1)
	}
	if a.at.behind != nil {
		a.e.nodes.stepOut(a.at.behind)
	}
	node := a.c.node
	a.c, a.at = nil, nil
	if err != nil {
		a.giveUp(a.e, node, err)
	}
	return err
}

// make makes the node, and the lock root first if there is none.
func (a *attempt) make() error {
	for {
		if a.noRoot {
			if a.call != nil {
				return errLeft
			}
			if err := a.root.make(a.ctx, a.e); err != nil {
				return err
			}
			a.noRoot = false
		}
		if a.c == nil {
			c, err := a.e.create(a.ctx, a.root.path, a.opts.data, a.root.acl)
			if err != nil {
				return err
			}
			if a.c = c; c.sent && a.root.wasThere() {
				// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip.
				a.early = a.e.list(listKind{root: a.root.path})
			}
		}
		if a.early == nil && a.c.isMade() { // the list goes out in the flight of the request that reads the token
			a.early = a.e.list(listKind{root: a.root.path})
		}
		var call context.Context
		if a.call != nil {
			call = a.driver
		}
		err := a.c.finish(call) // at the latest with the era
		if errors.Is(err, errLeft) {
			return err
		}
		c, early := a.c, a.early
		a.early = nil
		if err == nil {
			a.root.note(true)
			a.root.warnOfTheEnd(a.e, c.node)
			a.at, a.retry = &pursuit{walk: walk{early: early != nil, session: a.e.id}, list: early}, newBackoff()
			return nil
		}
		a.c = nil
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		a.root.note(false)
		a.noRoot = true
	}
}

// giveUp deletes the node and waits a little until it is gone, so that the caller finds it gone when it gets the error (I4).
func (a *attempt) giveUp(e *era, node string, why error) {
	if errors.Is(why, ErrClosed) || e.isOver() {
		return // it goes with its session
	}
	x := a.root.erase(e, node)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-x.done:
	case <-x.refused:
	case <-e.over:
	case <-t.C:
	}
}

// follow does what the node's walk says, until the lock is granted.
func (a *attempt) follow() error {
	e, c, at := a.e, a.c, a.at
	name := c.node[len(a.root.path)+1:]
	for {
		var err error
		switch w := &at.walk; w.next {
		case toList:
			if at.ahead != nil && (at.ahead.hasFired() || at.ahead.hasFailed()) {
				at.ahead = nil
			}
			if !w.early {
				at.list = e.list(listKind{root: a.root.path})
			}
			var r finding
			if r, err = a.findingOf(at.list.wait(a.driver, e.zkSession)); err != nil {
				return err
			}
			if r != isThere {
				*w = w.notListed(r)
				continue
			}
			a.place(name)
		case toReadOrder:
			if a.call != nil {
				return errLeft
			}
			if at.czxid == nil {
				at.czxid = map[string]int64{name: c.token}
			}
			if err := a.readOrder(at.place.unordered, at.czxid); err != nil {
				return err
			}
			a.place(name)
		case toStandBehind:
			at.list, at.predecessor = nil, a.root.path+"/"+at.place.predecessor
			if !a.d.table.behind(a.acquisition, standing{c.node, at.place.ahead + 1, at.predecessor}) {
				return ErrNotAcquired
			}
			if a.call != nil && len(a.call.outcome) > 0 { // a try, which was sent away; others wait
				return errLeft
			}
			if !at.queued {
				at.queued = true
				e.countWaiters(1)
			}
			at.behind = e.nodes.standBehind(at.predecessor, c.node, a.root.markers)
			if *w = w.stoodBehind(at.behind != nil); at.behind != nil && w.next != toAwaitTurn {
				e.nodes.stepOut(at.behind)
			}
		case toAwaitTurn:
			a.retry = newBackoff()
			if err = a.awaitTurn(); err != nil {
				return err
			}
		case toWatchOwn:
			// Watch our own node first, in one flight with the others. If both nodes are deleted, we must hear about ours.
			//
			// A watch that is set on the predecessor already is used, although its event may have come since we asked for the
			// list. If list and event came over one connection, a list that shows the node is older than its deletion; and the
			// rule grants only if they did.
			at.own = e.startWatch(c.node)
			if at.ahead == nil || at.ahead.path != at.predecessor {
				at.ahead = e.startWatch(at.predecessor)
			}
			if at.second = nil; w.second {
				at.second = e.startWatch(a.root.path + "/" + at.place.second)
			}
			if err = a.armed(&at.own); err != nil {
				return err
			}
		case toWatchAhead:
			if err = a.armed(&at.ahead); err != nil {
				return err
			}
		case toWatchSecond:
			if err = a.secondArmed(); err != nil {
				return err
			}
		case toAwait:
			a.retry = newBackoff()
			if err = a.await(); err != nil {
				return err
			}
		case toReadRecord:
			if err = a.readRecord(); err != nil {
				return err
			}
		case toGrant:
			if w.by != byEvent {
				at.own = nil
			}
			return a.grant(e, c, at.own)
		case toQueueAgain:
			return errRequeue
		case toEnd:
			return fmt.Errorf("%w: another client's node %s stands past the end", ErrSequenceExhausted, at.place.foreign)
		}
	}
}

// place finds the node's place in the list.
func (a *attempt) place(name string) {
	at := a.at
	at.place = placeOf(name, at.list.names, a.root.markers, at.czxid)
	at.place.long = len(at.list.names) >= a.link.opts.longQueue && a.root.takesRecords()
	at.walk = at.walk.listed(at.place, at.list.conn)
}

// readRecord reads who released the lock last. If it may not, a list will do, and says what is forbidden.
func (a *attempt) readRecord() error {
	at, w := a.at, &a.at.walk
	at.second = nil
	var root wire.DataResponse
	_, err := a.e.read(a.driver, wire.OpGetData, wire.PathWatchRequest{Path: a.root.path}, &root)
	names := false
	switch {
	case err == nil:
		released, ours := releasedBy(root.Data)
		if names = released == at.place.second || released == nameOf(at.predecessor); !ours {
			a.root.refuseRecords()
		}
	case !isRefusal(err):
		if _, err := a.findingOf(err); err != nil {
			return err
		}
	}
	if *w = w.recorded(names, int(root.Stat.NumChildren) >= a.link.opts.longQueue); w.next == toAwait && !a.d.table.behind(a.acquisition, standing{a.c.node, w.ahead + 1, at.predecessor}) {
		return ErrNotAcquired
	}
	return nil
}

// readOrder reads the czxids of the nodes that their suffixes do not order.
func (a *attempt) readOrder(names []string, czxid map[string]int64) error {
	for _, n := range names {
		if _, ok := czxid[n]; ok {
			continue
		}
		stat, err := a.e.stat(a.root.path + "/" + n)
		r, err := a.findingOf(err)
		switch {
		case err != nil:
			return err
		case r == notTold: // the next round asks for those that are still missing
			return nil
		}
		n = strings.Clone(n) // the list is not kept for it
		czxid[n] = stat.Czxid
		if r == isGone {
			czxid[n] = -1
		}
	}
	return nil
}

// armed waits until a watch is set, and forgets it if it is not.
func (a *attempt) armed(on **watch) error {
	w := &a.at.walk
	err := (*on).waitArmed(a.driver, a.e.zkSession)
	if err == nil {
		*w = w.watched(isThere, (*on).owner, (*on).conn)
		return nil
	}
	r := notTold
	if a.driver.Err() == nil && errors.Is(err, zk.ErrNoAuth) { // an ACL forbids reading: poll
		a.retry = newBackoff()
		err = a.pause(a.e, heartbeat(a.e.sessionTimeout()))
	} else {
		r, err = a.findingOf(err)
	}
	if err == nil { // otherwise another may go on from here
		if *w = w.watched(r, 0, (*on).conn); w.next != toAwait {
			*on = nil
		} else { // the predecessor is gone: who was ahead of it says nothing new
			a.at.second = nil
		}
	}
	return err
}

// secondArmed is armed for the watch on the node ahead of the predecessor. We can do without that watch.
func (a *attempt) secondArmed() error {
	w := &a.at.walk
	err := a.at.second.waitArmed(a.driver, a.e.zkSession)
	switch {
	case err == nil:
		*w = w.watched(isThere, 0, 0)
		return nil
	case a.driver.Err() != nil:
		return a.left()
	case a.e.isOver():
		return a.e.overErr()
	case errors.Is(err, ErrClosed):
		return err
	}
	a.at.second = nil
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
	case t := <-a.at.behind.told:
		a.at.walk = a.at.walk.turned(t)
		return nil
	case <-a.e.over:
		return a.e.overErr()
	case <-a.driver.Done():
		return a.left()
	}
}

// await waits for an event, or for another connection. Events are hints; inFrontNow says when one is enough.
func (a *attempt) await() error {
	e, w, at := a.e, &a.at.walk, a.at
	var secondFired <-chan struct{}
	if at.second != nil {
		secondFired = at.second.fired
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
		case <-at.ahead.fired:
			return a.rule()
		case <-at.own.fired:
			*w = w.ownEvent(at.own.event == zk.EventNodeDeleted)
			return nil
		case <-secondFired:
			*w = w.secondEvent(at.second.event == zk.EventNodeDeleted)
			return nil
		case <-changed:
		case <-e.over:
			return e.overErr()
		case <-a.driver.Done():
			return a.left()
		}
	}
}

// rule asks whether the predecessor's event grants. It looks for our own node's event last. If that event comes later, it
// finds the lock under the lease and ends the hold, or grant sees it.
func (a *attempt) rule() error {
	conn, _, err := a.e.attachedConn()
	if err != nil {
		return err
	}
	w, at := &a.at.walk, a.at
	*w = w.ruled(inFrontNow(w.evidence(at.ahead.event == zk.EventNodeDeleted, conn, at.own.hasFired())))
	return nil
}

// findingOf says what came of a request. It returns an error if the attempt cannot go on. If the request says nothing, it
// pauses and returns notTold.
func (a *attempt) findingOf(err error) (finding, error) {
	switch {
	case err == nil:
		return isThere, nil
	case a.driver.Err() != nil:
		return notTold, a.left()
	case a.e.isOver():
		return notTold, a.e.overErr()
	case errors.Is(err, zk.ErrNoNode):
		return isGone, nil
	case errors.Is(err, ErrClosed), isRefusal(err):
		return notTold, err
	}
	return notTold, a.pause(a.e, a.retry.next())
}

// pause waits for d. If the attempt cannot go on, it returns at once, with the reason.
func (a *attempt) pause(e *era, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-e.over:
		return e.overErr()
	case <-a.driver.Done():
		return a.left()
	}
}

// grant gives the lock to all calls that wait in this attempt, if the ZooKeeper session that made the node is the current
// one (I3) and its lease has room. If the lease went stale during the wait, grant renews it first.
//
// own is the watch on our own node if the grant rests on an event. From the moment the lock is under the lease, the
// deletion of its node is a loss. own says whether the node was deleted before that moment.
func (a *attempt) grant(e *era, c *creation, own *watch) error {
	var leaves *leaving
	if a.at.walk.long {
		leaves = a.root.leaving(e, c.node, c.token)
	}
	a.d.table.prepare(a.acquisition, e, c.node, c.token, leaves)
	for renewed := false; ; renewed = true {
		ok, err := e.hold(c.node, a.d)
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
		_, err = e.check(a.driver, c.node)
		if errors.Is(err, zk.ErrNoAuth) {
			return fmt.Errorf("%w: %w", errUnreadable, denied(err, "check", "READ", c.node))
		}
		switch r, err := a.findingOf(err); {
		case err != nil:
			return err
		case r == isGone:
			return errRequeue
		}
	}
	if own != nil && own.hasFired() && own.event == zk.EventNodeDeleted {
		e.unhold(c.node)
		return errRequeue
	}
	if leaves != nil {
		leaves.ask()
	}
	if !a.d.table.grant(a.acquisition) {
		e.unhold(c.node)
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		return errRequeue // it was lost between the two: nobody had it
	}
	if a.opts.revoke != nil {
		listenForRevocation(a.d, e, c.node, a.opts.revoke)
	}
	return nil
}
