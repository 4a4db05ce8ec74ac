//go:build linux || darwin

package supervise

// Attacks on the promise that the command runs as it would without us: what it is given, the
// signals, its end.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/proctest"
)

// Arguments and environment are bytes, which need not be UTF-8.
func TestRun_PassesBytesUnchanged(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "pr\xf6gram")
	require.NoError(t, os.Symlink("/bin/sh", program))
	p := newLocker(t).run(t, func(c *exec.Cmd) { c.Env = append(c.Env, "LATIN1=gr\xfc\xdfe\nzwei", "EMPTY=") },
		"--", program, "-c", `printf '<%s>' "$@" "$LATIN1" "${EMPTY-unset}" "$0"`, "caf\xe9.txt", "", "two\nlines", "\xff\xfe")
	require.Equal(t, 0, p.Wait())
	require.Equal(t, "<><two\nlines><\xff\xfe><gr\xfc\xdfe\nzwei><><caf\xe9.txt>", p.Stdout.String())
}

func TestRun_PassesManyArguments(t *testing.T) {
	args := make([]string, 1600)
	for i := range args {
		args[i] = strings.Repeat("x", 1000)
	}
	// The guardian's copy of them takes a busy machine seconds.
	p := newLocker(t).run(t, nil, append([]string{"--timeout", "40s", "--", "sh", "-c", `echo $#`, "sh"}, args...)...)
	require.Equal(t, 0, p.Wait())
	require.Equal(t, "1600\n", p.Stdout.String())
}

func TestRun_PassesOtherDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	p := newLocker(t).run(t, func(c *exec.Cmd) { c.ExtraFiles = []*os.File{w} }, "--", "sh", "-c", `echo through three >&3`)
	require.NoError(t, w.Close())
	require.Equal(t, 0, p.Wait())
	b := make([]byte, 100)
	n, err := r.Read(b)
	require.NoError(t, err)
	require.Equal(t, "through three\n", string(b[:n]))
}

// Only the exec can tell. A script without a #! line is the shell's.
func TestRun_CommandCannotRun(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o755))
	p := newLocker(t).run(t, nil, "--", broken)
	require.Equal(t, ExitNotFound, p.Wait())

	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("echo no interpreter line, $1\n"), 0o755))
	p = newLocker(t).run(t, nil, "--", script, "no matter")
	require.Equal(t, 0, p.Wait())
	require.Equal(t, "no interpreter line, no matter\n", p.Stdout.String())
}

func TestRun_CommandDiesOfSignal_ExitsAsAShellWould(t *testing.T) {
	l := newLocker(t)
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGTERM} {
		p := l.run(t, nil, "--", "sh", "-c", fmt.Sprintf("kill -%d $$", s))
		require.Equal(t, 128+int(s), p.Wait())
	}
}

func TestRun_ForwardsSignals(t *testing.T) {
	l := newLocker(t)
	for _, name := range []string{"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"} {
		t.Run(name, func(t *testing.T) {
			p := l.run(t, nil, "--", "sh", "-c", fmt.Sprintf(`trap "echo got %s; exit 7" %s; echo ready; while :; do sleep 0.02; done`, name, name))
			p.Prints("ready")
			p.Signal(map[string]syscall.Signal{
				"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
				"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
			}[name])
			require.Equal(t, 7, p.Wait())
			require.Contains(t, p.Stdout.String(), "got "+name)
		})
	}
}

func TestRun_IgnoredSignalStaysIgnored(t *testing.T) {
	// As under nohup.
	stop := filepath.Join(t.TempDir(), "stop")
	p := newLocker(t).run(t, func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", binary(t)}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("sh")
	}, "--", "sh", "-c", `kill -HUP $$; echo alive; until [ -e "$0" ]; do sleep 0.05; done`, stop)
	p.Prints("alive")
	p.Signal(syscall.SIGHUP)
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	require.Equal(t, 0, p.Wait())
	require.Equal(t, "alive\n", p.Stdout.String())
}

func TestRun_SecondSIGINT_KillsACommandThatIgnoresIt(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, nil, "--", "sh", "-c", `trap "echo one" INT; echo ready; while :; do sleep 0.02; done`)
	p.Prints("ready")
	p.Signal(syscall.SIGINT)
	p.Prints("one")
	time.Sleep(2 * repeatWithin) // sooner, it would be the same one
	p.Signal(syscall.SIGINT)
	require.Equal(t, 130, p.Wait())
	require.Zero(t, l.queued(), "released")
}

func TestRun_WhatTheCommandLeavesInItsGroupEndsBeforeTheRelease(t *testing.T) {
	l, log := newLocker(t), filepath.Join(t.TempDir(), "log")
	p := l.run(t, jobEnv, "--kill-after", "300ms", "--", "sh", "-c",
		`"$0" "$1" stubborn </dev/null >/dev/null 2>&1 & until [ -s "$1" ]; do sleep 0.01; done; exit 3`, os.Args[0], log)
	require.Equal(t, 3, p.Wait())
	ls := proctest.ReadLines(t, log)
	require.NotEmpty(t, ls)
	require.True(t, proctest.Gone(ls[0].PID))
	require.Contains(t, proctest.Whats(ls), "term", "it was asked first")
}
