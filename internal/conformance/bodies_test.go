package conformance

// These tests send bodies that no client sends, which the generator of the differential test
// cannot produce, to a real server and to zktest.

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// body encodes a body field by field.
type body func(e *wire.Encoder)

func (b body) Encode(e *wire.Encoder) { b(e) }

func oddBodies() map[string]request {
	create := func(aclCount int32) body {
		return func(e *wire.Encoder) {
			e.String("/m")
			e.Buffer(nil)
			e.Int32(aclCount)
			e.Int32(0)
		}
	}
	odd := map[string]request{
		"setACL, -2 entries": {op: wire.OpSetACL, body: body(func(e *wire.Encoder) {
			e.String("/zookeeper")
			e.Int32(-2)
			e.Int32(-1)
		})},
		"multi, -2 entries": {op: wire.OpMulti, body: body(func(e *wire.Encoder) {
			e.Int32(int32(wire.OpCreate))
			e.Bool(false)
			e.Int32(-1)
			create(-2)(e)
			e.Int32(-1)
			e.Bool(true)
			e.Int32(-1)
		})},
		"setWatches, -2 paths": {op: wire.OpSetWatches, body: body(func(e *wire.Encoder) {
			e.Int64(0)
			for range 3 {
				e.Int32(-2)
			}
		})},
		"reconfig without a body": {op: wire.OpReconfig, body: wire.Raw{}},
		"reconfig, cut": {op: wire.OpReconfig, body: body(func(e *wire.Encoder) {
			e.String("a")
			e.String("b")
		})},
	}
	for _, count := range []int32{0, -1, -2, -100, -1 << 31} {
		odd[fmt.Sprintf("create, %d entries", count)] = request{op: wire.OpCreate, body: create(count)}
	}
	for _, prefix := range []string{"", " ", "/", " /", "/e", " /e", "/e ", "//", "\t/\n", "\u2003", "\u00a0/", "\x01/"} {
		odd[fmt.Sprintf("getEphemerals %+q", prefix)] = request{op: wire.OpGetEphemerals, body: wire.GetEphemeralsRequest{Prefix: prefix}}
	}
	return odd
}

func TestOddBodies_AsOnARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real server")
	}
	real := startReal(t)
	version, err := zkserver.Version(real)
	require.NoError(t, err)
	ours := zktest.Start(t, zktest.WithVersion(version)).Addr()
	open := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	for name, odd := range oddBodies() {
		var replies []string
		for _, addr := range []string{real, ours} {
			c, err := rawzk.Dial(addr)
			require.NoError(t, err)
			require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000}))
			mine, _, err := c.Call(wire.OpCreate, wire.CreateRequest{Path: "/e1", Flags: wire.FlagEphemeral, ACL: open})
			require.NoError(t, err)
			reply, _, err := c.Call(odd.op, odd.body)
			require.NoError(t, err)
			after, _, err := c.Call(wire.OpSync, wire.PathRequest{Path: "/"})
			require.NoError(t, err)
			replies = append(replies, fmt.Sprintf("%v, zxid +%d, %d bytes; then zxid +%d",
				reply.Header.Err, reply.Header.Zxid-mine.Header.Zxid, len(reply.Body), after.Header.Zxid-mine.Header.Zxid))
			_, _, err = c.Call(wire.OpClose, nil)
			require.NoError(t, err)
			c.Close()
		}
		require.Equal(t, replies[0], replies[1], name)
		t.Logf("%s: %s", name, replies[0])
	}
}
