package shards

// These tests attack what a group promises when members join, leave and fail, in virtual time.

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// A join moves the new member's part, a leave what the leaving member had, and a move is short.
func TestVirtual_JoinAndLeave(t *testing.T) {
	for _, c := range []struct{ n, m, join int }{{256, 8, 28}, {1000, 20, 47}} {
		t.Run(fmt.Sprintf("%d over %d", c.n, c.m), func(t *testing.T) {
			inWorld(t, c.n, func(t *testing.T, w *world) {
				began := time.Now()
				w.started(c.m)
				t.Logf("start: %v", time.Since(began))

				joined := w.join("new")
				took := w.within(w.quiet+time.Second, "join", w.isEven)
				moves, gaps := w.reset()
				t.Logf("join: %v, %d moves, without an owner %v, %v at most", took, moves, median(gaps), longest(gaps))
				require.Equal(t, c.join, moves)
				require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)

				w.reset()
				had, _ := w.loads()
				began = time.Now()
				joined.leave()
				took = time.Since(began)
				w.within(time.Second, "leave", w.isEven)
				moves, gaps = w.reset()
				t.Logf("leave: %v, %d moves, without an owner %v, %v at most", took, moves, median(gaps), longest(gaps))
				require.Equal(t, had["new"], moves)
				require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
			})
		})
	}
}

// Half of the members see each plan 2 s late. The previous owners continue to work meanwhile.
func TestVirtual_LateReaders(t *testing.T) {
	inWorld(t, 256, func(t *testing.T, w *world) {
		w.started(8)
		for i, p := range w.procs {
			if i%2 == 0 {
				w.srv.Inject(zktest.OnEvent(zktest.NodeDataChanged).Path(groupPath + "/plan").Session(p.s.SessionID()).Delay(2 * time.Second).Optional())
			}
		}
		w.procs[1].leave()
		w.within(3*time.Second, "leave", w.isEven)
		moves, gaps := w.reset()
		t.Logf("%d moves, without an owner %v, %v at most", moves, median(gaps), longest(gaps))
		require.Equal(t, 32, moves)
		require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
		w.join("new")
		w.within(w.quiet+3*time.Second, "join", w.isEven)
		_, gaps = w.reset()
		require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
	})
}
