//go:build linux || darwin

package supervise

// Attacks on the promise that the command does not outlive its hold.

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoss_GuardianKilledWhileZklockIsStopped(t *testing.T) {
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	waitForFamily(t, log, 0)
	g := guardianOf(t, p)
	leader := childOf(t, g)
	p.signal(syscall.SIGSTOP)
	require.NoError(t, syscall.Kill(g, syscall.SIGKILL))
	if runtime.GOOS == "linux" {
		eventually(t, "the kernel has killed the command", func() bool { return gone(leader) })
	}
	p.signal(syscall.SIGCONT)
	require.Equal(t, ExitFailed, p.wait())
	requireAllGone(t, pids(readLines(t, log), 0))
}

func TestLoss_GuardianSurvivesSignals(t *testing.T) {
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	waitForFamily(t, log, 0)
	g := guardianOf(t, p)
	for _, s := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGALRM,
	} {
		require.NoError(t, syscall.Kill(g, s))
	}
	p.signal(syscall.SIGKILL)
	requireAllGone(t, pids(readLines(t, log), 0))
}

func TestLoss_StubbornCommandIsKilledAfterTheGrace(t *testing.T) {
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.run(t, jobEnv, "--kill-after", "400ms", "--", os.Args[0], log, "stubborn")
	eventually(t, "it runs", func() bool { return len(readLines(t, log)) > 3 })
	lost := time.Now()
	l.lose()
	require.Equal(t, exitLost, p.wait())
	require.Contains(t, p.stderr.String(), "SIGKILL")
	ls := readLines(t, log)
	require.Contains(t, whats(ls), "term", "SIGTERM first")
	lived := ls[len(ls)-1].at.Sub(lost)
	require.Greater(t, lived, 200*time.Millisecond, "it had its grace, but for the time in which a busy host did not let it write")
	require.Less(t, lived, wellBefore)
}

func TestLoss_ZklockStopped_GuardianEndsTheCommandInTime(t *testing.T) {
	t.Parallel()
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	one := waitForFamily(t, log, 0)
	next := l.runFamily(t, log)
	eventually(t, "the next one waits", func() bool { return l.queued() == 2 })
	silence := time.Now()
	p.signal(syscall.SIGSTOP)
	requireAllGone(t, pids(readLines(t, log), one))
	requireInTime(t, readLines(t, log), one, silence)
	waitForFamily(t, log, one)
	requireNoOverlap(t, readLines(t, log))
	p.signal(syscall.SIGCONT)
	require.Equal(t, exitLost, p.wait())
	next.signal(syscall.SIGTERM)
	next.wait()
}

func TestLoss_GuardianStopped_ZklockKillsInTime(t *testing.T) {
	t.Parallel()
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	one := waitForFamily(t, log, 0)
	g := guardianOf(t, p)
	var stopping sync.WaitGroup
	stopping.Go(func() {
		for syscall.Kill(g, syscall.SIGSTOP) == nil { // zklock continues it each time
			time.Sleep(time.Millisecond) // a processor is left to the others; how often it is stopped decides nothing
		}
	})
	defer stopping.Wait()
	silence := time.Now()
	l.silence()
	requireAllGone(t, pids(readLines(t, log), 0))
	requireInTime(t, readLines(t, log), one, silence)
	require.Equal(t, exitLost, p.wait())
}

func TestLoss_GuardianStopped_DoesNotHoldUpTheRelease(t *testing.T) {
	l, stop := newLocker(t), filepath.Join(t.TempDir(), "stop")
	p := l.run(t, nil, "--", "sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.05; done; exit 5`, stop)
	p.prints("ready")
	require.NoError(t, syscall.Kill(guardianOf(t, p), syscall.SIGSTOP))
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	require.Equal(t, 5, p.wait())
	require.Zero(t, l.queued())
}
