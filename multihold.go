package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// MultiHold is one successful acquire of a Multi. It is released once, from any goroutine. All its methods are safe for use from
// many goroutines. All except Release answer from memory.
type MultiHold struct {
	holds []*Hold
	ctx   *holdContext // ends with the first hold to end; its cause is that hold's Err
	done  func()       // stops what makes ctx end
}

func newMultiHold(ctx context.Context, holds []*Hold) *MultiHold {
	work, done := under(context.WithoutCancel(ctx), holds)
	return &MultiHold{holds: holds, ctx: work.(*holdContext), done: done}
}

// granted is for methods that return no error.
func (h *MultiHold) granted() *MultiHold {
	if h == nil || h.holds == nil {
		panic(fmt.Errorf("zklock: %w", errNoMultiHold))
	}
	return h
}

// String returns what String of each hold returns, in one line.
func (h *MultiHold) String() string { return fmt.Sprintf("MultiHold%v", h.granted().holds) }

// Holds returns the locks' holds, in the order in which they were taken: by the absolute path, as
// Multi describes it. Each has its own token: pass a resource the token of the lock that guards it.
func (h *MultiHold) Holds() []*Hold { return slices.Clone(h.granted().holds) }

// Context returns a context to work under. It ends when the first of the locks is lost, when one of the holds is released, and when
// one of the Sessions is closed. Then context.Cause is the Err of that hold, and says which it was. Otherwise it is as Hold.Context:
// its Err compares the clock with each lease first, it has the values of the context given to Acquire but not its end, and it
// carries all the holds.
func (h *MultiHold) Context() context.Context { return h.granted().ctx }

// DeadlineContext returns a context derived from Context. It ends as soon as the Ending of one of the holds would, with the same cause: margin
// is as there. The function ends it too.
func (h *MultiHold) DeadlineContext(margin time.Duration) (context.Context, context.CancelFunc) {
	return deadlineOf(h.granted().ctx, h.holds, margin)
}

// Err returns nil while all the locks are held. It compares the clock with each lease first. Otherwise it is the Err of the hold
// that ended first, and stays so.
func (h *MultiHold) Err() error {
	if h == nil || h.holds == nil {
		return &Error{Op: "hold", Err: errNoMultiHold}
	}
	if h.ctx.Err() == nil {
		return nil
	}
	return context.Cause(h.ctx)
}

// Release gives all the locks back, the last one taken first. It may be called from any goroutine; a second call does nothing and
// returns nil, as with Hold.Release. It releases each lock whatever became of the others, as Hold.Release does, and is bounded as that is, for all of
// them together. Its error joins theirs; each says at which path.
func (h *MultiHold) Release(ctx context.Context) error {
	switch {
	case h == nil || h.holds == nil:
		return &Error{Op: "release", Err: errNoMultiHold}
	case ctx == nil:
		return &Error{Op: "release", Path: h.holds[0].Path(), Err: errNilContext}
	}
	return errors.Join(h.release(ctx)...)
}

// release returns what Release of each hold returned.
func (h *MultiHold) release(ctx context.Context) []error {
	_ = h.ctx.Err() // a loss that nobody has seen yet came first
	h.ctx.cancel(h.holds[len(h.holds)-1].d.errorf("hold", errReleased))
	h.done()
	return releaseAll(&graceTime{ctx: ctx}, h.holds)
}

// under returns a context that carries the holds. It ends with ctx, or with the first hold to end, as the first of these says. done
// ends it too.
func under(ctx context.Context, holds []*Hold) (work context.Context, done func()) {
	var ends []func()
	for _, hold := range holds {
		inner, end := hold.workContext(ctx)
		ctx, ends = inner, append(ends, end)
	}
	return ctx, func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
}

// releaseAll releases the holds, the last first, and then waits for all of the answers together. It returns what Release of each
// would.
func releaseAll(p *graceTime, holds []*Hold) []error {
	all, ends := make([]releasing, len(holds)), make([]error, len(holds))
	for i, hold := range slices.Backward(holds) {
		all[i] = hold.beginRelease()
	}
	for i, r := range slices.Backward(all) {
		ends[i] = r.wait(p)
	}
	return ends
}

// outcomeOf returns what Do of each lock inside the one before would return.
func outcomeOf(holds []*Hold, work context.Context, worked error, released []error) error {
	for i, hold := range slices.Backward(holds) {
		worked = hold.outcomeOf(work, worked, released[i])
	}
	return worked
}
