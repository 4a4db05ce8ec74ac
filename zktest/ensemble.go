package zktest

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Ensemble is several servers over one history, with what matters to a lock:
//
//   - The member that a client is connected to answers reads from its own copy, which may lag ([Member.SetLag]).
//     Writes, sync and the opening of sessions need a leader with a majority. The member answers them when it shows
//     them.
//   - Signs of life of a session reach the leader only with the member's answers to its pings, every half tick.
//   - A member that is cut off ([Member.Isolate], [Ensemble.Partition]) goes on answering pings and reads for about
//     syncLimit ticks, a leader for up to one more, and then closes its clients' connections. Meanwhile writes wait,
//     and so does everything behind them on their connections. They are done if the cut is healed in time. If it
//     is not, a write that the leader had is in doubt: the next election finds it, or does not ([WithSeed]). One
//     that a follower could not pass on is never done.
//   - When a leader stops or loses its majority, an election follows: all connections close, a new epoch of zxids
//     begins, and every session has its full timeout again.
//   - Without a majority there are no writes, and soon no connections. A client may move from any member to any other.
//     A member refuses a client that has seen more than the member has. The connection that a session has left is
//     closed at its next write, and at its next request of any kind if it goes to the leader.
//   - The node /zookeeper/config has the members with the addresses of clients, as in a dynamic configuration.
//
// The promoted methods show and change the committed state; a member may not show it yet.
//
// What it leaves out: members have their data at once when they join, and the network between them has no latency
// except their lag. So a write that is in doubt is one that came when the majority was already lost.
type Ensemble struct {
	admin
	members []*Member
}

// Member is one server of an [Ensemble].
type Member struct {
	e  *Ensemble
	ep *endpoint
}

// StartEnsemble starts n servers for the length of a test, as [Start] does one.
func StartEnsemble(t TB, n int, opts ...Option) *Ensemble {
	t.Helper()
	e, err := NewEnsemble(n, opts...)
	return started(t, e, err)
}

// NewEnsemble starts n servers. The last one leads. The caller closes them.
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
		ep.addr = cfg.addrs[id-1]
		c.endpoints = append(c.endpoints, ep)
		e.members = append(e.members, &Member{e: e, ep: ep})
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

// Close ends all members and returns after the last of their goroutines.
func (e *Ensemble) Close() { e.c.close() }

// Members returns all members, in the order of their ids.
func (e *Ensemble) Members() []*Member { return append([]*Member(nil), e.members...) }

// Member returns the member with the id, which counts from 1.
func (e *Ensemble) Member(id int) *Member { return e.members[id-1] }

// Addrs returns the addresses of all members, running or not.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, m := range e.members {
		addrs = append(addrs, m.Addr())
	}
	return addrs
}

// Leader returns the member that leads with a majority behind it, or nil when there is none at the moment.
func (e *Ensemble) Leader() (leader *Member) {
	e.c.call(func() {
		if q := e.c.quorum; q.decisive() {
			leader = e.members[q.leader.id-1]
		}
	})
	return leader
}

// Partition cuts the members into groups by id. Members of different groups do not reach each other. The members that are
// not named are a group too. Clients reach all members.
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

// Elect makes the leader step down, if there is one. All connections close, and after the time of an election some
// member leads, with a new epoch.
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

// Addr returns the address clients connect to. It stays the same over Stop and Start.
func (m *Member) Addr() string { return m.ep.addr }

// Role returns "leader", "follower", "looking" or "down": what the member itself believes.
func (m *Member) Role() (r string) {
	m.e.c.call(func() { r = m.ep.replica.role.String() })
	return r
}

// String returns the member's id and address.
func (m *Member) String() string { return fmt.Sprintf("member %d at %s", m.ID(), m.Addr()) }

// Stop ends the member, as the end of its process would: the others see it go, and its clients are disconnected.
func (m *Member) Stop() { m.ep.halt() }

// Start starts the member again, with the data it had. The member joins the others after the time of an election.
func (m *Member) Start() error { return m.ep.start() }

// Freeze stops the member as a debugger or a long pause would: its connections stay open and nothing on them
// is read or answered, and the other members do not reach it. Without it for syncLimit ticks they go on as if
// it had stopped: if it leads, they elect another. On a member that is stopped, Freeze has no effect.
func (m *Member) Freeze() { m.e.c.call(func() { m.e.c.quorum.freeze(m.ep) }) }

// Thaw ends Freeze, as Stop does. If the others have given the member up, it closes its clients' connections
// and joins them again after the time of an election. A leader may first answer reads for up to a tick, and
// what it returns is out of date. Otherwise the member gets what it has missed before its clients are
// served, so the connections of sessions that have expired meanwhile are closed.
func (m *Member) Thaw() { m.e.c.call(func() { m.e.c.quorum.thaw(m.ep) }) }

// Isolate cuts the member off from all others, and leaves the others as they are with each other. Clients still reach it.
func (m *Member) Isolate() {
	c := m.e.c
	c.call(func() {
		groups := make(map[int]int)
		for _, ep := range c.endpoints {
			groups[ep.id] = ep.replica.group
		}
		groups[m.ep.id] = -m.ep.id // nobody else's
		c.quorum.regroup(groups)
	})
}

// SetLag delays the member by d: it shows what is committed from now on d later than the leader. A smaller d than before also
// speeds up what is on its way. A leader does not lag.
func (m *Member) SetLag(d time.Duration) {
	m.e.c.call(func() {
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

// Zxid returns the zxid of the last transaction that is visible at the member.
func (m *Member) Zxid() (zxid int64) {
	m.e.c.call(func() { zxid = m.ep.zxid })
	return zxid
}

// Children returns the names of the node's children as the member shows them, or nil if it shows no such node.
func (m *Member) Children(path string) []string {
	return childrenIn(m.e.c, func() *tree { return m.ep.tree }, path)
}
