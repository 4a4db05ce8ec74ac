package zklock_test

// This test counts the round trips that each call waits for (I8). At a distance they are the cost
// of a call.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// I8: the round trips that each call waits for, in virtual time, with a network that takes 1 ms
// each way and servers that take no time. The table in docs/performance.md has some of them.
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
			time.Sleep(50 * way) // background requests of the call: deletions
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

		// One acquires behind several that hold, or will hold, and release at once; or one after
		// the other, 3 ms apart.
		behind := func(what string, want float64, n int, theirs, mine func(*zklock.RWMutex) *zklock.Mutex, between time.Duration) {
			t.Helper()
			var theirLocks []zklock.Lock
			for range n {
				theirLocks = append(theirLocks, theirs(newRWMutex(t, v.connect(), "/job/rw")))
			}
			ahead := []*zklock.Hold{acquireIn(t, ctx, theirLocks[0])}
			var waits []*waiting
			for _, l := range theirLocks[1:] {
				waits = append(waits, v.queueUp(l))
				time.Sleep(time.Second)
			}
			w := v.queueUp(mine(newRWMutex(t, v.connect(), "/job/rw")))
			time.Sleep(time.Second)
			for _, w := range waits { // writers hold one after the other
				if !w.isGranted() {
					release(t, ahead[0])
					ahead = nil
				}
				ahead = append(ahead, w.granted2(t, time.Second))
			}
			for _, h := range ahead[1:] {
				go func() { _ = h.Release(ctx) }()
				time.Sleep(between)
			}
			rows(what, want, func() error {
				go func() { _ = ahead[0].Release(ctx) }()
				h = w.granted2(t, time.Second)
				return nil
			})
			release(t, h)
		}
		read, write := (*zklock.RWMutex).ReadLock, (*zklock.RWMutex).WriteLock
		for _, n := range []int{1, 2, 16} {
			behind(fmt.Sprint("write lock behind readers that go at once, after the last release: ", n), 1, n, read, write, 0)
			behind(fmt.Sprint("write lock behind readers that go one by one, after the last release: ", n), 1, n, read, write, 3*way)
		}
		behind("write lock behind seventeen readers that go at once", 2, 17, read, write, 0)
		behind("write lock behind a writer", 2, 1, write, write, 0)
		for _, n := range []int{1, 3, 15} {
			first := acquireIn(t, ctx, write(newRWMutex(t, v.connect(), "/job/rw")))
			for range n {
				r := v.queueUp(read(newRWMutex(t, v.connect(), "/job/rw")))
				go func() { _ = r.granted2(t, time.Minute).Release(ctx) }()
			}
			w := v.queueUp(write(newRWMutex(t, v.connect(), "/job/rw")))
			time.Sleep(time.Second)
			rows(fmt.Sprint("write lock behind a writer and readers that go at once, from the writer's release on: ", n), 2, func() error {
				go func() { _ = first.Release(ctx) }()
				h = w.granted2(t, time.Second)
				return nil
			})
			release(t, h)
		}
		for _, n := range []int{1, 2, 4} {
			behind(fmt.Sprint("read lock behind writers, after the last release: ", n), 1, n, write, read, 0)
		}
		behind("read lock behind five writers", 2, 5, write, read, 0)

		sem, err := zklock.NewSemaphore(a, "/job/sem", 3)
		require.NoError(t, err)
		rows("first permit, nothing there", 3, acquire(sem.Permits(1)))
		rows("release of a permit", 1, released)
		rows("permit", 1, acquire(sem.Permits(1)))
		shared, err := zklock.NewSemaphore(a, "/job/shared", 3, zklock.WithSharedLimit("/job/shared/limit"))
		require.NoError(t, err)
		rows("first permit with a shared limit, nothing there", 3, acquire(shared.Permits(1)))

		var locks []zklock.Lock
		for i := range 3 {
			locks = append(locks, newMutex(t, a, fmt.Sprintf("/job/m%d", i)))
		}
		multi, err := zklock.NewMulti(locks...)
		require.NoError(t, err)
		var all *zklock.MultiHold
		take := func() (err error) { all, err = multi.Acquire(ctx); return err }
		rows("three locks together, lock roots missing", 6, take)
		rows("their release", 1, func() error { return all.Release(ctx) })
		rows("three locks together", 3, take)
		rows("their release", 1, func() error { return all.Release(ctx) })
		require.NoError(t, acquire(newMutex(t, b, "/job/m1"))())
		rows("try of three locks that fails at the second", 4, func() error {
			_, err := multi.TryAcquire(ctx)
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			return nil
		})
		taken := make(chan error)
		go func() { taken <- take() }()
		time.Sleep(50 * way)
		rows("three locks together, the second taken: from its release on", 2, func() error {
			go func() { _ = released() }()
			return <-taken
		})
	})
}
