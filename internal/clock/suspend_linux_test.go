package clock

// This test attacks what Linux says of the time in which the machine slept.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// F20: the machine may have slept since it was last asked how long it has: it is asked again a millisecond later.
func TestSuspendedTime_IsReadAgain(t *testing.T) {
	t.Cleanup(func() { lastSuspended.Store(nil) })
	wrong := suspendedTime() + time.Hour
	lastSuspended.Store(&reading{at: time.Now().Add(-time.Millisecond), suspended: wrong})
	require.InDelta(t, (wrong - time.Hour).Seconds(), suspendedTime().Seconds(), 1)
	lastSuspended.Store(&reading{at: time.Now().Add(time.Hour), suspended: wrong})
	require.InDelta(t, (wrong - time.Hour).Seconds(), suspendedTime().Seconds(), 1)
}
