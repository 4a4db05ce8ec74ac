//go:build linux || darwin

package supervise

// What the tests share: a lock without a server, and a program that runs a command under it. Both are this test binary.

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	patience       = 20 * time.Second
	sessionTimeout = 5 * time.Second

	// wellBefore tells "at once" from "when the hold ends by itself", on a machine that may be busy.
	wellBefore = sessionTimeout - time.Second

	envJob    = "ZKLOCK_TEST_JOB" // makes the test binary a job to run under a lock
	holderArg = "__holder"        // makes it a program that runs a command under a lock

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
		var err error
		if programDir, err = os.MkdirTemp("", "zklock-test-"); err == nil {
			err = os.Chmod(programDir, 0o755)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(programDir)
		code := m.Run()
		if err := goleak.Find(); code == 0 && err != nil { // I7
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
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

// locker is a lock: it grants hold after hold, in turn. A hold ends when its holder gives it back, when somebody says that the holder
// has died, and when the holder was not heard for its timeout.
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
		Plan:    Plan{KillAfter: *killAfter, Margin: min(max(*timeout/10, 50*time.Millisecond), 500*time.Millisecond), Poll: min(*timeout/100, 250*time.Millisecond)},
		Note:    func(format string, args ...any) { fmt.Fprintf(os.Stderr, "zklock: "+format+"\n", args...) },
		Began:   func() {},
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

// run starts a program that runs a command under the lock: FLAGS COMMAND ARGS..., with a -- in front of the command.
func (l *locker) run(t testing.TB, change func(*exec.Cmd), args ...string) *proc {
	t.Helper()
	at := slices.Index(args, "--")
	return start(t, change, slices.Concat([]string{holderArg}, args[:at], []string{l.path}, args[at+1:])...)
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

// start starts the command line; change may alter it before.
func start(t testing.TB, change func(*exec.Cmd), args ...string) *proc {
	t.Helper()
	p := &proc{t: t, cmd: exec.Command(binary(t), args...), stdout: newOutput(t), stderr: newOutput(t), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout.File, p.stderr.File
	p.cmd.Env = os.Environ()
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
		return exitSignal + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
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

// gone says whether a process has ended.
func gone(pid int) bool {
	err := syscall.Kill(pid, 0)
	if err != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// family is a command with a child and a grandchild in its group; all three tick into $1.
const family = `sh -c '"$0" "$1" & "$0" "$1" & wait' "$0" "$1" & "$0" "$1"`

// pids are those that a token's job wrote.
func pids(ls []line, token int64) map[int]bool {
	m := make(map[int]bool)
	for _, l := range ls {
		if token == 0 || l.token == token {
			m[l.pid] = true
		}
	}
	return m
}

// waitForFamily returns the token under which all three run.
func waitForFamily(t *testing.T, log string, after int64) (token int64) {
	t.Helper()
	eventually(t, "the whole family runs", func() bool {
		for _, l := range readLines(t, log) {
			if l.token > after {
				token = l.token
			}
		}
		return token != 0 && len(pids(readLines(t, log), token)) == 3
	})
	return token
}

// requireNoOverlap checks the order of the lines in the file, which is that of the writes.
func requireNoOverlap(t *testing.T, ls []line) {
	t.Helper()
	var token int64
	for i, l := range ls {
		require.GreaterOrEqual(t, l.token, token, "line %d is of an earlier holder", i+1)
		token = l.token
	}
}

func requireAllGone(t *testing.T, who map[int]bool) {
	t.Helper()
	require.NotEmpty(t, who)
	for pid := range who {
		eventually(t, "process "+strconv.Itoa(pid)+" is gone", func() bool { return gone(pid) })
	}
}

func guardianOf(t *testing.T, p *proc) int {
	t.Helper()
	return childOf(t, p.cmd.Process.Pid)
}

func childOf(t *testing.T, parent int) int {
	t.Helper()
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(parent)).Output()
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	return pid
}

// requireInTime checks that a job wrote its last line before the deadline, and logs by how much.
func requireInTime(t *testing.T, ls []line, token int64, silence time.Time) {
	t.Helper()
	var last line
	for _, l := range ls {
		if l.token == token && l.at.After(last.at) {
			last = l
		}
	}
	early := latestDeadline(silence).Sub(last.at)
	t.Logf("the last line was written %v after the silence began, %v before the latest possible deadline", last.at.Sub(silence), early)
	require.Positive(t, early)
}

// latestDeadline is when a hold's deadline can be at the latest, if nothing was answered that was sent after a moment.
func latestDeadline(silence time.Time) time.Time {
	return silence.Add(room(sessionTimeout))
}

// runFamily runs it.
func (l *locker) runFamily(t *testing.T, log string, flags ...string) *proc {
	t.Helper()
	return l.run(t, jobEnv, append(flags, "--", "sh", "-c", family, os.Args[0], log)...)
}

func whats(ls []line) (w []string) {
	for _, l := range ls {
		w = append(w, l.what)
	}
	return w
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
