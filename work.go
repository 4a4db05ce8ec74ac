package zklock

// What Do, TryDo and Campaign run under the holds that they take for it.

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// workContext returns a context that ends with the hold and with the caller's context, as the first of them to end says. done
// ends it too.
func (h *Hold) workContext(caller context.Context) (work *holdContext, done func()) {
	inner, cancel := context.WithCancelCause(caller)
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return &holdContext{inner, caller, h, cancel}, func() {
		stop()
		cancel(nil)
	}
}

// runWork runs f under the hold, until ctx ends, and then releases it, for as long as caller lasts. It returns what Do returns, and
// whether the hold was lost before the release. If ctx has ended as the lock was granted, or the lock was lost already, f is not called.
func (h *Hold) runWork(ctx, caller context.Context, f func(ctx context.Context, hold *Hold) error) (lost bool, err error) {
	work, done := h.workContext(ctx)
	returned := watchWork(h)
	defer func() { // also if f panics
		returned()
		done()
		before := h.Err() // somebody may have released it under f
		end := cmp.Or(h.Release(caller), before)
		lost, err = errors.Is(end, ErrLost), h.outcomeOf(work, err, end)
	}()
	if work.Err() != nil {
		unused(h)
		return false, cmp.Or(h.Err(), h.d.errorf("hold", ctxError(work)))
	}
	return false, f(work, h)
}

// outcomeOf returns what Do returns when the work under the hold and the release of the hold have returned. If the hold was released
// before, released is what its Err was.
func (h *Hold) outcomeOf(work context.Context, worked, released error) error {
	switch {
	case worked == nil, released == nil:
		return cmp.Or(worked, released)
	case errors.Is(released, ErrLost), errors.Is(released, ErrNotHeld):
		end := errors.Unwrap(h.Err()) // it is in the released error too
		if errors.Is(worked, end) {
			return worked
		}
		if worked == context.Canceled && errors.Is(context.Cause(work), end) {
			return released
		}
	}
	return errors.Join(worked, released)
}

// overrun logs that work goes on after the first of its locks was lost. It has a timer from the loss on, and no goroutine.
type overrun struct {
	mu       sync.Mutex
	returned bool // the work has
	hold     *Hold
	since    time.Time
	timer    *time.Timer // nil until the loss
}

// firstOverrun is after how long work that goes on without its lock is logged. It is logged again each time that it has lasted twice as
// long. Work that winds down when its context ends needs no line.
const firstOverrun = 5 * time.Second

// watchWork begins an overrun. It ends when the function that it returns is called.
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
