package shards

// The numbers of docs/shards.md, on a real server and in real time: start, join and leave.

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

// A real server gives the same numbers as virtual time. It takes half a minute, so it runs with
// ZKLOCK_TEST_REAL=1 alone.
func TestReal_StartJoinLeave(t *testing.T) {
	if os.Getenv("ZKLOCK_TEST_REAL") != "1" {
		t.Skip("needs a real ZooKeeper: ZKLOCK_TEST_REAL=1")
	}
	for _, c := range []struct{ n, m, join int }{{256, 8, 28}, {1000, 20, 47}} {
		t.Run(fmt.Sprintf("%d over %d", c.n, c.m), func(t *testing.T) {
			w := newWorld(t, c.n, zkserver.Single(t).Addr())
			defer w.end()
			w.quiet = 2 * time.Second
			w.joinAll(c.m)
			took := w.within(10*time.Second, "start", w.isEven)
			t.Logf("start: %v after the last has joined", took)
			require.LessOrEqual(t, took, settle+4*time.Second, "on a busy machine")

			w.reset()
			joined := w.join("new")
			w.within(10*time.Second, "join", w.isEven)
			moves := w.report("join")
			require.Equal(t, c.join, moves)

			had, _ := w.loads()
			began := time.Now()
			joined.leave()
			t.Logf("it leaves in %v", time.Since(began))
			w.within(10*time.Second, "leave", w.isEven)
			require.Equal(t, had["new"], w.report("leave"))
		})
	}
}

// report prints what has moved since the last report, and returns how much.
func (w *world) report(what string) int {
	time.Sleep(200 * time.Millisecond) // in which a move too many would show
	moves, gaps := w.reset()
	slices.Sort(gaps)
	require.NotEmpty(w.t, gaps)
	p99 := gaps[len(gaps)*99/100]
	w.t.Logf("%s: %d moves; without an owner %v, p99 %v, %v at most", what, moves, median(gaps), p99, longest(gaps))
	require.LessOrEqual(w.t, p99, 500*time.Millisecond, "on a busy machine")
	return moves
}
