package conformance

// These tests attack the features of an ensemble: its configuration, and sessions that move from
// one member to another.

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// TestEnsemble does the same on an ensemble of ours and on a real one, if it is installed.
func TestEnsemble(t *testing.T) {
	e := zktest.StartEnsemble(t, 3, zktest.WithConfig("4lw.commands.whitelist=*"))
	ours := moves(t, e.Addrs()) + config(t, e.Addrs()[0])
	require.Equal(t, `leader, then ping: closed
leader, then exists: closed
leader, then sync: closed
leader, then create: closed, zxid +1
leader, then closeSession: err 0, zxid +1
follower, then ping: err 0
follower, then exists: err 0
follower, then sync: err 0
follower, then create: closed, zxid +1
follower, then closeSession: err 0, zxid +1
server.1=127.0.0.1:N:N:participant
server.2=127.0.0.1:N:N:participant
server.3=127.0.0.1:N:N:participant
version=0; version -1, mzxid 0
`, ours)
	real := zkserver.Ensemble(t, 3)
	require.Equal(t, ours, moves(t, real.Addrs())+config(t, real.Addrs()[0]))
}

// moves returns the frames on the old connection of a session after the session has moved to
// another member.
func moves(t *testing.T, addrs []string) string {
	t.Helper()
	byMode := make(map[string]string)
	for _, addr := range addrs {
		mode, err := zkserver.Mode(addr)
		require.NoError(t, err)
		byMode[mode] = addr
	}
	open := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	var said strings.Builder
	for _, way := range []struct{ from, to string }{{"leader", "follower"}, {"follower", "leader"}} {
		for _, r := range []request{
			{op: wire.OpPing},
			{op: wire.OpExists, body: wire.PathWatchRequest{Path: "/"}},
			{op: wire.OpSync, body: wire.PathRequest{Path: "/"}},
			{op: wire.OpCreate, body: wire.CreateRequest{Path: "/a", ACL: open}},
			{op: wire.OpClose},
		} {
			old := connectTo(t, byMode[way.from], wire.ConnectRequest{Timeout: 30_000})
			moved := connectTo(t, byMode[way.to], wire.ConnectRequest{Timeout: 30_000, SessionID: old.Session.SessionID, Password: old.Session.Password})
			before := zxidNow(t, moved)
			reply, _, err := old.Call(r.op, r.body)
			fmt.Fprintf(&said, "%s, then %v: ", way.from, r.op)
			if err != nil {
				said.WriteString("closed")
			} else {
				fmt.Fprintf(&said, "err %d", reply.Header.Err)
			}
			watcher := connectTo(t, byMode[way.to], wire.ConnectRequest{Timeout: 30_000}) // opening takes a zxid itself
			if more := zxidNow(t, watcher) - before - 1; more != 0 {
				fmt.Fprintf(&said, ", zxid +%d", more)
			}
			said.WriteString("\n")
			for _, c := range []*rawzk.Conn{watcher, moved} {
				c.Call(wire.OpClose, nil) // the session of moved may be over
			}
		}
	}
	return said.String()
}

// zxidNow returns the zxid of the last transaction.
func zxidNow(t *testing.T, c *rawzk.Conn) int64 {
	t.Helper()
	reply, _, err := c.Call(wire.OpSync, wire.PathRequest{Path: "/"})
	require.NoError(t, err)
	return reply.Header.Zxid
}

func connectTo(t *testing.T, addr string, req wire.ConnectRequest) *rawzk.Conn {
	t.Helper()
	c, err := rawzk.Dial(addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.Connect(req))
	require.NotZero(t, c.Session.SessionID)
	return c
}

// The servers of the tests have their client ports in lines of their own, so the ports do not
// appear in the configuration; and the ports of our members have no meaning.
var ports = regexp.MustCompile(`(?m):\d+:\d+:participant.*$`)

func config(t *testing.T, addr string) string {
	t.Helper()
	c := connectTo(t, addr, wire.ConnectRequest{Timeout: 30_000})
	reply, _, err := c.Call(wire.OpGetData, wire.PathWatchRequest{Path: "/zookeeper/config"})
	require.NoError(t, err)
	var r wire.DataResponse
	d := wire.NewDecoder(reply.Body)
	r.Decode(d)
	require.NoError(t, d.Err())
	return fmt.Sprintf("%s; version %d, mzxid %d\n", ports.ReplaceAllString(string(r.Data), ":N:N:participant"), r.Stat.Version, r.Stat.Mzxid)
}
