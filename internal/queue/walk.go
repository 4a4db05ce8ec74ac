package queue

// Walk is the way of one node to the front of its queue: what the node does next, and the facts behind that. Its methods are
// pure. The lock does what it says, and explore_test.go goes through all that can come of it.
//
//	ToList ─┬──▶ ToStandBehind ─┬─▶ ToWatchOwn ──▶ ToWatchAhead, once for each ──▶ ToAwait ──▶ ToGrant
//	        │                   └─▶ ToAwaitTurn ──▶ ToGrant
//	        └──▶ ToGrant
//
// A predecessor of our own session passes the turn to us when it is released (TurnAfter), unless that says too little (NoTurn). Any other
// is watched, and a few of the nodes ahead of it (Rule.watches). If these are all that are ahead, the deletion of the last one grants without another request.
// If not, the first event leads to a list.
//
// All other stages lead back to ToList if the facts are not enough, and to ToQueueAgain if our own node is gone. ToEnd is for
// the end of the counter.
//
// With a lock-delay, the record comes before the grant (record.go):
//
//	──▶ ToReadRecord ─┬──────────────────▶ ToWriteRecord ──▶ ToGrant
//	                  └─▶ ToAwaitDelay ──▶
//
// If one of them is gone before we can watch it, that counts as its deletion event: the answer came over the same connection,
// after the one that showed our node.
type Walk struct {
	Next   Stage // what the node does next
	Early  bool  // the list was sent before the node was known to be made
	Ahead  int   // how many nodes that block ours were ahead in the list
	At     int   // which of those that are watched comes next; 0 is the predecessor
	NoTurn bool  // the predecessor passes no turn, although it may be of our own session
	Sync   bool  // the record is to be read after a sync

	delayed  bool   // the lock has a lock-delay
	proof    uint64 // the connection over which it was shown that nobody is ahead, 0 if that is not known
	session  int64  // the ZooKeeper session of the node
	watched  int    // how many of those ahead are watched
	gone     uint16 // which of them have had their deletion event, a bit for each
	replaced bool   // another node may take the place of one of them when that goes
	ours     bool   // one of them is of our own session

	listConn, ownConn, aheadConn uint64 // over which the list and the watches, all of those ahead, were answered; 0 if not sure
}

// Begin returns the walk of a node of a ZooKeeper session. early says that its first list was sent before the node was known to
// be made; delayed, that the lock has a lock-delay.
func Begin(session int64, early, delayed bool) Walk {
	return Walk{session: session, Early: early, delayed: delayed}
}

// Stage is what a walk does next.
type Stage uint8

const (
	ToList        Stage = iota // list the queue
	ToStandBehind              // have the predecessor tell us, if it is a node of our own session
	ToAwaitTurn                // wait until it does
	ToWatchOwn                 // watch our own node first: if both nodes are deleted, we must hear about ours
	ToWatchAhead               // watch the next of those ahead, or have it tell us
	ToAwait                    // wait for an event of one of them, or for another connection
	ToReadRecord               // nobody is ahead: read who held last
	ToAwaitDelay               // wait: who held last disappeared
	ToWriteRecord              // record the grant
	ToGrant                    // nobody is ahead, and nobody else need wait
	ToQueueAgain               // our node has no place of its own in the queue: begin again at the tail
	ToEnd                      // nobody is granted here (exhausted)
)

// Finding is what a request has shown.
type Finding uint8

const (
	IsThere Finding = iota // the node is there, or the list
	IsGone                 // it is not
	NotTold                // nobody knows
)

// Listed takes the node's place in a list that was answered over conn.
func (w Walk) Listed(p Place, conn uint64) Walk {
	early := w.Early
	w.Early = false
	switch p.Kind {
	case Missing:
		if early { // the list followed a create that was lost; our node was made by a later one
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

// ListAgain forgets what the walk rested on, and lists.
func (w Walk) ListAgain() Walk { return w.anew(ToList) }

// anew forgets what the walk rested on.
func (w Walk) anew(next Stage) Walk { return Walk{Next: next, session: w.session, delayed: w.delayed} }

// front takes a proof that nobody is ahead, which came over conn; 0 if that is not known.
func (w Walk) front(conn uint64) Walk {
	if !w.delayed {
		return w.anew(ToGrant)
	}
	w = w.anew(ToReadRecord)
	w.proof = conn
	return w
}

// NotListed takes a list that failed. Without its lock root, our node is gone too (R5, R58), unless the list went out with a
// create that was lost: ours came later, and perhaps the root.
func (w Walk) NotListed(r Finding) Walk {
	if r == IsGone && !w.Early {
		return w.anew(ToQueueAgain)
	}
	return w.anew(ToList)
}

// StoodBehind takes whether the predecessor will tell us. If it passes no turn, we watch our own node and hear of the other's end.
func (w Walk) StoodBehind(ok bool) Walk {
	w.Next = ToWatchOwn
	if ok && !w.NoTurn {
		w.Next = ToAwaitTurn
	}
	return w
}

// Turned takes what the predecessor told us.
func (w Walk) Turned(t Turn) Walk {
	switch t {
	case TurnIsYours:
		return w.front(0)
	case NodeIsGone:
		return w.anew(ToQueueAgain)
	}
	return w.anew(ToList)
}

// Watched takes the answer to the read that sets a watch, over conn: owner is the ZooKeeper session of the node, 0 if it is gone.
func (w Walk) Watched(r Finding, owner int64, conn uint64) Walk {
	switch {
	case r == IsThere && w.Next == ToWatchOwn:
		w.Next, w.ownConn = ToWatchAhead, conn
	case r == IsGone && w.Next == ToWatchOwn:
		return w.anew(ToQueueAgain)
	case r == NotTold && w.Next == ToWatchAhead && w.At > 0: // we wait without it, and without those ahead of it
		w.watched, w.Next = w.At, ToAwait
	case r == NotTold: // we keep our node (R55)
		return w.anew(ToList)
	default: // if it is gone, its event has come, in effect: the rule says what that proves
		w.ours = w.ours || r == IsThere && owner == w.session
		if w.aheadConn != conn {
			w.aheadConn = 0
		}
		return w.nextAhead()
	}
	return w
}

// WillBeTold says that the one at At is of our own session and needs no watch: we are told when it is deleted (AheadIsGone).
func (w Walk) WillBeTold() Walk { return w.nextAhead() }

func (w Walk) nextAhead() Walk {
	if w.At++; w.At == w.watched {
		w.Next = ToAwait
	}
	return w
}

// KnowsAll says whether all nodes that are ahead are watched, and no others can come in their place.
func (w Walk) KnowsAll() bool { return w.watched == w.Ahead && !w.replaced }

// Awaited returns which of those ahead is waited for, and another whose event matters meanwhile, −1 if none does. If all are known, these are
// the nearest and the farthest that are left: so the last one that is left is always known.
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

// Moved takes the present connection, 0 if there is none. If it is not the list's, no event is enough for a grant.
func (w Walk) Moved(conn uint64) Walk {
	if conn != 0 && conn != w.listConn {
		return w.anew(ToList)
	}
	return w
}

// OwnEvent takes an event of our own node.
func (w Walk) OwnEvent(isDeletion bool) Walk {
	if isDeletion {
		return w.anew(ToQueueAgain)
	}
	return w.anew(ToList)
}

// AheadEvent takes the event of the i-th of those ahead: whether it is a deletion, the present connection, and whether an event of
// our own node has come. After the last, the rule says whether that is enough for a grant (inFrontNow).
func (w Walk) AheadEvent(i int, isDeletion bool, conn uint64, ownFired bool) Walk {
	w, isLast := w.heard(i, isDeletion)
	if !isLast {
		return w
	}
	return w.ruled(inFrontNow(w.evidence(conn, ownFired)), conn)
}

// heard notes an event of the i-th of those ahead. It returns false if the deletions of others are to be waited for.
func (w Walk) heard(i int, isDeletion bool) (_ Walk, isLast bool) {
	if isDeletion {
		w.gone |= 1 << i
	}
	return w, !isDeletion || !w.KnowsAll() || w.Left() == 0
}

// Left returns how many were ahead and have had no deletion event.
func (w Walk) Left() int {
	n := w.Ahead
	for gone := w.gone; gone != 0; gone &= gone - 1 {
		n--
	}
	return n
}

// evidence returns what the waiter knows when the last event has come.
func (w Walk) evidence(conn uint64, ownFired bool) evidence {
	return evidence{
		left: w.Left(), replaced: w.replaced, ours: w.ours,
		conn: conn, listConn: w.listConn, ownConn: w.ownConn, aheadConn: w.aheadConn, ownFired: ownFired,
	}
}

// ruled takes what the rule says of the evidence, of which the last came over conn.
func (w Walk) ruled(inFront bool, conn uint64) Walk {
	if inFront {
		return w.front(conn)
	}
	return w.anew(ToList)
}
