package zktest

// Sessions: how they begin, are taken up again, and end.

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

type session struct {
	id       int64
	password []byte
	timeout  time.Duration
	expires  time.Time // on a tick boundary
	conn     *conn     // nil while nobody is attached
	moved    bool      // another server has it, says MoveSession
}

// firstSessionID is ZooKeeper's: the server in the top byte, milliseconds in the middle, and room below for
// those that follow.
func firstSessionID(server int64, now time.Time) int64 {
	return server<<56 | int64(uint64(now.UnixMilli())<<24>>8)
}

// expiry is when a session touched now ends: the first tick boundary after its timeout has passed, so up to
// one tick later than it asked for.
func (c *cluster) expiry(now time.Time, timeout time.Duration) time.Time {
	ticks := (now.Sub(c.epoch) + timeout) / c.cfg.tick
	return c.epoch.Add((ticks + 1) * c.cfg.tick)
}

// touch is a sign of life.
func (c *cluster) touch(s *session, now time.Time) {
	s.expires = c.expiry(now, s.timeout)
	if c.wakeAt.IsZero() || s.expires.Before(c.wakeAt) {
		c.wakeAt = s.expires
	}
}

// expireDue ends the sessions whose time is over. wakeAt may have been too early, since a touch does not
// move it; here it is set right.
func (c *cluster) expireDue(now time.Time) {
	var due []*session
	c.wakeAt = time.Time{}
	for _, s := range c.sessions {
		if !now.Before(s.expires) {
			due = append(due, s)
		} else if c.wakeAt.IsZero() || s.expires.Before(c.wakeAt) {
			c.wakeAt = s.expires
		}
	}
	slices.SortFunc(due, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	for _, s := range due {
		c.expire(s)
	}
}

// heard notes a sign of life on a connection. A follower keeps it until the leader asks.
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

// endSession is the closeSession transaction: all ephemerals go with one zxid. The session's connections close as the
// transaction reaches them. Only spare stays open, to get an answer first.
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

// expire ends a session that its client did not end; its connection is just closed.
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

// connect answers the first frame of a connection.
//
//   - A client that has seen more than this server is sent away without a word.
//   - A client that asks for a session takes it from the connection that has it, before the server looks at the password.
//   - Session id 0 in the answer says that the session is gone; the connection closes after it.
func (c *cluster) connect(req *request) {
	cn := req.conn
	cn.ep.stats.connects++
	ask, err := decode[wire.ConnectRequest](req.body)
	if err != nil || ask.LastZxidSeen > cn.ep.zxid {
		c.forget(cn)
		return
	}
	// A follower asks the leader about every session. A leader knows its sessions, or believes that it does.
	if !c.active(cn.ep) && (ask.SessionID == 0 || !cn.ep.leads()) {
		c.park(req)
		return
	}
	timeout := time.Duration(ask.Timeout) * time.Millisecond
	timeout = min(max(timeout, c.cfg.minTimeout), c.cfg.maxTimeout)
	var s *session
	if ask.SessionID == 0 {
		s = &session{id: cn.ep.nextSession, password: wire.SessionPassword(cn.ep.nextSession)}
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
		if s != nil && !bytes.Equal(ask.Password, s.password) {
			s = nil
		}
	}
	answer := wire.ConnectResponse{Password: make([]byte, 16), HasReadOnly: ask.HasReadOnly}
	if s == nil {
		c.send(req, wire.Frame(answer), nil)
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
	answer.SessionID, answer.Password = s.id, s.password
	c.whenApplied(req, func() {
		cn.accepted = true
		c.send(req, wire.Frame(answer), nil)
	})
}

// closeSession is the request.
func (c *cluster) closeSession(req *request) {
	cn := req.conn
	c.endSession(cn.session, false, cn)
	c.whenApplied(req, func() {
		c.reply(req, wire.ReplyHeader{Xid: req.xid, Zxid: cn.ep.zxid}, nil)
		c.finish(cn)
	})
}
