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
	wrong     string // why an action can never have an effect; empty if each can
}

type moment int

const (
	beforeOp moment = iota + 1
	afterOp
	onEvent
	onAccept
)

// action is what a fault does when it fires.
type action struct {
	text  string // as it is written
	apply func(*verdict, *Injection)
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
func (f Fault) Close() Fault {
	return f.then(".Close()", func(v *verdict, _ *Injection) { v.close = true })
}

// DropReply executes the operation but loses the reply. Use it together with Close. Without Close
// the connection stays open, and its client waits, or fails at the next reply.
func (f Fault) DropReply() Fault {
	f = f.require(f.when == afterOp, "there is a reply to drop only After")
	return f.then(".DropReply()", func(v *verdict, _ *Injection) { v.dropReply = true })
}

// Drop loses the event.
func (f Fault) Drop() Fault {
	f = f.require(f.when == onEvent, "only events can be dropped; a reply takes DropReply")
	return f.then(".Drop()", func(v *verdict, _ *Injection) { v.drop = true })
}

// Duplicate sends the event or the reply twice. No real server sends a reply twice. When no request
// waits for the second reply, go-zookeeper ignores it, and Java's client closes the connection.
func (f Fault) Duplicate() Fault {
	f = f.require(f.when == onEvent || f.when == afterOp, "only events and replies can be duplicated")
	f = f.require(f.op != Connect, "the answer to a connect has no header by which a client could tell a second one")
	return f.then(".Duplicate()", func(v *verdict, _ *Injection) { v.duplicates++ })
}

// Delay waits for d before the request is executed, or before the reply or event is sent.
func (f Fault) Delay(d time.Duration) Fault {
	return f.then(fmt.Sprintf(".Delay(%v)", d), func(v *verdict, _ *Injection) { v.wait.delay += d })
}

// Hold waits like Delay, but until [Injection.Release].
func (f Fault) Hold() Fault {
	return f.then(".Hold()", func(v *verdict, i *Injection) { v.wait.gates = append(v.wait.gates, i.released) })
}

// Fail replies with the code. With Before the operation is not executed; with After it is.
func (f Fault) Fail(code Code) Fault {
	f = f.require(f.when == beforeOp || f.when == afterOp, "only an operation can fail")
	return f.then(fmt.Sprintf(".Fail(%s)", wire.Code(code).String()), func(v *verdict, _ *Injection) { v.fail = wire.Code(code) })
}

// Expire ends the session at that moment, as if it had timed out, and closes its connection.
func (f Fault) Expire() Fault {
	return f.then(".Expire()", func(v *verdict, _ *Injection) { v.expire = true })
}

// Call runs fn, and the request, reply or event waits until fn returns. fn may call the server's
// own methods, including Stop and Start, but not Close.
func (f Fault) Call(fn func()) Fault {
	return f.then(".Call(func)", func(v *verdict, _ *Injection) { v.wait.calls = append(v.wait.calls, fn) })
}

// FreezeFor stops the server for d, as a long garbage collection would; see [Server.Freeze]. With
// [Fault.Member] it stops that member of an [Ensemble], and otherwise all members. Before an
// operation, the operation is executed afterwards; after it, or at an event, the reply or event is
// sent afterwards.
func (f Fault) FreezeFor(d time.Duration) Fault {
	return f.then(fmt.Sprintf(".FreezeFor(%v)", d), func(v *verdict, i *Injection) {
		if i.fault.member != 0 {
			v.freezeOne = max(v.freezeOne, d)
		} else {
			v.freeze = max(v.freeze, d)
		}
	})
}

func (f Fault) then(text string, apply func(*verdict, *Injection)) Fault {
	f.actions = append(slices.Clip(f.actions), action{text, apply})
	return f
}

// require notes what is wrong with an action that has no effect at the fault's moment.
func (f Fault) require(effective bool, wrong string) Fault {
	if !effective && f.wrong == "" {
		f.wrong = wrong
	}
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
		b.WriteString(a.text)
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
	if f.wrong != "" {
		return fmt.Errorf("zktest: %v: %s", f, f.wrong)
	}
	return nil
}

// happening is a possible moment of a fault; faults are matched with it.
type happening struct {
	when    moment
	op      Op        // of a request or reply; otherwise 0
	event   EventType // of an event; otherwise 0
	paths   []string
	session int64
	member  int       // to which the connection leads; 0 at a proxy
	code    wire.Code // of a reply
}

func (f Fault) matches(h happening) bool {
	if f.when != h.when || f.session != 0 && f.session != h.session || f.member != 0 && f.member != h.member {
		return false
	}
	if !f.op.covers(h.op) || f.event != AnyEvent && f.event != h.event {
		return false
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
