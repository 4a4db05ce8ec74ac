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

	"github.com/zklock/zklock/zktest"
)

// waiter is what a waiter knows when its predecessor's event has come. As made by newWaiter, all speaks for a grant.
type waiter struct {
	s          *Session
	e          *era
	a          *attempt
	l          *listing
	p          place
	own, ahead *watch
}

const waitersConn = 3 // the connection that the waiter knows all from

func newWaiter(t *testing.T) *waiter {
	tt := newTableTest(t)
	s := tt.m.s
	s.opts.mode = SingleServerLease()
	s.link.changed = make(chan struct{})
	e := newEra(&zkSession{carrier: s, log: s.log}, s.clock, &s.opts, connectResponse{timeout: 10 * time.Second, sessionID: 7}, waitersConn, frame{})
	s.link.era, s.link.attached, s.link.tap = e, true, &tap{seq: waitersConn}
	a, _ := tt.begin(NewOwner(""), false)
	w := &waiter{
		s: s, e: e, a: a,
		l:     &listing{conn: waitersConn},
		p:     place{kind: behind, predecessor: "n", ahead: 1},
		own:   &watch{path: "/locks/a/own", conn: waitersConn, owner: 7, fired: make(chan struct{})},
		ahead: &watch{path: "/locks/a/n", conn: waitersConn, owner: 8, fired: make(chan struct{}), event: zk.EventNodeDeleted},
	}
	close(w.ahead.fired)
	return w
}

func (w *waiter) mayGrant() (bool, error) { return w.a.mayGrant(w.e, w.l, w.p, w.own, w.ahead) }

// erased says that the predecessor is of our own session, and what became of our own delete of it.
func (w *waiter) erased(ok bool) {
	w.ahead.owner = w.e.id
	w.ahead.erasure = &erasure{done: make(chan struct{}), ok: ok}
	close(w.ahead.erasure.done)
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
		{"others were ahead of the predecessor", func(w *waiter) { w.p.ahead = 2 }, false},
		{"a suffix is in the wrap region", func(w *waiter) { w.p.wrapped = true }, false},
		{"the event is no deletion", func(w *waiter) { w.ahead.event = zk.EventNodeDataChanged }, false},
		{"the client gave the watch up", func(w *waiter) { w.ahead.event = zk.EventNotWatching }, false},
		{"the predecessor is of our session, and somebody else deleted it", func(w *waiter) { w.ahead.owner = w.e.id }, false},
		{"the predecessor is of our session, and our delete of it failed", func(w *waiter) { w.erased(false) }, false},
		{"there is no connection now", func(w *waiter) { w.s.link.attached = false }, false},
		{"there is no connection now, and never was a sure one", func(w *waiter) {
			w.s.link.attached = false
			w.l.conn, w.own.conn, w.ahead.conn = 0, 0, 0
		}, false},
		{"the list is of an earlier connection", func(w *waiter) { w.l.conn-- }, false},
		{"the watch on our own node is restored", func(w *waiter) { w.own.conn-- }, false},
		{"the watch on the predecessor is restored", func(w *waiter) { w.ahead.conn-- }, false},
		{"all is of an earlier connection", func(w *waiter) { w.s.link.tap.seq++ }, false},
		{"an event of our own node has come", func(w *waiter) { close(w.own.fired) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWaiter(t)
			c.take(w)
			ok, err := w.mayGrant()
			require.NoError(t, err)
			require.Equal(t, c.want, ok)
		})
	}
}

// A predecessor of our own session: the rule waits for the answer to our delete, and no longer than the session.
func TestInFrontNow_WaitsForOurOwnDelete(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaiter(t)
			x := &erasure{done: make(chan struct{})}
			w.ahead.owner, w.ahead.erasure = w.e.id, x
			time.AfterFunc(time.Second, func() {
				if over {
					w.e.lose(errExpired)
					return
				}
				x.ok = true
				close(x.done)
			})
			ok, err := w.mayGrant()
			require.Equal(t, !over, ok)
			require.Equal(t, over, errors.Is(err, errEraOver))
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
	require.NotEmpty(t, w.a.joiners, "they wait on")
}

// I3: the ZooKeeper session that made the node is over. Nobody is granted.
func TestGrant_SessionOver_GrantsNothing(t *testing.T) {
	w := newWaiter(t)
	w.e.lose(errExpired)
	require.ErrorIs(t, w.a.grant(w.e, &creation{node: w.own.path, token: 9}, nil), errEraOver)
	require.NotEmpty(t, w.a.joiners, "they wait on")
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
