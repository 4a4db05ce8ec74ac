package zklock_test

// These tests check which clients hold permits and which wait, at which position: errors, logs, and
// the lists of both.

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R93: the position counts only waiters, and the first in the queue is 1. Holders are the clients
// with leases. The error names the first of them, and never a waiter.
func TestVirtual_Semaphore_NotLetIn_ErrorNamesTheHolderAndThePosition(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		data := func(s string) zklock.SemaphoreOption { return zklock.WithData([]byte(s)) }
		var holds []*zklock.Hold
		for i := range 5 {
			holds = append(holds, take(t, v.permits(1, 5, data(fmt.Sprint("holds-", i)))))
		}
		var log, behind warnings
		first := v.lineUp(newSemaphore(t, v.connect(lines(&log, slog.LevelInfo)), semPath, 5, data("waits")).Permits(1))
		second := v.lineUp(newSemaphore(t, v.connect(lines(&behind, slog.LevelInfo)), semPath, 5, data("waits")).Permits(1))
		time.Sleep(90 * time.Second)
		require.Regexp(t, `position=1 holder="holds-0, session .*, and 4 more"$`, log.of("zklock: still waiting for the lock")[0])
		require.Regexp(t, `position=2 behind="waits, session `, behind.of("zklock: still waiting for the lock")[0])

		says := func(err error, place int, holder string) (e *zklock.Error) {
			t.Helper()
			require.ErrorAs(t, err, &e)
			require.Equal(t, place, e.Position)
			require.Regexp(t, holder, e.Holder)
			require.Contains(t, err.Error(), fmt.Sprintf("; position %d in the queue when it was last listed, behind %s", place, e.Predecessor))
			require.NotContains(t, err.Error(), "waits")
			return e
		}
		_, err := v.permits(1, 5).TryAcquire(t.Context())
		says(err, 3, "^$")
		second.stop()
		_, err = second.get(t)
		require.Contains(t, says(err, 2, "^$").Predecessor, semQueue+"/")
		release(t, holds[0])
		synctest.Wait()
		require.True(t, first.isGranted())
		release(t, first.granted(t))
		take(t, v.permits(1, 5))

		_, err = v.permits(2, 5).Acquire(within(t, 10*time.Second))
		require.Contains(t, says(err, 1, "^holds-1, session .*, queued since .*, and 4 more$").Predecessor, semLeases+"/")
		_, err = v.permits(1, 5).TryAcquire(t.Context())
		says(err, 1, "^$")
		v.has(5, 0, "I4")
	})
}

// A holder in the same Session is named without a request. A holder in another Session is looked up
// once, if the wait is not short.
func TestVirtual_Semaphore_WhoHolds_IsAskedForOnceIfTheWaitIsLong(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, other := v.connect(), v.connect()
		h := take(t, newSemaphore(t, s, semPath, 1).Permits(1))
		reads := func() int { return v.srv.Requests().Of(other.Stats().SessionID, zktest.GetData) }
		wait := func(s *zklock.Session, d time.Duration) error {
			_, err := newSemaphore(t, s, semPath, 1).Acquire(within(t, d), 1)
			return err
		}
		require.NotContains(t, wait(other, 400*time.Millisecond).Error(), "held by")
		require.Zero(t, reads())
		require.ErrorContains(t, wait(other, 8*time.Second), fmt.Sprintf("session %#x, queued since ", s.Stats().SessionID))
		require.Equal(t, 1, reads())
		require.ErrorContains(t, wait(s, 400*time.Millisecond), "; held by another owner in this Session")
		release(t, h)
	})
}

// R93: after the limit was lowered, a client that was granted holds, and is not listed as waiting;
// also if the first in the queue, of the same Session, waits with a lease. That one is listed once.
func TestVirtual_Semaphore_Participants_LimitLowered(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		of := func(s *zklock.Session, data string) zklock.Lock {
			return newSemaphore(t, s, semPath, 3, zklock.WithSharedLimit(semLimit), zklock.WithData([]byte(data))).Permits(1)
		}
		who := func() (spelled string) {
			holders, waiters, err := newSemaphore(t, s, semPath, 3, zklock.WithSharedLimit(semLimit)).Participants(within(t, soon))
			require.NoError(t, err)
			for _, p := range holders {
				spelled += string(p.Data)
			}
			spelled += " "
			for _, p := range waiters {
				spelled += string(p.Data)
			}
			return spelled
		}
		holds := []*zklock.Hold{take(t, of(v.connect(), "a")), take(t, of(s, "b")), take(t, of(v.connect(), "c"))}
		for _, limit := range []int{3, 1, 0} {
			v.setLimit(limit)
			require.Equal(t, "abc ", who(), "limit %d", limit)
		}
		v.setLimit(1)
		x, y := v.lineUp(of(s, "x")), v.lineUp(of(s, "y"))
		v.has(4, 2)
		require.Equal(t, "abc xy", who())
		v.setLimit(4)
		synctest.Wait()
		require.True(t, x.isGranted())
		v.setLimit(2)
		require.Equal(t, "abcx y", who())
		for _, h := range append(holds, x.granted(t)) {
			require.NoError(t, h.Err())
			release(t, h)
		}
		release(t, y.granted(t))
		require.Equal(t, " ", who())
	})
}

// Clients with different limits: the client whose limit is too small for the permits in use logs
// that once, when it has waited for half a second, and names the node. A shared limit that was
// lowered causes no warning, nor do leases that other clients create in vain.
func TestVirtual_Semaphore_DifferentNumbers_IsLoggedOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const line = "zklock: more permits are in use than this semaphore has"
		var log, shared warnings
		s := v.connect(log.option())
		take(t, v.permits(1, 4))
		few := newSemaphore(t, s, semPath, 2)
		holds := []*zklock.Hold{take(t, v.permits(1, 4))}
		try := func() {
			_, err := few.TryAcquire(t.Context(), 1)
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
		}
		try()
		require.Empty(t, log.of(line), "as many as there are")
		holds = append(holds, take(t, v.permits(2, 4)))
		try()
		w := v.lineUp(few.Permits(2))
		require.Empty(t, log.of(line), "these may have been made in vain")
		time.Sleep(time.Minute)
		said := log.of(line)
		require.Len(t, said, 1)
		require.Equal(t, "path="+semPath+" permits=2 leases=4 node="+holds[1].Checks()[1].Path, said[0])
		w.stop()
		<-w.done
		for _, h := range holds {
			release(t, h)
		}

		h := take(t, v.sharing(2, 4))
		v.setLimit(1)
		v.lineUp(newSemaphore(t, v.connect(shared.option()), semPath, 4, zklock.WithSharedLimit(semLimit)).Permits(1))
		time.Sleep(time.Minute)
		require.Empty(t, shared.of(line))
		release(t, h)

		var all []*waiting
		var inVain warnings
		var quick []zklock.Lock
		for range 6 {
			_, l := v.straightOn("/job/other", 1, 1, inVain.option())
			quick = append(quick, l)
		}
		for _, l := range quick {
			all = append(all, v.lineUp(l))
		}
		for _, w := range all {
			release(t, w.granted(t))
			time.Sleep(time.Minute)
		}
		require.Empty(t, inVain.of(line))
	})
}
