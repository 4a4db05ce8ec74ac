package zklock

import (
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// Rows: a Session that takes a lock again and again needs no list if the sequence numbers of its
// nodes show that no other client has created a node meanwhile (queue.Row). Then a cycle is two
// requests. Semaphores and locks with a lock-delay always list.
//
//	release   noteRow    the hold's number, its list, and its deletion
//	acquire   expectsRow if the next number is likely ours, the create is sent without a list
//	          adopt      if the node is in the row, it is granted; if not, the queue is listed
//
// A miss costs no request, but a round trip. So a row is expected after two acquires that were, or
// would have been, in a row. Each miss doubles that number (isExpected).

// rootView is a list of a lock root. A grant rests on a list that shows the hold's own node, or the
// node of the first hold in its row (row.go).
type rootView struct {
	czxid int64 // of the lock root: a root that was deleted and created again has lost our node
	mzxid int64
	at    clock.Instant // before the list was sent
	alone bool          // it showed no other node in the queue
}

// rowNotes are the notes of the last hold that this Session released at a lock root. They may
// outlive the hold's ZooKeeper session, so they do not refer to it.
type rowNotes struct {
	isTaken  bool   // a call has begun to take the lock since the last release (newroot.go)
	session  int64  // ZKSession.ID
	kind     string // lockRoot.kind
	number   int64
	seen     rootView
	deletion *nodes.Deletion // nil if no hold was released
	inRow    int             // how many acquires in succession were in a row, or would have been
	misses   int             // how many times a row was expected in vain since the last one
}

// isEvictedFirst: each use of a lock makes these notes.
func (*rowNotes) isEvictedFirst() {}

// isExpected reports whether the next acquire is expected to be in a row. Two Sessions that take
// turns in short bursts would miss in each burst if a miss changed nothing.
func (n rowNotes) isExpected() bool { return n.inRow >= 2<<min(n.misses, 5) }

// numberOf returns the sequence number of a lock node.
func (r *lockRoot) numberOf(node string) int64 {
	m, _ := queue.Parse(node[len(r.path)+1:], r.rule.Markers)
	return m.Seq
}

// rowIn returns the notes of the last hold and the evidence in them, if the hold was of the same
// session and kind.
func (r *lockRoot) rowIn(e *zkSession) (n rowNotes, row queue.Row, ok bool) {
	n = notesOn[rowNotes](r)
	if r.kind == "" || n.session != e.ID || n.kind != r.kind {
		return n, row, false
	}
	row = queue.Row{
		Number: n.number, Deleted: isClosed(n.deletion.Done),
		Alone: n.seen.alone, Root: n.seen.mzxid, Recent: e.Clock.Now().Sub(n.seen.at) <= e.Timeout(),
	}
	if on := e.watches.rootWatch(r.path); on != nil && on.isArmed() {
		row.WatchConn, row.WatchRoot = on.conn, on.stat.Mzxid
	}
	return n, row, true
}

// expectsRow reports whether the next node is likely to be in a row.
func (r *lockRoot) expectsRow(e *zkSession) bool {
	n, row, ok := r.rowIn(e)
	if !ok || !n.isExpected() {
		return false
	}
	conn, _, _ := e.AttachedConn()
	row.Deleted = true // if not yet, the response to the delete probably arrives before the create's
	return row.Precedes(row.Number+1, conn)
}

// isInRow reports whether a new node, whose create was answered over conn, is in a row, and returns
// the list on which the row rests. It counts the nodes that would be in a row if the lock root were
// watched, and watches the root if they suffice.
func (r *lockRoot) isInRow(e *zkSession, node string, conn uint64) (seen rootView, ok bool) {
	n, row, ok := r.rowIn(e)
	if !ok {
		return seen, false
	}
	number := r.numberOf(node)
	ok = row.Precedes(number, conn)
	row.WatchConn, row.WatchRoot = conn, row.Root
	if number == row.Number+1 {
		e.watches.keepRoot(r.path)
	}
	switch wasExpected := n.isExpected(); {
	case ok && wasExpected:
		n.inRow, n.misses = n.inRow+1, 0
	case row.Precedes(number, conn):
		n.inRow++
	default:
		n.inRow = 0
		if wasExpected && number != row.Number+1 { // not if only the list was too old
			n.misses++
		}
	}
	note(r, func(now *rowNotes) { now.inRow, now.misses = n.inRow, n.misses })
	if n.isExpected() {
		e.watches.watchRoot(r.path, n.seen.mzxid)
	}
	return n.seen, ok
}

// noteRow notes the release of a hold: its list, and the deletion of its node.
func (r *lockRoot) noteRow(e *zkSession, node string, seen rootView, x *nodes.Deletion) {
	if r.kind == "" {
		return
	}
	number := r.numberOf(node)
	note(r, func(n *rowNotes) {
		n.isTaken, n.session, n.kind, n.number, n.seen, n.deletion = false, e.ID, r.kind, number, seen, x
	})
}
