//go:build linux || darwin

package command

// These tests attack what keeps a job from running again: a run that holds its lock longer than COMMAND lasts.

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The run that comes when COMMAND has ended does not get the lock, zklock runs on until the time is over, and the code is COMMAND's.
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

// A signal ends it, and so does the end of the session. The exit code is COMMAND's, which had ended.
func TestRun_HoldAtLeast_EndsBefore(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	for what, end := range map[string]func(p *proc){
		"ended by signal: terminated": func(p *proc) { p.signal(syscall.SIGTERM) },
		"session": func(p *proc) {
			ps := participants(t, session(t, srv), path)
			require.Equal(t, 0, start(t, nil, "expire", "--servers", srv.ConnectString(), "--yes", fmt.Sprintf("%#x", ps[0].SessionID)).wait())
		},
	} {
		p := run(t, srv, path, "--hold-at-least", "1h", "--", "sh", "-c", "exit 7")
		p.prints("the command has ended; the lock is held until ")
		end(p)
		require.Equal(t, 7, p.wait())
		require.Regexp(t, what+`.*: the lock is free 59m\S+ before the end of --hold-at-least\n$`, p.stderr.String())
		require.Empty(t, participants(t, session(t, srv), path))
	}
}
