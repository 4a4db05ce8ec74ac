package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/proctest"
)

// Three processes of ours come before the command, each with handlers, limits and descriptors of
// its own. The command sees nothing of that.
func TestRun_CommandStartsAsWithoutZklock(t *testing.T) {
	l := newLocker(t)
	for _, argv := range [][]string{
		{"grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"},
		{"ls", "/proc/self/fd"},
		{"sh", "-c", "ulimit -n; ulimit -Hn; umask; pwd"},
	} {
		// By way of a shell: Go's os/exec does some of its own.
		plain, err := exec.Command("sh", append([]string{"-c", `exec "$@"`, "sh"}, argv...)...).Output()
		require.NoError(t, err)
		p := l.run(t, nil, append([]string{"--"}, argv...)...)
		require.Equal(t, 0, p.Wait())
		require.Equal(t, string(plain), p.Stdout.String(), argv)
	}
}

// A signal may come while zklock's own code becomes the command. The command gets it.
func TestSupervise_SignalAtTheStart_IsPassedOn(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			h := &lookedAtHold{fakeHold: fakeHold{deadline: time.Now().Add(patience), lost: make(chan struct{})}}
			h.look = func() {
				proctest.Eventually(t, "what becomes the command was at its gate", func() bool { return atGate(t, h.runner.child.pid) })
				h.runner.kept <- sig
			}
			out := superviseJob(t, Job{Hold: h}, h.of, "sleep", "1000")
			require.NoError(t, out.Lost)
			require.Equal(t, sig, out.Died)
		})
	}
}

// atGate says whether a child of the process catches SIGTTOU, which is what execMain sees to before
// it waits.
func atGate(t *testing.T, parent int) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/status")
	require.NoError(t, err)
	for _, file := range files {
		status, _ := os.ReadFile(file) // of a process that may have ended
		var ppid int
		var caught uint64
		for line := range strings.Lines(string(status)) {
			_, _ = fmt.Sscanf(line, "PPid: %d", &ppid)
			_, _ = fmt.Sscanf(line, "SigCgt: %x", &caught)
		}
		if ppid == parent && caught&(1<<(syscall.SIGTTOU-1)) != 0 {
			return true
		}
	}
	return false
}

// The guardian is killed before zklock knows the command's group: the command does not run, for
// nobody could end it.
func TestLoss_GuardianKilledBeforeItsGroupIsKnown_NothingRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	h := &lookedAtHold{fakeHold: fakeHold{deadline: time.Now().Add(patience), lost: make(chan struct{})}}
	h.look = func() {
		proctest.Eventually(t, "what becomes the command was at its gate", func() bool { return atGate(t, h.runner.child.pid) })
		require.Never(t, func() bool { _, err := os.Stat(file); return err == nil }, 300*time.Millisecond, 10*time.Millisecond, "the command has begun")
		require.NoError(t, syscall.Kill(h.runner.child.pid, syscall.SIGKILL))
	}
	out := superviseJob(t, Job{Hold: h}, h.of, "touch", file)
	require.ErrorIs(t, out.Err, errGuardianGone)
	require.NoFileExists(t, file)

	// Where no parent-death signal ends it, its gate does.
	ours, gate, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, gate.Close())
	touch, err := exec.LookPath("touch")
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], execArg, "3", touch, "touch", file)
	cmd.ExtraFiles = []*os.File{ours}
	require.Error(t, cmd.Run())
	require.Equal(t, ExitFailed, cmd.ProcessState.ExitCode())
	require.NoFileExists(t, file)
}

// A Go program cannot know of any other signal that it was ignored: its runtime has set a handler
// before it can look. docs/command.md says so.
func TestRun_OfSignalsIgnoredAtTheStart_HUPAndINTStaySo(t *testing.T) {
	p := newLocker(t).run(t, func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `trap "" HUP INT QUIT TERM USR1 PIPE TSTP TTOU; exec "$@"`, "sh", binary(t)}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("sh")
	}, "--", "sh", "-c", `while read k v; do [ "$k" != SigIgn: ] || echo $v; done </proc/self/status`)
	require.Equal(t, 0, p.Wait())
	ignored, err := strconv.ParseUint(strings.TrimSpace(p.Stdout.String()), 16, 64)
	require.NoError(t, err)
	bit := func(s syscall.Signal) uint64 { return 1 << (s - 1) }
	ours := uint64(0) // whoever runs the tests may ignore others
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTOU} {
		ours |= bit(s)
	}
	require.Equal(t, bit(syscall.SIGHUP)|bit(syscall.SIGINT), ignored&ours)
}

// As PID 1 of a container zklock becomes the parent of whatever lost its own. Here it is a shell's
// child that zklock inherits by the shell's exec; the kernel makes no difference.
func TestRun_Process1_ReapsWhatBecomesItsChild(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, func(c *exec.Cmd) {
		namespaced(t, "--pid", "--fork", "--mount-proc", "sh", "-c", `sleep 0.2 & exec "$@"`, "sh")(c)
	}, "--", "sh", "-c", `echo ready; sleep 60`)
	p.Prints("ready")
	child, err := exec.Command("pgrep", "-P", fmt.Sprint(p.Cmd.Process.Pid)).Output()
	require.NoError(t, err)
	zklock, err := strconv.Atoi(strings.TrimSpace(string(child)))
	require.NoError(t, err)
	proctest.Eventually(t, "the guardian is the only child", func() bool {
		out, err := exec.Command("ps", "-o", "args=", "--ppid", fmt.Sprint(zklock)).Output()
		require.NoError(t, err)
		return strings.Count(string(out), "\n") == 1 && strings.Contains(string(out), guardianArg)
	})
	require.NoError(t, syscall.Kill(zklock, syscall.SIGTERM))
	require.Equal(t, 143, p.Wait())
}

// hidden starts zklock as nobody on a host whose /proc shows nobody other people's processes. $root
// is a command that becomes root, and so disappears from there: as "$root sleep 1" out of reach of
// every signal of nobody's, too.
func hidden(t *testing.T) (change func(*exec.Cmd), root string) {
	t.Helper()
	missing := ""
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		missing = "no setpriv (Debian: util-linux)"
	} else if os.Geteuid() != 0 {
		missing = "not root, and a /proc of one's own needs it"
	}
	dir := t.TempDir()
	if missing == "" {
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		b, err := os.ReadFile(setpriv)
		require.NoError(t, err)
		root = filepath.Join(dir, "become")
		require.NoError(t, os.WriteFile(root, b, 0o755))
		require.NoError(t, os.Chmod(root, 0o755|os.ModeSetuid))
		if out, err := exec.Command("setpriv", "--reuid", "65534", root, "--reuid", "0", "id", "-ru").CombinedOutput(); err != nil || string(out) != "0\n" {
			missing = fmt.Sprintf("no setuid programs in %s: %s", dir, out)
		}
	}
	if missing != "" {
		if required() {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return func(c *exec.Cmd) {
		c.Args = append([]string{"unshare", "-m", "sh", "-c",
			`mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`, "sh", binary(t)}, c.Args[1:]...)
		c.Path, err = exec.LookPath("unshare")
		require.NoError(t, err)
	}, root
}

func TestLoss_GroupCannotBeSeen_IsReleasedWhenItHasEnded(t *testing.T) {
	l := newLocker(t)
	change, root := hidden(t)
	began := time.Now()
	p := l.run(t, change, "--", root, "--reuid", "0", "sleep", "0.3")
	require.Equal(t, 0, p.Wait())
	require.Less(t, time.Since(began), patience/2)
	require.Zero(t, l.queued())
}

// A signal to zklock does not reach it, which zklock says. The lock waits for its end.
func TestLoss_GroupCannotBeSeen_OrSignalled_ReportsIt(t *testing.T) {
	l := newLocker(t)
	change, root := hidden(t)
	stop := filepath.Join(filepath.Dir(root), "stop")
	p := l.run(t, change, "--", root, "--reuid", "0",
		"sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.05; done; exit 4`, stop)
	p.Prints("ready")
	p.Signal(syscall.SIGTERM)
	p.Prints("belongs to another user and cannot be signalled")
	require.Equal(t, 1, l.queued())
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	require.Equal(t, 4, p.Wait())
	require.Zero(t, l.queued())
}

// What the leader left can neither be seen nor be killed. The lock waits for its end all the same.
func TestLoss_GroupCannotBeSeen_IsNotReleasedBefore(t *testing.T) {
	l := newLocker(t)
	change, root := hidden(t)
	file := filepath.Join(filepath.Dir(root), "ended")
	p := l.run(t, change, "--", "sh", "-c",
		`"$0" --reuid 0 sh -c 'echo began >"$0"; sleep 2; echo ended >"$0"' "$1" & until [ -s "$1" ]; do sleep 0.01; done; exit 4`, root, file)
	require.Equal(t, 4, p.Wait())
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "ended\n", string(b))
	require.Zero(t, l.queued())
}

// The same for the guardian of a zklock that was killed.
func TestLoss_ZklockKilled_GroupCannotBeSeen_GuardianEndsAfterIt(t *testing.T) {
	l := newLocker(t)
	change, root := hidden(t)
	file := filepath.Join(filepath.Dir(root), "ended")
	p := l.run(t, change, "--timeout", "40s", "--", "sh", "-c",
		`"$0" --reuid 0 sh -c 'echo ready; until [ -e "$0.stop" ]; do sleep 0.05; done; sleep 1; echo ended >"$0"' "$1"`, root, file)
	p.Prints("ready")
	guardian := guardianOf(t, p)
	next := l.run(t, nil, "--timeout", "40s", "--", "cat", file)
	proctest.Eventually(t, "the next one waits", func() bool { return l.queued() == 2 })
	p.Signal(syscall.SIGKILL)
	killed := time.Now()
	require.NoError(t, os.WriteFile(file+".stop", nil, 0o600))
	require.Equal(t, 0, next.Wait())
	require.Equal(t, "ended\n", next.Stdout.String(), "not before the group's end")
	require.Less(t, time.Since(killed), patience, "and not by the session's")
	proctest.Eventually(t, "the guardian has ended", func() bool { return proctest.Gone(guardian) })
}
