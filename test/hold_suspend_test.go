package zklock_test

// These tests suspend the machine or pause the process: the first check afterwards reports the true
// state (I5).

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/zktest"
)

// F18, F41: the process was paused, and the server's response is waiting to be read. The server was
// not unresponsive.
func TestVirtual_PausedProcess_DoesNotLeaveItsServer(t *testing.T) {
	var asleep suspension
	inTheDarkHooked(t, asleep.hooks(), 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
		time.Sleep(time.Minute)
		held := d.ens.Inject(zktest.After(zktest.Multi).Session(d.s.Stats().SessionID).Hold().Once())
		require.NoError(t, held.Wait(within(t, soon)))
		time.Sleep(time.Second)
		asleep.Add(int64(8 * time.Second))
		require.NoError(t, d.h.Err())
		time.Sleep(270 * time.Millisecond) // the Session has just looked: by its clock it was 9 s
		held.Release()
		time.Sleep(5 * time.Second)
		require.Equal(t, zklock.StateConnected, d.s.Stats().State)
		release(t, d.h)
	})
}

// F21: the machine was suspended past the end of the lease. The holder sees the loss at its first
// check, whatever timers have run and whatever response is in the socket.
func TestVirtual_Suspend_IsLostAtTheFirstCheck(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep suspension
		s := v.hooked(asleep.hooks())
		m := newMutex(t, s, "/job")
		h, short := acquire(t, m), acquire(t, newMutex(t, s, "/other"))
		time.Sleep(30 * time.Second)
		asleep.Add(int64(time.Second))
		require.NoError(t, h.Err(), "a nap within the lease's room")
		asleep.Add(int64(20 * time.Second))
		require.ErrorIs(t, h.Context().Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(short.Context()), zklock.ErrLost)
		require.False(t, m.Held())
		_, err := m.Acquire(zklock.WithOwner(context.Background(), h.Owner()))
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorIs(t, short.Release(within(t, soon)), zklock.ErrLost)
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		release(t, acquire(t, m))
	})
}

// F18, I5: the process was paused past the end of the lease, and then the response to an earlier
// heartbeat arrives. It renews nothing, because the lease had ended before.
func TestVirtual_AnswerAfterTheLeasesEnd_RenewsNothing(t *testing.T) {
	for _, mode := range []zklock.LeaseMode{zklock.QuorumLease(0), zklock.SingleServerLease()} {
		t.Run(mode.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				var asleep suspension
				s := v.hooked(asleep.hooks(), zklock.WithSessionTimeout(30*time.Second), zklock.WithLease(mode))
				h := acquire(t, newMutex(t, s, "/job"))
				time.Sleep(60 * time.Second)
				beat := v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Hold().Once())
				require.NoError(t, beat.Wait(within(t, soon)))
				before := h.Deadline()
				time.Sleep(time.Second)
				asleep.Add(int64(time.Until(before) + 500*time.Millisecond)) // asleep past the end: no timer has run
				beat.Release()
				time.Sleep(10 * time.Millisecond)
				require.ErrorIs(t, h.Err(), zklock.ErrLost, "a late answer brought the hold back")
				require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			})
		})
	}
}

// F21, I5: a holder only waits for its context. It is notified a quarter of a second after a sleep
// past the end of the lease, or past the margin for a context of Ending.
func TestVirtual_Suspend_WaitingHolder_IsNotifiedSoon(t *testing.T) {
	const margin = 5 * time.Second
	for _, timeout := range []time.Duration{8 * time.Second, 30 * time.Second, 40 * time.Second} {
		for off := time.Duration(0); off < timeout/10; off += 410 * time.Millisecond {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				var asleep suspension
				h := acquire(t, newMutex(t, v.hooked(asleep.hooks(), zklock.WithSessionTimeout(timeout),
					zklock.WithLease(zklock.SingleServerLease())), "/job"))
				ending := ending(t, h, margin)
				isNotifiedAfter := func(sleep time.Duration, ctx context.Context) {
					t.Helper()
					require.False(t, isDone(ctx), "or this shows nothing")
					asleep.Add(int64(sleep)) // the Session may check the clock at this instant
					time.Sleep(251 * time.Millisecond)
					require.True(t, isDone(ctx), "T = %v", timeout)
				}
				time.Sleep(20*time.Second + off)
				if off > 0 { // the first sleeps for an hour at once, and its server is reachable
					v.net.Partition(v.srv.Addr()) // or the lease might be renewed before Ending checks it
					isNotifiedAfter(time.Until(h.Deadline())-margin, ending)
				}
				isNotifiedAfter(time.Hour, h.Context())
				v.net.Heal(v.srv.Addr())
			})
		}
	}
}

// I7: only a holder has to be notified after a sleep. A Session without a hold checks the clock
// less often, also after a hold.
func TestVirtual_IdleSession_SeldomReadsTheClock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var looks atomic.Int64
		hooks := hook.Session{SuspendedTime: func() time.Duration { looks.Add(1); return 0 }}
		m := newMutex(t, v.hooked(hooks, zklock.WithSessionTimeout(30*time.Second)), "/job")
		inAMinute := func() int64 {
			time.Sleep(time.Minute)
			before := looks.Load()
			time.Sleep(time.Minute)
			return looks.Load() - before
		}
		before := inAMinute()
		h := acquire(t, m)
		require.Greater(t, inAMinute(), 3*before, "or this shows nothing")
		release(t, h)
		require.Less(t, inAMinute(), 2*before) // the phase of the heartbeats makes a tenth of difference
	})
}

// F18, F21, I5: the first check after a pause is the Release. It reports the loss, although its
// delete succeeds.
func TestVirtual_Suspend_ReleaseReportsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep suspension
		s := v.hooked(asleep.hooks())
		h := acquire(t, newMutex(t, s, "/job"))
		asleep.Add(int64(20 * time.Second))
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// R66, F21: the machine sleeps while a Release waits. Afterwards Release sees by the session's
// clock that its time has expired.
func TestVirtual_SuspendDuringRelease_EndsSoonAfter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep suspension
		line := &line{dial: v.net.Dial}
		s := v.hooked(asleep.hooks(), zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		line.silent.Store(true)
		require.Greater(t, time.Until(h.Deadline()), 15*time.Second)
		begun := time.Now()
		time.AfterFunc(time.Second, func() { asleep.Add(int64(time.Minute)) })
		err := releaseEnds(t, h, context.Background())
		require.LessOrEqual(t, time.Since(begun), time.Second+250*time.Millisecond, "I6: its timer slept with the machine")
		require.ErrorIs(t, err, zklock.ErrNotConfirmed)
		require.NotErrorIs(t, err, zklock.ErrLost)
		line.silent.Store(false)
	})
}
