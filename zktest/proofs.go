package zktest

import "github.com/go-zookeeper/zk"

// For proofs about a lock itself, such as zklock's own: events that no client can cause and that
// the tests of a service do not need.

// CreateAs works like Create in the name of a live session, so that an ephemeral node has an owner.
// The server acts as if the session's client had sent the request, without the client's knowledge.
func (a admin) CreateAs(session int64, path string, data []byte, mode Mode, acl ...zk.ACL) (string, error) {
	return a.create(session, path, data, mode, acl)
}

// MoveSession makes the server believe that the session is now attached to another server. It does
// not execute the next write on the old connection, but closes the connection without a reply, as a
// real ensemble does (SessionMoved). Reads and pings get replies, as from a follower; the leader of
// an [Ensemble] closes the connection at those, too. When the client attaches again, the session
// returns. MoveSession reports whether the session exists.
func (a admin) MoveSession(id int64) (ok bool) {
	a.c.call(func() {
		if s := a.c.sessions[id]; s != nil {
			s.moved, ok = true, true
		}
	})
	return ok
}

// LoseTouches makes the member forget the session renewals that it has not yet sent to the leader,
// although the clients have had their replies. A race in a real follower's table loses some in this
// way. LoseTouches returns the number of sessions that lose a renewal: 0 at the leader.
func (m *Member) LoseTouches() (sessions int) {
	m.ep.c.call(func() {
		sessions = len(m.ep.replica.touched)
		clear(m.ep.replica.touched)
	})
	return sessions
}
