// Package queue decides which node is granted. From the children of a lock root it derives a node's
// position, and from a waiter's observations whether the node is granted or must list again. It
// promises that a lock node and a node that blocks it are never granted at the same time, and that
// no waiter is forgotten.
//
// Everything rests on one fact: servers number a root's children in the order of their creation,
// and a list that shows our node is at least as new as our node. So the list shows each node with a
// smaller number that still exists, even if the server lags behind.
//
// The package is pure. It must not send requests, wait, log, read a clock or hold a lock, and it
// sees only the numbers of connections. So each rule has a table that specifies it, and
// explore_test.go runs the same code through every interleaving of a few clients.
//
// Read queue.go first: PositionOf, isFirstNow and HandoffAfter are the proofs that no node blocks
// ours, with the creation of the lock root in newroot.go (sorted.go is PositionOf for many
// waiters). Then rule.go: the nodes that readers and writers wait for. Then machine.go: the state
// machine of one node's wait. R and F are numbers of internal/faults/faults.md.
package queue

import (
	"cmp"
	"slices"
	"strings"
)

// A child of the lock root takes part in the queue if its name ends in one of these and a sequence
// number. They are the names of Curator and go-zookeeper, kazoo, and Curator's read/write lock.
var Markers = []string{MutexName, "__lock__", ReadName, WriteName}

// The counter of a lock root has 32 bits. At its end numbers repeat or, when creates were
// pipelined, turn negative. So no node numbered counterEnd or more is granted: such nodes are
// deleted until the queue has drained and the root can be recreated.
const (
	CounterNearEnd = 1<<31 - 1<<27 // from here on we log it, and delete the root when it is empty
	counterEnd     = 1<<31 - 1<<20 // far enough from the end that it is not reached while the queue drains
)

// Member is a child of the lock root that takes part in the queue.
type Member struct {
	Name string
	Seq  int64
}

// PastTheEnd reports whether a node with this number is never granted.
func (m Member) PastTheEnd() bool { return m.Seq < 0 || m.Seq >= counterEnd }

// lastNumber is the last number before the counter's end.
const lastNumber = "2146435071"

// digits is the number of digits in a sequence number, without the sign.
const digits = 10

// Parse splits a child's name. It returns false for children that take no part in the queue:
// config, _c_x, lock-abc, a huge number.
func Parse(name string, markers []string) (Member, bool) {
	if len(name) < digits {
		return Member{}, false
	}
	head, seq := name[:len(name)-digits], int64(0)
	for _, c := range []byte(name[len(head):]) {
		if c < '0' || c > '9' {
			return Member{}, false
		}
		seq = 10*seq + int64(c-'0')
	}
	// If a marker itself ends in a minus sign, that is not the sign of the number, unless the
	// number is near the counter's other end.
	if neg := strings.TrimSuffix(head, "-"); neg != head && hasMarker(neg, markers) && (seq >= counterEnd || !hasMarker(head, markers)) {
		head, seq = neg, -seq
	}
	if !hasMarker(head, markers) || seq >= 1<<31 || seq < -(1<<31) { // no counter of 32 bits wrote this
		return Member{}, false
	}
	return Member{name, seq}, true
}

func hasMarker(head string, markers []string) bool {
	return slices.ContainsFunc(markers, func(m string) bool { return strings.HasSuffix(head, m) })
}

// Members returns the children that take part in the queue, in no order.
func Members(children, markers []string) []Member {
	ms := make([]Member, 0, len(children))
	for _, c := range children {
		if m, ok := Parse(c, markers); ok {
			ms = append(ms, m)
		}
	}
	return ms
}

// Position is the position of a node in its queue.
type Position struct {
	Kind        Kind
	Predecessor string   // Behind: the nearest node that blocks ours; Exhausted: a node that must be deleted first, or ""
	Further     []string // Behind: the other blockers that are watched, nearest first (see Rule.watches)
	Blockers    int      // Behind: how many nodes block ours; if all are watched, the deletion of the last one unblocks ours
	Holds       bool     // Behind: no node of any kind precedes the predecessor: it is the holder
	LastHolds   bool     // Behind: no node of any kind precedes the last of Further
	Replaced    bool     // Behind: another node may replace a watched one after its deletion (see staysAlone)
	NoHandoff   bool     // Behind: even a predecessor of our own session does not hand off to us (see below)
}

// Kind is a kind of position, as a list shows it.
type Kind int

const (
	Missing   Kind = iota // our node is not in the list
	Front                 // no node blocks ours
	Behind                // at least one does
	Twin                  // another node has our number: queue again, at the tail
	Exhausted             // a number is past the end of the counter: our own, or one that may sort before ours
)

// ByNumber orders nodes by their numbers. Negative numbers, which are past the counter's end, come
// last.
func ByNumber(a, b Member) int { return cmp.Compare(uint32(a.Seq), uint32(b.Seq)) }

// FrontOf returns the name of the first node in the queue, for observers; "" if the queue is empty.
func FrontOf(children, markers []string) string {
	ms := Members(children, markers)
	if len(ms) == 0 {
		return ""
	}
	return strings.Clone(slices.MinFunc(ms, ByNumber).Name)
}

// SeenAt returns the position of self for observers: Missing, Behind or Front. It uses the order
// alone, because a granted node stays first until it is deleted. A node with the same number does
// not precede self: a writer that also holds the read lock has two such nodes.
func SeenAt(rule Rule, self string, children []string) Kind {
	ms := Members(children, rule.Markers)
	me := slices.IndexFunc(ms, func(m Member) bool { return m.Name == self })
	if me < 0 {
		return Missing
	}
	if slices.ContainsFunc(ms, func(m Member) bool { return ByNumber(m, ms[me]) < 0 && rule.Blocks(m) }) {
		return Behind
	}
	return Front
}

// ForeignOf returns a child whose name ends in one of these and a number, and that is not behind
// self (if self is "", any such child), or "". It serves two kinds of nodes that do not wait for
// each other: each list that shows the later of two such nodes also shows the earlier one, if it
// still exists. So if such a list rejects the later one, the two are never granted together.
func ForeignOf(rule Rule, self string, children, endings []string) string {
	own, isOne := Parse(self, rule.Markers)
	for _, m := range Members(children, endings) {
		if !isOne || ByNumber(m, own) <= 0 {
			return strings.Clone(m.Name)
		}
	}
	return ""
}

// PositionOf decides the position of self among the children of the lock root, by its rule and
// their numbers. Below the counter's end servers never repeat a number, but a client that creates a
// node by name can: hence Twin and areTied. We assume that no client creates a node with a smaller
// number than those in the queue, except a writer that also takes the read lock, with its own
// number (Rule.staysAlone).
func PositionOf(rule Rule, self string, children []string) Position {
	mine, _ := Parse(self, rule.Markers)
	p, isThere, isTwin := Position{Kind: Front}, false, false
	var past, lowest Member
	near := make([]Member, 0, fewReaders) // blockers, nearest first
	for _, name := range children {
		m, ok := Parse(name, rule.Markers)
		if !ok || name == self {
			isThere = isThere || ok
			continue
		}
		isTwin = isTwin || m.Seq == mine.Seq
		if m.Seq < 0 || mine.PastTheEnd() {
			past = m
		}
		if m.Seq >= mine.Seq {
			continue
		}
		if lowest.Name == "" || m.Seq < lowest.Seq {
			lowest = m
		}
		if !rule.Blocks(m) {
			continue
		}
		p.Blockers++
		near = nearest(near, m)
	}
	switch {
	case !isThere:
		return Position{Kind: Missing}
	case mine.PastTheEnd() || past.Name != "":
		return Position{Kind: Exhausted, Predecessor: strings.Clone(past.Name)} // copied, so that the list can be freed
	case isTwin:
		return Position{Kind: Twin}
	case p.Blockers == 0:
		return p
	}
	return rule.behind(near, p.Blockers, lowest)
}

// behind returns the position of a node with this many blockers. near has the nearest ones, and
// lowest is the first node of any kind. Names are copied, so that the list can be freed.
func (r Rule) behind(near []Member, blockers int, lowest Member) Position {
	p, tied := Position{Kind: Behind, Predecessor: strings.Clone(near[0].Name), Blockers: blockers}, areTied(near)
	p.Holds = lowest.Seq == near[0].Seq && !tied
	near = near[:r.watches(near, blockers)]
	for _, m := range near[1:] {
		p.Further = append(p.Further, strings.Clone(m.Name))
		p.LastHolds = m == lowest
	}
	p.Replaced = slices.ContainsFunc(near, func(m Member) bool { return !r.staysAlone(m.Name) })
	// If two predecessors have one number, one of them may still block us when the other is
	// released. A reader does not hand off. And a reader that watches all of its blockers needs no
	// handoff.
	p.NoHandoff = tied || IsReader(p.Predecessor) || r.IsShared() && len(near) == blockers && !p.Replaced
	return p
}

// areTied reports whether two nodes share the number of the nearest blocker, so that neither is
// known to be the nearest.
func areTied(near []Member) bool { return len(near) > 1 && near[0].Seq == near[1].Seq }

// nearest adds a blocker, and keeps as many as any rule watches.
func nearest(ms []Member, m Member) []Member {
	i := len(ms)
	for i > 0 && ms[i-1].Seq < m.Seq {
		i--
	}
	if i == fewReaders {
		return ms
	}
	return slices.Insert(ms[:min(len(ms), fewReaders-1)], i, m)
}

// PositionOfNext decides the position that a node created now would have, for callers that may not
// need one. It blocks no other node.
func PositionOfNext(rule Rule, children []string) Position {
	next := protectedPrefix + strings.Repeat("0", idLength) + "-" + rule.Name + lastNumber
	return PositionOf(rule, next, append(slices.Clip(children), next))
}

// evidence is what a waiter has observed when the last event of its watched nodes has arrived.
type evidence struct {
	left     int  // how many blockers of the list have had no deletion event
	replaced bool // another node may have replaced one of them
	ours     bool // a watched node belongs to our own ZooKeeper session

	conn uint64 // the present connection, 0 if there is none
	// The connections of the list, of the watch on our node, and of the watches on the blockers; 0
	// if not sure.
	listConn, ownConn, blockerConn uint64

	ownFired bool // an event of our own node has arrived
}

// isFirstNow is the rule by which events show, without another request, that no node blocks ours.
// Every clause must hold; otherwise the waiter lists. explore_test.go shows what happens without
// each clause.
func isFirstNow(k evidence) bool {
	// All blockers of our list are deleted, and no other node can have appeared among them or
	// before ours.
	if k.left != 0 || k.replaced {
		return false
	}
	// A node of our own ZooKeeper session may have been deleted with the session, and our node too.
	// Normally such a node is not watched: it hands off (HandoffAfter), or we are notified of its
	// deletion (BlockerDeleted). (If it was deleted before we could watch it, its owner is unknown.
	// But if our node was deleted with it, our event arrived before the response that reported it
	// missing.)
	if k.ours {
		return false
	}
	// All observations must come from one connection, the present one. After a reconnect the server
	// replays the watches in the order of the client's requests: the deletion of a blocker can
	// arrive before ours.
	if k.conn == 0 || k.listConn != k.conn || k.ownConn != k.conn || k.blockerConn != k.conn {
		return false
	}
	// If one transaction deletes the last blocker and then our node, our event may not be read yet.
	// Such a hold is lost as soon as it is read, like any hold whose node another client deletes
	// (F24). Only another request could detect that sooner.
	if k.ownFired {
		return false
	}
	return true
}

// Handoff is a notification from a predecessor of the waiter's own ZooKeeper session.
type Handoff uint8

const (
	NoHandoff      Handoff = iota // nothing yet
	HandoffIsOurs                 // no node blocks ours: the lock was handed off
	HandoffUnknown                // no handoff is possible: the releaser retries without the waiter, which lists after the deletion
	NodeDeleted                   // our own node is deleted
	BlockerDeleted                // the predecessor is deleted, by a successful request that did not delete ours
)

// HandoffAfter is the rule by which a release grants without an event. One transaction checks the
// next node and then deletes the holder's. done reports success, failed is the index of the
// operation that failed (−1 if not known), and noNode reports that a node was missing. HandoffAfter
// returns NoHandoff if the response proves nothing to the next node.
//
// Success proves that both nodes existed together, the holder's first and the next directly behind
// it, and that the holder's was then deleted: so the next is first now. Only the release of a hold
// may hand off: a waiter that gives up has blockers of its own. And only the response may do it:
// until it arrives, the session may have ended, or another client may have deleted a node.
func HandoffAfter(done bool, failed int, noNode bool) Handoff {
	switch {
	case done:
		return HandoffIsOurs
	case failed == 0 && noNode:
		return NodeDeleted
	case failed == 0, failed < 0 && noNode: // we may not check the node; or it is not clear which of the two is missing
		return HandoffUnknown
	}
	return NoHandoff
}

const (
	protectedPrefix = "_c_"
	idLength        = 36
)

// ProtectedPath returns the path for a create: root/_c_<36-char uuid>-<name>. The servers add the
// sequence number.
func ProtectedPath(root, id, name string) string {
	return root + "/" + protectedPrefix + id + "-" + name
}

// ProtectionID returns the uuid in a protected node's name, _c_<36-char uuid>-….
func ProtectionID(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, protectedPrefix)
	if !ok || len(rest) <= idLength || rest[idLength] != '-' {
		return "", false
	}
	id := rest[:idLength]
	for _, i := range []int{8, 13, 18, 23} {
		if id[i] != '-' {
			return "", false
		}
	}
	return id, true
}
