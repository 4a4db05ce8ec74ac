package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/link"
)

// Trace is what a Session calls as locks are waited for, held, lost and released (WithTrace). Each function is optional. Later versions may
// have more of them. None is called under a lock of this package, so each may call it.
//
// Every AcquireStart is followed by one AcquireEnd. If that has a Hold, one HoldEnd follows when the hold is released; if the hold is lost
// before, one HoldLost comes between the two. A Multi's locks each have their own; if one of several that it tries in one round trip is
// taken, the first of them has the error, and the Multi's says which it was. Bad arguments alone are not told: a nil context, a nil or zero
// lock.
//
// AcquireStart, AcquireEnd and HoldEnd run on the goroutine that acquires or releases, and one that blocks holds up that call alone. HoldLost
// runs on a goroutine of the Session's, one loss after the other, and nobody waits for it, Close neither. While it blocks, later losses
// wait, each until its hold is released: then HoldLost is called for it by the goroutine that releases, just before HoldEnd. So none is left
// out, and no more wait than there are lost holds that nobody has released. If a hold is released while HoldLost runs for it, HoldEnd follows on
// that goroutine, when HoldLost has returned.
//
// A function that panics is logged, and the call goes on as if it had returned. After runtime.Goexit in AcquireEnd, which testing.T.FailNow
// calls, nothing is held: the hold is released, with its HoldEnd. Other Traces of the Session may miss a call then.
type Trace struct {
	// AcquireStart is called before an acquire sends anything. The context that it returns gives its values to those with which the other
	// functions of this Trace are called, to the hold's and to the work's. Its end changes nothing. nil stands for the one that it was given.
	AcquireStart func(ctx context.Context, a AcquireInfo) context.Context
	// AcquireEnd is called when the acquire has got the lock or gives up. Its context does not end, nor do the next ones'.
	AcquireEnd func(ctx context.Context, a AcquireEndInfo)
	// HoldLost is called when a hold has ended without a release, once for each handle: also when the Session is closed.
	HoldLost func(ctx context.Context, h HoldInfo)
	// HoldEnd is called when a handle is released and the servers have confirmed that, or that is not waited for any longer.
	HoldEnd func(ctx context.Context, h HoldInfo)
}

// AcquireInfo says which call it is.
type AcquireInfo struct {
	Kind  string // mutex, read, write, semaphore or election
	Path  string // as given to the New function
	Name  string // what WithName gave, otherwise ""
	Multi string // of a Multi's lock: what Multi.String returns; otherwise ""
	Try   bool   // it waits for nobody: TryAcquire, TryDo, WaitAtMost(0)
}

// AcquireEndInfo says how an acquire ended.
type AcquireEndInfo struct {
	AcquireInfo
	Hold      *Hold // nil if Err is not
	Err       error // what the call returns
	Waited    time.Duration
	Place     int  // in the queue, when it was first found to stand behind somebody: 2 behind one. 0 if it never was. Of permits, see Error.Place
	Requeued  int  // how often it had to queue again, because its session or its node was gone
	Reentered bool // the owner held the lock already
}

// HoldInfo says how a handle ended: lost or released.
type HoldInfo struct {
	AcquireInfo
	Hold      *Hold
	Reentered bool          // its AcquireEnd said so: the hold is not counted twice
	Held      time.Duration // from AcquireEnd on; of HoldLost to the loss, of HoldEnd to the release
	Err       error         // of HoldLost, what Hold.Err returns; of HoldEnd, what Release returns
	Reason    string        // why it was lost, as LossReason says; "" if it was not
	// Of HoldEnd: how long its holder went on after the loss; 0 if it was not lost. If the lease ended, it counts from that end, although
	// a process that stood still may have seen it later.
	Overrun time.Duration
}

// What LossReason returns.
const (
	LossNoServer   = "no_server"       // no server answered before the lease ended
	LossNoQuorum   = "no_quorum"       // a server answered, and no quorum confirmed the session
	LossPaused     = "paused"          // this process stood still, and saw the end of the lease too late
	LossSession    = "session_ended"   // the servers ended the ZooKeeper session
	LossNode       = "node_deleted"    // somebody else deleted the lock node
	LossUnreadable = "node_unreadable" // the servers refuse to confirm the lock node
	LossAuth       = "auth_failed"     // a server refused the credentials
	LossClosed     = "closed"          // the Session was closed
	LossOther      = "other"           // a reason that has no word here
)

var lossReasons = []struct {
	err    error
	reason string
}{ // the first that fits: who was closed or refused may have lost the session by that
	{ErrAuthFailed, LossAuth}, {ErrClosed, LossClosed}, {link.ErrStoodStill, LossPaused}, {link.ErrSilence, LossNoServer}, {link.ErrNoQuorum, LossNoQuorum},
	{link.ErrNodeGone, LossNode}, {link.ErrUnreadable, LossUnreadable}, {link.ErrExpired, LossSession}, {ErrLost, LossOther},
}

// LossReason returns in one word why a hold was lost, for metrics: one of the constants above. err is a hold's Err, or another error around
// ErrLost. For all others LossReason returns "".
func LossReason(err error) string {
	if !errors.Is(err, ErrLost) {
		return ""
	}
	for _, r := range lossReasons {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	return LossOther
}

// tracer calls the traces of a Session.
type tracer struct {
	all   []*Trace
	log   *eventlog.Log
	clock *clock.Clock

	mu      sync.Mutex // guards what follows, and what the traced have under it
	losses  []*traced  // whose HoldLost is to be called, in order
	telling bool       // a goroutine calls them
}

// traced is an acquire, and then the handle that it got.
type traced struct {
	t         *tracer
	info      AcquireInfo
	ctxs      []context.Context  // with which each trace is called
	ctx       [1]context.Context // for them, if they are no more
	began     clock.Instant
	granted   clock.Instant
	h         *Hold
	reentered bool

	// Under tracer.mu.
	isOpen bool // AcquireEnd has been called
	loss   error
	lostAt clock.Instant
	told   told
	end    HoldInfo // of HoldEnd
	isLeft bool     // HoldEnd is left to who calls HoldLost
}

// told is how far a handle's HoldLost is.
type told int

const (
	notTold told = iota
	isTelling
	isTold
)

// begin calls each AcquireStart, with the context that the one before returned. It returns one with the last one's values, that does not end.
func (t *tracer) begin(ctx context.Context, info AcquireInfo) (values context.Context, c *traced) {
	c = &traced{t: t, info: info, began: t.clock.Now()}
	c.ctxs = c.ctx[:0]
	for _, trace := range t.all {
		if trace.AcquireStart != nil {
			t.call("AcquireStart", func() {
				if got := trace.AcquireStart(ctx, c.info); got != nil {
					ctx = got
				}
			})
		}
		c.ctxs = append(c.ctxs, context.WithoutCancel(ctx))
	}
	return c.ctxs[len(c.ctxs)-1], c
}

// acquired calls each AcquireEnd. From then on, HoldLost may be called. ctx is the caller's.
func (c *traced) acquired(ctx context.Context, h *Hold, info AcquireEndInfo) {
	t := c.t
	c.h, c.granted, c.reentered = h, t.clock.Now(), info.Reentered
	info.AcquireInfo, info.Waited, info.Hold = c.info, since(c.began, c.granted), h
	returned := false
	defer func() {
		t.mu.Lock()
		c.isOpen = true
		c.queueLocked()
		t.mu.Unlock()
		if !returned && h != nil { // nobody gets it
			_ = h.Release(ctx)
		}
	}()
	for i, trace := range t.all {
		if trace.AcquireEnd != nil {
			t.call("AcquireEnd", func() { trace.AcquireEnd(c.ctxs[i], info) })
		}
	}
	returned = true
}

// lost notes that the handle is lost, and has HoldLost called.
func (c *traced) lost(err error, at clock.Instant) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.loss == nil {
		c.loss, c.lostAt = err, at
		c.queueLocked()
	}
}

// queueLocked puts the loss at the end of those to be told, unless AcquireEnd is still to come.
func (c *traced) queueLocked() {
	if c.isOpen && c.loss != nil && c.told == notTold {
		c.t.losses = append(c.t.losses, c)
		c.t.goOnLocked()
	}
}

// goOnLocked has the next loss told, if none is. Each is told on a goroutine of its own, so that one that does not return by itself
// (runtime.Goexit) keeps none back.
func (t *tracer) goOnLocked() {
	if t.telling || len(t.losses) == 0 {
		return
	}
	t.telling = true
	next := t.losses[0]
	t.losses = slices.Delete(t.losses, 0, 1)
	next.told = isTelling
	go func() {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.telling = false
			t.goOnLocked()
		}()
		next.tell()
	}()
}

// tell calls each HoldLost, and then each HoldEnd if the handle was released meanwhile.
func (c *traced) tell() {
	t := c.t
	defer func() {
		t.mu.Lock()
		c.told = isTold
		isLeft := c.isLeft
		t.mu.Unlock()
		if isLeft {
			c.tellEnd()
		}
	}()
	info := HoldInfo{AcquireInfo: c.info, Hold: c.h, Reentered: c.reentered, Held: since(c.granted, c.lostAt), Err: c.loss, Reason: LossReason(c.loss)}
	for i, trace := range t.all {
		if trace.HoldLost != nil {
			t.call("HoldLost", func() { trace.HoldLost(c.ctxs[i], info) })
		}
	}
}

// released calls each HoldEnd, after HoldLost if the handle was lost; err is what Release returns.
func (c *traced) released(at clock.Instant, err error) {
	t := c.t
	t.mu.Lock()
	c.end = HoldInfo{AcquireInfo: c.info, Hold: c.h, Reentered: c.reentered, Held: since(c.granted, at), Err: err}
	before := isTold
	if c.loss != nil {
		c.end.Reason, c.end.Overrun = LossReason(c.loss), since(c.lostAt, at)
		if before = c.told; before == notTold {
			c.told = isTelling
			t.losses = slices.DeleteFunc(t.losses, func(other *traced) bool { return other == c })
		}
	}
	c.isLeft = before != isTold
	t.mu.Unlock()
	switch before {
	case notTold:
		c.tell()
	case isTold:
		c.tellEnd()
	case isTelling: // who does, goes on with HoldEnd
	}
}

// tellEnd calls each HoldEnd.
func (c *traced) tellEnd() {
	for i, trace := range c.t.all {
		if trace.HoldEnd != nil {
			c.t.call("HoldEnd", func() { trace.HoldEnd(c.ctxs[i], c.end) })
		}
	}
}

// since returns how long it was from one instant to the other. A clock that counts the machine's sleep may step back by microseconds.
func since(from, to clock.Instant) time.Duration { return max(0, to.Sub(from)) }

// call calls a function of a trace.
func (t *tracer) call(name string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("zklock: a function of a Trace panicked", "function", name, "panic", fmt.Sprint(p))
		}
	}()
	f()
}
