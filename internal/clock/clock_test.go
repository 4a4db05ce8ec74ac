package clock

// These tests set the wall clock and let the machine sleep: a lease counts on.

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// F20, F21: the clock counts suspend, and does not follow the wall clock.
func TestClock_CountsSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suspended := 5 * time.Minute // before the Session was made
		c := New(func() time.Duration { return suspended })
		require.Zero(t, c.Now())
		time.Sleep(time.Second)
		require.Equal(t, Instant(1*time.Second), c.Now())
		suspended += time.Hour
		require.Equal(t, Instant(3601*time.Second), c.Now())
		require.Equal(t, time.Now().Add(10*time.Second), c.Wall(Instant(3611*time.Second)), "for people: so long from now")
	})
}

// F20: the wall clock is set. The lease's clock does not change.
func TestClock_IgnoresTheWallClock(t *testing.T) {
	c := New(nil)
	for _, step := range []int64{3600, -7200} {
		// A time.Time read from both clocks keeps the seconds of the wall clock above 30 bits of
		// nanoseconds. Shifting the seconds of the start one way has the same effect as setting the
		// clock the other way.
		before := c.start
		*(*uint64)(unsafe.Pointer(&c.start)) += uint64(step) << 30
		require.Equal(t, time.Duration(step)*time.Second, c.start.Round(0).Sub(before.Round(0)), "package time works otherwise: the wall clock was not set")
		require.InDelta(t, 0, time.Duration(c.Now()).Seconds(), 60)
	}
}

// F20, on macOS: the wall clock is set while the time since the boot is computed, at any point of
// the computation, once or again and again. No instant is off by that step.
func TestSinceBoot_ClockStep(t *testing.T) {
	const tick = time.Millisecond // passes with each reading
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		for from := range 8 {
			for steps := range 4 { // so many, one at each reading from that one on
				up, set, readings := 10*time.Hour, time.Duration(0), 0 // set: by how much the wall clock was moved
				read := func() {
					if readings >= from && readings < from+steps {
						set += step
					}
					readings++
					up += tick
				}
				const start = 1000 * time.Hour // by the wall clock as it was
				began := up
				d, ok := sinceBoot(
					func() (time.Duration, bool) { read(); return start + set, true },
					func() time.Duration { read(); return start + up + set })
				require.True(t, ok)
				require.GreaterOrEqual(t, d, began, "steps of %v at %d readings from the %d. on", step, steps, from)
				require.LessOrEqual(t, d, up, "steps of %v at %d readings from the %d. on", step, steps, from)
			}
		}
	}
	_, ok := sinceBoot(func() (time.Duration, bool) { return 0, false }, func() time.Duration { return time.Hour })
	require.False(t, ok)
}

func TestSuspendedTime(t *testing.T) {
	a := suspendedTime()
	require.GreaterOrEqual(t, a, -time.Second)
	require.InDelta(t, a.Seconds(), suspendedTime().Seconds(), 1, "nobody slept in between")
}

// F20: a reading is used again only while both of Go's clocks show that hardly any time has passed.
func TestReading_Holds(t *testing.T) {
	at := time.Now()
	r := &reading{at: at}
	set := func(at time.Time, step int64) time.Time { // moves the wall clock, as TestClock_IgnoresTheWallClock does
		*(*uint64)(unsafe.Pointer(&at)) += uint64(step) << 30
		return at
	}
	for _, tt := range []struct {
		what string
		now  time.Time
		want bool
	}{
		{"at once", at, true},
		{"within a millisecond", at.Add(time.Millisecond - 1), true},
		{"after it", at.Add(time.Millisecond), false},
		{"before", at.Add(-1), false},
		{"the machine slept: only the wall clock went on", set(at.Add(time.Microsecond), 3600), false},
		{"the wall clock was set back", set(at.Add(time.Microsecond), -3600), false},
		{"two seconds later, the wall clock set back by as much", set(at.Add(2*time.Second), -2), false},
		{"in a bubble, where nothing passes", at.Round(0), false},
		{"by another clock, that of a test", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), false},
	} {
		require.Equal(t, tt.want, r.holds(tt.now), tt.what)
	}
}
