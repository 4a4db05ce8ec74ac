package zklock_test

// These tests attack WithoutReentry: a call that waits for itself, one that re-enters all the same,
// and one that is rejected although the caller does not hold the lock.

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// Each call of a caller that holds the lock fails at once, says why, sends nothing and leaves the
// hold as it is.
func TestVirtual_WithoutReentry_EachCallFailsAtOnce(t *testing.T) {
	work := func(context.Context, *zklock.Hold) error { panic("it runs") }
	noWork := func(context.Context, *zklock.MultiHold) error { panic("it runs") }
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		w := &wire{dial: v.net.Dial}
		s := v.connect(w.dialer())
		m, o := newMutex(t, s, "/job", zklock.WithoutReentry()), zklock.NewOwner("a")
		multi := newMulti(t, m, newMutex(t, s, "/zzz"))
		for name, call := range map[string]func(ctx context.Context) error{
			"Acquire":       func(ctx context.Context) error { _, err := m.Acquire(ctx); return err },
			"TryAcquire":    func(ctx context.Context) error { _, err := m.TryAcquire(ctx); return err },
			"Do":            func(ctx context.Context) error { return m.Do(ctx, work) },
			"TryDo":         func(ctx context.Context) error { return m.TryDo(ctx, work) },
			"another Mutex": func(ctx context.Context) error { return newMutex(t, s, "/job", zklock.WithoutReentry()).Do(ctx, work) },
			"Multi.Do":      func(ctx context.Context) error { return multi.Do(ctx, noWork) },
			"Multi.TryDo":   func(ctx context.Context) error { return multi.TryDo(ctx, noWork) },
		} {
			for whose, ctx := range map[string]context.Context{"the hold's": t.Context(), "the owner's": zklock.WithOwner(t.Context(), o)} {
				h, err := m.Acquire(ctx)
				require.NoError(t, err)
				if whose == "the hold's" {
					ctx = h.Context()
				}
				w.reset()
				start := time.Now()
				err = call(ctx)
				require.ErrorContains(t, err, "the call would wait for itself", "%s, %s", name, whose)
				require.True(t, zklock.IsFinal(err))
				require.Zero(t, time.Since(start))
				sent, _ := w.sent()
				require.Zero(t, sent, "%s, %s", name, whose)
				require.NoError(t, h.Err())
				require.True(t, m.OwnedBy(ctx))
				require.Len(t, v.srv.Children("/job"), 1, "I2")
				release(t, h)
			}
		}
	})
}

// Eight goroutines that call Do with the context of an outer Do all run at once; WithoutReentry,
// none does.
func TestVirtual_Do_EightGoroutinesUnderAnOuterDo(t *testing.T) {
	for _, c := range []struct {
		opts []zklock.MutexOption
		want int32
	}{{nil, 8}, {[]zklock.MutexOption{zklock.WithoutReentry()}, 0}} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			m := newMutex(t, v.connect(), "/job", c.opts...)
			var together, failed atomic.Int32
			require.NoError(t, m.Do(t.Context(), func(ctx context.Context, _ *zklock.Hold) error {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						err := m.Do(ctx, func(context.Context, *zklock.Hold) error {
							together.Add(1)
							time.Sleep(time.Second)
							return nil
						})
						if err != nil {
							failed.Add(1)
						}
					})
				}
				time.Sleep(500 * time.Millisecond)
				require.Equal(t, c.want, together.Load())
				all.Wait()
				require.Equal(t, 8-c.want, failed.Load())
				return nil
			}))
		})
	}
}

func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Callers that do not hold the lock queue as before: after a release, with a hold of another lock,
// and while another call of the owner is under way, which then fails.
func TestVirtual_WithoutReentry_OthersQueue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m, other := newMutex(t, s, "/job", zklock.WithoutReentry()), newMutex(t, s, "/other", zklock.WithoutReentry())
		first := acquire(t, other)
		h, err := m.Acquire(first.Context())
		require.NoError(t, err)
		queued := v.queueUp(m)
		release(t, h)
		next := queued.granted2(t, time.Second)
		again := inBackground(func() error { _, err := m.Acquire(context.WithoutCancel(h.Context())); return err })
		synctest.Wait()
		require.Len(t, v.srv.Children("/job"), 2, "the hold in its context has ended, so it queues")
		release(t, next)
		require.NoError(t, <-again)

		o := zklock.WithOwner(t.Context(), zklock.NewOwner("a"))
		var both []<-chan error
		for range 2 {
			both = append(both, inBackground(func() error { _, err := other.Acquire(o); return err }))
		}
		synctest.Wait()
		release(t, first)
		var granted, rejected int
		for _, call := range both {
			if err := <-call; err == nil {
				granted++
			} else {
				require.ErrorContains(t, err, "wait for itself")
				rejected++
			}
		}
		require.Equal(t, []int{1, 1}, []int{granted, rejected})
	})
}

// A writer reads under its own write lock; a second read under the read lock is a re-entry.
func TestVirtual_WithoutReentry_DowngradeIsNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		rw := newRWMutex(t, v.connect(), "/job", zklock.WithoutReentry())
		w := acquire(t, rw.WriteLock())
		_, err := rw.WriteLock().Acquire(w.Context())
		require.ErrorContains(t, err, "wait for itself")
		r, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		_, err = rw.ReadLock().Acquire(r.Context())
		require.ErrorContains(t, err, "wait for itself")
		release(t, w)
		release(t, r)
	})
}

// A hold that was lost is not re-entered with the option either: the error is the loss.
func TestVirtual_WithoutReentry_LostHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithoutReentry())
		h := acquire(t, m)
		v.srv.ExpireSession(s.SessionID())
		lostWithin(t, h, time.Minute)
		_, err := m.Acquire(h.Context())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "wait for itself")
	})
}
