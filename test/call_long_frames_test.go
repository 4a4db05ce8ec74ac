package zklock_test

// These tests attack frames that are too long for their reader: a list for us, a request for the
// servers. The caller gets an error that names the cause, and the Session does not reconnect again
// and again.

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	jute "github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

// I6: a list is longer than the mux reads. The caller gets the error at once.
func TestVirtual_ListTooLong_CallerHasTheError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m, e := newMutex(t, s, "/job"), newElection(t, s, "/job", "a")
		release(t, acquire(t, m))
		v.srv.Inject(zktest.Before(zktest.GetChildren).Fail(zktest.Code(jute.ReplyTooLong)))
		start := time.Now()
		_, err := m.Acquire(within(t, time.Minute))
		require.ErrorContains(t, err, "longer than zklock reads")
		require.False(t, zklock.IsFinal(err), "the queue gets shorter")
		_, err = m.Participants(within(t, time.Minute))
		require.ErrorContains(t, err, "longer than zklock reads")
		_, err = e.Leader(within(t, time.Minute))
		require.ErrorContains(t, err, "longer than zklock reads")
		require.Less(t, time.Since(start), time.Second)
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// narrow is the connection to a server whose jute.maxbuffer is smaller than some requests: it
// closes the connection at each of them.
type narrow struct {
	dial  zk.Dialer
	most  int
	dials atomic.Int64
}

func (n *narrow) Dial(network, addr string, d time.Duration) (net.Conn, error) {
	n.dials.Add(1)
	c, err := n.dial(network, addr, d)
	if err != nil {
		return nil, err
	}
	return &narrowConn{c, n}, nil
}

type narrowConn struct {
	net.Conn
	n *narrow
}

func (c *narrowConn) Write(p []byte) (int, error) {
	if len(p) > c.n.most {
		// Its reader receives an end as a server's reader does.
		_, err := c.Conn.Write(append([]byte{0x7f, 0xff, 0xff, 0xff}, bytes.Repeat([]byte{0}, 8)...))
		return len(p), err
	}
	return c.Conn.Write(p)
}

// I6: servers reject our create because of its length. The log names the likely cause, and the
// caller gets an error after three tries: of a mutex, and of a semaphore whose leases are too long
// together.
func TestVirtual_RequestTooLongForTheServers_CallerHasTheError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		way, logged := &narrow{dial: v.net.Dial, most: 30_000}, &warnings{}
		s := v.connect(zklock.WithDialer(way.Dial), logged.option())
		long := zklock.WithData(bytes.Repeat([]byte("x"), 40_000))
		sem, err := zklock.NewSemaphore(s, "/sem", 10, zklock.WithData(bytes.Repeat([]byte("x"), 4_000)))
		require.NoError(t, err)
		for name, lock := range map[string]zklock.Lock{"mutex": newMutex(t, s, "/job", long), "semaphore": sem.Permits(9)} {
			before, start := way.dials.Load(), time.Now()
			_, err := lock.Acquire(context.Background())
			require.ErrorIs(t, err, zk.ErrConnectionClosed, name)
			require.ErrorContains(t, err, "jute.maxbuffer", name)
			require.False(t, zklock.IsFinal(err), name)
			require.Less(t, time.Since(start), 10*time.Second, name)
			require.LessOrEqual(t, way.dials.Load()-before, int64(5), name)
		}
		require.Positive(t, logged.about("is it longer than the server's jute.maxbuffer?", "bytes="))
		release(t, acquire(t, newMutex(t, s, "/job")))
		require.Empty(t, v.srv.Children("/job"), "I4")
		require.Empty(t, v.srv.Children("/sem/locks"), "I4")
		require.Empty(t, v.srv.Children("/sem/leases"), "I4")
	})
}
