// Package clock measures time for leases: it includes the time in which the machine was suspended.
package clock

import "time"

// Instant is a point on the Session's own clock: the time since Connect, including time in system
// suspend. A lease must not stop while the machine is suspended, and must not jump when the wall
// clock is set (F20, F21).
type Instant time.Duration

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Clock is Go's monotonic clock plus the time the machine was suspended since the clock was made.
// The first part is virtual inside a testing/synctest bubble; the second changes only when a
// machine sleeps.
type Clock struct {
	start      time.Time
	suspended  func() time.Duration
	suspended0 time.Duration
}

// New returns a clock that begins now. suspended returns how long the machine was suspended; nil
// asks the system.
func New(suspended func() time.Duration) *Clock {
	if suspended == nil {
		suspended = suspendedTime
	}
	return &Clock{start: time.Now(), suspended: suspended, suspended0: suspended()}
}

// Now returns at most longReading more than the true time at its return: the monotonic part is read
// first. It may step back by as much.
func (c *Clock) Now() Instant {
	d := time.Since(c.start)
	return Instant(d + c.suspended() - c.suspended0)
}

// longReading is the maximum error of a reading that is kept: little compared to the 50 ms by which
// a lease ends early.
const longReading = 50 * time.Microsecond

// reading is the suspended time of the machine, as read at a given time.
type reading struct {
	at        time.Time // before it was read, by both of Go's clocks
	suspended time.Duration
}

// holds reports whether the reading is still valid: both of Go's clocks show that it is less than a
// millisecond old. (In a testing/synctest bubble there is only one clock, and no reading is valid.)
// The machine cannot have been suspended since then. Stopping every process and every device before
// a suspend takes longer than that by the monotonic clock. And during a suspend the wall clock
// advances by as much as the suspended time.
func (r *reading) holds(now time.Time) bool {
	const most = time.Millisecond
	monotonic, wall := now.Sub(r.at), now.Round(0).Sub(r.at.Round(0))
	return now != now.Round(0) && monotonic >= 0 && monotonic < most && wall > -most && wall < most
}

// Wall converts an Instant to a time.Time, for output.
func (c *Clock) Wall(t Instant) time.Time { return time.Now().Add(t.Sub(c.Now())) }

// sinceBoot returns the time since the machine was started, including suspend: the wall clock now,
// minus the start of the machine by the wall clock. When the wall clock is set, the kernel moves
// that start by as much. The two are read one after the other. If the clock were set in between,
// the difference would be off by that step for one instant: it would end a hold for no reason, or
// keep one past its end. So a reading counts only if the start of the machine reads the same before
// and after, as in Apple's libc for CLOCK_MONOTONIC. ok is false if it cannot be read.
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
