package zktest_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// The server keeps copies: a test may reuse a buffer that it passed, and modify a history that it
// got.
func TestAdmin_DataIsTheCallersOwn(t *testing.T) {
	srv := Start(t)
	buf := []byte("0")
	for i := range 3 {
		buf[0] = '0' + byte(i)
		_, err := srv.Create(fmt.Sprintf("/n%d", i), buf, 0)
		require.NoError(t, err)
	}
	require.NoError(t, srv.SetData("/n2", buf))
	buf[0] = 'x'
	for _, a := range srv.History() {
		copy(a.Data, "y")
	}
	for i := range 3 {
		data, _ := srv.Get(fmt.Sprintf("/n%d", i))
		require.Equal(t, fmt.Sprint(i), string(data))
	}
	for i, a := range srv.History()[:3] {
		require.Equal(t, fmt.Sprint(i), string(a.Data))
	}
}

func TestDump_IsBounded(t *testing.T) {
	srv := Start(t)
	for i := range 2000 {
		_, err := srv.Create(fmt.Sprintf("/n%04d", i), nil, 0)
		require.NoError(t, err)
	}
	dump := srv.Dump()
	require.Equal(t, 502, strings.Count(dump, "\n"))
	require.Contains(t, dump, "and 1504 more nodes") // with / and the three below /zookeeper, less 500
}

// The counts of sessions that ended long ago are kept as a sum, so that a server that runs for
// weeks does not grow with the number of its sessions.
func TestRequests_EndedSessionsAreSummed(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		for range 1100 {
			c := raw(t, n, srv, 10*time.Second)
			code, _, _ := call(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/"})
			require.Equal(t, wire.OK, code)
			require.True(t, srv.ExpireSession(c.Session.SessionID))
			c.Close()
		}
		counts := srv.Requests()
		require.Equal(t, 1100, counts.Total(Exists))
		require.Equal(t, 100, counts.Of(0, Exists), "of the sessions that ended first")
		require.Len(t, counts.BySession, 1001)
	})
}

// ZooKeeper accepts 60 connections of one address, and closes excess ones.
func TestMaxClientConnections(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		for _, c := range []struct {
			opts    []Option
			max     int
			limited bool
		}{{nil, 60, true}, {[]Option{WithConfig("maxClientCnxns=3")}, 3, true}, {[]Option{WithConfig("maxClientCnxns=0")}, 100, false}} {
			srv := Start(t, append(c.opts, WithNetwork(n))...)
			dial := func() *rawzk.Conn {
				nc, err := n.DialFrom("198.51.100.7")("tcp", srv.Addr(), time.Second)
				require.NoError(t, err)
				t.Cleanup(func() { nc.Close() })
				return rawzk.Wrap(nc)
			}
			var one *rawzk.Conn
			for range c.max {
				one = dial()
				require.NoError(t, one.Connect(wire.ConnectRequest{Timeout: 10_000}))
			}
			if c.limited {
				err := dial().Connect(wire.ConnectRequest{Timeout: 10_000}) // the write fails, or the read ends
				require.Error(t, err)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				raw(t, n, srv, 10*time.Second) // of another address
				one.Close()
				synctest.Wait()
				require.NoError(t, dial().Connect(wire.ConnectRequest{Timeout: 10_000}), "one has left")
			}
		}
	})
}

// A server with another jute.maxbuffer than ZooKeeper's default closes a connection at a longer
// request, and accepts one that exceeds the default.
func TestJuteMaxBuffer(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		for _, c := range []struct {
			opts []Option
			max  int
		}{{nil, 0xfffff}, {[]Option{WithConfig("jute.maxbuffer=1000")}, 1000}, {[]Option{WithConfig("jute.maxbuffer=0x400000")}, 0x400000}} {
			srv := Start(t, append(c.opts, WithNetwork(n))...)
			conn := raw(t, n, srv, 10*time.Second)
			const overhead = 8 + 4 + len("/zookeeper") + 4 + 4 // xid, op, lengths of path and data, version
			set := func(length int) (wire.Code, error) {
				reply, _, err := conn.Call(wire.OpSetData, wire.SetDataRequest{Path: "/zookeeper", Data: make([]byte, length-overhead), Version: -1})
				return reply.Header.Err, err
			}
			code, err := set(c.max)
			require.NoError(t, err)
			require.Equal(t, wire.OK, code)
			_, err = set(c.max + 1) // the write fails, or the read ends
			require.Error(t, err)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		}
	})
}

// A connection on which no session is opened is closed after 10 to 20 seconds, or after the time
// that nio.sessionlessCnxnTimeout has.
func TestConnectionWithoutSession_IsClosed(t *testing.T) {
	for _, c := range []struct {
		opts  []Option
		limit time.Duration
	}{{nil, 10 * time.Second}, {[]Option{WithConfig("zookeeper.nio.sessionlessCnxnTimeout=15000")}, 15 * time.Second}} {
		connectionWithoutSession(t, c.limit, c.opts...)
	}
}

func connectionWithoutSession(t *testing.T, limit time.Duration, opts ...Option) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, append(opts, WithNetwork(n))...)
		withSession := raw(t, n, srv, 40*time.Second)
		time.Sleep(3 * time.Second)
		nc, err := n.Dial("tcp", srv.Addr(), time.Second)
		require.NoError(t, err)
		defer nc.Close()
		begun := time.Now()
		_, err = nc.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.WithinRange(t, time.Now(), begun.Add(limit), begun.Add(2*limit))
		code, _, _ := call(t, withSession, wire.OpExists, wire.PathWatchRequest{Path: "/"})
		require.Equal(t, wire.OK, code)
	})
}
