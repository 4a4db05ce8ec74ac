package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// One owner's walk to the lock: create a node, list, and wait behind the predecessor until the rule (queue.go) or a list
// says that the node is in front.

// attempt walks the recipe for one owner. It belongs to the owner, not to a call: calls join and leave, and it ends
// with the grant, with an error, or when the last has left.
type attempt struct {
	m      *Mutex
	d      *lockData
	ctx    context.Context // ends when the last joiner has left
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing is left to be done, the deletion of a node aside that the reaper has
	retry  *backoff      // run's: between requests that fail in a way that says nothing

	joiners map[*joiner]struct{} // guarded, as at, by the lock table
	at      standing
}

func newAttempt(m *Mutex, d *lockData) *attempt {
	a := &attempt{m: m, d: d, done: make(chan struct{}), retry: newBackoff(), joiners: make(map[*joiner]struct{})}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	return a
}

// errRequeue says that our node is gone through no fault of ours: begin again at the tail.
var errRequeue = errors.New("queue again")

func (a *attempt) run() {
	defer close(a.done)
	defer a.cancel(nil)
	s := a.m.s
	for a.ctx.Err() == nil { // once it has ended, nobody waits
		e, err := s.attachedEra(a.ctx)
		if err == nil {
			err = a.acquireIn(e)
		}
		switch {
		case err == nil:
			return // granted
		case a.ctx.Err() != nil:
			return // nobody waits
		case errors.Is(err, errEraOver):
			if !a.m.opts.failOnLoss {
				continue
			}
			err = fmt.Errorf("%w: %w", ErrSessionExpired, err)
		}
		s.locks.fail(a, err)
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
	m := a.m
	c := e.create(a.ctx, m.root, m.opts.data, m.opts.acl)
	var l *listing
	if e.knowsRoot(m.root) {
		// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip.
		select {
		case <-c.sent:
			l, _ = e.list(a.ctx, listKind{root: m.root})
		case <-c.done:
		}
	}
	<-c.done // at the latest with the era
	if c.err != nil {
		if !errors.Is(c.err, zk.ErrNoNode) {
			return c.err
		}
		e.noteRoot(m.root, false)
		if err := m.makeRoot(a.ctx, e); err != nil {
			return err
		}
		return a.queueIn(e)
	}
	e.noteRoot(m.root, true)
	m.warnOfTheEnd(c.node)

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
	x := e.erase(node)
	a.m.afterErasure(e, node, x)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-x.done:
	case <-x.refused:
	case <-t.C:
	}
}

// follow lists, decides, and waits, until the node is in front. l is a list that was sent after the node was made, or
// nil.
func (a *attempt) follow(e *era, c *creation, l *listing) error {
	m, name := a.m, c.node[len(a.m.root)+1:]
	czxid := map[string]int64{name: c.token}
	queued := false
	defer func() {
		if queued {
			e.queue(-1)
		}
	}()
	backoff := newBackoff()
	early := l != nil
	for {
		if l == nil {
			var err error
			early = false
			l, err = e.list(a.ctx, listKind{root: m.root})
			switch {
			case err == nil:
				backoff = newBackoff()
			case errors.Is(err, zk.ErrNoNode):
				return errRequeue // the lock root is gone, and our node with it (R5, R58)
			case a.ctx.Err() != nil, e.isOver(), errors.Is(err, ErrClosed):
				return err
			case refused(err):
				return err
			default: // the connection was lost: ask again when there is one
				l = nil
				if err := a.pause(e, backoff.next()); err != nil {
					return err
				}
				continue
			}
		}
		p := placeOf(name, l.names, m.opts.markers, czxid)
		switch p.kind {
		case missing:
			if early { // sent in the flight of a create that was lost; ours came later
				l = nil
				continue
			}
			return errRequeue
		case exhausted:
			return fmt.Errorf("%w: the node %s of another client stands past the end", ErrSequenceExhausted, p.foreign)
		case needOrder:
			if err := a.readOrder(e, p.unordered, czxid); err != nil {
				return err
			}
		case front:
			return a.grant(e, c, nil)
		case behind:
			if !m.s.locks.behind(a, standing{c.node, p.ahead + 1, m.root + "/" + p.predecessor}) {
				return ErrNotAcquired
			}
			if !queued {
				queued = true
				e.queue(1)
			}
			own, err := a.wait(e, c, l, p)
			if err != nil {
				return err
			}
			if own != nil {
				return a.grant(e, c, own)
			}
			l = nil
		}
	}
}

// readOrder reads the czxids of nodes whose suffixes do not order them.
func (a *attempt) readOrder(e *era, names []string, czxid map[string]int64) error {
	for _, n := range names {
		stat, err := e.stat(a.m.root + "/" + n)
		switch {
		case err == nil:
			czxid[n] = stat.Czxid
		case errors.Is(err, zk.ErrNoNode):
			czxid[n] = -1
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case refused(err), e.isOver(), errors.Is(err, ErrClosed):
			return err
		default: // the connection was lost; what is still missing is asked for again
			return a.pause(e, a.retry.next())
		}
	}
	return nil
}

// wait waits behind the predecessor. It returns the watch on our own node if the lock may be granted without asking, nil
// if the queue must be listed again. Events are hints; see inFrontNow for when one is enough.
func (a *attempt) wait(e *era, c *creation, l *listing, p place) (inFront *watch, err error) {
	conn, changed, err := e.attachedConn()
	if err != nil {
		return nil, err
	}

	// Our own node first: if both are deleted, ours must not be the one we do not hear of.
	own, err := e.watch(a.ctx, c.node)
	switch {
	case err == nil:
	case errors.Is(err, zk.ErrNoNode):
		return nil, errRequeue
	case errors.Is(err, zk.ErrNoAuth):
		return nil, a.pause(e, heartbeat(e.sessionTimeout())) // our own ACL forbids reading: poll
	default:
		return nil, a.again(e, err)
	}
	ahead, err := e.watch(a.ctx, a.m.root+"/"+p.predecessor)
	switch {
	case err == nil:
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil // gone in between: list again, and keep our node (R55)
	case errors.Is(err, zk.ErrNoAuth):
		return nil, a.pause(e, heartbeat(e.sessionTimeout()))
	default:
		return nil, a.again(e, err)
	}

	a.retry = newBackoff()
	for {
		select {
		case <-ahead.fired:
			if ok, err := a.mayGrant(e, l, p, own, ahead); !ok {
				return nil, err
			}
			return own, nil
		case <-own.fired:
			if own.event == zk.EventNodeDeleted {
				return nil, errRequeue
			}
			return nil, nil
		case <-changed:
			var now uint64
			if now, changed, err = e.attachedConn(); err != nil {
				return nil, err
			}
			if now != 0 && now != conn {
				return nil, nil
			}
		case <-e.over:
			return nil, e.overErr()
		case <-a.ctx.Done():
			return nil, context.Cause(a.ctx)
		}
	}
}

// mayGrant asks the rule (inFrontNow) whether the predecessor's event grants, and waits for what it wants to know first.
func (a *attempt) mayGrant(e *era, l *listing, p place, own, ahead *watch) (bool, error) {
	for {
		known, err := a.evidence(e, l, p, own, ahead)
		if err != nil {
			return false, err
		}
		switch inFrontNow(known) {
		case grantNow:
			return true, nil
		case listAgain:
			return false, nil
		}
		select { // awaitDelete
		case <-ahead.erasure.done:
		case <-e.over:
			return false, e.overErr()
		case <-a.ctx.Done():
			return false, context.Cause(a.ctx)
		}
	}
}

// evidence gathers what is known now. Our own node's event is asked for last: what comes after it finds the lock granted,
// and ends the hold.
func (a *attempt) evidence(e *era, l *listing, p place, own, ahead *watch) (evidence, error) {
	k := evidence{
		ahead: p.ahead, wrapped: p.wrapped, deleted: ahead.event == zk.EventNodeDeleted,
		session: e.id, owner: ahead.owner, ourDelete: ahead.erasure.fate(),
		listConn: l.conn, ownConn: own.conn, aheadConn: ahead.conn,
	}
	var err error
	if k.conn, _, err = e.attachedConn(); err != nil {
		return k, err
	}
	k.ownFired = own.hasFired()
	return k, nil
}

// again decides what a failed watch means: an error to end with, or nil to list again.
func (a *attempt) again(e *era, err error) error {
	switch {
	case a.ctx.Err() != nil:
		return context.Cause(a.ctx)
	case e.isOver():
		return e.overErr()
	case errors.Is(err, ErrClosed):
		return err
	case refused(err):
		return err
	}
	return a.pause(e, a.retry.next())
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
	s := a.m.s
	s.locks.prepare(a, e, c.node, c.token)
	for renewed := false; ; renewed = true {
		ok, err := e.hold(c.node, a.d)
		switch {
		case errors.Is(err, ErrNoRoom):
			return err
		case err != nil:
			return e.overErr()
		}
		if ok && s.opts.endOnSuspend {
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
		switch {
		case err == nil:
		case errors.Is(err, zk.ErrNoNode):
			return errRequeue
		case errors.Is(err, zk.ErrNoAuth):
			return fmt.Errorf("%w: %w", errUnreadable, denied(err, "check", "READ", c.node))
		default:
			if err := a.again(e, err); err != nil {
				return err
			}
		}
	}
	if own != nil && own.hasFired() && own.event == zk.EventNodeDeleted {
		e.unhold(c.node)
		return errRequeue
	}
	if !s.locks.grant(a) {
		e.unhold(c.node)
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		return errRequeue // lost between the two: nobody had it
	}
	a.m.startRevocation(a.d)
	return nil
}
