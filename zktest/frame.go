package zktest

import (
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Frame is one message through a [Proxy], or to or from a server: a request, a reply or an event.
type Frame struct {
	Op      Op        // of the request, or of the request that the reply is for; 0 for an event
	Reply   bool      // a reply to Op
	Event   EventType // of an event; otherwise 0
	Paths   []string  // the nodes concerned; a reply also lists the nodes that were created
	Session int64     // 0 while the connection has none
	Member  int       // of the ensemble; 1 for a server, 0 for a proxy
	Code    Code      // of a reply
	Time    time.Time
}

// Moment begins a fault that matches such frames on any path: Before a request, After a reply,
// OnEvent an event.
func (f Frame) Moment() Fault {
	switch {
	case f.Event != 0:
		return OnEvent(f.Event)
	case f.Reply:
		return After(f.Op)
	}
	return Before(f.Op)
}

// String describes the frame in one line.
func (f Frame) String() string {
	s := f.Op.String()
	switch {
	case f.Event != 0:
		s = f.Event.String()
	case f.Reply:
		s = "reply to " + s
	}
	if len(f.Paths) > 0 {
		s += " " + strings.Join(f.Paths, " ")
	}
	if f.Code != 0 {
		s += ": " + wire.Code(f.Code).String()
	}
	return s
}

// OnFrame calls fn with every frame when it arrives, before any fault applies. A nil fn ends that.
// For each direction of a connection, fn is called in order, and the frame waits until fn returns.
// So a test can record the frames of one run, and then inject a fault at each of them in turn. The
// fn of a server or an ensemble runs in its loop, and must not call its methods.
func (s *faultSet) OnFrame(fn func(Frame)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onFrame = fn
}

// frame converts a happening to the argument of OnFrame's function.
func (h happening) frame() Frame {
	return Frame{
		Op: h.op.common(), Reply: h.when == afterOp, Event: h.event, Paths: slices.Clone(h.paths), Session: h.session, Member: h.member,
		Code: Code(h.code), Time: time.Now(),
	}
}
