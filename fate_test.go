package zklock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I2, I4: what the end of a create means. The table is whole.
func TestFateOf(t *testing.T) {
	const yes, no = true, false
	table := []struct {
		outcome outcome
		left    bool
		over    bool
		want    createFate
	}{
		{applied, yes, no, nodeMade},
		{applied, yes, yes, goneIfMade},
		{applied, no, no, nodeUnclear}, // an answer to what nobody saw leave
		{applied, no, yes, goneIfMade},

		{turnedDown, yes, no, nodeDenied},
		{turnedDown, yes, yes, nodeDenied}, // the answer stays the answer
		{turnedDown, no, no, nodeDenied},   // by the client, which did not send it
		{turnedDown, no, yes, goneIfMade},

		{notNow, yes, no, nothingMade}, // throttled (F28)
		{notNow, yes, yes, goneIfMade},
		{notNow, no, no, nothingMade}, // no server to be had
		{notNow, no, yes, goneIfMade},

		{unknown, yes, no, nodeUnclear}, // F3
		{unknown, yes, yes, goneIfMade}, // F5
		{unknown, no, no, nothingMade},  // the connection was lost before
		{unknown, no, yes, goneIfMade},
	}
	type input struct {
		outcome    outcome
		left, over bool
	}
	rows := map[input]bool{}
	for _, tt := range table {
		require.Equal(t, tt.want, fateOf(tt.outcome, tt.left, tt.over), "%+v", tt)
		rows[input{tt.outcome, tt.left, tt.over}] = true
	}
	require.Len(t, rows, 4*2*2)
}
