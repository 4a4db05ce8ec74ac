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

// A restored watch tells of what happened while the client was away, and of nothing it has seen.
func TestWrap_RestoredWatches(t *testing.T) {
	srv := zktest.Start(t)
	events := make(chan zk.Event, 100)
	down := make(chan struct{})
	var dials int
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithLogger(nullLogger{}),
		zk.WithEventCallback(func(ev zk.Event) { events <- ev }),
		zk.WithDialer(Dialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
			if dials++; dials > 1 {
				<-down
			}
			return net.DialTimeout(network, addr, timeout)
		})))
	require.NoError(t, err)
	defer conn.Close()
	until := func(state zk.State) {
		for ev := range events {
			if ev.State == state {
				return
			}
		}
	}
	until(zk.StateHasSession)
	watches := map[string]<-chan zk.Event{}
	for _, path := range []string{"/same", "/changed", "/gone"} {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = conn.Set(path, []byte("seen"), -1)
		require.NoError(t, err)
		_, _, watches[path], err = conn.GetW(path)
		require.NoError(t, err)
	}
	require.True(t, srv.DropConnection(conn.SessionID()))
	until(zk.StateDisconnected)
	require.NoError(t, srv.SetData("/changed", []byte("not seen")))
	require.NoError(t, srv.Delete("/gone"))
	close(down)
	require.Equal(t, zk.EventNodeDataChanged, (<-watches["/changed"]).Type)
	require.Equal(t, zk.EventNodeDeleted, (<-watches["/gone"]).Type)
	require.Len(t, srv.Watches("/same"), 1)
	require.Empty(t, watches["/same"])
	require.NotZero(t, srv.Requests().Total(zktest.SetWatches))
}

type nullLogger struct{}

func (nullLogger) Printf(string, ...any) {}
