package zktest

import "github.com/zklock/zklock/internal/wire"

// Request is the request that [Server.Handle] passes to its function. Fields that a kind of request
// does not have are zero.
type Request struct {
	Op      Op
	Path    string
	Data    []byte // of a create or setData
	Mode    Mode   // of a create
	Version int32  // of a delete, setData or setACL
	Watch   bool   // of an exists, getData or getChildren
	Session int64
	Member  int // of the ensemble; 1 for a server
}

// Reply is sent instead of the server's own reply. If Code is not zero, the request fails with it,
// and the other fields are ignored. As with ZooKeeper, the request determines which fields its
// client gets.
type Reply struct {
	Code     Code
	Path     string // of a created node; the request's if empty
	Data     []byte
	Children []string
	Stat     Stat
}

// Handle lets fn answer requests instead of the server. A nil fn ends that. If fn returns false,
// the server executes the request as usual. fn gets all requests except those for the connection
// itself (connect, ping, auth, SASL, close). It can answer a multi and the rarer requests only with
// a Code; otherwise the server executes them. Calls for one connection are in order; calls for
// different connections may be concurrent. fn may call the server's methods, but not Close. Faults
// apply before and after fn.
func (a admin) Handle(fn func(Request) (Reply, bool)) {
	a.c.call(func() { a.c.handler = fn })
}

// ask calls Handle's function, if there is one, or executes the request.
func (c *cluster) ask(req *request) {
	if req.reply != nil && c.answer(req, *req.reply) {
		return
	}
	fn := c.handler
	if fn == nil || req.asked || req.conn.session == nil {
		c.perform(req)
		return
	}
	switch req.op {
	case wire.OpConnect, wire.OpPing, wire.OpAuth, wire.OpSASL, wire.OpClose:
		c.perform(req)
		return
	}
	req.asked, req.early = true, verdict{}
	asked := requestOf(req)
	c.meanwhile(req, func() {
		if reply, ok := fn(asked); ok {
			req.reply = &reply
		}
	})
}

// requestOf parses a request. An invalid body yields no path.
func requestOf(req *request) Request {
	r := Request{Op: Op(req.op).common(), Session: req.conn.sessionID(), Member: req.conn.ep.id}
	switch req.op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		ask, _ := decode[wire.CreateRequest](req.body)
		r.Path, r.Data, r.Mode = ask.Path, ask.Data, Mode(ask.Flags)
	case wire.OpSetData:
		ask, _ := decode[wire.SetDataRequest](req.body)
		r.Path, r.Data, r.Version = ask.Path, ask.Data, ask.Version
	case wire.OpSetACL:
		ask, _ := decode[wire.SetACLRequest](req.body)
		r.Path, r.Version = ask.Path, ask.Version
	case wire.OpDelete:
		ask, _ := decode[wire.PathVersionRequest](req.body)
		r.Path, r.Version = ask.Path, ask.Version
	case wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2:
		ask, _ := decode[wire.PathWatchRequest](req.body)
		r.Path, r.Watch = ask.Path, ask.Watch
	default:
		if paths := pathsOf(req.op, req.body); len(paths) == 1 {
			r.Path = paths[0]
		}
	}
	return r
}

// answer sends a reply from Handle's function, and reports whether this kind of request allows one.
func (c *cluster) answer(req *request, reply Reply) bool {
	if reply.Code != 0 {
		c.fail(req, wire.Code(reply.Code))
		return true
	}
	if reply.Path == "" {
		reply.Path = requestOf(req).Path
	}
	stat := reply.Stat.wire()
	var rec wire.Record
	switch req.op {
	case wire.OpCreate, wire.OpSync:
		rec = wire.PathResponse{Path: reply.Path}
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		rec = wire.PathStatResponse{Path: reply.Path, Stat: stat}
	case wire.OpExists, wire.OpSetData, wire.OpSetACL:
		rec = stat
	case wire.OpGetData:
		rec = wire.DataResponse{Data: reply.Data, Stat: stat}
	case wire.OpGetChildren:
		rec = wire.StringsResponse{Strings: reply.Children}
	case wire.OpGetChildren2:
		rec = wire.ChildrenStatResponse{Children: reply.Children, Stat: stat}
	case wire.OpDelete:
	default:
		return false
	}
	c.reply(req, wire.ReplyHeader{Xid: req.xid, Zxid: req.conn.ep.zxid}, rec)
	return true
}

func (s Stat) wire() wire.Stat {
	return wire.Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Pzxid: s.Pzxid, Ctime: s.Ctime, Mtime: s.Mtime,
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion, EphemeralOwner: s.EphemeralOwner,
		DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
}
