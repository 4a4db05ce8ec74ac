package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// MultiHold is one successful acquire of a Multi. It is safe for concurrent use, and only Release
// sends requests.
type MultiHold struct {
	holds []*Hold
	ctx   *holdContext // ends with the first hold to end; its cause is that hold's Err
	done  func()       // removes the functions that end ctx
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

// String returns the String of each hold, in one line.
func (h *MultiHold) String() string { return fmt.Sprintf("MultiHold%v", h.granted().holds) }

// Holds returns the locks' holds, in the order of their absolute paths. Pass a resource the token
// of the lock that guards it.
func (h *MultiHold) Holds() []*Hold { return slices.Clone(h.granted().holds) }

// Context returns a context to work under. It ends as soon as one lock is lost, one hold is
// released or one Session is closed, with that hold's Err as its cause. It carries all the holds,
// and is otherwise as [Hold.Context].
func (h *MultiHold) Context() context.Context { return h.granted().ctx }

// DeadlineContext returns a context derived from Context that also ends when the
// [Hold.DeadlineContext] of one hold would, with the same cause. The CancelFunc ends it, too.
func (h *MultiHold) DeadlineContext(margin time.Duration) (context.Context, context.CancelFunc) {
	return deadlineOf(h.granted().ctx, h.holds, margin)
}

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

// Release releases all the locks, the last one first, whatever errors occur, and joins the errors.
// A second call returns nil. The time limit of [Hold.Release] applies to all together.
func (h *MultiHold) Release(ctx context.Context) error {
	switch {
	case h == nil || h.holds == nil:
		return &Error{Op: "release", Err: errNoMultiHold}
	case ctx == nil:
		return &Error{Op: "release", Path: h.holds[0].Path(), Err: errNilContext}
	}
	return errors.Join(h.release(ctx)...)
}

// release returns the error of each hold's Release.
func (h *MultiHold) release(ctx context.Context) []error {
	_ = h.ctx.Err() // a loss that no call has seen yet came first
	h.ctx.cancel(h.holds[len(h.holds)-1].d.errorf("hold", errReleased))
	h.done()
	return releaseAll(&graceTime{ctx: ctx}, h.holds)
}

// under returns a context that carries the holds. It ends with ctx or with the first hold to end,
// with that end's cause. done ends it, too.
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

// releaseAll releases the holds, the last first, and then waits for all replies together. It
// returns the error that each hold's Release would return.
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

// outcomeOf returns the error that nested calls of each lock's Do would return.
func outcomeOf(holds []*Hold, work context.Context, worked error, released []error) error {
	for i, hold := range slices.Backward(holds) {
		worked = hold.outcomeOf(work, worked, released[i])
	}
	return worked
}
