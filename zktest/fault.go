package zktest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Fault says what goes wrong, when and how often. It is a value: its methods return a changed copy. So a test can keep
// one, refine it and use it many times. It prints as it is written:
//
//	After(Create).Path("/locks/*").Nth(2).DropReply().Close()
//
// It begins with a moment ([Before], [After], [OnEvent], [RefuseConnections]), may be
// narrowed (Path, Session, Member, Chance, Nth, Times, Once), and ends with what happens there (Close, DropReply, Delay, Hold,
// Fail, Expire, Call, FreezeFor, Duplicate, and for events Drop). It does nothing until [Server.Inject] or [Proxy.Inject]
// gets it.
//
// What is sent on one connection stays in order: a reply or event that is delayed or held keeps back
// everything after it, as TCP would.
type Fault struct {
	when     moment
	op       Op
	event    EventType
	path     string
	session  int64
	member   int
	chance   float64
	seed     uint64
	nth      int
	times    int
	optional bool
	actions  []action
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

// Before is the moment when a request has arrived and nothing of it is done.
func Before(op Op) Fault { return Fault{when: beforeOp, op: op} }

// After is the moment when a request has taken effect and its reply has not been sent.
func After(op Op) Fault { return Fault{when: afterOp, op: op} }

// OnEvent is the moment when an event is about to be sent to one connection.
func OnEvent(event EventType) Fault { return Fault{when: onEvent, event: event} }

// RefuseConnections closes connections as they are opened, before anything is read from them. It takes no action besides.
func RefuseConnections() Fault { return Fault{when: onAccept} }

// Path narrows the fault to nodes whose path matches the pattern, in the syntax of [path.Match]; "/**" at the
// end matches any depth below. A create is matched with the path it asks for before, and with the one it
// got after; a multi by any of its operations.
func (f Fault) Path(pattern string) Fault { f.path = pattern; return f }

// Session narrows the fault to one session.
func (f Fault) Session(id int64) Fault { f.session = id; return f }

// Member narrows the fault to one member of an [Ensemble], by its id.
func (f Fault) Member(id int) Fault { f.member = id; return f }

// Chance lets each match pass by chance: with a p of 0.1, one in ten is hit. The same seed makes the
// same choices, in the order of the matches; for 0, Inject takes one at random, and [Injection.String]
// has it. Such a fault is Optional.
func (f Fault) Chance(p float64, seed uint64) Fault {
	f.chance, f.seed, f.optional = p, seed, true
	return f
}

// Nth lets the first n-1 matches pass. Without Times, only the nth is hit.
func (f Fault) Nth(n int) Fault { f.nth = n; return f }

// Times limits how often the fault fires. Without it and Nth there is no limit.
func (f Fault) Times(n int) Fault { f.times = n; return f }

// Once is Times(1).
func (f Fault) Once() Fault { return f.Times(1) }

// Optional says that it is all right if the fault never fires.
func (f Fault) Optional() Fault { f.optional = true; return f }

// Close cuts the connection: before an operation, so that it never happens; after one, once its reply is
// sent, unless DropReply; at an event, instead of it.
func (f Fault) Close() Fault { return f.then(action{kind: actClose}) }

// DropReply loses the reply, although the operation was done. Use it together with Close. Without Close the connection
// lives on: its client waits, or stumbles over the next reply.
func (f Fault) DropReply() Fault { return f.then(action{kind: actDropReply}) }

// Drop loses the event.
func (f Fault) Drop() Fault { return f.then(action{kind: actDrop}) }

// Duplicate sends the event, or the reply, twice. No real server sends a reply twice. If nothing waits for a reply,
// go-zookeeper ignores it, and Java's client closes the connection.
func (f Fault) Duplicate() Fault { return f.then(action{kind: actDuplicate}) }

// Delay waits for d: before the request is done, or before the reply or event is sent.
func (f Fault) Delay(d time.Duration) Fault { return f.then(action{kind: actDelay, d: d}) }

// Hold waits like Delay, until [Injection.Release].
func (f Fault) Hold() Fault { return f.then(action{kind: actHold}) }

// Fail answers with the code: before, without doing anything; after, although it was done.
func (f Fault) Fail(code Code) Fault { return f.then(action{kind: actFail, code: code}) }

// Expire ends the session at that moment, as if it had run out, and closes its connection.
func (f Fault) Expire() Fault { return f.then(action{kind: actExpire}) }

// Call runs fn. The request, reply or event waits until fn returns. fn may call the server's own methods, also Stop and
// Start, but not Close.
func (f Fault) Call(fn func()) Fault { return f.then(action{kind: actCall, fn: fn}) }

// FreezeFor stops the whole server for a time, as a long garbage collection would; see [Server.Freeze].
func (f Fault) FreezeFor(d time.Duration) Fault { return f.then(action{kind: actFreeze, d: d}) }

func (f Fault) then(a action) Fault {
	f.actions = append(slices.Clip(f.actions), a)
	return f
}

// String spells the fault as it would be written.
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
			fmt.Fprintf(&b, ".Fail(%s)", a.code.String())
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

// check finds faults that can never mean anything, so that no test waits for one.
func (f Fault) check() error {
	switch {
	case f.when == 0:
		return fmt.Errorf("zktest: a fault begins with Before, After, OnEvent or RefuseConnections")
	case f.when == onAccept && len(f.actions) > 0:
		return fmt.Errorf("zktest: %v: nothing else can happen to a connection that is refused", f)
	case f.when != onAccept && len(f.actions) == 0:
		return fmt.Errorf("zktest: %v does nothing", f)
	case f.nth < 0 || f.times < 0:
		return fmt.Errorf("zktest: %v counts below zero", f)
	case f.chance < 0 || f.chance > 1:
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

// happening is what faults are matched with.
type happening struct {
	when    moment
	op      Op
	event   EventType
	paths   []string
	session int64
	member  int       // whose connection it is; 0 at a proxy
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
