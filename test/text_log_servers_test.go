package zklock_test

// These tests have many calls meet rejections, losses and ends by servers, and attack how often the
// log reports them.

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// Each change of the state is logged once, in order, and an outage after three seconds and then
// rarely, however many calls wait for a server.
func TestVirtual_LogOnce_StateAndOutage(t *testing.T) {
	const state, outage = "zklock: connection state", "zklock: no server has accepted the session"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelInfo))
		id := fmt.Sprintf("session=%#x", s.SessionID())
		holds, more := v.manyHolds(s)
		stopLooking := lookAt(s, append(more, holds...)...)
		defer stopLooking()
		stopCalling := call(t, s)
		defer stopCalling()
		steps := []string{"state=Connected " + id}
		for round := range 3 {
			v.srv.Stop()
			synctest.Wait()
			time.Sleep(time.Second)
			require.NoError(t, v.srv.Start())
			time.Sleep(10 * time.Second)
			steps = append(steps, "state=Suspended "+id, "state=Reconnected "+id)
			said := log.of(state)
			require.Len(t, said, len(steps), "%d: %q", round, said)
		}
		stopLooking()
		v.srv.Stop()
		synctest.Wait()
		for range 2 {
			time.Sleep(140 * time.Second)
			require.NoError(t, v.srv.Start())
			time.Sleep(10 * time.Second)
			v.srv.Stop()
			synctest.Wait()
		}
		said := log.of(outage)
		require.Len(t, said, 6, "%q", said)
		for _, lasted := range []string{"for=3s", "for=33s", "for=2m12s"} {
			require.Equal(t, 2, having(said, lasted), "%q", said)
		}
		require.NoError(t, v.srv.Start())
		stopCalling()
		require.NoError(t, s.Close())
		said = log.of(state)
		for i, step := range steps {
			require.True(t, strings.HasPrefix(said[i], step), said[i])
		}
		require.Equal(t, 1, having(said, "state=Closed"))
		require.Equal(t, 1, having(said, "state=Lost "+id))
		for i := 1; i < len(said); i++ {
			require.NotEqual(t, strings.Fields(said[i-1])[0], strings.Fields(said[i])[0], "%q", said)
		}
	})
}

// call has ten goroutines take and release locks until stop is called.
func call(t *testing.T, s *zklock.Session) (stop func()) {
	var calls sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for i := range 10 {
		calls.Go(func() {
			for ctx.Err() == nil {
				if h, err := newMutex(t, s, fmt.Sprintf("/job/more%d", i)).Acquire(ctx); err == nil {
					time.Sleep(100 * time.Millisecond)
					_ = h.Release(ctx)
				}
			}
		})
	}
	return func() { cancel(); calls.Wait() }
}

// The Session logs once that it leaves an unresponsive server, with many holds and many waiters.
func TestVirtual_LogOnce_SilentServer(t *testing.T) {
	inTheDark(t, 3, "follower", 30*time.Second, func(t *testing.T, d *darkness) {
		var log warnings
		s := connect(t, strings.Join(d.ens.Addrs(), ","), zklock.WithDialer(d.net.Dial), zklock.WithSessionTimeout(30*time.Second), lines(&log, slog.LevelWarn))
		var holds []*zklock.Hold
		for i := range 5 {
			holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d", i))))
			d.queueUp(s)
		}
		var left []string
		for range 3 {
			time.Sleep(15 * time.Minute)
			server := s.Conn().Server()
			left = append(left, "server="+server)
			stop := lookAt(s, holds...)
			d.net.Partition(server)
			time.Sleep(30 * time.Second)
			d.net.Heal(server)
			stop()
			said := log.of("zklock: the server is silent; trying another")
			require.Len(t, said, len(left), "%q", said)
			require.Contains(t, said[len(said)-1], left[len(left)-1]+" ")
		}
	})
}

// For each session that was given up, the log has each server that was asked to end it, and once
// that no server has confirmed the end.
func TestVirtual_LogOnce_GivenUpSession(t *testing.T) {
	const asked, unended = "zklock: asked a server to end the given-up session", "zklock: no server has said that it ended the given-up session; unless one does, it expires"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		way := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(way.Dial), zklock.WithSessionTimeout(8*time.Second), lines(&log, slog.LevelInfo))
		for round := 1; round <= 2; round++ {
			holds := []*zklock.Hold{acquire(t, newMutex(t, s, "/job"))}
			for i := range 10 {
				holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d/%d", round, i))))
			}
			stop := lookAt(s, holds...)
			old := fmt.Sprintf("session=%#x", s.SessionID())
			time.Sleep(20 * time.Second) // a new session has a longer lease
			hangUp := v.srv.Inject(zktest.Before(zktest.CloseSession).Session(s.SessionID()).Close())
			way.silent.Store(true)
			<-holds[0].Lost()
			way.silent.Store(false)
			time.Sleep(time.Minute)
			stop()
			require.Equal(t, 1, having(log.of(unended), old), "%q", log.of(unended))
			require.Len(t, log.of(unended), round)
			require.Equal(t, hangUp.Fired(), having(log.of(asked), old), "%q", log.of(asked))
			for _, h := range holds {
				require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
			}
		}

		// Close asks, too, and reports that there was no response.
		v.srv.Inject(zktest.Before(zktest.CloseSession).Session(s.SessionID()).Close())
		old, before := fmt.Sprintf("session=%#x", s.SessionID()), len(log.of(asked))
		v.srv.Stop()
		synctest.Wait()
		require.NoError(t, v.srv.Start())
		require.NoError(t, s.Close())
		said := log.of(asked)[before:]
		require.Len(t, said, 1, "%q", said)
		require.Contains(t, said[0], old+" ")
		require.Contains(t, said[0], `outcome="no answer"`)
	})
}

// A heartbeat that the servers reject is logged once until they accept one again, with many holds,
// and many heartbeats before the lease ends.
func TestVirtual_LogOnce_HeartbeatRefused(t *testing.T) {
	const line = "zklock: the servers reject the heartbeat; the holds end with the lease"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelError), zklock.WithSessionTimeout(20*time.Second))
		var holds []*zklock.Hold
		for i := range 20 {
			holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d", i))))
		}
		defer lookAt(s, holds...)()
		for round := 1; round <= 3; round++ {
			refused := v.srv.Inject(zktest.Before(zktest.Multi).Session(s.SessionID()).Fail(quotaExceeded))
			time.Sleep(9 * time.Second)
			require.Greater(t, refused.Fired(), 1, "or this shows nothing")
			refused.Remove()
			time.Sleep(20 * time.Second)
			require.NoError(t, holds[0].Err())
			require.Len(t, log.of(line), round, "%q", log.of(line))
		}
	})
}

// R117: rejected credentials are logged once, until a server has served the Session again.
func TestVirtual_LogOnce_CredentialsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(zklock.WithDigest("ann", "1"), zklock.WithDigest("ben", "2"), lines(&log, slog.LevelError))
		var holds []*zklock.Hold
		for i := range 20 {
			holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d", i))))
		}
		defer lookAt(s, holds...)()
		refused := v.srv.Inject(zktest.Before(authOp).Fail(zktest.Code(-115)))
		v.srv.Stop()
		require.NoError(t, v.srv.Start())
		time.Sleep(time.Minute)
		require.Equal(t, zklock.Lost, s.State())
		require.Len(t, log.of("zklock: the server refused the credentials"), 1, "and not at each try")
		refused.Remove()
		release(t, acquire(t, newMutex(t, s, "/job")))
		v.srv.Inject(zktest.Before(authOp).Fail(zktest.Code(-115)))
		require.True(t, v.srv.DropConnection(s.SessionID()))
		time.Sleep(time.Minute)
		require.Len(t, log.of("zklock: the server refused the credentials"), 2, "once more after a server has served it")
	})
}

// A request at which servers close the connection is logged once, although it is sent three times,
// and once more for the next request.
func TestVirtual_LogOnce_HungUpOn(t *testing.T) {
	const line = "zklock: the server closes the connection before it has answered a long request; is it longer than the server's jute.maxbuffer?"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		way, log := &narrow{dial: v.net.Dial, most: 30_000}, &warnings{}
		s := v.connect(zklock.WithDialer(way.Dial), lines(log, slog.LevelWarn))
		for i := range 3 {
			long := zklock.WithData(bytes.Repeat([]byte("x"), 40_000+i))
			_, err := newMutex(t, s, "/job", long).Acquire(t.Context())
			require.ErrorIs(t, err, zk.ErrConnectionClosed)
			said := log.of(line)
			require.Len(t, said, i+1, "%q", said)
		}
	})
}
