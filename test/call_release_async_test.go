package zklock_test

// These tests attack ReleaseAsync and AsyncRelease: what a cycle costs, which errors the caller
// still gets, and what becomes of a release that no call waits for.

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// holdEnds keeps the errors of HoldEnd, in order.
type holdEnds struct {
	mu   sync.Mutex
	errs []error
	also func()
}

func (h *holdEnds) option() zklock.Option {
	return zklock.WithTrace(&zklock.Trace{HoldEnd: func(_ context.Context, i zklock.HoldInfo) {
		h.mu.Lock()
		h.errs = append(h.errs, i.Err)
		h.mu.Unlock()
		if h.also != nil {
			h.also()
		}
	}})
}

func (h *holdEnds) all() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errs
}

// I8: a cycle takes the round trips of its acquire, and no more requests than with Release.
func TestVirtual_ReleaseAsync_CycleTakesOneRoundTrip(t *testing.T) {
	const n, way = 20, time.Millisecond
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(way)
		s := v.connect()
		rw := newRWMutex(t, s, "/job/rw")
		for _, c := range []struct {
			name            string
			lock            zklock.Lock
			trips, requests int // of a cycle
		}{
			{"mutex", newMutex(t, s, "/job/m"), 1, 3},
			{"container", newMutex(t, s, "/job/c", zklock.WithContainer()), 1, 2},
			{"lock-delay", newMutex(t, s, "/job/d", zklock.WithLockDelay(time.Second)), 2, 5},
			{"read lock", rw.ReadLock(), 1, 3},
			{"write lock", rw.WriteLock(), 1, 3},
			{"permit", newSemaphore(t, s, "/job/sem", 1).Permits(1), 1, 4},
		} {
			cycles := func(count int, release func(h *zklock.Hold) error) time.Duration {
				began := time.Now()
				for range count {
					h, err := c.lock.Acquire(context.Background())
					require.NoError(t, err, c.name)
					require.NoError(t, release(h), c.name)
				}
				return time.Since(began)
			}
			cycles(2, func(h *zklock.Hold) error { return h.Release(context.Background()) })
			v.srv.ResetRequests()
			took := cycles(n, (*zklock.Hold).ReleaseAsync)
			time.Sleep(50 * way)
			t.Logf("%s: %v", c.name, v.srv.Requests())
			require.Equal(t, time.Duration(n*c.trips)*2*way, took, c.name)
			require.Equal(t, n*c.requests, v.srv.Requests().Total(), "%s: %v", c.name, v.srv.Requests())
			require.Zero(t, s.Stats().Deleting+s.Stats().Unconfirmed, c.name)
		}
		m := newMulti(t, newMutex(t, s, "/job/m1"), newMutex(t, s, "/job/m2"))
		free := func(context.Context, *zklock.MultiHold) error { return nil }
		require.NoError(t, m.Do(context.Background(), free))
		began := time.Now()
		require.NoError(t, m.Do(context.Background(), free, zklock.AsyncRelease()))
		require.Equal(t, 2*2*way, time.Since(began), "one round trip for each lock")
	})
}

// F10, I4: the response to the delete is lost, or the delete itself. The Session's next acquire
// waits until the first node is deleted, and two never hold.
func TestVirtual_ReleaseAsync_ConnectionLost(t *testing.T) {
	for _, lost := range []zktest.Fault{
		zktest.After(zktest.Delete).Path("/job/*").DropReply().Close(),
		zktest.Before(zktest.Delete).Path("/job/*").Close(),
		zktest.Before(zktest.Delete).Path("/job/*").Fail(zktest.OperationTimeout),
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			ends := &holdEnds{}
			s := v.connect(ends.option())
			m := newMutex(t, s, "/job")
			h := acquire(t, m)
			v.srv.Inject(lost.Once())
			require.NoError(t, h.ReleaseAsync())
			require.False(t, m.Held(), "R1")
			require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
			require.NoError(t, h.Release(context.Background()), "a second release")
			next := acquire(t, m)
			require.Equal(t, []string{base(next.Node())}, v.srv.Children("/job"), "I1")
			require.NoError(t, next.ReleaseAsync())
			time.Sleep(5 * time.Second)
			require.Empty(t, v.srv.Children("/job"))
			require.Equal(t, []error{nil, nil}, ends.all())
			require.Zero(t, s.Stats().Unconfirmed)
		})
	}
}

// I5: a loss before the release is returned, as by Release. A loss that only the servers have seen
// is logged and traced.
func TestVirtual_ReleaseAsync_Lost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		ends, logged := &holdEnds{}, &warnings{}
		s := v.connect(ends.option(), logged.option())
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		require.NoError(t, v.srv.Delete(h.Node()))
		require.NoError(t, h.ReleaseAsync(), "not seen yet")
		synctest.Wait()
		require.Equal(t, 1, logged.about("hold lost", h.Node()))
		require.ErrorIs(t, ends.all()[0], zklock.ErrLost)

		h = acquire(t, m)
		require.NoError(t, v.srv.Delete(h.Node()))
		<-h.Lost()
		require.ErrorIs(t, h.ReleaseAsync(), zklock.ErrLost)

		err := m.Do(context.Background(), func(ctx context.Context, h *zklock.Hold) error {
			require.NoError(t, v.srv.Delete(h.Node()))
			<-ctx.Done()
			return nil
		}, zklock.AsyncRelease())
		require.ErrorIs(t, err, zklock.ErrLost)
		require.Zero(t, s.Stats().Unconfirmed, "a loss is confirmed")
	})
}

// I4: the servers cannot delete. The release is not confirmed until the deadline that the hold had:
// it is logged, counted and traced, and the deletion continues.
func TestVirtual_ReleaseAsync_NotConfirmed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		ends, logged := &holdEnds{}, &warnings{}
		s := v.connect(ends.option(), logged.option())
		m := newMutex(t, s, "/job")
		stuck := v.srv.Inject(zktest.Before(zktest.Delete).Path("/job/*").Fail(zktest.OperationTimeout))
		var until time.Time
		require.NoError(t, m.Do(context.Background(), func(_ context.Context, h *zklock.Hold) error {
			until = h.Deadline()
			return nil
		}, zklock.AsyncRelease()))
		time.Sleep(time.Until(until) - time.Second)
		require.Empty(t, ends.all())
		require.Equal(t, 1, s.Stats().Deleting)
		time.Sleep(2 * time.Second)
		require.Len(t, ends.all(), 1)
		require.ErrorIs(t, ends.all()[0], zklock.ErrNotConfirmed)
		require.Equal(t, 1, s.Stats().Unconfirmed)
		require.Equal(t, 1, logged.about("zklock: release not confirmed", "/job"))
		stuck.Remove()
		time.Sleep(6 * time.Second)
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// I4, I7: Close waits for the response, so a release just before it is confirmed. HoldEnd may close
// the Session.
func TestVirtual_ReleaseAsync_Close(t *testing.T) {
	for _, own := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			closed := make(chan error, 1)
			ends, logged := &holdEnds{}, &warnings{}
			s := v.connect(ends.option(), logged.option())
			if own {
				ends.also = func() { closed <- s.Close() }
			}
			h := acquire(t, newMutex(t, s, "/job"))
			began := time.Now()
			require.NoError(t, h.ReleaseAsync())
			require.Zero(t, time.Since(began))
			if !own {
				require.NoError(t, s.Close())
				closed <- nil
			}
			require.NoError(t, <-closed)
			require.Less(t, time.Since(began), 10*time.Millisecond)
			synctest.Wait()
			require.Equal(t, []error{nil}, ends.all())
			require.Zero(t, logged.about("zklock: release not confirmed", ""))
			require.ErrorIs(t, h.ReleaseAsync(), nil, "a second release")
		})
	}
	inVirtualTime(t, func(t *testing.T, v *virtual) { // no server responds any more
		line, ends, logged := &line{dial: v.net.Dial}, &holdEnds{}, &warnings{}
		s := v.connect(zklock.WithDialer(line.Dial), ends.option(), logged.option())
		h := acquire(t, newMutex(t, s, "/job"))
		line.silent.Store(true)
		require.NoError(t, h.ReleaseAsync())
		require.NoError(t, s.Close())
		synctest.Wait()
		require.Len(t, ends.all(), 1)
		require.ErrorIs(t, ends.all()[0], zklock.ErrNotConfirmed)
		require.ErrorIs(t, ends.all()[0], zklock.ErrClosed)
		require.Zero(t, s.Stats().Unconfirmed)
		require.Zero(t, logged.about("zklock: release not confirmed", ""), "Close is no failure")
		line.silent.Store(false)
	})
}

// I1: the node of a minimum hold time stays; the reader's node of a writer stays until both are
// released; and a waiter of the same Session gets the handoff.
func TestVirtual_ReleaseAsync_WhatTheReleaseLeaves(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		ends := &holdEnds{}
		s := v.connect(ends.option())
		min := newMutex(t, s, "/job/min", zklock.WithMinHold(time.Minute))
		require.NoError(t, acquire(t, min).ReleaseAsync())
		time.Sleep(50 * time.Second)
		require.Equal(t, []error{nil}, ends.all(), "the check has confirmed it")
		require.Len(t, v.srv.Children("/job/min"), 1)
		time.Sleep(11 * time.Second)
		require.Empty(t, v.srv.Children("/job/min"))

		rw := newRWMutex(t, s, "/job/rw")
		w := acquire(t, rw.WriteLock())
		r, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		require.NoError(t, w.ReleaseAsync())
		synctest.Wait()
		require.NoError(t, r.Err())
		require.Equal(t, []string{base(r.Node())}, v.srv.Children("/job/rw"))
		require.NoError(t, r.ReleaseAsync())
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job/rw"))

		m := newMutex(t, s, "/job/m")
		h := acquire(t, m)
		next := v.queueUp(m)
		cost := v.cost(func() {
			require.NoError(t, h.ReleaseAsync())
			h = next.granted2(t, time.Second)
		})
		require.Equal(t, 1, cost.Total(), "the transaction of the handoff")
		require.NoError(t, h.ReleaseAsync())
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job/m"))
	})
}

// AsyncRelease is an option of every Do except Once, and a try.
func TestVirtual_AsyncRelease_IsAnOptionOfEachDo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, failed := v.connect(), errors.New("failed")
		sem, ctx := newSemaphore(t, s, "/job/sem", 2), context.Background()
		f := func(context.Context, *zklock.Hold) error { return failed }
		m := newMutex(t, s, "/job/m")
		require.ErrorIs(t, sem.Do(ctx, 2, f, zklock.AsyncRelease()), failed)
		require.ErrorIs(t, m.Do(ctx, f, zklock.AsyncRelease(), zklock.WaitAtMost(0)), failed)
		multi := newMulti(t, m, sem.Permits(1))
		require.ErrorIs(t, multi.Do(ctx, func(context.Context, *zklock.MultiHold) error { return failed }, zklock.AsyncRelease()), failed)
		require.Panics(t, func() {
			_ = m.Do(ctx, func(context.Context, *zklock.Hold) error { panic("the work") }, zklock.AsyncRelease())
		})
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job/m"))
		require.Empty(t, v.srv.Children("/job/sem/leases"))
		ran, err := m.Once(ctx, "today", f, zklock.AsyncRelease())
		require.ErrorContains(t, err, "AsyncRelease")
		require.False(t, ran)
		require.Error(t, (*zklock.Hold)(nil).ReleaseAsync())
	})
}
