//go:build linux || darwin

package command

// Attacks on the promise that what zklock says holds up nothing: a stderr that nobody reads.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock/zktest"
)

// fullPipe returns a pipe into which nothing more fits. Nobody reads it before the test does.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	require.NoError(t, unix.SetNonblock(p[1], true))
	for size := 4096; size > 0; {
		if _, err := unix.Write(p[1], bytes.Repeat([]byte("."), size)); err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			size /= 2
		}
	}
	require.NoError(t, unix.SetNonblock(p[1], false))
	r, w = os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// deaf is a run at the lowest log level whose stderr is a full pipe.
func deaf(t *testing.T, servers, path string, rest ...string) *proc {
	t.Helper()
	_, w := fullPipe(t)
	return start(t, func(c *exec.Cmd) { c.Stderr = w }, runArgs(servers, path, append([]string{"--log-level", "debug", longSession}, rest...)...)...)
}

// untilFile is a command that says so and ends when the file is there.
func untilFile(file string) []string {
	return []string{"--", "sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.01; done`, file}
}

func TestStderr_Full_CommandRunsAndNextNeedNotWait(t *testing.T) {
	t.Parallel()
	srv, path, stop := server(t), lockPath(t), filepath.Join(t.TempDir(), "stop")
	s := session(t, srv)
	_, release := occupy(t, s, path)
	p := deaf(t, srv.ConnectString(), path, untilFile(stop)...)
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	release()
	p.prints("ready")
	next := run(t, srv, path, longSession, "--", "echo", "ran")
	eventually(t, "the next queues", func() bool { return len(participants(t, s, path)) == 2 })
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	began := time.Now()
	next.prints("ran")
	t.Logf("the next command ran after %v", time.Since(began))
	require.Equal(t, 0, p.wait())
}

func TestStderr_Full_SIGTERMIsHeard(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	p := deaf(t, srv.ConnectString(), path, untilFile("/never/there")...)
	p.prints("ready")
	waiting := deaf(t, srv.ConnectString(), path, untilFile("/never/there")...)
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	waiting.signal(syscall.SIGTERM)
	require.Equal(t, 143, waiting.wait())
	p.signal(syscall.SIGTERM)
	require.Equal(t, 143, p.wait())
	require.Empty(t, participants(t, s, path))
}

func TestStderr_Full_ZklockKilled_NextNeedNotWait(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	p := deaf(t, srv.ConnectString(), path, untilFile("/never/there")...)
	p.prints("ready")
	next := run(t, srv, path, longSession, "--", "echo", "ran")
	next.prints("waiting")
	killed := time.Now()
	p.signal(syscall.SIGKILL)
	next.prints("ran")
	t.Logf("the next command ran after %v", time.Since(killed))
}

// withoutReader gives a process a stderr whose reader has ended.
func withoutReader(t *testing.T, c *exec.Cmd) {
	t.Helper()
	r, w := fullPipe(t)
	require.NoError(t, r.Close())
	c.Stderr = w
}

// A reader of stderr that has ended ends no subcommand that runs for long. Where stdout is the
// subcommand's purpose, its reader does.
func TestStderr_ReaderGone_LongSubcommandsContinue(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t)
	serve := start(t, func(c *exec.Cmd) { withoutReader(t, c) }, "serve", "--listen", "127.0.0.1:0")
	serve.prints("127.0.0.1:")
	serve.signal(syscall.SIGTERM)
	require.Equal(t, 0, serve.wait())

	// The root does not exist, which is a note.
	watch := start(t, func(c *exec.Cmd) { withoutReader(t, c) }, "ls", "--servers", srv.Addr(), "--watch", "/job")
	watch.prints("/job\n")
	occupy(t, sessionAt(t, srv.Addr()), "/job")
	watch.prints("holds")
	watch.signal(syscall.SIGTERM)
	require.Equal(t, 0, watch.wait())

	noStdout := func(c *exec.Cmd) { withoutReader(t, c); c.Stdout, c.Stderr = c.Stderr, nil }
	watch = start(t, noStdout, "ls", "--servers", srv.Addr(), "--watch", "/job")
	require.Equal(t, exitSignal+int(syscall.SIGPIPE), watch.wait())
	require.Empty(t, watch.stderr.String())
	demo := start(t, noStdout, "demo")
	require.Equal(t, exitSignal+int(syscall.SIGINT), demo.wait(), "it has ended its workers first")
}

// A reader that has gone ends no run, and changes no exit code.
func TestStderr_ReaderGone_ExitCodeStays(t *testing.T) {
	srv, path := server(t), lockPath(t)
	_, release := occupy(t, session(t, srv), path)
	gone := func(c *exec.Cmd) { withoutReader(t, c) }
	p := start(t, gone, runArgs(srv.ConnectString(), path, "--no-wait", "--", "echo", "ran")...)
	require.Equal(t, exitNotAcquired, p.wait())
	release()
	p = start(t, gone, runArgs(srv.ConnectString(), path, "--log-level", "debug", "--", "sh", "-c", "exit 7")...)
	require.Equal(t, 7, p.wait())
}

// What is dropped is counted at its place, and what was taken comes in order.
func TestAsideWriter_DropsWhatDoesNotFit_AndReportsIt(t *testing.T) {
	r, w := io.Pipe()
	a := newAsideWriter(w)
	defer close(a.said)
	const lines = 1000
	for i := range lines {
		fmt.Fprintln(a, i)
	}
	began := time.Now()
	a.Flush()
	require.GreaterOrEqual(t, time.Since(began), flushWithin, "a reader has that long")
	in, got := bufio.NewScanner(r), 0
	read := func() string {
		require.True(t, in.Scan())
		return in.Text()
	}
	for ; got < 100; got++ {
		require.Equal(t, strconv.Itoa(got), read())
	}
	fmt.Fprintln(a, "there is room again")
	text := read()
	for ; text == strconv.Itoa(got); got++ {
		text = read()
	}
	require.Equal(t, fmt.Sprintf("zklock: lines that were not read in time are missing here: %d", lines-got), text)
	require.GreaterOrEqual(t, got, cap(a.said))
	require.Equal(t, "there is room again", read())
	a.Flush()
}

// With --log-format json, each line of stderr is a JSON object: what the session logs, what a run
// notes, and why it ends.
func TestLogFormat_JSON_EachLineIsAnObject(t *testing.T) {
	srv := zktest.Start(t)
	occupy(t, sessionAt(t, srv.Addr()), "/held")
	for _, tt := range []struct {
		code int
		args []string
		want []string // level and message, of those that come
	}{
		{exitNotAcquired, []string{"run", "--log-level", "info", "--wait", "3s", "/held", "--", "true"},
			[]string{"INFO zklock: connection state", "INFO zklock: /held: waiting: number 2 of 2 in the queue; held by ", "ERROR zklock: /held: not acquired: gave up after 3s: "}},
		{exitUsage, []string{"run", "no/slash", "--", "true"}, []string{"ERROR zklock: path \"no/slash\" is relative"}},
		{0, []string{"ls", "/none"}, []string{"INFO zklock: /none: there is no node /none: "}},
		{exitNoHolder, []string{"revoke", "/none"}, []string{"INFO zklock: /none: there is no node", "ERROR zklock: /none: no client was asked"}},
	} {
		var out, said bytes.Buffer
		code := execute(slices.Insert(tt.args, 1, "--servers", srv.Addr(), "--log-format", "json"), &out, &said)
		require.Equal(t, tt.code, code, said.String())
		var got []string
		for line := range strings.Lines(said.String()) {
			var r struct {
				Time  time.Time
				Level string
				Msg   string
			}
			require.NoError(t, json.Unmarshal([]byte(line), &r), line)
			require.WithinDuration(t, time.Now(), r.Time, time.Minute)
			got = append(got, r.Level+" "+r.Msg)
		}
		for _, want := range tt.want {
			require.True(t, slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }), "%s: %q", want, got)
		}
	}
	var out, said bytes.Buffer
	require.Equal(t, exitUsage, execute([]string{"ls", "--servers", srv.Addr(), "--log-format", "xml", "/none"}, &out, &said))
	require.Equal(t, "zklock: --log-format \"xml\": give text or json\n", said.String())
}
