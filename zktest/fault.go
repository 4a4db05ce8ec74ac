package zktest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Fault describes a failure, when it happens and how often. It is a value, and its methods return a
// changed copy. So a test can keep a Fault, refine it and use it many times. It prints as it is
// written:
//
//	After(Create).Path("/locks/*").Nth(2).DropReply().Close()
//
// A Fault begins with a moment ([Before], [After], [OnEvent], [RefuseConnections]), may be narrowed
// (Path, Session, Member, Chance, Nth, Times, Once), and ends with an action (Close, DropReply,
// Delay, Hold, Fail, Expire, Call, FreezeFor, Duplicate, and for events Drop). It has no effect
// until it is passed to [Server.Inject] or [Proxy.Inject].
//
// The order on one connection is kept: a delayed or held reply or event keeps back everything after
// it, as in TCP.
type Fault struct {
	when      moment
	op        Op
	event     EventType
	path      string
	session   int64
	noSession bool // Session(0) was called
	member    int
	chance    float64
	seed      uint64
	nth       int
	times     int
	optional  bool
	actions   []action
}

type moment int

const (
	beforeOp moment = iota + 1
	afterOp
	onEvent
	onAccept
)

type actionKind int

const (
	actClose actionKind = iota + 1
	actDropReply
	actDrop
	actDuplicate
	actDelay
	actHold
	actFail
	actExpire
	actCall
	actFreeze
)

type action struct {
	kind actionKind
	d    time.Duration
	code Code
	fn   func()
}

// Before is the moment when a request has arrived and the server has not begun to execute it.
func Before(op Op) Fault { return Fault{when: beforeOp, op: op} }

// After is the moment when a request has taken effect and its reply has not been sent.
func After(op Op) Fault { return Fault{when: afterOp, op: op} }

// OnEvent is the moment when an event is about to be sent to one connection.
func OnEvent(event EventType) Fault { return Fault{when: onEvent, event: event} }

// RefuseConnections closes each connection when it is opened, before reading from it. It takes no
// further action.
func RefuseConnections() Fault { return Fault{when: onAccept} }

// Path narrows the fault to nodes whose path matches the pattern, in the syntax of [path.Match];
// "/**" at the end matches any depth below. Before a create, the path is the requested one; after
// it, the path of the created node. A multi matches if any of its operations does.
func (f Fault) Path(pattern string) Fault { f.path = pattern; return f }

// Session narrows the fault to one session. The id must not be 0, which go-zookeeper returns before
// it is connected.
func (f Fault) Session(id int64) Fault { f.session, f.noSession = id, id == 0; return f }

// Member narrows the fault to one member of an [Ensemble], by its id.
func (f Fault) Member(id int) Fault { f.member = id; return f }

// Chance makes the fault fire at a match with probability p: with 0.1, at one match in ten. The
// same seed makes the same choices, in the order of the matches. If the seed is 0, Inject chooses
// one at random, which the test logs and [Injection.String] reports. Such a fault is Optional.
func (f Fault) Chance(p float64, seed uint64) Fault {
	f.chance, f.seed, f.optional = p, seed, true
	return f
}

// Nth skips the first n-1 matches. Without Times, the fault fires only at the nth.
func (f Fault) Nth(n int) Fault { f.nth = n; return f }

// Times limits how often the fault fires. Without Times and Nth there is no limit.
func (f Fault) Times(n int) Fault { f.times = n; return f }

// Once is Times(1).
func (f Fault) Once() Fault { return f.Times(1) }

// Optional allows the fault never to fire. Otherwise that fails the test.
func (f Fault) Optional() Fault { f.optional = true; return f }

// Close cuts the connection. Before an operation, the operation is never executed; after it, the
// reply is sent first, unless DropReply is given; at an event, the event is not sent.
func (f Fault) Close() Fault { return f.then(action{kind: actClose}) }

// DropReply executes the operation but loses the reply. Use it together with Close. Without Close
// the connection stays open, and its client waits, or fails at the next reply.
func (f Fault) DropReply() Fault { return f.then(action{kind: actDropReply}) }

// Drop loses the event.
func (f Fault) Drop() Fault { return f.then(action{kind: actDrop}) }

// Duplicate sends the event or the reply twice. No real server sends a reply twice. When no request
// waits for the second reply, go-zookeeper ignores it, and Java's client closes the connection.
func (f Fault) Duplicate() Fault { return f.then(action{kind: actDuplicate}) }

// Delay waits for d before the request is executed, or before the reply or event is sent.
func (f Fault) Delay(d time.Duration) Fault { return f.then(action{kind: actDelay, d: d}) }

// Hold waits like Delay, but until [Injection.Release].
func (f Fault) Hold() Fault { return f.then(action{kind: actHold}) }

// Fail replies with the code. With Before the operation is not executed; with After it is.
func (f Fault) Fail(code Code) Fault { return f.then(action{kind: actFail, code: code}) }

// Expire ends the session at that moment, as if it had timed out, and closes its connection.
func (f Fault) Expire() Fault { return f.then(action{kind: actExpire}) }

// Call runs fn, and the request, reply or event waits until fn returns. fn may call the server's
// own methods, including Stop and Start, but not Close.
func (f Fault) Call(fn func()) Fault { return f.then(action{kind: actCall, fn: fn}) }

// FreezeFor stops the server for d, as a long garbage collection would; see [Server.Freeze]. With
// [Fault.Member] it stops that member of an [Ensemble], and otherwise all members. Before an
// operation, the operation is executed afterwards; after it, or at an event, the reply or event is
// sent afterwards.
func (f Fault) FreezeFor(d time.Duration) Fault { return f.then(action{kind: actFreeze, d: d}) }

func (f Fault) then(a action) Fault {
	f.actions = append(slices.Clip(f.actions), a)
	return f
}

// String returns the fault as it would be written.
func (f Fault) String() string {
	var b strings.Builder
	switch f.when {
	case beforeOp:
		fmt.Fprintf(&b, "Before(%v)", f.op)
	case afterOp:
		fmt.Fprintf(&b, "After(%v)", f.op)
	case onEvent:
		fmt.Fprintf(&b, "OnEvent(%v)", f.event)
	case onAccept:
		b.WriteString("RefuseConnections()")
	}
	if f.path != "" {
		fmt.Fprintf(&b, ".Path(%q)", f.path)
	}
	if f.session != 0 {
		fmt.Fprintf(&b, ".Session(%#x)", f.session)
	}
	if f.member != 0 {
		fmt.Fprintf(&b, ".Member(%d)", f.member)
	}
	if f.chance != 0 {
		fmt.Fprintf(&b, ".Chance(%v, %d)", f.chance, f.seed)
	}
	if f.nth != 0 {
		fmt.Fprintf(&b, ".Nth(%d)", f.nth)
	}
	switch f.times {
	case 0:
	case 1:
		b.WriteString(".Once()")
	default:
		fmt.Fprintf(&b, ".Times(%d)", f.times)
	}
	for _, a := range f.actions {
		switch a.kind {
		case actClose:
			b.WriteString(".Close()")
		case actDropReply:
			b.WriteString(".DropReply()")
		case actDrop:
			b.WriteString(".Drop()")
		case actDuplicate:
			b.WriteString(".Duplicate()")
		case actDelay:
			fmt.Fprintf(&b, ".Delay(%v)", a.d)
		case actHold:
			b.WriteString(".Hold()")
		case actFail:
			fmt.Fprintf(&b, ".Fail(%s)", wire.Code(a.code).String())
		case actExpire:
			b.WriteString(".Expire()")
		case actCall:
			b.WriteString(".Call(func)")
		case actFreeze:
			fmt.Fprintf(&b, ".FreezeFor(%v)", a.d)
		}
	}
	if f.optional && f.chance == 0 {
		b.WriteString(".Optional()")
	}
	return b.String()
}

// check rejects faults that can never have an effect, so that no test waits for one.
func (f Fault) check() error {
	switch {
	case f.when == 0:
		return fmt.Errorf("zktest: a fault begins with Before, After, OnEvent or RefuseConnections")
	case f.when == onAccept && len(f.actions) > 0:
		return fmt.Errorf("zktest: %v: nothing else can happen to a connection that is refused", f)
	case f.when != onAccept && len(f.actions) == 0:
		return fmt.Errorf("zktest: %v does nothing", f)
	case f.noSession:
		return fmt.Errorf("zktest: %v.Session(0): has the client connected?", f)
	case f.nth < 0 || f.times < 0:
		return fmt.Errorf("zktest: %v counts below zero", f)
	case !(f.chance >= 0 && f.chance <= 1): // NaN, too
		return fmt.Errorf("zktest: %v: a chance is between 0 and 1", f)
	}
	if _, err := path.Match(strings.TrimSuffix(f.path, "/**"), ""); err != nil {
		return fmt.Errorf("zktest: %v: %w", f, err)
	}
	for _, a := range f.actions {
		switch {
		case a.kind == actDropReply && f.when != afterOp:
			return fmt.Errorf("zktest: %v: there is a reply to drop only After", f)
		case a.kind == actDrop && f.when != onEvent:
			return fmt.Errorf("zktest: %v: only events can be dropped; a reply takes DropReply", f)
		case a.kind == actDuplicate && f.when != onEvent && f.when != afterOp:
			return fmt.Errorf("zktest: %v: only events and replies can be duplicated", f)
		case a.kind == actDuplicate && f.op == Connect:
			return fmt.Errorf("zktest: %v: the answer to a connect has no header by which a client could tell a second one", f)
		case a.kind == actFail && f.when != beforeOp && f.when != afterOp:
			return fmt.Errorf("zktest: %v: only an operation can fail", f)
		}
	}
	return nil
}

// happening is a possible moment of a fault; faults are matched with it.
type happening struct {
	when    moment
	op      Op
	event   EventType
	paths   []string
	session int64
	member  int       // to which the connection leads; 0 at a proxy
	code    wire.Code // of a reply
}

func (f Fault) matches(h happening) bool {
	if f.when != h.when || f.session != 0 && f.session != h.session || f.member != 0 && f.member != h.member {
		return false
	}
	switch f.when {
	case beforeOp, afterOp:
		if !f.op.covers(h.op) {
			return false
		}
	case onEvent:
		if f.event != AnyEvent && f.event != h.event {
			return false
		}
	}
	return f.path == "" || slices.ContainsFunc(h.paths, func(p string) bool { return globMatch(f.path, p) })
}

func globMatch(pattern, p string) bool {
	if root, deep := strings.CutSuffix(pattern, "/**"); deep {
		for up := p; up != "" && up != "/"; up = path.Dir(up) {
			if ok, _ := path.Match(root, path.Dir(up)); ok || root == "" {
				return true
			}
		}
		return false
	}
	ok, _ := path.Match(pattern, p)
	return ok
}
