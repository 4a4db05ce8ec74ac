package zklock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

// F3, R23, I2: the create was applied and its reply lost. The node is found by its uuid and adopted; its czxid is the
// token.
func TestAcquire_ReplyToCreateLost_HoldsOneNode(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	m := newMutex(t, connect(t, srv, w.dialer()), p)
	w.reset(firstOf(opCreate, p, 1, dropReply))
	h := acquire(t, m)
	require.Equal(t, []string{base(h.Path())}, children(t, a, p))
	_, stat, err := a.Exists(h.Path())
	require.NoError(t, err)
	require.Equal(t, stat.Czxid, h.Token())
	release(t, h)
	require.Empty(t, children(t, a, p))
}

// R33: two lost creates in a row must either acquire or fail clean.
func TestAcquire_TwoCreatesLost_AcquiresOrLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	m := newMutex(t, connect(t, srv, w.dialer()), p)
	// The first is applied and found. It is deleted behind our back, so that a second is needed, lost too.
	for range 3 {
		w.reset(firstOf(opCreate, p, 2, dropReply))
		h := acquire(t, m)
		require.Equal(t, []string{base(h.Path())}, children(t, a, p))
		release(t, h)
		require.Empty(t, children(t, a, p))
	}
}

// F1, F6: the connection is cut before any one request of acquire and release, and after any one was applied.
func TestAcquireRelease_CutAtEveryRequest(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	m := newMutex(t, connect(t, srv, w.dialer()), p)
	release(t, acquire(t, m))
	for _, v := range []verdict{cutBefore, dropReply} {
		for _, op := range []int32{opCreate, opGetChildren2, opDelete} {
			w.reset(firstOf(op, p, 1, v))
			h := acquire(t, m)
			require.Equal(t, []string{base(h.Path())}, children(t, a, p), "op %d, verdict %d", op, v)
			release(t, h)
			require.Empty(t, children(t, a, p), "op %d, verdict %d", op, v)
			w.reset(nil)
		}
	}
}

// F6 for a waiter: the connection is cut at each of its requests; it is granted in its turn all the same.
func TestAcquire_Queued_CutAtEveryRequest(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := newMutex(t, connect(t, srv), p)
	for _, v := range []verdict{cutBefore, dropReply} {
		for _, op := range []int32{opCreate, opGetChildren2, opGetData} {
			for nth := 1; nth <= 2 && (op == opGetData || nth == 1); nth++ {
				w := &wire{}
				s := connect(t, srv, w.dialer())
				m := newMutex(t, s, p)
				h := acquire(t, holder)
				w.reset(func(r request) verdict {
					if r.op == op && r.nth == nth && strings.HasPrefix(r.path, p) {
						return v
					}
					return pass
				})
				q := startAcquire(t, m)
				eventually(t, "it waits in the queue", func() bool { return len(children(t, a, p)) == 2 })
				release(t, h)
				release(t, q.granted(t))
				require.Empty(t, children(t, a, p), "op %d, nth %d, verdict %d", op, nth, v)
				require.NoError(t, s.Close())
			}
		}
	}
}

// F5, R30: the reply to create is lost, and the session expires before the client is back: never granted on the old node.
func TestAcquire_CreateLostAndSessionExpired_UsesANewNode(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer())
	m := newMutex(t, s, p)
	old := s.SessionID()
	w.reset(func(r request) verdict {
		if r.op == opCreate && strings.HasPrefix(r.path, p) && r.nth == 1 {
			w.refuse(true)
			return dropReply
		}
		return pass
	})
	q := startAcquire(t, m)
	eventually(t, "the create was applied", func() bool { return len(children(t, a, p)) == 1 })
	eventually(t, "the session is suspended", func() bool { return s.State() == zklock.Suspended })
	require.NoError(t, zkserver.ExpireSession(srv, old))
	w.refuse(false)
	h := q.granted(t)
	_, stat, err := a.Exists(h.Path())
	require.NoError(t, err)
	require.NotEqual(t, old, stat.EphemeralOwner)
	require.Len(t, children(t, a, p), 1)
	release(t, h)
}

// R24, R52, F33: ctx ends while the create is in flight. The call returns, and the node is deleted once it is known.
func TestAcquire_ContextEndsDuringCreate_LeavesNothing(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	m := newMutex(t, connect(t, srv, w.dialer()), p)
	ctx, cancel := context.WithCancel(context.Background())
	w.reset(func(r request) verdict {
		if r.op == opCreate && r.nth == 1 {
			w.refuse(true)
			cancel()
			return dropReply
		}
		return pass
	})
	start := time.Now()
	_, err := m.Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), soon, "I6")
	w.refuse(false)
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p)) == 0 })
}

// F33 at the grant itself: granted and nil, or error and the node gone; never both, never neither.
func TestAcquire_ContextEndsAtTheGrant(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder, m := newMutex(t, connect(t, srv), p), newMutex(t, connect(t, srv), p)
	granted, refused := 0, 0
	for i := range 60 {
		h := acquire(t, holder)
		ctx, cancel := context.WithCancel(context.Background())
		type outcome struct {
			h   *zklock.Hold
			err error
		}
		got := make(chan outcome, 1)
		go func() { h, err := m.Acquire(ctx); got <- outcome{h, err} }()
		eventually(t, "it waits", func() bool { return len(children(t, a, p)) == 2 })
		var both sync.WaitGroup
		both.Go(func() { release(t, h) })
		both.Go(func() {
			time.AfterFunc(time.Duration(i%20)*100*time.Microsecond, cancel)
		})
		both.Wait()
		o := <-got
		if o.err == nil {
			granted++
			require.Equal(t, []string{base(o.h.Path())}, children(t, a, p))
			release(t, o.h)
		} else {
			refused++
			require.ErrorIs(t, o.err, context.Canceled)
		}
		require.Empty(t, children(t, a, p))
		cancel()
	}
	t.Logf("%d granted, %d refused", granted, refused)
}

// F10: the reply to the delete is lost. Release succeeds: within one session, a NoNode then is our own doing.
func TestRelease_ReplyToDeleteLost_Succeeds(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	m := newMutex(t, connect(t, srv, w.dialer()), p)
	h := acquire(t, m)
	w.reset(firstOf(opDelete, p, 1, dropReply))
	require.NoError(t, h.Release(within(t, soon)))
	require.Empty(t, children(t, a, p))
}

// R1, R27, R28: the release cannot reach a server within ctx. It says so, is not held any more, and goes on behind.
func TestRelease_NoServer_GoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	m := newMutex(t, connect(t, srv, w.dialer()), p)
	h := acquire(t, m)
	w.refuse(true)
	w.cut()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := h.Release(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), soon, "I6")
	require.False(t, m.Held())
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	w.refuse(false)
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p)) == 0 })
}

// F9: the session expires during the release: nil or ErrLost, and nobody else's node is touched.
func TestRelease_SessionExpires(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer())
	h := acquire(t, newMutex(t, s, p))
	old := s.SessionID()
	w.reset(func(r request) verdict {
		if r.op == opDelete && r.nth == 1 {
			w.refuse(true)
			return cutBefore
		}
		return pass
	})
	done := make(chan error, 1)
	go func() { done <- h.Release(within(t, soon)) }()
	eventually(t, "it is suspended", func() bool { return s.State() == zklock.Suspended })
	require.NoError(t, zkserver.ExpireSession(srv, old))
	other := acquire(t, newMutex(t, connect(t, srv), p))
	w.refuse(false)
	require.NoError(t, <-done, "held until the release, and free")
	require.Equal(t, []string{base(other.Path())}, children(t, a, p))
	release(t, other)
}

// F15: the connection is cut and healed before the lease ends: the hold stands, and nobody is told otherwise.
func TestHold_ConnectionLostAndHealed_Stands(t *testing.T) {
	t.Parallel()
	srv := target(t)
	p := lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer())
	changes := s.Changes(within(t, soon))
	h := acquire(t, newMutex(t, s, p))
	for range 3 {
		w.cut()
		require.Equal(t, zklock.Suspended, (<-changes).State)
		require.Equal(t, zklock.Reconnected, (<-changes).State)
	}
	before := h.Deadline()
	eventually(t, "the lease is renewed over the new connection", func() bool { return h.Deadline().After(before.Add(time.Second)) })
	require.NoError(t, h.Err())
	release(t, h)
}

// WithEndOnSuspend: Curator's advice as a policy. The session lives on, and so the node must be deleted.
func TestHold_EndOnSuspend(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer(), zklock.WithEndOnSuspend())
	id := s.SessionID()
	h := acquire(t, newMutex(t, s, p))
	w.cut()
	select {
	case <-h.Lost():
	case <-time.After(soon):
		t.Fatal("not told")
	}
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p)) == 0 })
	require.Equal(t, id, s.SessionID())
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
}

// F15, F16, R36, R37, I5: the server falls silent. The holder is told by the deadline it could see, which is before
// the servers can give the lock away; then, Lost being final, the old session is ended and everything works again.
func TestHold_ServerSilent_IsLostByItsDeadline(t *testing.T) {
	t.Parallel()
	for _, mode := range []zklock.LeaseMode{zklock.QuorumLease(time.Second), zklock.PingLease(time.Second), zklock.SingleServerLease()} {
		t.Run(strings.Fields(mode.String())[0], func(t *testing.T) {
			t.Parallel()
			server := startOwn(t, serverConfig{})
			srv := server.Addr()
			const timeout = 4 * time.Second
			s := connect(t, srv, zklock.WithSessionTimeout(timeout), zklock.WithLease(mode))
			changes := s.Changes(within(t, 2*soon))
			m := newMutex(t, s, "/job")
			h := acquire(t, m)
			old := s.SessionID()
			room := zklock.LeaseRoom(mode, timeout)
			eventually(t, "the lease has room", func() bool { return time.Until(h.Deadline()) > room })

			require.NoError(t, server.Pause())
			silent := time.Now()
			select {
			case <-h.Lost():
			case <-time.After(soon):
				t.Fatal("the loss was not told")
			}
			// Not the moment of the telling, which a busy machine puts off: Err and Context look at the clock themselves.
			require.LessOrEqual(t, h.Deadline().Sub(silent), timeout, "I5: lost within T of the last contact")
			require.Error(t, h.Err())
			require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrLost)
			require.NoError(t, server.Resume())

			again := acquire(t, m)
			require.NotEqual(t, old, s.SessionID(), "Lost is final for that ZooKeeper session")
			require.Greater(t, again.Token(), h.Token())
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			release(t, again)
			lost := 0
			for c := range changes {
				if c.State == zklock.Lost {
					lost++
					require.Equal(t, old, c.SessionID)
				}
				if c.State == zklock.Connected {
					break
				}
				require.False(t, lost > 0 && c.State == zklock.Reconnected, "no way back from Lost")
			}
			require.Equal(t, 1, lost, "R40")
		})
	}
}

// F22: the server restarts with its data. Sessions live, waiters keep their place, holds stand.
func TestServerRestart_SessionsLiveOn(t *testing.T) {
	t.Parallel()
	server := startOwn(t, serverConfig{})
	srv := server.Addr()
	s1, s2 := connect(t, srv, zklock.WithSessionTimeout(30*time.Second)), connect(t, srv, zklock.WithSessionTimeout(30*time.Second))
	a := admin(t, srv)
	h := acquire(t, newMutex(t, s1, "/job"))
	w := queueUp(t, a, newMutex(t, s2, "/job"), "/job")
	eventually(t, "its watches are set", func() bool { n, err := server.WatchCount(); return err == nil && n >= 2 })
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start())
	eventually(t, "both are back", func() bool {
		return s1.State() == zklock.Reconnected && s2.State() == zklock.Reconnected
	})
	require.NoError(t, h.Err())
	release(t, h)
	release(t, w.granted(t))
}

// R54: Connect works when the server comes up later.
func TestConnect_ServerComesLater(t *testing.T) {
	server := startOwn(t, serverConfig{})
	require.NoError(t, server.Stop())
	type outcome struct {
		s   *zklock.Session
		err error
	}
	got := make(chan outcome, 1)
	go func() {
		s, err := zklock.Connect(within(t, 2*soon), server.Addr(), zklock.WithSessionTimeout(10*time.Second), quiet(t))
		got <- outcome{s, err}
	}()
	require.NoError(t, server.Start())
	o := <-got
	require.NoError(t, o.err)
	release(t, acquire(t, newMutex(t, o.s, "/job")))
	require.NoError(t, o.s.Close())
}

// I7, R7, R8: failing, timing out and cycling leave no goroutine, and no more watches than there are nodes to watch.
func TestNoGrowth(t *testing.T) {
	server := startOwn(t, serverConfig{})
	srv := server.Addr()
	s := connect(t, srv)
	m := newMutex(t, s, "/job")
	h := acquire(t, newMutex(t, connect(t, srv), "/job"))
	fail := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_, err := m.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = m.TryAcquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
	}
	fail()
	goroutines := runtime.NumGoroutine()
	for range 200 {
		fail()
	}
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	eventually(t, "one watch is left at the most, on the holder's node", func() bool {
		n, err := server.WatchCount()
		return err == nil && n <= 1
	})
	require.NoError(t, h.Release(within(t, soon)))
	for range 200 {
		release(t, acquire(t, m))
	}
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	n, err := server.WatchCount()
	require.NoError(t, err)
	require.Zero(t, n)
}

// R16: whatever error comes back from the list, the node goes.
func TestAcquire_ListRefused_LeavesNothing(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	a := admin(t, srv)
	require.NoError(t, a.AddAuth("digest", []byte("ann:secret")))
	// The stranger may create and delete below the root, but not read it.
	_, err := a.Create(p+"/root", nil, 0, append(zk.DigestACL(zk.PermAll, "ann", "secret"), zk.WorldACL(zk.PermCreate|zk.PermDelete)...))
	require.NoError(t, err)
	_, err = newMutex(t, connect(t, srv), p+"/root").Acquire(within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.Empty(t, children(t, a, p+"/root"))
}

func TestMaxLockNodes(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m := newMutex(t, connect(t, srv, zklock.WithMaxLockNodes(2)), p)
	for range 5 { // the count does not drift
		h := acquire(t, m)
		w := queueUp(t, a, m, p)
		_, err := m.Acquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrTooManyWaiters)
		release(t, h)
		release(t, w.granted(t))
	}
}

func TestErrorsAreOneLayer(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	m := newMutex(t, connect(t, srv), p)
	h := acquire(t, m)
	_, err := m.TryAcquire(within(t, soon))
	var e *zklock.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "try", e.Op)
	require.False(t, errors.As(e.Err, &e))
	require.Equal(t, "zklock: try "+p+" (node "+e.Node+"): lock not acquired: somebody is ahead; place 2 in the queue when it was last listed, behind "+h.Path(), err.Error())
	release(t, h)
}

// I8: the create is lost while the list is in its flight. The node of the second try keeps its place.
func TestAcquire_CreateCutInFlight_KeepsItsPlace(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	w := &wire{}
	m := newMutex(t, connect(t, srv, w.dialer()), p)
	release(t, acquire(t, m)) // the root is known: create and list go out together
	w.reset(firstOf(opCreate, p, 1, cutBefore))
	h := acquire(t, m)
	_, by := w.sent()
	require.Equal(t, 2, by[opCreate], "one lost, one good: %v", by)
	require.Zero(t, by[opDelete])
	release(t, h)
}

// I6, F27: without DELETE on the root, Release says so and does not wait for its context; the reaper tries on.
func TestRelease_NoDelete_SaysSo(t *testing.T) {
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

// R68, F43: READ is taken from one held node. Its hold ends, told, and its node goes; the other hold of the Session stands.
func TestHold_ReadTakenFromTheNode_EndsThatHoldOnly(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	h, other := acquire(t, newMutex(t, s, p+"/a")), acquire(t, newMutex(t, s, p+"/b"))
	_, err := a.SetACL(h.Path(), unreadable, -1)
	require.NoError(t, err)
	select {
	case <-h.Lost():
	case <-time.After(soon):
		t.Fatal("F43: not told")
	}
	require.ErrorIs(t, h.Release(within(t, soon)), zk.ErrNoAuth)
	eventually(t, "I4: the node is deleted", func() bool { return len(children(t, a, p+"/a")) == 0 })
	deadline := other.Deadline()
	eventually(t, "the other hold is renewed", func() bool { return other.Deadline().After(deadline.Add(time.Second)) })
	release(t, other)
}

// The chain of an error reaches the cause of the caller's context, and names the lock as the caller does.
func TestErrors_ChainAndPath(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m := newMutex(t, connect(t, srv+p), "/orders")
	h := acquire(t, m)
	ctx := h.Context()
	release(t, h)
	_, err := m.Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, context.Cause(ctx))
	require.ErrorIs(t, err, zklock.ErrNotHeld)

	h = acquire(t, m)
	require.NoError(t, a.Delete(h.Path(), -1))
	<-h.Lost()
	var e *zklock.Error
	require.ErrorAs(t, h.Err(), &e)
	require.Equal(t, "/orders", e.Path)
	require.ErrorAs(t, h.Release(within(t, soon)), &e)
	require.Equal(t, "/orders", e.Path)
}
