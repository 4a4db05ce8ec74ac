package zklock

// This test attacks passon.go: the order in which a loss is noted and the next caller is notified.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
)

// onLoss is a trace that calls a function when the hold is lost.
type onLoss func()

func (onLoss) joins(*Hold, handleTrace)         {}
func (f onLoss) lost(error, clock.Instant)      { f() }
func (onLoss) ended(clock.Instant, error, bool) {}

// lostRound returns a round whose turn is held by h, with a caller that waits.
func lostRound(t *testing.T, trace handleTrace) (h *Hold, q *localQueue, w *localWaiter) {
	tt := newTableTest(t)
	waits, _ := tt.begin(NewOwner(""), false)
	w = &localWaiter{waits, make(chan localNotice, 1)}
	h = newHold(t.Context(), false, trace)
	a, err := tt.table.enter(h, &tt.m.root, caller{}, nil, plain{}.besideLocked)
	require.NoError(t, err)
	tt.grant(a, h)
	require.NoError(t, h.d.e.nodes.Claim(h.d.node))
	q = &localQueue{waiting: []*localWaiter{w}}
	q.round = &round{q: q, basis: h.d.grantBasis, turn: h.d}
	ok, err := h.d.e.Hold(h.d.node, q.round)
	require.NoError(t, err)
	require.True(t, ok)
	return h, q, w
}

// I7: another client deletes the node of a round. The caller that queues again is notified when the
// turn is lost, and the node no longer counts against WithMaxLockNodes.
func TestRound_Lose_NotifiesTheNextCallerLast(t *testing.T) {
	var h *Hold
	var w *localWaiter
	room, notified := 0, 0
	h, q, w := lostRound(t, onLoss(func() { room, notified = h.d.e.nodes.Room(), len(w.notified) }))

	h.d.e.LoseNode(h.d.node, link.ErrNodeGone)
	require.ErrorIs(t, h.Err(), ErrLost)
	require.Equal(t, 10, room, "when the loss was traced")
	require.Zero(t, notified, "when the loss was traced")
	require.Equal(t, localNotice{leads: true}, <-w.notified)
	require.Same(t, w.a, q.leader)
}

// I7: the same while the turn's last handle is being released.
func TestRound_Lose_DuringTheRelease_NotifiesTheNextCallerLast(t *testing.T) {
	h, _, w := lostRound(t, onLoss(func() {}))
	delete(h.d.handles, h)
	w.notified <- localNotice{} // so that the notice has to wait
	done := make(chan struct{})
	go func() { h.d.e.LoseNode(h.d.node, link.ErrNodeGone); close(done) }()
	require.Eventually(t, func() bool { return h.d.e.nodes.Room() == 10 }, 10*time.Second, time.Millisecond)
	<-w.notified
	require.Equal(t, localNotice{leads: true}, <-w.notified)
	<-done
}
