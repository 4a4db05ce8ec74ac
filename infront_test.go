package zklock

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/zktest"
)

// waiter is what a waiter knows when its predecessor's event has come. As made by newWaiter, all speaks for a grant.
type waiter struct {
	l          *link
	e          *era
	a          *attempt
	w          walk
	own, ahead *watch
}

const waitersConn = 3 // the connection that the waiter knows all from

func newWaiter(t *testing.T) *waiter {
	tt := newTableTest(t)
	l := tt.m.s.link
	e := newEra(&zkSession{carrier: l, log: l.log, ownListsFailed: &l.ownListsFailed}, l.clock, l.opts.mode, l.opts.maxLockNodes, tap.Response{Timeout: 10 * time.Second, SessionID: 7}, waitersConn, exchange{})
	l.mu.era, l.mu.state, l.mu.tap = e, stateMachine{Connected, 7}, &tap.Tap{Seq: waitersConn}
	a, _ := tt.begin(NewOwner(""), false)
	return &waiter{
		l: l, e: e, a: &attempt{a, l, &tt.m.root, &tt.m.opts, newBackoff()},
		w:     walk{next: toAwait, session: 7, ahead: 1, owner: 8, listConn: waitersConn, ownConn: waitersConn, aheadConn: waitersConn},
		own:   &watch{path: "/locks/a/own", fired: make(chan struct{})},
		ahead: &watch{path: "/locks/a/n", fired: closedCh(), event: zk.EventNodeDeleted},
	}
}

func closedCh() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

// then is what is next after the event.
func (w *waiter) then() (stage, error) {
	next, err := w.a.rule(w.e, w.own, w.ahead, w.w)
	return next.next, err
}

// erased says that the predecessor is of our own session, and what became of our own delete of it.
func (w *waiter) erased(ok bool) {
	w.w.owner = w.e.id
	w.ahead.erasure = &erasure{done: closedCh(), ok: ok}
}

// I1, I3: what a waiter knows reaches the rule (TestInFrontNow). The predecessor's deletion grants only if everything speaks
// for it; each case takes one thing away.
func TestInFrontNow_EachClause(t *testing.T) {
	for _, c := range []struct {
		name string
		take func(w *waiter)
		want bool
	}{
		{"all is well", func(*waiter) {}, true},
		{"our own delete was answered with success", func(w *waiter) { w.erased(true) }, true},
		{"others were ahead of the predecessor", func(w *waiter) { w.w.ahead = 2 }, false},
		{"a suffix is in the wrap region", func(w *waiter) { w.w.wrapped = true }, false},
		{"the event is no deletion", func(w *waiter) { w.ahead.event = zk.EventNodeDataChanged }, false},
		{"the client gave the watch up", func(w *waiter) { w.ahead.event = zk.EventNotWatching }, false},
		{"the predecessor is of our session, and somebody else deleted it", func(w *waiter) { w.w.owner = w.e.id }, false},
		{"the predecessor is of our session, and our delete of it failed", func(w *waiter) { w.erased(false) }, false},
		{"there is no connection now", func(w *waiter) { w.l.mu.state.state = Suspended }, false},
		{"there is no connection now, and never was a sure one", func(w *waiter) {
			w.l.mu.state.state = Suspended
			w.w.listConn, w.w.ownConn, w.w.aheadConn = 0, 0, 0
		}, false},
		{"the list is of an earlier connection", func(w *waiter) { w.w.listConn-- }, false},
		{"the watch on our own node is restored", func(w *waiter) { w.w.ownConn-- }, false},
		{"the watch on the predecessor is restored", func(w *waiter) { w.w.aheadConn-- }, false},
		{"all is of an earlier connection", func(w *waiter) { w.l.mu.tap.Seq++ }, false},
		{"an event of our own node has come", func(w *waiter) { close(w.own.fired) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWaiter(t)
			c.take(w)
			next, err := w.then()
			require.NoError(t, err)
			want := toList
			if c.want {
				want = toGrant
			}
			require.Equal(t, want, next)
		})
	}
}

// A predecessor of our own session: the rule waits for the answer to our delete, and no longer than the session.
func TestInFrontNow_WaitsForOurOwnDelete(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaiter(t)
			x := &erasure{done: make(chan struct{})}
			w.w.owner, w.ahead.erasure = w.e.id, x
			next, err := w.then()
			require.NoError(t, err)
			require.Equal(t, toAwaitDelete, next)
			time.AfterFunc(time.Second, func() {
				if over {
					w.e.lose(errExpired)
					return
				}
				x.ok = true
				close(x.done)
			})
			after, err := w.a.awaitDelete(w.e, w.own, w.ahead, w.w)
			if require.Equal(t, over, errors.Is(err, errEraOver)); !over {
				require.Equal(t, toGrant, after.next)
			}
		})
	}
}

// I3: our node's deletion comes after the rule has said yes, and before the lock is under the lease, from where on it
// would be a loss. Nobody is granted.
func TestGrant_OwnNodeDeletedInBetween_QueuesAgain(t *testing.T) {
	w := newWaiter(t)
	w.own.event = zk.EventNodeDeleted
	close(w.own.fired)
	require.ErrorIs(t, w.a.grant(w.e, &creation{node: w.own.path, token: 9}, w.own), errRequeue)
	require.False(t, w.e.holds(w.own.path))
	require.NotEmpty(t, w.a.calls, "they wait on")
}

// I3: the ZooKeeper session that made the node is over. Nobody is granted.
func TestGrant_SessionOver_GrantsNothing(t *testing.T) {
	w := newWaiter(t)
	w.e.lose(errExpired)
	require.ErrorIs(t, w.a.grant(w.e, &creation{node: w.own.path, token: 9}, nil), errEraOver)
	require.NotEmpty(t, w.a.calls, "they wait on")
}

// R72, WithFailOnSessionLoss: the ZooKeeper session ends when the lock has just come under its lease, and nobody has the
// hold yet. Acquire says so, and does not queue in the next session.
func TestAttempt_SessionEndsJustBeforeTheGrant_FailsIfToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(n), zktest.WithTick(2*time.Second))
		var s *Session
		var armed atomic.Bool
		s, err := Connect(t.Context(), srv.Addr(), WithDialer(n.Dial), WithSessionTimeout(10*time.Second), WithLogger(slog.New(slog.DiscardHandler)),
			WithSuspendedTime(func() time.Duration { // hold looks at the clock
				if !armed.Load() {
					return 0
				}
				s.locks.mu.Lock()
				for _, d := range s.locks.byKey {
					if d.node != "" && armed.CompareAndSwap(true, false) {
						go func() {
							defer s.locks.mu.Unlock() // the grant waits for it
							for !d.e.holds(d.node) {
								runtime.Gosched()
							}
							go d.e.lose(errLeaseEnded)
							<-d.e.over
							d.lost = lostBecause(errLeaseEnded) // which is what lose does next
						}()
						return 0
					}
				}
				s.locks.mu.Unlock()
				return 0
			}))
		require.NoError(t, err)
		defer s.Close()
		m, err := NewMutex(s, "/job", WithFailOnSessionLoss())
		require.NoError(t, err)
		armed.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = m.Acquire(ctx)
		require.False(t, armed.Load(), "or this shows nothing")
		require.ErrorIs(t, err, ErrSessionExpired)
		time.Sleep(time.Minute)
		require.Empty(t, srv.Children("/job"))
	})
}
