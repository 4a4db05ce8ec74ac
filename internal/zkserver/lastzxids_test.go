package zkserver_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
)

// stub is a connection that reads from in, piece by piece, and keeps the written bytes.
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

// The client sees no zxid, and the server gets the right ones, however the bytes are split.
func TestLastZxids(t *testing.T) {
	var raw *stub
	dial := zkserver.LastZxids(func(string, string, time.Duration) (net.Conn, error) { return raw, nil })
	body := make([]byte, 100)
	welcome := frame(int32(0), int32(10_000), int64(77), int32(0))
	connect := func(zxid int64) []byte { return frame(int32(0), zxid, int32(10_000), int64(77), int32(0)) }
	set := func(op wire.Op, zxid int64) []byte { return frame(int32(1), op, zxid, body) }
	get := frame(int32(2), int32(4), int64(5), body) // its first bytes are where setWatches has a zxid
	ping := frame(int32(-2), int32(11))

	play := func(sent []byte, received []byte) (client, server []byte) {
		raw = &stub{in: iotest.OneByteReader(bytes.NewReader(received))}
		c, err := dial("tcp", "", 0)
		require.NoError(t, err)
		for _, b := range sent[:32] { // the handshake in the smallest pieces
			_, err := c.Write([]byte{b})
			require.NoError(t, err)
		}
		client, err = io.ReadAll(c)
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
