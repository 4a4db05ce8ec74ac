package zklock_test

// These tests attack a try: it returns even if no server responds, and distinguishes "another
// client is ahead" from "no connection".

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// While the Session is not connected, a try returns at once with an error that reports it; the
// owner of a hold still re-enters.
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
		v.srv.DropConnection(s.Stats().SessionID)
		synctest.Wait()
		require.Equal(t, zklock.StateSuspended, s.Stats().State)
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
		again, err := held.TryAcquire(reentering(h))
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

// The Session is connected, and a request of the try gets no response: the try returns after two
// heartbeats at most. Its node is deleted later, and a call of its owner that waits for the try to
// end is granted.
func TestVirtual_TryAcquire_NoAnswer_AnswersAfterTwoHeartbeats(t *testing.T) {
	for _, op := range []zktest.Op{zktest.Create, zktest.GetChildren, zktest.Delete} {
		for _, another := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect() // T = 10 s: a heartbeat is a second
				m := newMutex(t, s, "/job")
				other := acquire(t, newMutex(t, v.connect(), "/job"))
				owner := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("one"))
				held := v.srv.Inject(zktest.Before(op).Session(s.Stats().SessionID).Hold().Once().Optional())
				began, tried := time.Now(), make(chan error, 1)
				go func() { _, err := m.TryAcquire(owner); tried <- err }()
				synctest.Wait()
				var w *waiting
				if another {
					w = startAcquireIn(t, owner, func() {}, m)
				}
				err := <-tried
				if op == zktest.Delete { // the list had a response
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

// A try through a closed Session reports that: no later try can succeed.
func TestTryAcquire_Closed(t *testing.T) {
	s := connect(t, target(t))
	m := newMutex(t, s, "/job")
	require.NoError(t, s.Close())
	_, err := m.TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrClosed)
	require.NotErrorIs(t, err, zklock.ErrNotConnected)
}

// I2: a try ends without a response, and its node is created when the server continues. The next
// try does not take it for another client's.
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

// I8: a try that found another client ahead creates no node the next time: it checks, and returns
// the same error. Once no client is ahead, it takes the lock.
func TestVirtual_Try_AfterOneThatFailed_WritesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		holder, tries := v.connect(), v.connect()
		writer, m := newRWMutex(t, holder, "/job").WriteLock(), newRWMutex(t, tries, "/job").ReadLock()
		h := acquire(t, writer)
		waits := v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock())
		var first, again *zklock.Error
		_, err := m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.ErrorAs(t, err, &first)
		synctest.Wait()
		v.srv.ResetRequests()
		for range 5 {
			_, err = m.TryAcquire(t.Context())
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			require.ErrorAs(t, err, &again)
			require.Equal(t, []any{first.Position, first.Predecessor, first.Holder}, []any{again.Position, again.Predecessor, again.Holder})
			require.Empty(t, again.Node, "it has none")
		}
		require.Zero(t, v.srv.Requests().Total(zktest.Create)+v.srv.Requests().Total(zktest.Delete), "%v", v.srv.Requests())

		release(t, h)
		h = waits.granted(t) // a try overtakes no waiter
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		release(t, h)
		reads := acquire(t, newRWMutex(t, holder, "/job").ReadLock())
		beside, err := m.TryAcquire(t.Context())
		require.NoError(t, err, "a reader is ahead of no reader")
		release(t, beside)
		synctest.Wait()
		v.srv.ResetRequests()
		beside, err = m.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Zero(t, v.srv.Requests().Total(zktest.Sync), "the one before found nobody")
		release(t, beside)
		release(t, reads)
	})
}

// A try that checks first and gets no response in time has ended: it creates no node later, when
// the server continues.
func TestVirtual_Try_ProbesFirst_NoAnswer_WritesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h, s := acquire(t, newMutex(t, v.connect(), "/job")), v.connect()
		m := newMutex(t, s, "/job")
		_, err := m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		held := v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Hold().Once())
		v.srv.ResetRequests()
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotConnected)
		held.Release()
		time.Sleep(time.Minute)
		require.Zero(t, v.srv.Requests().Of(s.Stats().SessionID, zktest.Create), "%v", v.srv.Requests())
		release(t, h)
	})
}

// I2: the lock root was missing when the call asked, and the response arrived after the call had
// returned: root and node are then not created.
func TestVirtual_Try_LeftBeforeItsFirstAnswer_MakesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		held := v.srv.Inject(zktest.Before(zktest.Create).Session(s.Stats().SessionID).Hold().Once())
		_, err := newMutex(t, s, "/new/job").TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotConnected)
		v.srv.ResetRequests()
		held.Release()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, v.srv.Requests().Of(s.Stats().SessionID, zktest.Create), 1, "the first one: %v", v.srv.Requests())
		require.Nil(t, v.srv.Children("/new"))
	})
}

// F4: no create precedes such a check, and still it does not show a holder that has released: a
// server that lags behind catches up first.
func TestVirtual_Try_AfterOneThatFailed_ServerLags_TakesWhatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		n.SetLatency(time.Millisecond)
		ens := zktest.StartEnsemble(t, 3, zktest.WithNetwork(n))
		_, err := ens.Create("/job", nil, 0)
		require.NoError(t, err)
		var follower *zktest.Member
		for _, m := range ens.Members() {
			if m != ens.Leader() {
				follower = m
			}
		}
		m := newMutex(t, connect(t, follower.Addr(), zklock.WithDialer(n.Dial), zklock.WithSessionTimeout(30*time.Second)), "/job")
		h := acquire(t, newMutex(t, connect(t, ens.Leader().Addr(), zklock.WithDialer(n.Dial), zklock.WithSessionTimeout(30*time.Second)), "/job"))
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)

		follower.SetLag(time.Second)
		release(t, h)
		require.NotEmpty(t, follower.Children("/job"), "it lags")
		h, err = m.TryAcquire(t.Context())
		require.NoError(t, err)
		release(t, h)
	})
}
