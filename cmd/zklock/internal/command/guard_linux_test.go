package command

// These tests attack the guard with real processes: holders that are killed, stopped or closed, a
// guard that is killed and returns, and the command that the guard runs.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
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
	select {}
}

func holdOne(servers, path string) error {
	ctx := context.Background()
	opts := []zklock.Option{zklock.WithSessionTimeout(guardedTimeout), zklock.WithLease(zklock.SingleServerLease()),
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
func guardedHolder(t testing.TB, servers, path, socket string, n int) *proctest.Proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], servers, path, strconv.Itoa(n))
	cmd.Env = append(os.Environ(), envHolder+"=1", "ZKLOCK_GUARD="+socket)
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

// A guard is asked to end: the holder works on, and the socket is removed.
func TestGuard_Terminated_EndsNothing(t *testing.T) {
	t.Parallel()
	servers, socket := fakeServer(t), socketIn(t)
	guard := guardAt(t, socket)
	p := guardedHolder(t, servers, "/job", socket, 1)
	requireGuarded(t, p, 1)
	guard.signal(syscall.SIGTERM)
	require.Equal(t, exitSignal+int(syscall.SIGTERM), guard.wait())
	require.NoFileExists(t, socket)
	p.Prints("no guard is connected")
	held(t, clientOf(t, servers), "/job/0")
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

func TestGuard_SecondGuardAtASocket_IsRejected(t *testing.T) {
	t.Parallel()
	socket := socketIn(t)
	guardAt(t, socket)
	p := start(t, nil, "guard", "--listen", socket)
	require.Equal(t, exitUsage, p.wait())
	require.Contains(t, p.stderr.String(), "another guard listens there")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	p = start(t, nil, "guard", "--listen", file)
	require.Equal(t, exitUsage, p.wait())
	require.FileExists(t, file, "a file of somebody is not removed")
}

// The socket is the user's alone.
func TestGuard_SocketIsPrivate(t *testing.T) {
	t.Parallel()
	socket := socketIn(t)
	guardAt(t, socket)
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

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

// envKills is how often TestGuard_Real_HolderKilled kills a holder. From 50 on, its times are
// checked: on a quiet machine, and with a command that was built without the race detector.
const envKills = "ZKLOCK_GUARD_KILLS"

// F58, a real server: holders are killed, one after the other, and the waiter is granted at once.
func TestGuard_Real_HolderKilled_WaiterIsGranted(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv(envKills), "3"))
	require.NoError(t, err)
	srv, path, socket := server(t), lockPath(t), socketIn(t)
	guardAt(t, socket)
	s := clientOf(t, srv.ConnectString())
	m, err := zklock.NewMutex(s, path+"/0")
	require.NoError(t, err)
	var took []time.Duration
	for range kills {
		p := guardedHolder(t, srv.ConnectString(), path, socket, 1)
		granted := make(chan error, 1)
		var h *zklock.Hold
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var err error
			h, err = m.Acquire(ctx)
			granted <- err
		}()
		eventually(t, "the client waits", func() bool { return s.Stats().Waiting == 1 && len(participants(t, s, path+"/0")) == 2 })
		killed := time.Now()
		p.Signal(syscall.SIGKILL)
		require.NoError(t, <-granted)
		took = append(took, time.Since(killed))
		require.NoError(t, h.Release(t.Context()))
	}
	slices.Sort(took)
	median, longest := took[len(took)/2], took[len(took)-1]
	t.Logf("from kill -9 to the next grant: median %v, longest %v, of %d", median, longest, kills)
	if kills >= 50 {
		require.LessOrEqual(t, median, 100*time.Millisecond)
		require.LessOrEqual(t, longest, 300*time.Millisecond)
	}
}
