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
// (WithTrace). Each function is optional, and may call this package.
//
// Each AcquireStart is followed by one AcquireEnd and, if that has a Hold, by one HoldEnd when that
// handle is released. A loss causes one HoldLost, before each HoldEnd that reports it. The locks of
// a Multi have their own calls, in order. Calls that are rejected at once, such as for bad
// arguments, are not traced.
//
// A Campaign is traced each time that it queues, and once if it fails before that. The context of
// AcquireStart ends with the Campaign. If an error ended the Campaign, it is the cause, in an
// [*Error] with the Op "campaign".
//
// AcquireStart, AcquireEnd and HoldEnd run on the goroutine that acquires or releases, and can
// block it. HoldLost, and each HoldEnd that waits for it, run on a goroutine of the Session, one
// loss after the other. HoldEnd after ReleaseAsync runs on a goroutine of its own, once the
// deletion is confirmed or given up. No call waits for these, not even Close.
//
// A panic is logged, and the call continues; if AcquireStart panics, the other functions get an
// empty context.
type Trace struct {
	// AcquireStart is called before an acquire sends a request. The hold, the work and the other
	// functions get the values of the context that it returns, but not its end. A nil result means
	// ctx.
	AcquireStart func(ctx context.Context, a AcquireInfo) context.Context
	// AcquireEnd is called when the call acquires the lock or gives up.
	AcquireEnd func(ctx context.Context, a AcquireEndInfo)
	// HoldLost is called once when a hold ends without a release, also by Close. Its context and
	// Hold belong to the call that was granted the lock, even if that handle was released.
	HoldLost func(ctx context.Context, h HoldInfo)
	// HoldEnd is called when a handle's release is confirmed, or the wait for that ends.
	HoldEnd func(ctx context.Context, h HoldInfo)
}

// Kind is the kind of a lock that a call acquires, in one word for metrics.
type Kind string

const (
	KindMutex     Kind = "mutex"     // Mutex
	KindRead      Kind = "read"      // RWMutex.ReadLock
	KindWrite     Kind = "write"     // RWMutex.WriteLock
	KindSemaphore Kind = "semaphore" // Semaphore.Permits
	KindElection  Kind = "election"  // Election
)

// AcquireInfo identifies a call.
type AcquireInfo struct {
	Kind  Kind
	Path  string // as given to the New function
	Name  string // of WithName, or ""
	Multi string // "Multi(" and the paths of a Multi that makes the call, or ""
	Try   bool   // the call does not wait: TryAcquire, TryDo, WaitAtMost(0)
}

// AcquireEndInfo describes the end of an acquire.
type AcquireEndInfo struct {
	AcquireInfo
	Hold  *Hold // nil if Err is not nil
	First *Hold // the handle that was granted the lock, the same for all handles of a hold
	Err   error
	// Outcome is Err in one word, for metrics: acquired, not_acquired, deadline, not_connected, closed
	// or error; canceled also if Resign ended the candidature, or a Multi lost another lock.
	Outcome   string
	Waited    time.Duration
	Position  int  // in the queue when the wait began (Error.Position), or 0; 1 in a lock-delay
	Requeued  int  // how often the call lost its session or node, and queued again
	Reentered bool // Hold is another handle of the owner's hold
}

// HoldInfo describes the loss of a hold, or the end of one of its handles.
type HoldInfo struct {
	AcquireInfo
	Hold  *Hold
	First *Hold         // as in AcquireEndInfo
	Last  bool          // this is the hold's last HoldEnd: all its handles were released
	Held  time.Duration // from the grant to the loss (HoldLost) or the release (HoldEnd)
	// Err is the error of Release. For HoldLost it is Hold.Err, or the error of the Release that
	// found the loss.
	Err    error
	Reason Loss // of a loss before the release, or ""
	// Overrun is how long HoldEnd's handle was kept after the loss (or the end of the lease, if that
	// was earlier), or 0.
	Overrun time.Duration
}

// tracer calls the traces of a Session.
type tracer struct {
	all   []*Trace
	log   *eventlog.Log
	clock *clock.Clock

	mu      sync.Mutex    // guards the fields below, and fields of traced and tracedHold
	losses  []*tracedHold // holds whose HoldLost is due, in order
	telling bool          // a goroutine calls one
}

// tracedHold is the state that the handles of a hold share. It lives until the last HoldEnd.
type tracedHold struct {
	first   *traced       // the call to which the lock was granted
	granted clock.Instant // when it was

	// Under tracer.mu.
	handles int // handles whose HoldEnd has not been called
	loss    error
	lostAt  clock.Instant
	isTold  bool          // HoldLost has been called
	waiting []*traced     // released handles, whose HoldEnd follows HoldLost
	until   clock.Instant // the latest release so far
}

// traced is an acquire, and then the handle that it got.
type traced struct {
	t     *tracer
	info  AcquireInfo
	ctxs  []context.Context  // the context for each Trace
	ctx   [1]context.Context // the array of ctxs, if there is one Trace
	began clock.Instant

	// Set by the grant or the re-entry; written under lockTable.mu.
	hold *tracedHold
	h    *Hold

	// Under tracer.mu.
	isOpen     bool // AcquireEnd has been called
	isReleased bool
	releasedAt clock.Instant
	end        error // of Release
	isLost     bool  // the hold was lost before the release
}

// beginTrace calls each AcquireStart with the context that the previous one returned. It returns
// the values of the last context, in a context that does not end.
func (t *tracer) beginTrace(ctx context.Context, info AcquireInfo) (values context.Context, c *traced) {
	c = &traced{t: t, info: info, began: t.clock.Now()}
	c.ctxs = c.ctx[:0]
	ctx = context.WithValue(ctx, c, true) // holdContext.Value finds it in contexts that derive from this one
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

// joins records the handle that the call gets, under lockTable.mu. granted belongs to the hold's
// first handle: it is c, unless the call re-enters.
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
	info.AcquireInfo, info.Waited, info.Outcome = c.info, since(c.began, t.clock.Now()), outcomeWord(info.Err)
	if info.Hold = h; h != nil {
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
		if !returned { // no caller gets the hold: runtime.Goexit, as by testing.T.FailNow
			cancelMinHold(h)
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

// opens records that AcquireEnd has been called. It reports whether HoldEnd is due, because a
// function that AcquireEnd or WithRevocation called may have released the handle already.
func (c *traced) opens() (isDue bool) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.isOpen = true
	if c.hold.first == c && c.hold.loss != nil {
		c.hold.queueLocked()
	}
	return c.isReleased && c.isDueLocked()
}

// isDueLocked reports whether HoldEnd of a released handle may be called now. Otherwise it is
// called after AcquireEnd or HoldLost.
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

// lost records the loss of the hold. HoldLost follows as soon as AcquireEnd of the granted call has
// been called.
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

// queueLocked appends the loss to the queue of losses, where it takes some 400 bytes.
func (h *tracedHold) queueLocked() {
	t := h.first.t
	t.losses = append(t.losses, h)
	t.goOnLocked()
}

// goOnLocked starts the calls for the next loss, unless the calls for another loss are running.
// Each loss has a goroutine of its own, so that a function that ends it (runtime.Goexit) does not
// delay the next one.
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
	info := HoldInfo{AcquireInfo: c.info, Hold: c.h, First: c.h, Held: since(h.granted, h.lostAt), Err: h.loss, Reason: lossReason(h.loss)}
	for i, trace := range t.all {
		if trace.HoldLost != nil {
			t.call("HoldLost", func() { trace.HoldLost(c.ctxs[i], info) })
		}
	}
}

// ended calls each HoldEnd, unless AcquireEnd or HoldLost has to be called before. err is the
// result of Release, and isLost reports that the hold was lost before. With async, the caller is a
// goroutine of the Session, and HoldEnd, which may call Close, does not run on it.
func (c *traced) ended(at clock.Instant, err error, isLost, async bool) {
	c.t.mu.Lock()
	c.isReleased, c.releasedAt, c.end, c.isLost = true, at, err, isLost
	isDue := c.isDueLocked()
	c.t.mu.Unlock()
	switch {
	case isDue && async:
		go c.tellEnd()
	case isDue:
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

// holdInfo removes the handle from its hold, and describes its end. The end of the last handle is
// the end of the hold.
func (c *traced) holdInfo() HoldInfo {
	h := c.hold
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	h.handles--
	h.until = max(h.until, c.releasedAt)
	at, isLast := c.releasedAt, h.handles == 0
	if isLast {
		at = h.until
	}
	info := HoldInfo{AcquireInfo: c.info, Hold: c.h, First: h.first.h, Last: isLast, Held: since(h.granted, at), Err: c.end}
	if c.isLost || isLast && h.loss != nil {
		info.Reason, info.Overrun = lossReason(h.loss), since(h.lostAt, at)
	}
	return info
}

// since returns the time between two instants, in whole microseconds and at least 0: a clock that
// counts the machine's sleep reads two clocks, one after the other, and may step back a little.
func since(from, to clock.Instant) time.Duration { return max(0, to.Sub(from)).Round(time.Microsecond) }

// call calls a function of a trace, and logs its panic.
func (t *tracer) call(name string, f func()) {
	eventlog.Contain(f, func(p, stack string) {
		t.log.Error("zklock: a function of a Trace panicked", "function", name, "panic", p, "stack", stack)
	})
}
