package zklock

import (
	"slices"
	"strings"
)

// A child of the lock root takes part in the queue if its name ends in one of these and a sequence number. They are
// the names of Curator and go-zookeeper, kazoo, and Curator's read/write lock.
var queueMarkers = []string{"lock-", "__lock__", "__READ__", "__WRIT__"}

// The counter of a lock root is a 32-bit number, and ZooKeeper pins it at its end. Nodes created from then on get wrapStart
// again or, when creates were pipelined, negative numbers, in no useful order.
const (
	wrapStart = 1<<31 - 1     // from here on, and below zero, suffixes order nothing
	wrapWarn  = 1<<31 - 1<<27 // from here on we say so, and restart the counter when the root is empty
)

// member is a child of the lock root that takes part in the queue.
type member struct {
	name string
	seq  int64
}

// wrapped says whether the member's suffix says nothing about its place.
func (m member) wrapped() bool { return m.seq < 0 || m.seq >= wrapStart }

// parseMember splits a child's name. It returns false for children that take no part in the queue: config, _c_x, lock-abc, a
// huge number.
func parseMember(name string, markers []string) (member, bool) {
	const digits = 10
	if len(name) < digits {
		return member{}, false
	}
	head, seq := name[:len(name)-digits], int64(0)
	for _, c := range []byte(name[len(head):]) {
		if c < '0' || c > '9' {
			return member{}, false
		}
		seq = 10*seq + int64(c-'0')
	}
	if neg := strings.TrimSuffix(head, "-"); neg != head && !hasMarker(head, markers) {
		head, seq = neg, -seq
	}
	if !hasMarker(head, markers) || seq > wrapStart || seq < -(1<<31) { // or no counter of 32 bits wrote this
		return member{}, false
	}
	return member{name, seq}, true
}

func hasMarker(head string, markers []string) bool {
	for _, m := range markers {
		if strings.HasSuffix(head, m) {
			return true
		}
	}
	return false
}

// members picks the queue out of a root's children, in no order.
func members(children, markers []string) []member {
	ms := make([]member, 0, len(children))
	for _, c := range children {
		if m, ok := parseMember(c, markers); ok {
			ms = append(ms, m)
		}
	}
	return ms
}

// place is where a node stands in its queue.
type place struct {
	kind        placeKind
	predecessor string   // behind: the node just ahead of us
	second      string   // behind: the node just ahead of the predecessor; "" if there is none, or if disordered
	ahead       int      // behind: how many nodes are ahead. If it is one, the predecessor is the front, and its deletion makes us the front
	disordered  bool     // the suffixes do not order the queue, here or ahead of us: no grant without listing
	unordered   []string // needOrder: nodes whose czxid must be read before the place is known
	foreign     string   // exhausted: the node that cannot be ordered
}

type placeKind int

const (
	missing   placeKind = iota // our node is not in the list
	front                      // nobody is ahead: the lock is ours
	behind                     // somebody is ahead
	needOrder                  // czxids are needed to tell
	exhausted                  // a foreign client's node stands in the wrap region: no order holds for all
)

// placeOf decides where self stands among the children of the lock root. czxid has the creation zxids read so far. It is
// needed only for nodes that their suffixes do not order. A node that was gone when it was read has czxid −1.
//
// Suffix order is creation order up to the end of the counter. Past the end, and where two nodes have one suffix, the order
// is that of the czxid: every client that asks sees the same. If two nodes ahead of us have one suffix, nobody asks which of
// them goes first: then the predecessor may be either of them, and only a list grants.
func placeOf(self string, children, markers []string, czxid map[string]int64) place {
	ms := members(children, markers)
	me := slices.IndexFunc(ms, func(m member) bool { return m.name == self })
	if me < 0 {
		return place{kind: missing}
	}
	mine := ms[me]
	p := place{}
	for _, m := range ms {
		p.disordered = p.disordered || m.wrapped()
	}
	if p.disordered {
		for _, m := range ms {
			if m.wrapped() && !ordersByCzxid(m.name) {
				return place{kind: exhausted, foreign: m.name, disordered: true}
			}
		}
	}

	ahead := func(a, b member) (bool, bool) { // is a ahead of b; is it known
		switch {
		case a.wrapped() != b.wrapped():
			return b.wrapped(), true
		case !a.wrapped() && a.seq != b.seq:
			return a.seq < b.seq, true
		}
		za, oka := czxid[a.name]
		zb, okb := czxid[b.name]
		return za < zb || za == zb && a.name < b.name, oka && okb
	}
	nearer := func(a, b member) bool { // is a between b and us; b may be nobody
		if b.name == "" {
			return true
		}
		isAhead, known := ahead(b, a)
		p.disordered = p.disordered || !known
		return isAhead || !known
	}

	var predecessor, second member
	for _, m := range ms {
		if m.name == self || len(czxid) > 1 && czxid[m.name] < 0 {
			continue
		}
		isAhead, known := ahead(m, mine)
		switch {
		case !known:
			p.unordered = append(p.unordered, m.name)
			continue
		case !isAhead:
			continue
		}
		p.ahead++
		if nearer(m, predecessor) {
			predecessor, second = m, predecessor
		} else if nearer(m, second) {
			second = m
		}
	}
	if len(p.unordered) > 0 {
		if _, ok := czxid[self]; !ok {
			p.unordered = append(p.unordered, self)
		}
		return place{kind: needOrder, unordered: p.unordered, disordered: p.disordered}
	}
	if p.ahead == 0 {
		p.kind = front
		return p
	}
	p.kind, p.predecessor = behind, strings.Clone(predecessor.name) // the list is not kept for it
	if !p.disordered {
		p.second = strings.Clone(second.name)
	}
	return p
}

// evidence is what a waiter knows when the event of its predecessor has come.
type evidence struct {
	ahead          int   // how many nodes were ahead of ours in the list
	disordered     bool  // the suffixes in the list did not order the queue
	deleted        bool  // the event is the predecessor's deletion, and no other
	owner, session int64 // the ZooKeeper session of the predecessor, and our own

	conn                         uint64 // the present connection, 0 if there is none
	listConn, ownConn, aheadConn uint64 // those of the list and of the watches on our node and the predecessor; 0 if not sure

	ownFired bool // an event of our own node has come
}

// ruling is what inFrontNow says.
type ruling int

const (
	listAgain ruling = iota // the event proves nothing: ask
	grantNow                // the lock is ours
)

// inFrontNow is the rule by which the predecessor's event grants without another request. It grants only if every clause
// holds; otherwise the waiter lists. explore_test.go shows what happens without each clause.
func inFrontNow(k evidence) ruling {
	// Nobody else was ahead when we listed, and nobody can get in between. Where suffixes order nothing, somebody can.
	if k.ahead != 1 || k.disordered || !k.deleted {
		return listAgain
	}
	// A predecessor of our own ZooKeeper session may have gone with the session, and our node too. If all is well, such a
	// predecessor passes the turn (turnAfter). (If the predecessor was gone before we could watch it, its owner is not known.
	// But if our node was deleted with it, our event came before that answer.)
	if k.owner == k.session {
		return listAgain
	}
	// All that we know must come from one connection, the present one. After a reconnect the server replays the watches in the
	// order of the client's requests: the predecessor's deletion can come before our own.
	if k.conn == 0 || k.listConn != k.conn || k.ownConn != k.conn || k.aheadConn != k.conn {
		return listAgain
	}
	// If one transaction deletes the predecessor's node and then ours, our event may not be read yet. Such a hold is lost as
	// soon as it is read, like any hold whose node somebody deletes (F24). Only another request could tell us sooner.
	if k.ownFired {
		return listAgain
	}
	return grantNow
}

// turn is what a waiter hears from a predecessor of its own session.
type turn uint8

const (
	noTurn      turn = iota // nothing yet
	turnIsYours             // the lock is ours
	turnUnknown             // the predecessor is gone, and nobody knows who is ahead: list
	nodeIsGone              // our own node is gone
)

// turnAfter is the rule by which a release grants without an event. One transaction checks the next node and then deletes
// the holder's. done says that it succeeded; failed says which of the two operations stopped it, −1 if that is not known;
// noNode says that it was stopped by a missing node. turnAfter returns noTurn if the answer says nothing to the next.
//
// Success proves that both nodes stood together, the holder's in front and the next directly behind it, and that the holder's
// went: so the next is in front. Only a hold's release may pass the turn: if a waiter gives up, others are ahead. And only the
// answer may pass it: until it comes, the session may be over, or somebody else may have deleted a node.
func turnAfter(done bool, failed int, noNode bool) turn {
	switch {
	case done:
		return turnIsYours
	case failed == 0 && noNode:
		return nodeIsGone
	case failed == 0, failed < 0 && noNode: // we may not look at the node; or the answer does not say which of the two is missing
		return turnUnknown
	}
	return noTurn
}

// ordersByCzxid says whether a node's client may order the wrap region as we do: zklock's names are Curator's. go-zookeeper's
// lock and kazoo write other names, and surely do not.
func ordersByCzxid(name string) bool {
	_, ok := protectionID(name)
	return ok
}

const (
	protectedPrefix = "_c_"
	lockName        = "lock-"
	idLength        = 36
)

// protectionID returns the uuid in a protected node's name, _c_<36-char uuid>-….
func protectionID(name string) (string, bool) {
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
