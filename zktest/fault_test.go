package zktest_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	. "github.com/zklock/zklock/zktest"
)

func TestFault_String_IsHowItIsWritten(t *testing.T) {
	for want, f := range map[string]Fault{
		`After(create).Path("/locks/*").Nth(2).DropReply().Close()`:      After(Create).Path("/locks/*").Nth(2).DropReply().Close(),
		`Before(create).Member(2).Chance(0.1, 7).Fail(throttled (-127))`: Before(Create).Member(2).Chance(0.1, 7).Fail(Throttled),
		`OnEvent(NodeDeleted).Session(0x1f).Once().Drop()`:               OnEvent(NodeDeleted).Session(31).Once().Drop(),
		`Before(any).Times(3).Fail(no auth (-102)).Optional()`:           Before(AnyOp).Times(3).Fail(NoAuth).Optional(),
		`RefuseConnections().Once()`:                                     RefuseConnections().Once(),
		`OnEvent(any).Duplicate().Delay(1s)`:                             OnEvent(AnyEvent).Duplicate().Delay(time.Second),
		`After(multi).Expire().FreezeFor(1m0s)`:                          After(Multi).Expire().FreezeFor(time.Minute),
		`Before(getChildren).Call(func)`:                                 Before(GetChildren).Call(func() {}),
	} {
		require.Equal(t, want, f.String())
	}
}

func TestFault_IsAValue(t *testing.T) {
	base := After(Create).Close()
	one, two := base.DropReply(), base.Delay(time.Second)
	require.Equal(t, "After(create).Close()", base.String())
	require.Equal(t, "After(create).Close().DropReply()", one.String())
	require.Equal(t, "After(create).Close().Delay(1s)", two.String())
}

func TestInject_FaultThatCannotMeanAnything_IsRefused(t *testing.T) {
	tb := &recordingTB{TB: t}
	tested := Start(tb)
	srv, err := NewServer()
	require.NoError(t, err)
	defer srv.Close()
	for _, f := range []Fault{
		{}, After(Create), Before(Create).DropReply(), After(Create).Drop(), OnEvent(NodeDeleted).Fail(NoNode),
		Before(Create).Duplicate(), After(Connect).Duplicate(),
		RefuseConnections().Hold(), Before(Create).Path("[").Close(), Before(Create).Nth(-1).Close(),
		Before(Create).Chance(math.NaN(), 1).Close(), Before(Create).Chance(1.1, 1).Close(),
		Before(Create).Session(0).Close(),
	} {
		tb.errors = nil
		tested.Inject(f)
		require.Len(t, tb.errors, 1, "%v", f)
		refused := srv.Inject(f)
		require.Error(t, refused.Err(), "%v", f)
		require.Equal(t, refused.Err(), refused.Wait(t.Context()))
	}
	tb.errors = nil
	tb.end()
	require.Empty(t, tb.errors, "a fault that was refused is not waited for")
}

// recordingTB is a TB that records its calls.
type recordingTB struct {
	testing.TB
	cleanups []func()
	errors   []string
	logs     []string
}

func (r *recordingTB) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
func (r *recordingTB) Errorf(f string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(f, args...))
}
func (r *recordingTB) Logf(f string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(f, args...))
}
func (r *recordingTB) Fatalf(f string, args ...any) { r.Errorf(f, args...) }
func (r *recordingTB) Failed() bool                 { return len(r.errors) > 0 }
func (r *recordingTB) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func TestStart_FaultThatNeverFired_FailsTheTest(t *testing.T) {
	tb := &recordingTB{TB: t}
	srv := Start(tb)
	srv.Inject(After(Create).Close())
	srv.Inject(After(Delete).Close().Optional())
	tb.end()
	require.Equal(t, []string{"zktest: After(create).Close() never fired"}, tb.errors)
}

func TestInject_RandomSeed_IsLogged(t *testing.T) {
	tb := &recordingTB{TB: t}
	srv := Start(tb)
	i := srv.Inject(Before(Exists).Chance(0.1, 0).Fail(Throttled))
	srv.Inject(Before(Exists).Chance(0.1, 7).Fail(Throttled))
	tb.end()
	require.Equal(t, []string{"zktest: seed of " + i.String()}, tb.logs)
	require.NotContains(t, i.String(), ", 0)")
}

// injector is a server or a proxy.
type injector interface{ Inject(Fault) *Injection }

// struck runs a test twice, in virtual time: the faults apply in the server, and in a proxy before
// it.
func struck(t *testing.T, test func(t *testing.T, srv *Server, at injector, conn *zk.Conn, events <-chan zk.Event)) {
	t.Run("server", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *Network) {
			srv := Start(t, WithNetwork(n))
			conn, events := connectEvents(t, srv.Addr(), 10*time.Second, dialing(n))
			synctest.Wait() // until go-zookeeper has restored its watches: it must not find those below
			test(t, srv, srv, conn, events)
		})
	})
	t.Run("proxy", func(t *testing.T) {
		behindProxy(t, func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, events <-chan zk.Event) {
			test(t, srv, p, conn, events)
		})
	})
}

// behindProxy runs a test with a server, a proxy before it, and a client of the proxy, in virtual
// time.
func behindProxy(t *testing.T, test func(t *testing.T, srv *Server, p *Proxy, conn *zk.Conn, events <-chan zk.Event)) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		p := StartProxy(t, srv.Addr(), WithNetwork(n))
		conn, events := connectEvents(t, p.Addr(), 10*time.Second, dialing(n))
		synctest.Wait() // as above
		test(t, srv, p, conn, events)
	})
}

func TestFault_ReplyToCreateLost_NodeExistsAndClientIsNotNotified(t *testing.T) {
	struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, _ <-chan zk.Event) {
		require.NoError(t, create(conn, "/locks"))
		lost := at.Inject(After(Create).Path("/locks/*").Nth(2).DropReply().Close())
		require.NoError(t, create(conn, "/locks/a"))
		require.ErrorIs(t, create(conn, "/locks/b"), zk.ErrConnectionClosed)
		require.Equal(t, []string{"a", "b"}, srv.Children("/locks"))
		require.Equal(t, 1, lost.Fired())
		clientPauses()
		require.NoError(t, create(conn, "/locks/c"))
	})
}

func TestFault_CutBefore_NothingIsDone(t *testing.T) {
	struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, _ <-chan zk.Event) {
		at.Inject(Before(Create).Once().Close())
		zxid := srv.Zxid()
		require.ErrorIs(t, create(conn, "/a"), zk.ErrConnectionClosed)
		require.Equal(t, zxid, srv.Zxid())
		require.Nil(t, srv.Children("/a"))
		clientPauses()
		require.NoError(t, create(conn, "/a"))
	})
}

func TestFault_FailBeforeAndAfter(t *testing.T) {
	struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, _ <-chan zk.Event) {
		at.Inject(Before(Create).Path("/before").Fail(NoAuth))
		at.Inject(After(Create).Path("/after").Fail(NodeExists))
		require.ErrorIs(t, create(conn, "/before"), zk.ErrNoAuth)
		require.ErrorIs(t, create(conn, "/after"), zk.ErrNodeExists)
		require.Nil(t, srv.Children("/before"))
		require.NotNil(t, srv.Children("/after"))
		require.NoError(t, create(conn, "/other"))
	})
}

func TestFault_Delay_TakesThatLongAndKeepsOrder(t *testing.T) {
	for name, f := range map[string]Fault{
		"before": Before(Create).Once().Delay(2 * time.Second),
		"after":  After(Create).Once().Delay(2 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, _ <-chan zk.Event) {
				at.Inject(f)
				start := time.Now()
				first := make(chan error, 1)
				go func() { first <- create(conn, "/a") }()
				synctest.Wait()
				_, applied := srv.Get("/a")
				require.Equal(t, name == "after", applied)
				require.NoError(t, create(conn, "/b")) // waits behind /a
				require.Equal(t, 2*time.Second, time.Since(start))
				require.NoError(t, <-first)
			})
		})
	}
}

func TestFault_Hold_UntilRelease(t *testing.T) {
	struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, _ <-chan zk.Event) {
		held := at.Inject(Before(Create).Hold())
		done := make(chan error, 1)
		go func() { done <- create(conn, "/a") }()
		require.NoError(t, held.Wait(context.Background()))
		synctest.Wait()
		require.Nil(t, srv.Children("/a"))
		held.Release()
		require.NoError(t, <-done)
		require.NoError(t, create(conn, "/b"), "after Release nothing is held")
	})
}

func TestFault_FreezeFor_IsShortEnoughToSurvive(t *testing.T) {
	struck(t, func(t *testing.T, _ *Server, at injector, conn *zk.Conn, _ <-chan zk.Event) {
		at.Inject(After(Create).Once().FreezeFor(2 * time.Second))
		start := time.Now()
		require.NoError(t, create(conn, "/a"))
		require.NoError(t, create(conn, "/b"))
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestFault_Events_DroppedDoubledDelayed(t *testing.T) {
	struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, events <-chan zk.Event) {
		for _, p := range []string{"/drop", "/twice", "/late", "/cut"} {
			require.NoError(t, create(conn, p))
			_, _, _, err := conn.GetW(p)
			require.NoError(t, err)
		}
		at.Inject(OnEvent(NodeDeleted).Path("/drop").Drop())
		at.Inject(OnEvent(AnyEvent).Path("/twice").Duplicate())
		at.Inject(OnEvent(NodeDeleted).Path("/late").Delay(2 * time.Second))
		at.Inject(OnEvent(NodeDeleted).Path("/cut").Once().Close())
		drain(events)

		require.NoError(t, srv.Delete("/drop"))
		synctest.Wait()
		require.Empty(t, events)

		require.NoError(t, srv.Delete("/twice"))
		synctest.Wait()
		require.Len(t, drain(events), 2)

		start := time.Now()
		require.NoError(t, srv.Delete("/late"))
		require.Equal(t, zk.EventNodeDeleted, (<-events).Type)
		require.Equal(t, 2*time.Second, time.Since(start))

		require.NoError(t, srv.Delete("/cut"))
		await(t, events, zk.StateDisconnected)
	})
}

func TestFault_ReplyTwice_ClientTakesNoNoticeOfTheSecond(t *testing.T) {
	struck(t, func(t *testing.T, _ *Server, at injector, conn *zk.Conn, _ <-chan zk.Event) {
		twice := at.Inject(After(Create).Path("/twice").Duplicate())
		require.NoError(t, create(conn, "/twice"))
		require.Equal(t, 1, twice.Fired())
		for range 3 {
			_, _, err := conn.Get("/twice")
			require.NoError(t, err)
		}
	})
}

func TestFault_Expire_AtTheMoment(t *testing.T) {
	struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, events <-chan zk.Event) {
		id := conn.SessionID()
		at.Inject(After(Create).Path("/e").Once().Expire())
		_, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err, "the reply comes first")
		await(t, events, zk.StateExpired)
		await(t, events, zk.StateHasSession)
		require.NotEqual(t, id, conn.SessionID())
		require.Nil(t, srv.Children("/e"))
	})
}

func TestFault_RefuseAndStall(t *testing.T) {
	struck(t, func(t *testing.T, srv *Server, at injector, conn *zk.Conn, events <-chan zk.Event) {
		refused := at.Inject(RefuseConnections().Times(2))
		stalled := at.Inject(Before(Connect).Hold().Once())
		require.True(t, srv.DropConnection(conn.SessionID()))
		await(t, events, zk.StateDisconnected)
		require.NoError(t, stalled.Wait(t.Context()))
		require.Equal(t, 2, refused.Fired())
		time.Sleep(time.Second)
		require.NotEqual(t, zk.StateHasSession, conn.State())
		stalled.Release()
		await(t, events, zk.StateHasSession)
	})
}

func create(conn *zk.Conn, path string) error {
	_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	return err
}

func TestInjection_Wait_EndsWithTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := srv.Inject(Before(Create).Hold().Optional()).Wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func drain(events <-chan zk.Event) (all []zk.Event) {
	for {
		select {
		case ev := <-events:
			all = append(all, ev)
		default:
			return all
		}
	}
}

func TestFault_Call_MayUseTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		conn := connect(t, srv, 10*time.Second, dialing(n))
		srv.Inject(Before(Create).Path("/a").Once().Call(func() {
			if _, err := srv.Create("/a", nil, 0); err != nil {
				t.Error(err)
			}
		}))
		require.ErrorIs(t, create(conn, "/a"), zk.ErrNodeExists)
	})
}

func TestFault_Call_MayStopTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		conn := connect(t, srv, 10*time.Second, dialing(n))
		srv.Inject(After(Create).Path("/a").Once().Call(srv.Stop))
		require.ErrorIs(t, create(conn, "/a"), zk.ErrConnectionClosed)
		require.NotNil(t, srv.Children("/a"), "it was done before")
		srv.Inject(Before(Create).Path("/b").Once().Call(srv.Stop))
		require.NoError(t, srv.Start())
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, create(conn, "/b"), zk.ErrConnectionClosed)
		require.Nil(t, srv.Children("/b"))
	})
}

func TestFreeze_NothingIsAnswered_AndThawExpiresFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		_, events := connectEvents(t, srv.Addr(), 10*time.Second, dialing(n))
		srv.Freeze()
		time.Sleep(15 * time.Second)
		require.Len(t, srv.Sessions(), 1)
		srv.Thaw()
		await(t, events, zk.StateExpired)
		await(t, events, zk.StateHasSession)
		require.Len(t, srv.Sessions(), 1, "the new one")
	})
}

func TestMoveSession_NextWriteIsNotDone(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		conn := connect(t, srv, 10*time.Second, dialing(n))
		id := conn.SessionID()
		require.True(t, srv.MoveSession(id))
		_, _, err := conn.Exists("/")
		require.NoError(t, err, "reads do not ask the leader")
		require.ErrorIs(t, create(conn, "/a"), zk.ErrConnectionClosed)
		clientPauses()
		require.NoError(t, create(conn, "/a"))
		require.Equal(t, id, conn.SessionID())
	})
}

func TestFault_PathPatterns(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		conn := connect(t, srv, 10*time.Second, dialing(n))
		deep := srv.Inject(After(Create).Path("/a/**").Delay(time.Nanosecond))
		flat := srv.Inject(After(Create).Path("/a/*").Delay(time.Nanosecond))
		inMulti := srv.Inject(Before(Multi).Path("/a/b").Delay(time.Nanosecond))
		for _, p := range []string{"/a", "/a/b", "/a/b/c", "/ab"} {
			require.NoError(t, create(conn, p))
		}
		_, err := conn.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1}, &zk.CheckVersionRequest{Path: "/a/b", Version: -1})
		require.NoError(t, err)
		require.Equal(t, 2, deep.Fired())
		require.Equal(t, 1, flat.Fired())
		require.Equal(t, 1, inMulti.Fired())
	})
}
