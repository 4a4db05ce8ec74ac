package zklock

import "time"

// instant is a point on the session's own clock: time since Connect, time in system suspend included. A lease must
// not stand still while the machine sleeps, and must not jump when somebody sets the wall clock (F20, F21).
type instant time.Duration

func (t instant) add(d time.Duration) instant { return t + instant(d) }
func (t instant) sub(u instant) time.Duration { return time.Duration(t - u) }

// clock is Go's monotonic clock plus the time the machine was suspended since the clock was made. The first part is
// virtual inside a testing/synctest bubble; the second changes only when a machine sleeps.
type clock struct {
	start      time.Time
	suspended  func() time.Duration
	suspended0 time.Duration
}

func newClock() *clock {
	return &clock{start: time.Now(), suspended: suspendedTime, suspended0: suspendedTime()}
}

// now is never ahead of the true time at its return: the monotonic part is read first.
func (c *clock) now() instant {
	d := time.Since(c.start)
	return instant(d + c.suspended() - c.suspended0)
}

// wall turns an instant into a time.Time, for people.
func (c *clock) wall(t instant) time.Time { return time.Now().Add(t.sub(c.now())) }

// sinceBoot is the time since the machine was started, its sleep included: the wall clock now, less when the machine was
// started by the wall clock, which the kernel moves by as much when somebody sets the clock. The two are read one after the
// other. If the clock were set in between, the difference would be off by that step for one instant, which would end a hold
// for nothing or keep one past its end. So it counts only if the start of the machine reads the same before and after, as in
// Apple's libc for CLOCK_MONOTONIC. ok is false if it cannot be read.
func sinceBoot(started func() (at time.Duration, ok bool), now func() time.Duration) (d time.Duration, ok bool) {
	for {
		before, ok1 := started()
		wall := now()
		after, ok2 := started()
		if !ok1 || !ok2 {
			return 0, false
		}
		if before == after {
			return wall - after, true
		}
	}
}
