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

// ErrEnding is the cause of a context of Hold.Ending that has ended although the hold is not lost: its lease is about to end.
var ErrEnding = errors.New("the lease is about to end")

// Ending returns a context derived from the hold's Context, which it carries: it ends with the hold, and also as soon as the hold's
// Deadline is less than margin away because no server has answered for long. Then its cause is ErrEnding; otherwise it is that of the
// hold's Context. As long as the lease is renewed in time, it does not end. Its own Err compares the clock first. A context that has
// ended stays ended, also if the lease is renewed after that. The function ends it too, and its timer, which the hold's end also does.
//
// Between two renewals no more than LeaseRoom is guaranteed to be left. So give a margin below that, or the context may end although all is well. A
// margin above all that a renewal brings ends it at once.
func (h *Hold) Ending(margin time.Duration) (context.Context, context.CancelFunc) {
	h.granted()
	return ending(h.ctx, []*Hold{h}, margin)
}

// ending returns a context derived from that which ends with the holds.
func ending(under *holdContext, holds []*Hold, margin time.Duration) (context.Context, context.CancelFunc) {
	c := &endingContext{under: under, holds: holds, margin: margin}
	c.Context, c.cancel = context.WithCancelCause(under)
	c.timer = time.AfterFunc(math.MaxInt64, c.look)
	context.AfterFunc(c.Context, func() { c.timer.Stop() })
	c.look()
	return c, func() { c.cancel(nil) }
}

type endingContext struct {
	context.Context // ends with under
	under           *holdContext
	holds           []*Hold
	margin          time.Duration
	cancel          context.CancelCauseFunc
	timer           *time.Timer
}

// Err looks at the clock first, as that of the hold's Context does.
func (c *endingContext) Err() error {
	c.endIfLate()
	return c.Context.Err()
}

// endIfLate ends the context if its time has come, and returns when to look again. That is often: timers stand still while the machine
// sleeps.
func (c *endingContext) endIfLate() (next time.Duration) {
	_ = c.under.Err() // if a hold is past its lease, both end now, with its cause
	next = math.MaxInt64
	for _, h := range c.holds {
		e := h.d.e
		left := e.LeaseEnd().Sub(e.Clock.Now()) - c.margin
		if left <= 0 {
			c.cancel(h.d.errorf("hold", fmt.Errorf("%w: less than %v are left", ErrEnding, c.margin)))
		}
		next = min(next, left, lease.ClockCheck)
	}
	return next
}

// look is for the timer.
func (c *endingContext) look() {
	if next := c.endIfLate(); c.Context.Err() == nil {
		c.timer.Reset(next)
	}
}
