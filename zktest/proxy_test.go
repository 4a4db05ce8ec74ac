package zktest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	. "github.com/zklock/zklock/zktest"
)

// behindProxy runs a test with a server, a proxy before it, and a client of the proxy, in virtual time.
func behindProxy(t *testing.T, test func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, events <-chan zk.Event)) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		p := StartProxy(t, srv.Addr(), WithNetwork(n))
		conn, events := connectEvents(t, p.Addr(), 10*time.Second, dialing(n))
		test(t, srv, p, conn, events)
	})
}

func TestProxy_ReplyToCreateLost(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, _ <-chan zk.Event) {
		require.NoError(t, create(conn, "/l"))
		lost := p.Inject(After(Create).Path("/l/*").Nth(2).DropReply().Close())
		require.NoError(t, create(conn, "/l/a"))
		require.ErrorIs(t, create(conn, "/l/b"), zk.ErrConnectionClosed)
		require.Equal(t, 1, lost.Fired())
		require.Equal(t, []string{"a", "b"}, srv.Children("/l"))
		clientPauses()
		require.NoError(t, create(conn, "/l/c"))
	})
}

func TestProxy_CutBefore(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, _ <-chan zk.Event) {
		p.Inject(Before(Create).Once().Close())
		require.ErrorIs(t, create(conn, "/a"), zk.ErrConnectionClosed)
		require.Nil(t, srv.Children("/a"))
		clientPauses()
		require.NoError(t, create(conn, "/a"))
	})
}

func TestProxy_FailBeforeAndAfter(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, _ <-chan zk.Event) {
		p.Inject(Before(Create).Path("/before").Fail(NoAuth))
		p.Inject(After(Create).Path("/after").Fail(OperationTimeout))
		require.ErrorIs(t, create(conn, "/before"), zk.ErrNoAuth)
		require.Error(t, create(conn, "/after"))
		require.Nil(t, srv.Children("/before"))
		require.NotNil(t, srv.Children("/after"))
		require.NoError(t, create(conn, "/other"))
	})
}

func TestProxy_DelayHoldFreeze(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, _ <-chan zk.Event) {
		p.Inject(After(Create).Path("/slow").Delay(2 * time.Second))
		start := time.Now()
		require.NoError(t, create(conn, "/slow"))
		require.Equal(t, 2*time.Second, time.Since(start))

		held := p.Inject(Before(Delete).Hold())
		done := make(chan error, 1)
		go func() { done <- conn.Delete("/slow", -1) }()
		require.NoError(t, held.Wait(context.Background()))
		synctest.Wait()
		require.NotNil(t, srv.Children("/slow"))
		held.Release()
		require.NoError(t, <-done)

		p.Inject(Before(Create).Path("/frozen").FreezeFor(3 * time.Second))
		start = time.Now()
		require.NoError(t, create(conn, "/frozen"))
		require.Equal(t, 3*time.Second, time.Since(start))
		p.Freeze()
		go func() { done <- create(conn, "/later") }()
		synctest.Wait()
		require.Nil(t, srv.Children("/later"))
		p.Thaw()
		require.NoError(t, <-done)
	})
}

func TestProxy_Events(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, events <-chan zk.Event) {
		for _, path := range []string{"/drop", "/twice", "/cut"} {
			require.NoError(t, create(conn, path))
			_, _, _, err := conn.GetW(path)
			require.NoError(t, err)
		}
		drain(events)
		p.Inject(OnEvent(NodeDeleted).Path("/drop").Drop())
		p.Inject(OnEvent(NodeDeleted).Path("/twice").Duplicate())
		p.Inject(OnEvent(AnyEvent).Path("/cut").Once().Close())
		require.NoError(t, srv.Delete("/drop"))
		require.NoError(t, srv.Delete("/twice"))
		synctest.Wait()
		require.Len(t, drain(events), 2)
		require.NoError(t, srv.Delete("/cut"))
		await(t, events, zk.StateDisconnected)
	})
}

// replyTwice has the reply to a create sent twice: the client takes no notice of the second.
func replyTwice(t *testing.T, conn *zk.Conn, inject func(Fault) *Injection) {
	twice := inject(After(Create).Path("/twice").Duplicate())
	require.NoError(t, create(conn, "/twice"))
	require.Equal(t, 1, twice.Fired())
	for range 3 {
		_, _, err := conn.Get("/twice")
		require.NoError(t, err)
	}
}

func TestProxy_ReplyTwice(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, _ <-chan zk.Event) {
		replyTwice(t, conn, p.Inject)
	})
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		replyTwice(t, connect(t, srv, 10*time.Second, dialing(n)), srv.Inject)
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

func TestProxy_Expire(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, events <-chan zk.Event) {
		id := conn.SessionID()
		p.Inject(After(Create).Path("/e").Once().Expire())
		_, err := conn.Create("/e", nil, zk.FlagEphemeral, open)
		require.NoError(t, err)
		await(t, events, zk.StateExpired)
		await(t, events, zk.StateHasSession)
		require.NotEqual(t, id, conn.SessionID())
		require.Nil(t, srv.Children("/e"))
	})
}

func TestProxy_RefuseStallAndDrop(t *testing.T) {
	behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, events <-chan zk.Event) {
		refused := p.Inject(RefuseConnections().Times(2))
		stalled := p.Inject(StallHandshake().Once())
		p.CloseConnections()
		await(t, events, zk.StateDisconnected)
		require.NoError(t, stalled.Wait(t.Context()))
		require.Equal(t, 2, refused.Fired())
		stalled.Release()
		await(t, events, zk.StateHasSession)
	})
}

func TestProxy_OverTCP_PassesEverythingElse(t *testing.T) {
	srv := Start(t)
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

func TestExpireSession_OverTCP(t *testing.T) {
	srv := Start(t)
	conn, events := connectEvents(t, srv.Addr(), 10*time.Second)
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, open)
	require.NoError(t, err)
	require.NoError(t, ExpireSession(srv.Addr(), conn.SessionID()))
	require.Nil(t, srv.Children("/e"), "gone when ExpireSession returns")
	await(t, events, zk.StateExpired)
	require.NoError(t, ExpireSession(srv.Addr(), 0x7777), "one that never was is gone")
	require.Error(t, ExpireSession(srv.Addr(), 0))
	require.Error(t, ExpireSession("127.0.0.1:1", 1))
}

// Its client can take the session back at the very moment, which closes our connection before the first answer.
func TestExpireSession_ConnectionClosedWithoutAnswer_TriesAgain(t *testing.T) {
	srv := Start(t)
	conn := connect(t, srv, 10*time.Second)
	_, err := conn.Create("/e", nil, zk.FlagEphemeral, open)
	require.NoError(t, err)
	p := StartProxy(t, srv.Addr())
	p.Inject(RefuseConnections().Times(3))
	require.NoError(t, ExpireSession(p.Addr(), conn.SessionID()))
	require.Nil(t, srv.Children("/e"))

	p.Inject(RefuseConnections())
	require.ErrorContains(t, ExpireSession(p.Addr(), conn.SessionID()), "without an answer")
}
