package lease

// These tests attack silence.go: when a silent server is left.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// F41, F16: when a silence has lasted too long.
func TestSilenceEnds(t *testing.T) {
	for _, c := range []struct {
		name         string
		heard, asked float64
		held         bool
		want         float64
	}{
		{"a heartbeat is not answered", 10, 11, true, 12},
		{"bytes go on arriving", 11.9, 11, true, 13.9},
		{"asked after a long idle time", 2, 11, true, 12},
		{"asked just after an answer", 10, 10.1, true, 12},
		{"while waiting a heartbeat longer", 10, 11, false, 13},
		{"while waiting, asked after a long idle time", 2, 11, false, 13},
	} {
		require.Equal(t, at(c.want), silenceEnds(at(c.heard), at(c.asked), time.Second, c.held), c.name)
	}
}

// F41, F16, R50: a server that does not respond is left, a second one after twice the time, a third
// by the client. Ten minutes after the last change the count starts again.
func TestSilence_Check(t *testing.T) {
	var q Silence
	for _, c := range []struct {
		now, heard, asked float64
		leave             bool
		next              float64 // if it is not left
	}{
		{10, 9, 10, false, 11},
		{11, 9, 10, true, 0},
		{20, 18, 19, false, 22},
		{22, 18, 19, true, 0},
		{90, 89, 90, false, 97}, // after eight heartbeats
		{622, 621, 622, false, 629},
		{623, 622, 622.5, false, 624},
		{624, 622, 622.5, true, 0},
		{630, 628, 629, false, 632}, // the second again
	} {
		leave, next := q.Look(at(c.now), at(c.heard), at(c.asked), time.Second, true)
		require.Equal(t, c.leave, leave, "at %v", c.now)
		if !leave {
			require.Equal(t, at(c.next), next, "at %v", c.now)
		}
	}
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 30 * time.Second} {
		require.Greater(t, 8*Heartbeat(timeout), timeout*2/3, "the client is first")
	}
}

// F18, F41: the end of a silence is noticed late. The server gets a little more time, once.
func TestSilence_Check_Late(t *testing.T) {
	var q Silence
	leave, next := q.Look(at(15), at(9), at(10), time.Second, true)
	require.False(t, leave)
	require.Equal(t, at(15.1), next)
	leave, _ = q.Look(at(15.1), at(9), at(10), time.Second, true)
	require.True(t, leave)
}
