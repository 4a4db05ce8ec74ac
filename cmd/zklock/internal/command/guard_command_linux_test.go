package command

// These tests attack the guard that runs a command: its signals, streams and exit codes, and its
// duties as process 1.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// COMMAND finds the guard in its environment. The guard ends its sessions before it ends itself.
func TestGuard_Command_CrashIsFollowedByTheEndOfItsSession(t *testing.T) {
	t.Parallel()
	servers := fakeServer(t)
	s := clientOf(t, servers)
	p := start(t, func(c *exec.Cmd) { c.Env = append(c.Env, envHolder+"=1") }, "guard", "--", os.Args[0], servers, "/job", "1")
	p.prints("holds all")
	held(t, s, "/job/0")
	require.NoError(t, syscall.Kill(childOf(t, p.cmd.Process.Pid), syscall.SIGKILL))
	require.Equal(t, exitSignal+int(syscall.SIGKILL), p.wait())
	require.Contains(t, p.stderr.String(), "ended its session 0x")
	m, err := zklock.NewMutex(s, "/job/0")
	require.NoError(t, err)
	h, err := m.TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
}

// The guard ends no process: COMMAND works on when the guard is killed.
func TestGuard_CommandOutlivesTheGuard(t *testing.T) {
	t.Parallel()
	servers := fakeServer(t)
	p := start(t, func(c *exec.Cmd) { c.Env = append(c.Env, envHolder+"=1") }, "guard", "--", os.Args[0], servers, "/job", "1")
	p.prints("a guard is connected")
	p.prints("holds all")
	child := childOf(t, p.cmd.Process.Pid)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	p.signal(syscall.SIGKILL)
	p.prints("no guard is connected")
	held(t, clientOf(t, servers), "/job/0")
	require.False(t, gone(child))
}

// The reader of stderr has ended: neither guard ends for a line that it cannot write, so COMMAND
// has its guard to the end.
func TestGuard_ReaderOfStderrHasEnded_GuardsOn(t *testing.T) {
	t.Parallel()
	servers, socket := fakeServer(t), socketIn(t)
	s := clientOf(t, servers)
	p := start(t, func(c *exec.Cmd) { withoutReader(t, c); c.Env = append(c.Env, envHolder+"=1") },
		"guard", "--", "sh", "-c", `exec "$0" "$@" 2>/dev/null`, os.Args[0], servers, "/job", "1")
	p.prints("holds all")
	require.NoError(t, syscall.Kill(childOf(t, p.cmd.Process.Pid), syscall.SIGKILL))
	require.Equal(t, exitSignal+int(syscall.SIGKILL), p.wait())
	acquired(t, s, "/job/0")

	guard := start(t, func(c *exec.Cmd) { withoutReader(t, c) }, "guard", "--listen", socket)
	for _, path := range []string{"/one", "/two"} {
		holder := guardedHolder(t, servers, path, socket, 1)
		requireGuarded(t, holder, 1)
		holder.Signal(syscall.SIGKILL)
		acquired(t, s, path+"/0")
	}
	guard.signal(syscall.SIGTERM)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), guard.wait())
}

func TestGuard_Command_ExitCodes(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("exit 7\n"), 0o755))
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("text"), 0o644))
	for want, argv := range map[int][]string{
		0:               {"true"},
		42:              {"sh", "-c", "exit 42"},
		7:               {script}, // without a #! line
		exitSignal + 9:  {"sh", "-c", "kill -9 $$"},
		exitSignal + 15: {"sh", "-c", "kill -15 $$"},
		exitNotFound:    {"no-such-command-anywhere"},
		exitCannotRun:   {plain},
	} {
		p := start(t, nil, append([]string{"guard", "--"}, argv...)...)
		require.Equal(t, want, p.wait(), "%v: %s", argv, p.stderr)
	}
	for _, argv := range [][]string{
		{"guard"}, {"guard", "true"}, {"guard", "--listen", "x", "--", "true"},
		{"guard", "--servers", "user:secret@zk1", "--", "true"}, {"guard", "--servers", "/chroot", "--", "true"}, {"guard", "--servers", ",", "--", "true"},
	} {
		p := start(t, nil, argv...)
		require.Equal(t, exitUsage, p.wait(), argv)
		require.NotContains(t, p.stderr.String(), "secret")
	}
}

func TestGuard_Command_GetsSignals(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} {
		p := start(t, nil, "guard", "--", "sh", "-c", fmt.Sprintf(`trap "exit 9" %d; echo ready; while :; do sleep 0.01; done`, s))
		p.prints("ready")
		p.signal(s)
		require.Equal(t, 9, p.wait(), s)
	}
}

func TestGuard_Command_StreamsAreItsOwn(t *testing.T) {
	t.Parallel()
	p := start(t, func(c *exec.Cmd) { c.Stdin = strings.NewReader("one\n") }, "guard", "--", "sh", "-c", "cat; echo problem >&2")
	require.Equal(t, 0, p.wait())
	require.Equal(t, "one\n", p.stdout.String())
	require.Equal(t, "problem\n", p.stderr.String())
}

// Where no directory can be written, the socket has no file.
func TestGuard_Command_NoWritableDirectory(t *testing.T) {
	t.Parallel()
	p := start(t, func(c *exec.Cmd) { c.Env = append(c.Env, "TMPDIR=/proc") }, "guard", "--", "sh", "-c", `echo "$ZKLOCK_GUARD"`)
	require.Equal(t, 0, p.wait(), p.stderr.String())
	require.True(t, strings.HasPrefix(p.stdout.String(), "@zklock-guard-"), p.stdout.String())
}

// As process 1 the guard is the parent of every orphan.
func TestGuard_Process1_ReapsOrphans(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		missing(t, "not root, and a PID namespace needs it")
	}
	p := start(t, func(c *exec.Cmd) {
		c.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", binary(t)}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("unshare")
	}, "guard", "--", "sh", "-c", `for i in 1 2 3; do (sh -c 'sleep 0.05; exit 3' &); done
		n=1; while [ $n -gt 0 ]; do n=$(cat /proc/[0-9]*/stat | grep -c ' Z 1 \|(sleep)'); done; exit 5`)
	require.Equal(t, 5, p.wait(), p.stderr.String())
}

// docker stop sends SIGTERM to process 1.
func TestGuard_Process1_SIGTERMReachesTheCommand(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		missing(t, "not root, and a PID namespace needs it")
	}
	p := start(t, func(c *exec.Cmd) {
		c.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", binary(t)}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("unshare")
	}, "guard", "--", "sh", "-c", `trap "exit 9" TERM; echo ready; while :; do sleep 0.01; done`)
	p.prints("ready")
	require.NoError(t, syscall.Kill(childOf(t, p.cmd.Process.Pid), syscall.SIGTERM))
	require.Equal(t, 9, p.wait(), p.stderr.String())
}
