package zklock

// A context that ends some time before the lease does, for work that must wind down.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/zklock/zklock/internal/lease"
)

// ErrLeaseEnding is the cause of a context of Hold.DeadlineContext that has ended although the hold is not lost: its lease is about to end.
var ErrLeaseEnding = errors.New("the lease is about to end")

// DeadlineContext returns a context derived from the hold's Context, which it carries: it ends with the hold, and also as soon as the hold's
// Deadline is less than margin away because no server has answered for long. Then its cause is ErrLeaseEnding; otherwise it is that of the
// hold's Context. As long as the lease is renewed in time, it does not end. Its own Err compares the clock first. A context that has
// ended stays ended, also if the lease is renewed after that. The function ends it too, and its timer, which the hold's end also does.
//
// Between two renewals no more than LeaseMargin is guaranteed to be left. So give a margin below that, or the context may end although all is well. A
// margin above all that a renewal brings ends it at once.
func (h *Hold) DeadlineContext(margin time.Duration) (context.Context, context.CancelFunc) {
	h.granted()
	return deadlineOf(h.ctx, []*Hold{h}, margin)
}

// deadlineOf returns a context derived from that which ends with the holds.
func deadlineOf(under *holdContext, holds []*Hold, margin time.Duration) (context.Context, context.CancelFunc) {
	c := &deadlineContext{under: under, holds: holds, margin: margin}
	c.Context, c.cancel = context.WithCancelCause(under)
	c.timer = time.AfterFunc(math.MaxInt64, c.check)
	context.AfterFunc(c.Context, func() { c.timer.Stop() })
	c.check()
	return c, func() { c.cancel(nil) }
}

type deadlineContext struct {
	context.Context // ends with under
	under           *holdContext
	holds           []*Hold
	margin          time.Duration
	cancel          context.CancelCauseFunc
	timer           *time.Timer
}

// Err looks at the clock first, as that of the hold's Context does.
func (c *deadlineContext) Err() error {
	c.endIfLate()
	return c.Context.Err()
}

// endIfLate ends the context if its time has come, and returns when to look again. That is often: timers stand still while the machine
// sleeps.
func (c *deadlineContext) endIfLate() (next time.Duration) {
	_ = c.under.Err() // if a hold is past its lease, both end now, with its cause
	next = math.MaxInt64
	for _, h := range c.holds {
		e := h.d.e
		left := e.LeaseEnd().Sub(e.Clock.Now()) - c.margin
		if left <= 0 {
			c.cancel(h.d.errorf("hold", fmt.Errorf("%w: less than %v are left", ErrLeaseEnding, c.margin)))
		}
		next = min(next, left, lease.ClockCheck)
	}
	return next
}

// check is for the timer.
func (c *deadlineContext) check() {
	if next := c.endIfLate(); c.Context.Err() == nil {
		c.timer.Reset(next)
	}
}
