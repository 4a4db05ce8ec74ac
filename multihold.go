package zklock

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// MultiHold is one successful acquire of a Multi. It is safe for concurrent use, and only Release
// sends requests.
type MultiHold struct {
	holds []*Hold
	ctx   *holdsContext // of all the holds
}

func (h *MultiHold) granted() *MultiHold {
	return usable(h, h != nil && h.holds != nil, errNoMultiHold)
}

// Holds returns the locks' holds, in the order of their absolute paths. Pass a resource the token
// of the lock that guards it.
func (h *MultiHold) Holds() []*Hold { return slices.Clone(h.granted().holds) }

// Context returns a context to work under. It ends as soon as one lock is lost, one hold is
// released or one Session is closed, with that hold's Err as its cause. It carries all the holds,
// and is otherwise as [Hold.Context].
func (h *MultiHold) Context() context.Context { return h.granted().ctx }

// Err returns nil while all the locks are held, and then the Err of the hold that ended first.
func (h *MultiHold) Err() error {
	if h == nil || h.holds == nil {
		return &Error{Op: "hold", Err: errNoMultiHold}
	}
	if h.ctx.Err() == nil {
		return nil
	}
	return context.Cause(h.ctx)
}

// Release releases all the locks, those of one Session in one transaction if the servers permit
// all, whatever errors occur, and joins the errors.
// A second call returns nil. The time limit of [Hold.Release] applies to all together.
func (h *MultiHold) Release(ctx context.Context) error {
	switch {
	case h == nil || h.holds == nil:
		return &Error{Op: "release", Err: errNoMultiHold}
	case ctx == nil:
		return &Error{Op: "release", Path: h.holds[0].Path(), Err: errNilContext}
	}
	return errors.Join(h.release(&graceTime{ctx: ctx})...)
}

// release returns the error of each hold's Release.
func (h *MultiHold) release(p *graceTime) []error {
	_ = h.ctx.Err() // a loss that no call has seen yet came first
	h.ctx.end(h.holds[len(h.holds)-1].d.errorf("hold", errReleased))
	return releaseAll(p, h.holds)
}

// holdsContext is a context that carries the holds of a Multi. It ends with the caller's context,
// or with the first hold to end, with that hold's Err as its cause. with returns a context that
// carries one hold more. It shares everything with the shorter one, and both end together, so each
// step of an acquire costs the same, however many locks the Multi has.
type holdsContext struct {
	context.Context // ends with the caller's, with a hold, and by end
	caller          context.Context
	holds           []*Hold // in the order of the locks
	checked         []*Hold // whose Err this context's Err asks: one of each ZooKeeper session, or all (under)
	shared          *sharedHolds
}

// sharedHolds is what the contexts of one acquire share.
type sharedHolds struct {
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	stops  []func() bool // the functions that end the context with a hold
}

func newHoldsContext(caller context.Context) *holdsContext {
	c := &holdsContext{caller: caller, shared: &sharedHolds{}}
	c.Context, c.shared.cancel = context.WithCancelCause(caller)
	return c
}

// under returns a context that carries these holds, and whose Err asks each of them.
func under(caller context.Context, holds []*Hold) *holdsContext {
	c := newHoldsContext(caller)
	for _, h := range holds {
		c = c.with(h)
	}
	c.checked = holds
	return c
}

// with returns a context that also carries h. It may be called once for each context.
func (c *holdsContext) with(h *Hold) *holdsContext {
	longer := *c
	longer.holds = append(c.holds, h)
	if len(c.checked) == 0 || c.checked[len(c.checked)-1].d.e != h.d.e {
		longer.checked = append(c.checked, h)
	}
	stop := context.AfterFunc(h.ctx, func() { c.shared.cancel(context.Cause(h.ctx)) })
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.shared.stops = append(c.shared.stops, stop)
	return &longer
}

// end ends this context, the shorter ones and the longer ones, with cause unless one has ended.
func (c *holdsContext) end(cause error) {
	c.shared.cancel(cause)
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	for _, stop := range c.shared.stops {
		stop()
	}
	c.shared.stops = nil
}

// Err compares the clock with the lease of each Session first.
func (c *holdsContext) Err() error {
	_ = c.caller.Err() // if it carries a hold past its lease, that hold ends now, and c with it
	for _, h := range c.checked {
		if err := h.Err(); err != nil {
			c.shared.cancel(err)
			break
		}
	}
	return c.Context.Err()
}

// Value returns the hold for a holdKey or a lock root, as the context of a single hold does. What
// the library looks up besides is in the caller's context. Other values are those of the last
// AcquireStart, whose context should have the values of the earlier ones and of the caller's.
func (c *holdsContext) Value(key any) any {
	switch k := key.(type) {
	case holdKey:
		for _, h := range slices.Backward(c.holds) {
			if k.fits(h) {
				return h
			}
		}
	case *lockRoot:
		for _, h := range c.holds {
			if h.isOf(k.Path()) {
				return h
			}
		}
	case ownerKey:
	case multiWait:
		return nil // it was for the wait, which has ended
	default:
		for _, h := range slices.Backward(c.holds) {
			if h.values == nil {
				continue
			}
			if v := h.values.Value(key); v != nil {
				return v
			}
			break
		}
	}
	return c.Context.Value(key)
}

// releaseAll releases the holds, the last first, and then waits for all replies together. It
// returns the error that each hold's Release would return, or ReleaseAsync if p is nil.
func releaseAll(p *graceTime, holds []*Hold) []error {
	ends := make([]error, len(holds))
	for i, r := range slices.Backward(beginReleases(holds...)) {
		ends[i] = r.finish(p)
	}
	return ends
}

// outcomeOf returns the error that nested calls of each lock's Do would return.
func outcomeOf(holds []*Hold, work context.Context, worked error, released []error) error {
	for i, hold := range slices.Backward(holds) {
		worked = hold.outcomeOf(work, worked, released[i])
	}
	return worked
}
