package zklock

// These tests attack attempt.go and watcher.go: the facts that a waiter has when its predecessor's
// event arrives, and the moments before the grant.

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/zktest"
)

// eventTest contains the facts that a waiter has when its predecessor's event has arrived. With the
// facts of newEventTest, the event grants.
type eventTest struct {
	c          *onlyConn
	e          *node.ZKSession
	a          *attempt
	knows      knows
	own, ahead *node.Watch
}

// knows contains the waiter's observations, with the connections over which they arrived.
type knows struct {
	place            queue.Position
	owner            int64 // of the predecessor
	list, own, ahead uint64
}

const waitersConn = 3 // the connection that the waiter knows all from

func newEventTest(t *testing.T) *eventTest {
	tt := newTableTest(t)
	c := &onlyConn{conn: waitersConn}
	e := zkSessionOver(c, waitersConn)
	t.Cleanup(func() {
		e.Lose(ErrClosed)
		c.work.Wait()
	})
	a, _ := tt.begin(NewOwner(""), false)
	a.link, a.opts = tt.m.s.link, &tt.m.opts
	at := &attempt{
		acquisition: a, recipe: plain{}, grantBasis: grantBasis{e: e, node: "/locks/a/own", token: 9, state: noState{}},
		onOwn:    &node.Watch{WatchKey: node.WatchKey{Path: "/locks/a/own"}, Fired: make(chan struct{})},
		blockers: []blocker{{on: &node.Watch{WatchKey: node.WatchKey{Path: "/locks/a/n"}, Fired: closedCh(), Event: zk.EventNodeDeleted}}},
	}
	return &eventTest{c: c, e: e, a: at, knows: knows{queue.Position{Kind: queue.Behind, Blockers: 1}, 8, waitersConn, waitersConn, waitersConn}, own: at.onOwn, ahead: at.blockers[0].on}
}

func closedCh() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

// then returns the next step after the event.
func (w *eventTest) then() (queue.Stage, error) {
	k := w.knows
	w.a.machine = queue.Begin(7, false).Listed(k.place, k.list).WaitsBehind(false).Watched(queue.Exists, 7, k.own).Watched(queue.Exists, k.owner, k.ahead)
	err := w.a.rule(0, w.ahead.Event == zk.EventNodeDeleted)
	return w.a.machine.Next, err
}

// I1, I3: the waiter's facts reach the rule (TestIsFirstNow). The predecessor's deletion grants
// only if all facts permit it; each case removes one.
func TestIsFirstNow_EachClause(t *testing.T) {
	for _, c := range []struct {
		name string
		take func(w *eventTest)
		want bool
	}{
		{"all is well", func(*eventTest) {}, true},
		{"others were ahead of the predecessor", func(w *eventTest) { w.knows.place.Blockers = 2 }, false},
		{"R73: another node may have taken its place", func(w *eventTest) { w.knows.place.Replaced = true }, false},
		{"the event is no deletion", func(w *eventTest) { w.ahead.Event = zk.EventNodeDataChanged }, false},
		{"the client gave the watch up", func(w *eventTest) { w.ahead.Event = zk.EventNotWatching }, false},
		{"the predecessor is of our session", func(w *eventTest) { w.knows.owner = w.e.ID }, false},
		{"there is no connection now", func(w *eventTest) { w.c.conn = 0 }, false},
		{"there is no connection now, and never was a sure one", func(w *eventTest) {
			w.c.conn = 0
			w.knows.list, w.knows.own, w.knows.ahead = 0, 0, 0
		}, false},
		{"the list is of an earlier connection", func(w *eventTest) { w.knows.list-- }, false},
		{"the watch on our own node is restored", func(w *eventTest) { w.knows.own-- }, false},
		{"the watch on the predecessor is restored", func(w *eventTest) { w.knows.ahead-- }, false},
		{"all is of an earlier connection", func(w *eventTest) { w.c.conn++ }, false},
		{"an event of our own node has come", func(w *eventTest) { close(w.own.Fired) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newEventTest(t)
			c.take(w)
			next, err := w.then()
			require.NoError(t, err)
			want := queue.ToList
			if c.want {
				want = queue.ToGrant
			}
			require.Equal(t, want, next)
		})
	}
}

// I3: our node is deleted after the rule has permitted the grant, and before the lock is under the
// lease, where the deletion would be a loss. The call is not granted.
func TestGrant_OwnNodeDeletedInBetween_QueuesAgain(t *testing.T) {
	w := newEventTest(t)
	w.own.Event = zk.EventNodeDeleted
	close(w.own.Fired)
	require.ErrorIs(t, w.a.grant(), errRequeue)
	require.False(t, w.e.IsHeld(w.own.Path))
	require.NotNil(t, w.a.call, "it waits on")
}

// I3: the ZooKeeper session that created the node has ended. The call is not granted.
func TestGrant_SessionOver_GrantsNothing(t *testing.T) {
	w := newEventTest(t)
	w.e.Lose(link.ErrExpired)
	w.a.onOwn = nil
	require.ErrorIs(t, w.a.grant(), link.ErrSessionEnded)
	require.NotNil(t, w.a.call, "it waits on")
}

// R72: the ZooKeeper session ends just after the lock is under its lease, before the call has the
// hold. Acquire queues again, and the grant depends on a node of the next session.
func TestAttempt_SessionEndsJustBeforeTheGrant_QueuesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(n))
		var s *Session
		var armed atomic.Bool
		asleep := func() time.Duration { // hold looks at the clock
			if !armed.Load() {
				return 0
			}
			s.locks.mu.Lock()
			for _, d := range s.locks.byKey {
				if d.node != "" && armed.CompareAndSwap(true, false) {
					go func() {
						defer s.locks.mu.Unlock() // the grant waits for it
						for !d.e.IsHeld(d.node) {
							runtime.Gosched()
						}
						go d.e.Lose(link.ErrLeaseEnded)
						<-d.e.Ended()
						d.lost = lostBecause(link.ErrLeaseEnded) // which is what lose does next
					}()
					return 0
				}
			}
			s.locks.mu.Unlock()
			return 0
		}
		s, err := Connect(hook.With(t.Context(), hook.Session{SuspendedTime: asleep}), srv.Addr(), WithDialer(n.Dial),
			WithSessionTimeout(10*time.Second), WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		defer s.Close()
		m, err := NewMutex(s, "/job")
		require.NoError(t, err)
		old := s.Stats().SessionID
		armed.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		h, err := m.Acquire(ctx)
		require.False(t, armed.Load(), "or this shows nothing")
		require.NoError(t, err)
		require.NotEqual(t, old, s.Stats().SessionID)
		require.NoError(t, h.Err())
		time.Sleep(time.Minute)
		require.Equal(t, []string{nameOf(h.Node())}, srv.Children("/job"))
	})
}

// F41: another client deletes a waiter's node, and the caller leaves while the Session handles the
// deletion. After that, the attempt has no request under way: a Session that neither holds nor
// waits does not leave a server because the server is silent.
func TestAttempt_EndsBetweenTwoNodes_IsCountedOut(t *testing.T) {
	withSessions(t, func(t *testing.T, srv *zktest.Server, s, other *Session) {
		m := aMutex(t, s, "/job")
		h, err := aMutex(t, other, "/job").Acquire(t.Context())
		require.NoError(t, err)
		e := m.s.link.ZKSession().Inside.(*node.ZKSession)
		slow := srv.Inject(zktest.Before(zktest.Delete).Delay(grace / 2))
		for round := range 3 { // mostly the call leaves before the goroutine runs that is to go on, and seldom after that
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error)
			go func() {
				_, err := m.Acquire(ctx)
				left <- err
			}()
			synctest.Wait()
			require.True(t, isBusy(e))
			for _, name := range srv.Children("/job") {
				if node := "/job/" + name; node != h.Node() {
					require.NoError(t, srv.Delete(node))
				}
			}
			synctest.Wait()
			leave()
			require.ErrorIs(t, <-left, context.Canceled)
			require.Equal(t, round+1, slow.Fired(), "or this shows nothing")
		}
		time.Sleep(2 * grace) // virtual: the deletions are answered, and what goes on by itself has ended
		require.False(t, isBusy(e))
		slow.Remove()
		require.NoError(t, h.Release(t.Context()))
	})
}

// Each way to a lock counts its attempt out: otherwise an idle Session would leave a server that is
// silent, as if a caller waited for a response.
func TestAttempt_EachWay_IsCountedOut(t *testing.T) {
	withSessions(t, func(t *testing.T, _ *zktest.Server, s, other *Session) {
		acquired := func(ctx context.Context, l Lock) *Hold {
			h, err := l.Acquire(ctx)
			require.NoError(t, err)
			return h
		}
		ctx := t.Context()
		for _, way := range []struct {
			name string
			take func() []*Hold
		}{
			{"a mutex", func() []*Hold { return []*Hold{acquired(ctx, aMutex(t, s, "/job"))} }},
			{"a try that lists first", func() []*Hold {
				h := acquired(ctx, aMutex(t, other, "/tried"))
				for range 2 {
					_, err := aMutex(t, s, "/tried").TryAcquire(ctx)
					require.ErrorIs(t, err, ErrNotAcquired)
				}
				return []*Hold{h}
			}},
			{"a reader under its writer", func() []*Hold {
				rw, err := NewRWMutex(s, "/rw")
				require.NoError(t, err)
				w := acquired(ctx, rw.WriteLock())
				return []*Hold{w, acquired(w.Context(), rw.ReadLock())}
			}},
			{"early permits", func() []*Hold {
				sem, err := NewSemaphore(s, "/sem", 3)
				require.NoError(t, err)
				holds := []*Hold{acquired(ctx, sem.Permits(1)), acquired(ctx, sem.Permits(1))}
				require.True(t, node.NotesOn[recipeNotes](sem.mutexFor(1).root.Root).roomy, "or this shows nothing")
				return holds
			}},
		} {
			for _, h := range way.take() {
				require.NoError(t, h.Release(ctx))
			}
			synctest.Wait()
			require.False(t, isBusy(s.link.ZKSession().Inside.(*node.ZKSession)), way.name)
		}
	})
}

// isBusy reports whether an attempt is under way, or a node is being deleted.
func isBusy(e *node.ZKSession) bool {
	_, busy := e.Waiting()
	return busy
}

// withSessions runs a test in virtual time, with two Sessions of a server.
func withSessions(t *testing.T, f func(t *testing.T, srv *zktest.Server, s, other *Session)) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(n))
		session := func() *Session {
			s, err := Connect(t.Context(), srv.Addr(), WithDialer(n.Dial), WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		f(t, srv, session(), session())
	})
}

func aMutex(t *testing.T, s *Session, path string, opts ...MutexOption) *Mutex {
	m, err := NewMutex(s, path, opts...)
	require.NoError(t, err)
	return m
}
