package zktest

// A server, or one member of an ensemble, that stands still.

import "time"

// freeze stops the handling of messages and of time.
func (c *cluster) freeze() { c.frozen = true }

// thaw goes on. Time has passed all the same. Sessions that have run out meanwhile end first: no request that has piled
// up can save them, which is the worst case for a client.
func (c *cluster) thaw() {
	if c.frozen {
		c.frozen = false
		c.onTime(time.Now())
	}
}

// freezeFor freezes and has itself thawed.
func (c *cluster) freezeFor(d time.Duration) {
	c.freeze()
	c.wg.Go(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			c.call(c.thaw)
		case <-c.closing:
		}
	})
}

// frozen reports whether the server, or this member of the ensemble, stands still.
func (ep *endpoint) frozen() bool { return ep.c.frozen || ep.replica != nil && ep.replica.frozen }

// freeze stops a member; what reaches it is kept.
func (q *quorum) freeze(ep *endpoint) {
	if ep.serving() || ep.replica.role == looking {
		ep.replica.frozen = true
		q.settle(time.Now())
	}
}

// thaw lets a member go on. A follower that the leader has given up meanwhile notices that first, and
// another gets what the leader has sent. A leader notices at its next tick that the others are gone.
// What the clients have sent comes last.
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

// readUnread handles what has come to a member while it was frozen.
func (c *cluster) readUnread(ep *endpoint) {
	unread := ep.replica.unread
	ep.replica.unread = nil
	for _, m := range unread {
		c.handle(m)
	}
}
