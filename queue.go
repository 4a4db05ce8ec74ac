package zklock

import (
	"slices"
	"strings"
)

// A child of the lock root takes part in the queue if its name ends in one of these and a sequence number. They are
// the names of Curator and go-zookeeper, kazoo, and Curator's read/write lock.
var queueMarkers = []string{"lock-", "__lock__", "__READ__", "__WRIT__"}

// The counter of a lock root has 32 bits. At its end numbers repeat or, when creates were pipelined, turn negative. So no node
// numbered counterEnd or more is granted: such nodes are deleted until the queue has drained and the root can be made anew.
const (
	counterNearEnd = 1<<31 - 1<<27 // from here on we say so, and remove the root when it is empty
	counterEnd     = 1<<31 - 1<<20 // far enough from the end that it is not reached while the queue drains
)

// member is a child of the lock root that takes part in the queue.
type member struct {
	name string
	seq  int64
}

// pastTheEnd says whether a node with this number is never granted.
func (m member) pastTheEnd() bool { return m.seq < 0 || m.seq >= counterEnd }

// digits is how many a sequence number has, beside its sign.
const digits = 10

// parseMember splits a child's name. It returns false for children that take no part in the queue: config, _c_x, lock-abc, a
// huge number.
func parseMember(name string, markers []string) (member, bool) {
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
	// A marker that ends in a minus sign cannot take that of a negative number: those are near the counter's other end.
	if neg := strings.TrimSuffix(head, "-"); neg != head && hasMarker(neg, markers) && (seq >= counterEnd || !hasMarker(head, markers)) {
		head, seq = neg, -seq
	}
	if !hasMarker(head, markers) || seq >= 1<<31 || seq < -(1<<31) { // or no counter of 32 bits wrote this
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
	predecessor string // behind: the node just ahead of us; exhausted: a node that must go first, "" if there is none
	second      string // behind: the node just ahead of the predecessor; "" if there is none, or if tied
	ahead       int    // behind: how many nodes are ahead. If it is one, the predecessor is the front, and its deletion makes us the front
	tied        bool   // behind: nodes ahead of us have one number, and nobody knows their order: the predecessor is only one of them
	replaced    bool   // behind: another node may take the predecessor's place when it goes (see staysAlone)
}

type placeKind int

const (
	missing   placeKind = iota // our node is not in the list
	front                      // nobody is ahead
	behind                     // somebody is ahead
	twin                       // another node has our number: queue again, at the tail
	exhausted                  // a number is past the end of the counter, ours or another that may sort ahead
)

// placeOf decides where self stands among the children of the lock root. Their numbers order them. Below the counter's end
// servers never repeat a number. A client that makes a node by name can: hence twin and tied.
func placeOf(self string, children, markers []string) place {
	ms := members(children, markers)
	me := slices.IndexFunc(ms, func(m member) bool { return m.name == self })
	if me < 0 {
		return place{kind: missing}
	}
	mine := ms[me]
	p, isTwin := place{kind: front}, false
	var predecessor, second, past member
	for i, m := range ms {
		if i == me {
			continue
		}
		isTwin = isTwin || m.seq == mine.seq
		if m.seq < 0 || mine.pastTheEnd() {
			past = m
		}
		if m.seq >= mine.seq {
			continue
		}
		p.ahead++
		switch {
		case predecessor.name == "" || m.seq > predecessor.seq:
			predecessor, second = m, predecessor
		case second.name == "" || m.seq > second.seq:
			second = m
		}
	}
	switch { // names are copied: the list is not kept for them
	case mine.pastTheEnd() || past.name != "":
		return place{kind: exhausted, predecessor: strings.Clone(past.name)}
	case isTwin:
		return place{kind: twin}
	case p.ahead == 0:
		return p
	}
	p.kind, p.predecessor, p.replaced = behind, strings.Clone(predecessor.name), !staysAlone(predecessor.name)
	p.tied = second.name != "" && predecessor.seq == second.seq
	if !p.tied {
		p.second = strings.Clone(second.name)
	}
	return p
}

// staysAlone says whether nothing comes after a node in its place. A writer of Curator's read/write lock that takes the read
// lock, too, makes a __READ__ node with its own number, and then deletes its __WRIT__ node: so a node appears ahead of waiters
// that have listed (R73). Mutexes and readers make no such node, and what clients of other names do nobody knows.
func staysAlone(name string) bool {
	head := name[:max(0, len(name)-digits)]
	return hasMarker(head, []string{"lock-", "__lock__", "__READ__"})
}

// evidence is what a waiter knows when the event of its predecessor has come.
type evidence struct {
	ahead          int   // how many nodes were ahead of ours in the list
	replaced       bool  // another node may have taken the predecessor's place
	deleted        bool  // the event is the predecessor's deletion, and no other
	owner, session int64 // the ZooKeeper session of the predecessor, and our own

	conn                         uint64 // the present connection, 0 if there is none
	listConn, ownConn, aheadConn uint64 // those of the list and of the watches on our node and the predecessor; 0 if not sure

	ownFired bool // an event of our own node has come
}

// inFrontNow is the rule by which the predecessor's event shows, without another request, that nobody is ahead. Every clause
// must hold; otherwise the waiter lists. explore_test.go shows what happens without each clause.
func inFrontNow(k evidence) bool {
	// Nobody else was ahead when we listed, and nobody can get in between or ahead.
	if k.ahead != 1 || k.replaced || !k.deleted {
		return false
	}
	// A predecessor of our own ZooKeeper session may have gone with the session, and our node too. If all is well, such a
	// predecessor passes the turn (turnAfter). (If the predecessor was gone before we could watch it, its owner is not known.
	// But if our node was deleted with it, our event came before that answer.)
	if k.owner == k.session {
		return false
	}
	// All that we know must come from one connection, the present one. After a reconnect the server replays the watches in the
	// order of the client's requests: the predecessor's deletion can come before our own.
	if k.conn == 0 || k.listConn != k.conn || k.ownConn != k.conn || k.aheadConn != k.conn {
		return false
	}
	// If one transaction deletes the predecessor's node and then ours, our event may not be read yet. Such a hold is lost as
	// soon as it is read, like any hold whose node somebody deletes (F24). Only another request could tell us sooner.
	if k.ownFired {
		return false
	}
	return true
}

// turn is what a waiter hears from a predecessor of its own session.
type turn uint8

const (
	noTurn      turn = iota // nothing yet
	turnIsYours             // nobody is ahead
	turnUnknown             // the predecessor is gone, and nobody knows who is ahead: list. To the releaser: leave this waiter out
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
