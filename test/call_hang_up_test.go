package zklock_test

// These tests have servers close the connection at one kind of request, as servers without that
// request do. The caller gets an error that names the request, and an outage is not mistaken for
// that.

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

const hangsUp = "zklock: the server closes the connection at each request of one kind; is it ZooKeeper 3.5 or later?"

// R112, I4, I6: after the server has closed three connections at one kind of request that ZooKeeper
// has had since 3.5, the call returns an error that names it.
func TestVirtual_HangUpAtOneKind_CallerHasTheError(t *testing.T) {
	for name, tt := range map[string]struct {
		fault   zktest.Fault
		request string // as the error names it
		enter   func(t *testing.T, s *zklock.Session) error
	}{
		"create2": {zktest.Before(zktest.Create).Path("/job/*"), "create2", func(t *testing.T, s *zklock.Session) error {
			_, err := newMutex(t, s, "/job").Acquire(within(t, time.Minute))
			return err
		}},
		"create2 of a try": {zktest.Before(zktest.Create).Path("/job/*"), "create2", func(t *testing.T, s *zklock.Session) error {
			_, err := newMutex(t, s, "/job").TryAcquire(within(t, time.Minute))
			return err
		}},
		"create container": {zktest.Before(zktest.Create).Path("/new"), "createContainer", func(t *testing.T, s *zklock.Session) error {
			_, err := newMutex(t, s, "/new", zklock.WithContainer()).Acquire(within(t, time.Minute))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				var log warnings
				s := v.connect(lines(&log, slog.LevelWarn), zklock.WithSessionTimeout(30*time.Second))
				closes := v.srv.Inject(tt.fault.Session(s.Stats().SessionID).Close())
				both := v.srv.Inject(zktest.Before(zktest.Multi).Path("/new/*").Close().Optional())
				start := time.Now()
				err := tt.enter(t, s)
				require.ErrorIs(t, err, zk.ErrConnectionClosed)
				require.ErrorContains(t, err, tt.request)
				require.ErrorContains(t, err, "ZooKeeper 3.5 or later")
				require.False(t, zklock.IsFinal(err), "it may be a proxy")
				require.Less(t, time.Since(start), 10*time.Second)
				require.Equal(t, 3, closes.Fired())
				said := log.of(hangsUp)
				require.Len(t, said, 1, "%q", said)
				require.Contains(t, said[0], "request="+tt.request)
				closes.Remove()
				both.Remove()
				time.Sleep(20 * time.Second)
				require.Empty(t, v.srv.Children("/job"), "I4")
				release(t, acquire(t, newMutex(t, s, "/job")))
			})
		})
	}
}

// R112: the same from servers that give another session at each reconnect, as old ClickHouse
// Keepers do.
func TestVirtual_HangUpAtOneKind_InEachSession_CallerHasTheError(t *testing.T) {
	for name, tt := range map[string]struct {
		fault   zktest.Fault
		request string
		lock    func(t *testing.T, s *zklock.Session) zklock.Lock
	}{
		"create2": {zktest.Before(zktest.Create).Path("/job/*"), "create2", func(t *testing.T, s *zklock.Session) zklock.Lock {
			return newMutex(t, s, "/job")
		}},
		"create container": {zktest.Before(zktest.Create).Path("/new"), "createContainer", func(t *testing.T, s *zklock.Session) zklock.Lock {
			return newMutex(t, s, "/new", zklock.WithContainer())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				s := v.connect(zklock.WithDialer(forgetful(v.net.Dial)), zklock.WithSessionTimeout(30*time.Second))
				closes := v.srv.Inject(tt.fault.Close())
				both := v.srv.Inject(zktest.Before(zktest.Multi).Path("/new/*").Close().Optional())
				for _, enter := range []func(context.Context) (*zklock.Hold, error){tt.lock(t, s).Acquire, tt.lock(t, s).TryAcquire} {
					time.Sleep(10 * time.Second) // the Session is connected again: without a connection, a try ends at once
					start := time.Now()
					_, err := enter(within(t, time.Minute))
					require.ErrorContains(t, err, tt.request)
					require.ErrorContains(t, err, "ZooKeeper 3.5 or later")
					require.Less(t, time.Since(start), 10*time.Second)
				}
				closes.Remove()
				both.Remove()
				h, err := tt.lock(t, s).Acquire(within(t, 2*time.Minute)) // behind the nodes of the first sessions
				require.NoError(t, err)
				release(t, h)
			})
		})
	}
}

// R112: many calls of a Session share its connection, and each ends with the error.
func TestVirtual_HangUpAtOneKind_EachCallerHasTheError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Session(s.Stats().SessionID).Close())
		ends := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := newMutex(t, s, "/job").Acquire(within(t, time.Minute))
				ends <- err
			}()
		}
		start := time.Now()
		for range 20 {
			require.ErrorContains(t, <-ends, "create2")
		}
		require.Less(t, time.Since(start), time.Minute)
	})
}

// R112: a hang-up counts only until the next response to such a request, or until its node is
// found.
func TestVirtual_HangUps_SuccessInBetween_CallsAreGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		m := newMutex(t, s, "/job")
		for range 4 {
			closes := v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Close().Times(2))
			release(t, acquire(t, m))
			require.Equal(t, 2, closes.Fired())
			v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Close().Times(2))
			lost := v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").DropReply().Close().Once())
			release(t, acquire(t, m))
			require.Equal(t, 1, lost.Fired())
		}
	})
}

// R112, I6: all servers know these requests. A connection that they close at one is an outage,
// however often: the calls keep trying.
func TestVirtual_HangUps_AtKnownRequests_AreOutages(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect(zklock.WithSessionTimeout(30 * time.Second))
		sem, err := zklock.NewSemaphore(s, "/sem", 2)
		require.NoError(t, err)
		for _, op := range []zktest.Op{zktest.Multi, zktest.GetChildren} {
			closes := v.srv.Inject(zktest.Before(op).Close().Times(5))
			h, err := sem.Acquire(within(t, time.Minute), 1)
			require.NoError(t, err, "%v", op)
			require.Equal(t, 5, closes.Fired(), "%v", op)
			release(t, h)
		}
	})
}

// R112, I6: servers that are away, or that close each connection before the handshake ends, are an
// outage: a waiter keeps waiting.
func TestVirtual_Outages_AreNoHangUps(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect(zklock.WithSessionTimeout(30 * time.Second))
		h := acquire(t, newMutex(t, v.connect(zklock.WithSessionTimeout(30*time.Second)), "/job"))
		w := v.queueUp(newMutex(t, s, "/job"))
		for range 5 {
			v.srv.Stop()
			synctest.Wait()
			time.Sleep(time.Second)
			require.NoError(t, v.srv.Start())
			closes := v.srv.Inject(zktest.Before(zktest.Connect).Close().Times(4))
			time.Sleep(20 * time.Second)
			require.Equal(t, 4, closes.Fired())
		}
		v.srv.Inject(zktest.Before(zktest.Connect).Close().Times(8))
		require.True(t, v.srv.DropConnection(s.Stats().SessionID))
		h2, err := newMutex(t, s, "/other").Acquire(within(t, time.Minute))
		require.NoError(t, err)
		release(t, h2)
		release(t, h)
		release(t, w.granted(t))
	})
}

// R112: at the third connection that ends at a create, the server has executed it. The call
// continues with that node, and queues again when the session ends.
func TestVirtual_HangUps_ThirdIsExecuted_CallQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		held := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		at := func(f zktest.Fault) zktest.Fault { return f.Path("/job/*").Session(s.Stats().SessionID) }
		v.srv.Inject(at(zktest.Before(zktest.Create)).Close().Times(2))
		v.srv.Inject(at(zktest.After(zktest.Create)).DropReply().Close().Once())
		list := zktest.Before(zktest.GetChildren).Path("/job").Session(s.Stats().SessionID)
		found := v.srv.Inject(at(zktest.After(zktest.Exists)).Once().Call(func() { v.srv.Inject(list.Expire().Once()) }))
		w := v.queueUp(newMutex(t, s, "/job"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, found.Fired())
		release(t, held)
		release(t, w.granted2(t, time.Minute))
	})
}
