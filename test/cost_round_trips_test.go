package zklock_test

// This test counts how many round trips each call waits for (I8): at a distance they are what a call costs.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// I8: how many round trips each call waits for, in virtual time, with a network that takes 1 ms each way and servers that take none. The
// table in docs/performance.md has these numbers.
func TestRoundTrips(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way = time.Millisecond
		v.net.SetLatency(way)
		ctx := context.Background()
		a, b := v.connect(), v.connect()
		rows := func(what string, want float64, call func() error) {
			t.Helper()
			v.srv.ResetRequests()
			began := time.Now()
			err := call()
			took := time.Since(began)
			require.NoError(t, err, what)
			time.Sleep(50 * way) // what goes on behind the call: deletions
			t.Logf("%-60s %4.1f  %v", what, float64(took)/float64(2*way), v.srv.Requests())
			require.Equal(t, want, float64(took)/float64(2*way), what) //nolint:testifylint // whole numbers and halves
		}
		var h *zklock.Hold
		acquire := func(l zklock.Lock) func() error {
			return func() (err error) { h, err = l.Acquire(ctx); return err }
		}
		try := func(l zklock.Lock) func() error {
			return func() (err error) { h, err = l.TryAcquire(ctx); return err }
		}
		fails := func(l zklock.Lock) func() error {
			return func() error {
				_, err := l.TryAcquire(ctx)
				if err == nil {
					return nil
				}
				require.ErrorIs(t, err, zklock.ErrNotAcquired)
				return nil
			}
		}
		released := func() error { return h.Release(ctx) }

		rows("connect", 2, func() error { v.connect(); return nil })

		m := newMutex(t, a, "/job/a")
		rows("first acquire of a path, lock root missing", 2, acquire(m))
		rows("release", 1, released)
		rows("acquire", 1, acquire(m))
		other := newMutex(t, b, "/job/a")
		rows("try that fails, first of its Session", 2, fails(other))
		rows("try that fails", 1, fails(other))
		rows("release", 1, released)
		rows("try that succeeds after one that failed", 2, try(other))
		rows("release", 1, released)
		rows("try that succeeds", 1, try(other))
		rows("release", 1, released)
		rows("first acquire of a path, lock root there", 1, acquire(newMutex(t, v.connect(), "/job/a")))
		rows("first acquire of a path, three parents missing", 3, acquire(newMutex(t, a, "/job/x/y/z")))

		delayed := newMutex(t, a, "/job/d", zklock.WithLockDelay(time.Second))
		rows("first acquire with a lock-delay", 3, acquire(delayed))
		rows("release with a lock-delay", 1, released)
		rows("acquire with a lock-delay", 2, acquire(delayed))

		rw, err := zklock.NewRWMutex(a, "/job/rw")
		require.NoError(t, err)
		rows("first read lock, lock root missing", 2, acquire(rw.ReadLock()))
		rows("release", 1, released)
		rows("write lock", 1, acquire(rw.WriteLock()))
		rows("release", 1, released)

		sem, err := zklock.NewSemaphore(a, "/job/sem", 3)
		require.NoError(t, err)
		rows("first permit, nothing there", 3, acquire(sem.Permits(1)))
		rows("release of a permit", 1, released)
		rows("permit", 2, acquire(sem.Permits(1)))

		var locks []zklock.Lock
		for i := range 8 {
			locks = append(locks, newMutex(t, a, fmt.Sprintf("/job/m%d", i)))
		}
		multi, err := zklock.NewMulti(locks...)
		require.NoError(t, err)
		var all *zklock.MultiHold
		take := func() (err error) { all, err = multi.Acquire(ctx); return err }
		rows("eight locks together, lock roots missing", 2, take)
		rows("their release", 1, func() error { return all.Release(ctx) })
		rows("eight locks together", 1, take)
		rows("their release", 1, func() error { return all.Release(ctx) })
		require.NoError(t, acquire(newMutex(t, b, "/job/m4"))())
		rows("try of eight locks that fails", 2, func() error {
			_, err := multi.TryAcquire(ctx)
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			return nil
		})
		taken := make(chan error)
		go func() { taken <- take() }()
		time.Sleep(50 * way)
		rows("eight locks together, one taken: from its release on", 2, func() error {
			go func() { _ = released() }()
			return <-taken
		})
		locks = nil
		for i := range 8 {
			locks = append(locks, newMutex(t, a, fmt.Sprintf("/new/%d/m", i)))
		}
		multi, err = zklock.NewMulti(locks...)
		require.NoError(t, err)
		rows("eight locks together, parents missing", 3, take)
	})
}
