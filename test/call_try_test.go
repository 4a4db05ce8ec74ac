package zklock_test

// These tests attack a try: it answers, also when no server does, and tells "somebody is ahead" from "no connection".

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// While the Session is not connected, a try answers at once, and says so; the owner of a hold re-enters all the same.
func TestVirtual_TryAcquire_NotConnected_AnswersAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(40*time.Second))
		held, queued := newMutex(t, s, "/held"), newMutex(t, s, "/job")
		h := acquire(t, held)
		other := acquire(t, newMutex(t, v.connect(), "/job"))
		waits := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("waits"))
		w := startAcquireIn(t, waits, func() {}, queued)
		synctest.Wait()

		line.silent.Store(true)
		v.srv.DropConnection(s.SessionID())
		synctest.Wait()
		require.Equal(t, zklock.Suspended, s.State())
		began, sent := time.Now(), len(v.srv.History())
		for name, try := range map[string]func() (*zklock.Hold, error){
			"nobody else":                   func() (*zklock.Hold, error) { return newMutex(t, s, "/free").TryAcquire(t.Context()) },
			"somebody ahead":                func() (*zklock.Hold, error) { return queued.TryAcquire(t.Context()) },
			"its owner waits in the queue":  func() (*zklock.Hold, error) { return queued.TryAcquire(waits) },
			"an owner who is nobody so far": func() (*zklock.Hold, error) { return held.TryAcquire(waits) },
		} {
			_, err := try()
			require.ErrorIs(t, err, zklock.ErrNotConnected, name)
			require.NotErrorIs(t, err, zklock.ErrNotAcquired, name)
		}
		again, err := held.TryAcquire(h.Context())
		require.NoError(t, err, "re-entry asks nobody")
		require.Equal(t, h.Node(), again.Node())
		require.Zero(t, time.Since(began))
		require.Len(t, v.srv.History(), sent)

		line.silent.Store(false)
		time.Sleep(5 * time.Second)
		release(t, again)
		release(t, h)
		require.NoError(t, other.Release(within(t, soon)))
		release(t, w.granted(t))
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// The Session is connected, and a request of the try is not answered: it answers after two heartbeats at most. What it made goes
// later, and a call of its owner that waits for it to end is granted.
func TestVirtual_TryAcquire_NoAnswer_AnswersAfterTwoHeartbeats(t *testing.T) {
	for _, op := range []zktest.Op{zktest.Create, zktest.GetChildren, zktest.Delete} {
		for _, another := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect() // T = 10 s: a heartbeat is a second
				m := newMutex(t, s, "/job")
				other := acquire(t, newMutex(t, v.connect(), "/job"))
				owner := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("one"))
				held := v.srv.Inject(zktest.Before(op).Session(s.SessionID()).Hold().Once().Optional())
				began, tried := time.Now(), make(chan error, 1)
				go func() { _, err := m.TryAcquire(owner); tried <- err }()
				synctest.Wait()
				var w *waiting
				if another {
					w = startAcquireIn(t, owner, func() {}, m)
				}
				err := <-tried
				if op == zktest.Delete { // the list was answered
					require.ErrorIs(t, err, zklock.ErrNotAcquired)
				} else {
					require.ErrorIs(t, err, zklock.ErrNotConnected, "%v", op)
					require.NotErrorIs(t, err, zklock.ErrNotAcquired, "%v", op)
					require.ErrorContains(t, err, "no answer yet, after 2s")
				}
				require.LessOrEqual(t, time.Since(began), 2*time.Second, "%v", op)
				held.Release()
				time.Sleep(5 * time.Second)
				release(t, other)
				if another {
					release(t, w.granted(t))
				}
				time.Sleep(5 * time.Second)
				require.Empty(t, v.srv.Children("/job"), "I4: %v", op)
			})
		}
	}
}

// A try through a Session that is closed says that: no later try helps.
func TestTryAcquire_Closed(t *testing.T) {
	s := connect(t, target(t))
	m := newMutex(t, s, "/job")
	require.NoError(t, s.Close())
	_, err := m.TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrClosed)
	require.NotErrorIs(t, err, zklock.ErrNotConnected)
}

// I2: a try ends for want of an answer, and its node is made all the same when the server goes on. The next try does not take it
// for somebody.
func TestVirtual_Try_AfterATryWithoutAnAnswer_IsNotBehindItself(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(latency)
			m := newMutex(t, v.connect(), "/job")
			release(t, acquire(t, m))
			v.srv.Freeze()
			time.AfterFunc(2200*time.Millisecond, v.srv.Thaw)
			_, err := m.TryAcquire(context.Background())
			require.ErrorIs(t, err, zklock.ErrNotConnected)
			time.Sleep(100 * time.Millisecond)
			h, err := m.TryAcquire(context.Background())
			require.NoError(t, err, "latency %v", latency)
			release(t, h)
			time.Sleep(5 * time.Second)
			require.Empty(t, v.srv.Children("/job"), "I4")
		})
	}
}
