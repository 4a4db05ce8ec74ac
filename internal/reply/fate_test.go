package reply

// This test attacks fate.go: what follows from the fate of a create.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/mux"
)

// I2, I4: what the end of a create means. The table is whole.
func TestFateOf(t *testing.T) {
	const lives, over = false, true
	table := []struct {
		fate    mux.Fate
		outcome Outcome // of the answer
		over    bool
		want    CreateFate
	}{
		{mux.WasAnswered, Applied, lives, NodeMade},
		{mux.WasAnswered, Applied, over, GoneIfMade},
		{mux.WasAnswered, TurnedDown, lives, NodeDenied},
		{mux.WasAnswered, TurnedDown, over, NodeDenied}, // the answer stays the answer
		{mux.WasAnswered, NotNow, lives, NothingMade},   // throttled (F28)
		{mux.WasAnswered, NotNow, over, GoneIfMade},
		{mux.WasAnswered, Unknown, lives, NodeUnclear}, // a code that proves nothing
		{mux.WasAnswered, Unknown, over, GoneIfMade},

		{mux.NoAnswer, Unknown, lives, NodeUnclear}, // F3
		{mux.NoAnswer, Unknown, over, GoneIfMade},   // F5
		{mux.NeverSent, Unknown, lives, NothingMade},
		{mux.NeverSent, Unknown, over, GoneIfMade},
	}
	type input struct {
		fate    mux.Fate
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
