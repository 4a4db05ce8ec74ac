package frames

// The frames, the faults that each of them meets, and the tally of the faults that struck.

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zklock/zklock/zktest"
)

// Frame-exhaustive faults. Each scenario is run once without faults and its frames are recorded;
// the list of cases is made from the recording: every frame, with every kind of fault that applies
// to it. No frame can be forgotten.

// frameID names one frame of a scenario: the nth of its kind on such a path since the recording
// began. The same name finds it again in the next run.
type frameID struct {
	op    zktest.Op
	reply bool // to op
	event zktest.EventType
	place string // "lock", "lock/*", "lock/leases/*" and the like, "parent", "above" that, any other path as it is, or "" for none
	nth   int
}

// lockPlace returns the name of a path in a frameID, because lock nodes' names differ from run to
// run. subs are the roots below the lock path of a recipe that has its nodes there. A transaction
// of such a recipe may concern several of them, and is identified by the path above.
func lockPlace(root string, subs []string, op zktest.Op, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	p := paths[0]
	dir, name := path.Split(p)
	dir = strings.TrimSuffix(dir, "/")
	switch {
	case p == root:
		return "lock"
	case p == path.Dir(root):
		return "parent"
	case p == path.Dir(path.Dir(root)) && p != "/":
		return "above"
	case subs != nil && op == zktest.Multi && strings.HasPrefix(p, root+"/"):
		return "lock/**"
	case dir == root && slices.Contains(subs, name):
		return "lock/" + name
	case dir == root:
		return "lock/*"
	case path.Dir(dir) == root && subs != nil:
		return "lock/" + path.Base(dir) + "/*"
	}
	return p
}

func (f frameID) String() string {
	s := zktest.Frame{Op: f.op, Reply: f.reply, Event: f.event}.String()
	if f.place != "" {
		s += " " + f.place
	}
	return fmt.Sprintf("%s #%d", s, f.nth)
}

// moment begins a fault at this frame of a run with the lock root.
func (f frameID) moment(root string) zktest.Fault {
	m := zktest.Frame{Op: f.op, Reply: f.reply, Event: f.event}.Moment().Nth(f.nth)
	switch f.place {
	case "":
		return m
	case "lock":
		return m.Path(root)
	case "parent":
		return m.Path(path.Dir(root))
	case "above":
		return m.Path(path.Dir(path.Dir(root)))
	}
	if below, ok := strings.CutPrefix(f.place, "lock/"); ok {
		return m.Path(root + "/" + below)
	}
	return m.Path(f.place)
}

// timed reports whether the clock sends the frame, and not the recipe.
func (f frameID) timed() bool {
	return f.op == zktest.Multi || f.op == zktest.Ping || f.op == zktest.Exists && f.place == "/"
}

// recordedFrame is a frame of a recording.
type recordedFrame struct {
	frameID
	session int64
	at      time.Duration // since the recording began
}

// frameFault is one kind of fault.
type frameFault struct {
	name  string
	on    func(f recordedFrame) bool
	do    func(r *frameRun, f zktest.Fault) zktest.Fault
	loses bool // it may cost the client under test its hold, or the confirmation of its end
	long  bool // it outlasts the session: for virtual time
	deaf  bool // from here on responses are lost, and requests are not
}

func isRequest(f recordedFrame) bool { return !f.reply && f.event == 0 }

func isReply(f recordedFrame) bool { return f.reply }

func isEvent(f recordedFrame) bool { return f.event != 0 }

func canFail(on func(recordedFrame) bool) func(recordedFrame) bool {
	return func(f recordedFrame) bool {
		return on(f) && f.op != zktest.Connect && f.op != zktest.Ping && f.op != zktest.CloseSession
	}
}

func isAny(recordedFrame) bool { return true }

// frameFaults has all kinds. A duplicate reply has no effect in the client: go-zookeeper removes a
// reply's request from its table by the xid, which it does not use again, and drops a reply without
// a request with a log line. The response to a connect has no xid, and the protocol allows no
// second one.
var frameFaults = []frameFault{
	{name: "cut before it", on: isRequest, do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Close() }},
	{name: "applied, cut before it", on: isReply, do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.DropReply().Close() }},
	{name: "cut before it is delivered", on: isEvent, do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Close() }},
	{name: "lost", on: isEvent, do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Drop() }},
	{name: "delayed", on: isAny, do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Delay(time.Second) }},
	{name: "delayed past the session", on: isAny, loses: true, long: true,
		do: func(r *frameRun, f zktest.Fault) zktest.Fault { return f.Delay(r.longDelay()) }},
	{name: "everything held up past the session", on: isAny, loses: true, long: true,
		do: func(r *frameRun, f zktest.Fault) zktest.Fault { return f.FreezeFor(r.longDelay()) }},
	{name: "lost, and all that the servers send after it", on: func(f recordedFrame) bool { return !isRequest(f) }, loses: true, long: true, deaf: true,
		do: func(r *frameRun, f zktest.Fault) zktest.Fault { return f.Call(r.way.LoseAnswers) }},
	{name: "twice", on: func(f recordedFrame) bool { return !isRequest(f) && f.op != zktest.Connect },
		do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Duplicate() }},
	{name: "answered with an error that says nothing, and not done", on: canFail(isRequest),
		do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Fail(zktest.OperationTimeout) }},
	{name: "answered with an error that says nothing, and done", on: canFail(isReply),
		do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Fail(zktest.OperationTimeout) }},
	{name: "throttled", on: canFail(isRequest),
		do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Fail(zktest.Throttled) }},
	{name: "answered that the session has moved", on: canFail(isRequest),
		do: func(_ *frameRun, f zktest.Fault) zktest.Fault { return f.Fail(zktest.SessionMoved) }},
	{name: "session killed", on: func(f recordedFrame) bool { return f.session != 0 }, loses: true,
		do: func(r *frameRun, f zktest.Fault) zktest.Fault { return f.Call(r.killNow) }},
	{name: "ctx cancelled", on: isAny,
		do: func(r *frameRun, f zktest.Fault) zktest.Fault { return f.Call(r.cancelNow).Delay(time.Millisecond) }},
	{name: "ctx cancelled as it passes", on: isAny,
		do: func(r *frameRun, f zktest.Fault) zktest.Fault { return f.Call(r.cancelNow) }},
	{name: "Session closed", on: isAny,
		do: func(r *frameRun, f zktest.Fault) zktest.Fault { return f.Call(r.closeNow).Delay(time.Millisecond) }},
}

// frameCase is a fault at a frame.
type frameCase struct {
	frame recordedFrame
	fault frameFault
}

func (c frameCase) String() string { return c.frame.String() + ": " + c.fault.name }

func caseNames(cases []frameCase) string {
	var names []string
	for _, c := range cases {
		names = append(names, c.String())
	}
	return strings.Join(names, "; ")
}

// casesFor returns the generated list.
func casesFor(recording []recordedFrame, virtual bool) (cases []frameCase) {
	for _, f := range recording {
		for _, fault := range frameFaults {
			if fault.on(f) && (virtual || !fault.long) {
				cases = append(cases, frameCase{f, fault})
			}
		}
	}
	return cases
}

// pickCase returns a random case.
func pickCase(rnd *rand.Rand, recording []recordedFrame) frameCase {
	cases := casesFor(recording[rnd.IntN(len(recording)):][:1], true)
	return cases[rnd.IntN(len(cases))]
}

// frameTally has the cases of a scenario that have run.
type frameTally struct {
	frames map[frameID]bool // whether a fault has struck there
	cases  int
	kills  int // that ended a session
	idle   int // those whose session was over already; they cover nothing
	slow   int // those in which only a slow machine accounts for a loss, in real time
}

func newFrameTally(recording []recordedFrame) *frameTally {
	t := &frameTally{frames: map[frameID]bool{}}
	for _, f := range recording {
		t.frames[f.frameID] = false
	}
	return t
}

// ran records a case whose run has checked that its fault struck.
func (t *frameTally) ran(c frameCase, r *frameRun) {
	t.cases++
	if r.slow {
		t.slow++
	}
	if r.kills > 0 {
		t.kills++
	}
	if r.idle {
		t.idle++
		return
	}
	t.frames[c.frame.frameID] = true
}

func (t *frameTally) covered() (n int) {
	for _, yes := range t.frames {
		if yes {
			n++
		}
	}
	return n
}

// check fails if a recorded frame has no case.
func (t *frameTally) check(tb testing.TB) {
	tb.Helper()
	if *frameCaseFlag != "" || tb.Failed() {
		return
	}
	for f, yes := range t.frames {
		if !yes {
			tb.Errorf("no case for the frame %v", f)
		}
	}
}

func (t *frameTally) String() string {
	return fmt.Sprintf("%d frames, %d cases, %d of %d frames covered", len(t.frames), t.cases, t.covered(), len(t.frames))
}

// frameTallies has the tallies of all scenarios.
type frameTallies []*frameTally

// check fails if no case ran, if the name of a case is unknown, and if holds were lost that should
// have remained valid.
func (ts frameTallies) check(tb testing.TB) {
	tb.Helper()
	var cases, kills, idle, slow int
	for _, t := range ts {
		cases, kills, idle, slow = cases+t.cases, kills+t.kills, idle+t.idle, slow+t.slow
	}
	if cases == 0 {
		tb.Errorf("no case was run; -frames.case=%q", *frameCaseFlag)
	}
	if slow > 1+cases/20 {
		tb.Errorf("in %d of %d cases a hold was lost without a fault that may cost it", slow, cases)
	}
	if idle > 1+kills/4 {
		tb.Errorf("%d of %d sessions that were to be killed were over", idle, kills)
	}
}

func (ts frameTallies) String() string {
	var frames, cases, covered, idle, slow int
	for _, t := range ts {
		frames, cases, covered, idle, slow = frames+len(t.frames), cases+t.cases, covered+t.covered(), idle+t.idle, slow+t.slow
	}
	return fmt.Sprintf("%d scenarios, %d frames, %d cases (%d to end a session that was over, %d losses by a slow machine), %d of %d frames covered",
		len(ts), frames, cases, idle, slow, covered, frames)
}
