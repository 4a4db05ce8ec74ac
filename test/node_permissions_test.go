package zklock_test

// These tests take permissions away: the error names the missing one, and only the holds that need
// it end.

import (
	"context"
	"fmt"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I6, F27: without DELETE on the root, Release reports that and does not wait for its context; the
// reaper keeps trying.
func TestRelease_NoDelete_ReportsIt(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	a := admin(t, srv)
	require.NoError(t, a.AddAuth("digest", []byte("ann:secret")))
	open := append(zk.DigestACL(zk.PermAll, "ann", "secret"), zk.WorldACL(zk.PermCreate|zk.PermRead)...)
	_, err := a.Create(p+"/root", nil, 0, open)
	require.NoError(t, err)
	h := acquire(t, newMutex(t, connect(t, srv), p+"/root"))
	require.ErrorIs(t, h.Release(context.Background()), zk.ErrNoAuth)
	_, err = a.SetACL(p+"/root", zk.WorldACL(zk.PermAll), -1)
	require.NoError(t, err)
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p+"/root")) == 0 })
}

// I6, F27: a semaphore keeps its nodes below two roots. Without DELETE on either, Release of a
// permit reports that, as a mutex's does, and names the root. No other client gets a permit until
// the node is deleted, after DELETE is given again.
func TestVirtual_Semaphore_NoDelete_ReleaseReportsIt(t *testing.T) {
	for _, closed := range []string{semQueue, semLeases} {
		for _, held := range []time.Duration{0, time.Minute} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(5 * time.Millisecond)
				release(t, take(t, v.permits(1, 1)))
				a, sem := v.connect().Conn(), newSemaphore(t, v.connect(), semPath, 1)
				_, err := a.SetACL(closed, zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
				require.NoError(t, err)
				h, err := sem.Acquire(within(t, soon), 1)
				require.NoError(t, err)
				time.Sleep(held)
				require.NoError(t, h.Err())
				began := time.Now()
				err = h.Release(context.Background())
				require.ErrorIs(t, err, zklock.ErrNotConfirmed)
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, "no DELETE permission on "+closed)
				require.Less(t, time.Since(began), time.Second, "I6")
				require.NoError(t, h.Release(context.Background()), "a second call does nothing")
				next := v.lineUp(v.permits(1, 1))
				time.Sleep(time.Minute)
				require.False(t, next.isGranted())
				_, err = a.SetACL(closed, zk.WorldACL(zk.PermAll), -1)
				require.NoError(t, err)
				release(t, next.granted2(t, time.Minute))
				v.has(0, 0, "I4")
			})
		}
	}
}

// The node in the queue is deleted when Release returns nil, although its deletion was delayed
// since the grant. If another client has deleted it, that is not a loss.
func TestVirtual_Semaphore_ReleaseWaitsForItsNodeInTheQueue(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			release(t, take(t, v.permits(1, 2)))
			s := v.connect()
			v.srv.Inject(zktest.Before(zktest.Delete).Session(s.Stats().SessionID).Path(semQueue + "/*").Fail(zktest.OperationTimeout).Once())
			h, err := newSemaphore(t, s, semPath, 2).Acquire(within(t, soon), 1)
			require.NoError(t, err)
			if deleted {
				require.NoError(t, v.srv.Delete(v.onlyNode(semQueue)))
			}
			require.NoError(t, h.Release(within(t, soon)))
			require.Empty(t, v.srv.Children(semQueue))
			require.Empty(t, v.srv.Children(semLeases))
		})
	}
}

// R68, F43: READ is taken from one held node. The holder is notified that its hold has ended, and
// the node is deleted; the other hold of the Session remains valid.
func TestHold_ReadTakenFromTheNode_EndsThatHoldOnly(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	h, other := acquire(t, newMutex(t, s, p+"/a")), acquire(t, newMutex(t, s, p+"/b"))
	_, err := a.SetACL(h.Node(), unreadable, -1)
	require.NoError(t, err)
	lostWithin(t, h, soon)
	require.ErrorIs(t, h.Release(within(t, soon)), zk.ErrNoAuth)
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p+"/a")) == 0 })
	deadline := other.Deadline()
	eventually(t, "the other hold is renewed", func() bool { return other.Deadline().After(deadline.Add(time.Second)) })
	release(t, other)
}

// R34, F27: the error for a missing permission contains the request, the permission and the node,
// and errors.Is still finds the client's error.
func TestPermissions_ErrorNamesRequestPermissionAndNode(t *testing.T) {
	t.Parallel()
	srv := target(t)
	p := lockPath(t, srv)
	a := admin(t, srv)
	require.NoError(t, a.AddAuth("digest", []byte("ann:secret")))
	stranger := connect(t, srv)
	root := func(name string, perms int32) string {
		path := p + "/" + name
		_, err := a.Create(path, nil, 0, append(zk.DigestACL(zk.PermAll, "ann", "secret"), zk.WorldACL(perms)...))
		require.NoError(t, err)
		return path
	}
	denied := func(err error, says string) {
		t.Helper()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, ": "+says+": ")
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
	}

	full := root("full", zk.PermAll&^zk.PermCreate)
	_, err := newMutex(t, stranger, full).Acquire(within(t, soon))
	denied(err, "create: no CREATE permission on "+full)
	_, err = newMutex(t, stranger, full+"/x/y").Acquire(within(t, soon))
	denied(err, "creating "+full+"/x: create: no CREATE permission on "+full)
	_, err = newMutex(t, stranger, full+"/x", zklock.WithContainer()).TryAcquire(within(t, soon))
	denied(err, "creating "+full+"/x: create: no CREATE permission on "+full)

	hidden := root("hidden", zk.PermAll&^zk.PermRead)
	_, err = newMutex(t, stranger, hidden).Acquire(within(t, soon))
	denied(err, "list: no READ permission on "+hidden)
	require.Empty(t, children(t, a, hidden), "I4")
	_, err = newMutex(t, stranger, hidden).Participants(within(t, soon))
	denied(err, "list: no READ permission on "+hidden)

	ann := connect(t, srv, zklock.WithDigest("ann", "secret"))
	open := root("open", zk.PermAll)
	h := acquire(t, newMutex(t, ann, open, zklock.WithACL(zk.DigestACL(zk.PermAll, "ann", "secret"))))
	_, err = newMutex(t, stranger, open).Participants(within(t, soon))
	denied(err, "get: no READ permission on "+h.Node())
	denied(stranger.Revoke(within(t, soon), h.Node()), "set: no WRITE permission on "+h.Node())
	release(t, h)

	kept := root("kept", zk.PermAll&^zk.PermDelete)
	h = acquire(t, newMutex(t, stranger, kept))
	err = h.Release(within(t, soon))
	denied(err, "delete: no DELETE permission on "+kept)
}

// R34: a parent may exist although the client may not create it. It is requested together with the
// nodes below it, and the rejection ends no acquire: not even if the responses for those are lost,
// or the servers are busy. If a node below it is rejected as well, the error has that node.
func TestVirtual_ParentThatMayNotBeMade_IsThere(t *testing.T) {
	const top, open, lock = "/job/top", "/job/top/open", "/job/top/open/x/y"
	for _, at := range []zktest.Fault{
		zktest.Before(zktest.Create).Path(open + "/x").Close(), zktest.After(zktest.Create).Path(open + "/x").DropReply().Close(),
		zktest.Before(zktest.Create).Path(open + "/x").Fail(zktest.Throttled), zktest.Before(zktest.Create).Path(lock).Fail(zktest.OperationTimeout),
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			for _, path := range []string{top, open} {
				_, err := v.srv.Create(path, nil, 0)
				require.NoError(t, err)
			}
			a := v.connect().Conn()
			_, err := a.SetACL(top, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
			require.NoError(t, err)
			v.srv.Inject(at.Once())
			h, err := newMutex(t, v.connect(), lock).Acquire(within(t, soon))
			require.NoError(t, err, "%v", at)
			release(t, h)

			_, err = a.SetACL(open, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
			require.NoError(t, err)
			_, err = newMutex(t, v.connect(), open+"/z/y").Acquire(within(t, soon))
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.ErrorContains(t, err, "creating "+open+"/z: create: no CREATE permission on "+open+":")
		})
	}
}

// R34, R35, F27.
func TestACL(t *testing.T) {
	t.Parallel()
	srv := target(t)
	p := lockPath(t, srv)
	a := admin(t, srv)
	require.NoError(t, a.AddAuth("digest", []byte("ann:secret")))
	acl := zk.DigestACL(zk.PermAll, "ann", "secret")
	ann := connect(t, srv, zklock.WithDigest("ann", "secret"))
	h := acquire(t, newMutex(t, ann, p+"/a/b", zklock.WithACL(acl)))
	for _, n := range []string{p + "/a", p + "/a/b", h.Node()} {
		got, _, err := a.GetACL(n)
		require.NoError(t, err)
		require.Equal(t, acl, got, n)
	}

	start := time.Now()
	stranger := connect(t, srv)
	_, err := newMutex(t, stranger, p+"/a/b").Acquire(within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	_, err = newMutex(t, stranger, p+"/a/x/y").Acquire(within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth, "no CREATE for a parent")
	wrong := connect(t, srv, zklock.WithDigest("ann", "guess"))
	_, err = newMutex(t, wrong, p+"/a/b").TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.Less(t, time.Since(start), soon/2, "fails fast, not at the end of ctx")

	// No READ on the predecessor: its deletion is found by polling.
	bob := connect(t, srv, zklock.WithDigest("bob", "b"))
	open := p + "/open"
	_, err = a.Create(open, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	hidden := acquire(t, newMutex(t, ann, open, zklock.WithACL(acl)))
	w := queueUp(t, a, newMutex(t, bob, open), open)
	release(t, hidden)
	release(t, w.granted(t))
	release(t, h)

	// The credentials are sent first on every connection, also after a reconnect.
	wi := &wire{}
	ann2 := connect(t, srv, zklock.WithDigest("ann", "secret"), wi.dialer())
	m := newMutex(t, ann2, p+"/a/b", zklock.WithACL(acl))
	release(t, acquire(t, m))
	wi.cut()
	release(t, acquire(t, m))
}

// F28, R34: a real server that requires credentials responds with an error and closes the session.
// The caller gets the error at once.
func TestReal_CredentialsRequired_ErrorReportsIt(t *testing.T) {
	srv := requiringCredentials(t)
	start := time.Now()
	_, err := newMutex(t, connect(t, srv), "/job").Acquire(within(t, 2*soon))
	require.ErrorIs(t, err, zklock.ErrAuthFailed)
	require.ErrorContains(t, err, "-124")
	require.Less(t, time.Since(start), soon)
	release(t, acquire(t, newMutex(t, connect(t, srv, zklock.WithDigest("ann", "secret")), "/job")))
}

// unreadable is an ACL with all permissions except READ.
var unreadable = zk.WorldACL(zk.PermAll &^ zk.PermRead)

// R68, F43: READ is taken from some of the held nodes of a Session, but not from others. Those
// holds end within a heartbeat. Each holder is notified before its node is deleted. No other hold
// ends.
func TestVirtual_ReadTakenFromAHeldNode_OnlyThatHoldEnds(t *testing.T) {
	for _, n := range []int{1, 2, 5} { // of five
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			s := v.connect(zklock.WithSessionTimeout(30 * time.Second))
			var holds []*zklock.Hold
			for i := range 5 {
				holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d", i))))
			}
			time.Sleep(20 * time.Second)
			taken := time.Now()
			for _, h := range holds[:n] {
				_, err := v.connect().Conn().SetACL(h.Node(), unreadable, -1)
				require.NoError(t, err)
			}
			for _, h := range holds[:n] {
				lostWithin(t, h, 3*time.Second+50*time.Millisecond) // a heartbeat
				require.ErrorIs(t, h.Err(), zklock.ErrLost)
				require.ErrorIs(t, h.Err(), zk.ErrNoAuth)
				require.ErrorContains(t, h.Err(), "READ")
				next := acquire(t, newMutex(t, v.connect(), path.Dir(h.Node())))
				require.Greater(t, next.Token(), h.Token(), "I4: the node is deleted")
				release(t, next)
			}
			require.Less(t, time.Since(taken), 4*time.Second)
			time.Sleep(time.Minute)
			for _, h := range holds[n:] {
				require.NoError(t, h.Err(), "F43")
				require.Greater(t, time.Until(h.Deadline()), 15*time.Second, "F43: not renewed")
				release(t, h)
			}
			for _, h := range holds[:n] {
				require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			}
		})
	}
}

// R68: a Mutex whose ACL gives no READ together with one whose ACL does. The first one has no
// reliable hold: its holder is notified of the loss within a heartbeat or, if the lease has to be
// renewed before the grant, gets no hold at all. The other hold remains valid.
func TestVirtual_MutexWithoutRead_EndsNoOtherHold(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			_, err := v.srv.Create("/closed", nil, 0)
			require.NoError(t, err)
			s := v.connect()
			closed := newMutex(t, s, "/closed", zklock.WithACL(unreadable))
			if wait == 0 {
				other := acquire(t, newMutex(t, s, "/job"))
				h := acquire(t, closed)
				lostWithin(t, h, time.Second+50*time.Millisecond) // a heartbeat
				require.ErrorIs(t, h.Release(within(t, soon)), zk.ErrNoAuth)
				time.Sleep(time.Minute)
				require.NoError(t, other.Err())
				release(t, other)
			} else {
				ahead := acquire(t, newMutex(t, v.connect(), "/closed"))
				w := v.queueUp(closed)
				time.Sleep(wait)
				release(t, ahead)
				_, err := w.get(t)
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, "READ")
				require.NotEmpty(t, s.Stats().Server)
			}
			time.Sleep(time.Second)
			require.Empty(t, v.srv.Children("/closed"), "I4")
		})
	}
}

// I8, F27: a waiter that may not read the nodes polls for a long time, and sometimes loses its
// list. Each list is requested again soon: earlier failures do not count.
func TestVirtual_Polling_ListsAreRetriedSoon(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		holder, s := v.connect(), v.connect()
		h := acquire(t, newMutex(t, holder, "/job"))
		v.srv.Inject(zktest.Before(zktest.GetData).Path("/job/*").Session(s.Stats().SessionID).Fail(zktest.NoAuth))
		w := v.queueUp(newMutex(t, s, "/job"))
		for range 10 {
			lost := v.srv.Inject(zktest.Before(zktest.GetChildren).Path("/job").Session(s.Stats().SessionID).Fail(zktest.OperationTimeout).Once())
			time.Sleep(time.Minute)
			require.Equal(t, 1, lost.Fired())
		}
		lost := v.srv.Inject(zktest.Before(zktest.GetChildren).Path("/job").Session(s.Stats().SessionID).Fail(zktest.OperationTimeout).Once())
		for lost.Fired() == 0 {
			time.Sleep(time.Millisecond)
		}
		release(t, h)
		freed := time.Now()
		got, err := w.get(t)
		require.NoError(t, err)
		require.Less(t, time.Since(freed), time.Second)
		release(t, got)
	})
}
