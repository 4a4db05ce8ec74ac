package zklock_test

// These tests take and release permits of a semaphore: how many are held at a time, in which order,
// at what cost.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

const semPath, semQueue, semLeases = "/job/sem", "/job/sem/locks", "/job/sem/leases"

func newSemaphore(t testing.TB, s *zklock.Session, p string, n int, opts ...zklock.SemaphoreOption) *zklock.Semaphore {
	t.Helper()
	sem, err := zklock.NewSemaphore(s, p, n, opts...)
	require.NoError(t, err)
	return sem
}

// permits returns k of n permits, through a Session of their own.
func (v *virtual) permits(k, n int, opts ...zklock.SemaphoreOption) zklock.Lock {
	return newSemaphore(v.t, v.connect(), semPath, n, opts...).Permits(k)
}

func take(t testing.TB, l zklock.Lock) *zklock.Hold {
	t.Helper()
	h, err := l.Acquire(within(t, soon))
	require.NoError(t, err)
	synctest.Wait() // its node has left the queue
	return h
}

// lineUp starts an Acquire and returns when the system is idle.
func (v *virtual) lineUp(l zklock.Lock) *waiting {
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	w := &waiting{done: make(chan struct{}), stop: cancel}
	go func() {
		defer close(w.done)
		w.hold, w.err = l.Acquire(ctx)
		w.at = time.Now()
	}()
	v.t.Cleanup(func() { cancel(); <-w.done })
	synctest.Wait()
	return w
}

// has asserts the numbers of leases and of nodes in the queue on the server.
func (v *virtual) has(leases, queued int, msg ...any) {
	v.t.Helper()
	synctest.Wait()
	require.Len(v.t, v.srv.Children(semLeases), leases, msg...)
	require.Len(v.t, v.srv.Children(semQueue), queued, msg...)
}

func (v *virtual) onlyNode(root string) string {
	v.t.Helper()
	names := v.srv.Children(root)
	require.Len(v.t, names, 1)
	return root + "/" + names[0]
}

// I1, I8: three permits allow three holds, and not four. A freed permit goes to the first in the
// queue.
func TestVirtual_Semaphore_AsManyHoldAsThereArePermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		holds := []*zklock.Hold{take(t, v.permits(1, 3)), take(t, v.permits(1, 3)), take(t, v.permits(1, 3))}
		v.has(3, 0)
		fourth, fifth := v.lineUp(v.permits(1, 3)), v.lineUp(v.permits(1, 3))
		time.Sleep(time.Minute)
		require.False(t, fourth.isGranted())
		release(t, holds[1])
		synctest.Wait()
		require.True(t, fourth.isGranted())
		require.False(t, fifth.isGranted())
		release(t, fourth.granted(t))
		require.Greater(t, fifth.granted(t).Token(), fourth.hold.Token(), "I1: tokens grow in the order of the grants")
		require.Greater(t, fourth.hold.Token(), holds[2].Token())
		for _, h := range []*zklock.Hold{fifth.hold, holds[0], holds[2]} {
			release(t, h)
		}
		v.has(0, 0, "I4")
	})
}

// Do holds k permits while the work runs, in one hold whose context the work has, and frees all of
// them. Its options are those of Mutex.Do.
func TestVirtual_Semaphore_Do_HoldsPermitsForTheWork(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		sem, other := newSemaphore(t, v.connect(), semPath, 3), newSemaphore(t, v.connect(), semPath, 3)
		failed := errors.New("the work failed")
		err := sem.Do(t.Context(), 2, func(ctx context.Context, hold *zklock.Hold) error {
			v.has(2, 0)
			require.Len(t, hold.Checks(), 2)
			began := time.Now()
			err := other.Do(t.Context(), 2, func(context.Context, *zklock.Hold) error { panic("not held") }, zklock.WaitAtMost(time.Minute))
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			require.Equal(t, time.Minute, time.Since(began))
			require.NoError(t, other.Do(t.Context(), 1, func(context.Context, *zklock.Hold) error { v.has(3, 0); return nil }))
			v.has(2, 0, "I4")
			require.NoError(t, v.srv.Delete(hold.Node()))
			<-ctx.Done()
			return failed
		})
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, zklock.ErrLost)
		v.has(0, 0, "I4")
	})
}

// Two callers that want both permits never hold one each. Callers that want few do not overtake one
// that wants many.
func TestVirtual_Semaphore_AllOrNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(5 * time.Millisecond)
		take(t, v.permits(1, 3)) // never released
		var ws []*waiting
		for range 4 {
			l := v.permits(2, 3)
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			w := &waiting{done: make(chan struct{}), stop: cancel}
			go func() {
				defer close(w.done)
				if w.hold, w.err = l.Acquire(ctx); w.err == nil {
					time.Sleep(time.Second)
					w.err = w.hold.Release(ctx)
				}
			}()
			t.Cleanup(func() { cancel(); <-w.done })
			ws = append(ws, w)
		}
		for _, w := range ws {
			_, err := w.get(t)
			require.NoError(t, err)
		}
		one := take(t, v.permits(1, 3))
		many := v.lineUp(v.permits(2, 3))
		few := v.lineUp(v.permits(1, 3))
		time.Sleep(time.Minute)
		require.False(t, many.isGranted(), "I1")
		require.False(t, few.isGranted(), "I8: a permit is free, and the first in line wants two")
		release(t, one)
		release(t, many.granted(t))
		release(t, few.granted(t))
		v.has(1, 0)
	})
}

// The budget: three requests in one round trip to the grant and no event, one to release, also for
// many permits.
func TestVirtual_Semaphore_Budget(t *testing.T) {
	for _, k := range []int{1, 4} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(10 * time.Millisecond)
				w := &wire{dial: v.net.Dial}
				p := newSemaphore(t, v.connect(w.dialer()), semPath, 4).Permits(k)
				release(t, take(t, p)) // creates the roots
				time.Sleep(time.Second)
				w.reset()
				began := time.Now()
				h, err := p.Acquire(within(t, soon))
				require.NoError(t, err)
				require.Equal(t, 20*time.Millisecond, time.Since(began), "a round trip")
				time.Sleep(time.Second)
				_, by := w.sent()
				require.Equal(t, map[int32]int{opGetChildren2: 2, opMulti: 1}, by)
				w.reset()
				release(t, h)
				time.Sleep(time.Second)
				n, by := w.sent()
				require.Equal(t, 1, n, "%v", by)
				require.Zero(t, w.received().events)
			})
		})
	}
}

// I8: of twenty waiters, one is notified that a permit is free, and then one that it is first in
// the queue. The cost does not grow with the number of waiters.
func TestVirtual_Semaphore_Release_WakesOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		holds := []*zklock.Hold{take(t, v.permits(1, 2)), take(t, v.permits(1, 2))}
		var ws []*wire
		var waiters []*waiting
		for range 20 {
			w := &wire{dial: v.net.Dial}
			waiters = append(waiters, v.lineUp(newSemaphore(t, v.connect(w.dialer()), semPath, 2).Permits(1)))
			ws = append(ws, w)
		}
		time.Sleep(time.Second)
		for _, w := range ws {
			w.reset()
		}
		release(t, holds[0])
		synctest.Wait()
		require.True(t, waiters[0].isGranted())
		events, woken, requests := 0, 0, 0
		for _, w := range ws {
			n, _ := w.sent()
			requests += n
			events += w.received().events
			if w.received().events > 0 {
				woken++
			}
		}
		require.LessOrEqual(t, woken, 3, "the one who gets the permit, the next in line, and the one after it, who looks")
		require.LessOrEqual(t, events, 3)
		require.LessOrEqual(t, requests, 2+5+3)
		for _, w := range waiters {
			release(t, w.granted2(t, time.Second))
		}
		v.has(1, 0)
	})
}

// A try fails when no permit is free, and leaves no node. If one is free, callers ahead that are
// just taking theirs do not make it fail.
func TestVirtual_Semaphore_Try(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(10 * time.Millisecond)
		const n = 10
		var locks []zklock.Lock
		for range n {
			locks = append(locks, v.permits(1, n))
		}
		holds := make(chan *zklock.Hold, n)
		for _, l := range locks {
			go func() {
				h, err := l.TryAcquire(context.Background())
				if err != nil {
					t.Errorf("a permit is free: %v", err)
				}
				holds <- h
			}()
		}
		for range n {
			require.NotNil(t, <-holds)
		}
		time.Sleep(time.Second)
		v.has(n, 0)
		began := time.Now()
		_, err := locks[0].TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Less(t, time.Since(began), time.Second)
		v.has(n, 0, "I4")
		v.lineUp(locks[1])
		began = time.Now()
		_, err = locks[0].TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Less(t, time.Since(began), time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = locks[0].Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		v.has(n+1, 1, "only the one who still waits")
	})
}

// Permits cannot be re-entered, and do not admit their owner to a mutex on the same nodes.
func TestVirtual_Semaphore_NotReentrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		one := newSemaphore(t, s, semPath, 2).Permits(1)
		h1 := take(t, one)
		h2, err := one.Acquire(zklock.WithOwner(h1.Context(), h1.Owner()))
		require.NoError(t, err)
		v.has(2, 0)
		_, err = one.TryAcquire(h2.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.ErrorContains(t, err, "does not re-enter")
		for _, p := range []string{semPath, semQueue, semLeases} {
			require.False(t, newMutex(t, s, p).OwnedBy(h2.Context()), p)
		}
		release(t, h1)
		release(t, h2)
	})
}

// Checks fences with each lease.
func TestVirtual_Semaphore_Checks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := take(t, newSemaphore(t, s, semPath, 3).Permits(3))
		require.Len(t, h.Checks(), 3)
		_, err := s.Conn().Multi(opsOf(h.Checks())...)
		require.NoError(t, err)
		names := v.srv.Children(semLeases)
		slices.Sort(names)
		require.NoError(t, v.srv.Delete(semLeases+"/"+names[2]))
		_, err = s.Conn().Multi(opsOf(h.Checks())...)
		require.Error(t, err)
	})
}

// Participants distinguishes holders from waiters, also a call that waits for a permit with its
// leases.
func TestVirtual_Semaphore_Participants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		sem := newSemaphore(t, v.connect(), semPath, 3)
		holders, waiters, err := sem.Participants(t.Context())
		require.NoError(t, err)
		require.Empty(t, holders)
		require.Empty(t, waiters)
		h := take(t, v.permits(2, 3, zklock.WithData([]byte("a"))))
		v.lineUp(v.permits(2, 3, zklock.WithData([]byte("b"))))
		v.lineUp(v.permits(1, 3, zklock.WithData([]byte("c"))))
		holders, waiters, err = sem.Participants(t.Context())
		require.NoError(t, err)
		spelled := func(ps []zklock.Participant) (all string) {
			for _, p := range ps {
				all += string(p.Data)
			}
			return all
		}
		require.Equal(t, "aa", spelled(holders))
		require.Equal(t, "bbc", spelled(waiters))
		require.Equal(t, h.Node(), holders[0].Node)
	})
}

// Bad input is an error with the remedy, and leaves nothing behind. The largest number of permits
// that NewSemaphore accepts is granted, and shown: the bound of a shared limit does not apply to a
// fixed one.
func TestVirtual_Semaphore_MostPermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		sem := newSemaphore(t, v.connect(), semPath, math.MaxInt32)
		h := acquire(t, sem.Permits(2))
		synctest.Wait() // for the deletion of its node in the queue, after the grant
		holders, waiters, err := sem.Participants(t.Context())
		require.NoError(t, err)
		require.Len(t, holders, 2)
		require.Empty(t, waiters)
		release(t, h)
	})
}

func TestVirtual_Semaphore_BadInput(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		tooMany := math.MaxInt32
		tooMany++ // negative, where an int has 32 bits
		for _, c := range []struct {
			path string
			n    int
			opt  zklock.SemaphoreOption
			says string
		}{
			{semPath, 0, zklock.WithData(nil), "give 1 to 2147483647"},
			{semPath, -1, zklock.WithData(nil), "give 1 to"},
			{semPath, tooMany, zklock.WithData(nil), "give 1 to"},
			{semPath, 1<<24 + 1, zklock.WithSharedLimit("/limit"), "give 1 to 16777216"},
			{"sem", 1, zklock.WithData(nil), "must begin with a slash"},
			{semPath, 1, nil, "nil option"},
			{semPath, 1, zklock.WithSharedLimit("limit"), "WithSharedLimit: path \"limit\" is relative"},
			{semPath, 1, zklock.WithSharedLimit("/job"), "is a node of the semaphore or above it"},
			{semPath, 1, zklock.WithSharedLimit(semLeases), "is a node of the semaphore or above it: give another, such as /job/sem/limit"},
		} {
			_, err := zklock.NewSemaphore(s, c.path, c.n, c.opt)
			require.ErrorContains(t, err, c.says)
			require.True(t, zklock.IsFinal(err))
		}
		_, err := zklock.NewSemaphore(nil, semPath, 1)
		require.ErrorContains(t, err, "use the one that Connect returns")
		for _, k := range []int{-1, 0, 4} {
			sem := newSemaphore(t, s, semPath, 3)
			l := sem.Permits(k)
			work := func(context.Context, *zklock.Hold) error { t.Error("called"); return nil }
			_, err1 := l.Acquire(t.Context())
			_, err2 := l.TryAcquire(t.Context())
			_, err3 := sem.Acquire(t.Context(), k)
			_, err4 := sem.TryAcquire(t.Context(), k)
			for _, err := range []error{err1, err2, err3, err4, l.Do(t.Context(), work), l.TryDo(t.Context(), work), sem.Do(t.Context(), k, work)} {
				require.ErrorContains(t, err, fmt.Sprintf("%d permits of a semaphore that has 3: ask for 1 to 3", k))
				require.True(t, zklock.IsFinal(err))
			}
		}
		m := acquire(t, newMutex(t, s, semPath))
		_, err = v.permits(1, 1).Acquire(t.Context())
		require.ErrorContains(t, err, "in use by a lock of another kind")
		require.ErrorContains(t, err, "give the semaphore a path of its own")
		require.True(t, zklock.IsFinal(err))
		release(t, m)
		require.Empty(t, v.srv.Children(semPath))
		require.Empty(t, creates(slices.DeleteFunc(v.srv.History(), func(a zktest.Applied) bool {
			return a.Path == "/job" || a.Path == semPath || a.Path == m.Node()
		})), "nothing was made")
	})
}

// A hold of two permits is asked to give way by its second lease.
func TestVirtual_Semaphore_RevokedByAnyLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		asked := make(chan struct{}, 9)
		s := v.connect()
		sem := newSemaphore(t, s, semPath, 2, zklock.WithRevocation(func(*zklock.Hold) { asked <- struct{}{} }))
		take(t, sem.Permits(2))
		holders, _, err := sem.Participants(within(t, soon))
		require.NoError(t, err)
		require.Len(t, holders, 2)
		require.NoError(t, s.Revoke(within(t, soon), holders[1].Node))
		time.Sleep(time.Hour)
		require.Len(t, asked, 1)
	})
}
