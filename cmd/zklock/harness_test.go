//go:build linux || darwin

package main

// What the tests of the command share: the binary, built once, as real processes against a real server.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

const (
	patience       = 20 * time.Second
	sessionTimeout = 5 * time.Second

	// wellBefore tells "at once" from "when the session, or its lease, ends", on a machine that may be busy. A client that
	// lost its session pauses for a second alone before it asks for the next.
	wellBefore = sessionTimeout - time.Second

	envJob = "ZKLOCK_TEST_JOB" // makes the test binary a job to run under a lock
)

var (
	built struct { // zklock
		sync.Once
		path string
		err  error
	}

	shared struct {
		sync.Once
		srv *zkserver.Server
		err error
	}
)

func TestMain(m *testing.M) {
	if os.Getenv(envJob) != "" {
		tickingJob(os.Args[1:])
		return
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // as under nohup, and whoever starts here would inherit it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // or every process here takes a second more to end
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "zklock-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // for tests that run it as another user
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		built.path = filepath.Join(dir, "zklock")
		code := m.Run()
		if shared.srv != nil {
			_ = shared.srv.Close()
		}
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/zklock/zklock/cmd/zklock.newAsideWriter.func1")); code == 0 && err != nil { // I7
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// binary is zklock, built when it is first wanted.
func binary(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		build := exec.Command("go", "build", "-race", "-o", built.path, ".")
		if cgo, _ := exec.Command("go", "env", "CGO_ENABLED").Output(); runtime.GOOS == "linux" && string(cgo) == "0\n" {
			build = exec.Command("go", "build", "-o", built.path, ".") // no C compiler, so no race detector
		}
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("building the command: %w\n%s", err, out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// tickingJob appends a line to a file every few milliseconds, for ever: when, under which token, and what happened.
//
//	job FILE [stubborn]      a stubborn one survives SIGTERM, and says so
func tickingJob(args []string) {
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say := func(what string) {
		fmt.Fprintf(f, "%d %s %d %s\n", time.Now().UnixNano(), os.Getenv("ZKLOCK_TOKEN"), os.Getpid(), what)
	}
	term := make(chan os.Signal, 1)
	if len(args) > 1 && args[1] == "stubborn" {
		signal.Notify(term, syscall.SIGTERM)
	}
	say("start")
	for {
		select {
		case <-term:
			say("term")
		case <-time.After(5 * time.Millisecond):
			say("tick")
		}
	}
}

// line is one that a ticking job wrote.
type line struct {
	at    time.Time
	token int64
	pid   int
	what  string
}

func readLines(t testing.TB, file string) []line {
	t.Helper()
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var ls []line
	for _, s := range strings.Split(string(b), "\n") {
		f := strings.Fields(s)
		if len(f) != 4 {
			continue
		}
		at, err1 := strconv.ParseInt(f[0], 10, 64)
		token, err2 := strconv.ParseInt(f[1], 10, 64)
		pid, err3 := strconv.Atoi(f[2])
		require.NoError(t, errors.Join(err1, err2, err3), s)
		ls = append(ls, line{time.Unix(0, at), token, pid, f[3]})
	}
	return ls
}

// server returns a server that tests share; a test that stops or pauses one asks zkserver for its own.
func server(t testing.TB) *zkserver.Server {
	t.Helper()
	binary(t) // whoever measures a time does so from here on
	if os.Getenv(zkserver.EnvServers) != "" {
		return zkserver.Single(t)
	}
	shared.Do(func() { shared.srv, shared.err = zkserver.Start(zkserver.Config{}) })
	if errors.Is(shared.err, zkserver.ErrNotInstalled) && !zkserver.Required() {
		t.Skip(shared.err)
	}
	require.NoError(t, shared.err)
	return shared.srv
}

// lockPath is a path of the test's own.
func lockPath(t testing.TB) string {
	return "/cmd/" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// proc is a running process whose output is collected.
type proc struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout output
	stderr output
	done   chan struct{}
}

// output is a file that processes write to, for as long as any of them lives. Reading a pipe would end soon after the
// first of them has ended, and on a busy machine too soon to hear what the guardian says of that.
type output struct{ *os.File }

func newOutput(t testing.TB) output {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "output")
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return output{f}
}

func (o output) String() string {
	b, err := os.ReadFile(o.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts the command line; change may alter it before.
func start(t testing.TB, change func(*exec.Cmd), args ...string) *proc {
	t.Helper()
	p := &proc{t: t, cmd: exec.Command(binary(t), args...), stdout: newOutput(t), stderr: newOutput(t), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout.File, p.stderr.File
	p.cmd.Env = append(os.Environ(), "ZKLOCK_SERVERS=", "ZKLOCK_AUTH=")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if change != nil {
		change(p.cmd)
	}
	require.NoError(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // and the guardian kills the rest
		<-p.done
		if t.Failed() {
			t.Logf("%s\nstdout:\n%s\nstderr:\n%s", p.cmd, &p.stdout, &p.stderr)
		}
	})
	return p
}

// wait returns the exit code, as a shell gives it.
func (p *proc) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		require.FailNow(p.t, "the process does not end", "%s\nstderr: %s", p.cmd, &p.stderr)
	}
	ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return exitCodeOf(ws.Signal())
	}
	return ws.ExitStatus()
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// runArgs is a `zklock run` with the tests' timeouts. This lease has much room in them, for hosts that are busy. Unless it is
// quiet, it says when it has the lock: tests wait for that.
func runArgs(servers, path string, rest ...string) []string {
	args := []string{"run", "--servers", servers, "--session-timeout", sessionTimeout.String(), "--lease", "single", "--kill-after", "500ms"}
	if !slices.Contains(rest, "-q") && !slices.Contains(rest, "--quiet") {
		args = append(args, "--verbose")
	}
	return append(args, insertPath(path, rest)...)
}

// insertPath puts the path in front of the --.
func insertPath(path string, rest []string) []string {
	for i, a := range rest {
		if a == "--" {
			return append(append(append([]string{}, rest[:i]...), path), rest[i:]...)
		}
	}
	return append(rest, path)
}

func run(t testing.TB, srv *zkserver.Server, path string, rest ...string) *proc {
	t.Helper()
	return start(t, nil, runArgs(srv.ConnectString(), path, rest...)...)
}

// jobEnv makes the test binary a ticking job in a process and those below it.
func jobEnv(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, envJob+"=1") }

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			require.FailNow(t, "in vain waited until "+what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *proc) prints(s string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s prints %q", p.cmd, s), func() bool {
		return strings.Contains(p.stdout.String(), s) || strings.Contains(p.stderr.String(), s)
	})
}

// session is a client of the test's own.
func session(t testing.TB, srv *zkserver.Server, opts ...zklock.Option) *zklock.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := zklock.Connect(ctx, srv.ConnectString(), append([]zklock.Option{
		zklock.WithSessionTimeout(sessionTimeout), zklock.WithLease(zklock.SingleServerLease()),
		zklock.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func participants(t testing.TB, s *zklock.Session, path string) []zklock.Participant {
	t.Helper()
	m, err := zklock.NewMutex(s, path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ps, err := m.Participants(ctx)
	require.NoError(t, err)
	return ps
}

// occupy holds the lock for the test until the returned function is called.
func occupy(t testing.TB, s *zklock.Session, path string) (hold *zklock.Hold, release func()) {
	t.Helper()
	m, err := zklock.NewMutex(s, path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	hold, err = m.Acquire(ctx)
	require.NoError(t, err)
	return hold, func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, hold.Release(ctx))
	}
}

// gone says whether a process has ended.
func gone(pid int) bool { return syscall.Kill(pid, 0) != nil || state(pid) == "Z" }

// state is the state of a process as Linux has it: T if it is stopped, Z if it has ended; nothing if it cannot be seen.
func state(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	letter, _, _ := strings.Cut(rest, " ")
	return letter
}

// deleteNode is what an administrator does.
func deleteNode(t testing.TB, s *zklock.Session, node string) {
	t.Helper()
	err := s.Conn().Delete(node, -1)
	if !errors.Is(err, zk.ErrNoNode) {
		require.NoError(t, err)
	}
}
