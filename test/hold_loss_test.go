package zklock_test

// These tests end a lock under its holder: the holder is notified by its deadline, before the next
// grant (I5).

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/zktest"
)

// F8, I5: the session expires while the client is connected. A caller that waits for the context's
// end, or for Lost, is notified at once, without another check.
func TestVirtual_SessionExpires_IsNotifiedAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(5 * time.Second)
		require.True(t, v.srv.ExpireSession(s.Stats().SessionID))
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

// F15, I5, R41: the lease of a hold ended, and the servers are reachable again long before they
// would expire the session. The Session ends it: its node blocks no client, and no client attaches
// to it again.
func TestVirtual_LeaseEnds_SessionIsEndedAtTheServers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(30*time.Second))
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		time.Sleep(20 * time.Second)
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		old := s.Stats().SessionID
		line.silent.Store(true)
		<-h.Lost()
		_, there := v.srv.Stat(h.Node())
		require.True(t, there, "told before the servers end the session")
		line.silent.Store(false)
		healed := time.Now()
		h2 := w.granted2(t, time.Minute)
		require.Less(t, time.Since(healed), 5*time.Second, "the node of the session that was given up keeps the lock")
		release(t, h2)
		release(t, acquire(t, m))
		require.NotEqual(t, old, s.Stats().SessionID, "Lost is final")
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// F12, F13, R41: the server responds to pings and reads, and no quorum operation succeeds. The hold
// is lost, and the Session leaves this connection: as soon as there is a quorum again, the lock is
// available.
func TestVirtual_NoQuorum_IsLostAndLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		time.Sleep(20 * time.Second)
		deposed := v.srv.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Fail(zktest.OperationTimeout))
		lostWithin(t, h, 10*time.Second)
		deposed.Remove()
		start := time.Now()
		release(t, acquire(t, m))
		require.Less(t, time.Since(start), 5*time.Second)
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
}

// I5, I7: while a heartbeat has no response, no other is sent. Responses arrive in order, so the
// missing one blocks every later one.
func TestVirtual_HeartbeatNotAnswered_IsTheOnlyOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect(zklock.WithSessionTimeout(30 * time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		beat := v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Hold().Once())
		require.NoError(t, beat.Wait(within(t, soon)))
		v.srv.ResetRequests()
		time.Sleep(5 * time.Second) // one is due after 3 s, and we leave after 6 s
		require.Zero(t, v.srv.Requests().Total(zktest.Multi))
		beat.Release()
		time.Sleep(10 * time.Second)
		require.Positive(t, v.srv.Requests().Total(zktest.Multi))
		release(t, h)
	})
}

// F24, R56: the holder's node is deleted. A holder that never waited has no watch on it: the
// heartbeat detects the deletion.
func TestVirtual_NodeDeleted_TheHeartbeatTells(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		h, other := acquire(t, m), acquire(t, newMutex(t, s, "/other"))
		time.Sleep(20 * time.Second)
		require.NoError(t, v.srv.Delete(h.Node()))
		lostWithin(t, h, 1100*time.Millisecond) // h is a tenth of 10 s
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

// F15, F16, R36, R37, I5: the server stops responding. The holder is notified by the deadline that
// it could see, before the servers can grant the lock to another client. Lost is final; then the
// old session is ended and everything works again.
func TestHold_ServerSilent_IsLostByItsDeadline(t *testing.T) {
	t.Parallel()
	for _, mode := range []zklock.LeaseMode{zklock.QuorumLease(time.Second), zklock.SingleServerLease()} {
		t.Run(strings.Fields(mode.String())[0], func(t *testing.T) {
			t.Parallel()
			server := startOwn(t, serverConfig{})
			srv := server.Addr()
			const timeout = 4 * time.Second
			s := connect(t, srv, zklock.WithSessionTimeout(timeout), zklock.WithLease(mode))
			changes := s.Changes(within(t, 2*soon))
			m := newMutex(t, s, "/job")
			h := acquire(t, m)
			old := s.Stats().SessionID
			room := mode.Margin(timeout)
			eventually(t, "the lease has room", func() bool { return time.Until(h.Deadline()) > room })

			require.NoError(t, server.Pause())
			silent := time.Now()
			lostWithin(t, h, soon)
			// The time of the notification does not count, because a busy machine delays it: Err
			// and Context check the clock themselves.
			require.LessOrEqual(t, h.Deadline().Sub(silent), timeout, "I5: lost within T of the last contact")
			require.Error(t, h.Err())
			require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrLost)
			require.NoError(t, server.Resume())

			again := acquire(t, m)
			require.NotEqual(t, old, s.Stats().SessionID, "Lost is final for that ZooKeeper session")
			require.Greater(t, again.Token(), h.Token())
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			release(t, again)
			lost := 0
			for c := range changes {
				if c.State == zklock.StateLost {
					lost++
					require.Equal(t, old, c.SessionID)
				}
				if c.State == zklock.StateConnected {
					break
				}
				require.False(t, lost > 0 && c.State == zklock.StateReconnected, "no way back from Lost")
			}
			require.Equal(t, 1, lost, "R40")
		})
	}
}

// F15, I5: the client is cut off. It is notified before its session can expire, and the next grant
// follows.
func TestVirtual_ClientCutOff_IsNotifiedBeforeTheNextGrant(t *testing.T) {
	for seed := range uint64(20) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			line := &line{dial: v.net.Dial}
			cutOff, s2 := v.connect(zklock.WithDialer(line.Dial)), v.connect()
			m1, m2 := newMutex(t, cutOff, "/job"), newMutex(t, s2, "/job")
			h := acquire(t, m1)
			time.Sleep(time.Duration(rnd.Int64N(int64(30 * time.Second))))
			w := v.queueUp(m2)
			deadline := h.Deadline()
			line.silent.Store(true)
			var told time.Time
			go func() { <-h.Lost(); told = time.Now() }()
			h2 := w.granted2(t, time.Minute)
			granted := time.Now()
			synctest.Wait()
			require.False(t, told.IsZero(), "seed %d: the holder was not told before the next grant", seed)
			require.True(t, told.Before(granted), "seed %d: told %v after the grant", seed, told.Sub(granted))
			require.False(t, told.Before(deadline.Add(-time.Second)), "seed %d", seed)
			require.Greater(t, h2.Token(), h.Token())
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			line.silent.Store(false)
			release(t, h2)
		})
	}
}

// F39: an error code in a ping's response is a loss.
func TestVirtual_PingRefused_IsLost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		v.srv.Inject(zktest.Before(zktest.Ping).Session(s.Stats().SessionID).Fail(zktest.SessionExpired).Once())
		time.Sleep(10 * time.Second)
		require.True(t, isLost(h))
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		again := acquire(t, newMutex(t, s, "/job"))
		release(t, again)
	})
}

// I5: a log handler that blocks delays no other call, not even Close.
func TestVirtual_BlockedLogger_DoesNotDelayTheLoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		blocked := make(chan struct{})
		s, err := zklock.Connect(hook.With(context.Background(), hook.Session{SuspendedTime: awake}), v.srv.Addr(), zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(10*time.Second),
			zklock.WithLogger(slog.New(slog.NewTextHandler(blockingWriter{blocked}, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		require.NoError(t, err)
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		deadline := h.Deadline()
		line.silent.Store(true)
		<-h.Lost()
		require.LessOrEqual(t, time.Since(deadline), 2*time.Second)
		start := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(start), 5*time.Second)
		close(blocked)
	})
}

// I5: Err and Context().Err agree at every moment of a loss, for every handle.
func TestVirtual_ManyHandles_ContextAndErrAgree(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		handles := []*zklock.Hold{h}
		for range 2000 {
			again, err := m.Acquire(reentering(h))
			require.NoError(t, err)
			handles = append(handles, again)
		}
		var looking sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			looking.Go(func() {
				<-start
				for _, h := range handles {
					if h.Err() != nil && h.Context().Err() == nil {
						t.Error("I5: Err knows of the loss and the context does not")
						return
					}
				}
			})
		}
		close(start)
		v.srv.ExpireSession(s.Stats().SessionID)
		<-h.Lost()
		looking.Wait()
		for _, h := range handles {
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		}
	})
}

// F24: the holder's node is deleted. The holder is notified, and Release reports it (R4).
func TestHold_NodeDeleted_IsLost(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	m := newMutex(t, s, p)
	h, kept := acquire(t, m), acquire(t, newMutex(t, s, p+"-other"))
	require.NoError(t, a.Delete(h.Node(), -1))
	lostWithin(t, h, soon)
	require.ErrorIs(t, h.Err(), zklock.ErrLost)
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrLost)
	require.False(t, m.Held())
	_, err := m.Acquire(zklock.WithOwner(within(t, soon), h.Owner()))
	require.ErrorIs(t, err, zklock.ErrLost, "a lost hold is never re-entered")
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	require.NoError(t, h.Release(within(t, soon)))
	require.NoError(t, kept.Err(), "a hold of the same session on another lock stands")
	release(t, kept)

	again, err := m.Acquire(zklock.WithOwner(within(t, soon), h.Owner()))
	require.NoError(t, err, "after its release the owner starts afresh")
	release(t, again)
}

// F8, R40, R41, R57: the session expires during a hold. Lost is reported once; afterwards
// everything works again.
func TestHold_SessionExpires_IsLost(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	changes := s.Changes(within(t, 2*soon))
	m := newMutex(t, s, p)
	h := acquire(t, m)
	old := s.Stats().SessionID
	expire(t, srv, s)
	lostWithin(t, h, soon)
	require.ErrorIs(t, h.Err(), zklock.ErrLost)
	again := acquire(t, m)
	require.Greater(t, again.Token(), h.Token())
	require.NotEqual(t, old, s.Stats().SessionID)
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	require.Len(t, children(t, a, p), 1, "the release of a lost hold touches nobody else's node (F9)")
	release(t, again)

	var states []zklock.State
	for c := range changes {
		states = append(states, c.State)
		if c.State == zklock.StateConnected {
			break
		}
		if c.State == zklock.StateLost {
			require.Equal(t, old, c.SessionID)
		}
	}
	require.Equal(t, []zklock.State{zklock.StateSuspended, zklock.StateLost, zklock.StateConnected}, states)
}

// R64: after a loss the owner releases its handle, twice to be sure, and is in the queue again at
// once.
func TestVirtual_AfterALoss_TheOwnerQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		ctx := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner(""))
		last := int64(0)
		for range 5 {
			h, err := m.Acquire(ctx)
			require.NoError(t, err)
			require.Greater(t, h.Token(), last)
			last = h.Token()
			require.True(t, v.srv.ExpireSession(s.Stats().SessionID))
			<-h.Lost()
			_, err = m.Acquire(ctx)
			require.ErrorIs(t, err, zklock.ErrLost, "not before the lost hold is given back")
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			require.NoError(t, h.Release(within(t, soon)), "a second release does nothing")
		}
	})
}

// R111: a leader also checks the owner of the session for pings. The hold remains valid, as the
// session does: the connection ends, and the next one takes the session back.
func TestVirtual_PingReportsThatTheSessionMoved_HoldRemains(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		moved := v.srv.Inject(zktest.Before(zktest.Ping).Session(s.Stats().SessionID).Fail(zktest.SessionMoved).Once())
		id := s.Stats().SessionID
		time.Sleep(time.Minute) // virtual: many pings
		require.Equal(t, 1, moved.Fired())
		require.NoError(t, h.Err())
		require.Equal(t, id, s.Stats().SessionID)
		release(t, h)
	})
}
