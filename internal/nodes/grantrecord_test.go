package nodes

// These tests attack grantrecord.go: who may wait for the delay of a holder that is gone.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/queue"
)

// A front that waits says until when. One that says nothing for some seconds holds.
func TestWaitsUntil(t *testing.T) {
	came := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
	for record, want := range map[queue.Record]time.Duration{
		"held=a":                            toldWithin, // it says nothing
		"held=a until=soon":                 toldWithin,
		"held=a until=2026-07-01T02:10:00Z": 10*time.Minute + toldWithin,
		"held=a until=2026-07-01T01:00:00Z": toldWithin, // another said that, which waited before
	} {
		require.Equal(t, came.Add(want), WaitsUntil(record, came), record)
	}
}
