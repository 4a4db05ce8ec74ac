//go:build linux || darwin

package command

// What the tests of the command share: the binary, built once, as real processes against a real
// server.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
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
	"github.com/zklock/zklock/internal/proctest"
	"github.com/zklock/zklock/internal/zkserver"
)

const (
	patience       = proctest.Patience
	sessionTimeout = 5 * time.Second

	// wellBefore tells "at once" from "when the session, or its lease, ends", on a machine that may be
	// busy. A client that lost its session pauses for a second alone before it asks for the next.
	wellBefore = sessionTimeout - time.Second
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
	proctest.Main(m, func(dir string) { built.path = filepath.Join(dir, "zklock") }, func() {
		if shared.srv != nil {
			_ = shared.srv.Close()
		}
	}, goleak.IgnoreTopFunction("github.com/zklock/zklock/cmd/zklock/internal/command.newAsideWriter.func1"))
}

// binary is zklock, built when it is first wanted.
func binary(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		args := []string{"build", "-o", built.path}
		info, _ := debug.ReadBuildInfo()
		for _, s := range info.Settings { // with the race detector, and the checks of the invariants, if this test has them
			if s.Key == "-race" || s.Key == "-tags" {
				args = append(args, s.Key+"="+s.Value)
			}
		}
		build := exec.Command("go", append(args, "../..")...)
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("building the command: %w\n%s", err, out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// server returns a server that tests share; a test that stops or pauses one asks zkserver for its
// own.
func server(t testing.TB) *zkserver.Server {
	t.Helper()
	if os.Getenv(zkserver.EnvServers) != "" || os.Getenv(zkserver.EnvReal) == "0" {
		return zkserver.Single(t)
	}
	binary(t) // a test that measures a time does not wait for it
	shared.Do(func() { shared.srv, shared.err = zkserver.Start(zkserver.Config{}) })
	if errors.Is(shared.err, zkserver.ErrNotInstalled) && !zkserver.Required() {
		t.Skip(shared.err)
	}
	require.NoError(t, shared.err)
	return shared.srv
}

// share is how often a test repeats something: n times, and a fifth of that with -short.
func share(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// lockPath is a path of the test's own.
func lockPath(t testing.TB) string {
	return "/cmd/" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + strconv.FormatInt(time.Now().UnixNano(), 36)
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

// take returns what was written since the last call.
func (b *buffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return b.b.String()
}

// proc is a process of zklock.
type proc struct {
	*proctest.Proc
	cmd            *exec.Cmd
	stdout, stderr proctest.Output
}

// start starts the command line; change may alter it before.
func start(t testing.TB, change func(*exec.Cmd), args ...string) *proc {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = append(os.Environ(), "ZKLOCK_SERVERS=", "ZKLOCK_AUTH=", "ZKLOCK_SASL=")
	if change != nil {
		change(cmd)
	}
	p := proctest.Start(t, cmd)
	return &proc{p, p.Cmd, p.Stdout, p.Stderr}
}

func (p *proc) wait() int               { return p.Wait() }
func (p *proc) signal(s syscall.Signal) { p.Signal(s) }
func (p *proc) prints(s string)         { p.Prints(s) }

type line = proctest.Line

var (
	eventually       = proctest.Eventually
	gone             = proctest.Gone
	readLines        = proctest.ReadLines
	pids             = proctest.PIDs
	waitForFamily    = proctest.WaitForFamily
	requireNoOverlap = proctest.RequireNoOverlap
	requireAllGone   = proctest.RequireAllGone
	childOf          = proctest.ChildOf
	whats            = proctest.Whats
)

func requireInTime(t *testing.T, ls []line, token int64, silence time.Time) {
	t.Helper()
	proctest.RequireInTime(t, ls, token, silence, sessionTimeout)
}

// runArgs is a `zklock run` with the tests' timeouts. This lease has much room in them, for hosts
// that are busy. Unless it is quiet, it says when it has the lock: tests wait for that.
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
func jobEnv(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, proctest.EnvJob+"=1") }

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

// deleteNode is what an administrator does.
func deleteNode(t testing.TB, s *zklock.Session, node string) {
	t.Helper()
	err := s.Conn().Delete(node, -1)
	if !errors.Is(err, zk.ErrNoNode) {
		require.NoError(t, err)
	}
}
