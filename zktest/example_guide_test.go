package zktest_test

// The tests that docs/testing.md shows, so that its code compiles and passes. They use only the
// standard library, go-zookeeper and zktest.

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/zktest"
)

func TestGuide_Start(t *testing.T) {
	srv := zktest.Start(t) // a free port of 127.0.0.1; closed at the end of the test
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/config", []byte("v1"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if data, ok := srv.Get("/config"); !ok || string(data) != "v1" {
		t.Errorf("the server has %q", data)
	}
}

// inBubble runs a test in virtual time, with a network, a server and a function that opens clients.
func inBubble(t *testing.T, test func(t *testing.T, network *zktest.Network, srv *zktest.Server, dial func() *zk.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork() // in the bubble, like everything that waits
		srv := zktest.Start(t, zktest.WithNetwork(network))
		test(t, network, srv, func() *zk.Conn {
			conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(network.Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close) // no goroutine may be left when the bubble ends
			synctest.Wait()       // until the client is connected
			return conn
		})
	})
}

func TestGuide_VirtualTime(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *zktest.Network, srv *zktest.Server, dial func() *zk.Conn) {
		conn := dial()
		if _, err := conn.Create("/here", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour) // pings keep the session; this takes milliseconds
		if len(srv.Sessions()) != 1 {
			t.Errorf("sessions: %v", srv.Sessions())
		}
		began := time.Now()
		_, _, gone, err := dial().ExistsW("/here")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		<-gone
		t.Logf("gone after %v", time.Since(began))
	})
}

func TestGuide_ReplyLost(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *zktest.Network, srv *zktest.Server, dial func() *zk.Conn) {
		conn := dial()
		// The server creates the node. The reply is lost, and so is the connection.
		srv.Inject(zktest.After(zktest.Create).Path("/job").Once().DropReply().Close())
		if _, err := conn.Create("/job", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("the client got %v", err)
		}
		time.Sleep(2 * time.Second) // the client connects again after a pause of one second, and fails earlier requests
		// How does the code under test handle a second attempt that fails because the node exists?
		if _, err := conn.Create("/job", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrNodeExists) {
			t.Error(err)
		}
	})
}

func TestGuide_OneClient(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *zktest.Network, srv *zktest.Server, dial func() *zk.Conn) {
		slow, fast := dial(), dial()
		for _, conn := range []*zk.Conn{fast, slow} {
			if _, _, err := conn.Exists("/"); err != nil { // before it, SessionID may return 0
				t.Fatal(err)
			}
		}
		srv.Inject(zktest.Before(zktest.Exists).Session(slow.SessionID()).Delay(time.Second))
		srv.Inject(zktest.Before(zktest.GetData).Chance(0.1, 0).Fail(zktest.Throttled)) // logs the seed, for Chance(0.1, 7416…)
		began := time.Now()
		for _, conn := range []*zk.Conn{fast, slow} {
			if _, _, err := conn.Exists("/job"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("two requests took %v", took)
		}
	})
}

func TestGuide_HoldAndRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *zktest.Network, srv *zktest.Server, dial func() *zk.Conn) {
		slow, other := dial(), dial()
		held := srv.Inject(zktest.Before(zktest.SetData).Path("/job").Once().Hold())
		if _, err := slow.Create("/job", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() {
			_, err := slow.Set("/job", []byte("slow"), 0)
			result <- err
		}()
		if err := held.Wait(t.Context()); err != nil { // the request has arrived and waits
			t.Fatal(err)
		}
		if _, err := other.Set("/job", []byte("other"), 0); err != nil { // is executed before it
			t.Fatal(err)
		}
		held.Release()
		if err := <-result; !errors.Is(err, zk.ErrBadVersion) {
			t.Error(err)
		}
	})
}

func TestGuide_ExpireNow(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *zktest.Network, srv *zktest.Server, dial func() *zk.Conn) {
		conn := dial()
		if _, err := conn.Create("/here", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		before := conn.SessionID()
		srv.ExpireSession(before) // deletes its ephemeral nodes and closes its connection
		if _, ok := srv.Get("/here"); ok {
			t.Error("the node outlived its session")
		}
		time.Sleep(10 * time.Second) // the client is notified when it reconnects, and gets a new session
		if after := conn.SessionID(); after == before || len(srv.Sessions()) != 1 {
			t.Errorf("session %#x after %#x", after, before)
		}
	})
}

func TestGuide_SilentClient(t *testing.T) {
	inBubble(t, func(t *testing.T, network *zktest.Network, srv *zktest.Server, dial func() *zk.Conn) {
		conn := dial()
		if _, err := conn.Create("/here", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		network.Partition(srv.Addr()) // nothing arrives any more, and no connection is closed
		time.Sleep(13 * time.Second)  // longer than the session timeout of 10 s and a tick
		if _, ok := srv.Get("/here"); ok {
			t.Error("the session is alive")
		}
		network.Heal(srv.Addr())
	})
}

func TestGuide_Inspect(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *zktest.Network, srv *zktest.Server, dial func() *zk.Conn) {
		conn := dial()
		srv.ResetRequests()
		if _, err := conn.Create("/config", []byte("v1"), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := conn.GetW("/config"); err != nil {
			t.Fatal(err)
		}
		if n := srv.Requests().Total(); n != 2 {
			t.Errorf("%d requests: %v", n, srv.Requests()) // a request budget
		}
		if ws := srv.Watches("/config"); len(ws) != 1 || ws[0].Session != conn.SessionID() {
			t.Errorf("watches: %v", ws) // nothing piles up
		}
		for _, a := range srv.History() { // each change with its session, zxid and time; ACLs, too
			if a.Kind == zktest.Created && a.Session != conn.SessionID() {
				t.Errorf("another session: %v", a)
			}
		}
	})
}

// withEnsemble is inBubble with three servers, and with clients of the named servers.
func withEnsemble(t *testing.T, test func(t *testing.T, ensemble *zktest.Ensemble, dial func(addrs ...string) *zk.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		ensemble := zktest.StartEnsemble(t, 3, zktest.WithNetwork(network))
		test(t, ensemble, func(addrs ...string) *zk.Conn {
			conn, _, err := zk.Connect(addrs, 10*time.Second, zk.WithDialer(network.Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			return conn
		})
	})
}

func TestGuide_StaleRead(t *testing.T) {
	withEnsemble(t, func(t *testing.T, ensemble *zktest.Ensemble, dial func(addrs ...string) *zk.Conn) {
		follower := ensemble.Member(1) // the last member leads at first
		reader, writer := dial(follower.Addr()), dial(ensemble.Leader().Addr())
		if _, err := writer.Create("/config", []byte("v1"), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		if _, err := reader.Sync("/config"); err != nil { // connect before the lag: a new session is a transaction, too
			t.Fatal(err)
		}
		follower.SetLag(3 * time.Second) // a slow follower: it shows each change 3 s later than the leader
		if _, err := writer.Set("/config", []byte("v2"), -1); err != nil {
			t.Fatal(err)
		}
		if data, _, err := reader.Get("/config"); err != nil || string(data) != "v1" {
			t.Errorf("%s, %v", data, err)
		}
		if _, err := reader.Sync("/config"); err != nil { // waits until the follower has caught up
			t.Fatal(err)
		}
		if data, _, err := reader.Get("/config"); err != nil || string(data) != "v2" {
			t.Errorf("%s, %v", data, err)
		}

		// A follower that is cut off from the leader continues to answer reads, while the session
		// may expire on the other servers.
		follower.Isolate()
		time.Sleep(5 * time.Second)
		if data, _, err := reader.Get("/config"); err != nil || string(data) != "v2" {
			t.Errorf("%s, %v", data, err)
		}
	})
}

func TestGuide_Election(t *testing.T) {
	withEnsemble(t, func(t *testing.T, ensemble *zktest.Ensemble, dial func(addrs ...string) *zk.Conn) {
		conn := dial(ensemble.Addrs()...)
		if _, err := conn.Create("/here", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		deposed := ensemble.Leader()
		deposed.Stop() // all connections close, the other members elect a leader, and sessions survive
		time.Sleep(10 * time.Second)
		if _, ok := ensemble.Get("/here"); !ok || ensemble.Leader() == deposed {
			t.Errorf("leader %v\n%s", ensemble.Leader(), ensemble.Dump())
		}
	})
}

func TestGuide_FrozenMember(t *testing.T) {
	withEnsemble(t, func(t *testing.T, ensemble *zktest.Ensemble, dial func(addrs ...string) *zk.Conn) {
		conn := dial(ensemble.Member(2).Addr())
		ensemble.Member(1).Freeze() // until Thaw
		ensemble.Inject(zktest.Before(zktest.Create).Member(2).Once().FreezeFor(2 * time.Second))
		began := time.Now()
		if _, err := conn.Create("/job", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the create took %v", took)
		}
	})
}

func TestGuide_Nodes(t *testing.T) {
	srv := zktest.Start(t)
	path, err := srv.Create("/queue/item-", []byte("first"), zktest.Sequential, zk.DigestACL(zk.PermRead, "ann", "secret")...)
	if err != nil || path != "/queue/item-0000000000" { // it also creates /queue
		t.Fatal(path, err)
	}
	if err := srv.WaitFor(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if err := srv.WaitSessions(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	srv.Reset() // as new: no nodes, sessions and history
	if len(srv.Children("/queue")) != 0 || len(srv.History()) != 0 {
		t.Error(srv.Dump())
	}
}

func TestGuide_OnFrame(t *testing.T) {
	srv := zktest.Start(t)
	frames := make(chan zktest.Frame, 100)
	srv.OnFrame(func(f zktest.Frame) { frames <- f }) // each request, reply and event
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if request, reply := <-frames, <-frames; request.Op != zktest.Connect || request.Reply || !reply.Reply {
		t.Error(request, reply)
	}
}

func TestGuide_LoadAndRestore(t *testing.T) {
	srv := zktest.Start(t)
	if err := srv.Load(map[string]string{"/config/db": "postgres", "/config/cache": "redis"}); err != nil {
		t.Fatal(err)
	}
	before := srv.Snapshot()
	t.Run("the cache is removed", func(t *testing.T) {
		defer srv.Restore(before)
		if err := srv.Delete("/config/cache"); err != nil {
			t.Fatal(err)
		}
	})
	if names := srv.Children("/config"); len(names) != 2 {
		t.Error(names)
	}
}

func TestGuide_Handle(t *testing.T) {
	srv := zktest.Start(t)
	srv.Handle(func(r zktest.Request) (zktest.Reply, bool) {
		return zktest.Reply{Data: []byte("from the test")}, r.Op == zktest.GetData && r.Path == "/config"
	})
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if data, _, err := conn.Get("/config"); err != nil || string(data) != "from the test" {
		t.Error(string(data), err)
	}
}

// anyServer returns an external ZooKeeper, or else one of ours: the test below does the same on
// both.
func anyServer(t *testing.T) string {
	if addr := os.Getenv("MY_ZOOKEEPER"); addr != "" {
		return addr
	}
	return zktest.Start(t).Addr()
}

func TestGuide_AnyServer(t *testing.T) {
	addr := anyServer(t)
	proxy := zktest.StartProxy(t, addr)
	conn, _, err := zk.Connect([]string{proxy.Addr()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	path, err := conn.Create("/guide-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Inject(zktest.After(zktest.SetData).Path(path).Once().DropReply().Close())
	if _, err := conn.Set(path, []byte("x"), -1); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Error(err)
	}
	if err := zktest.ExpireSession(addr, conn.SessionID()); err != nil {
		t.Fatal(err)
	}
	other, _, err := zk.Connect([]string{addr}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if there, _, err := other.Exists(path); there || err != nil {
		t.Errorf("%s is there: %t, %v", path, there, err)
	}
}
