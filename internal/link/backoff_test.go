package link

// This test attacks the pauses between tries.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoff(t *testing.T) {
	b, sum := Backoff{}, time.Duration(0)
	last := time.Duration(0)
	for range 20 {
		d := b.Next()
		require.GreaterOrEqual(t, d, last)
		last = d
		sum += d
	}
	require.Equal(t, 5*time.Second, last)
	require.Less(t, sum, 2*time.Minute)
}
