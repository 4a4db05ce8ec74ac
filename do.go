package zklock

// The code that runs work under holds, for Do, TryDo and Campaign.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/lease"
)

// runWork runs f under the hold, until ctx ends, and then releases it (releasing.finish).
// It returns Do's error, and whether the hold was lost before the release. If ctx has ended as the
// lock was granted, or the lock was lost already, it does not call f.
func (h *Hold) runWork(ctx context.Context, p *graceTime, f func(ctx context.Context, hold *Hold) error) (lost bool, err error) {
	inner, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	work := &holdContext{inner, ctx, h, cancel} // ends with the cause of the first of the two to end
	returned := watchWork(h)
	defer func() { // also if f panics
		returned()
		stop()
		cancel(nil)
		before := h.Err() // f may have released it
		end := cmp.Or(beginReleases(h)[0].finish(p), before)
		lost, err = errors.Is(end, ErrLost), h.outcomeOf(work, err, end)
	}()
	if work.Err() != nil {
		cancelMinHold(h)
		return false, cmp.Or(h.Err(), h.d.errorf("hold", ctxError(work)))
	}
	return false, f(work, h)
}

// outcomeOf returns Do's error after the work under the hold and the release of the hold. If the
// hold was released before, released is its Err before that. A loss is in the error once.
func (h *Hold) outcomeOf(work context.Context, worked, released error) error {
	switch {
	case worked == nil, released == nil:
		return cmp.Or(worked, released)
	case errors.Is(released, ErrLost), errors.Is(released, ErrNotHeld):
		end := errors.Unwrap(h.Err()) // the error of the release has it, too
		if errors.Is(worked, end) {
			return worked
		}
		if worked == context.Canceled && errors.Is(context.Cause(work), end) {
			return released
		}
	}
	return errors.Join(worked, released)
}

// overrun logs that work continues after the first of its locks was lost. It has a timer from the
// loss on, and no goroutine.
type overrun struct {
	mu       sync.Mutex
	returned bool // the work has returned
	hold     *Hold
	since    time.Time
	timer    *time.Timer // nil until the loss
}

// firstOverrun is the time after which work that continues without its lock is logged. It is logged
// again each time that it has lasted twice as long. Work that ends soon after its context needs no
// line.
const firstOverrun = 5 * time.Second

// watchWork begins an overrun, which ends when the returned function is called.
func watchWork(holds ...*Hold) (returned func()) {
	o, stops := &overrun{}, make([]func() bool, len(holds))
	for i, h := range holds {
		stops[i] = context.AfterFunc(h.ctx, func() { o.startTimer(h) })
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.returned = true; o.timer != nil {
			o.timer.Stop()
		}
	}
}

// startTimer is called when a hold has ended.
func (o *overrun) startTimer(h *Hold) {
	if err := h.Err(); !errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) { // a closed Session logs nothing more
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.returned && o.timer == nil {
		o.hold, o.since, o.timer = h, time.Now(), time.AfterFunc(firstOverrun, o.log)
	}
}

func (o *overrun) log() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.returned {
		return
	}
	d, lasted := o.hold.d, time.Since(o.since)
	d.e.Log.Warn("zklock: work still runs after its lock was lost", append(d.attrs(), "for", lasted.Round(time.Second))...)
	o.timer.Reset(lasted)
}

// ErrLeaseEnding is the cause with which a context of [Hold.DeadlineContext] ends if the hold is
// not lost.
var ErrLeaseEnding = errors.New("the lease is about to end")

// DeadlineContext returns a context derived from the hold's Context. It also ends, with
// [ErrLeaseEnding] as its cause, when the hold's Deadline is less than margin away because no reply
// renews the lease. A later renewal does not restore it. The CancelFunc ends it, too.
//
// Give a margin below [LeaseMode.Margin], the time that is left even just before a renewal. With a
// larger margin the context may end although no server has failed.
func (h *Hold) DeadlineContext(margin time.Duration) (context.Context, context.CancelFunc) {
	h.granted()
	c := &deadlineContext{h: h, margin: margin}
	c.Context, c.cancel = context.WithCancelCause(h.ctx)
	c.timer = time.AfterFunc(math.MaxInt64, c.poll)
	context.AfterFunc(c.Context, func() { c.timer.Stop() })
	c.poll()
	return c, func() { c.cancel(nil) }
}

type deadlineContext struct {
	context.Context // ends with the hold's
	h               *Hold
	margin          time.Duration
	cancel          context.CancelCauseFunc
	timer           *time.Timer
}

// Err compares the clock first, as the Err of the hold's Context does.
func (c *deadlineContext) Err() error {
	c.endIfLate()
	return c.Context.Err()
}

// endIfLate ends the context if its time has come, and returns the time until the next check. That
// is short, because timers stop while the machine is suspended.
func (c *deadlineContext) endIfLate() (next time.Duration) {
	_ = c.h.ctx.Err() // if the hold is past its lease, both end now, with its cause
	e := c.h.d.e
	left := e.LeaseEnd().Sub(e.Clock.Now()) - c.margin
	if left <= 0 {
		c.cancel(c.h.d.errorf("hold", fmt.Errorf("%w: less than %v are left", ErrLeaseEnding, c.margin)))
	}
	return min(left, lease.ClockCheck)
}

// poll is for the timer.
func (c *deadlineContext) poll() {
	if next := c.endIfLate(); c.Context.Err() == nil {
		c.timer.Reset(next)
	}
}
