package zktest

// The methods with which a test acts on a server and inspects it. Every method is a closure that
// the loop runs. After the server is closed, they still return its last state.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// admin has the methods that [Server] and [Ensemble] share.
type admin struct {
	*faultSet
	c *cluster
}

// god has every permission, as the digest scheme's super user.
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

// Get returns the node's data, and reports whether the node exists.
func (a admin) Get(path string) (data []byte, ok bool) {
	a.c.call(func() {
		var n *node
		if n, ok = a.c.tree.nodes[path]; ok {
			data = slices.Clone(n.data)
		}
	})
	return data, ok
}

// Stat returns the node's stat, and reports whether the node exists.
func (a admin) Stat(path string) (st Stat, ok bool) {
	a.c.call(func() {
		var n *node
		if n, ok = a.c.tree.nodes[path]; ok {
			st = publicStat(n)
		}
	})
	return st, ok
}

// Sessions returns the live sessions, sorted by id.
func (a admin) Sessions() (all []Session) {
	a.c.call(func() {
		for _, s := range a.c.sessions {
			info := Session{
				ID: s.id, Timeout: s.timeout, Expires: s.expires, Connected: s.conn != nil,
				Ephemerals: slices.Sorted(maps.Keys(a.c.tree.ephemerals[s.id])),
			}
			if s.conn != nil {
				info.Member, info.RemoteAddr = s.conn.ep.id, s.conn.nc.RemoteAddr().String()
			}
			all = append(all, info)
		}
	})
	slices.SortFunc(all, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Watches returns the watches on exactly these paths, or all watches if none is given, sorted by
// path and session.
func (a admin) Watches(paths ...string) (all []Watch) {
	a.c.call(func() {
		for _, ep := range a.c.endpoints {
			for _, w := range []*watchTable{ep.data, ep.child} {
				for path, watchers := range w.byPath {
					if len(paths) == 0 || slices.Contains(paths, path) {
						all = appendWatches(all, path, watchers, w == ep.child)
					}
				}
			}
		}
	})
	slices.SortFunc(all, func(a, b Watch) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Session, b.Session))
	})
	return all
}

func appendWatches(all []Watch, path string, watchers map[*conn]watchMode, children bool) []Watch {
	for cn, modes := range watchers {
		for _, mode := range []watchMode{oneShot, persisting, recursing} {
			if modes&mode != 0 {
				all = append(all, Watch{
					Path: path, Session: cn.sessionID(), Member: cn.ep.id, Children: children,
					Persistent: mode != oneShot, Recursive: mode == recursing,
				})
			}
		}
	}
	return all
}

func (c *cluster) watchCount() int {
	n := 0
	for _, ep := range c.endpoints {
		n += ep.data.size() + ep.child.size()
	}
	return n
}

// Requests returns the number of requests since the start or the last [Server.ResetRequests].
func (a admin) Requests() (counts Counts) {
	a.c.call(func() {
		counts = Counts{BySession: make(map[int64]map[Op]int), Pings: a.c.pings, Events: a.c.events}
		for id, ops := range a.c.counts {
			counts.BySession[id] = maps.Clone(ops)
		}
	})
	return counts
}

// ResetRequests sets the counts to zero.
func (a admin) ResetRequests() {
	a.c.call(func() {
		a.c.pings, a.c.events = 0, 0
		clear(a.c.counts)
	})
}

// History returns the changes that the server applied, in order: the last 100,000, or fewer if
// their data and paths exceed 64 MB. The caller may modify the result.
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

// dumpLimit is the number of nodes, and of sessions, for which Dump writes a line each.
const dumpLimit = 500

// Dump returns nodes, sessions and watches as text, for the log of a failed test. It lists the
// first 500 nodes and sessions, and counts the rest.
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

// Mode is the type of a node that Create creates. It has go-zookeeper's numbers, so its flags can
// be converted to a Mode.
type Mode int32

// The modes of nodes. An ephemeral node with a sequence number is Ephemeral|Sequential.
const (
	Persistent = Mode(wire.FlagPersistent)
	Ephemeral  = Mode(wire.FlagEphemeral)
	Sequential = Mode(wire.FlagSequential)
	Container  = Mode(wire.FlagContainer)
)

// Create creates a node as another client would, regardless of ACLs, with any parents that are
// missing. It returns the node's path. Without an ACL, every client has all permissions on the
// node. For an ephemeral node, which needs a session, see [Server.CreateAs]. If ZooKeeper would
// reject the node, the error is a [Code], such as [NodeExists], and no parent has been created.
func (a admin) Create(path string, data []byte, mode Mode, acl ...zk.ACL) (string, error) {
	return a.create(0, path, data, mode, acl)
}

func (a admin) create(session int64, path string, data []byte, mode Mode, acl []zk.ACL) (created string, err error) {
	if session == 0 && (mode == Ephemeral || mode == Ephemeral|Sequential) {
		return "", fmt.Errorf("zktest: an ephemeral node needs a session; use CreateAs")
	}
	err = a.transact(session, func(tx *txn) (err error) {
		created, err = a.c.make(tx, path, slices.Clone(data), mode, acl)
		return err
	})
	return created, err
}

// make creates a node for a test, and its missing parents.
func (c *cluster) make(tx *txn, path string, data []byte, mode Mode, acl []zk.ACL) (created string, err error) {
	for i := range path {
		if i == 0 || path[i] != '/' || c.tree.nodes[path[:i]] != nil {
			continue
		}
		ch, err := c.rules().create(wire.OpCreate, wire.CreateRequest{Path: path[:i], ACL: worldAnyone}, 0, god)
		if err := c.doIf(tx, ch, err); err != nil {
			return "", err
		}
	}
	req := wire.CreateRequest{Path: path, Data: data, ACL: worldAnyone, Flags: int32(mode)}
	if len(acl) > 0 {
		req.ACL = nil
	}
	for _, a := range acl {
		req.ACL = append(req.ACL, wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: a.Scheme, ID: a.ID}})
	}
	op := wire.OpCreate
	if mode == Container {
		op = wire.OpCreateContainer
	}
	ch, err := c.rules().create(op, req, tx.session, god)
	return ch.path, c.doIf(tx, ch, err)
}

// doIf makes the change that the rules allow, or returns their error as a test gets it.
func (c *cluster) doIf(tx *txn, ch change, err error) error {
	if err != nil {
		return Code(codeOf(err))
	}
	c.do(tx, ch)
	return nil
}

// Delete deletes a node as another client would, regardless of ACLs and version.
func (a admin) Delete(path string) error {
	return a.transact(0, func(tx *txn) error {
		ch, err := a.c.rules().delete(wire.PathVersionRequest{Path: path, Version: -1}, god)
		return a.c.doIf(tx, ch, err)
	})
}

// SetData sets a node's data as another client would, regardless of ACLs and version.
func (a admin) SetData(path string, data []byte) error {
	return a.transact(0, func(tx *txn) error { return a.c.set(tx, path, slices.Clone(data)) })
}

func (c *cluster) set(tx *txn, path string, data []byte) error {
	ch, err := c.rules().setData(wire.SetDataRequest{Path: path, Data: data, Version: -1}, god)
	return c.doIf(tx, ch, err)
}

// transact runs a transaction for the test. If fill returns an error, nothing has changed.
func (a admin) transact(session int64, fill func(*txn) error) (err error) {
	a.c.call(func() {
		if session != 0 && a.c.sessions[session] == nil {
			err = fmt.Errorf("zktest: no session %#x", session)
			return
		}
		tx := a.c.begin(session)
		if err = fill(tx); err != nil {
			a.c.rollback(tx)
		}
		clear(a.c.pending)
		a.c.commit(tx)
	})
	return err
}

// SetCreates sets the number of children that a node has ever had, from which sequential children
// get their suffix. It reports whether the node exists. The count stops at 2147483647, and every
// later child gets that suffix again. In between, creates that are pipelined or in one multi get
// suffixes from -2147483648 up.
func (a admin) SetCreates(path string, n int32) (ok bool) {
	a.c.call(func() {
		if ok = a.c.tree.nodes[path] != nil; ok {
			tx := &txn{zxid: a.c.zxid, at: time.Now()} // the count is no transaction of a client's
			a.c.do(tx, change{kind: changeCreates, path: path, creates: n})
			a.c.commit(tx)
		}
	})
	return ok
}

// ExpireSession expires a session now, as if it had timed out: its nodes are deleted and its
// connection is closed. It reports whether the session existed.
func (a admin) ExpireSession(id int64) (ok bool) {
	a.c.call(func() { ok = a.c.expireID(id) })
	return ok
}

// DropConnection closes a session's connection and leaves the session alive. It reports whether
// there was a connection.
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

// Freeze stops the server as a debugger or a long pause would: connections stay open, but the
// server reads nothing, sends no reply and expires no session. The methods of Server still work.
func (a admin) Freeze() { a.c.call(a.c.freeze) }

// Thaw ends Freeze. Sessions that have timed out meanwhile expire before their clients' requests
// are read.
func (a admin) Thaw() { a.c.call(a.c.thaw) }
