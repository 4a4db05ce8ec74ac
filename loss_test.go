package zklock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// F8, I5: the session expires while the client is connected. Who waits for the context's end, or for Lost, is told at
// once, and looks at nothing else.
func TestVirtual_SessionExpires_IsToldAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(5 * time.Second)
		require.True(t, v.srv.ExpireSession(s.SessionID()))
		for name, told := range map[string]<-chan struct{}{"Lost": h.Lost(), "Context": h.Context().Done()} {
			select {
			case <-told:
			case <-time.After(time.Second):
				t.Errorf("I5: %s does not tell of the loss", name)
			}
		}
		require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrLost)
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// F15, I5, R41: the lease ended over a hold, and the servers can be reached again long before they would end the
// session. It is ended there: its node does not keep the lock from others, and is not attached to again.
func TestVirtual_LeaseEnds_SessionIsEndedAtTheServers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		time.Sleep(20 * time.Second)
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		old := s.SessionID()
		line.silent.Store(true)
		<-h.Lost()
		_, there := v.srv.Stat(h.Path())
		require.True(t, there, "told before the servers end the session")
		line.silent.Store(false)
		healed := time.Now()
		h2 := w.granted2(t, time.Minute)
		require.Less(t, time.Since(healed), 5*time.Second, "the node of the session that was given up keeps the lock")
		release(t, h2)
		release(t, acquire(t, m))
		require.NotEqual(t, old, s.SessionID(), "Lost is final")
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// F12, F13, R41: the server answers pings and reads, and no quorum operation succeeds. The hold is lost, and the
// connection that reassures falsely is left: as soon as there is a quorum again, the lock can be had.
func TestVirtual_NoQuorum_IsLostAndLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		time.Sleep(20 * time.Second)
		deposed := v.srv.Inject(zktest.Before(zktest.Multi).Session(s.SessionID()).Fail(zktest.OperationTimeout))
		select {
		case <-h.Lost():
		case <-time.After(10 * time.Second):
			t.Fatal("I5: pings and reads kept the hold")
		}
		deposed.Remove()
		start := time.Now()
		release(t, acquire(t, m))
		require.Less(t, time.Since(start), 5*time.Second)
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// I5, I7: while a heartbeat is not answered, no other is sent. Answers come in order, so that one stops all reassurance.
func TestVirtual_HeartbeatNotAnswered_IsTheOnlyOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect(zklock.WithSessionTimeout(30 * time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		beat := v.srv.Inject(zktest.After(zktest.Multi).Session(s.SessionID()).Hold().Once())
		require.NoError(t, beat.Wait(within(t, soon)))
		v.srv.ResetRequests()
		time.Sleep(10 * time.Second)
		require.Zero(t, v.srv.Requests().Total(zktest.Multi))
		beat.Release()
		time.Sleep(10 * time.Second)
		require.Positive(t, v.srv.Requests().Total(zktest.Multi))
		release(t, h)
	})
}

// F18, I5: the process was paused past the end of the lease, and then a heartbeat's answer arrives that was under way.
// It renews nothing: the end was there before.
func TestVirtual_AnswerAfterTheLeasesEnd_RenewsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		var asleep atomic.Int64
		s := v.connect(zklock.WithSessionTimeout(30*time.Second), zklock.WithSuspendedTime(func() time.Duration { return time.Duration(asleep.Load()) }))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(60 * time.Second)
		beat := v.srv.Inject(zktest.After(zktest.Multi).Session(s.SessionID()).Hold().Once())
		require.NoError(t, beat.Wait(within(t, soon)))
		before := h.Deadline()
		time.Sleep(time.Second)
		asleep.Add(int64(time.Until(before) + 500*time.Millisecond)) // asleep past the end: no timer has run
		beat.Release()
		time.Sleep(10 * time.Millisecond)
		require.ErrorIs(t, h.Err(), zklock.ErrLost, "a late answer brought the hold back")
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// F18, F21, I5: the first look after a pause is the Release. It says lost, although its delete goes through.
func TestVirtual_Suspend_ReleaseSaysLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var asleep atomic.Int64
		s := v.connect(zklock.WithSuspendedTime(func() time.Duration { return time.Duration(asleep.Load()) }))
		h := acquire(t, newMutex(t, s, "/job"))
		asleep.Add(int64(20 * time.Second))
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// F24, R56: somebody deletes the holder's node. A holder that never waited has no watch on it: the heartbeat tells.
func TestVirtual_NodeDeleted_TheHeartbeatTells(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		h, other := acquire(t, m), acquire(t, newMutex(t, s, "/other"))
		time.Sleep(20 * time.Second)
		require.NoError(t, v.srv.Delete(h.Path()))
		select {
		case <-h.Lost():
		case <-time.After(1100 * time.Millisecond): // h is a tenth of 10 s
			t.Error("F24: not told within a heartbeat")
		}
		next := acquire(t, newMutex(t, v.connect(), "/job"))
		require.ErrorIs(t, h.Err(), zklock.ErrLost, "R56: two believe to hold")
		require.False(t, m.Held())
		release(t, next)
		time.Sleep(20 * time.Second)
		require.NoError(t, other.Err(), "the other hold's heartbeat goes on")
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		release(t, other)
	})
}

// I5: nothing is held while one waits, so the lease goes stale. It is renewed before the grant: what is granted can be
// relied on.
func TestVirtual_LongWait_LeaseIsRenewedBeforeTheGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		w := v.queueUp(newMutex(t, s, "/job"))
		time.Sleep(time.Hour)
		require.Negative(t, time.Until(s.Deadline()), "stale, or this shows nothing")
		release(t, h)
		h2 := w.granted2(t, time.Second)
		require.Greater(t, time.Until(h2.Deadline()), time.Second)
		require.NoError(t, h2.Err())
		synctest.Wait()
		release(t, h2)
	})
}

// WithEndOnSuspend, I4: the connection is lost while something is held. The hold ends at once, and as the ZooKeeper
// session lives on, its node is deleted.
func TestVirtual_EndOnSuspend_IsToldAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithEndOnSuspend())
		h := acquire(t, newMutex(t, s, "/job"))
		id := s.SessionID()
		time.Sleep(5 * time.Second)
		require.True(t, v.srv.DropConnection(id))
		synctest.Wait()
		require.True(t, isLost(h))
		time.Sleep(2 * time.Second)
		require.Equal(t, id, s.SessionID())
		require.Empty(t, v.srv.Children("/job"), "I4")
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// R43: the servers of the list go one after the other and come back. The session moves on, and with it the hold.
func TestVirtual_ServersComeAndGo_SessionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		n.SetLatency(time.Millisecond)
		ens := zktest.StartEnsemble(t, 3, zktest.WithNetwork(n), zktest.WithTick(2*time.Second))
		_, err := ens.Create("/job", nil, 0)
		require.NoError(t, err)
		s := connect(t, strings.Join(ens.Addrs(), ","), zklock.WithDialer(n.Dial), zklock.WithSessionTimeout(30*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		id := s.SessionID()
		for _, m := range ens.Members() {
			time.Sleep(20 * time.Second)
			m.Stop()
			time.Sleep(5 * time.Second)
			require.NoError(t, m.Start())
		}
		time.Sleep(20 * time.Second)
		require.Equal(t, id, s.SessionID(), "R43")
		require.NoError(t, h.Err())
		release(t, h)
	})
}

// R10: the work fails, and the release finds the lock lost. The caller hears of both, the work's error first.
func TestVirtual_Do_WorkAndReleaseFail_BothAreTold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		failed := errors.New("the work failed")
		err := newMutex(t, s, "/job").Do(within(t, soon), func(ctx context.Context) error {
			require.True(t, v.srv.ExpireSession(s.SessionID()))
			<-ctx.Done()
			return failed
		})
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, zklock.ErrLost)
		require.Regexp(t, "^the work failed", err.Error())
	})
}
