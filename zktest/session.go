package zktest

// Sessions: creation, re-attachment and end.

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

type session struct {
	id      int64
	timeout time.Duration
	expires time.Time // on a tick boundary
	conn    *conn     // nil while no client is attached
	moved   bool      // to another server, by MoveSession
}

// firstSessionID has ZooKeeper's format: the server in the top byte, milliseconds in the middle,
// and the low bits for the sessions that follow.
func firstSessionID(server int64, now time.Time) int64 {
	return server<<56 | int64(uint64(now.UnixMilli())<<24>>8)
}

// touch renews a session. It expires at the first tick boundary after its timeout, so up to one
// tick later than requested.
func (c *cluster) touch(s *session, now time.Time) {
	s.expires = c.boundary(now.Add(s.timeout), c.cfg.tick)
	c.wakeAt = earlier(c.wakeAt, s.expires)
}

// expireDue ends the sessions that have timed out, and sets wakeAt, which may have been too early
// because a touch does not move it.
func (c *cluster) expireDue(now time.Time) {
	var over []*session
	c.wakeAt = time.Time{}
	for _, s := range c.sessions {
		if !now.Before(s.expires) {
			over = append(over, s)
		} else {
			c.wakeAt = earlier(c.wakeAt, s.expires)
		}
	}
	slices.SortFunc(over, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	for _, s := range over {
		c.expire(s)
	}
}

// heard renews a connection's session. A follower keeps the renewal until the leader's next ping.
func (c *cluster) heard(cn *conn) {
	s := cn.session
	switch {
	case s == nil || cn.gone || cn.deafened:
	case c.quorum != nil && c.quorum.leader != cn.ep:
		cn.ep.replica.touched[s] = struct{}{}
	default:
		c.touch(s, time.Now())
	}
}

// endSession is the closeSession transaction, which deletes all ephemerals with one zxid. The
// session's connections close when the transaction reaches them. Only spare remains open until its
// reply has been sent.
func (c *cluster) endSession(s *session, expired bool, spare *conn) {
	tx := c.begin(s.id)
	tx.closes, tx.expired, tx.spare = s.id, expired, spare
	for _, path := range slices.Sorted(maps.Keys(c.tree.ephemerals[s.id])) {
		c.do(tx, change{kind: changeDelete, path: path, owner: s.id})
	}
	delete(c.tree.ephemerals, s.id)
	delete(c.sessions, s.id)
	c.sessionEnded(s.id)
	c.commit(tx)
}

// expire ends a session that its client did not close; its connection gets no reply.
func (c *cluster) expire(s *session) {
	c.endSession(s, true, nil)
}

func (c *cluster) expireID(id int64) bool {
	s := c.sessions[id]
	if s != nil {
		c.expire(s)
	}
	return s != nil
}

// connect handles the first frame of a connection.
//
//   - If the client has seen a later zxid than this server, the connection closes without a
//     response.
//   - A client that requests a session takes it from the connection that has it, before the server
//     checks the password.
//   - Session id 0 in the response reports that the session has ended; then the connection closes.
func (c *cluster) connect(req *request) {
	cn := req.conn
	cn.ep.stats.connects++
	ask, err := decode[wire.ConnectRequest](req.body)
	if err != nil || ask.LastZxidSeen > cn.ep.zxid {
		c.forget(cn)
		return
	}
	// A follower checks every session with the leader. A leader knows all sessions, or believes so.
	if !c.active(cn.ep) && (ask.SessionID == 0 || !cn.ep.leads()) {
		c.park(req)
		return
	}
	timeout := time.Duration(ask.Timeout) * time.Millisecond
	timeout = min(max(timeout, c.cfg.minTimeout), c.cfg.maxTimeout)
	var s *session
	if ask.SessionID == 0 {
		s = &session{id: cn.ep.nextSession}
		cn.ep.nextSession++
		c.sessions[s.id] = s
		tx := c.begin(s.id)
		tx.opens = s.id
		c.commit(tx)
		cn.replied(req, wire.ReplyHeader{Zxid: tx.zxid})
	} else {
		s = c.sessions[ask.SessionID]
		if old := cn.ep.attached[ask.SessionID]; old != nil {
			c.forget(old)
		}
		if s != nil && !bytes.Equal(ask.Password, wire.SessionPassword(s.id)) {
			s = nil
		}
	}
	answer := wire.ConnectResponse{Password: make([]byte, 16), HasReadOnly: ask.HasReadOnly}
	if s == nil {
		c.send(req, wire.Frame(answer), wire.ReplyHeader{})
		c.finish(cn)
		return
	}
	cn.session = s
	cn.ep.attached[s.id] = cn
	if c.active(cn.ep) || c.quorum.leader == cn.ep && cn.ep.leads() {
		s.conn, s.timeout, s.moved = cn, timeout, false
		c.touch(s, time.Now())
	}
	answer.Timeout = int32(timeout.Milliseconds())
	answer.SessionID, answer.Password = s.id, wire.SessionPassword(s.id)
	c.whenApplied(req, func() {
		cn.accepted = true
		c.send(req, wire.Frame(answer), wire.ReplyHeader{})
	})
}

func (c *cluster) closeSession(req *request) {
	cn := req.conn
	c.endSession(cn.session, false, cn)
	c.whenApplied(req, func() {
		c.reply(req, wire.ReplyHeader{Xid: req.xid, Zxid: cn.ep.zxid}, nil)
		c.finish(cn)
	})
}
