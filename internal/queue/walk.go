package queue

// Walk is the state machine of one node's wait, from its first list to the grant: the next step,
// and the facts behind it. Its methods are pure. The caller does what Next requests, and
// explore_test.go tries every possible result.
//
//	ToList ─┬─▶ ToStandBehind ─┬─▶ ToWatchOwn ─▶ ToWatchAhead, once for each ─▶ ToAwait ─▶ ToGrant
//	        │                  └─▶ ToAwaitTurn ─▶ ToGrant
//	        └─▶ ToGrant
//
// A predecessor of our own session hands off to us when it is released (TurnAfter), unless that
// would prove too little (NoTurn). Any other predecessor is watched, and with it a few of the
// blockers ahead of it (Rule.watches). If these are all blockers, the deletion of the last one
// grants without another request. If not, the first event leads to a list.
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
type Walk struct {
	Next   Stage // the next step
	Early  bool  // the list was sent before the node was known to exist
	Ahead  int   // how many blockers the list showed
	At     int   // index of the watched blocker that is next; 0 is the predecessor
	NoTurn bool  // the predecessor does not hand off, although it may be of our own session
	Sync   bool  // the record must be read after a sync

	delayed  bool   // the lock has a lock-delay
	proof    uint64 // the connection that proved that no node blocks ours, 0 if not known
	session  int64  // the ZooKeeper session of the node
	watched  int    // how many blockers are watched
	gone     uint16 // one bit for each watched blocker that has had its deletion event
	replaced bool   // another node may replace one of them after its deletion
	ours     bool   // one of them belongs to our own session

	// The connections over which the responses to the list, to the watch on our node and to all
	// watches on blockers arrived; 0 if not sure.
	listConn, ownConn, aheadConn uint64
}

// Begin returns the state machine of a node of a ZooKeeper session. early means that its first list
// was sent before the node was known to exist, delayed that the lock has a lock-delay.
func Begin(session int64, early, delayed bool) Walk {
	return Walk{session: session, Early: early, delayed: delayed}
}

// Stage is the next step of a wait.
type Stage uint8

const (
	ToList        Stage = iota // list the queue
	ToStandBehind              // register for a handoff or notification, if the predecessor belongs to our own session
	ToAwaitTurn                // wait until it arrives
	ToWatchOwn                 // watch our own node first: if both nodes are deleted, we must be notified about ours
	ToWatchAhead               // watch the next blocker, or have its deletion reported if it belongs to our own session
	ToAwait                    // wait for an event of one of them, or for another connection
	ToReadRecord               // no node blocks ours: read which node held last
	ToAwaitDelay               // wait: the last holder disappeared
	ToWriteRecord              // record the grant
	ToGrant                    // no node blocks ours; with a lock-delay, the grant is recorded
	ToQueueAgain               // our node has no position of its own in the queue: queue again at the tail
	ToEnd                      // no node is granted here (exhausted)
)

// Finding is the result of a request about a node.
type Finding uint8

const (
	IsThere Finding = iota // the node exists, or the list succeeded
	IsGone                 // it does not exist
	NotTold                // not known
)

// Listed handles the node's position in a list that arrived over conn.
func (w Walk) Listed(p Place, conn uint64) Walk {
	early := w.Early
	w.Early = false
	switch p.Kind {
	case Missing:
		if early { // the list followed a create that was lost; our node was created by a later one
			return w.anew(ToList)
		}
		return w.anew(ToQueueAgain)
	case Front:
		return w.front(conn)
	case Behind:
		w.Next, w.listConn, w.aheadConn = ToStandBehind, conn, conn
		w.Ahead, w.NoTurn, w.watched, w.replaced = p.Ahead, p.NoTurn, 1+len(p.Further), p.Replaced
	case Twin:
		return w.anew(ToQueueAgain)
	case Exhausted:
		return w.anew(ToEnd)
	}
	return w
}

// ListAgain drops all facts, and lists.
func (w Walk) ListAgain() Walk { return w.anew(ToList) }

// anew drops all facts.
func (w Walk) anew(next Stage) Walk { return Walk{Next: next, session: w.session, delayed: w.delayed} }

// front handles a proof that no node blocks ours, which arrived over conn; 0 if not known.
func (w Walk) front(conn uint64) Walk {
	if !w.delayed {
		return w.anew(ToGrant)
	}
	w = w.anew(ToReadRecord)
	w.proof = conn
	return w
}

// NotListed handles a list that failed. Without its lock root our node does not exist either (R5,
// R58), unless the list was sent with a create that was lost: our node was created later, and
// perhaps the root as well.
func (w Walk) NotListed(r Finding) Walk {
	if r == IsGone && !w.Early {
		return w.anew(ToQueueAgain)
	}
	return w.anew(ToList)
}

// StoodBehind handles whether the predecessor will notify us. Without a handoff, we watch our own
// node, and are only notified of the other's deletion.
func (w Walk) StoodBehind(ok bool) Walk {
	w.Next = ToWatchOwn
	if ok && !w.NoTurn {
		w.Next = ToAwaitTurn
	}
	return w
}

// Turned handles a notification from the predecessor.
func (w Walk) Turned(t Turn) Walk {
	switch t {
	case TurnIsYours:
		return w.front(0)
	case NodeIsGone:
		return w.anew(ToQueueAgain)
	}
	return w.anew(ToList)
}

// Watched handles the response to the read that sets a watch, which arrived over conn. owner is the
// ZooKeeper session of the node, 0 if the node does not exist.
func (w Walk) Watched(r Finding, owner int64, conn uint64) Walk {
	switch {
	case r == IsThere && w.Next == ToWatchOwn:
		w.Next, w.ownConn = ToWatchAhead, conn
	case r == IsGone && w.Next == ToWatchOwn:
		return w.anew(ToQueueAgain)
	case r == NotTold && w.Next == ToWatchAhead && w.At > 0: // we wait without it, and without the blockers ahead of it
		w.watched, w.Next = w.At, ToAwait
	case r == NotTold: // we keep our node (R55)
		return w.anew(ToList)
	default: // a missing node counts as a deletion event: inFrontNow decides what that proves
		w.ours = w.ours || r == IsThere && owner == w.session
		if w.aheadConn != conn {
			w.aheadConn = 0
		}
		return w.nextAhead()
	}
	return w
}

// WillBeTold notes that the blocker at At belongs to our own session: it needs no watch, because we
// are notified of its deletion (AheadIsGone).
func (w Walk) WillBeTold() Walk { return w.nextAhead() }

func (w Walk) nextAhead() Walk {
	if w.At++; w.At == w.watched {
		w.Next = ToAwait
	}
	return w
}

// KnowsAll reports whether all blockers are watched, and no other node can replace one of them.
func (w Walk) KnowsAll() bool { return w.watched == w.Ahead && !w.replaced }

// Awaited returns the index of the blocker whose event to wait for, and of another one whose event
// matters meanwhile, −1 if none does. If all are watched, these are the nearest and the farthest
// that remain, so the last one that remains is always included.
func (w Walk) Awaited() (next, also int) {
	if w.KnowsAll() {
		for w.gone&(1<<next) != 0 {
			next++
		}
		also = w.watched - 1
		for also > next && w.gone&(1<<also) != 0 {
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

// Moved handles the present connection, 0 if not connected. If it is not the list's, no event
// suffices for a grant.
func (w Walk) Moved(conn uint64) Walk {
	if conn != 0 && conn != w.listConn {
		return w.anew(ToList)
	}
	return w
}

// OwnEvent handles an event of our own node.
func (w Walk) OwnEvent(isDeletion bool) Walk {
	if isDeletion {
		return w.anew(ToQueueAgain)
	}
	return w.anew(ToList)
}

// AheadEvent handles the event of the i-th blocker. conn is the present connection, and ownFired
// reports that an event of our own node has arrived. After the last event, inFrontNow decides
// whether the evidence suffices for a grant.
func (w Walk) AheadEvent(i int, isDeletion bool, conn uint64, ownFired bool) Walk {
	w, isLast := w.heard(i, isDeletion)
	if !isLast {
		return w
	}
	return w.ruled(inFrontNow(w.evidence(conn, ownFired)), conn)
}

// heard notes an event of the i-th blocker. It returns false if other deletions must arrive first.
func (w Walk) heard(i int, isDeletion bool) (_ Walk, isLast bool) {
	if isDeletion {
		w.gone |= 1 << i
	}
	return w, !isDeletion || !w.KnowsAll() || w.Left() == 0
}

// Left returns how many blockers have had no deletion event.
func (w Walk) Left() int {
	n := w.Ahead
	for gone := w.gone; gone != 0; gone &= gone - 1 {
		n--
	}
	return n
}

func (w Walk) evidence(conn uint64, ownFired bool) evidence {
	return evidence{
		left: w.Left(), replaced: w.replaced, ours: w.ours,
		conn: conn, listConn: w.listConn, ownConn: w.ownConn, aheadConn: w.aheadConn, ownFired: ownFired,
	}
}

// ruled handles the verdict of inFrontNow. The last piece of evidence arrived over conn.
func (w Walk) ruled(inFront bool, conn uint64) Walk {
	if inFront {
		return w.front(conn)
	}
	return w.anew(ToList)
}
