package zklock

// This test attacks how many waiters are told of room: too many, or a number that no int has.

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// I6: a fixed limit may be as large as an int of 32 bits. Twice the room did not fit in one.
func TestToWake(t *testing.T) {
	for _, x := range []struct{ room, waiters, want int }{
		{2, 0, 0}, {2, 1, 1}, {2, 5, 2}, {3, 5, 4}, {4, 5, 5},
		{33, 1000, maxHints}, {34, 1000, maxHints}, {1000, 1000, maxHints}, {1000, 7, 7},
		{1<<30 + 1, 7, 7}, {math.MaxInt32, 1000, maxHints}, {math.MaxInt/2 + 2, 7, 7}, {math.MaxInt, 0, 0}, {math.MaxInt, 1000, maxHints},
	} {
		require.Equal(t, x.want, hintsFor(x.room, x.waiters), fmt.Sprint(x))
	}
}
