package answer

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// R107: an answer with more results than there were operations costs no memory: each of them has nine bytes on the wire, and 160 here.
func TestErrOfMulti_MoreResultsThanAsked_AllocatesNothingForThem(t *testing.T) {
	results := make([]wire.MultiResult, 1<<20)
	for i := range results {
		results[i].Op = wire.OpCheck
	}
	a := tap.Answer{Fate: tap.WasAnswered, Body: wire.Frame(wire.MultiResponse{Results: results})[4:]}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	i, err := ErrOfMulti(a, 2)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, wire.ErrMalformed)
	require.Equal(t, -1, i)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10_000))
}
