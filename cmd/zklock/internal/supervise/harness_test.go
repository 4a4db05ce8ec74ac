//go:build linux || darwin

package supervise

// What the tests share: a lock without a server, and a program that runs a command under it. Both
// are this test binary.

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/proctest"
)

const (
	patience       = proctest.Patience
	sessionTimeout = 5 * time.Second

	// wellBefore tells "at once" from "when the hold ends by itself", on a machine that may be busy.
	wellBefore = sessionTimeout - time.Second

	holderArg = "__holder" // makes it a program that runs a command under a lock

	exitLost   = 120
	exitSignal = 128
)

var programDir string // everybody may read it

func TestMain(m *testing.M) {
	if code, ok := Reexecuted(os.Args, func() Output { return plain{os.Stderr} }, died); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == holderArg {
		os.Exit(holderMain(os.Args[2:]))
	}
	proctest.Main(m, func(dir string) { programDir = dir }, func() {})
}

// plain is an Output that waits for its reader.
type plain struct{ io.Writer }

func (plain) Flush() {}

// program is this test binary where another user can run it, too.
var program = sync.OnceValues(func() (string, error) {
	to := filepath.Join(programDir, "holder")
	b, err := os.ReadFile(os.Args[0])
	return to, errors.Join(err, os.WriteFile(to, b, 0o755))
})

// binary is the program that runs a command under a lock.
func binary(t testing.TB) string {
	t.Helper()
	p, err := program()
	require.NoError(t, err)
	return p
}

// locker is a lock: it grants hold after hold, in turn. A hold ends when its holder gives it back,
// when somebody says that the holder has died, and when the holder was not heard for its timeout.
type locker struct {
	path  string // of its socket, and the lock's name
	done  chan struct{}
	conns sync.WaitGroup
	mu    struct {
		sync.Mutex
		queue  []*holder // the first holds
		last   int64     // token
		silent bool      // hears and says nothing
	}
}

// holder holds, or waits to.
type holder struct {
	token   int64
	timeout time.Duration
	expiry  *time.Timer
	conn    net.Conn      // nil if it is the test itself
	granted chan struct{} // closed when it is
}

func newLocker(t testing.TB) *locker {
	t.Helper()
	dir := openDir(t)
	l := &locker{path: filepath.Join(dir, "lock"), done: make(chan struct{})}
	listener, err := net.Listen("unix", l.path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(l.path, 0o777))
	l.conns.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.conns.Go(func() { l.serve(c) })
			l.conns.Go(func() { // a connection does not outlive the lock
				<-l.done
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		close(l.done)
		_ = listener.Close()
		l.conns.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, h := range l.mu.queue {
			h.expiry.Stop()
		}
	})
	return l
}

// serve answers each line of a connection with one.
func (l *locker) serve(c net.Conn) {
	defer c.Close()
	var h *holder
	for in := bufio.NewScanner(c); in.Scan(); {
		what, arg, _ := strings.Cut(in.Text(), " ")
		n, _ := strconv.ParseInt(arg, 10, 64)
		l.mu.Lock()
		switch {
		case l.mu.silent:
		case what == "hold":
			h = l.enqueueLocked(c, time.Duration(n))
		case what == "ping" && slices.Contains(l.mu.queue, h):
			h.expiry.Reset(h.timeout)
			fmt.Fprintln(c, "pong")
		case what == "release":
			l.removeLocked(h)
			fmt.Fprintln(c, "released")
		case what == "died":
			for _, h := range slices.Clone(l.mu.queue) {
				if h.token == n {
					l.removeLocked(h)
				}
			}
			fmt.Fprintln(c, "ended")
		}
		l.mu.Unlock()
	}
}

func (l *locker) enqueueLocked(c net.Conn, timeout time.Duration) *holder {
	l.mu.last++
	h := &holder{token: l.mu.last, timeout: timeout, conn: c, granted: make(chan struct{})}
	h.expiry = time.AfterFunc(timeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if c != nil {
			l.removeLocked(h)
		}
	})
	l.mu.queue = append(l.mu.queue, h)
	l.grantLocked()
	return h
}

func (l *locker) removeLocked(h *holder) {
	h.expiry.Stop()
	l.mu.queue = slices.DeleteFunc(l.mu.queue, func(other *holder) bool { return other == h })
	l.grantLocked()
}

func (l *locker) grantLocked() {
	if len(l.mu.queue) == 0 {
		return
	}
	h := l.mu.queue[0]
	select {
	case <-h.granted:
	default:
		close(h.granted)
		if h.conn != nil {
			fmt.Fprintln(h.conn, "granted", h.token)
		}
	}
}

// queued is how many hold or wait.
func (l *locker) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.queue)
}

// lose takes the hold away from its holder, who hears it.
func (l *locker) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.mu.queue[0]
	fmt.Fprintln(h.conn, "lost")
	l.removeLocked(h)
}

// silence has the lock hear and say nothing any more.
func (l *locker) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.silent = true
}

// occupy holds for the test until the returned function is called.
func (l *locker) occupy(t testing.TB) (release func()) {
	t.Helper()
	l.mu.Lock()
	h := l.enqueueLocked(nil, time.Hour)
	l.mu.Unlock()
	select {
	case <-h.granted:
	case <-time.After(2 * patience):
		require.FailNow(t, "nobody was granted")
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removeLocked(h)
	}
}

// lease is the holder's side of a hold.
type lease struct {
	conn    net.Conn
	token   int64
	timeout time.Duration
	lost    chan struct{}
	said    chan string // what the lock said, but pong and lost
	mu      struct {
		sync.Mutex
		asked    []time.Time // pings without an answer
		deadline time.Time
		err      error
	}
}

// room is how long a lease lasts after the sending of what was answered last.
func room(timeout time.Duration) time.Duration { return timeout*100/101 - 50*time.Millisecond }

// newLease waits until it is granted.
func newLease(path string, timeout time.Duration) (*lease, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	h := &lease{conn: c, timeout: timeout, lost: make(chan struct{}), said: make(chan string, 1)}
	h.mu.deadline = time.Now().Add(room(timeout)) // the grant may come before the first pong
	fmt.Fprintln(c, "hold", int64(timeout))
	go h.listen()
	go func() {
		for {
			h.mu.Lock()
			h.mu.asked = append(h.mu.asked, time.Now())
			h.mu.Unlock()
			if _, err := fmt.Fprintln(c, "ping"); err != nil {
				return
			}
			time.Sleep(timeout / 10)
		}
	}()
	said, token, _ := strings.Cut(<-h.said, " ")
	if said != "granted" {
		return nil, errors.New("not granted")
	}
	h.token, err = strconv.ParseInt(token, 10, 64)
	return h, err
}

func (h *lease) listen() {
	defer close(h.said)
	for in := bufio.NewScanner(h.conn); in.Scan(); {
		switch in.Text() {
		case "pong":
			h.mu.Lock()
			h.mu.deadline, h.mu.asked = h.mu.asked[0].Add(room(h.timeout)), h.mu.asked[1:]
			h.mu.Unlock()
		case "lost":
			h.mu.Lock()
			h.mu.err = errors.New("somebody took it away")
			h.mu.Unlock()
			close(h.lost)
		default:
			h.said <- in.Text()
		}
	}
}

func (h *lease) Lost() <-chan struct{} { return h.lost }

func (h *lease) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.deadline
}

func (h *lease) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.err
}

// release gives the hold back.
func (h *lease) release() {
	fmt.Fprintln(h.conn, "release")
	select {
	case <-h.said:
	case <-time.After(time.Second):
	}
}

// died is the will of a holder: what its guardian does.
func died(will []byte, _ Moment) {
	path, token, _ := strings.Cut(string(will), "\n")
	c, err := net.Dial("unix", path)
	if err == nil {
		fmt.Fprintln(c, "died", token)
		_, err = bufio.NewReader(c).ReadString('\n')
	}
	fmt.Fprintln(os.Stderr, "zklock: the will was carried out:", err)
}

// holderMain is a program that runs a command under a lock: FLAGS PATH COMMAND ARGS...
func holderMain(args []string) int {
	f := flag.NewFlagSet(holderArg, flag.ContinueOnError)
	timeout := f.Duration("timeout", sessionTimeout, "of the hold")
	killAfter := f.Duration("kill-after", 500*time.Millisecond, "")
	leftovers := f.String("leftovers", string(EndThem), "")
	asks := f.Bool("asks", false, "sends the command SIGTERM as soon as it exists")
	if f.Parse(args) != nil || f.NArg() < 2 {
		return 2
	}
	r := New(plain{os.Stderr})
	defer r.Close()
	r.OnSignal(func(s os.Signal) {
		if Ends(s) {
			os.Exit(exitSignal + int(s.(syscall.Signal)))
		}
	})
	h, err := newLease(f.Arg(0), *timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	program, err := exec.LookPath(f.Arg(1))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitNotFound
	}
	r.KeepSignals(func(os.Signal) {})
	out := r.Run(Job{
		Name: f.Arg(0), Program: program, Argv: f.Args()[1:],
		Env:  append(os.Environ(), "ZKLOCK_PATH="+f.Arg(0), fmt.Sprint("ZKLOCK_TOKEN=", h.token)),
		Hold: h, Leftovers: Leftovers(*leftovers),
		Plan: Plan{KillAfter: *killAfter, Margin: min(max(*timeout/10, 50*time.Millisecond), 500*time.Millisecond), Poll: min(*timeout/100, 250*time.Millisecond)},
		Note: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "zklock: "+format+"\n", args...) },
		Began: func() {
			if *asks {
				r.Send(syscall.SIGTERM)
			}
		},
		Will:    func() []byte { return fmt.Appendf(nil, "%s\n%d", f.Arg(0), h.token) },
		Abandon: func(error) { os.Exit(ExitFailed) },
	})
	r.OnSignal(func(os.Signal) {})
	h.release()
	r.Dismiss()
	switch {
	case out.Lost != nil:
		fmt.Fprintf(os.Stderr, "zklock: lost: %v; %s\n", out.Lost, out.How)
		return exitLost
	case out.Err != nil:
		fmt.Fprintln(os.Stderr, "zklock:", out.Err)
		return ExitFailed
	case out.Died != nil:
		sig := out.Died.(syscall.Signal)
		DieOf(sig, out.Group)
		return exitSignal + int(sig)
	}
	return out.Exit
}

// run starts a program that runs a command under the lock: FLAGS COMMAND ARGS..., with a -- in
// front of the command.
func (l *locker) run(t testing.TB, change func(*exec.Cmd), args ...string) *proctest.Proc {
	t.Helper()
	at := slices.Index(args, "--")
	return start(t, change, slices.Concat([]string{holderArg}, args[:at], []string{l.path}, args[at+1:])...)
}

// start starts the program; change may alter it before.
func start(t testing.TB, change func(*exec.Cmd), args ...string) *proctest.Proc {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = os.Environ()
	if change != nil {
		change(cmd)
	}
	return proctest.Start(t, cmd)
}

// jobEnv makes the test binary a ticking job in a process and those below it.
func jobEnv(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, proctest.EnvJob+"=1") }

// runFamily runs one under the lock.
func (l *locker) runFamily(t *testing.T, log string, flags ...string) *proctest.Proc {
	t.Helper()
	return l.run(t, jobEnv, append(flags, "--", "sh", "-c", proctest.Family, os.Args[0], log)...)
}

func guardianOf(t *testing.T, p *proctest.Proc) int {
	t.Helper()
	return proctest.ChildOf(t, p.Cmd.Process.Pid)
}

// openDir returns a directory that everybody can use.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "zklock-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o777))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// required says whether what a machine does not have is to fail a test rather than skip it.
func required() bool { return os.Getenv("ZKLOCK_REQUIRE") == "1" }
