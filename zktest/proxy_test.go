package zktest_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	. "github.com/zklock/zklock/zktest"
)

func TestProxy_Freeze_NothingPasses(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, _ <-chan zk.Event) {
		done := make(chan error, 1)
		p.Freeze()
		go func() { done <- create(conn, "/later") }()
		synctest.Wait()
		require.Nil(t, srv.Children("/later"))
		p.Thaw()
		require.NoError(t, <-done)
	})
}

func TestProxy_OnFrame_ShowsEveryFrameInOrder(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, events <-chan zk.Event) {
		var mu sync.Mutex
		var seen []string
		var faults []Fault
		p.OnFrame(func(f Frame) {
			mu.Lock()
			defer mu.Unlock()
			if f.Session != conn.SessionID() || f.Time.IsZero() {
				t.Errorf("%+v", f)
			}
			seen = append(seen, f.String())
			faults = append(faults, f.Moment().Once().Close())
		})
		path, err := conn.Create("/n-", nil, zk.FlagSequence, open)
		require.NoError(t, err)
		_, _, _, err = conn.GetW(path)
		require.NoError(t, err)
		require.NoError(t, conn.Delete(path, -1))
		require.ErrorIs(t, conn.Delete(path, -1), zk.ErrNoNode)
		p.OnFrame(nil)
		require.NoError(t, create(conn, "/not-shown"))
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{
			"create /n-", "reply to create /n- /n-0000000000",
			"getData /n-0000000000", "reply to getData /n-0000000000",
			"delete /n-0000000000", "NodeDeleted /n-0000000000", "reply to delete /n-0000000000",
			"delete /n-0000000000", "reply to delete /n-0000000000: no node (-101)",
		}, seen)
		require.Equal(t, []string{"Before(create).Once().Close()", "After(create).Once().Close()"}, []string{faults[0].String(), faults[1].String()})
		require.Equal(t, "OnEvent(NodeDeleted).Once().Close()", faults[5].String())
	})
}

func TestProxy_OverTCP_PassesEverythingElse(t *testing.T) {
	srv := Start(t, WithConfig("4lw.commands.whitelist=ruok"))
	p := StartProxy(t, srv.Addr())
	word, err := rawzk.Word(p.Addr(), "ruok")
	require.NoError(t, err)
	require.Equal(t, "imok", word)
	conn, events := connectEvents(t, p.Addr(), 10*time.Second)
	require.NoError(t, create(conn, "/a"))
	require.NoError(t, conn.AddAuth("digest", []byte("u:p")))
	_, _, gone, err := conn.GetW("/a")
	require.NoError(t, err)
	_, err = conn.Multi(&zk.SetDataRequest{Path: "/a", Data: make([]byte, 100_000), Version: -1})
	require.NoError(t, err)
	require.Equal(t, zk.EventNodeDataChanged, (<-gone).Type)
	data, _, err := conn.Get("/a")
	require.NoError(t, err)
	require.Len(t, data, 100_000)

	require.NoError(t, ExpireSession(srv.Addr(), conn.SessionID()))
	await(t, events, zk.StateExpired)
}

func TestProxy_NoServer_ClosesConnections(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		p := StartProxy(t, "192.0.2.99:2181", WithNetwork(n))
		nc, err := n.Dial("tcp", p.Addr(), time.Second)
		require.NoError(t, err)
		_, err = nc.Read(make([]byte, 1))
		require.Error(t, err)
		nc.Close()
	})
}

// Its client can re-attach to the session at the same moment, which closes our connection before
// the first reply.
func TestExpireSession_ConnectionClosedWithoutAnswer_TriesAgain(t *testing.T) {
	srv := Start(t)
	conn := connect(t, srv, 10*time.Second)
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, open)
	require.NoError(t, err)
	p := StartProxy(t, srv.Addr())
	p.Inject(RefuseConnections().Times(3))
	require.NoError(t, ExpireSession(p.Addr(), conn.SessionID()))
	require.Nil(t, srv.Children("/e"))
}
