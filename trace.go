package zklock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
)

// Trace has functions that a Session calls when locks are waited for, held, lost and released
// (WithTrace). Each function is optional. Later versions may have more of them. None is called
// under a lock of this package, so each may call it.
//
// Every AcquireStart is followed by one AcquireEnd. If that has a Hold, one HoldEnd follows when
// this handle is released. If the hold is lost, one HoldLost comes before each HoldEnd that reports
// the loss, whatever handles the hold has. Each lock of a Multi has its own calls, one lock after
// the other, although the nodes may be made before and are under the lease by then. If a Multi
// tries several locks in one round trip and one of them is taken, the first lock has the error, and
// the Multi's error names the one that is taken. A call that is rejected before it begins is not
// traced: bad arguments, and a Multi out of order.
//
// AcquireStart, AcquireEnd and HoldEnd run on the goroutine that acquires or releases, and one that
// blocks holds up that call. HoldLost runs on a goroutine of the Session, one loss after the other,
// and so does HoldEnd of a handle that is released before HoldLost has returned. Nothing waits for
// these, and neither does Close. None is left out: while one blocks, the next ones wait, at some
// 400 bytes for each lost hold.
//
// A function that panics is logged, and the call continues as if it had returned. If AcquireStart
// panics, the Trace's other functions get an empty context for this call. After runtime.Goexit in
// AcquireEnd, which testing.T.FailNow calls, nothing is held: the hold is released, with its
// HoldEnd. Other functions may then miss that call, or other calls of a Multi.
type Trace struct {
	// AcquireStart is called before an acquire sends anything. The context that it returns gives
	// its values to those with which the other functions of this Trace are called, to the hold's
	// and to the work's. Its end changes nothing. nil stands for the context that it was given.
	AcquireStart func(ctx context.Context, a AcquireInfo) context.Context
	// AcquireEnd is called when the acquire has got the lock or gives up. Its context does not end,
	// nor do those of HoldLost and HoldEnd.
	AcquireEnd func(ctx context.Context, a AcquireEndInfo)
	// HoldLost is called once when a hold has ended without a release: also when the Session is
	// closed. Its context and its Hold are those of the call to which the lock was granted,
	// although that handle may have been released.
	HoldLost func(ctx context.Context, h HoldInfo)
	// HoldEnd is called when a handle is released and the servers have confirmed that, or Release
	// does not wait for it any longer.
	HoldEnd func(ctx context.Context, h HoldInfo)
}

// The values of AcquireInfo.Kind.
const (
	KindMutex     = "mutex"     // Mutex
	KindRead      = "read"      // RWMutex.ReadLock
	KindWrite     = "write"     // RWMutex.WriteLock
	KindSemaphore = "semaphore" // Semaphore.Permits
	KindElection  = "election"  // Election
)

// AcquireInfo identifies the call.
type AcquireInfo struct {
	Kind  string // one of the constants above
	Path  string // as given to the New function
	Name  string // what WithName gave, otherwise ""
	Multi string // of a Multi's lock: what Multi.String returns; otherwise ""
	Try   bool   // the call does not wait: TryAcquire, TryDo, WaitAtMost(0)
}

// AcquireEndInfo describes the end of an acquire.
type AcquireEndInfo struct {
	AcquireInfo
	Hold *Hold // nil if Err is not
	// The handle to which the lock was granted: Hold, unless the call re-entered the lock. All
	// handles of a hold have the same First.
	First  *Hold
	Err    error // what the call returns
	Waited time.Duration
	// In the queue, when the call was first found to wait: 2 behind one, 1 for a lock-delay. 0 if
	// it never waited. Of permits, see Error.Position.
	Position int
	// How often the call had to queue again, because its session or its node was gone.
	Requeued  int
	Reentered bool // the owner held the lock already: Hold is another handle of that hold
}

// HoldInfo describes the loss of a hold, or the end of one of its handles.
type HoldInfo struct {
	AcquireInfo
	Hold  *Hold
	First *Hold // as in AcquireEndInfo; of HoldLost, the same as Hold
	// Of HoldEnd: all handles of the hold have been released, and this is the last HoldEnd of the
	// hold. A hold has one such HoldEnd, after AcquireEnd of each of its handles.
	Last bool
	// How long the lock was held since the grant: of HoldLost to the loss, of HoldEnd to the
	// release.
	Held time.Duration
	// Of HoldLost, what Hold.Err returns, or Release if that found the loss; of HoldEnd, what
	// Release returns.
	Err error
	// Why the hold was lost, as LossReason returns it; "" if it was not lost before the release.
	Reason string
	// Of HoldEnd: how long the handle was kept after the loss; 0 if the hold was not lost. If the
	// lease ended, it counts from that end, although a process that stood still may have seen it
	// later.
	Overrun time.Duration
}

// tracer calls the traces of a Session.
type tracer struct {
	all   []*Trace
	log   *eventlog.Log
	clock *clock.Clock

	mu      sync.Mutex    // guards what follows, and what the traced and their holds have under it
	losses  []*tracedHold // whose HoldLost is to be called, in order
	telling bool          // a goroutine calls them
}

// tracedHold is what the handles of a hold share. It lives until the last HoldEnd.
type tracedHold struct {
	first   *traced       // the call to which the lock was granted
	granted clock.Instant // to it

	// Under tracer.mu.
	handles int // whose HoldEnd has not been called
	loss    error
	lostAt  clock.Instant
	isTold  bool          // HoldLost has been called
	waiting []*traced     // released handles, whose HoldEnd comes after HoldLost
	until   clock.Instant // the last release so far
}

// traced is an acquire, and then the handle that it got.
type traced struct {
	t     *tracer
	info  AcquireInfo
	ctxs  []context.Context  // with which each trace is called
	ctx   [1]context.Context // for them, if they are no more
	began clock.Instant

	// From the grant or the re-entry on; written under lockTable.mu.
	hold *tracedHold
	h    *Hold

	// Under tracer.mu.
	isOpen   bool     // AcquireEnd has been called
	released *release // nil before
}

// release is the end of a handle by Release.
type release struct {
	at     clock.Instant
	err    error // that it returns
	isLost bool  // the hold was lost before
}

// beginTrace calls each AcquireStart, with the context that the one before returned. It returns one with the last one's values, that does not end.
func (t *tracer) beginTrace(ctx context.Context, info AcquireInfo) (values context.Context, c *traced) {
	c = &traced{t: t, info: info, began: t.clock.Now()}
	c.ctxs = c.ctx[:0]
	for _, trace := range t.all {
		returned := trace.AcquireStart == nil
		if !returned {
			t.call("AcquireStart", func() {
				if got := trace.AcquireStart(ctx, c.info); got != nil {
					ctx = got
				}
				returned = true
			})
		}
		values = context.WithoutCancel(ctx)
		own := values
		if !returned { // ctx may have values of an outer call
			own = context.Background()
		}
		c.ctxs = append(c.ctxs, own)
	}
	return values, c
}

// joins notes the handle that the call gets, under lockTable.mu. granted is that of the hold's
// first handle: itself, unless it re-enters.
func (c *traced) joins(h *Hold, granted handleTrace) {
	c.h = h
	if first := granted.(*traced); first != c {
		c.hold = first.hold
	} else {
		c.hold = &tracedHold{first: c, granted: c.t.clock.Now()}
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.hold.handles++
}

// acquired calls each AcquireEnd. From then on, HoldLost may be called. ctx is the caller's.
func (c *traced) acquired(ctx context.Context, h *Hold, info AcquireEndInfo) {
	t := c.t
	if info.AcquireInfo, info.Waited, info.Hold = c.info, since(c.began, t.clock.Now()), h; h != nil {
		info.First = c.hold.first.h
	}
	returned := false
	defer func() {
		if h == nil {
			return
		}
		if c.opens() {
			c.tellEnd()
		}
		if !returned { // nobody gets it
			unused(h)
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

// opens notes that AcquireEnd has been called. It reports whether HoldEnd is due: a function that
// AcquireEnd or WithRevocation has called may have released the handle already.
func (c *traced) opens() (isDue bool) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.isOpen = true
	if c.hold.first == c && c.hold.loss != nil {
		c.hold.queueLocked()
	}
	return c.released != nil && c.isDueLocked()
}

// isDueLocked reports whether HoldEnd of a released handle may be called now. Otherwise what comes
// before calls it.
func (c *traced) isDueLocked() bool {
	if !c.isOpen {
		return false
	}
	if c.hold.loss != nil && !c.hold.isTold {
		c.hold.waiting = append(c.hold.waiting, c)
		return false
	}
	return true
}

// lost notes that the hold is lost, and has HoldLost called once AcquireEnd of the granted call has
// been.
func (c *traced) lost(err error, at clock.Instant) {
	h := c.hold
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if h.loss != nil {
		return
	}
	if h.loss, h.lostAt = err, at; h.first.isOpen {
		h.queueLocked()
	}
}

// queueLocked puts the loss at the end of those to be told.
func (h *tracedHold) queueLocked() {
	t := h.first.t
	t.losses = append(t.losses, h)
	t.goOnLocked()
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

// tell calls each HoldLost, and then each HoldEnd of the handles that were released meanwhile.
func (h *tracedHold) tell() {
	c, t := h.first, h.first.t
	defer func() {
		t.mu.Lock()
		h.isTold = true
		released := h.waiting
		h.waiting = nil
		t.mu.Unlock()
		for _, r := range released {
			r.tellEnd()
		}
	}()
	info := HoldInfo{AcquireInfo: c.info, Hold: c.h, First: c.h, Held: since(h.granted, h.lostAt), Err: h.loss, Reason: LossReason(h.loss)}
	for i, trace := range t.all {
		if trace.HoldLost != nil {
			t.call("HoldLost", func() { trace.HoldLost(c.ctxs[i], info) })
		}
	}
}

// ended calls each HoldEnd, or leaves that to what comes before: AcquireEnd, HoldLost. err is what
// Release returns, and isLost that the hold was lost before.
func (c *traced) ended(at clock.Instant, err error, isLost bool) {
	c.t.mu.Lock()
	c.released = &release{at, err, isLost}
	isDue := c.isDueLocked()
	c.t.mu.Unlock()
	if isDue {
		c.tellEnd()
	}
}

// tellEnd calls each HoldEnd.
func (c *traced) tellEnd() {
	info := c.holdInfo()
	for i, trace := range c.t.all {
		if trace.HoldEnd != nil {
			c.t.call("HoldEnd", func() { trace.HoldEnd(c.ctxs[i], info) })
		}
	}
}

// holdInfo takes the handle from its hold, and describes its end. That of the last one is the hold's.
func (c *traced) holdInfo() HoldInfo {
	h, r := c.hold, c.released
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	h.handles--
	h.until = max(h.until, r.at)
	at, isLast := r.at, h.handles == 0
	if isLast {
		at = h.until
	}
	info := HoldInfo{AcquireInfo: c.info, Hold: c.h, First: h.first.h, Last: isLast, Held: since(h.granted, at), Err: r.err}
	if r.isLost || isLast && h.loss != nil {
		info.Reason, info.Overrun = LossReason(h.loss), since(h.lostAt, at)
	}
	return info
}

// since returns how long it was from one instant to the other, in whole microseconds: a clock that
// counts the machine's sleep reads two clocks, one after the other, and may step back a little.
func since(from, to clock.Instant) time.Duration { return max(0, to.Sub(from)).Round(time.Microsecond) }

// call calls a function of a trace.
func (t *tracer) call(name string, f func()) {
	eventlog.Contain(f, func(p, stack string) {
		t.log.Error("zklock: a function of a Trace panicked", "function", name, "panic", p, "stack", stack)
	})
}
