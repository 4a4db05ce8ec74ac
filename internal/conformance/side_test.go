package conformance

// One of the two servers, and its replies in a form that can be compared.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
)

// side is a server and the sessions on it, which have the same index on both sides.
type side struct {
	name  string
	addrs []string              // where each session connects to
	base  int64                 // what zxids begin at: an ensemble begins in epoch 1
	conns []*rawzk.Conn         // by session
	keys  []wire.ConnectRequest // the keys to attach to each session again
	names map[int64]string      // session ids, by their names in the comparison
}

// outcome is the result of an operation: its own reply, and the events of all sessions up to the
// barrier.
type outcome struct {
	reply  string
	events [][]string // by session
}

func (o outcome) String() string {
	s := o.reply
	for i, evs := range o.events {
		if len(evs) > 0 {
			s += fmt.Sprintf("\n  session %d: %s", i, strings.Join(evs, ", "))
		}
	}
	return s
}

func newSide(t testing.TB, name string, addrs ...string) *side {
	s := &side{name: name, names: map[int64]string{0: "none"}}
	for i := range sessions {
		s.addrs = append(s.addrs, addrs[i%len(addrs)])
		s.conns = append(s.conns, nil)
		s.keys = append(s.keys, wire.ConnectRequest{})
	}
	t.Cleanup(func() {
		for _, c := range s.conns {
			if c != nil {
				c.Close()
			}
		}
	})
	return s
}

// connect opens a connection for the session and returns the server's reply.
func (s *side) connect(i int, req wire.ConnectRequest, generation int) string {
	if s.conns[i] != nil {
		// When a real server has finished a connection, it forgets which connection the session
		// has, even if that is a newer one by now. It could then not close the newer one for a
		// wrong password.
		s.conns[i].HangUp()
	}
	c, err := rawzk.Dial(s.addrs[i])
	if err != nil {
		return "cannot dial"
	}
	s.conns[i] = c
	if req.LastZxidSeen != 0 {
		req.LastZxidSeen += s.base
	}
	if err := c.Connect(req); err != nil {
		return "closed"
	}
	if c.Session.SessionID != 0 {
		if _, known := s.names[c.Session.SessionID]; !known {
			s.names[c.Session.SessionID] = fmt.Sprintf("session-%d.%d", i, generation)
		}
		s.keys[i] = wire.ConnectRequest{Timeout: req.Timeout, SessionID: c.Session.SessionID, Password: c.Session.Password}
	}
	return fmt.Sprintf("connected to %s, timeout %d, readOnly %v %v, %d bytes of password",
		s.names[c.Session.SessionID], c.Session.Timeout, c.Session.HasReadOnly, c.Session.ReadOnly, len(c.Session.Password))
}

// call sends one request on one session and returns the result. sorted means that its events may
// arrive in any order.
func (s *side) call(i int, req request) outcome {
	o := outcome{events: make([][]string, len(s.conns))}
	body := req.body
	switch b := body.(type) {
	case wire.SetWatchesRequest:
		b.RelativeZxid = s.own(b.RelativeZxid)
		body = b
	case wire.SetWatches2Request:
		b.RelativeZxid = s.own(b.RelativeZxid)
		body = b
	}
	switch reply, events, err := s.conns[i].Call(req.op, body); {
	case err != nil:
		o.add(s, i, events)
		o.reply = "closed"
	default:
		o.add(s, i, events)
		o.reply = s.describe(req.op, reply)
	}
	if req.closes {
		// The server has announced that it will close: wait for it, so that no later request can
		// arrive before.
		for {
			r, err := s.conns[i].Receive()
			if err != nil {
				break
			}
			o.add(s, i, []rawzk.Reply{r})
		}
		o.reply += ", closed"
	}
	s.barrier(&o, req)
	return o
}

// barrier pings every session: the response arrives after every event that the operation caused.
func (s *side) barrier(o *outcome, req request) {
	for i, c := range s.conns {
		reply, events, err := c.Call(wire.OpPing, nil)
		o.add(s, i, events)
		if err != nil {
			o.events[i] = append(o.events[i], "closed")
		} else {
			o.events[i] = append(o.events[i], "ping "+s.header(reply.Header))
		}
		if req.unordered {
			slices.Sort(o.events[i])
		}
	}
}

func (o *outcome) add(s *side, i int, events []rawzk.Reply) {
	for _, r := range events {
		ev, err := r.Event()
		o.events[i] = append(o.events[i], fmt.Sprintf("event %d %d %q %s %v", ev.Type, ev.State, ev.Path, s.header(r.Header), err))
	}
}

func (s *side) header(h wire.ReplyHeader) string {
	return fmt.Sprintf("xid %d zxid %#x err %d", h.Xid, s.zxid(h.Zxid), h.Err)
}

// zxid is a zxid counted from the base. 0 and -1 are not counted.
func (s *side) zxid(z int64) int64 {
	if z <= 0 {
		return z
	}
	return z - s.base
}

// own is the reverse of zxid. Every node of both sides is later than a negative zxid.
func (s *side) own(z int64) int64 {
	if z < 0 {
		return z
	}
	return z + s.base
}

// describe decodes a reply completely. It omits only the value on which two servers cannot agree:
// the time of day.
func (s *side) describe(op wire.Op, r rawzk.Reply) string {
	head := s.header(r.Header)
	if r.Header.Err != wire.OK {
		return head + fmt.Sprintf(" + %d bytes", len(r.Body))
	}
	d := wire.NewDecoder(r.Body)
	body := s.body(op, d)
	return fmt.Sprintf("%s: %s; %v, %d bytes left", head, body, d.Err(), len(d.Rest()))
}

func (s *side) body(op wire.Op, d *wire.Decoder) string {
	switch op {
	case wire.OpCreate, wire.OpSync:
		var r wire.PathResponse
		r.Decode(d)
		return fmt.Sprintf("%q", r.Path)
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		var r wire.PathStatResponse
		r.Decode(d)
		return fmt.Sprintf("%q %s", r.Path, s.stat(r.Stat))
	case wire.OpExists, wire.OpSetData, wire.OpSetACL:
		var st wire.Stat
		st.Decode(d)
		return s.stat(st)
	case wire.OpGetData:
		var r wire.DataResponse
		r.Decode(d)
		return fmt.Sprintf("%q null=%v %s", r.Data, r.Data == nil, s.stat(r.Stat))
	case wire.OpGetChildren, wire.OpGetEphemerals:
		var r wire.StringsResponse
		r.Decode(d)
		slices.Sort(r.Strings)
		return fmt.Sprintf("%q", r.Strings)
	case wire.OpGetChildren2:
		var r wire.ChildrenStatResponse
		r.Decode(d)
		slices.Sort(r.Children)
		return fmt.Sprintf("%q %s", r.Children, s.stat(r.Stat))
	case wire.OpGetACL:
		var r wire.ACLResponse
		r.Decode(d)
		slices.SortFunc(r.ACL, func(a, b wire.ACL) int {
			return cmp.Or(cmp.Compare(a.Scheme, b.Scheme), cmp.Compare(a.ID.ID, b.ID.ID), cmp.Compare(a.Perms, b.Perms))
		})
		return fmt.Sprintf("%v %s", r.ACL, s.stat(r.Stat))
	case wire.OpGetAllChildrenNumber, wire.OpAddWatch:
		return fmt.Sprint(d.Int32())
	case wire.OpWhoAmI:
		var r wire.WhoAmIResponse
		r.Decode(d)
		slices.SortFunc(r.IDs, func(a, b wire.ID) int { return cmp.Or(cmp.Compare(a.Scheme, b.Scheme), cmp.Compare(a.ID, b.ID)) })
		return fmt.Sprint(r.IDs)
	case wire.OpMulti, wire.OpMultiRead:
		var r wire.MultiResponse
		r.Decode(d)
		var all []string
		for _, res := range r.Results {
			slices.Sort(res.Children)
			all = append(all, fmt.Sprintf("%v %d %q %s %q null=%v %q", res.Op, res.Err, res.Path, s.stat(res.Stat), res.Data, res.Data == nil, res.Children))
		}
		return strings.Join(all, " | ")
	}
	return "nothing"
}

func (s *side) stat(st wire.Stat) string {
	owner, known := s.names[st.EphemeralOwner]
	if !known {
		owner = "nobody we know"
	}
	return fmt.Sprintf("{c%#x m%#x p%#x v%d cv%d av%d owner %s len %d children %d times %v %v}",
		s.zxid(st.Czxid), s.zxid(st.Mzxid), s.zxid(st.Pzxid), st.Version, st.Cversion, st.Aversion, owner, st.DataLength, st.NumChildren,
		st.Ctime != 0, st.Mtime >= st.Ctime)
}
