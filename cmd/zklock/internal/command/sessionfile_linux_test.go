package command

// Attacks on --session-file.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// runWithFile runs a stubborn job with a session file.
func runWithFile(t *testing.T, servers, path, file, log string) *proc {
	t.Helper()
	return start(t, jobEnv, runArgs(servers, path, longSession, "--session-file", file, "--", os.Args[0], log, "stubborn")...)
}

func jobs(t *testing.T, log string) (tokens []int64) {
	t.Helper()
	for _, l := range readLines(t, log) {
		if l.What == "start" {
			tokens = append(tokens, l.Token)
		}
	}
	return tokens
}

// killLast kills the job that began last.
func killLast(t *testing.T, log string) {
	t.Helper()
	ls := readLines(t, log)
	require.NoError(t, syscall.Kill(ls[len(ls)-1].PID, syscall.SIGKILL))
}

// F58: zklock and its guardian are both killed, and the command with them. The next run with the
// session file need not wait for the session timeout.
func TestRun_SessionFile_AllKilled_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	srv, path, dir := server(t), lockPath(t), t.TempDir()
	file, log := filepath.Join(dir, "zk.session"), filepath.Join(dir, "log")
	first := runWithFile(t, srv.ConnectString(), path, file, log)
	eventually(t, "the job runs", func() bool { return len(jobs(t, log)) == 1 })
	guardian := guardianOf(t, first)
	first.signal(syscall.SIGSTOP) // it would end the command when its guardian has died
	require.NoError(t, syscall.Kill(guardian, syscall.SIGKILL))
	killLast(t, log) // while its parent cannot reap it
	first.signal(syscall.SIGKILL)
	began := time.Now()
	second := runWithFile(t, srv.ConnectString(), path, file, log)
	eventually(t, "the next job runs", func() bool { return len(jobs(t, log)) == 2 })
	t.Logf("the next job began after %v", time.Since(began))
	tokens := jobs(t, log)
	require.Greater(t, tokens[1], tokens[0])
	killLast(t, log)
	second.wait()
}

// F58: zklock alone is killed. Its guardian keeps the session file locked until the command has
// ended, and the command does not have it.
func TestRun_SessionFile_ZklockKilled_GuardianKeepsItLocked(t *testing.T) {
	t.Parallel()
	srv, path, dir := server(t), lockPath(t), t.TempDir()
	file, log := filepath.Join(dir, "zk.session"), filepath.Join(dir, "log")
	first := runWithFile(t, srv.ConnectString(), path, file, log)
	eventually(t, "the job runs", func() bool { return len(jobs(t, log)) == 1 })
	require.True(t, hasOpen(t, guardianOf(t, first), file))
	require.False(t, hasOpen(t, readLines(t, log)[0].PID, file))
	first.signal(syscall.SIGKILL)
	second := runWithFile(t, srv.ConnectString(), path, file, log)
	eventually(t, "the next job runs", func() bool { return len(jobs(t, log)) == 2 })
	killLast(t, log)
	second.wait()
	requireNoOverlap(t, readLines(t, log))
}

// A session file in use is waited for as the lock is: the run never reports that no server has
// replied, or that another client holds its lock.
func TestRun_SessionFile_InUse_IsWaitedForAsTheLock(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=60000"))
	file := filepath.Join(t.TempDir(), "zk.session")
	args := func(path string, rest ...string) []string {
		return runArgs(srv.Addr(), path, append([]string{"--session-file", file}, rest...)...)
	}
	first := start(t, nil, args("/first", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	first.prints("ready")
	inUse := "the session file " + file + " is in use, by another run or by processes of a run that was killed\n"
	refused, waited := "zklock: /other: not acquired: "+inUse, "zklock: /other: waiting: "+inUse
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"no wait", []string{"-n"}, exitNotAcquired, refused},
		{"no wait, no failure", []string{"-n", "-E", "0"}, 0, refused},
		{"no wait, quiet", []string{"-n", "-q"}, exitNotAcquired, ""},
		{"wait of 0", []string{"-w", "0"}, exitNotAcquired, refused},
		{"wait shorter than an attempt", []string{"-w", "200ms"}, exitNotAcquired, "zklock: /other: not acquired: gave up after 200ms: " + inUse},
		{"wait, quiet", []string{"-q", "-w", "1500ms", "-E", "7"}, 7, ""},
		{"connect timeout", []string{"-w", "1500ms", "--connect-timeout", "1ms"}, exitNotAcquired, waited + "zklock: /other: not acquired: gave up after 1.5s: " + inUse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, nil, args("/other", append(slices.Clone(tt.args), "--", "echo", "ran")...)...)
			require.Equal(t, tt.code, p.wait(), p.stderr)
			require.Empty(t, p.stdout.String())
			require.Equal(t, tt.stderr, p.stderr.String())
		})
	}
	next := start(t, nil, args("/other", "--", "echo", "ran")...)
	eventually(t, "it waits", func() bool { return next.stderr.String() == waited })
	first.signal(syscall.SIGTERM)
	first.wait()
	require.Equal(t, 0, next.wait(), next.stderr)
	require.Contains(t, next.stderr.String(), waited+"zklock: /other: acquired, token ")
}

// The wait can end just after an attempt that --connect-timeout has ended: the error of the attempt
// names another cause.
func TestExplainConnect_SessionFileInUse_CauseOfTheWait(t *testing.T) {
	wait, cancel := context.WithCancelCause(t.Context())
	cancel(errWaited{time.Second})
	o := &runOptions{}
	o.path, o.sessionFile = "/other", "zk.session"
	require.ErrorContains(t, o.explainConnect(t.Context(), wait, zklock.ErrSessionFileInUse), "/other: not acquired: gave up after 1s: the session file zk.session is in use")
	require.NotContains(t, o.explainConnect(t.Context(), t.Context(), zklock.ErrSessionFileInUse).Error(), "gave up")

	// A signal wins, also if it comes after the wait.
	ctx, end := context.WithCancelCause(t.Context())
	end(interrupted{signal: syscall.SIGTERM})
	var exit *exitError
	require.ErrorAs(t, o.explainConnect(ctx, wait, zklock.ErrSessionFileInUse), &exit)
	require.Equal(t, 128+int(syscall.SIGTERM), exit.code)
}

// hasOpen reports whether a process has a file open.
func hasOpen(t *testing.T, pid int, file string) bool {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	require.NotEmpty(t, links)
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && name == file {
			return true
		}
	}
	return false
}
