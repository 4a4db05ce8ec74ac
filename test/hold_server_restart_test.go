package zklock_test

// These tests stop the server and start it again: with its data, later, or with an older state.

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// restartOlder replaces the server by one from an older snapshot: with smaller zxids, and without
// the sessions.
func (v *virtual) restartOlder(t *testing.T) {
	before := v.srv
	before.Close()
	time.Sleep(time.Second) // servers derive session ids from the time
	v.srv = zktest.Start(t, zktest.WithNetwork(v.net), zktest.WithAddr(before.Addr()))
	_, err := v.srv.Create("/job", nil, 0)
	require.NoError(t, err)
	require.Less(t, v.srv.Zxid(), before.Zxid())
}

// F23: the server returns from an older snapshot. It rejects clients that have seen more than it
// has, so the hold cannot be renewed: it ends at its deadline. Then a new ZooKeeper session is
// created there, and locks.
func TestVirtual_ServerRestartsOlder_LostAtTheDeadline(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithSessionTimeout(20 * time.Second))
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		old, deadline := s.Stats().SessionID, h.Deadline()
		v.restartOlder(t)
		time.Sleep(time.Until(deadline) - time.Second)
		require.NoError(t, h.Err())
		require.Empty(t, v.srv.Sessions(), "whoever has seen more is refused, or this shows nothing")
		_, err := newMutex(t, s, "/other").Acquire(within(t, 500*time.Millisecond))
		require.ErrorContains(t, err, "has older data than this client has seen")
		<-h.Lost()
		require.WithinDuration(t, deadline, time.Now(), 2*time.Millisecond)
		require.ErrorIs(t, h.Err(), zklock.ErrLost)
		next := acquire(t, m)
		require.NotEqual(t, old, s.Stats().SessionID)
		require.Less(t, next.Token(), h.Token(), "tokens begin again, as documented")
		release(t, next)
	}, zktest.WithZxid(1000))
}

// F23, I6: the same for a Session without a hold: the server responds to no client that has seen
// more. So its ZooKeeper session ends for it soon after T, and its waiter queues again.
func TestVirtual_ServerRestartsOlder_WaiterQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithSessionTimeout(20 * time.Second))
		h := acquire(t, newMutex(t, v.connect(zklock.WithSessionTimeout(20*time.Second)), "/job"))
		w := v.queueUp(newMutex(t, s, "/job"))
		idle := v.connect(zklock.WithSessionTimeout(20 * time.Second))
		before := []int64{s.Stats().SessionID, idle.Stats().SessionID}
		v.restartOlder(t)
		<-h.Lost()
		release(t, w.granted2(t, 80*time.Second))
		release(t, acquire(t, newMutex(t, idle, "/job")))
		require.NotEqual(t, before[0], s.Stats().SessionID)
		require.NotEqual(t, before[1], idle.Stats().SessionID)
		require.Len(t, v.srv.Sessions(), 3)
	}, zktest.WithZxid(1000))
}

// F22: the server is away, and returns with its data and its sessions. Through an outage that is no
// longer than the session timeout a waiter keeps its node and its position, at whatever point of
// its heartbeat the outage begins.
func TestVirtual_ServerAway_WaiterKeepsItsPlace(t *testing.T) {
	for _, timeout := range []time.Duration{6 * time.Second, 10 * time.Second, 30 * time.Second} {
		for phase := 0; phase < 12; phase += oneIn(3) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				opts := []zklock.Option{zklock.WithSessionTimeout(timeout), zklock.WithLease(zklock.SingleServerLease())}
				s := v.connect(opts...)
				h := acquire(t, newMutex(t, v.connect(opts...), "/job"))
				w := v.queueUp(newMutex(t, s, "/job"))
				id, nodes := s.Stats().SessionID, v.srv.Children("/job")
				time.Sleep(time.Minute + time.Duration(phase)*timeout/100)
				v.srv.Stop()
				time.Sleep(timeout)
				require.ErrorIs(t, h.Err(), zklock.ErrLost)
				require.NoError(t, v.srv.Start())
				next := w.granted2(t, 2*time.Second)
				require.Equal(t, id, s.Stats().SessionID)
				require.Contains(t, nodes, base(next.Node()))
				release(t, next)
			})
		}
	}
}

// F22, F51: the server is away for longer. The waiter gives its session up, although the server
// still has it and gives it the whole T again: the waiter queues again, and the rest of that
// session blocks no client.
func TestVirtual_ServerAwayForLong_WaiterQueuesAgain(t *testing.T) {
	for _, away := range []time.Duration{25 * time.Second, time.Minute, 10 * time.Minute} {
		for name, goAway := range map[string]func(v *virtual) (back func()){
			"stopped": func(v *virtual) func() {
				v.srv.Stop()
				return func() { require.NoError(v.t, v.srv.Start()) }
			},
			// A server without a quorum closes each connection, and its sessions get their whole
			// time when it has a quorum again.
			"without a quorum": func(v *virtual) func() {
				v.srv.Stop()
				ln, err := v.net.Listen(v.srv.Addr())
				require.NoError(v.t, err)
				go func() {
					for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
						_ = c.Close()
					}
				}()
				return func() { _ = ln.Close(); require.NoError(v.t, v.srv.Start()) }
			},
		} {
			t.Run(fmt.Sprint(name, " ", away), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					s := v.connect(zklock.WithSessionTimeout(20 * time.Second))
					h := acquire(t, newMutex(t, v.connect(zklock.WithSessionTimeout(20*time.Second)), "/job"))
					w := v.queueUp(newMutex(t, s, "/job"))
					id := s.Stats().SessionID
					back := goAway(v)
					time.Sleep(away)
					require.ErrorIs(t, h.Err(), zklock.ErrLost)
					back()
					// The session that had the hold has no waiting caller: it pauses for T/3 at
					// most, and then for the client's second, before it requests its end.
					next := w.granted2(t, 20*time.Second/3+2*time.Second)
					require.NotEqual(t, id, s.Stats().SessionID)
					release(t, next)
					require.Empty(t, v.srv.Children("/job"))
				})
			})
		}
	}
}

// A Session without a hold also receives responses: after a short cut it reconnects at once,
// without asking whether its session still exists.
func TestVirtual_IdleForLong_ReconnectsAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var dials atomic.Int64
		s := v.connect(zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
			dials.Add(1)
			return v.net.Dial(network, addr, d)
		}))
		for n := range int64(3) {
			time.Sleep(time.Hour)
			require.Equal(t, n+1, dials.Load())
			v.srv.DropConnection(s.Stats().SessionID)
		}
	})
}

// F22: the server restarts with its data. Sessions live, waiters keep their positions, holds remain
// valid.
func TestServerRestart_SessionsLiveOn(t *testing.T) {
	t.Parallel()
	server := startOwn(t, serverConfig{})
	srv := server.Addr()
	// With 30 s the margin would be 12 s, in which a busy machine may not have started a server.
	s1, s2 := connect(t, srv, zklock.WithSessionTimeout(time.Minute)), connect(t, srv, zklock.WithSessionTimeout(time.Minute))
	a := admin(t, srv)
	h := acquire(t, newMutex(t, s1, "/job"))
	w := queueUp(t, a, newMutex(t, s2, "/job"), "/job")
	eventually(t, "its watches are set", func() bool { n, err := server.WatchCount(); return err == nil && n >= 2 })
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start())
	eventually(t, "both are back", func() bool {
		return s1.Stats().State == zklock.StateReconnected && s2.Stats().State == zklock.StateReconnected
	})
	require.NoError(t, h.Err())
	release(t, h)
	release(t, w.granted(t))
}
