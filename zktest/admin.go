package zktest

// What a test does to a server and sees of it. Every method is a closure that the loop runs; once the server
// is closed, they still answer from what it left.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// admin is what [Server] and [Ensemble] have in common.
type admin struct {
	*faultSet
	c *cluster
}

// god may do anything, as the digest scheme's super user.
var god = []wire.ID{{Scheme: "super"}}

// Children returns the names of the node's children, sorted, or nil if there is no such node.
func (a admin) Children(path string) []string {
	return childrenIn(a.c, func() *tree { return a.c.tree }, path)
}

func childrenIn(c *cluster, t func() *tree, path string) (names []string) {
	c.call(func() {
		if n := t().nodes[path]; n != nil {
			names = slices.AppendSeq([]string{}, maps.Keys(n.children))
			slices.Sort(names)
		}
	})
	return names
}

// Get returns the node's data and whether there is such a node.
func (a admin) Get(path string) (data []byte, ok bool) {
	a.c.call(func() {
		var n *node
		if n, ok = a.c.tree.nodes[path]; ok {
			data = slices.Clone(n.data)
		}
	})
	return data, ok
}

// Stat returns what is known about the node and whether there is one.
func (a admin) Stat(path string) (st Stat, ok bool) {
	a.c.call(func() {
		var n *node
		if n, ok = a.c.tree.nodes[path]; ok {
			st = publicStat(n)
		}
	})
	return st, ok
}

// Sessions returns the sessions that are alive, by id.
func (a admin) Sessions() (all []Session) {
	a.c.call(func() {
		for _, s := range a.c.sessions {
			info := Session{
				ID: s.id, Timeout: s.timeout, Expires: s.expires, Connected: s.conn != nil,
				Ephemerals: slices.Sorted(maps.Keys(a.c.tree.ephemerals[s.id])),
			}
			if s.conn != nil {
				info.RemoteAddr = s.conn.nc.RemoteAddr().String()
			}
			all = append(all, info)
		}
	})
	slices.SortFunc(all, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Watches returns the watches on exactly this path, by session.
func (a admin) Watches(path string) (all []Watch) {
	a.c.call(func() {
		for _, ep := range a.c.endpoints {
			for _, w := range []*watchTable{ep.data, ep.child} {
				for cn, modes := range w.byPath[path] {
					for _, mode := range []watchMode{oneShot, persisting, recursing} {
						if modes&mode != 0 {
							all = append(all, Watch{
								Path: path, Session: cn.sessionID(), Children: w == ep.child,
								Persistent: mode != oneShot, Recursive: mode == recursing,
							})
						}
					}
				}
			}
		}
	})
	slices.SortFunc(all, func(a, b Watch) int { return cmp.Compare(a.Session, b.Session) })
	return all
}

// WatchCount returns the number of watches, as mntr's zk_watch_count does: a path watched by two
// connections counts twice, and so does one watched for data and for children.
func (a admin) WatchCount() (n int) {
	a.c.call(func() { n = a.c.watchCount() })
	return n
}

func (c *cluster) watchCount() int {
	n := 0
	for _, ep := range c.endpoints {
		n += ep.data.size() + ep.child.size()
	}
	return n
}

// Requests returns how many requests have come since the start or the last [Server.ResetRequests].
func (a admin) Requests() (counts Counts) {
	a.c.call(func() {
		counts = Counts{BySession: make(map[int64]map[Op]int), Pings: a.c.pings, Events: a.c.events}
		for id, ops := range a.c.counts {
			counts.BySession[id] = maps.Clone(ops)
		}
	})
	return counts
}

// ResetRequests starts the counts afresh.
func (a admin) ResetRequests() {
	a.c.call(func() {
		a.c.pings, a.c.events = 0, 0
		clear(a.c.counts)
	})
}

// History returns what was applied, in order: the last 100,000 changes, or fewer if their data and
// paths are more than 64 MB. The caller may change what it gets.
func (a admin) History() (all []Applied) {
	a.c.call(func() { all = slices.Clone(a.c.history.changes) })
	for i, ch := range all {
		all[i].Data = slices.Clone(ch.Data)
	}
	return all
}

// Zxid returns the zxid of the last transaction.
func (a admin) Zxid() (zxid int64) {
	a.c.call(func() { zxid = a.c.zxid })
	return zxid
}

// dumpLimit is of how many nodes and of how many sessions Dump writes a line each.
const dumpLimit = 500

// Dump returns nodes, sessions and watches as text, for the log of a test that failed: the first 500
// nodes and sessions, and how many more there are.
func (a admin) Dump() string {
	var b strings.Builder
	sessions := a.Sessions()
	a.c.call(func() {
		fmt.Fprintf(&b, "zxid %#x, %d watches\n", a.c.zxid, a.c.watchCount())
		for i, path := range a.c.tree.sortedNodes() {
			if i == dumpLimit {
				fmt.Fprintf(&b, "  and %d more nodes\n", len(a.c.tree.nodes)-1-i)
				break
			}
			n := a.c.tree.nodes[path]
			fmt.Fprintf(&b, "  %s czxid=%#x version=%d creates=%d", path, n.czxid, n.version, n.creates)
			switch n.kind {
			case ephemeral:
				fmt.Fprintf(&b, " ephemeral=%#x", n.owner)
			case container:
				b.WriteString(" container")
			case ttl:
				fmt.Fprintf(&b, " ttl=%dms", n.ttl)
			}
			if len(n.data) > 0 {
				fmt.Fprintf(&b, " data=%.40q", n.data)
			}
			b.WriteByte('\n')
		}
	})
	for i, s := range sessions {
		if i == dumpLimit {
			fmt.Fprintf(&b, "and %d more sessions\n", len(sessions)-i)
			break
		}
		fmt.Fprintf(&b, "session %#x timeout=%v connected=%v ephemerals=%d\n", s.ID, s.Timeout, s.Connected, len(s.Ephemerals))
	}
	return b.String()
}

// Create makes a node as somebody else would, past every ACL, and returns its path. flags are go-zookeeper's:
// 0, zk.FlagSequence or zk.FlagContainer; for zk.FlagEphemeral see [Server.CreateAs]. If ZooKeeper would refuse the node, the
// error is a [Code], such as [NodeExists].
func (a admin) Create(path string, data []byte, flags int32) (string, error) {
	return a.create(0, path, data, flags)
}

func (a admin) create(session int64, path string, data []byte, flags int32) (created string, err error) {
	if session == 0 && flags&wire.FlagEphemeral != 0 && flags < wire.FlagContainer {
		return "", fmt.Errorf("zktest: an ephemeral node needs a session; use CreateAs")
	}
	op := wire.OpCreate
	if flags == wire.FlagContainer {
		op = wire.OpCreateContainer
	}
	err = a.write(session, func(r rules) (change, error) {
		ch, err := r.create(op, wire.CreateRequest{Path: path, Data: slices.Clone(data), ACL: worldAnyone, Flags: flags}, session, god)
		created = ch.path
		return ch, err
	})
	return created, err
}

// Delete deletes a node as somebody else would, past every ACL and version.
func (a admin) Delete(path string) error {
	return a.write(0, func(r rules) (change, error) {
		return r.delete(wire.PathVersionRequest{Path: path, Version: -1}, god)
	})
}

// SetData sets a node's data as somebody else would, past every ACL and version.
func (a admin) SetData(path string, data []byte) error {
	return a.write(0, func(r rules) (change, error) {
		return r.setData(wire.SetDataRequest{Path: path, Data: slices.Clone(data), Version: -1}, god)
	})
}

// write is a transaction of the test's own.
func (a admin) write(session int64, decide func(rules) (change, error)) (err error) {
	a.c.call(func() {
		if session != 0 && a.c.sessions[session] == nil {
			err = fmt.Errorf("zktest: no session %#x", session)
			return
		}
		tx := a.c.begin(session)
		var ch change
		if ch, err = decide(a.c.rules()); err == nil {
			a.c.do(tx, ch)
		} else {
			err = Code(codeOf(err))
		}
		clear(a.c.pending)
		a.c.commit(tx)
	})
	return err
}

// SetCreates sets a node's count of creates. Sequential children get their suffix from it. The count sticks at
// 2147483647: every later child gets that suffix again, or, when creates are pipelined or stand in one multi,
// -2147483648 and up in between. SetCreates reports whether there is such a node.
func (a admin) SetCreates(path string, n int32) (ok bool) {
	a.c.call(func() {
		var nd *node
		if nd, ok = a.c.tree.nodes[path]; ok {
			nd.creates = n
			for _, ep := range a.c.endpoints {
				if nd := ep.tree.nodes[path]; nd != nil {
					nd.creates = n
				}
			}
		}
	})
	return ok
}

// ExpireSession ends a session now, as if its time had run out: its nodes go and its connection is closed.
// It reports whether there was such a session.
func (a admin) ExpireSession(id int64) (ok bool) {
	a.c.call(func() { ok = a.c.expireID(id) })
	return ok
}

// DropConnection cuts the connection of a session and leaves the session alone. It reports whether there was one.
func (a admin) DropConnection(id int64) (ok bool) {
	a.c.call(func() {
		for _, ep := range a.c.endpoints {
			if cn := ep.attached[id]; cn != nil {
				a.c.forget(cn)
				ok = true
			}
		}
	})
	return ok
}

// Freeze stops the server as a debugger or a long pause would: connections stay open, but nothing is read, answered
// or expired. The server's own methods still work.
func (a admin) Freeze() { a.c.call(a.c.freeze) }

// Thaw ends Freeze. Sessions that have run out meanwhile end before their clients are heard.
func (a admin) Thaw() { a.c.call(a.c.thaw) }

// Tick returns the server's tick.
func (a admin) Tick() time.Duration { return a.c.cfg.tick }
