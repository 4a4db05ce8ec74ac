package zktest

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Kind is the effect of an [Applied] change.
type Kind int

// The kinds of changes in a history.
const (
	Opened  Kind = iota + 1 // a session began
	Closed                  // its client closed a session
	Expired                 // a session ran out, or the test expired it
	Created                 // a node
	Deleted                 // a node
	DataSet                 // a node's data
	ACLSet                  // a node's ACL
)

// String returns the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Opened:
		return "opened"
	case Closed:
		return "closed"
	case Expired:
		return "expired"
	case Created:
		return "created"
	case Deleted:
		return "deleted"
	case DataSet:
		return "set"
	case ACLSet:
		return "set ACL"
	}
	return "?"
}

// Applied is one change that the server made. A checker compares it with the clients' views.
type Applied struct {
	Kind    Kind
	Path    string    // of a node; empty for a session's
	Session int64     // the session that made the change; 0 for the server itself and for the test
	Owner   int64     // the session of an ephemeral node
	Zxid    int64     // changes of one transaction share it
	Time    time.Time // by the server's clock, which is package time's
	Data    []byte    // of Created and DataSet
}

// String returns one line for a log.
func (a Applied) String() string {
	s := fmt.Sprintf("%#x %v session %#x", a.Zxid, a.Kind, a.Session)
	if a.Path != "" {
		s += " " + a.Path
	}
	return s
}

// A server that runs for weeks (zklock serve) keeps at most historyLimit changes, and at most
// historyBytes bytes of data and paths.
const (
	historyLimit = 100_000
	historyBytes = 64 << 20
)

type history struct {
	changes []Applied
	bytes   int // of their data and paths
}

func (h *history) add(a Applied) {
	h.changes = append(h.changes, a)
	h.bytes += a.size()
	for len(h.changes) > historyLimit || h.bytes > historyBytes && len(h.changes) > 1 {
		h.bytes -= h.changes[0].size()
		h.changes[0] = Applied{} // otherwise the array would keep its data
		h.changes = h.changes[1:]
	}
}

func (a Applied) size() int { return len(a.Path) + len(a.Data) }

// shownKinds has the changes that a history shows. A check changes nothing, and a count is the
// test's.
var shownKinds = map[changeKind]Kind{changeCreate: Created, changeDelete: Deleted, changeData: DataSet, changeACL: ACLSet}

func (c *cluster) record(tx *txn) {
	add := func(a Applied) {
		a.Session, a.Zxid, a.Time = tx.session, tx.zxid, tx.at
		c.history.add(a)
	}
	if tx.opens != 0 {
		add(Applied{Kind: Opened})
	}
	for _, ch := range tx.changes {
		if kind, shown := shownKinds[ch.kind]; shown {
			add(Applied{Kind: kind, Path: ch.path, Owner: ch.owner, Data: ch.data})
		}
	}
	switch {
	case tx.closes != 0 && tx.expired:
		add(Applied{Kind: Expired})
	case tx.closes != 0:
		add(Applied{Kind: Closed})
	}
}

// Counts is the number of requests that a server has received. Pings are counted apart.
type Counts struct {
	BySession map[int64]map[Op]int
	Pings     int
	Events    int // sent, to all connections
}

// Total returns the number of requests of the given kinds, or of all kinds but pings if none is
// given. As in a [Fault], Create includes its three variants and GetChildren its one.
func (c Counts) Total(ops ...Op) int {
	n := 0
	for session := range c.BySession {
		n += c.Of(session, ops...)
	}
	return n
}

// Of is like Total, for one session.
func (c Counts) Of(session int64, ops ...Op) int {
	n := 0
	for got, times := range c.BySession[session] {
		if len(ops) == 0 || slices.ContainsFunc(ops, func(op Op) bool { return op.covers(got) }) {
			n += times
		}
	}
	return n
}

// String lists the counts of all sessions together, ordered by the protocol's op codes.
func (c Counts) String() string {
	sum := make(map[Op]int)
	for _, ops := range c.BySession {
		for op, n := range ops {
			sum[op] += n
		}
	}
	s := ""
	for _, op := range slices.Sorted(maps.Keys(sum)) {
		s += fmt.Sprintf("%v=%d ", op, sum[op])
	}
	return s + fmt.Sprintf("pings=%d events=%d", c.Pings, c.Events)
}

// Stat is the stat of a node, as clients see it. Times are in milliseconds since 1970.
type Stat struct {
	Czxid, Mzxid, Pzxid         int64
	Ctime, Mtime                int64
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
	Creates                     int32 // children ever created: the next sequence number
	Container                   bool
}

func publicStat(n *node) Stat {
	w := n.stat()
	return Stat{
		Czxid: w.Czxid, Mzxid: w.Mzxid, Pzxid: w.Pzxid, Ctime: w.Ctime, Mtime: w.Mtime,
		Version: w.Version, Cversion: w.Cversion, Aversion: w.Aversion, EphemeralOwner: w.EphemeralOwner,
		DataLength: w.DataLength, NumChildren: w.NumChildren, Creates: n.creates, Container: n.kind == container,
	}
}

// Session is the server's view of a session.
type Session struct {
	ID         int64
	Timeout    time.Duration // as negotiated
	Expires    time.Time     // unless its client sends something before
	Connected  bool
	Member     int      // of the ensemble that it is connected to; 1 for a server, 0 without a connection
	RemoteAddr string   // of its connection
	Ephemerals []string // its nodes' paths, sorted
}

// Watch is one watch of one connection.
type Watch struct {
	Path       string
	Session    int64
	Member     int  // of the ensemble; 1 for a server
	Children   bool // set by a getChildren; otherwise by an exists or getData
	Persistent bool
	Recursive  bool
}
