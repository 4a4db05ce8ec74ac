package zklock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I2, I4: what the end of a create means. The table is whole.
func TestFateOf(t *testing.T) {
	const lives, over = false, true
	table := []struct {
		fate    fate
		outcome outcome // of the answer
		over    bool
		want    createFate
	}{
		{wasAnswered, applied, lives, nodeMade},
		{wasAnswered, applied, over, goneIfMade},
		{wasAnswered, turnedDown, lives, nodeDenied},
		{wasAnswered, turnedDown, over, nodeDenied}, // the answer stays the answer
		{wasAnswered, notNow, lives, nothingMade},   // throttled (F28)
		{wasAnswered, notNow, over, goneIfMade},
		{wasAnswered, unknown, lives, nodeUnclear}, // a code that says nothing
		{wasAnswered, unknown, over, goneIfMade},

		{noAnswer, unknown, lives, nodeUnclear}, // F3
		{noAnswer, unknown, over, goneIfMade},   // F5
		{neverSent, unknown, lives, nothingMade},
		{neverSent, unknown, over, goneIfMade},
	}
	type input struct {
		fate    fate
		outcome outcome
		over    bool
	}
	rows := map[input]bool{}
	for _, tt := range table {
		require.Equal(t, tt.want, fateOf(tt.fate, tt.outcome, tt.over), "%+v", tt)
		rows[input{tt.fate, tt.outcome, tt.over}] = true
	}
	require.Len(t, rows, 4*2+2*2) // without an answer, nothing is known of the outcome
}
