// Package tracecheck compares a Session's traces with the promises of zklock.Trace. The tests have
// a Check in each Session that they connect. So every test, random world and frame verifies that
// each acquire starts and ends once, that each handle ends once, that one handle of a hold ends as
// the last, and that each loss is reported once and at the right moment.
package tracecheck

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zklock/zklock"
)

// Check is the record of a Session's traces.
type Check struct {
	mu      sync.Mutex
	calls   map[*call]bool         // acquires that have not ended
	holds   map[*zklock.Hold]*held // holds that have not ended, by their first handle
	wrong   []error
	changed chan struct{} // closed with each trace
}

// call is an acquire and its handle.
type call struct {
	check    *Check
	info     zklock.AcquireInfo
	ended    bool
	hold     *zklock.Hold
	of       *held // the hold that it belongs to
	released bool
}

type held struct {
	first   *zklock.Hold
	granted *call       // nil until its AcquireEnd, which may follow the AcquireEnd of a re-entry
	handles int         // handles that have not been released
	reason  zklock.Loss // of HoldLost; "" before
	isOver  bool        // the last HoldEnd was called
}

type key struct{ *Check }

// New returns an empty record.
func New() *Check {
	return &Check{calls: map[*call]bool{}, holds: map[*zklock.Hold]*held{}, changed: make(chan struct{})}
}

// Option has the Check record the traces of the Session that is connected with it.
func (c *Check) Option() zklock.Option {
	return zklock.WithTrace(&zklock.Trace{
		AcquireStart: c.start,
		AcquireEnd: func(ctx context.Context, a zklock.AcquireEndInfo) {
			c.note(ctx, a.AcquireInfo, func(k *call) string { return k.end(a) })
		},
		HoldLost: func(ctx context.Context, h zklock.HoldInfo) {
			c.note(ctx, h.AcquireInfo, func(k *call) string { return k.lose(h) })
		},
		HoldEnd: func(ctx context.Context, h zklock.HoldInfo) {
			c.note(ctx, h.AcquireInfo, func(k *call) string { return k.release(h) })
		},
	})
}

func (c *Check) start(ctx context.Context, a zklock.AcquireInfo) context.Context {
	k := &call{check: c, info: a}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[k] = true
	return context.WithValue(ctx, key{c}, k)
}

// note records a trace of a call. judge returns the mistake in it, or "".
func (c *Check) note(ctx context.Context, a zklock.AcquireInfo, judge func(k *call) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := ctx.Value(key{c}).(*call)
	why := "its context is not of its AcquireStart"
	if ok {
		why = judge(k)
		if why == "" && a != k.info {
			why = fmt.Sprintf("it was %+v at the start", k.info)
		}
		if k.released || k.ended && k.hold == nil {
			delete(c.calls, k)
		}
	}
	if why != "" {
		c.wrong = append(c.wrong, fmt.Errorf("%+v: %s", a, why))
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (k *call) end(a zklock.AcquireEndInfo) string {
	switch {
	case k.ended:
		return "AcquireEnd a second time"
	case (a.Hold == nil) != (a.Err != nil):
		return fmt.Sprintf("AcquireEnd with the hold %v and the error %v", a.Hold, a.Err)
	case (a.Outcome == "acquired") != (a.Err == nil), a.Waited < 0 || a.Position < 0 || a.Requeued < 0 || a.Reentered && (a.Err != nil || a.Position > 0):
		return fmt.Sprintf("AcquireEnd with %+v", a)
	}
	if k.ended, k.hold = true, a.Hold; a.Hold != nil {
		return k.joins(a)
	}
	return ""
}

func (k *call) joins(a zklock.AcquireEndInfo) string {
	k.of = k.check.holds[a.First]
	if k.of == nil {
		k.of = &held{first: a.First}
		k.check.holds[a.First] = k.of
	}
	k.of.handles++
	switch {
	case a.Reentered != (a.Hold != a.First):
		return fmt.Sprintf("AcquireEnd with %+v", a)
	case a.Reentered:
	case k.of.granted != nil:
		return "AcquireEnd of a hold that another call was granted"
	default:
		k.of.granted = k
	}
	return ""
}

func (k *call) lose(h zklock.HoldInfo) string {
	switch {
	case k.hold == nil || h.Hold != k.hold || h.First != k.hold || k.of.granted != k:
		return "HoldLost of another hold than the granted AcquireEnd's"
	case k.of.reason != "":
		return "HoldLost a second time"
	case k.of.isOver:
		return "HoldLost after the last HoldEnd"
	case !errors.Is(h.Err, zklock.ErrLost) || h.Reason == "" || h.Held < 0:
		return fmt.Sprintf("HoldLost with %+v", h)
	}
	k.of.reason = h.Reason
	return ""
}

func (k *call) release(h zklock.HoldInfo) string {
	// ErrNotConfirmed may wrap the loss of another hold as its reason.
	foundLost := errors.Is(h.Err, zklock.ErrLost) && !errors.Is(h.Err, zklock.ErrNotConfirmed)
	switch {
	case k.hold == nil || h.Hold != k.hold || h.First != k.of.first:
		return "HoldEnd of another hold than AcquireEnd's"
	case k.released:
		return "HoldEnd a second time"
	case h.Reason != "" && h.Reason != k.of.reason, h.Reason == "" && foundLost, h.Reason != "" && !foundLost && !h.Last:
		return fmt.Sprintf("HoldEnd with the error %v and the reason %q; that of HoldLost is %q", h.Err, h.Reason, k.of.reason)
	case h.Held < 0 || h.Overrun < 0 || h.Overrun > 0 && k.of.reason == "":
		return fmt.Sprintf("HoldEnd with %+v", h)
	case h.Last && (k.of.isOver || k.of.granted == nil):
		return "HoldEnd as the last before the granted AcquireEnd, or a second time"
	}
	k.released = true
	if k.of.handles--; h.Last {
		k.of.isOver = true
		delete(k.check.holds, k.of.first)
	}
	return ""
}

// Ended is called when the Session is closed. It waits at most d until everything has ended, and
// returns all mistakes.
func (c *Check) Ended(d time.Duration) error {
	late := time.After(d)
	for {
		c.mu.Lock()
		wrong, changed, open := errors.Join(c.wrong...), c.changed, c.open()
		c.mu.Unlock()
		if wrong != nil || open == nil {
			return wrong
		}
		select {
		case <-changed:
		case <-late:
			return open
		}
	}
}

// open returns an error if an acquire or a hold has not ended. A lost hold counts as ended even if
// it is not released.
func (c *Check) open() error {
	for k := range c.calls {
		switch {
		case !k.ended:
			return fmt.Errorf("%+v: no AcquireEnd", k.info)
		case k.hold != nil && k.of.reason == "" && !k.released:
			return fmt.Errorf("%+v: neither HoldLost nor HoldEnd", k.info)
		}
	}
	for first, h := range c.holds {
		if h.handles == 0 {
			return fmt.Errorf("%p: no HoldEnd was the last", first)
		}
	}
	return nil
}
