package zktest

// Writes that a leader has received but cannot respond to, because it has lost its majority or the
// client has disconnected.

import (
	"slices"

	"github.com/zklock/zklock/internal/wire"
)

// doubt takes over the writes that wait for a majority on the last leader and on the followers that
// reach it. The leader may have logged them, and sent them to other members before it was cut off.
func (q *quorum) doubt() {
	for _, ep := range q.c.endpoints {
		if r := ep.replica; ep == q.leader || r.leader == q.leader && r.inTouch() {
			q.inDoubt = append(q.inDoubt, r.parked...)
			r.parked = nil
		}
	}
	slices.SortStableFunc(q.inDoubt, func(a, b *request) int { return a.at.Compare(b.at) })
}

// settleDoubt executes the writes in doubt up to a random one, which is the last in the log of the
// elected member. No member shows them before it joins the new leader.
func (q *quorum) settleDoubt() {
	for _, req := range q.inDoubt[:q.random.IntN(len(q.inDoubt)+1)] {
		q.c.unanswered(req)
	}
	q.inDoubt = nil
	clear(q.c.pending)
}

// unanswered executes a write whose client gets no reply, unless its session has ended.
func (c *cluster) unanswered(req *request) {
	s := req.conn.session
	switch {
	case !isWrite(req.op) || s == nil || c.sessions[s.id] != s:
	case req.op == wire.OpClose:
		c.endSession(s, false, nil)
	default:
		handlers[req.op](c, req)
	}
}
