//go:build linux || darwin

package command

// These tests attack what keeps a job from running again: the mark of a run that has succeeded, and
// a run that holds its lock longer than COMMAND lasts.

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// The run that comes when COMMAND has ended does not get the lock, zklock runs on until the time is
// over, and the code is COMMAND's.
func TestRun_HoldAtLeast(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	began := time.Now()
	p := run(t, srv, path, "--hold-at-least", "8s", "--", "sh", "-c", "exit 7")
	p.prints("the command has ended; the lock is held until ")
	ps := participants(t, session(t, srv), path)
	require.Len(t, ps, 1)
	require.True(t, ps[0].Holds)
	require.Equal(t, exitNotAcquired, run(t, srv, path, "--no-wait", "--hold-at-least", "8s", "--", "echo").wait())
	require.Equal(t, 7, p.wait())
	require.GreaterOrEqual(t, time.Since(began), 8*time.Second)
	require.Empty(t, participants(t, session(t, srv), path))

	quick := run(t, srv, path, "-q", "--hold-at-least", "100ms", "--", "sleep", "0.2")
	require.Equal(t, 0, quick.wait())
	require.Empty(t, quick.stderr.String(), "COMMAND took longer")
}

// A signal ends it, and so does the end of the session or the deletion of the node. The exit code
// is COMMAND's, which had ended.
func TestRun_HoldAtLeast_EndsBefore(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	for what, end := range map[string]func(p *proc){
		"ended by signal: terminated": func(p *proc) { p.signal(syscall.SIGTERM) },
		"session": func(p *proc) {
			ps := participants(t, session(t, srv), path)
			require.Equal(t, 0, start(t, nil, "expire", "--servers", srv.ConnectString(), "--yes", fmt.Sprintf("%#x", ps[0].SessionID)).wait())
		},
		"another client deleted the lock node": func(*proc) {
			s := session(t, srv)
			require.NoError(t, s.Conn().Delete(participants(t, s, path)[0].Node, -1))
		},
	} {
		p := run(t, srv, path, "--hold-at-least", "1h", "--", "sh", "-c", "exit 7")
		p.prints("the command has ended; the lock is held until ")
		end(p)
		require.Equal(t, 7, p.wait())
		require.Regexp(t, what+`.*: the lock is free 59m\S+ before the end of --hold-at-least\n`, p.stderr.String())
		require.Empty(t, participants(t, session(t, srv), path))
	}
}

// Of two runs at a time one runs COMMAND, and the other one waits, and says who did. So does a
// later one, without the lock. A COMMAND that fails is run again. prune leaves the mark, and ls
// takes it for no lock.
func TestRun_Once(t *testing.T) {
	t.Parallel()
	srv, folder := server(t), lockPath(t)
	path := folder + "/job"
	const done = `zklock: %s: 2026-07-01 is done: by \S+ at \S+, token \d+\n`
	require.Equal(t, 7, run(t, srv, path, "--once", "2026-07-01", "--", "sh", "-c", "exit 7").wait())
	stop, end := stopFile(t)
	first := run(t, srv, path, "--once", "2026-07-01", "--", "sh", "-c", `echo started >&2; until [ -e "$0" ]; do sleep 0.02; done; echo ran`, stop)
	first.prints("started")
	metrics := filepath.Join(t.TempDir(), "job.prom")
	second := run(t, srv, path, "--once", "2026-07-01", "--metrics-file", metrics, "--", "echo", "ran")
	observer := session(t, srv)
	eventually(t, "the second waits", func() bool { return len(participants(t, observer, path)) == 2 })
	require.Equal(t, exitNotAcquired, run(t, srv, path, "--no-wait", "--once", "2026-07-01", "--", "echo", "ran").wait(), "it runs elsewhere")
	end()
	require.Equal(t, 0, first.wait())
	require.Equal(t, "ran\n", first.stdout.String())
	require.Contains(t, first.stderr.String(), "2026-07-01 is marked as done (token ")
	require.Equal(t, 0, second.wait())
	require.Empty(t, second.stdout.String())
	require.Regexp(t, fmt.Sprintf(done+"$", path), second.stderr.String())
	v := metricsIn(t, metrics).values
	require.Equal(t, []float64{1, 0, 0}, []float64{v["acquired"], v["exit_code"], v["success_timestamp_seconds"]}, "it has run nothing")

	_, release := occupy(t, observer, path)
	later := run(t, srv, path, "--no-wait", "--once", "2026-07-01", "--", "echo", "ran")
	require.Equal(t, 0, later.wait())
	require.Regexp(t, fmt.Sprintf("^"+done+"$", path), later.stdout.String()+later.stderr.String())
	quiet := run(t, srv, path, "-q", "--once", "2026-07-01", "--", "echo", "ran")
	require.Equal(t, 0, quiet.wait())
	require.Empty(t, quiet.stdout.String()+quiet.stderr.String())
	release()
	next := run(t, srv, path, "--once", "2026-07-02", "--hold-at-least", "1ms", "--", "echo", "ran")
	require.Equal(t, 0, next.wait())
	require.Equal(t, "ran\n", next.stdout.String())

	l := start(t, nil, "ls", "-r", "--json", "--servers", srv.ConnectString(), folder)
	require.Equal(t, 0, l.wait())
	require.NotContains(t, l.stdout.String(), path+"-done")
	require.Equal(t, 0, start(t, nil, "prune", "--servers", srv.ConnectString(), "--yes", path+"-done").wait())
	_, _, err := observer.Conn().Get(path + "-done")
	require.NoError(t, err)
}

// R115: a mark that may not be written, or other data in its place, keeps COMMAND from running. If
// the mark is rejected only after COMMAND has succeeded, zklock reports that.
func TestRun_Once_NotMarked(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	require.Equal(t, 0, run(t, srv, path, "--once", "a", "--", "true").wait())
	readOnly := func() {
		_, err := s.Conn().SetACL(path+"-done", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
	}
	readOnly()
	p := run(t, srv, path, "--once", "b", "--", "echo", "ran")
	require.Equal(t, exitRefused, p.wait())
	require.Empty(t, p.stdout.String())
	require.Regexp(t, `set: no WRITE permission on \S+-done: `, p.stderr.String())

	_, err := s.Conn().SetACL(path+"-done", zk.WorldACL(zk.PermAll), -1)
	require.NoError(t, err)
	proceed := filepath.Join(t.TempDir(), "proceed")
	p = run(t, srv, path, "--once", "b", "--", "sh", "-c", `echo started >&2; until [ -e "$0" ]; do sleep 0.1; done; echo ran`, proceed)
	p.prints("started")
	readOnly()
	require.NoError(t, os.WriteFile(proceed, nil, 0o600))
	require.Equal(t, exitRefused, p.wait())
	require.Equal(t, "ran\n", p.stdout.String())
	require.Regexp(t, `the command succeeded, and is not marked as done: .*no WRITE permission on \S+-done: .*; the next run with this key runs it again\n$`, p.stderr.String())

	require.NoError(t, s.Conn().Delete(path+"-done", -1))
	_, err = s.Conn().Create(path+"-done", []byte("theirs"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	p = run(t, srv, path, "--once", "b", "--", "echo", "ran")
	require.Equal(t, exitUsage, p.wait())
	require.Contains(t, p.stderr.String(), `-done has data of another program, "theirs"`)
	require.Empty(t, p.stdout.String())
}
