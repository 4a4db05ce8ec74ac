package zktest_test

// Newer requests with the purpose of an older one have its name.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"

	. "github.com/zklock/zklock/zktest"
)

func TestFault_CoversTheNewerRequestForTheSameThing(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		c := raw(t, n, srv, 10*time.Second)
		srv.Inject(Before(SetWatches).Once().Fail(NoAuth))
		srv.Inject(Before(Create).Once().Fail(NoAuth))
		code, _, _ := call(t, c, wire.OpSetWatches2, wire.SetWatches2Request{})
		require.Equal(t, wire.NoAuth, code)
		code, _, _ = call(t, c, wire.OpCreateTTL, wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/t", ACL: world, Flags: wire.FlagTTL, TTL: 1}})
		require.Equal(t, wire.NoAuth, code)
	})
}

func TestFrame_NamesTheNewerRequestLikeTheOlder(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		c := raw(t, n, srv, 10*time.Second)
		var seen []string
		srv.OnFrame(func(f Frame) { seen = append(seen, f.String()) })
		call(t, c, wire.OpCreate2, wire.CreateRequest{Path: "/f", ACL: world})
		call(t, c, wire.OpGetChildren2, wire.PathWatchRequest{Path: "/f"})
		srv.OnFrame(nil)
		require.Equal(t, []string{"create /f", "reply to create /f /f", "getChildren /f", "reply to getChildren /f"}, seen)
		require.Equal(t, 1, srv.Requests().Total(Op(wire.OpCreate2)))
		require.Equal(t, 1, srv.Requests().Total(Create))
	})
}
