package zktest

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Ensemble is a set of servers with one history. It models the behaviour of several servers that
// matters to a lock:
//
//   - A client's member answers reads from its own copy, which may lag ([Member.SetLag]). Writes,
//     sync and the creation of sessions need a leader with a majority. The member replies when its
//     own copy shows the result.
//   - A session's renewals reach the leader only with the member's replies to the leader's pings,
//     every half tick.
//   - A member that is cut off ([Member.Isolate], [Ensemble.Partition]) continues to answer pings
//     and reads for about syncLimit ticks, or up to one tick more if it is a leader. Then it closes
//     its clients' connections. Meanwhile writes wait, and so do all later requests on their
//     connections. If the cut is healed in time, the writes are executed. If not, a write that the
//     leader received is in doubt: the next election may or may not find it ([WithSeed]). A write
//     that a follower could not forward is never executed.
//   - When a leader stops or loses its majority, an election follows: all connections close, a new
//     epoch of zxids begins, and every session gets its full timeout again.
//   - Without a majority there are no writes, and soon no connections. A client may move from any
//     member to any other, but a member rejects a client that has seen a later zxid than the member
//     has. If a session has moved, its old connection is closed at the next write, or at the next
//     request of any kind if the connection is to the leader.
//   - The node /zookeeper/config lists the members with their client addresses, as in a dynamic
//     configuration.
//
// The promoted methods read and change the committed state, which a member may not show yet.
//
// Two things are simpler than in ZooKeeper. Members have their data as soon as they join, and the
// network between them has no latency except their lag. So only a write that arrives after the
// majority is lost can be in doubt.
type Ensemble struct {
	admin
	members []*Member
}

// Member is one server of an [Ensemble].
type Member struct{ ep *endpoint }

// StartEnsemble starts n servers for the duration of a test, as [Start] starts one.
func StartEnsemble(t TB, n int, opts ...Option) *Ensemble {
	t.Helper()
	e, err := NewEnsemble(n, opts...)
	return started(t, e, err)
}

// NewEnsemble starts n servers, and the last one leads. The caller must close the Ensemble.
func NewEnsemble(n int, opts ...Option) (*Ensemble, error) {
	if n < 1 || n > 254 {
		return nil, fmt.Errorf("zktest: an ensemble of %d members; it needs 1 to 254", n)
	}
	cfg, err := newConfig(opts, n)
	if err != nil {
		return nil, err
	}
	c := newCluster(cfg)
	e := &Ensemble{admin: admin{&c.faults, c}}
	q := &quorum{c: c, random: rand.New(rand.NewPCG(cfg.seed, 0))}
	c.quorum = q
	for id := 1; id <= n; id++ {
		ep := newEndpoint(c, id)
		ep.replica = &replica{touched: make(map[*session]struct{})}
		c.endpoints = append(c.endpoints, ep)
		e.members = append(e.members, &Member{ep})
	}
	go c.run()
	for _, m := range e.members {
		if err := m.Start(); err != nil {
			e.Close()
			return nil, err
		}
	}
	c.call(func() { // the first election takes no time
		now := time.Now()
		c.members = c.membership()
		c.tree.nodes[configNode].configure(c.members, c.cfg.millis(now))
		for _, ep := range c.endpoints {
			ep.replica.actAt = now
		}
		q.settle(now)
	})
	return e, nil
}

// Close stops all members and returns after the last of their goroutines has ended.
func (e *Ensemble) Close() { e.c.close() }

// Members returns all members, in the order of their ids.
func (e *Ensemble) Members() []*Member { return append([]*Member(nil), e.members...) }

// Member returns the member with this id; ids start at 1.
func (e *Ensemble) Member(id int) *Member { return e.members[id-1] }

// Addrs returns the addresses of all members, running or not.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, m := range e.members {
		addrs = append(addrs, m.Addr())
	}
	return addrs
}

// Leader returns the member that leads with a majority, or nil if no member does.
func (e *Ensemble) Leader() (leader *Member) {
	e.c.call(func() {
		if q := e.c.quorum; q.decisive() {
			leader = e.members[q.leader.id-1]
		}
	})
	return leader
}

// Partition divides the members into groups by id. Members of different groups do not reach each
// other. The members that are not listed form one more group. Clients reach all members.
func (e *Ensemble) Partition(groups ...[]int) {
	of := make(map[int]int)
	for i, ids := range groups {
		for _, id := range ids {
			of[id] = i + 1
		}
	}
	e.c.call(func() { e.c.quorum.regroup(of) })
}

// Heal ends all partitions.
func (e *Ensemble) Heal() { e.Partition() }

// Elect makes the leader step down, if there is one. All connections close, and after the duration
// of an election a member leads with a new epoch.
func (e *Ensemble) Elect() {
	e.c.call(func() {
		if q := e.c.quorum; q.decisive() {
			now := time.Now()
			q.giveUp(q.leader, now)
			q.settle(now)
		}
	})
}

// ID returns the member's number, from 1.
func (m *Member) ID() int { return m.ep.id }

// Addr returns the address for clients. It remains the same across Stop and Start.
func (m *Member) Addr() string { return m.ep.addr }

// Role returns the role that the member believes it has: "leader", "follower", "looking" or "down".
func (m *Member) Role() (r string) {
	m.ep.c.call(func() { r = m.ep.replica.role.String() })
	return r
}

// String returns the member's id and address.
func (m *Member) String() string { return fmt.Sprintf("member %d at %s", m.ID(), m.Addr()) }

// Stop ends the member, as the end of its process would: its connections to the other members and
// to its clients are closed.
func (m *Member) Stop() { m.ep.halt() }

// Start starts the member again, with the data it had. It joins the ensemble after the duration of
// an election.
func (m *Member) Start() error { return m.ep.start() }

// Freeze stops the member as a debugger or a long pause would: its connections stay open, but it
// reads nothing and sends nothing, and the other members do not reach it. After syncLimit ticks
// they treat it as stopped, and elect another leader if it was the leader. On a stopped member,
// Freeze has no effect.
func (m *Member) Freeze() { m.ep.c.call(func() { m.ep.c.quorum.freeze(m.ep) }) }

// Thaw ends Freeze, and so does Stop. If the ensemble has given the member up, the member closes
// its clients' connections and joins again after the duration of an election. A leader may first
// answer reads for up to a tick, with outdated results. Otherwise the member receives the changes
// that it missed before it serves its clients, so the connections of sessions that have expired
// meanwhile are closed.
func (m *Member) Thaw() { m.ep.c.call(func() { m.ep.c.quorum.thaw(m.ep) }) }

// Isolate cuts the member off from every other member, and does not change the other connections.
// Clients still reach it.
func (m *Member) Isolate() {
	c := m.ep.c
	c.call(func() {
		groups := make(map[int]int)
		for _, ep := range c.endpoints {
			groups[ep.id] = ep.replica.group
		}
		groups[m.ep.id] = -m.ep.id // a group of its own
		c.quorum.regroup(groups)
	})
}

// SetLag delays the member by d: it shows each later commit d after the leader. If d is smaller
// than before, commits that are already on their way arrive sooner, too. A leader does not lag.
func (m *Member) SetLag(d time.Duration) {
	m.ep.c.call(func() {
		r := m.ep.replica
		r.lag = d
		now := time.Now()
		for i := range r.queue {
			if soon := now.Add(d); r.queue[i].at.After(soon) {
				r.queue[i].at = soon
			}
		}
		m.ep.applyDue(now)
	})
}

// Zxid returns the zxid of the last transaction that the member shows.
func (m *Member) Zxid() (zxid int64) {
	m.ep.c.call(func() { zxid = m.ep.zxid })
	return zxid
}

// Children returns the names of the node's children as the member shows them, or nil if it shows no
// such node.
func (m *Member) Children(path string) []string {
	return childrenIn(m.ep.c, func() *tree { return m.ep.tree }, path)
}
