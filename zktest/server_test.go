package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

var open = zk.WorldACL(zk.PermAll)

func TestServer_OverTCP_ServesGoZookeeper(t *testing.T) {
	srv := zktest.Start(t)
	conn := connect(t, srv, 10*time.Second)

	path, err := conn.Create("/a", []byte("x"), 0, open)
	require.NoError(t, err)
	require.Equal(t, "/a", path)
	path, err = conn.Create("/a/n-", nil, zk.FlagEphemeral|zk.FlagSequence, open)
	require.NoError(t, err)
	require.Equal(t, "/a/n-0000000000", path)
	_, err = conn.Create("/a", nil, 0, open)
	require.ErrorIs(t, err, zk.ErrNodeExists)

	data, stat, changed, err := conn.GetW("/a")
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
	require.EqualValues(t, 1, stat.NumChildren)
	stat, err = conn.Set("/a", []byte("y"), stat.Version)
	require.NoError(t, err)
	require.EqualValues(t, 1, stat.Version)
	require.Equal(t, zk.EventNodeDataChanged, (<-changed).Type)

	names, _, childEvents, err := conn.ChildrenW("/a")
	require.NoError(t, err)
	require.Equal(t, []string{"n-0000000000"}, names)
	_, err = conn.Sync("/a")
	require.NoError(t, err)
	results, err := conn.Multi(
		&zk.CheckVersionRequest{Path: "/a", Version: 1},
		&zk.CreateRequest{Path: "/a/n-", Acl: open, Flags: zk.FlagSequence},
		&zk.DeleteRequest{Path: "/a/n-0000000000", Version: -1})
	require.NoError(t, err)
	require.Equal(t, "/a/n-0000000001", results[1].String)
	require.Equal(t, zk.EventNodeChildrenChanged, (<-childEvents).Type)

	require.Equal(t, []string{"n-0000000001"}, srv.Children("/a"))
	require.ErrorIs(t, conn.Delete("/a", -1), zk.ErrNotEmpty)
}

// bubble runs a test in virtual time with a network of its own.
func bubble(t *testing.T, test func(t *testing.T, n *zktest.Network)) {
	synctest.Test(t, func(t *testing.T) { test(t, zktest.NewNetwork()) })
}

func TestSession_SilentClient_ExpiresAfterTimeoutAndAtMostOneTick(t *testing.T) {
	bubble(t, func(t *testing.T, n *zktest.Network) {
		srv := zktest.Start(t, zktest.WithNetwork(n))
		holder, events := connectEvents(t, srv.Addr(), 10*time.Second, dialing(n))
		waiter := connect(t, srv, 10*time.Second, dialing(n))
		_, err := holder.Create("/e", nil, zk.FlagEphemeral, open)
		require.NoError(t, err)
		_, _, gone, err := waiter.ExistsW("/e")
		require.NoError(t, err)

		time.Sleep(time.Hour) // pings keep it
		require.Len(t, srv.Sessions(), 2)

		id := holder.SessionID()
		n.Partition(srv.Addr())
		time.Sleep(time.Second)
		n.Heal(srv.Addr())
		time.Sleep(time.Minute)
		require.Len(t, srv.Sessions(), 2, "a short partition costs no session")

		// From here on the server receives nothing from the holder.
		require.True(t, srv.DropConnection(id))
		block := srv.Inject(zktest.RefuseConnections().Optional())
		before := time.Now()
		require.Equal(t, zk.EventNodeDeleted, (<-gone).Type)
		took := time.Since(before)
		require.Greater(t, took, 10*time.Second-10*time.Second/3, "one ping may have come just before the cut")
		require.LessOrEqual(t, took, 12*time.Second)
		block.Remove()
		await(t, events, zk.StateExpired)
	})
}
