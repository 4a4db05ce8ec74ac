package zklock_test

// These tests have servers respond to heartbeats with an error: the Session tries another server,
// logs the error once, and names it as the reason of a loss.

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// heartbeatErrors are codes that do not concern the held nodes, with their text in errors.
var heartbeatErrors = map[zktest.Code]string{
	-1: "system error (-1)", -7: "operation timeout (-7)", -100: "(-100)", -118: "(-118)", -122: "code(-122)", -127: "throttled (-127)",
}

const heartbeatsFail = "zklock: heartbeats fail; unless one succeeds, the holds end with the lease"

// inEnsemble runs f with a Session that holds a lock on an ensemble of three.
func inEnsemble(t *testing.T, f func(t *testing.T, e *zktest.Ensemble, s *zklock.Session, h *zklock.Hold, log *warnings), opts ...zklock.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, log := zktest.NewNetwork(), &warnings{}
		n.SetLatency(time.Millisecond)
		e := zktest.StartEnsemble(t, 3, zktest.WithNetwork(n))
		s := connect(t, strings.Join(e.Addrs(), ","), append(opts, zklock.WithDialer(n.Dial), zklock.WithSessionTimeout(30*time.Second), lines(log, slog.LevelWarn))...)
		h := acquire(t, newMutex(t, s, "/job"))
		time.Sleep(time.Minute)
		f(t, e, s, h, log)
	})
}

// R111: from some moment on, each heartbeat over this connection gets an error. The Session leaves
// after two of them, or after the first if the session has moved, and the hold continues over the
// next connection.
func TestVirtual_HeartbeatsFail_AnotherServerIsTried(t *testing.T) {
	for code, text := range heartbeatErrors {
		inEnsemble(t, func(t *testing.T, e *zktest.Ensemble, s *zklock.Session, h *zklock.Hold, log *warnings) {
			server := s.Conn().Server()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changes := s.Changes(ctx)
			fails := e.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Fail(code))
			left := <-changes
			fails.Remove()
			require.Equal(t, zklock.StateSuspended, left.State, "%v: %v", code, left.Err)
			heartbeats := 2
			if code == zktest.SessionMoved {
				heartbeats = 1
			} else {
				require.ErrorContains(t, left.Err, text)
			}
			require.Equal(t, heartbeats, fails.Fired(), "%v", code)
			require.Equal(t, zklock.StateReconnected, (<-changes).State)
			time.Sleep(time.Minute)
			require.NoError(t, h.Err(), "%v", code)
			require.NotEqual(t, server, s.Conn().Server(), "%v", code)
			require.Len(t, log.of(heartbeatsFail), 1, "%v: %q", code, log.of(heartbeatsFail))
			release(t, h)
		})
	}
}

// R111: the heartbeats get an error on all servers. The error is logged once and is the reason of
// the loss.
func TestVirtual_HeartbeatsFail_LossNamesTheError(t *testing.T) {
	for code, text := range heartbeatErrors {
		traces, lossIs := lossReason()
		inEnsemble(t, func(t *testing.T, e *zktest.Ensemble, s *zklock.Session, h *zklock.Hold, log *warnings) {
			e.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Fail(code))
			<-h.Lost()
			require.ErrorIs(t, h.Err(), zklock.ErrLost)
			require.ErrorContains(t, h.Err(), text, "%v", code)
			require.Equal(t, zklock.LossNoQuorum, <-lossIs)
			require.Len(t, log.of(heartbeatsFail), 1, "%v: %q", code, log.of(heartbeatsFail))
			require.Contains(t, log.of(heartbeatsFail)[0], text)
			lost := log.of("zklock: hold lost")
			require.Len(t, lost, 1)
			require.Contains(t, lost[0], text)
			require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
		}, traces)
	}
}

// R111: heartbeats that fail on the only server are logged once for each run of failures.
func TestVirtual_LogOnce_HeartbeatsFail(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelWarn), zklock.WithSessionTimeout(20*time.Second))
		h := acquire(t, newMutex(t, s, "/job"))
		for round := 1; round <= 3; round++ {
			fails := v.srv.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Fail(zktest.Throttled))
			time.Sleep(9 * time.Second)
			require.Greater(t, fails.Fired(), 2, "or this shows nothing")
			fails.Remove()
			time.Sleep(20 * time.Second)
			require.NoError(t, h.Err())
			require.Len(t, log.of(heartbeatsFail), round, "%q", log.of(heartbeatsFail))
		}
		release(t, h)
	})
}
