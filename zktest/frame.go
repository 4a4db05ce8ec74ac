package zktest

import (
	"slices"
	"strings"
	"time"
)

// FrameKind is the kind of a [Frame]: requests travel to the server, replies and events to the
// client.
type FrameKind int

// The kinds of frames.
const (
	RequestFrame FrameKind = iota + 1
	ReplyFrame
	EventFrame
)

// Frame is one message through a [Proxy], or to or from a server.
type Frame struct {
	Kind    FrameKind
	Op      Op        // of the request, or of the request that the reply is for
	Event   EventType // of an event
	Paths   []string  // the nodes concerned; a reply also lists the nodes that were created
	Session int64     // 0 while the connection has none
	Member  int       // of the ensemble; 1 for a server, 0 for a proxy
	Code    Code      // of a reply
	Time    time.Time
}

// Moment begins a fault that matches frames of this kind, operation and event on any path: Before a
// request, After a reply, OnEvent an event.
func (f Frame) Moment() Fault {
	switch f.Kind {
	case RequestFrame:
		return Before(f.Op)
	case ReplyFrame:
		return After(f.Op)
	}
	return OnEvent(f.Event)
}

// String describes the frame in one line.
func (f Frame) String() string {
	var s string
	switch f.Kind {
	case RequestFrame:
		s = f.Op.String()
	case ReplyFrame:
		s = "reply to " + f.Op.String()
	default:
		s = f.Event.String()
	}
	if len(f.Paths) > 0 {
		s += " " + strings.Join(f.Paths, " ")
	}
	if f.Code != 0 {
		s += ": " + f.Code.String()
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
	kind := map[moment]FrameKind{beforeOp: RequestFrame, afterOp: ReplyFrame, onEvent: EventFrame}[h.when]
	return Frame{
		Kind: kind, Op: h.op, Event: h.event, Paths: slices.Clone(h.paths), Session: h.session, Member: h.member, Code: Code(h.code),
		Time: time.Now(),
	}
}
