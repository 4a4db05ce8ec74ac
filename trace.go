package zklock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/link"
)

// Trace is what a Session calls as locks are waited for, held, lost and released (WithTrace). Each
// function is optional. Later versions may have more of them. None is called under a lock of this
// package, so each may call it.
//
// Every AcquireStart is followed by one AcquireEnd. If that has a Hold, one HoldEnd follows when
// the hold is released; if the hold is lost before, one HoldLost comes between the two. A Multi's
// locks each have their own, one after the other, although their nodes may be made before and are
// under the lease by then; if one of several that it tries in one round trip is taken, the first of
// them has the error, and the Multi's says which it was. What is refused before it begins is not
// told: bad arguments, and a Multi out of order.
//
// AcquireStart, AcquireEnd and HoldEnd run on the goroutine that acquires or releases, and one that
// blocks holds up that call. HoldLost runs on a goroutine of the Session's, one loss after the
// other, and so does HoldEnd of a hold that is released before its HoldLost has returned. Nobody
// waits for these, Close neither. None is left out: while one blocks, those after it wait, at some
// 400 bytes for each lost handle.
//
// A function that panics is logged, and the call goes on as if it had returned. After
// runtime.Goexit in AcquireEnd, which testing.T.FailNow calls, nothing is held: the hold is
// released, with its HoldEnd. Other functions may not be told of that call then, or of others of a
// Multi's.
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
	Place     int  // in the queue, when it was first found to wait: 2 behind one, 1 for a lock-delay. 0 if it never was. Of permits, see Error.Place
	Requeued  int  // how often it had to queue again, because its session or its node was gone
	Reentered bool // the owner held the lock already
}

// HoldInfo says how a handle ended: lost or released.
type HoldInfo struct {
	AcquireInfo
	Hold      *Hold
	Reentered bool          // its AcquireEnd said so: the hold is not counted twice
	Held      time.Duration // from AcquireEnd on; of HoldLost to the loss, of HoldEnd to the release
	Err       error         // of HoldLost, what Hold.Err returns, or Release if that found the loss; of HoldEnd, what Release returns
	Reason    string        // why it was lost, as LossReason says; "" if it was not
	// Of HoldEnd: how long its holder went on after the loss; 0 if it was not lost. If the lease ended, it counts from that end, although
	// a process that stood still may have seen it later.
	Overrun time.Duration
}

// What LossReason returns.
const (
	LossNoServer   = "no_server"       // no server answered before the lease ended
	LossNoQuorum   = "no_quorum"       // a server answered, and no quorum confirmed the session; or the servers refused the heartbeat
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
// ErrLost; if it has several of these, the first counts. For all others LossReason returns "".
func LossReason(err error) string {
	loss := lossIn(err)
	if loss == nil {
		return ""
	}
	for _, r := range lossReasons {
		if errors.Is(loss, r.err) {
			return r.reason
		}
	}
	return LossOther
}

// lossIn returns the error in the tree that wraps ErrLost itself, beside its reason (lostBecause).
func lossIn(err error) error {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return lossIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		if slices.Contains(all, ErrLost) {
			return err
		}
		for _, branch := range all {
			if loss := lossIn(branch); loss != nil {
				return loss
			}
		}
	}
	if err == ErrLost {
		return err
	}
	return nil
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
	granted   clock.Instant // written before isOpen, as are the next two
	h         *Hold
	reentered bool

	// Under tracer.mu.
	isOpen   bool // AcquireEnd has been called
	loss     error
	lostAt   clock.Instant
	isTold   bool     // HoldLost has been called
	released *release // nil before
}

// release is the end of a handle by Release.
type release struct {
	at  clock.Instant
	err error // that it returns
}

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
		if c.opens() {
			c.tellEnd()
		}
		if !returned && h != nil { // nobody gets it
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

// opens notes that AcquireEnd has been called. It says whether the handle has been released already, by a function that AcquireEnd or
// WithRevocation told of it: then HoldEnd is due.
func (c *traced) opens() (isReleased bool) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.isOpen = true
	if c.loss != nil {
		c.queueLocked()
		return false
	}
	return c.released != nil
}

// lost notes that the handle is lost, and has HoldLost called once AcquireEnd has been.
func (c *traced) lost(err error, at clock.Instant) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.loss != nil {
		return
	}
	if c.loss, c.lostAt = err, at; c.isOpen {
		c.queueLocked()
	}
}

// queueLocked puts the loss at the end of those to be told.
func (c *traced) queueLocked() {
	c.t.losses = append(c.t.losses, c)
	c.t.goOnLocked()
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

// tell calls each HoldLost, and then each HoldEnd if the handle was released meanwhile.
func (c *traced) tell() {
	defer func() {
		c.t.mu.Lock()
		c.isTold = true
		isReleased := c.released != nil
		c.t.mu.Unlock()
		if isReleased {
			c.tellEnd()
		}
	}()
	info := c.infoUntil(c.lostAt, c.loss)
	for i, trace := range c.t.all {
		if trace.HoldLost != nil {
			c.t.call("HoldLost", func() { trace.HoldLost(c.ctxs[i], info) })
		}
	}
}

// ended calls each HoldEnd, or leaves that to who comes before: AcquireEnd, HoldLost. err is what Release returns.
func (c *traced) ended(at clock.Instant, err error) {
	c.t.mu.Lock()
	c.released = &release{at, err}
	isNext := c.isOpen && (c.loss == nil || c.isTold)
	c.t.mu.Unlock()
	if isNext {
		c.tellEnd()
	}
}

// tellEnd calls each HoldEnd, once nothing else is told of the handle.
func (c *traced) tellEnd() {
	info := c.infoUntil(c.released.at, c.released.err)
	if c.loss != nil {
		info.Overrun = since(c.lostAt, c.released.at)
	}
	for i, trace := range c.t.all {
		if trace.HoldEnd != nil {
			c.t.call("HoldEnd", func() { trace.HoldEnd(c.ctxs[i], info) })
		}
	}
}

// infoUntil is what is told of the handle's end.
func (c *traced) infoUntil(at clock.Instant, err error) HoldInfo {
	info := HoldInfo{AcquireInfo: c.info, Hold: c.h, Reentered: c.reentered, Held: since(c.granted, at), Err: err}
	if c.loss != nil {
		info.Reason = LossReason(c.loss)
	}
	return info
}

// since returns how long it was from one instant to the other. A clock that counts the machine's sleep may step back by microseconds.
func since(from, to clock.Instant) time.Duration { return max(0, to.Sub(from)) }

// call calls a function of a trace.
func (t *tracer) call(name string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("zklock: a function of a Trace panicked", "function", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}
