package dial

// These tests attack names.go: the addresses of names, and their order.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
)

// F46: names are resolved again each time; a dial that must not wait gets the addresses from
// before.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes, answer, fails := 3*time.Second, []string{"192.0.2.1"}, error(nil)
		lookup := func(ctx context.Context, _ string) ([]string, error) {
			addrs, err := answer, fails
			select {
			case <-time.After(takes):
				return addrs, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		d := New(Config{Lookup: lookup}, clock.New(nil), nil, func(f func()) bool { go f(); return true })
		defer d.Close()
		resolve := func(limit, patience time.Duration) ([]string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return d.resolve(ctx, "zk", patience)
		}
		_, err := resolve(2*time.Second, time.Minute)
		require.ErrorContains(t, err, "looking up zk: no answer")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got, err := resolve(2*time.Second, time.Minute) // the lookup has continued
		require.NoError(t, err)
		require.Equal(t, answer, got)

		answer = []string{"192.0.2.2", "192.0.2.3"}
		start := time.Now()
		got, err = resolve(10*time.Second, time.Second)
		require.NoError(t, err)
		require.Equal(t, []string{"192.0.2.1"}, got, "from before")
		require.Equal(t, time.Second, time.Since(start))
		time.Sleep(2001 * time.Millisecond)
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

// R140: a Session that is being closed looks up a name that it has not tried yet, because its
// server may be the only one that serves. It waits for no other lookup.
func TestNames_Closing_NewNameIsLookedUp(t *testing.T) {
	asked := 0
	lookup := func(context.Context, string) ([]string, error) { asked++; return []string{"192.0.2.1"}, nil }
	d := New(Config{Lookup: lookup}, clock.New(nil), nil, func(func()) bool { return false })
	defer d.Close()
	for range 2 {
		got, err := d.resolve(t.Context(), "zk", time.Minute)
		require.NoError(t, err)
		require.Equal(t, []string{"192.0.2.1"}, got)
	}
	require.Equal(t, 1, asked)
}

// F41: of a name's addresses the one that was left is tried last.
func TestLastInLine(t *testing.T) {
	require.Equal(t, []string{"b", "c", "a"}, lastInLine([]string{"a", "b", "c"}, "a"))
	require.Equal(t, []string{"a", "b", "c"}, lastInLine([]string{"a", "b", "c"}, "x"))
	require.Equal(t, []string{"a"}, lastInLine([]string{"a"}, "a"))
}
