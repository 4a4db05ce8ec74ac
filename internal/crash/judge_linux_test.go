package crash

// The judge of the random worlds, and an attack on it.

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// judge returns an error if another process has ended the session of a program that had not ended,
// or if the holds do not follow each other, with tokens that grow.
func (w *world) judge() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ends {
		owner := w.owners[e.session]
		if owner == nil { // it was killed before it reported the session
			continue
		}
		if owner.ends == 0 || owner.ends > e.at {
			return fmt.Errorf("%s has ended session %#x of a process that lives", e.by, uint64(e.session))
		}
		if e.by == theGuard {
			w.byGuard++
		} else {
			w.byFile++
		}
	}
	var before *hold
	for _, token := range slices.Sorted(maps.Keys(w.holds)) {
		h := w.holds[token]
		if before != nil && before.to >= h.from {
			return fmt.Errorf("token %d was granted before the last hold had ended", token)
		}
		before = h
	}
	return nil
}

// The judge has to be right about a process that was stopped before it replaced itself: until it
// continues, it lives.
func TestWorld_StoppedBeforeItsExec_Lives(t *testing.T) {
	w := &world{t: t, srv: zktest.Start(t), owners: map[int64]*life{}, holds: map[int64]*hold{}}
	x := &worker{role: role{Servers: w.srv.Addr(), Timeout: 10 * time.Second, Then: "takes turns"}}
	w.start(x)
	defer w.kill(x)
	connected := func(n int) (sessions []int64) {
		require.Eventually(t, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			sessions = slices.Collect(maps.Keys(w.owners))
			return len(sessions) == n
		}, patience, time.Millisecond)
		return sessions
	}
	session := connected(1)[0]
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGSTOP))
	(&service{cmd: x.cmd}).awaitState(t, 'T')
	x.tell("exec")
	w.ends = []end{{session, clock(), "a rival"}}
	require.ErrorContains(t, w.judge(), "of a process that lives")
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
	connected(2)
	require.ErrorContains(t, w.judge(), "of a process that lives", "it lived at that time")
	w.ends[0].at = clock()
	require.NoError(t, w.judge())
}
