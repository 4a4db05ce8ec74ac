package zktest

import (
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// FrameKind tells what travels: requests one way, replies and events the other.
type FrameKind int

// The kinds of frames.
const (
	RequestFrame FrameKind = iota + 1
	ReplyFrame
	EventFrame
)

// Frame is one message on its way through a [Proxy].
type Frame struct {
	Kind    FrameKind
	Op      Op        // of a request, or of the one that is answered
	Event   EventType // of an event
	Paths   []string  // the nodes it is about; a reply also names those it says were created
	Session int64     // 0 while the connection has none
	Code    Code      // of a reply
	Time    time.Time // when the proxy had it
}

// Moment begins a fault that strikes frames of this kind, operation and event, on any path: Before a
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

// String says what it is, in one line.
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

// OnFrame calls fn with every frame as it comes, before any fault gets it; nil ends that. On one connection fn is
// called in order for each direction, and the frame waits for fn. So a test can record the frames of one run, and then place
// a fault at each of them in turn.
func (p *Proxy) OnFrame(fn func(Frame)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.onFrame = fn
}

// saw passes a frame to OnFrame's function, and then to the faults.
func (pc *proxyConn) saw(h happening, code wire.Code) verdict {
	pc.p.mu.Lock()
	fn := pc.p.mu.onFrame
	pc.p.mu.Unlock()
	if fn != nil {
		kind := map[moment]FrameKind{beforeOp: RequestFrame, afterOp: ReplyFrame, onEvent: EventFrame}[h.when]
		fn(Frame{Kind: kind, Op: h.op, Event: h.event, Paths: slices.Clone(h.paths), Session: h.session, Code: Code(code), Time: time.Now()})
	}
	return pc.p.match(h)
}
