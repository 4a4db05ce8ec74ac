package lastzxid

// These tests attack the last zxid that a client sends: no event may be missed because of it.

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

func frame(parts ...any) []byte {
	b := make([]byte, 4)
	for _, part := range parts {
		b, _ = binary.Append(b, binary.BigEndian, part)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// A zxid that the client has not seen itself counts for its connect request, but not for the
// watches that it restores.
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

// R78: the zxids that the client sees on a connection before its watches are restored there prove
// nothing about the watches.
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
