package lastzxid

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

// I7: no goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a connection that reads from in, piece by piece, and keeps what is written.
type stub struct {
	net.Conn
	in  io.Reader
	out []byte
}

func (s *stub) Read(p []byte) (int, error) { return s.in.Read(p) }

func (s *stub) Write(p []byte) (int, error) { s.out = append(s.out, p...); return len(p), nil }

func frame(parts ...any) []byte {
	b := make([]byte, 4)
	for _, part := range parts {
		b, _ = binary.Append(b, binary.BigEndian, part)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func join(frames ...[]byte) (all []byte) {
	for _, f := range frames {
		all = append(all, f...)
	}
	return all
}

// The client sees no zxid, and the server gets the right ones, however the bytes are cut.
func TestWrap(t *testing.T) {
	var seen Seen
	body := make([]byte, 100)
	welcome := frame(int32(0), int32(10_000), int64(77), int32(0))
	connect := func(zxid int64) []byte { return frame(int32(0), zxid, int32(10_000), int64(77), int32(0)) }
	set := func(op wire.Op, zxid int64) []byte { return frame(int32(1), op, zxid, body) }
	get := frame(int32(2), int32(4), int64(5), body) // its first bytes are where setWatches has a zxid
	ping := frame(int32(-2), int32(11))

	play := func(sent []byte, received []byte) (client, server []byte) {
		raw := &stub{in: iotest.OneByteReader(bytes.NewReader(received))}
		c := seen.Wrap(raw)
		for _, b := range sent[:32] { // the handshake in the smallest pieces
			_, err := c.Write([]byte{b})
			require.NoError(t, err)
		}
		client, err := io.ReadAll(c)
		require.NoError(t, err)
		n, err := c.Write(sent[32:])
		require.NoError(t, err)
		require.Equal(t, len(sent)-32, n)
		return client, raw.out
	}
	reply := func(xid int32, zxid int64) []byte { return frame(xid, zxid, int32(0), body) }

	client, server := play(
		join(connect(0), set(wire.OpSetWatches, 0), get, ping),
		join(welcome, reply(1, 0x1122334455667788), frame(int32(3), int64(-1), int32(-6)), reply(-1, -1), reply(-2, 0x99)))
	require.Equal(t, join(welcome, reply(1, 0), frame(int32(3), int64(0), int32(-6)), reply(-1, -1), reply(-2, 0x99)), client)
	require.Equal(t, join(connect(0), set(wire.OpSetWatches, 0), get, ping), server, "there was no connection before")

	_, server = play(join(connect(0), set(wire.OpSetWatches, 0), set(wire.OpSetWatches2, 0)), join(welcome, reply(1, 0x1122334455667799)))
	require.Equal(t, join(connect(0x1122334455667788), set(wire.OpSetWatches, 0x1122334455667788), set(wire.OpSetWatches2, 0x1122334455667788)), server,
		"what an early reply showed is not what the watches have seen")

	expired := frame(int32(0), int32(0), int64(0), int32(0))
	_, server = play(connect(0), expired)
	require.Equal(t, connect(0x1122334455667799), server)
	_, server = play(connect(0), welcome)
	require.Equal(t, connect(0), server, "a new session begins at 0")
}

// What the client has not seen itself counts for its connect request, and not for the watches that it restores.
func TestConn_Hidden(t *testing.T) {
	var seen Seen
	c := seen.Connect()
	c.Reply(frame(int32(1), int64(100), int32(0))[4:])
	c.Hidden(200)
	c.Hidden(-1)
	c = seen.Connect()
	require.EqualValues(t, 200, c.Before())
	asked := frame(int32(0), int64(0), int32(10_000))[4:]
	c.ConnectRequest(asked)
	require.EqualValues(t, 200, binary.BigEndian.Uint64(asked[4:]))
	set := frame(int32(1), wire.OpSetWatches, int64(0))[4:]
	c.Request(set)
	require.EqualValues(t, 100, binary.BigEndian.Uint64(set[8:]))
}

// R78: what the client sees on a connection before its watches stand there says nothing about them.
func TestConn_WatchesDoNotStandYet(t *testing.T) {
	var seen Seen
	reply := func(zxid int64) []byte { return frame(int32(1), zxid, int32(0))[4:] }
	ping := frame(int32(-2), int64(-1), int32(0))[4:]
	restoredFrom := func(c *Conn) int64 {
		set := frame(int32(1), wire.OpSetWatches, int64(0))[4:]
		c.Request(set)
		return int64(binary.BigEndian.Uint64(set[8:]))
	}
	c := seen.Connect()
	c.Reply(reply(100)) // a new session has none
	for range 2 {
		c = seen.Connect()
		c.Reply(reply(200))
		require.EqualValues(t, 100, restoredFrom(c))
	}
	c = seen.Connect()
	require.EqualValues(t, 200, c.Before(), "the server must not be further behind than the client")
	c.Reply(reply(300))
	c.Reply(ping)
	c = seen.Connect()
	require.EqualValues(t, 300, restoredFrom(c))
	c.Reply(ping)
	c.Reply(reply(400))
	require.EqualValues(t, 400, restoredFrom(seen.Connect()))
}

// client is a client of zktest's server. Its connections after the first are made when the test says so.
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
		zk.WithDialer(Dialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
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

// A restored watch tells of what happened while the client was away, and of nothing it has seen.
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

// R78: on the next connection another answer comes first, and the connection is lost before the watches are restored. They are
// restored on the one after it, and tell of what happened before that answer.
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
