package zklock

// walk is the way of one node to the front of its queue: what to do next, and the facts which that rests on. Its methods are
// pure. The attempt does what it says (attempt.go), and explore_test.go goes through all that can come of it.
//
//	toList ─┬──▶ toStandBehind ─┬─▶ toWatchOwn ──▶ toWatchAhead ──▶ toWatchSecond ──▶ toAwait ──▶ toGrant
//	        │                   └─▶ toAwaitTurn ──▶ toGrant
//	        └──▶ toGrant
//
// A predecessor of our own session passes the turn to us when it is released (turn.go). Any other is watched.
//
// The node ahead of the predecessor is watched for speed only. When it goes, we are probably second in line, and list while
// the predecessor still holds. Then the predecessor's deletion grants without another request.
//
// All other stages lead back to toList if the facts are not enough, and to toQueueAgain if our own node is gone. toEnd is for
// the end of the counter.
//
// If the predecessor is gone before we can watch it, that counts as its deletion event: the answer came over the same
// connection, after the one that showed our node.
type walk struct {
	next stage

	early   bool  // the list was sent before the node was known to be made
	session int64 // the ZooKeeper session of the node

	ahead    int   // how many nodes were ahead in the list
	second   bool  // it is known who is ahead of the predecessor
	tied     bool  // nobody knows which of several nodes is the predecessor
	replaced bool  // another node may take its place when it goes
	owner    int64 // the ZooKeeper session of the predecessor

	listConn, ownConn, aheadConn uint64 // over which the list and the two watches were answered; 0 before
}

// stage is what a walk does next.
type stage uint8

const (
	toList        stage = iota // list the queue
	toStandBehind              // have the predecessor tell us, if it is a node of our own session
	toAwaitTurn                // wait until it does
	toWatchOwn                 // watch our own node first: if both nodes are deleted, we must hear about ours
	toWatchAhead               // watch the predecessor
	toWatchSecond              // watch the node ahead of the predecessor
	toAwait                    // wait for an event of one of them, or for another connection
	toGrant                    // nobody is ahead
	toQueueAgain               // our node has no place of its own in the queue: begin again at the tail
	toEnd                      // nobody is granted here (exhausted)
)

// finding is what a request has shown.
type finding uint8

const (
	isThere finding = iota // the node is there, or the list
	isGone                 // it is not
	notTold                // nobody knows
)

// listed takes the node's place in a list that was answered over conn.
func (w walk) listed(p place, conn uint64) walk {
	early := w.early
	w.early = false
	switch p.kind {
	case missing:
		if early { // the list followed a create that was lost; our node was made by a later one
			return w.anew(toList)
		}
		return w.anew(toQueueAgain)
	case front:
		return w.anew(toGrant)
	case behind:
		w.next, w.listConn = toStandBehind, conn
		w.ahead, w.second, w.tied, w.replaced = p.ahead, p.second != "", p.tied, p.replaced
	case twin:
		return w.anew(toQueueAgain)
	case exhausted:
		return w.anew(toEnd)
	}
	return w
}

// anew forgets what the walk rested on.
func (w walk) anew(next stage) walk { return walk{next: next, session: w.session} }

// notListed takes a list that failed. Without its lock root, our node is gone too (R5, R58), unless the list went out with a
// create that was lost: ours came later, and perhaps the root.
func (w walk) notListed(r finding) walk {
	if r == isGone && !w.early {
		return w.anew(toQueueAgain)
	}
	return w.anew(toList)
}

// stoodBehind takes whether the predecessor will tell us. If it is only one of several with its number, we watch it all the
// same: another may be ahead of us when it is released.
func (w walk) stoodBehind(ok bool) walk {
	w.next = toWatchOwn
	if ok && !w.tied {
		w.next = toAwaitTurn
	}
	return w
}

// turned takes what the predecessor told us.
func (w walk) turned(t turn) walk {
	switch t {
	case turnIsYours:
		return w.anew(toGrant)
	case nodeIsGone:
		return w.anew(toQueueAgain)
	}
	return w.anew(toList)
}

// watched takes the answer to the read that sets a watch, over conn: owner is the ZooKeeper session of the node, 0 if it is gone.
func (w walk) watched(r finding, owner int64, conn uint64) walk {
	switch {
	case w.next == toWatchSecond && r != isGone: // if we cannot have the watch, we wait without it
		w.next = toAwait
	case r == isThere && w.next == toWatchOwn:
		w.next, w.ownConn = toWatchAhead, conn
	case r == isThere:
		w.next, w.owner, w.aheadConn = toAwait, owner, conn
		if w.second {
			w.next = toWatchSecond
		}
	case r == isGone && w.next == toWatchOwn:
		return w.anew(toQueueAgain)
	case r == isGone && w.next == toWatchAhead: // as good as its event: the rule says what that proves
		w.next, w.aheadConn = toAwait, conn
	default: // nobody knows, or the node ahead of the predecessor is gone: we keep our node (R55)
		return w.anew(toList)
	}
	return w
}

// moved takes the present connection, 0 if there is none. If it is not the list's, no event is enough for a grant.
func (w walk) moved(conn uint64) walk {
	if conn != 0 && conn != w.listConn {
		return w.anew(toList)
	}
	return w
}

// secondEvent takes an event of the node ahead of the predecessor: we are probably second in line.
func (w walk) secondEvent() walk { return w.anew(toList) }

// ownEvent takes an event of our own node.
func (w walk) ownEvent(isDeletion bool) walk {
	if isDeletion {
		return w.anew(toQueueAgain)
	}
	return w.anew(toList)
}

// evidence returns what the waiter knows when the event of its predecessor has come. It takes whether that event is a deletion,
// the present connection, and whether an event of our own node has come.
func (w walk) evidence(isDeletion bool, conn uint64, ownFired bool) evidence {
	return evidence{
		ahead: w.ahead, replaced: w.replaced, deleted: isDeletion, owner: w.owner, session: w.session,
		conn: conn, listConn: w.listConn, ownConn: w.ownConn, aheadConn: w.aheadConn, ownFired: ownFired,
	}
}

// ruled takes what the rule says of the evidence.
func (w walk) ruled(inFront bool) walk {
	if inFront {
		return w.anew(toGrant)
	}
	return w.anew(toList)
}
