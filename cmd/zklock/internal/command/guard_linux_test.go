package command

// These tests attack the guard with real processes: holders that are killed, stopped or closed, and
// a guard that is killed and returns.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/proctest"
	"github.com/zklock/zklock/sasl"
	"github.com/zklock/zklock/zktest"
)

// envHolder makes the test binary a program that holds locks until it is killed:
//
//	holder SERVERS PATH N     one Session for each of N locks: PATH/0, PATH/1, ...
const (
	envHolder     = "ZKLOCK_TEST_HOLDER"
	envHolderSASL = "ZKLOCK_TEST_HOLDER_SASL" // with the credentials of saslServer
	envHolderEats = "ZKLOCK_TEST_HOLDER_EATS" // takes memory when a line arrives

	envHolderTimeout = "ZKLOCK_TEST_HOLDER_TIMEOUT" // its session timeout; guardedTimeout by default
)

// guardedTimeout is the session timeout of the holders: a session that the guard has to end does
// not expire while a test waits.
const guardedTimeout = 2 * patience

func init() {
	if os.Getenv(envHolder) != "" {
		holderMain(os.Args[1:])
	}
}

func holderMain(args []string) {
	n, err := strconv.Atoi(args[2])
	for i := 0; i < n && err == nil; i++ {
		err = holdOne(args[0], fmt.Sprintf("%s/%d", args[1], i))
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("holds all")
	if os.Getenv(envHolderEats) != "" {
		eat()
	}
	select {}
}

func holdOne(servers, path string) error {
	ctx := context.Background()
	timeout, err := time.ParseDuration(cmp.Or(os.Getenv(envHolderTimeout), guardedTimeout.String()))
	if err != nil {
		return err
	}
	opts := []zklock.Option{zklock.WithSessionTimeout(timeout), zklock.WithLease(zklock.SingleServerLease()),
		zklock.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))}
	if os.Getenv(envHolderSASL) != "" {
		opts = append(opts, zklock.WithSASL(sasl.DigestMD5("locker", saslPassword)))
	}
	s, err := zklock.Connect(ctx, servers, opts...)
	if err != nil {
		return err
	}
	m, err := zklock.NewMutex(s, path)
	if err != nil {
		return err
	}
	_, err = m.Acquire(ctx)
	return err
}

// guardedHolder starts a holder of n locks, with the guard at this socket.
func guardedHolder(t testing.TB, servers, path, socket string, n int, env ...string) *proctest.Proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], servers, path, strconv.Itoa(n))
	cmd.Env = append(append(os.Environ(), envHolder+"=1", "ZKLOCK_GUARD="+socket), env...)
	p := proctest.Start(t, cmd)
	p.Prints("holds all")
	return p
}

// guardAt starts a guard that listens at a socket, and waits until it does.
func guardAt(t testing.TB, socket string, flags ...string) *proc {
	t.Helper()
	p := start(t, nil, append([]string{"guard", "--listen", socket}, flags...)...)
	p.prints("listening at")
	return p
}

// requireGuarded waits until a guard is connected to n Sessions of the holder.
func requireGuarded(t testing.TB, p *proctest.Proc, n int) {
	t.Helper()
	eventually(t, "a guard is connected", func() bool { return strings.Count(p.Stderr.String(), "a guard is connected") >= n })
}

func socketIn(t testing.TB) string { return filepath.Join(t.TempDir(), "guard.sock") }

// clientOf is a Session of the test.
func clientOf(t testing.TB, servers string) *zklock.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := zklock.Connect(ctx, servers, zklock.WithSessionTimeout(guardedTimeout), zklock.WithLease(zklock.SingleServerLease()),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// acquired returns how long an acquire takes from now.
func acquired(t testing.TB, s *zklock.Session, path string) time.Duration {
	t.Helper()
	m, err := zklock.NewMutex(s, path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	h, err := m.Acquire(ctx)
	took := time.Since(began)
	require.NoError(t, err)
	require.NoError(t, h.Release(ctx))
	return took
}

// held requires that another client holds the lock.
func held(t testing.TB, s *zklock.Session, path string) {
	t.Helper()
	m, err := zklock.NewMutex(s, path)
	require.NoError(t, err)
	_, err = m.TryAcquire(t.Context())
	require.ErrorIs(t, err, zklock.ErrNotAcquired)
}

// fakeServer is a server of the testing package. Its ticks allow for guardedTimeout.
func fakeServer(t testing.TB) string { return zktest.Start(t).Addr() }

func TestGuard_HolderKilled_NextHoldsLongBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	servers, socket := fakeServer(t), socketIn(t)
	guard := guardAt(t, socket)
	s := clientOf(t, servers)
	p := guardedHolder(t, servers, "/job", socket, 1)
	held(t, s, "/job/0")
	p.Signal(syscall.SIGKILL)
	acquired(t, s, "/job/0")
	guard.prints(fmt.Sprintf("process %d: ended its session 0x", p.Cmd.Process.Pid))
}

func TestGuard_HundredSessionsOfAProcess_AllAreEnded(t *testing.T) {
	t.Parallel()
	const n = 100
	srv, socket := zktest.Start(t, zktest.WithConfig("maxClientCnxns=0")), socketIn(t)
	guardAt(t, socket)
	s := clientOf(t, srv.Addr())
	p := guardedHolder(t, srv.Addr(), "/job", socket, n)
	p.Signal(syscall.SIGKILL)
	for i := range n {
		acquired(t, s, fmt.Sprintf("/job/%d", i))
	}
}

// F58: the guard is stopped while the holder connects and is killed. It ends the session later.
func TestGuard_GuardStopped_EndsTheSessionWhenItIsContinued(t *testing.T) {
	t.Parallel()
	servers, socket := fakeServer(t), socketIn(t)
	guard := guardAt(t, socket)
	guard.signal(syscall.SIGSTOP)
	s := clientOf(t, servers)
	p := guardedHolder(t, servers, "/job", socket, 1)
	p.Signal(syscall.SIGKILL)
	p.Wait()
	held(t, s, "/job/0")
	guard.signal(syscall.SIGCONT)
	acquired(t, s, "/job/0")
}

// F58: the guard is killed, nothing is ended, and the holder works on. The next guard replaces the
// socket, gets the sessions again, and ends them when the holder is killed.
func TestGuard_GuardKilledAndReturned_EndsTheSessions(t *testing.T) {
	t.Parallel()
	servers, socket := fakeServer(t), socketIn(t)
	guard := guardAt(t, socket)
	s := clientOf(t, servers)
	p := guardedHolder(t, servers, "/job", socket, 2)
	requireGuarded(t, p, 2)
	guard.signal(syscall.SIGKILL)
	guard.wait()
	guardAt(t, socket)
	requireGuarded(t, p, 4)
	held(t, s, "/job/0")
	held(t, s, "/job/1")
	p.Signal(syscall.SIGKILL)
	acquired(t, s, "/job/0")
	acquired(t, s, "/job/1")
}

// A guard is asked to end: the holder works on.
func TestGuard_Terminated_EndsNothing(t *testing.T) {
	t.Parallel()
	servers := fakeServer(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		socket, path := socketIn(t), fmt.Sprintf("/job-%d", s)
		guard := guardAt(t, socket)
		p := guardedHolder(t, servers, path, socket, 1)
		requireGuarded(t, p, 1)
		guard.signal(s)
		require.Equal(t, exitSignal+int(s), guard.wait())
		require.NotContains(t, guard.stderr.String(), "goroutine")
		p.Prints("no guard is connected")
		held(t, clientOf(t, servers), path+"/0")
	}
}

// A guard that a script has started in the background ignores Ctrl-C, as the script wants, and
// under nohup the end of the terminal.
func TestGuard_SignalsThatAreIgnored_AreNotForIt(t *testing.T) {
	t.Parallel()
	socket := socketIn(t)
	guard := start(t, func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `trap "" INT HUP; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("sh")
	}, "guard", "--listen", socket)
	guard.prints("listening at")
	guard.signal(syscall.SIGINT)
	guard.signal(syscall.SIGHUP)
	guard.signal(syscall.SIGTERM)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), guard.wait())
}

// F58: the servers are unreachable when the holder is killed, and return.
func TestGuard_ServersReturn_SessionIsEnded(t *testing.T) {
	t.Parallel()
	srv, socket := zktest.Start(t), socketIn(t)
	guardAt(t, socket)
	s := clientOf(t, srv.Addr())
	p := guardedHolder(t, srv.Addr(), "/job", socket, 1)
	srv.Stop()
	var l net.Listener
	eventually(t, "the port is free", func() (free bool) { // another process may dial from it meanwhile
		var err error
		l, err = net.Listen("tcp", srv.Addr())
		return err == nil
	})
	p.Signal(syscall.SIGKILL)
	p.Wait()
	hangUp(t, l) // on the guard
	require.NoError(t, l.Close())
	require.NoError(t, srv.Start())
	acquired(t, s, "/job/0")
}

// hangUp closes the next connection that a guard opens.
func hangUp(t *testing.T, l net.Listener) {
	t.Helper()
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	conn, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// With --servers, the guard dials no other server, whatever a process names.
func TestGuard_OnlyTheNamedServers(t *testing.T) {
	t.Parallel()
	servers, socket := fakeServer(t), socketIn(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	guard := guardAt(t, socket, "--servers", l.Addr().String()+"/chroot")
	s := clientOf(t, servers)
	p := guardedHolder(t, servers, "/job", socket, 1)
	p.Signal(syscall.SIGKILL)
	for range 3 {
		hangUp(t, l)
	}
	held(t, s, "/job/0")
	require.NotContains(t, guard.stderr.String(), "ended its session")
}

// The process and the guard are asked to end together: the guard still ends the session.
func TestGuard_TerminatedWithItsProcess_SessionIsEnded(t *testing.T) {
	t.Parallel()
	servers, socket := fakeServer(t), socketIn(t)
	guard := guardAt(t, socket)
	s := clientOf(t, servers)
	p := guardedHolder(t, servers, "/job", socket, 1)
	p.Signal(syscall.SIGTERM)
	p.Wait()
	guard.signal(syscall.SIGTERM)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), guard.wait())
	require.Contains(t, guard.stderr.String(), "ended its session 0x")
	acquired(t, s, "/job/0")
}

// A guard in a PID namespace of its own, as a sidecar's, does not see the number of the process.
func TestGuard_Sidecar_EndsTheSession(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		missing(t, "not root, and a PID namespace needs it")
	}
	servers, socket := fakeServer(t), socketIn(t)
	guard := start(t, func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWPID}
	}, "guard", "--listen", socket)
	guard.prints("listening at")
	s := clientOf(t, servers)
	p := guardedHolder(t, servers, "/job", socket, 1)
	p.Signal(syscall.SIGKILL)
	acquired(t, s, "/job/0")
	guard.prints("a process of another PID namespace: ended its session 0x")
}

// Credentials are the guard's own: a server that requires SASL ends the session.
func TestGuard_SASL(t *testing.T) {
	srv, flags := saslServer(t)
	socket := socketIn(t)
	guard := guardAt(t, socket, flags...)
	t.Setenv(envHolderSASL, "1")
	p := guardedHolder(t, srv.ConnectString(), lockPath(t), socket, 1)
	p.Signal(syscall.SIGKILL)
	guard.prints("ended its session 0x")
}
