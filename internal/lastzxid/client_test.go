package lastzxid_test

// These tests restore the watches of a real client.

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// client is a client of zktest's server. The test decides when its connections after the first are
// made.
type client struct {
	*zk.Conn
	events chan zk.Event
	dial   chan func(net.Conn) net.Conn // what to put into the next connection
}

func start(t *testing.T, srv *zktest.Server) *client {
	c := &client{events: make(chan zk.Event, 100), dial: make(chan func(net.Conn) net.Conn, 1)}
	c.dial <- asItIs
	var err error
	c.Conn, _, err = zk.Connect([]string{srv.Addr()}, 30*time.Second, zk.WithLogger(nullLogger{}),
		zk.WithEventCallback(func(ev zk.Event) { c.events <- ev }),
		zk.WithDialer(zkserver.LastZxids(func(network, addr string, timeout time.Duration) (net.Conn, error) {
			wrap, ok := <-c.dial
			if !ok {
				return nil, net.ErrClosed
			}
			conn, err := net.DialTimeout(network, addr, timeout)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		})))
	require.NoError(t, err)
	t.Cleanup(func() {
		close(c.dial)
		c.Close()
	})
	c.until(zk.StateHasSession)
	return c
}

func (c *client) until(state zk.State) {
	for ev := range c.events {
		if ev.State == state {
			return
		}
	}
}

// watch makes nodes, and sets a watch on each.
func (c *client) watch(t *testing.T, paths ...string) map[string]<-chan zk.Event {
	watches := map[string]<-chan zk.Event{}
	for _, path := range paths {
		_, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = c.Set(path, []byte("seen"), -1)
		require.NoError(t, err)
		_, _, watches[path], err = c.GetW(path)
		require.NoError(t, err)
	}
	return watches
}

func asItIs(c net.Conn) net.Conn { return c }

// withoutSetWatches is a connection on which the client's watches are not restored in time.
type withoutSetWatches struct{ net.Conn }

func (c withoutSetWatches) Write(p []byte) (int, error) {
	if len(p) >= 12 && wire.Op(binary.BigEndian.Uint32(p[8:])) == wire.OpSetWatches {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A restored watch reports the changes of the time without a connection, and no change that the
// client has seen.
func TestWrap_RestoredWatches(t *testing.T) {
	srv := zktest.Start(t)
	c := start(t, srv)
	watches := c.watch(t, "/same", "/changed", "/gone")
	require.True(t, srv.DropConnection(c.SessionID()))
	c.until(zk.StateDisconnected)
	require.NoError(t, srv.SetData("/changed", []byte("not seen")))
	require.NoError(t, srv.Delete("/gone"))
	c.dial <- asItIs
	require.Equal(t, zk.EventNodeDataChanged, (<-watches["/changed"]).Type)
	require.Equal(t, zk.EventNodeDeleted, (<-watches["/gone"]).Type)
	require.Len(t, srv.Watches("/same"), 1)
	require.Empty(t, watches["/same"])
	require.NotZero(t, srv.Requests().Total(zktest.SetWatches))
}

// R78: on the next connection another response arrives first, and the connection is lost before the
// watches are restored. They are restored on the one after it, and report the changes before that
// response.
func TestWrap_SecondConnectionLostBeforeWatchesAreRestored(t *testing.T) {
	srv := zktest.Start(t)
	c := start(t, srv)
	watches := c.watch(t, "/same", "/changed")
	require.True(t, srv.DropConnection(c.SessionID()))
	c.until(zk.StateDisconnected)
	require.NoError(t, srv.SetData("/changed", []byte("not seen")))
	c.dial <- func(conn net.Conn) net.Conn { return withoutSetWatches{conn} }
	c.until(zk.StateHasSession)
	_, _, err := c.Exists("/same")
	require.NoError(t, err)
	require.True(t, srv.DropConnection(c.SessionID()))
	c.until(zk.StateDisconnected)
	require.Zero(t, srv.Requests().Total(zktest.SetWatches))
	c.dial <- asItIs
	select {
	case ev := <-watches["/changed"]:
		require.Equal(t, zk.EventNodeDataChanged, ev.Type)
	case <-time.After(20 * time.Second):
		t.Fatal("the event is lost")
	}
	require.Len(t, srv.Watches("/same"), 1)
	require.Empty(t, watches["/same"])
}

type nullLogger struct{}

func (nullLogger) Printf(string, ...any) {}
