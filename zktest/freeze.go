package zktest

// Freezing: a server, or one member of an ensemble, pauses.

import "time"

// freeze stops the handling of messages and of timeouts.
func (c *cluster) freeze() { c.frozen = true }

// thaw continues after a freeze. Time passed during the freeze. Sessions that have timed out
// meanwhile end first, which is the worst case for a client: no queued request can save them.
func (c *cluster) thaw() {
	if c.frozen {
		c.frozen = false
		c.onTime(time.Now())
	}
}

// freezeBy performs the FreezeFor of a fault on a connection to ep. The matched request, reply or
// event waits until the thaw.
func (c *cluster) freezeBy(v *verdict, ep *endpoint) {
	v.wait.delay = max(v.wait.delay, v.freeze, v.freezeOne)
	switch {
	case v.freeze > 0, v.freezeOne > 0 && c.quorum == nil:
		c.freeze()
		c.callIn(max(v.freeze, v.freezeOne), c.thaw)
	case v.freezeOne > 0:
		// After the current transaction, because an election may follow, which closes connections.
		c.later(func() { c.quorum.freeze(ep) })
		c.callIn(v.freezeOne, func() { c.quorum.thaw(ep) })
	}
}

// callIn calls fn in the loop after d.
func (c *cluster) callIn(d time.Duration, fn func()) {
	c.wg.Go(func() {
		if (wait{delay: d}).pass(c.closing) {
			c.call(fn)
		}
	})
}

func (ep *endpoint) frozen() bool { return ep.c.frozen || ep.replica != nil && ep.replica.frozen }

// freeze pauses a member; messages to it are queued.
func (q *quorum) freeze(ep *endpoint) {
	if ep.serving() || ep.replica.role == looking {
		ep.replica.frozen = true
		q.settle(time.Now())
	}
}

// thaw resumes a member. A follower that the leader has given up meanwhile notices that first;
// otherwise it gets the changes that the leader has sent. A leader notices at its next tick that it
// has lost its followers. The clients' messages come last.
func (q *quorum) thaw(ep *endpoint) {
	r, now := ep.replica, time.Now()
	if !r.frozen {
		return
	}
	r.frozen = false
	if r.role == following && r.outOfTime(now) {
		q.giveUp(ep, now)
	}
	q.look(ep, now)
	q.settle(now)
	q.c.onTime(now)
	q.c.readUnread(ep)
	q.c.closeSessionless(now)
}

// readUnread handles the messages that arrived at a member while it was frozen.
func (c *cluster) readUnread(ep *endpoint) {
	unread := ep.replica.unread
	ep.replica.unread = nil
	for _, m := range unread {
		c.handle(m)
	}
}
