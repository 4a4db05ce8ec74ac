package zklock

// This test attacks passon.go: the order in which a loss is noted and the next caller is notified.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
)

// onLoss is a trace that calls a function when the hold is lost.
type onLoss func()

func (onLoss) joins(*Hold, handleTrace)         {}
func (f onLoss) lost(error, clock.Instant)      { f() }
func (onLoss) ended(clock.Instant, error, bool) {}

// I7: another client deletes the node of a round. The caller that queues again is notified when the
// turn is lost, and the node's place under the cap is free.
func TestRound_Lose_NotifiesTheNextCallerLast(t *testing.T) {
	tt := newTableTest(t)
	waits, _ := tt.begin(NewOwner(""), false)
	w := &localWaiter{waits, make(chan localNotice, 1)}
	var h *Hold
	room, notified := 0, 0
	h = newHold(t.Context(), false, onLoss(func() { room, notified = h.d.e.nodes.Room(), len(w.notified) }))
	a, err := tt.table.enter(h, &tt.m.root, caller{}, nil, plain{}.besideLocked)
	require.NoError(t, err)
	tt.grant(a, h)
	e, node := h.d.e, h.d.node
	require.NoError(t, e.nodes.Claim(node))
	q := &localQueue{waiting: []*localWaiter{w}}
	r := &round{q: q, basis: h.d.grantBasis, turn: h.d}
	q.round = r
	ok, err := e.Hold(node, r)
	require.NoError(t, err)
	require.True(t, ok)

	e.LoseNode(node, link.ErrNodeGone)
	require.ErrorIs(t, h.Err(), ErrLost)
	require.Equal(t, 10, room, "when the loss was traced")
	require.Zero(t, notified, "when the loss was traced")
	require.Equal(t, localNotice{leads: true}, <-w.notified)
	require.Same(t, waits, q.leader)
}
