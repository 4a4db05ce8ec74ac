package zklock_test

// These tests have a server respond to the reconnect of a session with another session, as
// ClickHouse Keeper and some proxies do.

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// forgetful is the connection to a server that ignores the session of each connect request.
func forgetful(dial zk.Dialer) zk.Dialer {
	return func(network, addr string, d time.Duration) (net.Conn, error) {
		c, err := dial(network, addr, d)
		if err != nil {
			return nil, err
		}
		return &forgetfulConn{Conn: c}, nil
	}
}

type forgetfulConn struct {
	net.Conn
	connected bool
}

func (c *forgetfulConn) Write(p []byte) (int, error) {
	if !c.connected {
		c.connected = true
		clear(p[20:28]) // the session, behind a length, a version, a zxid and a timeout
		clear(p[32:48]) // the password
	}
	return c.Conn.Write(p)
}

// F37: the hold and the waiter's position are lost with the session. The reason is in the error,
// and once in each line about it.
func TestVirtual_AnotherSessionIsGranted_ReasonReportsIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		traces, lossIs := lossReason()
		s := v.connect(zklock.WithDialer(forgetful(v.net.Dial)), lines(&log, slog.LevelInfo), traces)
		other := acquire(t, newMutex(t, v.connect(), "/other"))
		h, w := acquire(t, newMutex(t, s, "/job")), v.queueUp(newMutex(t, s, "/other"))
		asked := s.Stats().SessionID
		changes := s.Changes(t.Context())
		require.True(t, v.srv.DropConnection(asked))
		<-h.Lost()
		time.Sleep(time.Second)
		given := s.Stats().SessionID
		require.NotEqual(t, asked, given)
		reason := fmt.Sprintf("the servers ended the ZooKeeper session: %s did not know the session %#x that it was asked for, and gave another, %#x", v.srv.Addr(), asked, given)
		require.ErrorContains(t, h.Err(), reason)
		require.Equal(t, zklock.LossSession, <-lossIs)
		require.Equal(t, zklock.StateSuspended, (<-changes).State)
		lost := <-changes
		require.Equal(t, zklock.StateLost, lost.State)
		require.ErrorContains(t, lost.Err, reason)
		require.Equal(t, zklock.StateConnected, (<-changes).State)
		for _, line := range []string{"zklock: hold lost", "zklock: connection state"} {
			said := strings.Join(log.of(line), "\n")
			require.Equal(t, 1, strings.Count(said, reason), "%s: %s", line, said)
		}
		require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
		release(t, other)
		time.Sleep(20 * time.Second) // the waiter's first node is deleted with its session
		release(t, w.granted(t))
	})
}
