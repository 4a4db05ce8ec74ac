package zklock_test

// These tests attack a minimum hold after its release: no caller relies on it, so the lease does
// not apply to it. Its node is still checked, and a session that is given up is ended.

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/zktest"
)

// R116, I8: no server responds for 20 s at T = 30 s. A released minimum hold costs neither the
// ZooKeeper session nor the positions in other queues, and lasts. A hold that a caller relies on
// costs both, as the documentation of Acquire states.
func TestVirtual_MinHold_Outage_KeepsThePositions(t *testing.T) {
	const timeout = 30 * time.Second
	for _, isReleased := range []bool{true, false} {
		t.Run(fmt.Sprint("released ", isReleased), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				line := &line{dial: v.net.Dial}
				long := zklock.WithSessionTimeout(timeout)
				s := v.connect(zklock.WithDialer(line.Dial), long)
				front := acquire(t, newMutex(t, v.connect(long), "/job/a"))
				other := acquire(t, newMutex(t, s, "/job/b", zklock.WithMinHold(time.Hour)))
				if isReleased {
					release(t, other)
				}
				w := v.queueUp(newMutex(t, s, "/job/a"))
				behind := v.queueUp(newMutex(t, v.connect(long), "/job/a"))
				id := s.Stats().SessionID
				time.Sleep(10 * time.Second)
				line.silent.Store(true)
				time.Sleep(20 * time.Second)
				line.silent.Store(false)
				time.Sleep(20 * time.Second)
				release(t, front)
				time.Sleep(time.Second)
				require.Equal(t, isReleased, s.Stats().SessionID == id)
				require.Equal(t, isReleased, w.isGranted())
				require.Equal(t, !isReleased, behind.isGranted())
				_, ok := v.srv.Stat(other.Node())
				require.Equal(t, isReleased, ok)
				if !isReleased {
					require.ErrorIs(t, other.Err(), zklock.ErrLost)
				}
			})
		})
	}
}

// R116, R90: requests arrive at the servers, and no response arrives at the client, so it gives the
// session up. It ends the session, although only the node of a minimum hold depends on it.
func TestVirtual_MinHold_SessionGivenUp_IsEnded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		way := oneway.New(v.net.Dial)
		s := v.connect(zklock.WithDialer(way.Dial), lines(&log, slog.LevelWarn))
		h := acquire(t, newMutex(t, s, "/job", zklock.WithMinHold(time.Hour)))
		release(t, h)
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		time.Sleep(time.Minute)
		way.LoseAnswers()
		cut := time.Now()
		release(t, w.granted2(t, time.Hour))
		require.Less(t, w.at.Sub(cut), 3*s.Stats().SessionTimeout, "not kept alive by what the client sends")
		log.once(t, "zklock: minimum hold ended early", "node="+h.Node())
	})
}

// R116, F22: the server is away for longer than the session timeout, and then gives the session its
// whole timeout again. The client has given the session up, and ends it when the server is back:
// the node of a minimum hold does not block other clients.
func TestVirtual_MinHold_ServerAwayForLong_SessionIsEnded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		long := zklock.WithSessionTimeout(20 * time.Second)
		h := acquire(t, newMutex(t, v.connect(long), "/job", zklock.WithMinHold(time.Hour)))
		release(t, h)
		time.Sleep(time.Minute)
		v.srv.Stop()
		time.Sleep(time.Minute)
		require.NoError(t, v.srv.Start())
		time.Sleep(20*time.Second/3 + 2*time.Second) // a rest of T/3 at most, and the client's second
		_, ok := v.srv.Stat(h.Node())
		require.False(t, ok)
	})
}

// READ is taken from the node of a minimum hold. It lasts to its end, and then the node is deleted
// and a waiter of the same Session is granted.
func TestVirtual_MinHold_NodeNotReadable_LastsToTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelWarn))
		h := acquire(t, newMutex(t, s, "/job", zklock.WithMinHold(minHold)))
		granted := time.Now()
		release(t, h)
		v.srv.Inject(zktest.Before(zktest.Multi).Path(h.Node()).Fail(zktest.NoAuth).Once())
		w := v.queueUp(newMutex(t, s, "/job"))
		release(t, w.granted2(t, time.Hour))
		require.WithinDuration(t, granted.Add(minHold), w.at, time.Second)
		require.Empty(t, log.of("zklock: minimum hold ended early"))
	})
}

// Each minimum hold whose node is deleted, or whose session ends, is logged once with the reason. A
// minimum hold that lasts to its end, or is ended by Close, is not logged.
func TestVirtual_LogOnce_MinimumHoldEndedEarly(t *testing.T) {
	const message = "zklock: minimum hold ended early"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelWarn))
		var deleted, expired []*zklock.Hold
		for i := range manyOfAKind {
			path := fmt.Sprintf("/job/%d", i)
			deleted = append(deleted, acquire(t, newMutex(t, s, path+"d", zklock.WithMinHold(time.Hour))))
			expired = append(expired, acquire(t, newMutex(t, s, path+"e", zklock.WithMinHold(time.Hour))))
			release(t, deleted[i])
			release(t, expired[i])
			release(t, acquire(t, newMutex(t, s, path+"lasts", zklock.WithMinHold(time.Second))))
		}
		time.Sleep(time.Minute)
		require.Empty(t, log.of(message))
		for _, h := range deleted {
			require.NoError(t, v.srv.Delete(h.Node()))
		}
		time.Sleep(time.Minute)
		log.once(t, message, saidNodes(deleted)...)
		require.Contains(t, log.of(message)[0], "another client deleted the lock node")
		v.srv.ExpireSession(s.Stats().SessionID)
		time.Sleep(time.Minute)
		log.once(t, message, saidNodes(append(deleted, expired...))...)
		require.Contains(t, log.of(message)[manyOfAKind], "the servers ended the ZooKeeper session")
		release(t, acquire(t, newMutex(t, s, "/job/closed", zklock.WithMinHold(time.Hour))))
		require.NoError(t, s.Close())
		require.Len(t, log.of(message), 2*manyOfAKind)
		require.Empty(t, log.of("zklock: hold lost"), "they were released before")
	})
}
