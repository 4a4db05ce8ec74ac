package zklock_test

// These tests delete the lock root: it is recreated.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// wipe deletes a node and all below it, as an admin does.
func wipe(srv *zktest.Server, path string) {
	for _, name := range srv.Children(path) {
		wipe(srv, path+"/"+name)
	}
	_ = srv.Delete(path) // it need not be there
}

// F26, R5, R12, R58, I1, I3: the lock root is deleted with all nodes below it, before and after
// each request of an acquire. The acquire continues and is granted, on an existing node, with a
// larger token; if the node is deleted later, its holder is notified.
func TestVirtual_LockRootDeleted_AtEveryRequest(t *testing.T) {
	cases := 0
	for _, c := range []struct {
		name   string
		lock   string
		top    string // the node that is deleted
		used   bool   // the lock root exists and has been used, so create and list are sent together
		queued bool   // another client holds
	}{
		{"never used", "/new/a/lock", "/new", false, false},
		{"free", "/job", "/job", true, false},
		{"taken", "/job", "/job", true, true},
	} {
		for _, when := range []func(zktest.Op) zktest.Fault{zktest.Before, zktest.After} {
			for nth, again := 1, true; again; nth++ {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					v.net.SetLatency(time.Millisecond)
					s := v.connect()
					m := newMutex(t, s, c.lock)
					last := int64(0)
					if c.used {
						h := acquire(t, m)
						last = h.Token()
						release(t, h)
					}
					var ahead *zklock.Hold
					if c.queued {
						ahead = acquire(t, newMutex(t, v.connect(), c.lock))
						last = ahead.Token()
					}
					gone := v.srv.Inject(when(zktest.AnyOp).Session(s.Stats().SessionID).Nth(nth).Call(func() { wipe(v.srv, c.top) }).Optional())
					w := v.queueUp(m)
					time.Sleep(2500 * time.Millisecond)
					if ahead != nil {
						if err := ahead.Release(within(t, soon)); err != nil {
							require.ErrorIs(t, err, zklock.ErrLost)
							require.Positive(t, gone.Fired())
						}
					}
					h := w.granted2(t, 2*time.Second)
					time.Sleep(2500 * time.Millisecond) // requests of a hold, too
					again = gone.Fired() > 0
					gone.Remove()
					time.Sleep(1500 * time.Millisecond) // a heartbeat detects it
					require.Greater(t, h.Token(), last, "%s, %v: I1", c.name, gone)
					st, there := v.srv.Stat(h.Node())
					require.Equal(t, there, h.Err() == nil, "%s, %v: %v", c.name, gone, h.Err())
					if there {
						require.Equal(t, s.Stats().SessionID, st.EphemeralOwner, "I3")
						require.Equal(t, st.Czxid, h.Token())
						release(t, h)
					} else {
						require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
					}
					release(t, acquire(t, m))
					require.Empty(t, v.srv.Children(c.lock), "I4")
				})
				cases++
			}
		}
	}
	require.Greater(t, cases, 30, "each request was to be hit")
	t.Logf("%d cases", cases)
}

func TestContainerRoot(t *testing.T) {
	server := startOwn(t, serverConfig{containerCheck: 50 * time.Millisecond})
	srv := server.Addr()
	a := admin(t, srv)
	m := newMutex(t, connect(t, srv), "/job", zklock.WithContainer())
	if isBefore(t, srv, "3.5") {
		// There are no containers yet. The lock root is a persistent node.
		release(t, acquire(t, m))
		release(t, acquire(t, m))
		there, _, err := a.Exists("/job")
		require.NoError(t, err)
		require.True(t, there)
		return
	}
	var token int64
	for range 3 { // F26: reaped in between
		h := acquire(t, m)
		require.Greater(t, h.Token(), token)
		token = h.Token()
		release(t, h)
		eventually(t, "the container is reaped", func() bool { ok, _, err := a.Exists("/job"); return err == nil && !ok })
	}
}

// F28: the lock root is a container, however its first create fails: it is deleted when no client
// uses it. A persistent node, which is never deleted, is created only if the servers do not support
// containers.
func TestVirtual_ContainerRoot_CreateFails_IsAContainer(t *testing.T) {
	const ok = zktest.Code(0)
	for _, code := range []zktest.Code{ok, zktest.Throttled, zktest.OperationTimeout, unimplemented} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			for _, fails := range []zktest.Fault{
				zktest.Before(createContainerOp).Fail(code), zktest.Before(zktest.Multi).Path("/job/order/*").Fail(code),
			} {
				switch code {
				case ok:
				case unimplemented:
					v.srv.Inject(fails)
				default:
					v.srv.Inject(fails.Times(2).Optional())
				}
			}
			v.srv.ResetRequests()
			h := acquire(t, newMutex(t, s, "/job/order", zklock.WithContainer()))
			permit := take(t, newSemaphore(t, s, "/job/sem", 1, zklock.WithContainer()).Permits(1))
			if code == ok {
				require.Equal(t, 5, v.srv.Requests().Of(s.Stats().SessionID, zktest.Create), "three containers, and the semaphore's node, twice")
			}
			release(t, permit)
			release(t, h)
			time.Sleep(time.Minute)
			for _, path := range []string{"/job/order", "/job/sem", "/job/sem/locks", "/job/sem/leases"} {
				_, stays := v.srv.Stat(path)
				require.Equal(t, code == unimplemented, stays, "%v: %s", code, path)
			}
		}, zktest.WithConfig("znode.container.checkIntervalMs=1000"))
	}
}
