package clock

// This test attacks the suspended time that Linux reports.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// F20: the machine may have been suspended since the last reading: a millisecond later it is read
// again.
func TestSuspendedTime_IsReadAgain(t *testing.T) {
	t.Cleanup(func() { lastSuspended.Store(nil) })
	wrong := suspendedTime() + time.Hour
	lastSuspended.Store(&reading{at: time.Now().Add(-time.Millisecond), suspended: wrong})
	require.InDelta(t, (wrong - time.Hour).Seconds(), suspendedTime().Seconds(), 1)
	lastSuspended.Store(&reading{at: time.Now().Add(time.Hour), suspended: wrong})
	require.InDelta(t, (wrong - time.Hour).Seconds(), suspendedTime().Seconds(), 1)
}

// F18: a pause of the process during a reading is no suspend. If each reading takes long, the time
// is counted rather too long, and not kept.
func TestSuspendedTime_PauseDuringAReading(t *testing.T) {
	system := clockGettime
	t.Cleanup(func() { clockGettime = system; lastSuspended.Store(nil) })
	for _, c := range []struct{ pauses, want time.Duration }{{1, time.Hour}, {2, time.Hour}, {3, time.Hour + time.Minute}} {
		lastSuspended.Store(nil)
		calls, now := time.Duration(0), time.Duration(0)
		clockGettime = func(id uintptr) (time.Duration, bool) {
			if calls++; calls%3 == 2 && calls/3 < c.pauses {
				now += time.Minute
			}
			return now + time.Duration(id/7)*time.Hour, true
		}
		require.Equal(t, c.want, suspendedTime())
		require.Equal(t, c.want == time.Hour, lastSuspended.Load() != nil)
	}
}
