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

	"github.com/zklock/zklock/internal/proctest"
)

func TestLoss_GuardianKilledWhileZklockIsStopped(t *testing.T) {
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	proctest.WaitForFamily(t, log, 0)
	g := guardianOf(t, p)
	leader := proctest.ChildOf(t, g)
	p.Signal(syscall.SIGSTOP)
	require.NoError(t, syscall.Kill(g, syscall.SIGKILL))
	if runtime.GOOS == "linux" {
		proctest.Eventually(t, "the kernel has killed the command", func() bool { return proctest.Gone(leader) })
	}
	p.Signal(syscall.SIGCONT)
	require.Equal(t, ExitFailed, p.Wait())
	proctest.RequireAllGone(t, proctest.PIDs(proctest.ReadLines(t, log), 0))
}

func TestLoss_GuardianSurvivesSignals(t *testing.T) {
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	proctest.WaitForFamily(t, log, 0)
	g := guardianOf(t, p)
	for _, s := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGALRM,
	} {
		require.NoError(t, syscall.Kill(g, s))
	}
	p.Signal(syscall.SIGKILL)
	proctest.RequireAllGone(t, proctest.PIDs(proctest.ReadLines(t, log), 0))
}

func TestLoss_StubbornCommandIsKilledAfterTheGrace(t *testing.T) {
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.run(t, jobEnv, "--kill-after", "1s", "--", os.Args[0], log, "stubborn")
	proctest.Eventually(t, "it runs", func() bool { return len(proctest.ReadLines(t, log)) > 3 })
	lost := time.Now()
	l.lose()
	require.Equal(t, exitLost, p.Wait())
	require.Contains(t, p.Stderr.String(), "SIGKILL")
	ls := proctest.ReadLines(t, log)
	require.Contains(t, proctest.Whats(ls), "term", "SIGTERM first")
	lived := ls[len(ls)-1].At.Sub(lost)
	require.Greater(t, lived, 200*time.Millisecond, "it had its grace, but for the time in which a busy host did not let it write")
	require.Less(t, lived, wellBefore)
}

func TestLoss_ZklockStopped_GuardianEndsTheCommandInTime(t *testing.T) {
	t.Parallel()
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	one := proctest.WaitForFamily(t, log, 0)
	next := l.runFamily(t, log)
	proctest.Eventually(t, "the next one waits", func() bool { return l.queued() == 2 })
	silence := time.Now()
	p.Signal(syscall.SIGSTOP)
	proctest.RequireAllGone(t, proctest.PIDs(proctest.ReadLines(t, log), one))
	proctest.RequireInTime(t, proctest.ReadLines(t, log), one, silence, sessionTimeout)
	proctest.WaitForFamily(t, log, one)
	proctest.RequireNoOverlap(t, proctest.ReadLines(t, log))
	p.Signal(syscall.SIGCONT)
	require.Equal(t, exitLost, p.Wait())
	next.Signal(syscall.SIGTERM)
	next.Wait()
}

func TestLoss_GuardianStopped_ZklockKillsInTime(t *testing.T) {
	t.Parallel()
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.runFamily(t, log)
	one := proctest.WaitForFamily(t, log, 0)
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
	proctest.RequireAllGone(t, proctest.PIDs(proctest.ReadLines(t, log), 0))
	proctest.RequireInTime(t, proctest.ReadLines(t, log), one, silence, sessionTimeout)
	require.Equal(t, exitLost, p.Wait())
}

func TestLoss_GuardianStopped_DoesNotHoldUpTheRelease(t *testing.T) {
	l, stop := newLocker(t), filepath.Join(t.TempDir(), "stop")
	p := l.run(t, nil, "--", "sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.05; done; exit 5`, stop)
	p.Prints("ready")
	require.NoError(t, syscall.Kill(guardianOf(t, p), syscall.SIGSTOP))
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	require.Equal(t, 5, p.Wait())
	require.Zero(t, l.queued())
}
