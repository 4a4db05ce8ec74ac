package zktest

// The path of a request: arrival, the faults before it, execution, the faults after it, the reply.

import (
	"bytes"
	"errors"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

type request struct {
	conn  *conn
	op    wire.Op
	at    time.Time // of its arrival
	xid   int32
	body  []byte
	paths []string  // the nodes concerned, if there are faults to match
	ids   []wire.ID // of its client when it arrived: an auth that overtakes it has no effect on it
	early verdict   // of the faults before it, while it waits
	asked bool      // Handle's function has been called
	reply *Reply    // of Handle's function
}

// frame handles a frame from a connection: first the connect request, later requests with a header.
func (c *cluster) frame(m message) {
	cn := m.conn
	if cn.gone || cn.deafened {
		return
	}
	cn.got(4 + len(m.body))
	req := &request{conn: cn, op: wire.OpConnect, at: m.at, body: m.body, ids: m.ids}
	if cn.greeted {
		d := wire.NewDecoder(m.body)
		var h wire.RequestHeader
		h.Decode(d)
		if d.Err() != nil {
			c.forget(cn)
			return
		}
		req.op, req.xid, req.body = h.Op, h.Xid, d.Rest()
	}
	cn.greeted = true
	c.count(req)
	if !c.faults.active() {
		c.ask(req)
		return
	}
	req.paths = pathsOf(req.op, req.body)
	v := c.faults.match(happening{when: beforeOp, op: Op(req.op), paths: req.paths, session: cn.sessionID(), member: cn.ep.id})
	c.freezeBy(&v, cn.ep)
	if v.wait.empty() {
		c.decided(req, v)
		return
	}
	req.early = v
	c.meanwhile(req, func() { v.wait.pass(cn.closed) })
}

// meanwhile runs fn outside the loop, and continues the request after fn has returned.
func (c *cluster) meanwhile(req *request, fn func()) {
	cn := req.conn
	cn.waiting++
	c.wg.Go(func() {
		fn()
		select {
		case c.inbox <- message{kind: msgResume, conn: cn, req: req}:
		case <-cn.closed:
		case <-c.closing:
		}
	})
}

// resume continues a request that has waited, and then the requests after it.
func (c *cluster) resume(req *request) {
	cn := req.conn
	cn.waiting--
	if cn.gone || cn.deafened {
		return
	}
	c.decided(req, req.early)
	c.catchUp(cn)
}

// catchUp handles the requests that arrived while one was waiting, up to the next that has to wait.
func (c *cluster) catchUp(cn *conn) {
	for len(cn.backlog) > 0 && cn.waiting == 0 && !cn.gone {
		m := cn.backlog[0]
		cn.backlog = cn.backlog[1:]
		c.frame(m)
	}
}

// decided continues a request after the faults before it.
func (c *cluster) decided(req *request, v verdict) {
	switch {
	case v.expire && req.conn.session != nil:
		c.expire(req.conn.session)
	case v.close:
		c.forget(req.conn)
	case v.fail != 0 && req.op == wire.OpConnect:
		c.send(req, wire.Frame(wire.ConnectResponse{Password: make([]byte, 16)}), wire.ReplyHeader{})
		c.finish(req.conn)
	case v.fail != 0:
		c.fail(req, v.fail)
	default:
		c.ask(req)
	}
}

func (c *cluster) count(req *request) {
	if req.op == wire.OpPing {
		c.pings++
		return
	}
	if req.op == wire.OpConnect {
		return
	}
	id := req.conn.sessionID()
	if c.counts[id] == nil {
		c.counts[id] = make(map[Op]int)
	}
	c.counts[id][Op(req.op)]++
}

// endedLimit is the number of ended sessions whose counts are kept.
const endedLimit = 1000

// sessionEnded moves the counts of the session that ended endedLimit sessions ago to the counts
// without a session, so that the totals remain.
func (c *cluster) sessionEnded(id int64) {
	if c.counts[id] == nil {
		return
	}
	if c.ended = append(c.ended, id); len(c.ended) <= endedLimit {
		return
	}
	oldest := c.ended[0]
	c.ended = c.ended[1:]
	if c.counts[0] == nil {
		c.counts[0] = make(map[Op]int)
	}
	for op, n := range c.counts[oldest] {
		c.counts[0][op] += n
	}
	delete(c.counts, oldest)
}

// perform executes the request and replies.
func (c *cluster) perform(req *request) {
	cn := req.conn
	if !cn.ep.serving() {
		c.forget(cn) // looking for a leader
		return
	}
	switch req.op {
	case wire.OpConnect:
		c.connect(req)
		return
	case wire.OpAuth:
		c.auth(req)
		return
	case wire.OpSASL:
		c.sasl(req)
		return
	}
	if c.cfg.saslRequired && cn.sasl.User == "" {
		c.refuse(req, wire.AuthRequired, nil)
		return
	}
	if cn.session == nil {
		return // the connect exchange failed, and the connection closes soon
	}
	if isWrite(req.op) || req.op == wire.OpSync {
		if !c.active(cn.ep) {
			c.park(req)
			return
		}
		if c.sessions[cn.session.id] != cn.session && req.op != wire.OpSync {
			// The session has ended, but this member does not show that yet. The request must have
			// no effect, and in particular create no ephemeral node. The end of the session closes
			// the connection before any reply.
			c.commit(c.begin(cn.session.id))
			c.whenApplied(req, func() { c.fail(req, wire.SessionExpired) })
			return
		}
	}
	if c.hasMoved(req) {
		if isWrite(req.op) {
			c.commit(c.begin(cn.session.id))
		}
		c.whenApplied(req, func() { c.finish(cn) }) // without a reply, as ZooKeeper does
		return
	}
	switch req.op {
	case wire.OpPing:
		c.reply(req, wire.ReplyHeader{Xid: wire.XidPing, Zxid: cn.ep.zxid}, nil)
	case wire.OpClose:
		c.closeSession(req)
	default:
		do := handlers[req.op]
		if do == nil {
			c.reply(req, wire.ReplyHeader{Xid: req.xid, Zxid: -1, Err: wire.Unimplemented}, nil)
			c.finish(cn)
			return
		}
		rec, err := do(c, req)
		answer := func() {
			if err != nil {
				c.fail(req, codeOf(err))
			} else {
				c.reply(req, wire.ReplyHeader{Xid: req.xid, Zxid: cn.ep.zxid}, rec)
			}
		}
		if isWrite(req.op) || req.op == wire.OpSync {
			c.whenApplied(req, answer)
		} else {
			answer()
		}
	}
}

// hasMoved reports whether the leader rejects the request because the session is now attached to
// another member. A follower forwards only writes to the leader, and sync, which the leader does
// not reject then. The leader itself gets every request of its clients. It never rejects the end of
// a session (PrepRequestProcessor).
func (c *cluster) hasMoved(req *request) bool {
	cn := req.conn
	if !cn.session.moved && cn.session.conn == cn {
		return false
	}
	if cn.ep.replica != nil && cn.ep == c.quorum.leader && cn.ep.leads() {
		return req.op != wire.OpClose
	}
	return isWrite(req.op) && req.op != wire.OpClose
}

// decodable is a pointer to a record.
type decodable[T any] interface {
	*T
	Decode(*wire.Decoder)
}

func decode[T any, P decodable[T]](body []byte) (rec T, err error) {
	d := wire.NewDecoder(body)
	P(&rec).Decode(d)
	return rec, d.Err()
}

// codeOf returns the code that is sent for an error: rules return codes, and a body that cannot be
// decoded is a marshalling error.
func codeOf(err error) wire.Code {
	var code wire.Code
	if errors.As(err, &code) {
		return code
	}
	return wire.MarshallingError
}

// handlers holds every request whose reply is a header with the last zxid and a record.
var handlers map[wire.Op]func(*cluster, *request) (wire.Record, error)

func init() { // not a composite literal: the handlers refer to this map
	handlers = map[wire.Op]func(*cluster, *request) (wire.Record, error){
		wire.OpCreate:               (*cluster).create,
		wire.OpCreate2:              (*cluster).create,
		wire.OpCreateContainer:      (*cluster).create,
		wire.OpCreateTTL:            (*cluster).create,
		wire.OpDelete:               (*cluster).delete,
		wire.OpSetData:              (*cluster).setData,
		wire.OpSetACL:               (*cluster).setACL,
		wire.OpReconfig:             (*cluster).reconfig,
		wire.OpMulti:                (*cluster).multi,
		wire.OpMultiRead:            (*cluster).multiRead,
		wire.OpExists:               (*cluster).exists,
		wire.OpGetData:              (*cluster).getData,
		wire.OpGetChildren:          (*cluster).getChildren,
		wire.OpGetChildren2:         (*cluster).getChildren,
		wire.OpGetACL:               (*cluster).getACL,
		wire.OpSync:                 (*cluster).sync,
		wire.OpGetAllChildrenNumber: (*cluster).getAllChildrenNumber,
		wire.OpGetEphemerals:        (*cluster).getEphemerals,
		wire.OpWhoAmI:               (*cluster).whoAmI,
		wire.OpSetWatches:           (*cluster).setWatches,
		wire.OpSetWatches2:          (*cluster).setWatches,
		wire.OpAddWatch:             (*cluster).addWatch,
		wire.OpCheckWatches:         (*cluster).checkWatches,
		wire.OpRemoveWatches:        (*cluster).removeWatches,
	}
}

func isWrite(op wire.Op) bool {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpReconfig, wire.OpMulti, wire.OpClose:
		return true
	}
	return false
}

func (c *cluster) fail(req *request, code wire.Code) {
	c.reply(req, wire.ReplyHeader{Xid: req.xid, Zxid: req.conn.ep.zxid, Err: code}, nil)
}

func (c *cluster) reply(req *request, h wire.ReplyHeader, rec wire.Record) {
	cn := req.conn
	cn.replied(req, h)
	records := []wire.Record{h}
	if rec != nil {
		records = append(records, rec)
	}
	c.send(req, wire.Frame(records...), h)
}

// send queues a reply, unless a fault prevents it. The connect exchange has no header: h is zero.
func (c *cluster) send(req *request, frame []byte, h wire.ReplyHeader) {
	cn := req.conn
	size := int64(0) // the size of the connect response does not count
	if req.op != wire.OpConnect {
		if size = int64(len(frame) - 4); req.op != wire.OpPing {
			cn.ep.stats.bytesSent += size
		}
	}
	cn.gave(size)
	var v verdict
	if c.faults.active() {
		v = c.faults.match(happening{when: afterOp, code: h.Err, op: Op(req.op), paths: req.paths, session: cn.sessionID(), member: cn.ep.id})
	}
	if v.fail != 0 && req.op != wire.OpConnect {
		frame = wire.Frame(wire.ReplyHeader{Xid: h.Xid, Zxid: h.Zxid, Err: v.fail})
	}
	frame = bytes.Repeat(frame, 1+v.duplicates)
	if v.dropReply {
		frame = nil
	}
	c.freezeBy(&v, cn.ep)
	cn.out.put(outItem{data: frame, wait: c.elsewhere(v.wait)})
	if v.expire && cn.session != nil {
		if s := c.sessions[cn.session.id]; s != nil {
			c.endSession(s, true, cn)
		}
		c.finish(cn)
	}
	if v.close {
		c.finish(cn)
	}
}

// pathsOf returns the paths of a request, for faults. An invalid body has none.
func pathsOf(op wire.Op, body []byte) []string {
	d := wire.NewDecoder(body)
	switch op {
	case wire.OpMulti, wire.OpMultiRead:
		var m wire.MultiRequest
		m.Decode(d)
		var paths []string
		for _, o := range m.Ops {
			paths = append(paths, o.Path)
		}
		return paths
	case wire.OpConnect, wire.OpAuth, wire.OpSASL, wire.OpPing, wire.OpClose, wire.OpWhoAmI, wire.OpReconfig:
		return nil
	case wire.OpSetWatches, wire.OpSetWatches2:
		var w wire.SetWatchesRequest
		w.Decode(d)
		return append(append(w.Data, w.Exist...), w.Child...)
	}
	path := d.Text()
	if d.Err() != nil {
		return nil
	}
	return []string{path}
}
