package zklock_test

// These tests attack calls whose context carries a hold of the lock but sets no owner: a call that
// waits for itself, one that re-enters all the same, and one that is rejected although the caller
// does not hold the lock.

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

// Each call with the context of a hold fails at once, gives the remedies, sends nothing and leaves
// the hold as it is.
func TestVirtual_NoOwner_EachCallFailsAtOnce(t *testing.T) {
	work := func(context.Context, *zklock.Hold) error { panic("it runs") }
	noWork := func(context.Context, *zklock.MultiHold) error { panic("it runs") }
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		w := &wire{dial: v.net.Dial}
		s := v.connect(w.dialer())
		m := newMutex(t, s, "/job")
		multi := newMulti(t, m, newMutex(t, s, "/zzz"))
		for name, call := range map[string]func(ctx context.Context) error{
			"Acquire":       func(ctx context.Context) error { _, err := m.Acquire(ctx); return err },
			"TryAcquire":    func(ctx context.Context) error { _, err := m.TryAcquire(ctx); return err },
			"Do":            func(ctx context.Context) error { return m.Do(ctx, work) },
			"TryDo":         func(ctx context.Context) error { return m.TryDo(ctx, work) },
			"another Mutex": func(ctx context.Context) error { return newMutex(t, s, "/job").Do(ctx, work) },
			"Multi.Do":      func(ctx context.Context) error { return multi.Do(ctx, noWork) },
			"Multi.TryDo":   func(ctx context.Context) error { return multi.TryDo(ctx, noWork) },
		} {
			h := acquire(t, m)
			w.reset()
			start := time.Now()
			err := call(h.Context())
			require.ErrorContains(t, err, "the call would wait for itself: give zklock.WithOwner(ctx, hold.Owner()) to re-enter the lock, or a context without the hold", name)
			require.True(t, zklock.IsFinal(err))
			require.Zero(t, time.Since(start))
			sent, _ := w.sent()
			require.Zero(t, sent, name)
			require.NoError(t, h.Err())
			require.True(t, m.OwnedBy(h.Context()))
			require.Len(t, v.srv.Children("/job"), 1, "I2")
			release(t, h)
		}
	})
}

// I1: of four goroutines that call Do with the context of an outer Do, none runs, and each gets a
// final error. If the context also sets the owner, all run at once.
func TestVirtual_NoOwner_FanOutUnderAnOuterDo_NoneRuns(t *testing.T) {
	for _, c := range []struct {
		inner func(ctx context.Context, outer *zklock.Hold) context.Context
		want  int32
	}{
		{func(ctx context.Context, _ *zklock.Hold) context.Context { return ctx }, 0},
		{func(ctx context.Context, outer *zklock.Hold) context.Context {
			return zklock.WithOwner(ctx, outer.Owner())
		}, 4},
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			m := newMutex(t, v.connect(), "/job")
			var together, failed atomic.Int32
			require.NoError(t, m.Do(t.Context(), func(ctx context.Context, outer *zklock.Hold) error {
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						err := m.Do(c.inner(ctx, outer), func(context.Context, *zklock.Hold) error {
							together.Add(1)
							time.Sleep(time.Second)
							return nil
						})
						if err != nil && zklock.IsFinal(err) {
							failed.Add(1)
						}
					})
				}
				time.Sleep(500 * time.Millisecond)
				require.Equal(t, c.want, together.Load())
				all.Wait()
				require.Equal(t, 4-c.want, failed.Load())
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

// Callers that do not hold the lock queue: after a release, and with a hold of another lock.
func TestVirtual_NoOwner_OthersQueue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m, other := newMutex(t, s, "/job"), newMutex(t, s, "/other")
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
		release(t, first)
	})
}

// A writer reads under its own write lock, also from several goroutines. A read under the read lock
// is a re-entry, and so is a write under it.
func TestVirtual_NoOwner_DowngradeIsNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		rw := newRWMutex(t, v.connect(), "/job")
		w := acquire(t, rw.WriteLock())
		_, err := rw.WriteLock().Acquire(w.Context())
		require.ErrorContains(t, err, "wait for itself")
		r, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		_, err = rw.ReadLock().Acquire(r.Context())
		require.ErrorContains(t, err, "wait for itself")
		_, err = rw.WriteLock().Acquire(r.Context())
		require.ErrorContains(t, err, "wait for itself")
		beside, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		release(t, beside)
		release(t, w)
		release(t, r)
	})
}

// The error of a call with the context of a lost hold is the loss.
func TestVirtual_NoOwner_LostHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		v.srv.ExpireSession(s.Stats().SessionID)
		lostWithin(t, h, time.Minute)
		_, err := m.Acquire(h.Context())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "wait for itself")
	})
}
