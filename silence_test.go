package zklock

// These tests attack silence.go and names.go: when a silent server is left, and the addresses of names.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

// F41, F16, R50: a silent server is left, a second one after twice the time, a third by the client. Ten minutes after the last change
// it begins anew.
func TestSilence_Look(t *testing.T) {
	var q silence
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
		leave, next := q.look(at(c.now), at(c.heard), at(c.asked), time.Second, true)
		require.Equal(t, c.leave, leave, "at %v", c.now)
		if !leave {
			require.Equal(t, at(c.next), next, "at %v", c.now)
		}
	}
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 30 * time.Second} {
		require.Greater(t, 8*heartbeat(timeout), timeout*2/3, "the client is first")
	}
}

// F18, F41: the end of a silence is noticed late. The server gets a little more time, once.
func TestSilence_Look_Late(t *testing.T) {
	var q silence
	leave, next := q.look(at(15), at(9), at(10), time.Second, true)
	require.False(t, leave)
	require.Equal(t, at(15.1), next)
	leave, _ = q.look(at(15.1), at(9), at(10), time.Second, true)
	require.True(t, leave)
}

// F46: names are resolved anew each time; who must not wait gets the addresses from before.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes, answer, fails := 3*time.Second, []string{"192.0.2.1"}, error(nil)
		n := &names{ctx: t.Context(), lookup: func(ctx context.Context, _ string) ([]string, error) {
			addrs, err := answer, fails
			select {
			case <-time.After(takes):
				return addrs, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		n.mu.byHost = map[string]*hostName{}
		spawn := func(f func()) bool { go f(); return true }
		resolve := func(limit, patience time.Duration) ([]string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return n.resolve(ctx, spawn, "zk", patience)
		}
		_, err := resolve(2*time.Second, time.Minute)
		require.ErrorContains(t, err, "looking up zk: no answer")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got, err := resolve(2*time.Second, time.Minute) // the look-up has gone on
		require.NoError(t, err)
		require.Equal(t, answer, got)

		answer = []string{"192.0.2.2", "192.0.2.3"}
		start := time.Now()
		got, err = resolve(10*time.Second, time.Second)
		require.NoError(t, err)
		require.Equal(t, []string{"192.0.2.1"}, got, "from before")
		require.Equal(t, time.Second, time.Since(start))
		time.Sleep(2001 * time.Millisecond)
		require.Equal(t, 2, n.most())
		got, err = resolve(10*time.Second, time.Minute)
		require.NoError(t, err)
		require.Equal(t, answer, got)

		fails = errors.New("name server failure")
		got, err = resolve(10*time.Second, time.Minute)
		require.NoError(t, err, "what it said before still helps")
		require.Equal(t, answer, got)
		takes = time.Hour
		_, err = resolve(time.Second, 0)
		require.NoError(t, err)
		time.Sleep(lookupCap)
	})
}

// F41: of a name's addresses the one that was left is tried last.
func TestLastInLine(t *testing.T) {
	is := func(want string) func(string) bool { return func(a string) bool { return a == want } }
	require.Equal(t, []string{"b", "c", "a"}, lastInLine([]string{"a", "b", "c"}, is("a")))
	require.Equal(t, []string{"a", "b", "c"}, lastInLine([]string{"a", "b", "c"}, is("x")))
	require.Equal(t, []string{"a"}, lastInLine([]string{"a"}, is("a")))
}
