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
