package zktest_test

// Attacks the four-letter words: the whitelist, the responses that go-zookeeper parses, and the
// start of each count.

import (
	"io"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

func TestWords(t *testing.T) {
	srv := Start(t, WithConfig("4lw.commands.whitelist=*"))
	conn := connect(t, srv, 10*time.Second)
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, _, _, err = conn.ChildrenW("/")
	require.NoError(t, err)
	for word, want := range map[string]string{
		"ruok": "imok", "isro": "rw", "mntr": "zk_watch_count\t1\n", "srvr": "Mode: standalone", "dump": "\t/e\n",
		"envi": "zookeeper.version=3.9.6", "cons": "sid=0x", "stat": "Clients:",
		"conf": "tickTime=2000", "wchs": "0 connections watching 0 paths\nTotal watches:0\n", "nope": "",
	} {
		answer, err := rawzk.Word(srv.Addr(), word)
		require.NoError(t, err)
		require.Contains(t, answer, want, word)
	}
	_, ok := zk.FLWSrvr([]string{srv.Addr()}, time.Second)
	require.False(t, ok, "go-zookeeper reads it on no server since 3.7, and must not here")
	_, ok = zk.FLWCons([]string{srv.Addr()}, time.Second)
	require.False(t, ok)
	_, ok = zk.FLWSrvr([]string{Start(t, WithVersion("3.8.0-x, built on 01/01/2022 00:00 GMT")).Addr()}, time.Second)
	require.True(t, ok)
	require.Equal(t, []bool{true}, zk.FLWRuok([]string{srv.Addr()}, time.Second))
}

func TestWords_ClientIsDoneSending_IsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n), WithConfig("4lw.commands.whitelist=ruok"))
		nc, err := n.Dial("tcp", srv.Addr(), time.Second)
		require.NoError(t, err)
		_, err = nc.Write([]byte("ruok\n"))
		require.NoError(t, err)
		require.NoError(t, nc.(interface{ CloseWrite() error }).CloseWrite())
		answer, err := io.ReadAll(nc)
		require.NoError(t, err)
		require.Equal(t, "imok", string(answer))
	})
}

// ask sends a word over the network and returns the response.
func ask(t *testing.T, n *Network, srv addressed, word string) string {
	t.Helper()
	nc, err := n.Dial("tcp", srv.Addr(), time.Second)
	require.NoError(t, err)
	defer nc.Close()
	_, err = io.WriteString(nc, word)
	require.NoError(t, err)
	answer, err := io.ReadAll(nc)
	require.NoError(t, err)
	return string(answer)
}

func TestWords_Whitelist(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		bare, some := Start(t, WithNetwork(n)), Start(t, WithNetwork(n), WithConfig("4lw.commands.whitelist=ruok,mntr"))
		require.Contains(t, ask(t, n, bare, "srvr"), "Mode: standalone\n")
		for _, word := range []string{"ruok", "mntr", "stat", "wchs", "srst"} {
			require.Equal(t, word+" is not executed because it is not in the whitelist.\n", ask(t, n, bare, word))
		}
		require.Equal(t, "imok", ask(t, n, some, "ruok"))
		require.Contains(t, ask(t, n, some, "mntr"), "zk_server_state\tstandalone\n")
		require.Contains(t, ask(t, n, some, "srvr"), "Mode: standalone\n")
		require.Contains(t, ask(t, n, some, "cons"), "not in the whitelist")
	})
}

func TestWords_CountSinceTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n), WithConfig("4lw.commands.whitelist=*"))
		srv.Inject(Before(Delete).Once().Delay(40 * time.Millisecond))
		c := raw(t, n, srv, 10*time.Second)
		call(t, c, wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
		call(t, c, wire.OpDelete, wire.PathVersionRequest{Path: "/a", Version: -1})
		for range 6 {
			call(t, c, wire.OpExists, wire.PathWatchRequest{Path: "/a"})
		}
		cons := ask(t, n, srv, "cons")
		require.Contains(t, cons, "(queued=0,recved=9,sent=9,")
		require.Contains(t, cons, "lop=EXIS,")
		require.Contains(t, cons, "llat=0,minlat=0,avglat=4,maxlat=40)")
		c.HangUp()
		require.Contains(t, ask(t, n, srv, "srvr"), "Latency min/avg/max: 0/4.4444/40\nReceived: 11\nSent: 10\n", "the connection is gone, and has been counted")
		mntr := ask(t, n, srv, "mntr")
		for _, line := range []string{
			"packets_received\t12", "avg_latency\t4.4444", "max_latency\t40", "cnt_updatelatency\t3", "p50_updatelatency\t0",
			"p95_updatelatency\t40", "avg_updatelatency\t13.3333", "cnt_readlatency\t6", "p999_readlatency\t0", "connection_request_count\t1",
		} {
			require.Contains(t, mntr, "zk_"+line+"\n")
		}
		require.Equal(t, "Server stats reset.\n", ask(t, n, srv, "srst"))
		require.Contains(t, ask(t, n, srv, "srvr"), "Latency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 1\n")

		c = raw(t, n, srv, 10*time.Second)
		require.Equal(t, "Connection stats reset.\n", ask(t, n, srv, "crst"))
		require.Regexp(t, `recved=0,sent=0,sid=0x[0-9a-f]+,lop=NA,est=\d+,to=10000,lzxid=0xffffffffffffffff,lresp=0,llat=0,`, ask(t, n, srv, "cons"))
		srv.Stop()
		require.NoError(t, srv.Start())
		require.Contains(t, ask(t, n, srv, "srvr"), "Received: 1\nSent: 0\n", "the start is the last one")
		c.HangUp()
	})
}

func TestWords_OfMembers(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		e := StartEnsemble(t, 3, WithNetwork(n), WithConfig("4lw.commands.whitelist=*"))
		time.Sleep(90 * time.Second)
		require.Contains(t, ask(t, n, e.Leader(), "srvr"), "Mode: leader\nNode count: 5\nProposal sizes last/min/max: -1/-1/-1\n")
		mntr := ask(t, n, e.Leader(), "mntr")
		require.Contains(t, mntr, "zk_synced_followers\t2\n")
		require.Contains(t, mntr, "zk_leader_uptime\t90000\n")
		require.Contains(t, mntr, "zk_peer_state\tleading - broadcast\n")
		require.Contains(t, ask(t, n, e.Member(1), "mntr"), "zk_peer_state\tfollowing - broadcast\n")
		require.Contains(t, ask(t, n, e.Member(1), "conf"), "serverId=1\n")
		require.Contains(t, ask(t, n, e.Member(1), "dump"), "Global Sessions(0):\n")
		e.Member(1).Isolate()
		time.Sleep(time.Minute)
		require.Equal(t, "This ZooKeeper instance is not currently serving requests\n", ask(t, n, e.Member(1), "mntr"))
		require.Equal(t, "null", ask(t, n, e.Member(1), "isro"))
		require.Equal(t, "imok", ask(t, n, e.Member(1), "ruok"))
		require.Contains(t, ask(t, n, e.Leader(), "mntr"), "zk_synced_followers\t1\n")
	})
}

// A test reads the words without a connection, whatever the whitelist contains.
func TestWord_NeedsNoConnection(t *testing.T) {
	srv := Start(t)
	require.Equal(t, "imok", srv.Word("ruok"))
	require.Contains(t, srv.Word("mntr"), "zk_num_alive_connections\t0\n")
	require.Contains(t, srv.Word("mntr"), "zk_packets_received\t0\n")
	require.Empty(t, srv.Word("nope"))
	srv.Freeze()
	require.Empty(t, srv.Word("ruok"))
	srv.Thaw()
	require.Equal(t, "imok", srv.Word("ruok"))
	srv.Stop()
	require.Empty(t, srv.Word("ruok"))

	e := StartEnsemble(t, 3)
	require.Contains(t, e.Member(3).Word("srvr"), "Mode: leader\n")
	require.Contains(t, e.Member(1).Word("srvr"), "Mode: follower\n")
}
