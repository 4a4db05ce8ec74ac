package zklock_test

// These tests attack Multi: all locks or none, in one order, within one time limit, until the first
// loss.

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

func newMulti(t testing.TB, locks ...zklock.Lock) *zklock.Multi {
	t.Helper()
	m, err := zklock.NewMulti(locks...)
	require.NoError(t, err)
	return m
}

// mutexes returns the mutexes on the paths, in this order.
func mutexes(t testing.TB, s *zklock.Session, paths ...string) (locks []zklock.Lock) {
	t.Helper()
	for _, p := range paths {
		locks = append(locks, newMutex(t, s, p))
	}
	return locks
}

// multiCall is an Acquire of a Multi under way.
type multiCall struct {
	hold *zklock.MultiHold
	err  error
	took time.Duration
	done chan struct{}
}

// startMulti returns when the call waits, or has returned.
func startMulti(ctx context.Context, m *zklock.Multi) *multiCall {
	c, began := &multiCall{done: make(chan struct{})}, time.Now()
	go func() {
		defer close(c.done)
		c.hold, c.err = m.Acquire(ctx)
		c.took = time.Since(began)
	}()
	synctest.Wait()
	return c
}

func (c *multiCall) granted(t testing.TB) *zklock.MultiHold {
	t.Helper()
	<-c.done
	require.NoError(t, c.err)
	return c.hold
}

// lockNodes returns the lock roots in which the server's history has such a change of a lock node,
// in order.
func lockNodes(srv *zktest.Server, kind zktest.Kind) (roots []string) {
	for _, a := range srv.History() {
		if a.Kind == kind && strings.Contains(a.Path, "-lock-") {
			roots = append(roots, path.Dir(a.Path))
		}
	}
	return roots
}

func holdPaths(holds []*zklock.Hold) (paths []string) {
	for _, h := range holds {
		paths = append(paths, h.Path())
	}
	return paths
}

// foreignLock does not reveal the lock that it wraps.
type foreignLock struct{ zklock.Lock }

// counted is a lock with a counter around it, as for metrics.
type counted struct {
	zklock.Lock
	waits, tries *int
}

func (l counted) Unwrap() zklock.Lock { return l.Lock }

func (l counted) Acquire(ctx context.Context) (*zklock.Hold, error) {
	*l.waits++
	return l.Lock.Acquire(ctx)
}

func (l counted) TryAcquire(ctx context.Context) (*zklock.Hold, error) {
	*l.tries++
	return l.Lock.TryAcquire(ctx)
}

// countedMutex is the same around a Mutex alone, and has no Unwrap.
type countedMutex struct {
	*zklock.Mutex
	waits *int
}

func (l countedMutex) Acquire(ctx context.Context) (*zklock.Hold, error) {
	*l.waits++
	return l.Mutex.Acquire(ctx)
}

// astray returns the hold that it was given, instead of a hold of the lock that it wraps.
type astray struct {
	zklock.Lock
	returns *zklock.Hold
}

func (l astray) Unwrap() zklock.Lock { return l.Lock }

func (l astray) Acquire(context.Context) (*zklock.Hold, error) { return l.returns, nil }

func TestVirtual_NewMulti_BadInput(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		_, err := v.srv.Create("/app", nil, 0)
		require.NoError(t, err)
		below := hookedTo(v, "/app")
		a := newMutex(t, s, "/app/a")
		for says, locks := range map[string][]zklock.Lock{
			"give at least one":                  {},
			"lock 2 of 2 is nil or zero":         {a, nil},
			"lock 1 of 1 is nil or zero":         {(*zklock.Mutex)(nil)},
			"lock 2 of 3 is nil or zero":         {a, &zklock.Mutex{}, newMutex(t, s, "/z")},
			"lock 1 of 2 is a zklock_test.forei": {foreignLock{a}, newMutex(t, s, "/z")},
			"a method Unwrap() zklock.Lock":      {newMutex(t, s, "/z"), counted{Lock: foreignLock{a}}},
			"lock 1 of 1 is nil or zero: use":    {countedMutex{}},
			"lock 1 of 1 is a zklock_test.count": {counted{}},
			"/app/a: two locks have this a":      {counted{Lock: a}, a},
			"/app/a: two locks have this abs":    {a, newMutex(t, s, "/z"), newMutex(t, s, "/app/a")},
			"/app/a: two locks have this absol":  {a, newMutex(t, v.connect(), "/app/a")},
			"/app/a: two locks have this absolu": {newMutex(t, below, "/a"), a},
		} {
			m, err := zklock.NewMulti(locks...)
			require.Nil(t, m)
			require.ErrorContains(t, err, says)
			require.True(t, zklock.IsFinal(err), says)
			var e *zklock.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "new multi", e.Op)
		}
		m := newMulti(t, a)
		var none context.Context
		_, err = m.Acquire(none)
		require.ErrorContains(t, err, "nil context")
		require.ErrorContains(t, m.Do(t.Context(), nil), "nil function")
		require.ErrorContains(t, m.Do(t.Context(), func(context.Context, *zklock.MultiHold) error { return nil }, nil), "nil DoOption")
		h, err := m.Acquire(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, h.Release(none), "nil context")
		require.NoError(t, h.Err())
		require.NoError(t, h.Release(t.Context()))
	})
}

// For a type that wraps a lock, its own methods are called, whether it embeds one of our types or
// reveals the lock that it wraps: for a wait, for a try, and for a limited wait of Do, whose error
// is the same as without the wrapper.
func TestVirtual_Multi_WrappedLock_ItsMethodsAreCalled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		var waits, tries, plain int
		rw := newRWMutex(t, s, "/d")
		m := newMulti(t, counted{counted{rw.WriteLock(), &waits, &tries}, &waits, &tries}, counted{newSemaphore(t, s, "/c", 1).Permits(1), &waits, &tries},
			countedMutex{newMutex(t, s, "/b"), &plain}, newMutex(t, s, "/a"))
		counts := func(wantWaits, wantTries, wantPlain int) {
			t.Helper()
			require.Equal(t, [3]int{wantWaits, wantTries, wantPlain}, [3]int{waits, tries, plain})
			waits, tries, plain = 0, 0, 0
		}
		h, err := m.Acquire(within(t, time.Hour))
		require.NoError(t, err)
		counts(3, 0, 1)
		require.Equal(t, []string{"/a", "/b", "/c", "/d"}, holdPaths(h.Holds()))
		require.NoError(t, h.Release(within(t, soon)))

		h, err = m.TryAcquire(within(t, time.Hour))
		require.NoError(t, err)
		counts(0, 3, 0)
		_, err = newMulti(t, counted{newMutex(t, s, "/a/b"), &waits, &tries}).Acquire(h.Context())
		require.ErrorContains(t, err, "the context carries a hold of /d, and /a/b must be taken before it", "the order is that of the lock under it")
		require.NoError(t, h.Release(within(t, soon)))

		other := acquire(t, newMutex(t, v.connect(), "/b"))
		began := time.Now()
		err = m.Do(t.Context(), func(context.Context, *zklock.MultiHold) error { panic("not held") }, zklock.WaitAtMost(time.Minute))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
		require.Equal(t, time.Minute, time.Since(began).Truncate(time.Second))
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "/b", e.Path)
		require.Equal(t, 2, e.Position)
		counts(0, 0, 1)
		release(t, other)

		// The limit of the wait does not apply to the work under the locks.
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context, h *zklock.MultiHold) error {
			for _, ctx := range []context.Context{ctx, h.Context(), h.Holds()[3].Context()} {
				other := acquire(t, newMutex(t, v.connect(), "/x"))
				time.AfterFunc(5*time.Minute, func() { _ = other.Release(context.Background()) })
				release(t, acquireIn(t, ctx, newMutex(t, s, "/x")))
			}
			return nil
		}, zklock.WaitAtMost(time.Minute)))
	})
}

// If a wrapper returns a hold that is not of its lock, the hold is rejected and released, and so
// are the locks that were taken before.
func TestVirtual_Multi_WrapperReturnsAnotherHold_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		for _, other := range []*zklock.Hold{nil, {}, acquire(t, newMutex(t, s, "/other"))} {
			_, err := newMulti(t, newMutex(t, s, "/a"), astray{newMutex(t, s, "/b"), other}).Acquire(within(t, time.Hour))
			require.ErrorContains(t, err, "acquire /b: zklock_test.astray returned no hold of the lock that its Unwrap returns")
			require.True(t, zklock.IsFinal(err))
			require.Empty(t, v.srv.Children("/a"), "I4")
		}
		require.Empty(t, v.srv.Children("/other"), "I4")
	})
}

// panicky is a lock whose wrapper panics.
type panicky struct{ *zklock.Mutex }

func (panicky) Acquire(context.Context) (*zklock.Hold, error) { panic("no metrics") }

// If a wrapper panics, the locks that were taken before it are released, in a program that
// recovers.
func TestVirtual_Multi_WrapperPanics_GivesTheOthersBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMulti(t, newMutex(t, s, "/a"), panicky{newMutex(t, s, "/b")})
		require.PanicsWithValue(t, "no metrics", func() { _, _ = m.Acquire(within(t, time.Hour)) })
		require.Empty(t, v.srv.Children("/a"), "I4")
	})
}

// A call that has permits of a semaphore and waits for more of them could wait for another call
// that does the same. A try does not wait, and a caller that asks for all permits at once gets all
// or none.
func TestVirtual_Multi_MorePermitsOfOneSemaphore_AreRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		for _, other := range []*zklock.Session{s, v.connect()} {
			some := acquire(t, newSemaphore(t, other, "/sem", 2).Permits(1))
			m := newMulti(t, newSemaphore(t, s, "/sem", 2).Permits(1), newMutex(t, s, "/z"))
			v.srv.ResetRequests()
			under, cancel := context.WithTimeout(some.Context(), time.Hour)
			_, err := m.Acquire(under)
			cancel()
			require.ErrorContains(t, err, "zklock: acquire /sem: the context carries permits of this semaphore")
			require.ErrorContains(t, err, "take all of them at once, or release those first")
			require.True(t, zklock.IsFinal(err))
			require.Zero(t, v.srv.Requests().Total(zktest.Create))
			h, err := m.TryAcquire(some.Context())
			require.NoError(t, err)
			require.NoError(t, h.Release(within(t, soon)))
			release(t, some)
			h, err = m.Acquire(context.WithoutCancel(some.Context()))
			require.NoError(t, err, "they were released")
			require.NoError(t, h.Release(within(t, soon)))
		}
	})
}

func hookedTo(v *virtual, chroot string) *zklock.Session {
	v.t.Helper()
	return connect(v.t, v.srv.Addr()+chroot, zklock.WithDialer(v.net.Dial))
}

// The locks are taken in the order of their absolute paths, regardless of the order in NewMulti.
// The context carries all holds.
func TestVirtual_Multi_OneOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, err := v.srv.Create("/b", nil, 0)
		require.NoError(t, err)
		s, below := v.connect(), hookedTo(v, "/b")
		given := []zklock.Lock{newMutex(t, s, "/d"), newMutex(t, below, "/z"), newMutex(t, s, "/a")}
		for i := range given {
			given[0], given[i] = given[i], given[0]
			m := newMulti(t, given...)
			made, deleted := len(lockNodes(v.srv, zktest.Created)), len(lockNodes(v.srv, zktest.Deleted))
			h, err := m.Acquire(zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("")))
			require.NoError(t, err)
			require.Equal(t, []string{"/a", "/b/z", "/d"}, lockNodes(v.srv, zktest.Created)[made:])
			require.Equal(t, []string{"/a", "/z", "/d"}, holdPaths(h.Holds()))
			for _, l := range given {
				require.True(t, l.(*zklock.Mutex).OwnedBy(h.Context()))
			}
			again, err := m.Acquire(h.Context()) // re-enters: the owner is the same in all locks
			require.NoError(t, err)
			require.Len(t, lockNodes(v.srv, zktest.Created), made+3, "I2")
			require.NoError(t, again.Release(within(t, soon)))
			require.ErrorIs(t, again.Err(), zklock.ErrNotHeld)
			require.NoError(t, h.Err())

			require.NoError(t, h.Release(within(t, soon)))
			require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
			require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrNotHeld)
			require.NoError(t, h.Release(within(t, soon)), "a second one does nothing")
			require.Len(t, lockNodes(v.srv, zktest.Deleted), deleted+3)
		}
	})
}

// One Session's nodes are deleted in reverse order.
func TestVirtual_Multi_ReleasedInReverse(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMulti(t, mutexes(t, v.connect(), "/b", "/c", "/a")...)
		h, err := m.Acquire(within(t, time.Hour))
		require.NoError(t, err)
		require.NoError(t, h.Release(within(t, soon)))
		require.Equal(t, []string{"/c", "/b", "/a"}, lockNodes(v.srv, zktest.Deleted))
	})
}

// R86: two callers list the same locks in opposite orders, and neither waits for the other's hold.
func TestVirtual_Multi_OppositeOrders_DoNotDeadlock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		ab, ba := newMulti(t, mutexes(t, v.connect(), "/a", "/b")...), newMulti(t, mutexes(t, v.connect(), "/b", "/a")...)
		keep := v.connect()
		a, b := newMutex(t, keep, "/a"), newMutex(t, keep, "/b")
		for range 20 { // both wait for their first
			ha, hb := acquire(t, a), acquire(t, b)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			one, other := startMulti(ctx, ab), startMulti(ctx, ba)
			release(t, ha)
			release(t, hb)
			require.NoError(t, one.granted(t).Release(ctx))
			require.NoError(t, other.granted(t).Release(ctx))
			cancel()
		}
		l := ledger.New(t.Errorf)
		var all sync.WaitGroup
		for _, m := range []*zklock.Multi{ab, ba, ab, ba} {
			all.Go(func() {
				for range 50 {
					err := m.Do(within(t, 24*time.Hour), func(_ context.Context, h *zklock.MultiHold) error {
						work(t, l, h.Holds()[0], func() { work(t, l, h.Holds()[1], func() { time.Sleep(time.Millisecond) }) })
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, 400, l.Grants())
	})
}

// A wait that is cancelled in the middle leaves no node, and ends within half a second, even if no
// server responds.
func TestVirtual_Multi_CancelInTheMiddle(t *testing.T) {
	why := errors.New("the shop is closing")
	for _, silent := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			line := &line{dial: v.net.Dial, patience: time.Second}
			s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
			other := acquire(t, newMutex(t, v.connect(), "/b"))
			ctx, cancel := context.WithCancelCause(t.Context())
			c := startMulti(ctx, newMulti(t, mutexes(t, s, "/b", "/c", "/a")...))
			require.Len(t, v.srv.Children("/a"), 1)
			line.silent.Store(silent)
			began := time.Now()
			cancel(why)
			<-c.done
			require.LessOrEqual(t, time.Since(began), grace, "I6")
			require.ErrorIs(t, c.err, why)
			require.Equal(t, silent, errors.Is(c.err, zklock.ErrNotConfirmed), "%v", c.err)
			if silent {
				line.silent.Store(false)
				v.srv.DropConnection(s.Stats().SessionID) // its stream has lost bytes
				time.Sleep(time.Minute)
			}
			require.Empty(t, v.srv.Children("/a"), "I4")
			require.Len(t, v.srv.Children("/b"), 1, "I4")
			require.Empty(t, v.srv.Children("/c"))
			release(t, other)
		})
	}
}

// R86: one limit applies to the waits for all locks together, and not to the work. A try waits for
// no lock.
func TestVirtual_Multi_OneBudget(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		keep := v.connect()
		a, b := acquire(t, newMutex(t, keep, "/a")), acquire(t, newMutex(t, keep, "/b"))
		time.AfterFunc(40*time.Second, func() { _ = a.Release(context.Background()) })
		m := newMulti(t, mutexes(t, v.connect(), "/a", "/b")...)
		never := func(context.Context, *zklock.MultiHold) error { panic("not held") }
		began := time.Now()
		err := m.Do(t.Context(), never, zklock.WaitAtMost(time.Minute))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Equal(t, time.Minute, time.Since(began).Truncate(time.Second))
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "/b", e.Path)
		require.Equal(t, 2, e.Position)

		began = time.Now()
		require.ErrorIs(t, m.TryDo(t.Context(), never), zklock.ErrNotAcquired)
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, v.srv.Children("/a"), "I4")
		require.Len(t, v.srv.Children("/b"), 1, "I4")
		release(t, b)
		require.NoError(t, m.Do(within(t, 24*time.Hour), func(context.Context, *zklock.MultiHold) error { time.Sleep(time.Hour); return nil }, zklock.WaitAtMost(time.Minute)))
	})
}

// slow is a lock whose wrapper returns the hold late.
type slow struct{ *zklock.Mutex }

func (l slow) Acquire(ctx context.Context) (*zklock.Hold, error) {
	defer time.Sleep(1200 * time.Millisecond)
	return l.Mutex.Acquire(ctx)
}

// R86: if the first lock takes all the time, the call queues for no other, and reports that it did
// not get the next one in time. The connection is not at fault.
func TestVirtual_Multi_FirstLockTakesTheBudget_NotAcquired(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMulti(t, slow{newMutex(t, s, "/a")}, newMutex(t, s, "/b"))
		err := m.Do(t.Context(), func(context.Context, *zklock.MultiHold) error { panic("not held") }, zklock.WaitAtMost(time.Second))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.NotErrorIs(t, err, zklock.ErrNotConnected)
		require.ErrorContains(t, err, "/b: lock not acquired")
		require.ErrorContains(t, err, "took all of the 1s")
		require.Equal(t, []string{"/a"}, lockNodes(v.srv, zktest.Created))
		require.Empty(t, v.srv.Children("/a"), "I4")
	})
}

// A panic under the locks releases them, the last one first, and continues.
func TestVirtual_Multi_Do_Panic(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMulti(t, mutexes(t, v.connect(), "/a", "/b")...)
		require.PanicsWithValue(t, "oh", func() {
			_ = m.Do(within(t, time.Hour), func(context.Context, *zklock.MultiHold) error { panic("oh") })
		})
		require.Equal(t, []string{"/b", "/a"}, lockNodes(v.srv, zktest.Deleted))
	})
}

// A context with a hold that sorts after a lock of the Multi, which would have to wait for it, is
// rejected. So is a context with a hold of that path through another Session. Holds that can be
// re-entered, that were released, or that sort before the lock do not matter; a try never waits.
func TestVirtual_Multi_ContextOutOfOrder_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		a, b, c, d := newMutex(t, s, "/a"), newMutex(t, s, "/b"), newMutex(t, s, "/c"), newMutex(t, s, "/d")
		ctx := within(t, time.Hour)
		acquireIn := func(ctx context.Context, m *zklock.Mutex) *zklock.Hold {
			h, err := m.Acquire(ctx)
			require.NoError(t, err)
			return h
		}
		hb := acquireIn(ctx, b)
		under, cancel := context.WithTimeout(hb.Context(), time.Hour)
		defer cancel()
		elsewhere := newMutex(t, v.connect(), "/b")
		v.srv.ResetRequests()
		for says, m := range map[string]*zklock.Multi{
			"acquire /a: the context carries a hold of /b, and /a":         newMulti(t, a, c),
			"acquire /a: the context carries a hold of /b, and /a must":    newMulti(t, b, a),
			"acquire /b: the context carries a hold of /b, and /b must be": newMulti(t, elsewhere, c),
		} {
			for _, f := range []func() error{
				func() error { _, err := m.Acquire(under); return err },
				func() error {
					return m.Do(under, func(context.Context, *zklock.MultiHold) error { return nil }, zklock.WaitAtMost(time.Minute))
				},
			} {
				err := f()
				require.ErrorContains(t, err, says)
				require.True(t, zklock.IsFinal(err))
			}
		}
		require.Zero(t, v.srv.Requests().Total(zktest.Create))
		free := func(ctx context.Context, m *zklock.Multi) {
			t.Helper()
			h, err := m.Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, h.Release(ctx))
		}
		free(reentering(hb), newMulti(t, b, c))
		free(hb.Context(), newMulti(t, d, c))
		require.NoError(t, newMulti(t, a, c).TryDo(hb.Context(), func(context.Context, *zklock.MultiHold) error { return nil }))

		hd := acquireIn(hb.Context(), d)
		_, err := newMulti(t, b, c).Acquire(zklock.WithOwner(hd.Context(), hb.Owner()))
		require.ErrorContains(t, err, "acquire /c: the context carries a hold of /d, and /c must")
		release(t, hd)
		free(zklock.WithOwner(context.WithoutCancel(hd.Context()), hb.Owner()), newMulti(t, b, c))
		release(t, hb)
		free(context.WithoutCancel(hb.Context()), newMulti(t, a, b))
	})
}

// I6: the context carries a write hold, and sets another owner: a read lock would wait for that
// hold.
func TestVirtual_Multi_ReadUnderAnotherOwnersWrite_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		rw := newRWMutex(t, s, "/job/b")
		w := take(t, rw.WriteLock())
		m := newMulti(t, rw.ReadLock())
		ctx, cancel := context.WithTimeout(zklock.WithOwner(w.Context(), zklock.NewOwner("other")), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := m.Acquire(ctx)
		require.Error(t, err)
		require.Zero(t, time.Since(began), "it waited for itself")
	})
}
