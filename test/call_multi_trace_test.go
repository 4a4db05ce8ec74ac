package zklock_test

// These tests attack the contexts that the functions of a trace get from a Multi, and the work of a
// Multi with many locks.

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// The context of each wait carries the holds so far and, with a trace, the values that AcquireStart
// added. A look-up of a value once took twice as long with each further lock: with 20 locks 0.6 s.
func TestMulti_FortyLocksWithATrace(t *testing.T) {
	type key struct{ path string }
	s := connect(t, zktest.Start(t).Addr(), zklock.WithTrace(&zklock.Trace{
		AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context {
			return context.WithValue(ctx, key{a.Path}, true)
		},
	}))
	m, paths := multiOf(t, s, 40)
	require.NoError(t, m.Do(within(t, soon), func(ctx context.Context, _ *zklock.MultiHold) error {
		for _, path := range paths {
			require.Equal(t, true, ctx.Value(key{path}), path)
		}
		return nil
	}))
}

// The context in which a Multi waits for a lock carries the holds of the locks before it, and ends
// with the wait. A caller that keeps it cannot acquire any of the locks with it, not even a later
// one.
func TestMulti_ContextOfAWait_EndsWithTheWait(t *testing.T) {
	var kept []context.Context
	s := connect(t, zktest.Start(t).Addr(), zklock.WithTrace(&zklock.Trace{
		AcquireStart: func(ctx context.Context, _ zklock.AcquireInfo) context.Context {
			kept = append(kept, ctx)
			return ctx
		},
	}))
	m, paths := multiOf(t, s, 3)
	h, err := m.Acquire(within(t, soon))
	require.NoError(t, err)
	for _, ctx := range slices.Clone(kept) {
		for _, path := range paths {
			_, err := newMutex(t, s, path).TryAcquire(ctx)
			require.ErrorIs(t, err, context.Canceled, path)
		}
	}
	require.NoError(t, h.Release(within(t, soon)))
}

// multiOf returns a Multi of n mutexes, and their paths.
func multiOf(t *testing.T, s *zklock.Session, n int) (m *zklock.Multi, paths []string) {
	t.Helper()
	var locks []zklock.Lock
	for i := range n {
		paths = append(paths, fmt.Sprintf("/many/%d/%04d", n, i))
		locks = append(locks, newMutex(t, s, paths[i]))
	}
	m, err := zklock.NewMulti(locks...)
	require.NoError(t, err)
	return m, paths
}

// Four times as many locks may cost a little more than four times the allocations. If each step
// made a context for each hold so far, it would be some fourteen times.
func TestMulti_WorkGrowsWithTheLocks(t *testing.T) {
	s := connect(t, zktest.Start(t).Addr())
	mallocs := func(n int) float64 {
		m, _ := multiOf(t, s, n)
		return testing.AllocsPerRun(2, func() {
			h, err := m.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Release(t.Context()))
		})
	}
	few, many := mallocs(100), mallocs(400)
	t.Logf("allocations, the server's included: %.0f with 100 locks, %.0f with 400", few, many)
	require.Less(t, many, 6*few)
}
