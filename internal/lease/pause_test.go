package lease

// These tests attack pause.go: a pause grows, and stays within what can be lost.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStake_Pause(t *testing.T) {
	const T = 30 * time.Second
	for _, tt := range []struct {
		name          string
		s             Stake
		laps, servers int
		want          time.Duration
	}{
		{"at first", Stake{}, 0, 3, 250 * time.Millisecond},
		{"it grows", Stake{}, 3, 3, time.Second},
		{"to its most", Stake{}, 1 << 20, 3, 30 * time.Second},
		{"somebody waits", Stake{Wanted: true}, 100, 3, 1500 * time.Millisecond},
		{"a hold: an eighth of its time, shared by a lap", Stake{Kind: Held, Left: 12 * time.Second}, 100, 3, 500 * time.Millisecond},
		{"it grows first", Stake{Kind: Held, Left: 12 * time.Second}, 1, 3, 250 * time.Millisecond},
		{"the lease ends", Stake{Kind: Held, Left: 8 * time.Millisecond}, 100, 1, time.Millisecond},
		{"it has ended", Stake{Kind: Held, Left: -time.Second, Wanted: true}, 100, 1, 0},
		{"a session", Stake{Kind: Alive, Left: 20 * time.Second}, 100, 5, time.Second},
		{"its time is over", Stake{Kind: Alive, Left: -time.Second, Wanted: true}, 100, 1, 500 * time.Millisecond},
		{"given up, and others wait", Stake{Kind: GivenUp}, 100, 1, 0},
		{"all servers are away", Stake{Kind: Leftover}, 100, 1, 10 * time.Second},
		{"it grows to that", Stake{Kind: Leftover}, 3, 1, time.Second},
		{"and a call waits", Stake{Kind: Leftover, Wanted: true}, 100, 1, 1500 * time.Millisecond},
		{"for a while", Stake{Kind: Lingers}, 100, 1, 500 * time.Millisecond},
	} {
		require.Equal(t, tt.want, tt.s.Pause(T, tt.laps, tt.servers), tt.name)
	}
	require.Equal(t, 30*time.Second, Stake{Kind: Leftover}.Pause(2*time.Minute, 100, 1), "a long T")
	require.Equal(t, 250*time.Millisecond, Stake{Kind: Lingers}.Pause(8*time.Second, 100, 1), "a short T")
}

// F41: however many laps and servers, the pauses before the first dial that finds a server take
// less than a quarter of the time that a hold has left.
func TestStake_Pause_LeavesTheHoldItsTime(t *testing.T) {
	for servers := 1; servers <= 7; servers++ {
		for laps := range 20 {
			for left := time.Duration(0); left < 30*time.Second; left += 100 * time.Millisecond {
				rest := left
				for range servers {
					rest -= Stake{Kind: Held, Left: rest}.Pause(30*time.Second, laps, servers)
				}
				require.GreaterOrEqual(t, rest, left*3/4)
			}
		}
	}
}
