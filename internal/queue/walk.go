package queue

// Walk is the way of one node to the front of its queue: what the node does next, and the facts behind that. Its methods are
// pure. The lock does what it says, and explore_test.go goes through all that can come of it.
//
//	ToList ─┬──▶ ToStandBehind ─┬─▶ ToWatchOwn ──▶ ToWatchAhead ──▶ ToWatchSecond ──▶ ToAwait ──▶ ToGrant
//	        │                   └─▶ ToAwaitTurn ──▶ ToGrant
//	        └──▶ ToGrant
//
// A predecessor of our own session passes the turn to us when it is released (TurnAfter). Any other is watched.
//
// The node ahead of the predecessor is watched for speed only. When it goes, we are probably second in line, and list while
// the predecessor still holds. Then the predecessor's deletion grants without another request.
//
// All other stages lead back to ToList if the facts are not enough, and to ToQueueAgain if our own node is gone. ToEnd is for
// the end of the counter.
//
// With a lock-delay, the record comes before the grant (record.go):
//
//	──▶ ToReadRecord ─┬──────────────────▶ ToWriteRecord ──▶ ToGrant
//	                  └─▶ ToAwaitDelay ──▶
//
// If the predecessor is gone before we can watch it, that counts as its deletion event: the answer came over the same
// connection, after the one that showed our node.
type Walk struct {
	Next   Stage // what the node does next
	Early  bool  // the list was sent before the node was known to be made
	Second bool  // it is known who is ahead of the predecessor
	Ahead  int   // how many nodes that block ours were ahead in the list
	Holds  bool  // the predecessor was the holder
	Tied   bool  // nobody knows which of several nodes is the predecessor
	Sync   bool  // the record is to be read after a sync

	delayed  bool   // the lock has a lock-delay
	proof    uint64 // the connection over which it was shown that nobody is ahead, 0 if that is not known
	session  int64  // the ZooKeeper session of the node
	replaced bool   // another node may take the predecessor's place when it goes
	owner    int64  // the ZooKeeper session that owns the predecessor

	listConn, ownConn, aheadConn uint64 // over which the list and the two watches were answered; 0 before
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
	ToWatchAhead               // watch the predecessor
	ToWatchSecond              // watch the node ahead of the predecessor
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
		w.Next, w.listConn = ToStandBehind, conn
		w.Ahead, w.Holds, w.Second, w.Tied, w.replaced = p.Ahead, p.Holds, p.Second != "", p.Tied, p.Replaced
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

// StoodBehind takes whether the predecessor will tell us. If it is only one of several with its number, we watch it all the
// same: another may be ahead of us when it is released.
func (w Walk) StoodBehind(ok bool) Walk {
	w.Next = ToWatchOwn
	if ok && !w.Tied {
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
	case w.Next == ToWatchSecond && r != IsGone: // if we cannot have the watch, we wait without it
		w.Next = ToAwait
	case r == IsThere && w.Next == ToWatchOwn:
		w.Next, w.ownConn = ToWatchAhead, conn
	case r == IsThere:
		w.Next, w.owner, w.aheadConn = ToAwait, owner, conn
		if w.Second {
			w.Next = ToWatchSecond
		}
	case r == IsGone && w.Next == ToWatchOwn:
		return w.anew(ToQueueAgain)
	case r == IsGone && w.Next == ToWatchAhead: // as good as its event: the rule says what that proves
		w.Next, w.aheadConn = ToAwait, conn
	default: // nobody knows, or the node ahead of the predecessor is gone: we keep our node (R55)
		return w.anew(ToList)
	}
	return w
}

// Moved takes the present connection, 0 if there is none. If it is not the list's, no event is enough for a grant.
func (w Walk) Moved(conn uint64) Walk {
	if conn != 0 && conn != w.listConn {
		return w.anew(ToList)
	}
	return w
}

// SecondEvent takes an event of the node ahead of the predecessor: we are probably second in line.
func (w Walk) SecondEvent() Walk { return w.anew(ToList) }

// OwnEvent takes an event of our own node.
func (w Walk) OwnEvent(isDeletion bool) Walk {
	if isDeletion {
		return w.anew(ToQueueAgain)
	}
	return w.anew(ToList)
}

// PredecessorEvent takes the event of the predecessor: whether it is a deletion, the present connection, and whether an event of
// our own node has come. The rule says whether that is enough for a grant (inFrontNow).
func (w Walk) PredecessorEvent(isDeletion bool, conn uint64, ownFired bool) Walk {
	return w.ruled(inFrontNow(w.evidence(isDeletion, conn, ownFired)), conn)
}

// evidence returns what the waiter knows when the event of its predecessor has come.
func (w Walk) evidence(isDeletion bool, conn uint64, ownFired bool) evidence {
	return evidence{
		ahead: w.Ahead, replaced: w.replaced, deleted: isDeletion, owner: w.owner, session: w.session,
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
