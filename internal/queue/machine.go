package queue

import "math/bits"

// Machine is the state machine of one node's wait, from its first list to the grant: the next step,
// and the facts behind it. Its methods are pure. The caller does what Next requests, and
// explore_test.go tries every possible result.
//
//	ToList ─┬─▶ ToWaitBehind ─┬─▶ ToWatchOwn ─▶ ToWatchBlocker, once for each ─▶ ToAwait ─▶ ToGrant
//	        │                  └─▶ ToAwaitHandoff ─▶ ToGrant
//	        └─▶ ToGrant
//
// A node that was created together with its lock root is granted without a list (MadeRoot). A
// predecessor of our own session hands off to us when it is released (HandoffAfter), unless that
// would prove too little (NoHandoff). Any other predecessor is watched, and with it a few of the
// blockers before it (Rule.watches). If these are all blockers, the deletion of the last one grants
// without another request. If not, the first event leads to a list.
//
// All other stages lead back to ToList if the facts are not enough, and to ToQueueAgain if our own
// node is deleted. ToEnd is for the end of the counter.
//
// With a lock-delay, the record comes before the grant (record.go):
//
//	──▶ ToReadRecord ─┬──────────────────▶ ToWriteRecord ──▶ ToGrant
//	                  └─▶ ToAwaitDelay ──▶
//
// If a blocker is deleted before we can watch it, that counts as its deletion event: the response
// arrived over the same connection, after the response that showed our node.
type Machine struct {
	Next      Stage // the next step
	Early     bool  // the list was sent before the node was known to exist
	Blockers  int   // how many blockers the list showed
	At        int   // index of the watched blocker that is next; 0 is the predecessor
	NoHandoff bool  // the predecessor does not hand off, although it may be of our own session
	Sync      bool  // the record must be read after a sync

	delayed  bool   // the lock has a lock-delay
	proof    uint64 // the connection that proved that no node blocks ours, 0 if not known
	session  int64  // the ZooKeeper session of the node
	watched  int    // how many blockers are watched
	deleted  uint16 // one bit for each watched blocker that has had its deletion event
	replaced bool   // another node may replace one of them after its deletion
	ours     bool   // one of them belongs to our own session

	// The connections over which the responses to the list, to the watch on our node and to all
	// watches on blockers arrived; 0 if not sure.
	listConn, ownConn, blockerConn uint64
}

// Begin returns the state machine of a node of a ZooKeeper session. delayed means that the lock has
// a lock-delay.
func Begin(session int64, delayed bool) Machine { return Machine{session: session, delayed: delayed} }

// Stage is the next step of a wait.
type Stage uint8

const (
	ToList         Stage = iota // list the queue
	ToWaitBehind                // register for a handoff or notification, if the predecessor belongs to our own session
	ToAwaitHandoff              // wait until it arrives
	ToWatchOwn                  // watch our own node first: if both nodes are deleted, we must be notified about ours
	ToWatchBlocker              // watch the next blocker, or have its deletion reported if it belongs to our own session
	ToAwait                     // wait for an event of one of them, or for another connection
	ToReadRecord                // no node blocks ours: read which node held last
	ToAwaitDelay                // wait: the last holder disappeared
	ToWriteRecord               // record the grant
	ToGrant                     // no node blocks ours; with a lock-delay, the grant is recorded
	ToQueueAgain                // our node has no position of its own in the queue: queue again at the tail
	ToEnd                       // no node is granted here (exhausted)
)

// Finding is the result of a request about a node.
type Finding uint8

const (
	Exists  Finding = iota // the node exists, or the list succeeded
	Absent                 // it does not exist
	Unknown                // not known
)

// Listed handles the node's position in a list that arrived over conn.
func (w Machine) Listed(p Position, conn uint64) Machine {
	early := w.Early
	w.Early = false
	switch p.Kind {
	case Missing:
		if early { // the list followed a create that was lost; our node was created by a later one
			return w.restart(ToList)
		}
		return w.restart(ToQueueAgain)
	case Front:
		return w.first(conn)
	case Behind:
		w.Next, w.listConn, w.blockerConn = ToWaitBehind, conn, conn
		w.Blockers, w.NoHandoff, w.watched, w.replaced = p.Blockers, p.NoHandoff, 1+len(p.Further), p.Replaced
	case Twin:
		return w.restart(ToQueueAgain)
	case Exhausted:
		return w.restart(ToEnd)
	}
	return w
}

// ListAgain drops all facts, and lists.
func (w Machine) ListAgain() Machine { return w.restart(ToList) }

// restart drops all facts.
func (w Machine) restart(next Stage) Machine {
	return Machine{Next: next, session: w.session, delayed: w.delayed}
}

// first handles a proof that no node blocks ours, which arrived over conn; 0 if not known.
func (w Machine) first(conn uint64) Machine {
	if !w.delayed {
		return w.restart(ToGrant)
	}
	w = w.restart(ToReadRecord)
	w.proof = conn
	return w
}

// MadeRoot handles the reply that the servers have created our node together with its lock root.
// The lock has no lock-delay, because its record would be in that root.
func (w Machine) MadeRoot() Machine { return w.restart(ToGrant) }

// NotListed handles a list that failed. Without its lock root our node does not exist either (R5,
// R58), unless the list was sent with a create that was lost: our node was created later, and
// perhaps the root as well.
func (w Machine) NotListed(r Finding) Machine {
	if r == Absent && !w.Early {
		return w.restart(ToQueueAgain)
	}
	return w.restart(ToList)
}

// WaitsBehind handles whether the predecessor will notify us. Without a handoff, we watch our own
// node, and are only notified of the other's deletion.
func (w Machine) WaitsBehind(ok bool) Machine {
	w.Next = ToWatchOwn
	if ok && !w.NoHandoff {
		w.Next = ToAwaitHandoff
	}
	return w
}

// HandedOff handles a notification from the predecessor.
func (w Machine) HandedOff(t Handoff) Machine {
	switch t {
	case HandoffIsOurs:
		return w.first(0)
	case NodeDeleted:
		return w.restart(ToQueueAgain)
	}
	return w.restart(ToList)
}

// Watched handles the response to the read that sets a watch, which arrived over conn. owner is the
// ZooKeeper session of the node, 0 if the node does not exist.
func (w Machine) Watched(r Finding, owner int64, conn uint64) Machine {
	switch {
	case r == Exists && w.Next == ToWatchOwn:
		w.Next, w.ownConn = ToWatchBlocker, conn
	case r == Absent && w.Next == ToWatchOwn:
		return w.restart(ToQueueAgain)
	case r == Unknown && w.Next == ToWatchBlocker && w.At > 0: // we wait without it, and without the blockers before it
		w.watched, w.Next = w.At, ToAwait
	case r == Unknown: // we keep our node (R55)
		return w.restart(ToList)
	default: // a missing node counts as a deletion event: isFirstNow decides what that proves
		w.ours = w.ours || r == Exists && owner == w.session
		if w.blockerConn != conn {
			w.blockerConn = 0
		}
		return w.nextBlocker()
	}
	return w
}

// WillBeNotified notes that the blocker at At belongs to our own session: it needs no watch,
// because we are notified of its deletion (BlockerDeleted).
func (w Machine) WillBeNotified() Machine { return w.nextBlocker() }

func (w Machine) nextBlocker() Machine {
	if w.At++; w.At == w.watched {
		w.Next = ToAwait
	}
	return w
}

// WatchesAll reports whether all blockers are watched, and no other node can replace one of them.
func (w Machine) WatchesAll() bool { return w.watched == w.Blockers && !w.replaced }

// Awaited returns the index of the blocker whose event to wait for, and of another one whose event
// matters meanwhile, −1 if none does. If all are watched, these are the nearest and the farthest
// that remain, so the last one that remains is always included.
func (w Machine) Awaited() (next, also int) {
	if w.WatchesAll() {
		for w.deleted&(1<<next) != 0 {
			next++
		}
		also = w.watched - 1
		for also > next && w.deleted&(1<<also) != 0 {
			also--
		}
		if also <= next {
			also = -1
		}
		return next, also
	}
	if w.watched == 1 {
		return 0, -1
	}
	return 0, w.watched - 1
}

// Reconnected handles the present connection, 0 if not connected. If it is not the list's, no event
// suffices for a grant.
func (w Machine) Reconnected(conn uint64) Machine {
	if conn != 0 && conn != w.listConn {
		return w.restart(ToList)
	}
	return w
}

// OwnEvent handles an event of our own node.
func (w Machine) OwnEvent(isDeletion bool) Machine {
	if isDeletion {
		return w.restart(ToQueueAgain)
	}
	return w.restart(ToList)
}

// BlockerEvent handles the event of the i-th blocker. conn is the present connection, and ownFired
// reports that an event of our own node has arrived. After the last event, isFirstNow decides
// whether the evidence suffices for a grant.
func (w Machine) BlockerEvent(i int, isDeletion bool, conn uint64, ownFired bool) Machine {
	w, isLast := w.observed(i, isDeletion)
	if !isLast {
		return w
	}
	return w.ruled(isFirstNow(w.evidence(conn, ownFired)), conn)
}

// observed notes an event of the i-th blocker. It returns false if other deletions must arrive
// first.
func (w Machine) observed(i int, isDeletion bool) (_ Machine, isLast bool) {
	if isDeletion {
		w.deleted |= 1 << i
	}
	return w, !isDeletion || !w.WatchesAll() || w.Left() == 0
}

// Left returns how many blockers have had no deletion event.
func (w Machine) Left() int { return w.Blockers - bits.OnesCount16(w.deleted) }

func (w Machine) evidence(conn uint64, ownFired bool) evidence {
	return evidence{
		left: w.Left(), replaced: w.replaced, ours: w.ours,
		conn: conn, listConn: w.listConn, ownConn: w.ownConn, blockerConn: w.blockerConn, ownFired: ownFired,
	}
}

// ruled handles the verdict of isFirstNow. The last piece of evidence arrived over conn.
func (w Machine) ruled(inFront bool, conn uint64) Machine {
	if inFront {
		return w.first(conn)
	}
	return w.restart(ToList)
}
