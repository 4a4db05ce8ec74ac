package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// The driver of a walk (walk.go): it creates the node, and does what is next, until the lock is granted.

// attempt carries out an acquisition.
type attempt struct {
	*acquisition
	link  *link
	root  *lockRoot
	opts  *mutexOptions
	retry *backoff // between requests that fail in a way that says nothing
}

// errRequeue says that our node is gone through no fault of ours: begin again at the tail.
var errRequeue = errors.New("queue again")

func (a *attempt) run() {
	defer close(a.done)
	defer a.cancel(nil)
	for a.ctx.Err() == nil { // once it has ended, nobody waits
		e, err := a.link.attachedEra(a.ctx)
		if err == nil {
			err = a.acquireIn(e)
		}
		switch {
		case err == nil:
			return // granted
		case a.ctx.Err() != nil:
			return // nobody waits
		case errors.Is(err, errEraOver):
			if !a.opts.failOnLoss {
				continue
			}
			err = fmt.Errorf("%w: %w", ErrSessionExpired, err)
		}
		a.d.table.fail(a.acquisition, err)
		return
	}
}

// acquireIn queues in this era, again each time our node is gone through no fault of ours, until the lock is granted. The
// end of the era is an error, also where it is seen by the loss of the node first.
func (a *attempt) acquireIn(e *era) error {
	backoff := newBackoff()
	for {
		start := time.Now()
		err := a.queueIn(e)
		if !errors.Is(err, errRequeue) {
			return err
		}
		// Somebody deletes our nodes. Do not race with them.
		if time.Since(start) > 5*time.Second {
			backoff = newBackoff()
		}
		if err := a.pause(e, backoff.next()); err != nil {
			return err
		}
		if _, err := e.waitAttached(a.ctx); err != nil {
			return err
		}
	}
}

// queueIn makes a node in this era and follows it to the front. It returns nil when the lock was granted; otherwise
// the node is deleted, or the reaper has it, or it died with its session.
func (a *attempt) queueIn(e *era) error {
	c := e.create(a.ctx, a.root.path, a.opts.data, a.root.acl)
	var l *listing
	if a.root.wasThere() {
		// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip.
		select {
		case <-c.sent:
			l, _ = e.list(a.ctx, listKind{root: a.root.path})
		case <-c.done:
		}
	}
	<-c.done // at the latest with the era
	if c.err != nil {
		if !errors.Is(c.err, zk.ErrNoNode) {
			return c.err
		}
		a.root.note(false)
		if err := a.root.make(a.ctx, e); err != nil {
			return err
		}
		return a.queueIn(e)
	}
	a.root.note(true)
	a.root.warnOfTheEnd(e, c.node)

	err := a.follow(e, c, l)
	if err != nil {
		a.giveUp(e, c.node, err)
	}
	return err
}

// giveUp deletes the node and waits for that a little, so that a caller who is told finds it gone (I4).
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
	case <-t.C:
	}
}

// follow does what the node's walk says, until the lock is granted. l is a list that was sent after the create was, or nil.
func (a *attempt) follow(e *era, c *creation, l *listing) error {
	name := c.node[len(a.root.path)+1:]
	czxid := map[string]int64{name: c.token}
	queued := false
	defer func() {
		if queued {
			e.countWaiters(-1)
		}
	}()
	a.retry = newBackoff()
	var p place
	var own, ahead, second *watch
	w := walk{early: l != nil, session: e.id}
	for {
		var err error
		switch w.next {
		case toList:
			if ahead != nil && ahead.hasFired() {
				ahead = nil
			}
			if !w.early {
				l, err = e.list(a.ctx, listKind{root: a.root.path})
			}
			var r finding
			if r, err = a.findingOf(e, err); err != nil {
				return err
			}
			if r != isThere {
				w = w.notListed(r)
				continue
			}
			p = placeOf(name, l.names, a.root.markers, czxid)
			w = w.listed(p, l.conn)
		case toReadOrder:
			if err := a.readOrder(e, p.unordered, czxid); err != nil {
				return err
			}
			p = placeOf(name, l.names, a.root.markers, czxid)
			w = w.listed(p, l.conn)
		case toWatchOwn:
			if !a.d.table.behind(a.acquisition, standing{c.node, p.ahead + 1, a.root.path + "/" + p.predecessor}) {
				return ErrNotAcquired
			}
			if !queued {
				queued = true
				e.countWaiters(1)
			}
			if own, w, err = a.watch(e, c.node, w); err != nil {
				return err
			}
		case toWatchAhead:
			// The watch of before goes on, although its event may have come since we asked for the list: a list that shows the node
			// is older than its deletion, if both came over one connection, which the rule asks for.
			if node := a.root.path + "/" + p.predecessor; ahead != nil && ahead.path == node {
				w = w.watched(isThere, ahead.owner, ahead.conn)
			} else if ahead, w, err = a.watch(e, node, w); err != nil {
				return err
			}
		case toWatchSecond:
			if second, w, err = a.watchSecond(e, a.root.path+"/"+p.second, w); err != nil {
				return err
			}
		case toAwait:
			a.retry = newBackoff()
			if !w.second {
				second = nil
			}
			if w, err = a.await(e, own, ahead, second, w); err != nil {
				return err
			}
		case toAwaitDelete:
			if w, err = a.awaitDelete(e, own, ahead, w); err != nil {
				return err
			}
		case toGrant:
			if !w.byEvent {
				own = nil
			}
			return a.grant(e, c, own)
		case toQueueAgain:
			return errRequeue
		case toEnd:
			return fmt.Errorf("%w: the node %s of another client stands past the end", ErrSequenceExhausted, p.foreign)
		}
	}
}

// readOrder reads the czxids of nodes whose suffixes do not order them.
func (a *attempt) readOrder(e *era, names []string, czxid map[string]int64) error {
	for _, n := range names {
		stat, err := e.stat(a.root.path + "/" + n)
		r, err := a.findingOf(e, err)
		switch {
		case err != nil:
			return err
		case r == notTold: // what is still missing is asked for again
			return nil
		}
		czxid[n] = stat.Czxid
		if r == isGone {
			czxid[n] = -1
		}
	}
	return nil
}

// watch sets a watch, or joins the one that is set.
func (a *attempt) watch(e *era, node string, w walk) (*watch, walk, error) {
	on, err := e.watch(a.ctx, node)
	if errors.Is(err, zk.ErrNoAuth) { // an ACL forbids reading: poll
		a.retry = newBackoff()
		return nil, w.watched(notTold, 0, 0), a.pause(e, heartbeat(e.sessionTimeout()))
	}
	r, err := a.findingOf(e, err)
	if r != isThere || err != nil {
		return nil, w.watched(r, 0, 0), err
	}
	return on, w.watched(r, on.owner, on.conn), nil
}

// watchSecond sets the watch that we can do without.
func (a *attempt) watchSecond(e *era, node string, w walk) (*watch, walk, error) {
	on, err := e.watch(a.ctx, node)
	switch {
	case err == nil:
		return on, w.watched(isThere, 0, 0), nil
	case a.ctx.Err() != nil:
		return nil, w, context.Cause(a.ctx)
	case e.isOver():
		return nil, w, e.overErr()
	case errors.Is(err, ErrClosed):
		return nil, w, err
	case errors.Is(err, zk.ErrNoNode):
		return nil, w.watched(isGone, 0, 0), nil
	}
	return nil, w.watched(notTold, 0, 0), nil
}

// await waits for what brings the walk on. Events are hints; inFrontNow says when one is enough.
func (a *attempt) await(e *era, own, ahead, second *watch, w walk) (walk, error) {
	var secondFired <-chan struct{}
	if second != nil {
		secondFired = second.fired
	}
	for {
		conn, changed, err := e.attachedConn()
		if err != nil {
			return w, err
		}
		if w = w.moved(conn); w.next != toAwait {
			return w, nil
		}
		select {
		case <-ahead.fired:
			return a.rule(e, own, ahead, w)
		case <-own.fired:
			return w.ownEvent(own.event == zk.EventNodeDeleted), nil
		case <-secondFired:
			return w.secondEvent(), nil
		case <-changed:
		case <-e.over:
			return w, e.overErr()
		case <-a.ctx.Done():
			return w, context.Cause(a.ctx)
		}
	}
}

// awaitDelete waits for the answer to our own delete of the predecessor.
func (a *attempt) awaitDelete(e *era, own, ahead *watch, w walk) (walk, error) {
	select {
	case <-ahead.erasure.done:
		return a.rule(e, own, ahead, w)
	case <-e.over:
		return w, e.overErr()
	case <-a.ctx.Done():
		return w, context.Cause(a.ctx)
	}
}

// rule asks whether the predecessor's event grants. Our own node's event is looked for last: what comes after it finds the lock
// under the lease, and ends the hold, or is seen by grant.
func (a *attempt) rule(e *era, own, ahead *watch, w walk) (walk, error) {
	conn, _, err := e.attachedConn()
	if err != nil {
		return w, err
	}
	return w.ruled(inFrontNow(w.evidence(ahead.event == zk.EventNodeDeleted, ahead.erasure.fate(), conn, own.hasFired()))), nil
}

// findingOf says what came of a request. It returns an error if there is nothing to go on with, and notTold after a pause.
func (a *attempt) findingOf(e *era, err error) (finding, error) {
	switch {
	case err == nil:
		return isThere, nil
	case a.ctx.Err() != nil:
		return notTold, context.Cause(a.ctx)
	case e.isOver():
		return notTold, e.overErr()
	case errors.Is(err, zk.ErrNoNode):
		return isGone, nil
	case errors.Is(err, ErrClosed), isRefusal(err):
		return notTold, err
	}
	return notTold, a.pause(e, a.retry.next())
}

// pause waits, and returns why there is nothing to go on with.
func (a *attempt) pause(e *era, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-e.over:
		return e.overErr()
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

// grant gives the lock to everybody who waits in this attempt, if the ZooKeeper session that made the node is the
// current one (I3) and its lease has room. A lease that went stale while we waited is renewed first.
//
// own is the watch on our own node if the grant rests on an event. From the moment the lock is under the lease, the
// deletion of its node is a loss; own says whether it was deleted before.
func (a *attempt) grant(e *era, c *creation, own *watch) error {
	a.d.table.prepare(a.acquisition, e, c.node, c.token)
	for renewed := false; ; renewed = true {
		ok, err := e.hold(c.node, a.d)
		switch {
		case errors.Is(err, ErrNoRoom):
			return err
		case err != nil:
			return e.overErr()
		}
		if ok && a.link.opts.endOnSuspend {
			// A hold that is made while the connection is suspended would outlive the suspension.
			if conn, _, _ := e.attachedConn(); conn == 0 {
				e.unhold(c.node)
				if _, err := e.waitAttached(a.ctx); err != nil {
					return err
				}
				continue
			}
		}
		if ok {
			break
		}
		if renewed {
			if err := a.pause(e, heartbeat(e.sessionTimeout())/2); err != nil {
				return err
			}
		}
		_, err = e.check(a.ctx, c.node)
		if errors.Is(err, zk.ErrNoAuth) {
			return fmt.Errorf("%w: %w", errUnreadable, denied(err, "check", "READ", c.node))
		}
		switch r, err := a.findingOf(e, err); {
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
	if !a.d.table.grant(a.acquisition) {
		e.unhold(c.node)
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		return errRequeue // lost between the two: nobody had it
	}
	if a.opts.revoke != nil {
		listenForRevocation(a.d, e, c.node, a.opts.revoke)
	}
	return nil
}
