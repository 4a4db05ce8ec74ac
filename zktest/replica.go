package zktest

// The state that a member of an ensemble has in addition to a single server, and the path of a
// request there: the member answers reads from its own copy; writes and sync wait for the leader,
// and then for the member itself.

import "time"

type role int

const (
	down role = iota
	looking
	following
	leading
)

// String returns the role in the four-letter words' spelling.
func (r role) String() string {
	switch r {
	case looking:
		return "looking"
	case following:
		return "follower"
	case leading:
		return "leader"
	}
	return "down"
}

// replica is owned by the loop.
type replica struct {
	role    role
	leader  *endpoint // the leader that it follows, itself when leading; nil otherwise
	term    int64     // the epoch of that leader
	since   time.Time // the start of its leadership, if it leads
	logged  int64     // zxid of the last transaction it has, visible or not
	group   int       // members of the same group reach each other, unless frozen
	frozen  bool
	unread  []message // messages that arrived while it was frozen
	lag     time.Duration
	queue   []queued                // logged here, but not yet visible
	held    []*txn                  // on their way from an unreachable leader
	parked  []*request              // wait for a leader with a quorum
	waiters []waiter                // wait for a transaction to become visible here
	touched map[*session]struct{}   // renewals since the leader's last ping
	actAt   time.Time               // when it gives up its leader or its leadership, or has looked long enough
	heard   map[*endpoint]time.Time // of a leader, by follower: its last reply to a ping; zero while in touch
}

type queued struct {
	tx *txn
	at time.Time
}

type waiter struct {
	zxid int64
	req  *request
	fn   func()
}

// inTouch reports whether the member reaches its leader, and the leader still leads in the term in
// which the member joined it.
func (r *replica) inTouch() bool {
	if r.leader == nil {
		return false
	}
	l := r.leader.replica
	return r.reaches(l) && l.role == leading && l.term == r.term
}

// reaches reports whether a member can send to another and get a reply.
func (r *replica) reaches(other *replica) bool {
	return r.group == other.group && !r.frozen && !other.frozen
}

func (ep *endpoint) serving() bool {
	return ep.replica == nil || ep.replica.role == following || ep.replica.role == leading
}

// leads reports whether the endpoint believes that it leads.
func (ep *endpoint) leads() bool { return ep.replica == nil || ep.replica.role == leading }

func (ep *endpoint) mode() string {
	if ep.replica == nil {
		return "standalone"
	}
	return ep.replica.role.String()
}

// active reports whether a write that arrives at the endpoint can be committed.
func (c *cluster) active(ep *endpoint) bool {
	return c.quorum == nil || c.quorum.decisive() && ep.replica.leader == c.quorum.leader && ep.replica.inTouch()
}

// park keeps a request, and with it its connection, until the endpoint reaches a leader that has a
// quorum. If the endpoint gives up before, the connection is closed, and the outcome of a write
// that the leader received is in doubt.
func (c *cluster) park(req *request) {
	req.conn.waiting++
	r := req.conn.ep.replica
	r.parked = append(r.parked, req)
}

// unpark executes the requests that waited for the leader.
func (c *cluster) unpark(ep *endpoint) {
	parked := ep.replica.parked
	ep.replica.parked = nil
	for _, req := range parked {
		switch cn := req.conn; {
		case !cn.gone && !cn.deafened:
			cn.waiting--
			c.perform(req)
			c.catchUp(cn)
		case cn.session != nil && (cn.session.conn == nil || cn.session.conn.ep == ep):
			c.unanswered(req) // the client has disconnected, but its request is on its way
		}
	}
}

// whenApplied runs fn when the member that received the request shows every transaction committed
// so far.
func (c *cluster) whenApplied(req *request, fn func()) {
	ep := req.conn.ep
	if ep.replica == nil || ep.zxid >= c.zxid || !c.active(ep) {
		fn()
		return
	}
	req.conn.waiting++
	ep.replica.waiters = append(ep.replica.waiters, waiter{zxid: c.zxid, req: req, fn: fn})
}

// applyDue shows the transactions whose lag at this member has passed.
func (ep *endpoint) applyDue(now time.Time) {
	r := ep.replica
	if r.frozen {
		return
	}
	for len(r.queue) > 0 && !r.queue[0].at.After(now) {
		tx := r.queue[0].tx
		r.queue = r.queue[1:]
		ep.apply(tx)
		ep.answerApplied() // before the next is applied: the reply to a write has the write's own zxid
	}
	ep.answerApplied()
}

// answerApplied replies to the requests that waited for the transactions visible now.
func (ep *endpoint) answerApplied() {
	r := ep.replica
	for len(r.waiters) > 0 && r.waiters[0].zxid <= ep.zxid {
		w := r.waiters[0]
		r.waiters = r.waiters[1:]
		if cn := w.req.conn; !cn.gone {
			cn.waiting--
			w.fn()
			ep.c.catchUp(cn)
		}
	}
}
