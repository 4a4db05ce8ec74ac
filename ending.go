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

// ErrEnding is the cause of a context of Hold.Ending that has ended while the hold stands: its lease is about to end.
var ErrEnding = errors.New("the lease is about to end")

// Ending returns a context derived from the hold's Context, which it carries: it ends with the hold, and also as soon as the hold's
// Deadline is less than margin away because no server has answered for long. Then its cause is ErrEnding; otherwise it is that of the
// hold's Context. As long as the lease is renewed in time, it does not end. Its own Err compares the clock first. A context that has
// ended stays ended, also if the lease is renewed after that. The function ends it too, and its timer, which the hold's end also does.
//
// Between two renewals no more than LeaseRoom is surely left: give a margin below that, or the context may end although all is well. A
// margin above all that a renewal brings ends it at once.
func (h *Hold) Ending(margin time.Duration) (context.Context, context.CancelFunc) {
	h.granted()
	c := &endingContext{h: h, margin: margin}
	c.Context, c.cancel = context.WithCancelCause(h.ctx)
	c.timer = time.AfterFunc(math.MaxInt64, c.look)
	context.AfterFunc(c.Context, func() { c.timer.Stop() })
	c.look()
	return c, func() { c.cancel(nil) }
}

type endingContext struct {
	context.Context // ends with the hold's
	h               *Hold
	margin          time.Duration
	cancel          context.CancelCauseFunc
	timer           *time.Timer
}

// Err looks at the clock first, as that of the hold's Context does.
func (c *endingContext) Err() error {
	c.endIfLate()
	return c.Context.Err()
}

// endIfLate ends the context if its time has come, and returns what is left.
func (c *endingContext) endIfLate() (left time.Duration) {
	_ = c.h.ctx.Err() // if the hold is past its lease, both end now, with its cause
	e := c.h.d.e
	if left = e.LeaseEnd().Sub(e.Clock.Now()) - c.margin; left <= 0 {
		c.cancel(c.h.d.errorf("hold", fmt.Errorf("%w: less than %v are left", ErrEnding, c.margin)))
	}
	return left
}

// look is for the timer. It looks often: timers stand still while the machine sleeps.
func (c *endingContext) look() {
	if left := c.endIfLate(); c.Context.Err() == nil {
		c.timer.Reset(min(left, lease.Heartbeat(c.h.d.e.Timeout())))
	}
}
