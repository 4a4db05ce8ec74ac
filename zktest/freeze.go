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

// freezeFor freezes the server and schedules its thaw.
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
