package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
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

// F26, R5, R12, R58, I1, I3: the lock root goes, with all that is below it, at each request of an acquire in turn, before
// and after it was done. The acquire goes on and is granted, on a node that is there, with a larger token; if the node
// goes later, its holder is told.
func TestVirtual_LockRootDeleted_AtEveryRequest(t *testing.T) {
	cases := 0
	for _, c := range []struct {
		name   string
		lock   string
		top    string // what is deleted
		used   bool   // the lock root is there and known, so that create and list go out together
		queued bool   // somebody else holds
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
					gone := v.srv.Inject(when(zktest.AnyOp).Session(s.SessionID()).Nth(nth).Call(func() { wipe(v.srv, c.top) }).Optional())
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
					time.Sleep(1500 * time.Millisecond) // a heartbeat tells
					require.Greater(t, h.Token(), last, "%s, %v: I1", c.name, gone)
					st, there := v.srv.Stat(h.Path())
					require.Equal(t, there, h.Err() == nil, "%s, %v: %v", c.name, gone, h.Err())
					if there {
						require.Equal(t, s.SessionID(), st.EphemeralOwner, "I3")
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

// R26, R23, R25, R31, I4: below a chroot, what is left to be cleaned up is cleaned up there, and nowhere else.
func TestVirtual_Chroot_CleansUp(t *testing.T) {
	const root = "/team/app/job"
	for _, c := range []struct {
		name  string
		fault zktest.Fault
		ends  bool // the caller's context, at the fault
	}{
		{"the reply to the create is lost", zktest.After(zktest.Create).Path(root + "/*").DropReply().Close().Once(), false},
		{"the same, and nobody waits any more", zktest.After(zktest.Create).Path(root + "/*").DropReply().Close().Once(), true},
		{"nobody waits any more when the create is done", zktest.After(zktest.Create).Path(root + "/*").Once(), true},
		{"the list is refused", zktest.Before(zktest.GetChildren).Path(root).Fail(zktest.NoAuth), false},
		{"deletes fail", zktest.Before(zktest.Delete).Path(root + "/*").Fail(zktest.OperationTimeout).Times(3), false},
		{"the reply to the delete is lost", zktest.After(zktest.Delete).Path(root + "/*").DropReply().Close().Once(), false},
		{"the lock root goes", zktest.After(zktest.Create).Path(root + "/*").Once(), false},
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			s := connect(t, v.srv.Addr()+"/team/app", zklock.WithDialer(v.net.Dial))
			m := newMutex(t, s, "/job")
			release(t, acquire(t, m))
			ctx, cancel := context.WithCancel(within(t, time.Minute))
			defer cancel()
			fault := c.fault
			switch {
			case c.ends:
				fault = fault.Call(cancel)
			case c.name == "the lock root goes":
				fault = fault.Call(func() { wipe(v.srv, root) })
			}
			injected := v.srv.Inject(fault)
			h, err := m.Acquire(ctx)
			switch {
			case c.ends:
				require.ErrorIs(t, err, context.Canceled, c.name)
			case c.name == "the list is refused":
				require.ErrorIs(t, err, zk.ErrNoAuth, c.name)
			default:
				require.NoError(t, err, c.name)
				require.Regexp(t, "^"+root+"/_c_[0-9a-f-]{36}-lock-[0-9]{10}$", h.Path(), "R31: %s", c.name)
				_, there := v.srv.Stat(h.Path())
				if err := h.Release(within(t, soon)); there {
					require.NoError(t, err, c.name)
				} else {
					require.True(t, errors.Is(err, zklock.ErrLost), "%s: %v", c.name, err)
				}
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			injected.Remove()
			require.Empty(t, v.srv.Children(root), "%s: I4", c.name)
			require.Empty(t, v.srv.Children("/job"), "%s: something is at the path without the chroot", c.name)
			for _, a := range v.srv.History() {
				if a.Session == s.SessionID() && a.Path != "" {
					require.Regexp(t, "^/team(/app(/job.*)?)?$", a.Path, c.name)
				}
			}
			release(t, acquire(t, m))
		})
	}
}
