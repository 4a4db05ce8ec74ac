package zktest

import "github.com/go-zookeeper/zk"

// For proofs about a lock itself, such as zklock's own: events that a client cannot bring about and a service's test has
// no use for.

// CreateAs is Create in the name of a session that is alive, so that an ephemeral node has an owner:
// the session's client has sent the request, and knows nothing of it.
func (a admin) CreateAs(session int64, path string, data []byte, mode Mode, acl ...zk.ACL) (string, error) {
	return a.create(session, path, data, mode, acl)
}

// MoveSession makes the server believe that the session is attached to another server now. The next write on the old
// connection is not done and not answered: the server closes the connection, as a real ensemble does (SessionMoved).
// Reads and pings are answered, as by a follower; the leader of an [Ensemble] closes the connection at those, too.
// Attaching again brings the session back. MoveSession reports whether there is such a session.
func (a admin) MoveSession(id int64) (ok bool) {
	a.c.call(func() {
		if s := a.c.sessions[id]; s != nil {
			s.moved, ok = true, true
		}
	})
	return ok
}

// LoseTouches makes the member forget the signs of life that it has not passed on to the leader yet, although the
// clients have had their answers. A race in a real follower's table loses some in this way. LoseTouches returns the number of
// sessions whose sign of life was forgotten: 0 at the leader.
func (m *Member) LoseTouches() (sessions int) {
	m.e.c.call(func() {
		sessions = len(m.ep.replica.touched)
		clear(m.ep.replica.touched)
	})
	return sessions
}
