package zklock_test

// These tests attack the context that ends before the lease: too late, too early, for the wrong
// reason, or left behind (I5, I7, F15, F18).

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

func ending(t *testing.T, h *zklock.Hold, margin time.Duration) context.Context {
	ctx, cancel := h.DeadlineContext(margin)
	t.Cleanup(cancel)
	return ctx
}

// While the lease is renewed, the context does not end, for any margin below the lease's own.
func TestVirtual_Ending_RenewedLease_DoesNotEnd(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 30 * time.Second} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect(zklock.WithSessionTimeout(timeout))
			h := acquire(t, newMutex(t, s, "/job"))
			room := zklock.QuorumLease(0).Margin(s.Stats().SessionTimeout)
			for _, margin := range []time.Duration{-time.Hour, 0, time.Millisecond, room / 2, room - time.Millisecond} {
				ctx := ending(t, h, margin)
				time.Sleep(10 * time.Minute)
				require.NoError(t, ctx.Err(), margin)
			}
		})
	}
}

// F15: if no server responds, the context ends on time, the margin before the hold, with the
// reason. If a server responds in time again, the hold continues, and the next call gets a context
// that lives.
func TestVirtual_Ending_Outage_EndsBeforeTheLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(zklock.WithSessionTimeout(30*time.Second)), "/job"))
		const margin = 8 * time.Second
		ctx := ending(t, h, margin)
		time.Sleep(time.Minute)
		v.net.Partition(v.srv.Addr())
		<-ctx.Done()
		require.LessOrEqual(t, time.Until(h.Deadline()), margin)
		require.Greater(t, time.Until(h.Deadline()), margin-time.Millisecond)
		require.ErrorIs(t, context.Cause(ctx), zklock.ErrLeaseEnding)
		require.NotErrorIs(t, context.Cause(ctx), zklock.ErrLost)
		require.ErrorContains(t, context.Cause(ctx), "8s")
		require.NoError(t, h.Err(), "the hold stands")
		require.NoError(t, h.Context().Err())
		require.ErrorIs(t, ending(t, h, margin).Err(), context.Canceled, "ended at once")

		v.net.Heal(v.srv.Addr())
		for time.Until(h.Deadline()) <= margin { // virtual: until a server has responded
			require.NoError(t, h.Err())
			time.Sleep(100 * time.Millisecond)
		}
		again := ending(t, h, margin)
		require.NoError(t, again.Err())
		require.Error(t, ctx.Err(), "what has ended stays so")
	})
}

// The context ends with the hold, and has the cause of the hold's context.
func TestVirtual_Ending_WithTheHold(t *testing.T) {
	for end, f := range map[string]struct {
		do   func(v *virtual, s *zklock.Session, h *zklock.Hold)
		want error
	}{
		"release": {func(_ *virtual, _ *zklock.Session, h *zklock.Hold) { _ = h.Release(context.Background()) }, zklock.ErrNotHeld},
		"close":   {func(_ *virtual, s *zklock.Session, _ *zklock.Hold) { _ = s.Close() }, zklock.ErrClosed},
		"loss":    {func(v *virtual, s *zklock.Session, _ *zklock.Hold) { v.srv.ExpireSession(s.Stats().SessionID) }, zklock.ErrLost},
	} {
		t.Run(end, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				h := acquire(t, newMutex(t, s, "/job"))
				ctx := ending(t, h, time.Second)
				f.do(v, s, h)
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), f.want)
				require.NotErrorIs(t, context.Cause(ctx), zklock.ErrLeaseEnding)
				after := ending(t, h, time.Second)
				require.ErrorIs(t, context.Cause(after), f.want)
				require.ErrorIs(t, context.Cause(ending(t, h, time.Hour)), f.want, "the first call comes late")
			})
		})
	}
}

// F18: after a suspend, the first check shows the end, although no timer has run.
func TestVirtual_Ending_Suspend_FirstCheck(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var slept suspension
		h := acquire(t, newMutex(t, v.hooked(slept.hooks(), zklock.WithSessionTimeout(30*time.Second)), "/job"))
		ctx := ending(t, h, 5*time.Second)
		require.NoError(t, ctx.Err())
		slept.Store(int64(time.Until(h.Deadline()) - 4*time.Second))
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), zklock.ErrLeaseEnding)
		require.NoError(t, h.Err())
	})
}

// The cancel function ends the context, and not the hold.
func TestVirtual_Ending_Cancel(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		ctx, cancel := h.DeadlineContext(time.Second)
		cancel()
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		require.NoError(t, h.Err())
		require.NoError(t, h.Context().Err())
	})
}

// The context carries the hold, and the values of the caller's context.
func TestVirtual_Ending_CarriesTheHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		type key struct{}
		m := newMutex(t, v.connect(), "/job")
		h, err := m.Acquire(context.WithValue(within(t, soon), key{}, "the caller's"))
		require.NoError(t, err)
		ctx := ending(t, h, time.Second)
		require.Equal(t, "the caller's", ctx.Value(key{}))
		require.True(t, m.OwnedBy(ctx))
		again, err := m.Acquire(zklock.WithOwner(ctx, h.Owner()))
		require.NoError(t, err)
		release(t, again)
	})
}

// A margin above the length of a renewal ends the context at once.
func TestVirtual_Ending_MarginTooLarge_EndsAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		ctx := ending(t, h, time.Hour)
		require.True(t, isDone(ctx))
		require.ErrorIs(t, context.Cause(ctx), zklock.ErrLeaseEnding)
	})
}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// I7: many calls and many holds leave no goroutine.
func TestVirtual_Ending_LeavesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		synctest.Wait()
		before := runtime.NumGoroutine()
		release(t, h)
		for range 100 {
			h := acquire(t, m)
			for i := range 10 {
				_, cancel := h.DeadlineContext(time.Duration(i%2) * time.Second) // some end by this, others with the hold
				if i < 5 {
					cancel()
				}
				_, _ = h.DeadlineContext(time.Hour)
			}
			synctest.Wait()
			atMost(t, before+3, "contexts have timers, and no goroutine")
			release(t, h)
		}
		synctest.Wait()
		atMost(t, before+3, "I7")
	})
}
