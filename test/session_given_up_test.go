package zklock_test

// These tests attack a ZooKeeper session that was given up: it is ended, or left to expire, and
// never touched.

import (
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R65, F42: the lease of a hold has ended, and the server rejects the close of its session. That
// session is no longer touched: it expires T and a tick after the network has healed, and the
// Session is in another one before.
func TestVirtual_GivenUpSession_CloseRefused_IsLeftToExpire(t *testing.T) {
	const authRequired = zktest.Code(-124)
	for name, refuse := range map[string]func(zktest.Fault) zktest.Fault{
		"an answer that says no": func(f zktest.Fault) zktest.Fault { return f.Fail(authRequired) },
		"an answer gets lost":    func(f zktest.Fault) zktest.Fault { return f.Fail(authRequired).Once() },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				line := &line{dial: v.net.Dial}
				s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(8*time.Second), zklock.WithDigest("u", "p"))
				h := acquire(t, newMutex(t, s, "/job"))
				time.Sleep(20 * time.Second)
				old := s.Stats().SessionID
				v.srv.Inject(refuse(zktest.Before(zktest.CloseSession).Session(old)))
				line.silent.Store(true)
				<-h.Lost()
				_, there := v.srv.Stat(h.Node())
				require.True(t, there, "told before the servers end the session")
				line.silent.Store(false)
				healed := time.Now()
				next, err := newMutex(t, v.connect(), "/job").Acquire(within(t, time.Minute))
				require.NoError(t, err)
				// The dial that is under way, the client's pause of a second, the try to end the
				// session, and then T and a tick.
				require.LessOrEqual(t, time.Since(healed), 3*time.Second+8*time.Second+serverTick)
				require.NotEmpty(t, s.Stats().Server)
				require.NotEqual(t, old, s.Stats().SessionID)
				release(t, next)
			})
		})
	}
}

// R65: as before, and the server closes the connection without a response, each time. After the
// first response in the next session, the Session requests the end for two more seconds.
func TestVirtual_GivenUpSession_ServersHangUp_IsLeftToExpire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(8*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		old := s.Stats().SessionID
		hangUp := v.srv.Inject(zktest.Before(zktest.CloseSession).Session(old).Close())
		line.silent.Store(true)
		<-h.Lost()
		line.silent.Store(false)
		healed := time.Now()
		next, err := newMutex(t, v.connect(), "/job").Acquire(within(t, time.Minute))
		require.NoError(t, err)
		require.LessOrEqual(t, hangUp.Fired(), 3+8)
		require.Greater(t, hangUp.Fired(), 3)
		// The dial that is under way, three tries and the next session with a second's pause before
		// each, two seconds of more requests, and then T and a tick.
		require.LessOrEqual(t, time.Since(healed), time.Second+4*time.Second+2*time.Second+8*time.Second+serverTick)
		require.NotEqual(t, old, s.Stats().SessionID)
		release(t, next)
	})
}

// R65: requests that were sent during the outage, heartbeats and pings, are in the socket of an
// abandoned connection. They must not arrive when the network heals, and touch the session.
func TestVirtual_GivenUpConnection_NothingArrivesLater(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const host = "10.9.9.9"
		var away atomic.Bool // no new connection: a server drops the rest of the old one when the new one exists
		dial := func(network, addr string, d time.Duration) (net.Conn, error) {
			if away.Load() {
				time.Sleep(d) // virtual: the dial gets no response
				return nil, os.ErrDeadlineExceeded
			}
			return v.net.DialFrom(host)(network, addr, d)
		}
		s := v.connect(zklock.WithDialer(dial), zklock.WithSessionTimeout(8*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		old := s.Stats().SessionID
		var late atomic.Int32
		v.srv.Inject(zktest.Before(zktest.Multi).Session(old).Call(func() { late.Add(1) }).Optional())
		away.Store(true)
		v.net.Partition(host)
		<-h.Lost()
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		synctest.Wait() // the holder is notified first, then the connection is closed
		late.Store(0)
		v.srv.Inject(zktest.Before(zktest.CloseSession).Session(old).Fail(zktest.Code(-124)))
		v.net.Heal(host)
		synctest.Wait() // the rest of the old connection has arrived
		away.Store(false)
		time.Sleep(20 * time.Second)
		require.Zero(t, late.Load(), "a heartbeat of the old connection came")
		require.NotEqual(t, old, s.Stats().SessionID)
	})
}

// F42, R65: the same on a real server that rejects every request of a connection without
// credentials.
func TestReal_CredentialsRequired_GivenUpSessionEnds(t *testing.T) {
	srv := requiringCredentials(t)
	const timeout = 8 * time.Second
	creds := zklock.WithDigest("ann", "secret")
	line := &line{dial: net.DialTimeout}
	s := connect(t, srv, creds, zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(timeout))
	h := acquire(t, newMutex(t, s, "/job"))
	old := s.Stats().SessionID
	line.silent.Store(true)
	lostWithin(t, h, 2*timeout)
	line.silent.Store(false)
	healed := time.Now()
	next, err := newMutex(t, connect(t, srv, creds), "/job").Acquire(within(t, time.Minute))
	require.NoError(t, err, "F42: the node of the session that was given up keeps the lock")
	t.Logf("the next holder was granted %v after the network was well", time.Since(healed).Round(time.Millisecond))
	require.Less(t, time.Since(healed), timeout+2*time.Second+soon)
	release(t, next)
	release(t, acquire(t, newMutex(t, s, "/job")))
	require.NotEqual(t, old, s.Stats().SessionID)
}
