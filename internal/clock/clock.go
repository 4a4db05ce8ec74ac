// Package clock is time as a lease counts it: with the time in which the machine slept.
package clock

import "time"

// Instant is a point on the session's own clock: time since Connect, time in system suspend included. A lease must
// not stand still while the machine sleeps, and must not jump when somebody sets the wall clock (F20, F21).
type Instant time.Duration

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Clock is Go's monotonic clock plus the time the machine was suspended since the clock was made. The first part is
// virtual inside a testing/synctest bubble; the second changes only when a machine sleeps.
type Clock struct {
	start      time.Time
	suspended  func() time.Duration
	suspended0 time.Duration
}

// New returns a clock that begins now. What it takes as the time in which the machine was suspended is the system's, or that of
// suspended if it is not nil.
func New(suspended func() time.Duration) *Clock {
	if suspended == nil {
		suspended = suspendedTime
	}
	return &Clock{start: time.Now(), suspended: suspended, suspended0: suspended()}
}

// Now is ahead of the true time at its return by longReading at the most: the monotonic part is read first. It may step back by
// as much.
func (c *Clock) Now() Instant {
	d := time.Since(c.start)
	return Instant(d + c.suspended() - c.suspended0)
}

// longReading is how far a reading that is kept may be off: little beside the 50 ms by which a lease ends early.
const longReading = 50 * time.Microsecond

// reading is the time in which the machine was suspended, as it was read at some time.
type reading struct {
	at        time.Time // before it was read, by both of Go's clocks
	suspended time.Duration
}

// holds says whether it still holds: both of Go's clocks are there, which is not so in a testing/synctest bubble, and show that it is less than a millisecond old. The machine cannot have slept since.
// To stop every process and every device before a sleep takes longer by the monotonic clock; and the wall clock goes on in a
// sleep, by as much as what is read here.
func (r *reading) holds(now time.Time) bool {
	const most = time.Millisecond
	monotonic, wall := now.Sub(r.at), now.Round(0).Sub(r.at.Round(0))
	return now != now.Round(0) && monotonic >= 0 && monotonic < most && wall > -most && wall < most
}

// Wall turns an Instant into a time.Time, for people.
func (c *Clock) Wall(t Instant) time.Time { return time.Now().Add(t.Sub(c.Now())) }

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
