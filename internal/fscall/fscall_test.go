package fscall

// These tests attack calls that hang.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A call that hangs is the only one for its path, although callers give up and try again. When it
// ends, its value is not lost, and the next caller makes its own call.
func TestVirtual_Do_Hangs_OneCallForAPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, late atomic.Int32
		responds := make(chan struct{})
		do := func(path string, limit time.Duration) (int32, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return Do(ctx, path, func() (int32, error) {
				n := calls.Add(1)
				<-responds
				return n, nil
			}, func(n int32) { late.Store(n) })
		}
		for range 200 {
			_, err := do("/hangs/a", time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.EqualValues(t, 1, calls.Load())
		_, err := do("/hangs/b", time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 2, calls.Load(), "of another path")

		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() { _, _ = do("/hangs/a", time.Hour) })
		}
		synctest.Wait()
		close(responds)
		waiting.Wait()
		require.EqualValues(t, 5, calls.Load())
		require.Positive(t, late.Load())
		running.Range(func(path, _ any) bool { t.Errorf("the call for %s counts as under way", path); return true })
	})
}

func TestDo_ReturnsTheResult(t *testing.T) {
	want := errors.New("it is full")
	for range 2 {
		v, err := Do(t.Context(), "/a", func() (int, error) { return 1, want }, func(int) { t.Error("it was in time") })
		require.Equal(t, 1, v)
		require.ErrorIs(t, err, want)
	}
}
