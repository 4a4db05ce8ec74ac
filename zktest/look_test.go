package zktest_test

import (
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// raw returns a connection with a session on an in-memory network, which hides nothing.
func raw(t *testing.T, n *Network, srv addressed, timeout time.Duration) *rawzk.Conn {
	t.Helper()
	c := rawUnconnected(t, n, srv)
	require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: int32(timeout.Milliseconds())}))
	require.NotZero(t, c.Session.SessionID)
	return c
}

// addressed is a server or a member of an ensemble.
type addressed interface{ Addr() string }

func rawUnconnected(t *testing.T, n *Network, srv addressed) *rawzk.Conn {
	t.Helper()
	nc, err := n.Dial("tcp", srv.Addr(), time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	return rawzk.Wrap(nc)
}

// call sends a request and returns the error code, the body and the number of events before its
// reply.
func call(t *testing.T, c *rawzk.Conn, op wire.Op, body wire.Record) (wire.Code, []byte, int) {
	t.Helper()
	reply, events, err := c.Call(op, body)
	require.NoError(t, err)
	return reply.Header.Err, reply.Body, len(events)
}

var world = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}

func TestInspect(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n), WithZxid(0x500000000))
		conn := connect(t, srv, 10*time.Second, dialing(n))
		synctest.Wait() // until go-zookeeper has restored its watches: it must not find those below
		require.NoError(t, create(conn, "/l"))
		path, err := conn.Create("/l/n-", []byte("d"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, _, _, err = conn.ChildrenW("/l")
		require.NoError(t, err)
		_, _, _, err = conn.ExistsW("/l")
		require.NoError(t, err)

		require.Equal(t, []string{"n-0000000000"}, srv.Children("/l"))
		require.Nil(t, srv.Children("/missing"))
		data, ok := srv.Get(path)
		require.True(t, ok)
		require.Equal(t, "d", string(data))
		st, ok := srv.Stat(path)
		require.True(t, ok)
		require.Equal(t, conn.SessionID(), st.EphemeralOwner)
		require.Equal(t, int64(0x500000003), st.Czxid)
		require.Equal(t, int64(0x500000003), srv.Zxid())

		sessions := srv.Sessions()
		require.Len(t, sessions, 1)
		require.Equal(t, []string{path}, sessions[0].Ephemerals)
		require.True(t, sessions[0].Connected)
		require.Equal(t, 10*time.Second, sessions[0].Timeout)

		require.Len(t, srv.Watches(), 2)
		require.Len(t, srv.Watches("/l"), 2)
		require.Empty(t, srv.Watches(path))

		counts := srv.Requests()
		require.Equal(t, 4, counts.Total())
		require.Equal(t, 2, counts.Total(Create))
		require.Equal(t, 1, counts.Of(conn.SessionID(), GetChildren))
		require.Zero(t, counts.Of(1))
		time.Sleep(time.Minute)
		require.Equal(t, 4, srv.Requests().Total(), "pings are counted apart")
		require.NotZero(t, srv.Requests().Pings)
		srv.ResetRequests()
		require.Zero(t, srv.Requests().Total())

		var kinds []string
		for _, h := range srv.History() {
			kinds = append(kinds, h.Kind.String()+" "+h.Path)
		}
		require.Equal(t, []string{"opened ", "created /l", "created " + path}, kinds)
		require.Contains(t, srv.Dump(), "/l/n-0000000000 czxid=0x500000003")
		srv.Close()
		require.Equal(t, []string{"n-0000000000"}, srv.Children("/l"), "what was there stays to be seen")
	})
}

func TestAdmin_AsSomebodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		conn, events := connectEvents(t, srv.Addr(), 10*time.Second, dialing(n))
		_, err := srv.Create("/a", []byte("1"), 0)
		require.NoError(t, err)
		path, err := srv.CreateAs(conn.SessionID(), "/a/e", nil, zk.FlagEphemeral)
		require.NoError(t, err)
		_, err = srv.Create("/a/f", nil, zk.FlagEphemeral)
		require.Error(t, err)
		_, err = srv.CreateAs(77, "/a/f", nil, zk.FlagEphemeral)
		require.Error(t, err)
		_, err = srv.Create("/a", nil, 0)
		require.ErrorIs(t, err, NodeExists)
		_, _, _, err = conn.GetW(path)
		require.NoError(t, err)
		require.NoError(t, srv.SetData("/a", []byte("2")))
		require.NoError(t, srv.Delete(path))
		synctest.Wait()
		all := drain(events)
		require.Equal(t, zk.EventNodeDeleted, all[len(all)-1].Type)
		require.ErrorIs(t, srv.Delete(path), NoNode)

		require.True(t, srv.ExpireSession(conn.SessionID()))
		history := srv.History()
		require.Equal(t, Expired, history[len(history)-1].Kind)
		require.False(t, srv.ExpireSession(conn.SessionID()))
		require.False(t, srv.DropConnection(77))
		require.False(t, srv.MoveSession(77))
	})
}

func TestStopStart_KeepsPortNodesAndSessions(t *testing.T) {
	for name, inBubble := range map[string]bool{"TCP": false, "Network": true} {
		test := func(t *testing.T, opts ...Option) {
			srv, err := NewServer(opts...)
			require.NoError(t, err)
			defer srv.Close()
			addr := srv.Addr()
			require.NoError(t, srv.Start(), "it runs already")
			_, err = srv.Create("/a", nil, 0)
			require.NoError(t, err)
			srv.Stop()
			srv.Stop()
			require.NotNil(t, srv.Children("/a"))
			require.NoError(t, srv.Start())
			require.Equal(t, addr, srv.Addr())
			srv.Close()
			require.Error(t, srv.Start())
		}
		t.Run(name, func(t *testing.T) {
			if inBubble {
				bubble(t, func(t *testing.T, n *Network) { test(t, WithNetwork(n)) })
			} else {
				test(t)
			}
		})
	}
}

func TestStopStart_TimeStopsForSessions(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		conn, events := connectEvents(t, srv.Addr(), 10*time.Second, dialing(n))
		_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		id := conn.SessionID()
		srv.Stop()
		await(t, events, zk.StateDisconnected)
		time.Sleep(time.Hour)
		require.Len(t, srv.Sessions(), 1)
		require.NoError(t, srv.Start())
		await(t, events, zk.StateHasSession)
		require.Equal(t, id, conn.SessionID())
	})
}

func TestReaper_ContainersAndTTL(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n), WithConfig("znode.container.checkIntervalMs=60000", "extendedTypesEnabled=true"))
		conn := connect(t, srv, 10*time.Second, dialing(n))
		for _, p := range []string{"/used", "/fresh", "/full"} {
			_, err := conn.CreateContainer(p, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		_, err := conn.CreateTTL("/ttl", nil, zk.FlagTTL, zk.WorldACL(zk.PermAll), 90*time.Second)
		require.NoError(t, err)
		require.NoError(t, create(conn, "/used/x"))
		require.NoError(t, create(conn, "/full/x"))
		require.NoError(t, conn.Delete("/used/x", -1))
		st, _ := srv.Stat("/used")
		require.True(t, st.Container)

		time.Sleep(61 * time.Second)
		require.Nil(t, srv.Children("/used"))
		require.NotNil(t, srv.Children("/fresh"), "never used")
		require.NotNil(t, srv.Children("/full"))
		require.NotNil(t, srv.Children("/ttl"), "not old enough")
		time.Sleep(time.Minute)
		require.Nil(t, srv.Children("/ttl"))
		require.NotNil(t, srv.Children("/fresh"))
	})
}

func TestTTL_NotEnabled_IsUnimplemented(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		c := raw(t, n, srv, 10*time.Second)
		code, _, _ := call(t, c, wire.OpCreateTTL, wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/t", ACL: world, Flags: wire.FlagTTL, TTL: 1}})
		require.Equal(t, wire.Unimplemented, code)
	})
}

func TestSequence_SticksAtTheEndOfTheCounter(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		conn := connect(t, srv, 10*time.Second, dialing(n))
		require.NoError(t, create(conn, "/l"))
		require.True(t, srv.SetCreates("/l", math.MaxInt32-1))
		seq := func(prefix string) string {
			path, err := conn.Create("/l/"+prefix, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			return strings.TrimPrefix(path, "/l/"+prefix)
		}
		require.Equal(t, "2147483646", seq("a"))
		require.Equal(t, "2147483647", seq("b"))
		require.Equal(t, "2147483647", seq("c"), "it sticks")
		results, err := conn.Multi(
			&zk.CreateRequest{Path: "/l/d", Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence},
			&zk.CreateRequest{Path: "/l/e", Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence},
			&zk.CreateRequest{Path: "/l/f", Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence})
		require.NoError(t, err)
		require.Equal(t, "/l/d2147483647", results[0].String)
		require.Equal(t, "/l/e-2147483648", results[1].String)
		require.Equal(t, "/l/f-2147483647", results[2].String)
		require.Equal(t, "2147483647", seq("g"), "what a multi went through is forgotten")

		// Deleting and creating the root restarts the counter.
		for _, name := range srv.Children("/l") {
			require.NoError(t, srv.Delete("/l/"+name))
		}
		require.NoError(t, srv.Delete("/l"))
		require.NoError(t, create(conn, "/l"))
		require.Equal(t, "0000000000", seq("h"))
		require.True(t, srv.SetCreates("/l", 41))
		require.Equal(t, "0000000041", seq("i"))
		require.False(t, srv.SetCreates("/missing", 1))
	})
}

func TestSequence_PipelinedBeyondTheEnd_IsNegative(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		_, err := srv.Create("/l", nil, 0)
		require.NoError(t, err)
		require.True(t, srv.SetCreates("/l", math.MaxInt32))
		c := raw(t, n, srv, 10*time.Second)
		var burst []byte
		for xid := range int32(3) {
			burst = append(burst, wire.Frame(wire.RequestHeader{Xid: xid + 1, Op: wire.OpCreate},
				wire.CreateRequest{Path: "/l/" + string('a'+xid), ACL: world, Flags: wire.FlagSequential})...)
		}
		require.NoError(t, c.Write(burst))
		for range 3 {
			_, err := c.Receive()
			require.NoError(t, err)
		}
		require.Equal(t, []string{"a2147483647", "b-2147483648", "c-2147483647"}, srv.Children("/l"))
	})
}

func TestACL_DigestAndSuper(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n), WithConfig("DigestAuthenticationProvider.superDigest="+Digest("root:secret")))
		owner, other, root := connect(t, srv, 10*time.Second, dialing(n)), connect(t, srv, 10*time.Second, dialing(n)), connect(t, srv, 10*time.Second, dialing(n))
		require.NoError(t, owner.AddAuth("digest", []byte("u:p")))
		require.NoError(t, root.AddAuth("digest", []byte("root:secret")))
		_, err := owner.Create("/mine", []byte("x"), 0, zk.AuthACL(zk.PermAll))
		require.NoError(t, err)
		_, _, err = other.Get("/mine")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, _, err = owner.Get("/mine")
		require.NoError(t, err)
		_, _, err = root.Get("/mine")
		require.NoError(t, err)
		acl, _, err := owner.GetACL("/mine")
		require.NoError(t, err)
		require.Equal(t, zk.DigestACL(zk.PermAll, "u", "p"), acl)
	})
}

func TestHostileFrames_CloseOnlyTheirConnection(t *testing.T) {
	srv := Start(t)
	conn := connect(t, srv, 10*time.Second)
	for _, garbage := range [][]byte{
		{0xff, 0xff, 0xff, 0xff}, {0x7f, 0, 0, 0}, {0, 0, 0, 1, 7},
		append([]byte{0, 0, 0, 44}, make([]byte, 40)...),
		append(wire.Frame(wire.ConnectRequest{Timeout: 1}), 0, 0, 0, 3, 1, 2, 3),
	} {
		nc, err := net.Dial("tcp", srv.Addr())
		require.NoError(t, err)
		_, err = nc.Write(garbage)
		require.NoError(t, err)
		require.NoError(t, nc.(*net.TCPConn).CloseWrite())
		nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		buf := make([]byte, 1024)
		for err == nil {
			_, err = nc.Read(buf)
		}
		ne, isNet := err.(net.Error)
		require.False(t, isNet && ne.Timeout(), "the connection of % x stayed open", garbage)
		nc.Close()
	}
	require.NoError(t, create(conn, "/still-here"))
}

func TestWatches_PersistentAndRecursive(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		c := raw(t, n, srv, 10*time.Second)
		call(t, c, wire.OpAddWatch, wire.AddWatchRequest{Path: "/a", Mode: wire.AddWatchPersistentRecursive})
		for range 2 {
			_, err := srv.Create("/a", nil, 0)
			require.NoError(t, err)
			_, err = srv.Create("/a/b", nil, 0)
			require.NoError(t, err)
			require.NoError(t, srv.Delete("/a/b"))
			require.NoError(t, srv.Delete("/a"))
			_, _, events := call(t, c, wire.OpPing, nil)
			require.Equal(t, 4, events)
		}
		code, _, _ := call(t, c, wire.OpRemoveWatches, wire.WatchesRequest{Path: "/a", Type: wire.WatcherAny})
		require.Equal(t, wire.OK, code)
		require.Empty(t, srv.Watches())
	})
}

func TestSessionPassword_LetsAnybodyTakeOver(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		first := raw(t, n, srv, 10*time.Second)
		second := rawUnconnected(t, n, srv)
		id := first.Session.SessionID
		require.NoError(t, second.Connect(wire.ConnectRequest{Timeout: 10_000, SessionID: id, Password: wire.SessionPassword(id)}))
		require.Equal(t, id, second.Session.SessionID)
		_, err := first.Receive()
		require.Error(t, err, "the old connection is closed")
	})
}

func TestWithConfig_TheLastSettingApplies(t *testing.T) {
	srv := Start(t, WithConfig("tickTime=100", "maxSessionTimeout=9000"), WithConfig("zookeeper.tickTime = 200"))
	conf := srv.Word("conf")
	for _, line := range []string{"tickTime=200", "minSessionTimeout=400", "maxSessionTimeout=9000", "maxClientCnxns=60"} {
		require.Contains(t, conf, line+"\n")
	}
}

// A zero in front of a number does not make it octal.
func TestWithConfig_LeadingZero(t *testing.T) {
	for value, want := range map[string]string{"010": "10", "08": "8"} {
		srv := Start(t, WithConfig("maxClientCnxns="+value))
		require.Contains(t, srv.Word("conf"), "maxClientCnxns="+want+"\n")
	}
}

func TestServer_BadOptions(t *testing.T) {
	for setting, says := range map[string]string{
		"tickTime=0":                         "tickTime is 0",
		"syncLimit=0":                        "syncLimit is 0",
		"znode.container.checkIntervalMs=-1": `parsing "-1"`,
		"maxClientCnxns=0x10":                `parsing "0x10"`,
		"maxClientCnxns=many":                `WithConfig("maxClientCnxns=many")`,
		"minSessionTimeout=60000":            "maxSessionTimeout is only 40s",
		"enforceQuota=2":                     `parsing "2"`,
		"sessionRequireClientSASLAuth=true":  "WithSASLUsers",
		"ticktime=2000":                      "it has 4lw.commands.whitelist,",
		"":                                   `WithConfig("")`,
	} {
		_, err := NewServer(WithConfig(setting))
		require.ErrorContains(t, err, says, setting)
	}
	for _, opt := range []Option{WithAddr("256.0.0.1:0"), WithAddr("127.0.0.1:0", "127.0.0.1:0"), WithVersion("3.9")} {
		_, err := NewServer(opt)
		require.Error(t, err)
	}
	_, err := NewEnsemble(3, WithAddr("127.0.0.1:0"))
	require.Error(t, err)
}
