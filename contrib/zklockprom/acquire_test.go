package zklockprom_test

// These tests attack the metrics of acquires and holds: an outcome under a wrong name, a re-entry
// that counts twice, a wait or a hold that does not show while it lasts.

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
	"github.com/zklock/zklock/zktest"
)

// Every acquire has one outcome, which matches the caller's result.
func TestVirtual_Acquire_OneOutcomeEach(t *testing.T) {
	background := context.Background()
	acquire := func(m *zklock.Mutex) error { _, err := m.Acquire(background); return err }
	for outcome, got := range map[string]struct {
		do func(v *virtual, s *zklock.Session, m *zklock.Mutex) error // another Session holds what m wants
		is error
	}{
		"not_acquired": {func(_ *virtual, _ *zklock.Session, m *zklock.Mutex) error {
			_, err := m.TryAcquire(background)
			return err
		}, zklock.ErrNotAcquired},
		"deadline": {func(_ *virtual, _ *zklock.Session, m *zklock.Mutex) error {
			ctx, cancel := context.WithTimeout(background, time.Minute)
			defer cancel()
			_, err := m.Acquire(ctx)
			return err
		}, context.DeadlineExceeded},
		"canceled": {func(_ *virtual, _ *zklock.Session, m *zklock.Mutex) error {
			ctx, cancel := context.WithCancelCause(background)
			time.AfterFunc(time.Second, func() { cancel(zklock.ErrNotAcquired) })
			_, err := m.Acquire(ctx)
			return err
		}, context.Canceled},
		"not_connected": {func(v *virtual, _ *zklock.Session, m *zklock.Mutex) error {
			v.srv.Stop()
			synctest.Wait()
			_, err := m.TryAcquire(background)
			return err
		}, zklock.ErrNotConnected},
		"closed": {func(_ *virtual, s *zklock.Session, m *zklock.Mutex) error {
			time.AfterFunc(time.Second, func() { _ = s.Close() })
			return acquire(m)
		}, zklock.ErrClosed},
		"error": {func(v *virtual, _ *zklock.Session, m *zklock.Mutex) error {
			v.srv.Inject(zktest.Before(zktest.Create).Fail(zktest.NoAuth))
			return acquire(m)
		}, zk.ErrNoAuth},
	} {
		t.Run(outcome, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				held := newMutex(t, v.connect(), "/job")
				h, err := held.Acquire(background)
				require.NoError(t, err)
				s := v.connect()
				err = got.do(v, s, newMutex(t, s, "/job"))
				require.ErrorIs(t, err, got.is)
				now := v.shown()
				require.Equal(t, 1.0, now.acquires("/job", "mutex", outcome))
				require.Equal(t, 1.0, now.acquires("/job", "mutex", "acquired"))
				require.Equal(t, 2.0, now.sum("zklock_acquire_duration_seconds_count"))
				_ = h.Release(background)
			})
		})
	}
}

// Each recipe has its kind, and a try that gets the lock is an acquire.
func TestVirtual_Kinds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		rw, err := zklock.NewRWMutex(s, "/rw")
		require.NoError(t, err)
		permits, err := zklock.NewSemaphore(s, "/permits", 3)
		require.NoError(t, err)
		both, err := zklock.NewMulti(rw.ReadLock(), newMutex(t, s, "/other"))
		require.NoError(t, err)
		release(t, acquire(t, rw.ReadLock()))
		release(t, acquire(t, rw.WriteLock()))
		h, err := newMutex(t, s, "/job").TryAcquire(t.Context())
		require.NoError(t, err)
		release(t, h)
		h, err = permits.Acquire(t.Context(), 2)
		require.NoError(t, err)
		release(t, h)
		hs, err := both.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, hs.Release(t.Context()))
		now := v.shown()
		for _, want := range []struct {
			lock, kind string
			n          float64
		}{{"/rw", "read", 2}, {"/rw", "write", 1}, {"/job", "mutex", 1}, {"/other", "mutex", 1}, {"/permits", "semaphore", 1}} {
			require.Equal(t, want.n, now.acquires(want.lock, want.kind, "acquired"), want)
		}
		require.Equal(t, 6.0, now.sum("zklock_hold_duration_seconds_count"))
		require.Zero(t, now.sum("zklock_overrun_seconds_count"))
		require.Zero(t, now.sum("zklock_holds_lost_total"))
		require.Zero(t, now.sum("zklock_longest"))
	})
}

// A wait and a hold show while they last, and with their whole length when they have ended.
func TestVirtual_WaitAndHold_ShowWhileTheyLast(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		time.Sleep(10 * time.Second)
		next := make(chan *zklock.Hold)
		m := newMutex(t, v.connect(), "/job")
		go func() { next <- acquire(t, m) }()
		time.Sleep(20 * time.Second)
		now := v.shown()
		require.Equal(t, 30.0, now[`zklock_longest_hold_seconds{kind="mutex",lock="/job"}`])
		require.Equal(t, 20.0, now[`zklock_longest_wait_seconds{kind="mutex",lock="/job"}`])
		require.Equal(t, 1.0, now["zklock_waiting"])
		require.Equal(t, 1.0, now["zklock_holds"])
		release(t, h)
		h = <-next
		time.Sleep(5 * time.Second)
		now = v.shown()
		require.Equal(t, 5.0, now[`zklock_longest_hold_seconds{kind="mutex",lock="/job"}`])
		require.Zero(t, now[`zklock_longest_wait_seconds{kind="mutex",lock="/job"}`])
		require.Zero(t, now["zklock_waiting"])
		release(t, h)
		now = v.shown()
		require.Equal(t, 20.0, now[`zklock_acquire_duration_seconds_sum{kind="mutex",lock="/job",outcome="acquired"}`])
		require.Equal(t, 35.0, now[`zklock_hold_duration_seconds_sum{kind="mutex",lock="/job"}`])
		require.Equal(t, 1.0, now[`zklock_hold_duration_seconds_bucket{kind="mutex",lock="/job",le="10"}`])
		require.Equal(t, 2.0, now[`zklock_hold_duration_seconds_bucket{kind="mutex",lock="/job",le="60"}`])
	})
}

// A hold that is re-entered is one acquire and one hold, which lasts until its last handle is
// released, whichever that is.
func TestVirtual_Reentered_CountsOnce(t *testing.T) {
	for _, name := range []string{"the outer handle last", "the inner handle last"} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				m := newMutex(t, v.connect(), "/job")
				outer := acquire(t, m)
				time.Sleep(time.Second)
				inner := acquireIn(t, zklock.WithOwner(outer.Context(), outer.Owner()), m)
				first, last := inner, outer
				if name == "the inner handle last" {
					first, last = outer, inner
				}
				time.Sleep(time.Second)
				release(t, first)
				time.Sleep(time.Second)
				require.Zero(t, v.shown().sum("zklock_hold_duration_seconds_count"))
				release(t, last)
				now := v.shown()
				require.Equal(t, 1.0, now.sum("zklock_acquire_duration_seconds_count"))
				require.Equal(t, 1.0, now.sum("zklock_hold_duration_seconds_count"))
				require.Equal(t, 3.0, now.sum("zklock_hold_duration_seconds_sum"))
			})
		})
	}
}

// The last handle of a hold has another name: the hold still ends, under the name of its grant.
func TestVirtual_ReentryUnderAnotherName_EndsTheHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		outer := acquire(t, newMutex(t, s, "/job", zklock.WithName("outer")))
		inner := acquireIn(t, zklock.WithOwner(outer.Context(), outer.Owner()), newMutex(t, s, "/job", zklock.WithName("inner")))
		release(t, outer)
		time.Sleep(time.Minute)
		release(t, inner)
		now := v.shown()
		require.Zero(t, now.sum("zklock_longest_hold_seconds"))
		require.Equal(t, 1.0, now[`zklock_hold_duration_seconds_count{kind="mutex",lock="outer"}`])
		require.Equal(t, 1.0, now.sum("zklock_hold_duration_seconds_count"))
	})
}

// A trace before this one may delay AcquireEnd of a re-entry until the handle that it re-enters is
// released, or lost and released. The hold still counts once, for as long as it lasts.
func TestVirtual_ReentryTracedLate_CountsOnce(t *testing.T) {
	for _, isLost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost: %v", isLost), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connectAfter([]zklock.Option{zklock.WithTrace(&zklock.Trace{AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) {
					if a.Reentered {
						time.Sleep(10 * time.Second)
					}
				}})})
				m, inner := newMutex(t, s, "/job"), make(chan *zklock.Hold, 1)
				outer := acquire(t, m)
				time.Sleep(time.Second)
				go func() { inner <- acquireIn(t, zklock.WithOwner(outer.Context(), outer.Owner()), m) }()
				synctest.Wait()
				lost, overrun := 0.0, 0.0
				if isLost {
					require.NoError(t, v.srv.Delete(outer.Node()))
					<-outer.Lost() // at a heartbeat
					lost, overrun = 1, 10
				}
				time.Sleep(4*time.Second - time.Duration(lost)*time.Second)
				_ = outer.Release(context.Background())
				now := v.shown()
				require.Equal(t, 5.0, now.sum("zklock_longest_hold_seconds"))
				require.Equal(t, lost, now["zklock_holds_lost_unreleased"])
				require.Zero(t, now.sum("zklock_hold_duration_seconds_count"))
				h := <-inner
				time.Sleep(time.Second)
				_ = h.Release(context.Background())
				now = v.shown()
				require.Equal(t, 1.0, now.sum("zklock_acquire_duration_seconds_count"))
				require.Equal(t, 1.0, now.sum("zklock_hold_duration_seconds_count"))
				require.Equal(t, 12.0, now.sum("zklock_hold_duration_seconds_sum"))
				require.Equal(t, lost, now.sum("zklock_holds_lost_total"))
				require.InDelta(t, overrun, now.sum("zklock_overrun_seconds_sum"), 0.01)
				require.Zero(t, now.sum("zklock_longest_hold_seconds")+now["zklock_holds_lost_unreleased"])
			})
		})
	}
}

// Another trace's function may return a context that does not derive from the one that it was
// given. Nothing fails then.
func TestVirtual_ContextOfAnother_NothingFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithTrace(&zklock.Trace{AcquireStart: func(context.Context, zklock.AcquireInfo) context.Context { return context.Background() }}))
		release(t, acquire(t, newMutex(t, s, "/job")))
		now := v.shown()
		require.Equal(t, 1.0, now.acquires("/job", "mutex", "acquired"))
		require.Equal(t, 1.0, now.sum("zklock_hold_duration_seconds_count"))
	})
}

// Two Metrics may count one Session, each for itself.
func TestVirtual_TwoMetrics_EachCounts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other := zklockprom.New()
		s := v.connect(other.Option())
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(time.Second)
		release(t, h)
		for _, m := range []*zklockprom.Metrics{v.metrics, other} {
			now := shownBy(t, m)
			require.Equal(t, 1.0, now.acquires("/job", "mutex", "acquired"))
			require.Equal(t, 1.0, now.sum("zklock_hold_duration_seconds_sum"))
			require.Zero(t, now.sum("zklock_longest"))
		}
		require.Zero(t, shownBy(t, other)["zklock_sessions"], "it watches none")
	})
}
