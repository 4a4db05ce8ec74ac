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
