package zklock

// These tests attack the data of nodes that other clients can write: data that zklock cannot have
// written is not decoded to its end.

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/node"
)

// R107: the data of a mark is decoded up to the first run that Once cannot have written.
func TestRunsIn_DataOfSomebodyElse_IsNotReadToItsEnd(t *testing.T) {
	const run = `{"key":"a","by":"","at":"2026-07-01T00:00:00Z","token":1}` + "\n"
	runs, err := runsIn(node.DataRead{Data: []byte(strings.Repeat(run, mostKeptRuns))}, "/job-done")
	require.NoError(t, err)
	require.Len(t, runs, mostKeptRuns)
	for name, data := range map[string]string{"without keys": strings.Repeat("{}", 1<<20), "more than are kept": strings.Repeat(run, 1<<16)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := runsIn(node.DataRead{Data: []byte(data)}, "/job-done")
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, fmt.Sprintf("%q", data[:node.MaxShown]), name)
		require.Less(t, len(err.Error()), 300, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(data)+1<<20), name)
	}
}
