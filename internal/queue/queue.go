// Package queue decides who is in front: children of a lock root in, a node's place out; what a waiter knows in, granted or list
// again out. It promises that of two lock nodes, one of which keeps the other waiting, never both are in front; and that no waiter is
// forgotten.
//
// All rests on this: servers number a root's children in the order of their creation, and a list that shows our node is at least as
// new as our node. So it shows each node with a smaller number that is still there, also on a server that lags behind.
//
// It is pure. It must not ask, wait, log, look at a clock or hold a lock, and it knows nothing of connections but their numbers. So
// each rule has a table that specifies it, and explore_test.go takes the same code through every interleaving of a few clients.
//
// Read queue.go first: PlaceOf, inFrontNow and TurnAfter are all that proves that nobody is ahead. Then rule.go: what readers and writers
// wait for. Then walk.go: what a node does next. several.go is for nodes in several queues. R and F are numbers of
// internal/faults/faults.md.
package queue

import (
	"slices"
	"strings"
)

// A child of the lock root takes part in the queue if its name ends in one of these and a sequence number. They are
// the names of Curator and go-zookeeper, kazoo, and Curator's read/write lock.
var Markers = []string{MutexName, "__lock__", ReadName, WriteName}

// The counter of a lock root has 32 bits. At its end numbers repeat or, when creates were pipelined, turn negative. So no node
// numbered counterEnd or more is granted: such nodes are deleted until the queue has drained and the root can be made anew.
const (
	CounterNearEnd = 1<<31 - 1<<27 // from here on we say so, and remove the root when it is empty
	counterEnd     = 1<<31 - 1<<20 // far enough from the end that it is not reached while the queue drains
)

// Member is a child of the lock root that takes part in the queue.
type Member struct {
	Name string
	Seq  int64
}

// PastTheEnd says whether a node with this number is never granted.
func (m Member) PastTheEnd() bool { return m.Seq < 0 || m.Seq >= counterEnd }

// lastNumber is the last one before the counter's end.
const lastNumber = "2146435071"

// digits is how many a sequence number has, beside its sign.
const digits = 10

// Parse splits a child's name. It returns false for children that take no part in the queue: config, _c_x, lock-abc, a
// huge number.
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
	// A marker that ends in a minus sign cannot take that of a negative number: those are near the counter's other end.
	if neg := strings.TrimSuffix(head, "-"); neg != head && hasMarker(neg, markers) && (seq >= counterEnd || !hasMarker(head, markers)) {
		head, seq = neg, -seq
	}
	if !hasMarker(head, markers) || seq >= 1<<31 || seq < -(1<<31) { // or no counter of 32 bits wrote this
		return Member{}, false
	}
	return Member{name, seq}, true
}

func hasMarker(head string, markers []string) bool {
	for _, m := range markers {
		if strings.HasSuffix(head, m) {
			return true
		}
	}
	return false
}

// Members picks the queue out of a root's children, in no order.
func Members(children, markers []string) []Member {
	ms := make([]Member, 0, len(children))
	for _, c := range children {
		if m, ok := Parse(c, markers); ok {
			ms = append(ms, m)
		}
	}
	return ms
}

// Place is where a node stands in its queue.
type Place struct {
	Kind        Kind
	Predecessor string   // Behind: the node just ahead of us that blocks ours; Exhausted: a node that must go first, "" if there is none
	Further     []string // Behind: others that block ours and are watched too, nearest first (see Rule.watches)
	Ahead       int      // Behind: how many nodes are ahead that block ours. If all are watched, we are the front when the last of them is gone
	Holds       bool     // Behind: nothing at all is ahead of the predecessor: it is the holder
	LastHolds   bool     // Behind: nothing at all is ahead of the last of Further
	Replaced    bool     // Behind: another node may take the place of a watched one when that goes (see staysAlone)
	NoTurn      bool     // Behind: also a predecessor of our own session passes no turn to us (see below)
}

// Kind is where a node can stand.
type Kind int

// What a list can show of a node.
const (
	Missing   Kind = iota // our node is not in the list
	Front                 // nobody is ahead that blocks ours
	Behind                // somebody is
	Twin                  // another node has our number: queue again, at the tail
	Exhausted             // a number is past the end of the counter, ours or another that may sort ahead
)

// ByNumber orders nodes by their numbers, with negative ones, which are past the counter's end, after all others.
func ByNumber(a, b Member) int {
	switch x, y := uint32(a.Seq), uint32(b.Seq); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// FrontOf returns the name of the node in front, for those who only look on; "" if nobody is in the queue.
func FrontOf(children, markers []string) string {
	ms := Members(children, markers)
	if len(ms) == 0 {
		return ""
	}
	return strings.Clone(slices.MinFunc(ms, ByNumber).Name)
}

// SeenAt says where self stands for those who only look on: Missing, Behind or Front. It grants nothing, so it goes by the order alone. A
// node that was granted is in front until it goes. One that has its number is not ahead of it: a writer that reads has two such nodes.
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

// ForeignOf returns a child whose name ends in one of these and a number, and that is not behind self; "" if there is none. If self is "",
// any will do. Of two nodes whose kinds do not wait for each other, each list that shows the later one shows the earlier one, too, while
// that is there. So if such a list refuses the later one, the two are never granted together.
func ForeignOf(rule Rule, self string, children, endings []string) string {
	own, isOne := Parse(self, rule.Markers)
	for _, m := range Members(children, endings) {
		if !isOne || ByNumber(m, own) <= 0 {
			return strings.Clone(m.Name)
		}
	}
	return ""
}

// PlaceOf decides where self stands among the children of the lock root, by its rule. Their numbers order them. Below the counter's end
// servers never repeat a number. A client that makes a node by name can: hence Twin and Tied. That no client makes one with a smaller
// number than those in the queue is assumed; a writer that reads, too, makes one beside its own (Rule.staysAlone).
func PlaceOf(rule Rule, self string, children []string) Place {
	ms := Members(children, rule.Markers)
	me := slices.IndexFunc(ms, func(m Member) bool { return m.Name == self })
	if me < 0 {
		return Place{Kind: Missing}
	}
	mine := ms[me]
	p, isTwin := Place{Kind: Front}, false
	var past, lowest Member
	near := make([]Member, 0, fewReaders) // those that block ours, nearest first
	for i, m := range ms {
		if i == me {
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
		p.Ahead++
		near = nearest(near, m)
	}
	switch { // names are copied: the list is not kept for them
	case mine.PastTheEnd() || past.Name != "":
		return Place{Kind: Exhausted, Predecessor: strings.Clone(past.Name)}
	case isTwin:
		return Place{Kind: Twin}
	case p.Ahead == 0:
		return p
	}
	p.Kind, p.Predecessor = Behind, strings.Clone(near[0].Name)
	tied := areTied(near)
	p.Holds = lowest.Seq == near[0].Seq && !tied
	near = near[:rule.watches(near, p.Ahead)]
	for _, m := range near[1:] {
		p.Further = append(p.Further, strings.Clone(m.Name))
		p.LastHolds = m == lowest
	}
	p.Replaced = slices.ContainsFunc(near, func(m Member) bool { return !rule.staysAlone(m.Name) })
	// If two ahead have one number, another may be ahead of us when the predecessor is released. A reader passes no turn. And a reader
	// that hears of all who are ahead needs none.
	p.NoTurn = tied || IsReader(p.Predecessor) || rule.IsShared() && len(near) == p.Ahead && !p.Replaced
	return p
}

// areTied says whether nobody knows which of those ahead is the nearest.
func areTied(near []Member) bool { return len(near) > 1 && near[0].Seq == near[1].Seq }

// nearest adds a node to those that are ahead, and keeps as many as anybody watches.
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

// PlaceOfNext decides where a node that were made now would stand, for those who can do without one. It cannot be in the way of others.
func PlaceOfNext(rule Rule, children []string) Place {
	next := protectedPrefix + strings.Repeat("0", idLength) + "-" + rule.Name + lastNumber
	return PlaceOf(rule, next, append(slices.Clip(children), next))
}

// evidence is what a waiter knows when the last event has come of those that it watches.
type evidence struct {
	left     int  // how many nodes that block ours were ahead in the list and have had no deletion event
	replaced bool // another node may have taken the place of one of them
	ours     bool // one that was watched is of our own ZooKeeper session

	conn                         uint64 // the present connection, 0 if there is none
	listConn, ownConn, aheadConn uint64 // those of the list, and of the watches on our node and on those ahead; 0 if not sure

	ownFired bool // an event of our own node has come
}

// inFrontNow is the rule by which events show, without another request, that nobody is ahead. Every clause must hold; otherwise
// the waiter lists. explore_test.go shows what happens without each clause.
func inFrontNow(k evidence) bool {
	// All that were ahead when we listed are gone, and nobody can get in between or ahead.
	if k.left != 0 || k.replaced {
		return false
	}
	// A node of our own ZooKeeper session may have gone with the session, and our node too. If all is well, such a node is not
	// watched: it passes the turn (TurnAfter), or its deletion is told (AheadIsGone). (If one was gone before we could watch it,
	// its owner is not known. But if our node was deleted with it, our event came before the answer that it was gone.)
	if k.ours {
		return false
	}
	// All that we know must come from one connection, the present one. After a reconnect the server replays the watches in the
	// order of the client's requests: the deletion of one ahead can come before our own.
	if k.conn == 0 || k.listConn != k.conn || k.ownConn != k.conn || k.aheadConn != k.conn {
		return false
	}
	// If one transaction deletes the last node ahead and then ours, our event may not be read yet. Such a hold is lost as
	// soon as it is read, like any hold whose node somebody deletes (F24). Only another request could tell us sooner.
	if k.ownFired {
		return false
	}
	return true
}

// Turn is what a waiter hears from a predecessor of its own ZooKeeper session.
type Turn uint8

const (
	NoTurn      Turn = iota // nothing yet
	TurnIsYours             // nobody is ahead
	TurnUnknown             // the turn cannot be passed: the releaser tries again without the waiter, which lists when the predecessor is gone
	NodeIsGone              // our own node is gone
	AheadIsGone             // the other node is: a delete of it alone was answered with success, so ours did not go with it
)

// TurnAfter is the rule by which a release grants without an event. One transaction checks the next node and then deletes
// the holder's. done says that it succeeded; failed says which of the two operations stopped it, −1 if that is not known;
// noNode says that it was stopped by a missing node. TurnAfter returns NoTurn if the answer says nothing to the next.
//
// Success proves that both nodes stood together, the holder's in front and the next directly behind it, and that the holder's
// went: so the next is in front. Only a hold's release may pass the turn: if a waiter gives up, others are ahead. And only the
// answer may pass it: until it comes, the session may be over, or somebody else may have deleted a node.
func TurnAfter(done bool, failed int, noNode bool) Turn {
	switch {
	case done:
		return TurnIsYours
	case failed == 0 && noNode:
		return NodeIsGone
	case failed == 0, failed < 0 && noNode: // we may not look at the node; or the answer does not say which of the two is missing
		return TurnUnknown
	}
	return NoTurn
}

const (
	protectedPrefix = "_c_"
	idLength        = 36
)

// ProtectedPath returns the path that a create asks for: root/_c_<36-char uuid>-<name>. The servers add the sequence number.
func ProtectedPath(root, id, name string) string {
	return root + "/" + protectedPrefix + id + "-" + name
}

// LeasePath is ProtectedPath for a lease of a semaphore.
func LeasePath(root, id string) string { return root + "/" + protectedPrefix + id + "-" + LeaseName }

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
