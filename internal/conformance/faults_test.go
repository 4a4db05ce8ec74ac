package conformance

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	. "github.com/zklock/zklock/zktest"
)

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// client returns a go-zookeeper client with a session, and its events.
func client(t *testing.T, addr string) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events := make(chan zk.Event, 1000)
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithDialer(zkserver.LastZxids(net.DialTimeout)), zk.WithEventCallback(func(ev zk.Event) { events <- ev }),
		func(c *zk.Conn) { c.SetLogger(quiet{}) })
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	await(t, events, func(ev zk.Event) bool { return ev.State == zk.StateHasSession })
	return conn, events
}

func await(t *testing.T, events <-chan zk.Event, want func(zk.Event) bool) {
	t.Helper()
	for timeout := time.After(30 * time.Second); ; {
		select {
		case ev := <-events:
			if want(ev) {
				return
			}
		case <-timeout:
			require.FailNow(t, "the event has not come")
		}
	}
}

// onBoth runs a test of a proxy before a server on ours and on a real one.
func onBoth(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("zktest", func(t *testing.T) { test(t, Start(t).Addr()) })
	t.Run("real", func(t *testing.T) { test(t, startReal(t)) })
}

func exists(t *testing.T, addr, path string) bool {
	t.Helper()
	c, err := rawzk.Dial(addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 10_000}))
	r, _, err := c.Call(wire.OpExists, wire.PathWatchRequest{Path: path})
	require.NoError(t, err)
	return r.Header.Err == wire.OK
}

func TestExpireSession_OnAnyServer(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		conn, events := client(t, addr)
		_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NoError(t, ExpireSession(addr, conn.SessionID()))
		require.False(t, exists(t, addr, "/e"))
		await(t, events, func(ev zk.Event) bool { return ev.State == zk.StateExpired })
		require.NoError(t, ExpireSession(addr, 12345), "one that never was is gone")
		require.Error(t, ExpireSession(addr, 0))
	})
}

func TestProxy_OnAnyServer(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string) {
		p := StartProxy(t, addr)
		conn, events := client(t, p.Addr())
		acl := zk.WorldACL(zk.PermAll)
		// Until the client has its session again, its requests fail: it could not connect.
		back := func() { await(t, events, func(ev zk.Event) bool { return ev.State == zk.StateHasSession }) }

		p.Inject(After(Create).Path("/lost*").DropReply().Close())
		_, err := conn.Create("/lost-", nil, zk.FlagSequence, acl)
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		require.True(t, exists(t, addr, "/lost-0000000000"), "the server did it")
		back()

		p.Inject(Before(Create).Path("/never").Close())
		_, err = conn.Create("/never", nil, 0, acl)
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		require.False(t, exists(t, addr, "/never"))
		back()

		p.Inject(Before(Create).Path("/refused").Fail(NoAuth))
		_, err = conn.Create("/refused", nil, 0, acl)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.False(t, exists(t, addr, "/refused"))

		_, err = conn.Create("/a", nil, 0, acl)
		require.NoError(t, err)
		_, _, _, err = conn.GetW("/a")
		require.NoError(t, err)
		dropped := p.Inject(OnEvent(NodeDataChanged).Path("/a").Once().Drop())
		_, err = conn.Set("/a", nil, -1)
		require.NoError(t, err)
		require.Equal(t, 1, dropped.Fired())

		p.Inject(After(Create).Path("/e").Once().Expire())
		_, err = conn.Create("/e", nil, zk.FlagEphemeral, acl)
		require.NoError(t, err)
		await(t, events, func(ev zk.Event) bool { return ev.State == zk.StateExpired })
		require.False(t, exists(t, addr, "/e"))
	})
}

// TestExpiry_OnAnyServer compares the clock of sessions with the real server's: a session that is
// silent after its connect request, with a timeout of two ticks, ends within (4 s, 6 s] at a tick
// of 2 s.
func TestExpiry_OnAnyServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 5 s")
	}
	onBoth(t, func(t *testing.T, addr string) {
		t.Parallel()
		holder, err := rawzk.Dial(addr)
		require.NoError(t, err)
		defer holder.Close()
		watcher, err := rawzk.Dial(addr)
		require.NoError(t, err)
		defer watcher.Close()
		require.NoError(t, holder.Connect(wire.ConnectRequest{Timeout: 1}))
		require.EqualValues(t, 4000, holder.Session.Timeout)
		require.NoError(t, watcher.Connect(wire.ConnectRequest{Timeout: 30_000}))
		acl := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
		before := time.Now()
		_, _, err = holder.Call(wire.OpCreate, wire.CreateRequest{Path: "/e", ACL: acl, Flags: wire.FlagEphemeral})
		after := time.Now()
		require.NoError(t, err)
		_, _, err = watcher.Call(wire.OpExists, wire.PathWatchRequest{Path: "/e", Watch: true})
		require.NoError(t, err)
		ev, err := watcher.Receive()
		require.NoError(t, err)
		require.Equal(t, wire.XidEvent, ev.Header.Xid)
		t.Logf("expired after %v", time.Since(after))
		require.Greater(t, time.Since(before), 4*time.Second)
		require.Less(t, time.Since(after), 6*time.Second+500*time.Millisecond, "half a second for a busy machine")
	})
}

// TestReaper_OnAnyServer: used containers and TTL nodes are deleted, each in a transaction of its
// own without a request; watches are notified of it.
func TestReaper_OnAnyServer(t *testing.T) {
	test := func(t *testing.T, addr string) {
		c, err := rawzk.Dial(addr)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 30_000}))
		acl := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
		do := func(op wire.Op, body wire.Record) {
			r, _, err := c.Call(op, body)
			require.NoError(t, err)
			require.Equal(t, wire.OK, r.Header.Err)
		}
		do(wire.OpCreateContainer, wire.CreateRequest{Path: "/fresh", ACL: acl, Flags: wire.FlagContainer})
		do(wire.OpCreateTTL, wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/long", ACL: acl, Flags: wire.FlagTTL, TTL: 1_000_000}})
		do(wire.OpCreateContainer, wire.CreateRequest{Path: "/full", ACL: acl, Flags: wire.FlagContainer})
		do(wire.OpCreate, wire.CreateRequest{Path: "/full/x", ACL: acl})
		do(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCreateContainer, Path: "/used", Create: wire.CreateRequest{Path: "/used", ACL: acl, Flags: wire.FlagContainer}},
			{Op: wire.OpCreate, Path: "/used/x", Create: wire.CreateRequest{Path: "/used/x", ACL: acl}},
		}})
		do(wire.OpExists, wire.PathWatchRequest{Path: "/used", Watch: true})
		do(wire.OpDelete, wire.PathVersionRequest{Path: "/used/x", Version: -1})
		await := func(path string) {
			for {
				r, err := c.Receive()
				require.NoError(t, err)
				ev, err := r.Event()
				require.NoError(t, err)
				require.Equal(t, wire.XidEvent, r.Header.Xid)
				if ev.Path == path && ev.Type == wire.EventDeleted {
					return
				}
			}
		}
		await("/used")
		do(wire.OpAddWatch, wire.AddWatchRequest{Path: "/short", Mode: wire.AddWatchPersistent})
		do(wire.OpCreateTTL, wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/short", ACL: acl, Flags: wire.FlagTTL, TTL: 1}})
		await("/short")
		r, _, err := c.Call(wire.OpGetChildren, wire.PathWatchRequest{Path: "/"})
		require.NoError(t, err)
		var names wire.StringsResponse
		names.Decode(wire.NewDecoder(r.Body))
		require.ElementsMatch(t, []string{"fresh", "full", "long", "zookeeper"}, names.Strings)
		// The session, seven writes, and two by the reaper.
		require.EqualValues(t, 1+7+2, r.Header.Zxid)
	}
	t.Run("zktest", func(t *testing.T) {
		test(t, Start(t, WithConfig("extendedTypesEnabled=true", "znode.container.checkIntervalMs=300")).Addr())
	})
	t.Run("real", func(t *testing.T) {
		addr := startReal(t, zkserver.Property("znode.container.checkIntervalMs", "300"))
		if version, err := zkserver.Version(addr); err != nil || zkserver.Older(version, "3.5.3") {
			require.NoError(t, err)
			t.Skipf("not on ZooKeeper %s: from 3.5.3 on there are containers and TTL nodes", version)
		}
		test(t, addr)
	})
}
