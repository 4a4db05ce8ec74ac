package zklock

// This test attacks fate.go: what follows from the fate of a create.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/tap"
)

// I2, I4: what the end of a create means. The table is whole.
func TestFateOf(t *testing.T) {
	const lives, over = false, true
	table := []struct {
		fate    tap.Fate
		outcome outcome // of the answer
		over    bool
		want    createFate
	}{
		{tap.WasAnswered, applied, lives, nodeMade},
		{tap.WasAnswered, applied, over, goneIfMade},
		{tap.WasAnswered, turnedDown, lives, nodeDenied},
		{tap.WasAnswered, turnedDown, over, nodeDenied}, // the answer stays the answer
		{tap.WasAnswered, notNow, lives, nothingMade},   // throttled (F28)
		{tap.WasAnswered, notNow, over, goneIfMade},
		{tap.WasAnswered, unknown, lives, nodeUnclear}, // a code that says nothing
		{tap.WasAnswered, unknown, over, goneIfMade},

		{tap.NoAnswer, unknown, lives, nodeUnclear}, // F3
		{tap.NoAnswer, unknown, over, goneIfMade},   // F5
		{tap.NeverSent, unknown, lives, nothingMade},
		{tap.NeverSent, unknown, over, goneIfMade},
	}
	type input struct {
		fate    tap.Fate
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
