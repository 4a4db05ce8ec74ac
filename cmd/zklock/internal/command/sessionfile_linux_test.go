package command

// Attacks on --session-file.

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// A run whose session file is in use has not got the lock, and is used correctly.
func TestRun_SessionFile_InUse_IsNotAcquired(t *testing.T) {
	t.Parallel()
	srv, path, dir := server(t), lockPath(t), t.TempDir()
	file, log := filepath.Join(dir, "zk.session"), filepath.Join(dir, "log")
	first := runWithFile(t, srv.ConnectString(), path, file, log)
	eventually(t, "the job runs", func() bool { return len(jobs(t, log)) == 1 })
	second := start(t, nil, "run", "--servers", srv.ConnectString(), "--no-wait", "--session-file", file, path, "--", "true")
	require.Equal(t, exitNotAcquired, second.wait(), second.stderr)
	killLast(t, log)
	first.wait()
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
