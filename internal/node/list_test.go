package node

// This test attacks list.go: who shares a list, and what is computed once for all of them.

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// A list that several callers share is sorted once. A list with one caller is not sorted.
func TestListing_PositionOf_SortsOnceForAll(t *testing.T) {
	w := newWatchTest(t)
	var sent []*mux.Request
	w.c.sends = func(r *mux.Request) bool { sent = append(sent, r); return true }
	rule := queue.Rule{Name: queue.MutexName, Markers: queue.Markers}
	names := []string{"c-lock-0000000003", "a-lock-0000000001", "b-lock-0000000002"}
	answered := mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: wire.Frame(wire.ChildrenStatResponse{Children: names})[4:]}

	alone := w.e.Lists.List("/job")
	shared := w.e.Lists.List("/job")
	require.NotSame(t, alone, shared, "the first is already sent")
	require.Same(t, shared, w.e.Lists.List("/job"))
	sent[0].Done(answered)
	sent[1].Done(answered)
	for _, l := range []*Listing{alone, shared} {
		require.NoError(t, l.Wait(context.Background(), w.e.ZKSession))
		require.Equal(t, queue.PositionOf(rule, names[0], names), l.PositionOf(rule, names[0]))
	}
	require.Nil(t, alone.sorted)
	require.NotNil(t, shared.sorted)
	shared.Names = nil // they are not read again
	for _, self := range append(names, "d-lock-0000000004") {
		require.Equal(t, queue.PositionOf(rule, self, names), shared.PositionOf(rule, self))
	}
}
