package zklock_test

// These tests use a connection string with a chroot: every node is below it.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R26: with a chroot, paths are below it, and a missing one is created with WithCreateChroot;
// Hold.Node is absolute, Hold.Path is not.
func TestConnect_Chroot(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv+p+"/team/app", zklock.WithCreateChroot())
	m := newMutex(t, s, "/locks/orders")
	h := acquire(t, m)
	require.True(t, strings.HasPrefix(h.Node(), p+"/team/app/locks/orders/_c_"), h.Node())
	require.Equal(t, "/locks/orders", h.Path(), "as given to NewMutex")
	require.Equal(t, m.Path(), h.Path())
	require.Len(t, children(t, a, p+"/team/app/locks/orders"), 1)
	w := queueUp(t, a, m, p+"/team/app/locks/orders")
	ps, err := m.Participants(within(t, soon))
	require.NoError(t, err)
	require.Len(t, ps, 2)
	_, err = s.Conn().Multi(h.Checks()[0])
	require.NoError(t, err)
	release(t, h)
	release(t, w.granted(t))
	require.Empty(t, children(t, a, p+"/team/app/locks/orders"))
}

// R26, R23, R25, R31, I4: below a chroot, the clean-up deletes the leftover nodes there, and no
// other nodes.
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
			s := connect(t, v.srv.Addr()+"/team/app", zklock.WithDialer(v.net.Dial), zklock.WithCreateChroot())
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
				require.Regexp(t, "^"+root+"/_c_[0-9a-f-]{36}-lock-[0-9]{10}$", h.Node(), "R31: %s", c.name)
				_, there := v.srv.Stat(h.Node())
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
				if a.Session == s.Stats().SessionID && a.Path != "" {
					require.Regexp(t, "^/team(/app(/job.*)?)?$", a.Path, c.name)
				}
			}
			release(t, acquire(t, m))
		})
	}
}

// A missing chroot is an error, and no part of it is created.
func TestConnect_ChrootIsNotThere_IsRefused(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	_, err := zklock.Connect(within(t, soon), srv+p+"/team/app", quiet(t))
	require.ErrorIs(t, err, zklock.ErrNoChroot)
	require.ErrorContains(t, err, "create "+p+"/team/app, or give WithCreateChroot")
	require.True(t, zklock.IsFinal(err))
	require.Empty(t, children(t, a, p))
}

// A chroot at each server, as it is written for Kafka, is rejected, even if it could be created:
// two clients with different lists would have different chroots, and both would get the lock.
func TestConnect_ChrootAtEachServer_IsRefused(t *testing.T) {
	srv := target(t)
	for _, servers := range []string{srv + "/app," + srv + "/app", srv + "/app;" + srv + "/app", srv + ";" + srv} {
		_, err := zklock.Connect(within(t, soon), servers, zklock.WithCreateChroot())
		require.ErrorContains(t, err, "host:port,host:port/chroot")
		require.True(t, zklock.IsFinal(err))
	}
}

// WithCreateChroot creates the chroot, open or with an ACL. It accepts an existing chroot
// unchanged, also without the permission to read it or to create nodes.
func TestConnect_CreateChroot(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	require.NoError(t, a.AddAuth("digest", []byte("ann:secret")))
	ours := zk.DigestACL(zk.PermAll, "ann", "secret")
	for name, acl := range map[string][]zk.ACL{"open": nil, "ours": ours} {
		for range 2 {
			connect(t, srv+p+"/"+name+"/app", zklock.WithCreateChroot(acl...), zklock.WithDigest("ann", "secret"))
		}
		want := acl
		if acl == nil {
			want = zk.WorldACL(zk.PermAll)
		}
		got, _, err := a.GetACL(p + "/" + name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	connect(t, srv+p+"/ours/app") // another user, which may not read below
	_, err := zklock.Connect(within(t, soon), srv+p+"/ours/other", quiet(t), zklock.WithCreateChroot())
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorContains(t, err, "no CREATE permission on "+p+"/ours")
}

// Whatever happens in between, Connect finds or creates the chroot, or reports that it is missing.
func TestVirtual_Connect_Chroot_Faults(t *testing.T) {
	for _, at := range []zktest.Fault{
		zktest.Before(zktest.Multi).Close(), zktest.After(zktest.Multi).DropReply().Close(), zktest.Before(zktest.Multi).Fail(zktest.OperationTimeout),
		zktest.Before(zktest.Multi).Expire(), zktest.Before(zktest.Create).Expire().Optional(), zktest.After(zktest.Create).DropReply().Close().Optional(),
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			dial := zklock.WithDialer(v.net.Dial)
			v.srv.Inject(at.Once())
			_, err := zklock.Connect(within(t, time.Minute), v.srv.Addr()+"/team/app", dial, quiet(t))
			require.ErrorIs(t, err, zklock.ErrNoChroot, "%v", at)
			require.Empty(t, v.srv.Children("/team"))
			v.srv.Inject(at.Once())
			s := connect(t, v.srv.Addr()+"/team/app", dial, zklock.WithCreateChroot())
			release(t, acquire(t, newMutex(t, s, "/job")))
		})
	}
}

// I6, R111: the context ends while Connect looks for the chroot or creates it. The error is the
// context's, with the last response if there was one.
func TestVirtual_Connect_Chroot_ContextEnds(t *testing.T) {
	look, create := zktest.Before(zktest.Multi), zktest.Before(zktest.Create)
	for _, c := range []struct {
		faults []zktest.Fault
		says   string
	}{
		{[]zktest.Fault{look.Hold()}, "context deadline exceeded"},
		{[]zktest.Fault{look.Nth(1).Fail(zktest.Throttled), look.Nth(2).Hold()}, "context deadline exceeded; the last response was an error: zookeeper: throttled (-127)"},
		{[]zktest.Fault{create.Hold()}, "context deadline exceeded"},
		{[]zktest.Fault{create.Fail(zktest.Throttled)}, "context deadline exceeded"},
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			for _, f := range c.faults {
				v.srv.Inject(f)
			}
			servers := v.srv.Addr() + "/team/app"
			_, err := zklock.Connect(within(t, 2*time.Second), servers, zklock.WithDialer(v.net.Dial), zklock.WithCreateChroot(), quiet(t))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, "zklock: connect "+servers+": "+c.says)
			time.Sleep(time.Minute) // the Connect in vain ends
		})
	}
}

// The chroot is deleted while it is in use: neither an acquire nor a wait that queues again
// recreates it.
func TestVirtual_ChrootDeletedLater_IsNotMadeAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		for _, p := range []string{"/team", "/team/app"} {
			_, err := v.srv.Create(p, nil, 0)
			require.NoError(t, err)
		}
		s := connect(t, v.srv.Addr()+"/team/app", zklock.WithDialer(v.net.Dial), zklock.WithCreateChroot())
		m := newMutex(t, s, "/locks/job")
		h := acquire(t, m)
		w := v.queueUp(m)
		wipe(v.srv, "/team/app/locks/job")
		wipe(v.srv, "/team/app/locks")
		wipe(v.srv, "/team/app")
		_, err := w.get(t)
		require.ErrorIs(t, err, zklock.ErrNoChroot)
		<-h.Lost()
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
		for _, path := range []string{"/locks/job", "/job"} {
			_, err = newMutex(t, s, path).Acquire(within(t, soon))
			require.ErrorIs(t, err, zklock.ErrNoChroot)
		}
		require.Empty(t, v.srv.Children("/team"))

		_, err = v.srv.Create("/team/app", nil, 0)
		require.NoError(t, err)
		release(t, acquire(t, m))
	})
}

// The servers are wiped during a campaign: sessions and nodes are deleted. The campaign ends. Its
// error names the lost chroot and the remedy: another Connect with WithCreateChroot. This Session
// does not recreate it, although it was given the option.
func TestVirtual_ServersWiped_ReportsThatTheyHaveLostTheChroot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		servers, opts := v.srv.Addr()+"/team/app", []zklock.Option{zklock.WithDialer(v.net.Dial), zklock.WithCreateChroot()}
		s := connect(t, servers, opts...)
		c := v.stand(newElection(t, s, "/leader", "ann"), untilItEnds)
		require.EqualValues(t, 1, c.leads.Load())
		wipe(v.srv, "/team")
		v.srv.ExpireSession(s.Stats().SessionID)
		<-c.done
		semaphore, err := zklock.NewSemaphore(s, "/imports", 2, zklock.WithSharedLimit("/limit"))
		require.NoError(t, err)
		_, limitless := semaphore.Acquire(within(t, soon), 1)
		for _, err := range []error{c.err, limitless} {
			require.ErrorIs(t, err, zklock.ErrNoChroot)
			require.ErrorContains(t, err, "the chroot does not exist: the servers have lost /team/app since this Session connected: create it again")
			require.NotContains(t, err.Error(), "or give WithCreateChroot")
			require.True(t, zklock.IsFinal(err))
		}
		require.Empty(t, v.srv.Children("/team"), "nothing makes it again")

		again := v.stand(newElection(t, connect(t, servers, opts...), "/leader", "ben"), untilItEnds)
		require.EqualValues(t, 1, again.leads.Load())
		release(t, acquire(t, newMutex(t, s, "/job"))) // the first Session also continues
	})
}
