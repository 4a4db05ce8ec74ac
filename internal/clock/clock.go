// Package clock is time as a lease counts it: with the time in which the machine slept.
package clock

import "time"

// Instant is a point on the Session's own clock: the time since Connect, including time in system suspend. A lease must
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

// New returns a clock that begins now. suspended returns how long the machine was suspended; nil asks the system.
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

// holds says whether the reading still holds: both of Go's clocks show that it is less than a millisecond old. (In a
// testing/synctest bubble there is only one, and no reading holds.) Then the machine cannot have slept since. To stop every
// process and every device before a sleep takes longer than that by the monotonic clock. And in a sleep the wall clock goes on,
// by as much as the suspended time.
func (r *reading) holds(now time.Time) bool {
	const most = time.Millisecond
	monotonic, wall := now.Sub(r.at), now.Round(0).Sub(r.at.Round(0))
	return now != now.Round(0) && monotonic >= 0 && monotonic < most && wall > -most && wall < most
}

// Wall turns an Instant into a time.Time, for people.
func (c *Clock) Wall(t Instant) time.Time { return time.Now().Add(t.Sub(c.Now())) }

// sinceBoot returns the time since the machine was started, its sleep included: the wall clock now, less the start of the
// machine by the wall clock. When somebody sets the clock, the kernel moves that start by as much. The two are read one after
// the other. If the clock were set in between, the difference would be off by that step for one instant: it would end a hold
// for nothing, or keep one past its end. So a reading counts only if the start of the machine reads the same before and after,
// as in Apple's libc for CLOCK_MONOTONIC. ok is false if it cannot be read.
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
