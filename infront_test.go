package zklock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
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
	e := newEra(s, connectResponse{timeout: 10 * time.Second, sessionID: 7}, waitersConn, frame{})
	s.link.era, s.link.attached, s.link.tap = e, true, &tap{seq: waitersConn}
	a, _ := tt.begin(NewOwner(""), false)
	w := &waiter{
		s: s, e: e, a: a,
		l:     &listing{conn: waitersConn},
		p:     place{kind: behind, predecessor: "n", second: true},
		own:   &watch{path: "/locks/a/own", conn: waitersConn, owner: 7, fired: make(chan struct{})},
		ahead: &watch{path: "/locks/a/n", conn: waitersConn, owner: 8, fired: make(chan struct{}), event: zk.EventNodeDeleted},
	}
	close(w.ahead.fired)
	return w
}

func (w *waiter) inFrontNow() (bool, error) { return w.a.inFrontNow(w.e, w.l, w.p, w.own, w.ahead) }

// erased says that the predecessor is of our own session, and what became of our own delete of it.
func (w *waiter) erased(ok bool) {
	w.ahead.owner = w.e.id
	w.ahead.erasure = &erasure{done: make(chan struct{}), ok: ok}
	close(w.ahead.erasure.done)
}

// I1, I3: the predecessor's deletion grants only if everything speaks for it. Each case takes one thing away.
func TestInFrontNow_EachClause(t *testing.T) {
	for _, c := range []struct {
		name string
		take func(w *waiter)
		want bool
	}{
		{"all is well", func(*waiter) {}, true},
		{"our own delete was answered with success", func(w *waiter) { w.erased(true) }, true},
		{"others were ahead of the predecessor", func(w *waiter) { w.p.second = false }, false},
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
			ok, err := w.inFrontNow()
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
			ok, err := w.inFrontNow()
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
