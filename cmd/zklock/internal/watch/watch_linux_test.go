package watch

// These tests attack the evidence on which the guard ends a session: real processes die, stop,
// fork and close their connections, and the test records which sessions the guard ends.

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock/internal/guard"
	"github.com/zklock/zklock/internal/proctest"
	"github.com/zklock/zklock/internal/sessionkey"
)

var worlds = flag.Int("guard.worlds", 10, "how many random worlds")

// envSocket makes the test binary a program that connects to the guard at this path, and does what
// the lines on its standard input say. It prints each line when it is done.
const envSocket = "ZKLOCK_TEST_GUARD"

// The first thread of a process is to be the main goroutine's, so that the line "exit-main-thread"
// ends that thread.
func init() {
	if os.Getenv(envSocket) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv(envSocket); path != "" {
		program(path)
		return
	}
	proctest.Main(m, func(string) {}, func() {})
}

func program(path string) {
	mainThread := make(chan struct{})
	go func() {
		c := &client{path: path}
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if lines.Text() == "exit-main-thread" {
				close(mainThread)
				for proctest.State(os.Getpid()) != "Z" {
					time.Sleep(time.Millisecond)
				}
			} else {
				c.do(strings.Fields(lines.Text()))
			}
			fmt.Println(lines.Text())
		}
		os.Exit(0)
	}()
	<-mainThread
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// client is a Session's side of the connection, step by step.
type client struct {
	path string
	conn *net.UnixConn
}

func (c *client) do(line []string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, line, err)
			os.Exit(1)
		}
	}
	var id int64
	if len(line) > 1 {
		id, _ = strconv.ParseInt(line[1], 10, 64)
	}
	write := func(text string) {
		_, err := io.WriteString(c.conn, text)
		must(err)
	}
	switch line[0] {
	case "connect": // and wait until the guard has accepted the connection
		conn, err := net.Dial("unix", c.path)
		must(err)
		c.conn = conn.(*net.UnixConn)
		_, err = io.ReadFull(conn, make([]byte, len(guard.Welcome)))
		must(err)
	case "session":
		write(fmt.Sprintf(`{"Session":{"ID":%d,"Password":"AAAA","Timeout":15000000000,"Servers":["zk:2181"]}}`+"\n", id))
	case "over":
		write(fmt.Sprintf(`{"Over":%d}`+"\n", id))
	case "bye":
		write(`{"Bye":true}` + "\n")
	case "part":
		write(`{"Over":`)
	case "garbage":
		write("garbage\n")
	case "end": // the connection, and wait until the guard has noticed it
		must(c.conn.CloseWrite())
		_, err := io.ReadAll(c.conn)
		must(err)
	case "exec": // the same program again, in this process; the connection ends with the old one
		fmt.Println("exec")
		must(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	case "fork": // a child with a copy of the connection
		f, err := c.conn.File()
		must(err)
		child := exec.Command("sleep", "600")
		child.ExtraFiles = []*os.File{f}
		child.Stderr = os.Stderr
		must(child.Start())
		must(os.WriteFile(c.path+".child", []byte(strconv.Itoa(child.Process.Pid)), 0o600))
	}
}

// guarded is a Guard in this process, with the sessions that it has ended.
type guarded struct {
	*Guard
	t    *testing.T
	path string
	ends chan int64
	logs chan string
	all  []*process
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{t: t, path: filepath.Join(t.TempDir(), "sock"), ends: make(chan int64, 1000), logs: make(chan string, 1000)}
	g.Guard = New(func(key sessionkey.Key, _ int) { g.ends <- key.ID }, func(format string, args ...any) { g.logs <- fmt.Sprintf(format, args...) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: g.path, Net: "unix"})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		require.NoError(t, <-served)
		proctest.Eventually(t, "each connection has ended", func() bool { return len(g.now()) == 0 })
	})
	return g
}

// now returns the connections that the guard has.
func (g *guarded) now() (peers []*peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.mu.peers {
		peers = append(peers, p)
	}
	return peers
}

// ended waits for the end of these sessions, and requires that no other one was ended before.
func (g *guarded) ended(ids ...int64) {
	g.t.Helper()
	want := map[int64]bool{}
	for _, id := range ids {
		want[id] = true
	}
	for range ids {
		select {
		case id := <-g.ends:
			require.True(g.t, want[id], "session %d was ended", id)
			delete(want, id)
		case <-time.After(proctest.Patience):
			require.FailNow(g.t, "not ended", "%v", want)
		}
	}
}

// endedNone requires that the guard has ended no session until now. A process that has died since
// proves that the guard has had the time for it.
func (g *guarded) endedNone() {
	g.t.Helper()
	p := g.start()
	p.say("connect", fmt.Sprintf("session %d", probe))
	p.kill()
	g.ended(probe)
}

// probe is the session of a process that dies for endedNone.
const probe = 999

type process struct {
	*proctest.Proc
	t     *testing.T
	stdin io.Writer
	said  int
}

func (g *guarded) start(as ...func(*exec.Cmd)) *process {
	g.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envSocket+"="+g.path)
	for _, change := range as {
		change(cmd)
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(g.t, err)
	p := &process{proctest.Start(g.t, cmd), g.t, stdin, 0}
	g.all = append(g.all, p)
	return p
}

// say has the process carry out lines, one after the other.
func (p *process) say(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		_, err := fmt.Fprintln(p.stdin, line)
		require.NoError(p.t, err)
		p.said++
		proctest.Eventually(p.t, line, func() bool { return strings.Count(p.Stdout.String(), "\n") == p.said })
	}
}

// kill kills the process, if it is alive, and waits for its end.
func (p *process) kill() {
	p.t.Helper()
	_ = p.Cmd.Process.Kill()
	p.Wait()
}

func TestGuard_ProcessKilled_ItsSessionsAreEnded(t *testing.T) {
	g := newGuarded(t)
	p, other := g.start(), g.start()
	other.say("connect", "session 9")
	p.say("connect", "session 1", "session 2", "session 3", "over 2")
	p.kill()
	g.ended(1, 3)
	g.endedNone()
	other.say("over 9")
}

// F58: the process lives, so nothing is ended, whatever becomes of its connection.
func TestGuard_ConnectionEndsWhileTheProcessLives_NothingIsEnded(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "end")
	g.endedNone()
	p.kill()
	g.ended(1)
}

// A process whose main thread has ended has the state Z in /proc, and works on.
func TestGuard_MainThreadHasEnded_NothingIsEnded(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "exit-main-thread", "end")
	require.Equal(t, "Z", proctest.State(p.Cmd.Process.Pid))
	g.endedNone()
	p.kill()
	g.ended(1)
}

// After an exec the process is the same, and may have passed its work on to the new program.
func TestGuard_ProcessReplacesItself_NothingIsEndedBeforeItsEnd(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "exec", "connect", "session 2", "over 2")
	g.endedNone()
	p.kill()
	g.ended(1)
}

func TestGuard_ProcessStopped_NothingIsEnded(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1")
	p.Signal(syscall.SIGSTOP)
	proctest.Eventually(t, "the process is stopped", func() bool { return proctest.State(p.Cmd.Process.Pid) == "T" })
	g.endedNone()
	p.kill()
	g.ended(1)
}

// A child without exec can do the work of its parent. It has the connection.
func TestGuard_ChildHasTheConnection_NothingIsEndedBeforeItsEnd(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "fork")
	b, err := os.ReadFile(g.path + ".child")
	require.NoError(t, err)
	child, err := strconv.Atoi(string(b))
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	p.kill()
	require.Len(t, g.now(), 1)
	proctest.Eventually(t, "the guard can observe the death", g.now()[0].isDead)
	g.endedNone()
	require.NoError(t, syscall.Kill(child, syscall.SIGKILL))
	g.ended(1)
}

// After a lost connection, a Session has another one, and sends its sessions again.
func TestGuard_SecondConnectionOfAProcess_SessionsAreEndedOnce(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "session 2", "end", "connect", "session 1", "session 2", "over 2")
	g.endedNone()
	p.kill()
	g.ended(1)
	g.endedNone()
}

// Two processes cannot have one session. If they claim it, the death of one of them is no evidence.
func TestGuard_TwoProcessesNameASession_BothHaveToBeDead(t *testing.T) {
	g := newGuarded(t)
	p, other := g.start(), g.start()
	p.say("connect", "session 1")
	other.say("connect", "session 1")
	other.kill()
	g.endedNone()
	p.kill()
	g.ended(1)
}

func TestGuard_Bye_RemainingSessionsAreEndedAtOnce(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "session 2", "over 1", "bye")
	g.ended(2)
	g.endedNone()
}

func TestGuard_KilledWhileItWrites_TheUnfinishedLineDoesNotCount(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "part")
	p.kill()
	g.ended(1)
}

func TestGuard_Garbage_NothingIsEnded(t *testing.T) {
	g := newGuarded(t)
	p := g.start()
	p.say("connect", "session 1", "garbage")
	require.Contains(t, <-g.logs, "sent a line that is no message: its sessions are not ended when it dies")
	p.kill()
	g.endedNone()
}

func TestGuard_AnotherUser_IsRejected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	g := newGuarded(t)
	require.NoError(t, os.Chmod(g.path, 0o666))
	for dir := filepath.Dir(g.path); dir != os.TempDir(); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	program, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(g.path+".program", program, 0o755))
	for range 2 {
		p := g.start(func(c *exec.Cmd) {
			c.Path = g.path + ".program"
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		})
		_, err := fmt.Fprintln(p.stdin, "connect")
		require.NoError(t, err)
		require.Equal(t, 1, p.Wait())
		require.Contains(t, p.Stderr.String(), "EOF", "no welcome")
	}
	require.Contains(t, <-g.logs, "a process of user 65534, and the guard has user 0")
	require.Empty(t, g.logs, "logged once")
}

// A sidecar has another PID namespace, so it has no number of the process. The process has a
// namespace of its own here, and the guard sees it from outside; the other direction is tested with
// the command.
func TestGuard_ProcessInAnotherPIDNamespace_ItsSessionsAreEnded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can create a PID namespace")
	}
	g := newGuarded(t)
	p := g.start(func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWPID}
	})
	p.say("connect", "session 1")
	p.kill()
	g.ended(1)
}

// Without SO_PEERPIDFD, before Linux 6.5, the pidfd is opened by the process's number.
func TestPeer_PidfdOpen_ShowsTheDeath(t *testing.T) {
	p := proctest.Start(t, exec.Command("sleep", "600"))
	fd, err := unix.PidfdOpen(p.Cmd.Process.Pid, 0)
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(fd, true))
	peer := &peer{pidfd: os.NewFile(uintptr(fd), "pidfd")}
	defer peer.pidfd.Close()
	require.False(t, peer.isDead())
	dead := make(chan bool, 1)
	go func() { dead <- peer.awaitDeath() }()
	p.Signal(syscall.SIGKILL)
	require.True(t, <-dead)
	require.True(t, peer.isDead())
}

// F58: processes connect, send sessions, stop, lose their connections, replace themselves, close
// their Session and die in random order. The test observes from outside that a process is dead when
// its session is ended, and in the end each session that is left was ended.
func TestGuard_RandomWorlds_NoSessionOfALiveProcessIsEnded(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range *worlds {
		t.Run(strconv.Itoa(i), func(t *testing.T) { randomWorld(t, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
}

// worldProcess is a process of a random world, with the sessions that it has.
type worldProcess struct {
	*process
	sessions []int64
	stopped  bool
}

func (p *worldProcess) say(lines ...string) {
	p.t.Helper()
	if p.stopped {
		p.Signal(syscall.SIGCONT)
		p.stopped = false
	}
	p.process.say(lines...)
}

func randomWorld(t *testing.T, r *rand.Rand) {
	g := newGuarded(t)
	var mu sync.Mutex
	owner, closed := map[int64]int{}, map[int64]bool{}
	g.end = func(key sessionkey.Key, pid int) {
		mu.Lock()
		defer mu.Unlock()
		alive := !strings.Contains("ZX", proctest.State(owner[key.ID])) // it is reaped at any time: then nothing can be seen
		if key.ID != probe && !closed[key.ID] && alive {
			t.Errorf("session %d was ended, and its process %d lives", key.ID, pid)
		}
		g.ends <- key.ID
	}
	var live []*worldProcess
	for range 3 {
		p := &worldProcess{process: g.start()}
		p.say("connect")
		live = append(live, p)
	}
	var left []int64
	for next := int64(1); len(live) > 0; {
		i := r.IntN(len(live))
		p := live[i]
		switch what := r.IntN(16); {
		case what < 6:
			mu.Lock()
			owner[next] = p.Cmd.Process.Pid
			mu.Unlock()
			p.say(fmt.Sprintf("session %d", next))
			p.sessions = append(p.sessions, next)
			next++
		case what < 8 && len(p.sessions) > 0:
			p.say(fmt.Sprintf("over %d", p.sessions[0]))
			p.sessions = p.sessions[1:]
		case what < 12: // a Session that has lost its connection sends all sessions again
			p.say([]string{"end", "exec"}[r.IntN(2)], "connect")
			for _, id := range p.sessions {
				p.say(fmt.Sprintf("session %d", id))
			}
		case what < 14:
			p.Signal(syscall.SIGSTOP)
			p.stopped = true
		default:
			mu.Lock()
			for _, id := range p.sessions {
				closed[id] = what == 14
			}
			mu.Unlock()
			if what == 14 {
				p.say("bye")
			} else {
				p.kill()
			}
			left = append(left, p.sessions...)
			live = slices.Delete(live, i, i+1)
		}
	}
	for _, p := range g.all {
		p.kill()
	}
	// A session may be ended again if the guard has read an old connection after a new one: the
	// servers no longer have it.
	for want := left; len(want) > 0; {
		select {
		case ended := <-g.ends:
			want = slices.DeleteFunc(want, func(id int64) bool { return id == ended })
		case <-time.After(proctest.Patience):
			require.FailNow(t, "not ended", "%v", want)
		}
	}
}

// Drain waits until the sessions of dead processes were ended, and not for other processes.
func TestGuard_Drain(t *testing.T) {
	g := newGuarded(t)
	begun, end := make(chan bool), make(chan bool)
	g.end = func(key sessionkey.Key, _ int) {
		begun <- true
		<-end
		g.ends <- key.ID
	}
	p, other := g.start(), g.start()
	other.say("connect", "session 2")
	p.say("connect", "session 1")
	p.kill()
	<-begun
	began := time.Now()
	g.Drain(10 * time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), 10*time.Millisecond)
	require.Empty(t, g.ends)
	close(end)
	g.Drain(proctest.Patience)
	require.Len(t, g.ends, 1)
	g.ended(1)
	other.say("over 2")
}
