package queue

// Row is what a ZooKeeper session has observed of its last hold in a lock root: a mutex's, or a
// hold of another kind, whose node had no other node in the queue. It proves that the next node
// there is first in the queue, without a list, if the two nodes' numbers are in a row.
//
// A server numbers a new node with the count of children that were ever created in the lock root.
// So if our next node has the next number, no client has created a node between the two, and only
// our own node, which is deleted, was there before.
//
// Only a hold leaves a Row. A node that was given up may have had other nodes ahead, which can
// still exist: another client holds 1, ours is 2 and is deleted, and then 3 follows 2. And the next
// node must be of the same kind: an election rejects a queue with latch nodes, which a mutex ignores.
type Row struct {
	Number  int64 // of the hold's node
	Deleted bool  // the node no longer exists

	// The list on which the hold rests, or on which the first hold in the row rests.
	Alone  bool  // it showed no other node (IsAlone)
	Root   int64 // the mzxid of the lock root
	Recent bool  // it is at most a session timeout old

	// The watch on the lock root that is set, and has had no event.
	WatchConn uint64 // the connection over which it was set; 0 if there is none
	WatchRoot int64  // the mzxid of the lock root at that time
}

// Precedes is the rule by which a create grants: it reports that the node with that number, whose
// create was answered over conn, is first in the queue. Row must be as observed after that response,
// so that every event before the response has arrived. Every clause must hold; otherwise the session
// lists. row_model_test.go shows what happens without each clause.
func (r Row) Precedes(number int64, conn uint64) bool {
	// A client that creates nodes by name can have created one with the next number in advance.
	// That node would be a twin of ours (PositionOf).
	if !r.Alone {
		return false
	}
	if !r.Deleted || number != r.Number+1 || (Member{Seq: number}).PastTheEnd() {
		return false
	}
	// Both nodes must be in one lock root, because the counter of a new root begins again and may
	// reach our number. The watch shows that. When it was set, the root was the one that the list
	// had shown with our node. Since then any event would have ended the watch, and it would have
	// arrived before the create's response, because both are of one connection.
	if r.WatchRoot != r.Root || conn == 0 || r.WatchConn != conn {
		return false
	}
	// This proof rests on an event that does not arrive. If a server loses the event, or withholds
	// it because the permission READ was removed, a new root's node can have our number. So the
	// session lists at least once every session timeout.
	if !r.Recent {
		return false
	}
	return true
}

// IsAlone reports whether a list shows a single node in the queue.
func IsAlone(children, markers []string) bool {
	n := 0
	for _, c := range children {
		if _, ok := Parse(c, markers); ok {
			n++
		}
	}
	return n == 1
}

// InARow handles the verdict that our node is in a row (Row.Precedes). The response to its create
// arrived over conn.
func (w Machine) InARow(conn uint64) Machine { return w.first(conn) }
