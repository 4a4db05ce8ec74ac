package zklock_test

// These tests attack the time between the lists of a Multi and its grants, where the functions of a
// trace run, and the work of a Multi with many locks.

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I1, I3: the nodes of a Multi are listed together, and then a function of a trace blocks for
// longer than a heartbeat. Meanwhile an operator deletes the node of a later lock, and another
// client gets that lock. The Multi is not granted on the old list: it waits until the other client
// has released.
func TestVirtual_Multi_TraceBlocks_NodeDeletedMeanwhile_IsNotGranted(t *testing.T) {
	const blocks, at = 5 * time.Second, "/job/b"
	for name, blocking := range map[string]func(block func()) *zklock.Trace{
		"AcquireEnd of the lock before": func(block func()) *zklock.Trace {
			return &zklock.Trace{AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) {
				if a.Path == "/job/a" {
					block()
				}
			}}
		},
		"AcquireStart of the lock itself": func(block func()) *zklock.Trace {
			return &zklock.Trace{AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context {
				if a.Path == at {
					block()
				}
				return ctx
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				isReady := false
				s, m := v.fourReady(zklock.WithTrace(blocking(func() {
					if isReady {
						time.Sleep(blocks)
					}
				})))
				isReady = true
				other := newMutex(t, v.connect(), at)
				c := startMulti(within(t, time.Hour), m)
				time.Sleep(time.Second)
				require.NoError(t, v.srv.Delete(v.nodeOf(at, s)))
				theirs := acquire(t, other)
				time.Sleep(2 * blocks)
				select {
				case <-c.done:
					t.Fatalf("two clients hold %s: %v", at, theirs.Err())
				default:
				}
				require.NoError(t, theirs.Err())
				release(t, theirs)
				h := c.granted(t)
				require.NoError(t, h.Err())
				require.Greater(t, h.Holds()[1].Token(), theirs.Token(), "I1")
				v.areHeld(h)
				require.NoError(t, h.Release(within(t, soon)))
				require.Equal(t, [4]int{}, v.nodes(), "I4")
			})
		})
	}
}

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
// with the wait. A caller that keeps it cannot acquire any of the locks with it, not even a later one.
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
