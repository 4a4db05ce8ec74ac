package node

// These tests attack grantrecord.go: which client may be waiting for the delay of a holder that no
// longer exists.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/queue"
)

// The first client in the queue records until when it waits. If it records nothing for some
// seconds, it holds.
func TestWaitsUntil(t *testing.T) {
	came := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
	for record, want := range map[queue.Record]time.Duration{
		"held=a":                            toldWithin, // it records nothing
		"held=a until=soon":                 toldWithin,
		"held=a until=2026-07-01T02:10:00Z": 10*time.Minute + toldWithin,
		"held=a until=2026-07-01T01:00:00Z": toldWithin, // another said that, which waited before
	} {
		require.Equal(t, came.Add(want), WaitsUntil(record, came), record)
	}
}
