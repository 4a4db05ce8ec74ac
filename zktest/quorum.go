package zktest

// The roles in an ensemble: which member leads, which members follow, and for how long they believe
// so.
//
//	            stop                     start
//	any role ----------> down  ------------------------> looking
//	looking  -- election time over, leader in reach ---> following
//	looking  -- election time over, majority looking --> leading (the latest log), following
//	following -- its leader has stopped ---------------> looking
//	following -- no contact for syncLimit ticks -------> looking
//	leading  -- no majority for syncLimit ticks -------> looking
//
// A member that gives up closes its clients' connections. Until then, a member that has lost
// contact still answers pings and reads. Writes wait; they are executed if contact returns before
// the member gives up.

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// election is how long a member looks before it joins or elects a leader.
const election = 500 * time.Millisecond

// quorum is owned by the loop.
type quorum struct {
	c       *cluster
	leader  *endpoint  // the last one elected; nil before the first election
	relayAt time.Time  // the leader's next ping, if a follower has touches to report
	inDoubt []*request // writes that the last leader had without a majority; see settleDoubt
	random  *rand.Rand // decides which of them are executed
}

func (q *quorum) majority() int { return len(q.c.endpoints)/2 + 1 }

// decisive reports whether the leader reaches a majority now.
func (q *quorum) decisive() bool {
	return q.leader != nil && q.leader.replica.role == leading && len(q.inTouchWith(q.leader)) >= q.majority()
}

// inTouchWith returns the leader and the followers that it reaches.
func (q *quorum) inTouchWith(leader *endpoint) (all []*endpoint) {
	for _, ep := range q.c.endpoints {
		if ep.replica.leader == leader && ep.replica.inTouch() {
			all = append(all, ep)
		}
	}
	return all
}

// deliver sends a transaction to a member: it arrives now, or after the member's lag, or waits
// until a cut is healed.
func (q *quorum) deliver(ep *endpoint, tx *txn) {
	r := ep.replica
	switch {
	case r.leader != q.leader || !ep.serving():
	case !r.inTouch(), len(r.held) > 0:
		r.held = append(r.held, tx)
	default:
		q.enqueue(ep, tx)
	}
}

func (q *quorum) enqueue(ep *endpoint, tx *txn) {
	r := ep.replica
	at := time.Now()
	if r.role != leading {
		at = at.Add(r.lag)
	}
	if n := len(r.queue); n > 0 && r.queue[n-1].at.After(at) {
		at = r.queue[n-1].at
	}
	r.queue = append(r.queue, queued{tx: tx, at: at})
	r.logged = tx.zxid
	if len(r.waiters) > 0 { // their replies are sent before a later transaction becomes visible
		q.c.later(func() { ep.applyDue(time.Now()) })
		return
	}
	ep.applyDue(time.Now()) // in particular before the reply
}

// halfTick is the interval of the leader's pings.
func (q *quorum) halfTick() time.Duration { return q.c.cfg.tick / 2 }

// lastPing returns the time of the leader's last ping.
func (q *quorum) lastPing(now time.Time) time.Time {
	return q.c.boundary(now, q.halfTick()).Add(-q.halfTick())
}

func (q *quorum) nextWake() (wake time.Time) {
	for _, ep := range q.c.endpoints {
		r := ep.replica
		if r.role == down || r.frozen {
			continue
		}
		wake = earlier(wake, r.actAt)
		if len(r.queue) > 0 {
			wake = earlier(wake, r.queue[0].at)
		}
		if len(r.touched) > 0 && r.inTouch() && q.relayAt.IsZero() {
			q.relayAt = q.c.boundary(time.Now(), q.halfTick())
		}
	}
	return earlier(wake, q.relayAt)
}

func (q *quorum) onTime(now time.Time) {
	if due(q.relayAt, now) {
		q.relayAt = time.Time{}
		q.relay(now)
	}
	for _, ep := range q.c.endpoints {
		ep.applyDue(now)
	}
	for _, ep := range q.c.endpoints {
		if ep.replica.outOfTime(now) {
			q.giveUp(ep, now)
		}
	}
	q.settle(now)
}

// outOfTime reports whether the member must give up its leader, or its leadership.
func (r *replica) outOfTime(now time.Time) bool {
	return !r.frozen && (r.role == following || r.role == leading) && due(r.actAt, now)
}

// relay delivers the followers' replies to the leader's ping: the sessions that were renewed since
// the last ping.
func (q *quorum) relay(now time.Time) {
	for _, ep := range q.c.endpoints {
		if ep.replica.inTouch() {
			q.relayFrom(ep, now)
		}
	}
}

func (q *quorum) relayFrom(ep *endpoint, now time.Time) {
	r := ep.replica
	if r.leader == q.leader {
		for s := range r.touched {
			if q.c.sessions[s.id] == s {
				q.c.touch(s, now)
			}
		}
	}
	clear(r.touched)
}

// giveUp makes a member look for a leader, and closes its clients' connections.
func (q *quorum) giveUp(ep *endpoint, now time.Time) {
	r := ep.replica
	wasLeading := r.role == leading
	if wasLeading && ep == q.leader {
		q.doubt()
	}
	r.role, r.leader, r.heard = looking, nil, nil
	r.actAt = now.Add(election)
	for cn := range ep.conns {
		q.c.forget(cn)
	}
	r.queue, r.held, r.parked, r.waiters = nil, nil, nil, nil
	clear(r.touched)
	if !wasLeading {
		return
	}
	// The followers that this leader reaches see their connections to it close.
	for _, f := range q.c.endpoints {
		if f.replica.leader == ep && f.replica.reaches(r) {
			q.giveUp(f, now)
		}
	}
}

// settle applies the consequences of the current roles and connections.
func (q *quorum) settle(now time.Time) {
	for _, ep := range q.c.endpoints {
		r := ep.replica
		switch {
		case r.role == following && r.inTouch():
			if !r.actAt.IsZero() {
				// This member was cut off. The leader's pings from that time have waited in the
				// connection. They arrive and get their replies now, before anything that the
				// leader sends later.
				q.relayFrom(ep, now)
			}
			r.actAt = time.Time{}
		case r.role == following && r.reaches(r.leader.replica):
			q.giveUp(ep, now) // its leader no longer leads
		case r.role == following && r.actAt.IsZero():
			r.actAt = q.lastPing(now).Add(time.Duration(q.c.cfg.syncLimit) * q.c.cfg.tick)
		}
	}
	for _, ep := range q.c.endpoints {
		if ep.replica.role == leading {
			ep.replica.actAt = q.leaderGivesUp(ep, now)
		}
	}
	q.elect(now)
	for _, ep := range q.c.endpoints {
		q.caughtUp(ep, now)
	}
}

// caughtUp gives a member that reaches its leader the transactions that it missed. Then it executes
// the requests that waited for them.
func (q *quorum) caughtUp(ep *endpoint, now time.Time) {
	r := ep.replica
	if !ep.serving() || !r.inTouch() {
		return
	}
	held := r.held
	r.held = nil
	for _, tx := range held {
		q.enqueue(ep, tx)
	}
	ep.applyDue(now)
	if q.c.active(ep) {
		q.c.unpark(ep)
	}
}

// leaderGivesUp returns the time when a leader finds that it has no majority: the first full tick
// when too few followers have replied to a ping within syncLimit ticks. A follower whose process
// has ended does not count.
func (q *quorum) leaderGivesUp(leader *endpoint, now time.Time) time.Time {
	r := leader.replica
	need := q.majority() - 1
	var heard []time.Time // of followers that are cut off
	for _, f := range q.c.endpoints {
		if f == leader {
			continue
		}
		reachable := f.replica.reaches(r)
		switch {
		case f.replica.leader == leader && f.replica.inTouch():
			r.heard[f] = time.Time{}
			need--
		case reachable:
			delete(r.heard, f) // its connection has closed
		default:
			last, known := r.heard[f]
			if !known {
				continue
			}
			if last.IsZero() {
				last = q.lastPing(now)
				r.heard[f] = last
			}
			heard = append(heard, last)
		}
	}
	if need <= 0 {
		return time.Time{}
	}
	tick := q.c.cfg.tick
	next := q.c.boundary(now, tick)
	if len(heard) < need {
		return next
	}
	slices.SortFunc(heard, func(a, b time.Time) int { return b.Compare(a) })
	late := q.c.boundary(heard[need-1].Add(time.Duration(q.c.cfg.syncLimit)*tick), tick)
	if late.Before(next) {
		return next
	}
	return late
}

// elect lets the members that have looked long enough join a leader that they reach, or elect one.
func (q *quorum) elect(now time.Time) {
	groups := make(map[int][]*endpoint)
	for _, ep := range q.c.endpoints {
		if r := ep.replica; r.role == looking && !r.frozen && !now.Before(r.actAt) {
			groups[r.group] = append(groups[r.group], ep)
		}
	}
	for _, ready := range groups {
		if q.leader != nil && q.leader.replica.role == leading && q.leader.replica.reaches(ready[0].replica) {
			for _, ep := range ready {
				q.join(ep)
			}
			q.leader.replica.actAt = q.leaderGivesUp(q.leader, now)
			continue
		}
		if len(ready) < q.majority() {
			continue
		}
		if q.leader != nil && q.leader.replica.role == leading {
			q.doubt() // it is cut off, and not yet aware of the new leader
		}
		// The member with the latest zxid in its log; among equals, the highest id.
		q.leader = slices.MaxFunc(ready, func(a, b *endpoint) int {
			return cmp.Or(cmp.Compare(a.replica.logged, b.replica.logged), cmp.Compare(a.id, b.id))
		})
		q.settleDoubt()
		q.c.zxid = (q.c.zxid>>32 + 1) << 32 // a new epoch
		q.leader.replica.heard = make(map[*endpoint]time.Time)
		q.leader.replica.term = q.c.zxid >> 32
		for _, ep := range ready {
			q.join(ep)
		}
		q.leader.replica.role, q.leader.replica.since = leading, now
		q.leader.replica.actAt = q.leaderGivesUp(q.leader, now)
		q.c.touchAll()
	}
	for _, ep := range q.c.endpoints {
		if r := ep.replica; r.role == looking && !r.frozen && !now.Before(r.actAt) {
			r.actAt = time.Time{} // no leader found: wait until something changes
		}
	}
}

// join makes a member follow the leader, with every committed transaction.
func (q *quorum) join(ep *endpoint) {
	r := ep.replica
	r.role, r.leader, r.term, r.actAt = following, q.leader, q.leader.replica.term, time.Time{}
	ep.tree, ep.zxid, r.logged = q.c.tree.clone(), q.c.zxid, q.c.zxid
	r.queue, r.held = nil, nil
}

// started and stopped follow the start and the end of a member's process.
func (q *quorum) started(ep *endpoint) {
	now := time.Now()
	ep.replica.role = looking
	ep.replica.actAt = now.Add(election)
	q.settle(now)
}

func (q *quorum) stopped(ep *endpoint) {
	now := time.Now()
	q.giveUp(ep, now)
	ep.replica.role, ep.replica.actAt, ep.replica.frozen = down, time.Time{}, false
	q.settle(now)
	q.c.readUnread(ep) // a connection that is not accepted yet is closed
}

// look makes a member that has looked in vain look again.
func (q *quorum) look(ep *endpoint, now time.Time) {
	if ep.replica.role == looking && ep.replica.actAt.IsZero() {
		ep.replica.actAt = now.Add(election)
	}
}

// regroup changes which members reach each other. Members that have looked in vain look again.
func (q *quorum) regroup(groups map[int]int) {
	now := time.Now()
	for _, ep := range q.c.endpoints {
		ep.replica.group = groups[ep.id]
		q.look(ep, now)
	}
	if q.decisive() {
		q.c.expireDue(now) // a leader without a majority also expires sessions, but cannot commit that
	}
	q.settle(now)
	q.c.onTime(now)
}
