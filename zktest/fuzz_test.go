package zktest_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// FuzzServer sends arbitrary bytes on a connection, with and without a proper handshake, and checks
// that the server still serves other clients.
func FuzzServer(f *testing.F) {
	frame := func(op wire.Op, body wire.Record) []byte {
		return wire.Frame(wire.RequestHeader{Xid: 1, Op: op}, body)
	}
	create := wire.CreateRequest{Path: "/a", ACL: world, Flags: wire.FlagEphemeralSequential}
	f.Add(true, frame(wire.OpCreate, create))
	f.Add(true, append(frame(wire.OpAddWatch, wire.AddWatchRequest{Path: "/", Mode: 1}), frame(wire.OpCreate2, create)...))
	f.Add(true, frame(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCreate, Create: create}, {Op: wire.OpDelete, Path: "/a", Version: -1}}}))
	f.Add(true, frame(wire.OpSetWatches2, wire.SetWatches2Request{SetWatchesRequest: wire.SetWatchesRequest{Data: []string{"/", "", "x"}}}))
	f.Add(true, frame(wire.OpSetACL, wire.SetACLRequest{Path: "/", ACL: []wire.ACL{{Perms: 1, ID: wire.ID{Scheme: "ip", ID: "1.2.3.4/0"}}}}))
	f.Add(true, frame(wire.OpClose, nilRecord{}))
	f.Add(false, wire.Frame(wire.ConnectRequest{SessionID: 1}))
	f.Add(false, []byte("mntr"))
	f.Add(false, []byte{0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, shakeHands bool, sent []byte) {
		n := NewNetwork()
		srv, err := NewServer(WithNetwork(n), WithConfig("extendedTypesEnabled=true", "4lw.commands.whitelist=*"))
		require.NoError(t, err)
		defer srv.Close()
		nc, err := n.Dial("tcp", srv.Addr(), time.Second)
		require.NoError(t, err)
		defer nc.Close()
		if shakeHands {
			require.NoError(t, rawzk.Wrap(nc).Connect(wire.ConnectRequest{Timeout: 10_000}))
		}
		go func() {
			nc.Write(sent)
			nc.(interface{ CloseWrite() error }).CloseWrite()
		}()
		nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, nc); err != nil {
			ne, ok := err.(interface{ Timeout() bool })
			require.False(t, ok && ne.Timeout(), "the connection hangs")
		}
		other, err := n.Dial("tcp", srv.Addr(), time.Second)
		require.NoError(t, err)
		defer other.Close()
		c := rawzk.Wrap(other)
		require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000}))
		_, _, err = c.Call(wire.OpPing, nil)
		require.NoError(t, err)
	})
}

// FuzzProxy does the same to a proxy, which must forward frames that it does not understand and
// never hang.
func FuzzProxy(f *testing.F) {
	f.Add(wire.Frame(wire.ConnectRequest{Timeout: 10_000}), wire.Frame(wire.ConnectResponse{SessionID: 1}))
	f.Add([]byte("ruok"), []byte("imok"))
	f.Add([]byte{0, 0, 0, 0}, []byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, up, down []byte) {
		n := NewNetwork()
		ln, err := n.Listen("")
		require.NoError(t, err)
		defer ln.Close()
		p, err := NewProxy(ln.Addr().String(), WithNetwork(n))
		require.NoError(t, err)
		defer p.Close()
		p.Inject(After(AnyOp).Path("/x").Delay(time.Nanosecond))
		client, err := n.Dial("tcp", p.Addr(), time.Second)
		require.NoError(t, err)
		defer client.Close()
		go func() {
			client.Write(up)
			client.(interface{ CloseWrite() error }).CloseWrite()
		}()
		server, err := ln.Accept()
		require.NoError(t, err)
		go func() {
			server.Write(down)
			server.Close()
		}()
		client.SetReadDeadline(time.Now().Add(10 * time.Second))
		got, err := io.ReadAll(client)
		if err != nil {
			ne, ok := err.(interface{ Timeout() bool })
			require.False(t, ok && ne.Timeout(), "the connection hangs")
		}
		require.True(t, bytes.HasPrefix(down, got) || len(got) <= len(down)+4, "more came than was sent")
	})
}

type nilRecord struct{}

func (nilRecord) Encode(*wire.Encoder) {}
