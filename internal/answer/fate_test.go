package answer

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
		outcome Outcome // of the answer
		over    bool
		want    CreateFate
	}{
		{tap.WasAnswered, Applied, lives, NodeMade},
		{tap.WasAnswered, Applied, over, GoneIfMade},
		{tap.WasAnswered, TurnedDown, lives, NodeDenied},
		{tap.WasAnswered, TurnedDown, over, NodeDenied}, // the answer stays the answer
		{tap.WasAnswered, NotNow, lives, NothingMade},   // throttled (F28)
		{tap.WasAnswered, NotNow, over, GoneIfMade},
		{tap.WasAnswered, Unknown, lives, NodeUnclear}, // a code that proves nothing
		{tap.WasAnswered, Unknown, over, GoneIfMade},

		{tap.NoAnswer, Unknown, lives, NodeUnclear}, // F3
		{tap.NoAnswer, Unknown, over, GoneIfMade},   // F5
		{tap.NeverSent, Unknown, lives, NothingMade},
		{tap.NeverSent, Unknown, over, GoneIfMade},
	}
	type input struct {
		fate    tap.Fate
		outcome Outcome
		over    bool
	}
	rows := map[input]bool{}
	for _, tt := range table {
		require.Equal(t, tt.want, FateOf(tt.fate, tt.outcome, tt.over), "%+v", tt)
		rows[input{tt.fate, tt.outcome, tt.over}] = true
	}
	require.Len(t, rows, 4*2+2*2) // without an answer, nothing is known of the outcome
}
