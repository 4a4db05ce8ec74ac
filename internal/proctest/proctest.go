//go:build linux || darwin

package proctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Patience is how long a test waits for an expected event, on a machine that may be busy.
const Patience = 20 * time.Second

// EnvJob has a test binary run as a TickingJob under a lock.
const EnvJob = "ZKLOCK_TEST_JOB"

// TickingJob appends a line to a file every few milliseconds until it is killed: the time, the
// token, and an event.
//
//	job FILE [stubborn]      a stubborn one survives SIGTERM, and records it
func TickingJob(args []string) {
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

// Main runs the tests of a package that starts processes, or a TickingJob. The tests have a
// directory in which every user may run programs; before and after are the package's own setup and
// cleanup.
func Main(m *testing.M, before func(dir string), after func(), ignored ...goleak.Option) {
	if os.Getenv(EnvJob) != "" {
		TickingJob(os.Args[1:])
		return
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // as under nohup, and processes started here would inherit it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // or every process here takes a second more to end
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "zklock-test-")
		if err == nil {
			defer os.RemoveAll(dir)
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		before(dir)
		code := m.Run()
		after()
		if err := goleak.Find(ignored...); code == 0 && err != nil { // I7
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// Line is a line of a ticking job.
type Line struct {
	At    time.Time
	Token int64
	PID   int
	What  string
}

// ReadLines returns the lines in a file, none if it does not exist.
func ReadLines(t testing.TB, file string) []Line {
	t.Helper()
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var ls []Line
	for _, s := range strings.Split(string(b), "\n") {
		f := strings.Fields(s)
		if len(f) != 4 {
			continue
		}
		at, err1 := strconv.ParseInt(f[0], 10, 64)
		token, err2 := strconv.ParseInt(f[1], 10, 64)
		pid, err3 := strconv.Atoi(f[2])
		require.NoError(t, errors.Join(err1, err2, err3), s)
		ls = append(ls, Line{time.Unix(0, at), token, pid, f[3]})
	}
	return ls
}

// Proc is a running process whose output is collected.
type Proc struct {
	Cmd            *exec.Cmd
	Stdout, Stderr Output
	t              testing.TB
	done           chan struct{}
}

// Output is a file that processes write to, for as long as any of them lives. Reading a pipe would
// end soon after the end of the first of them, and on a busy machine too soon for the guardian's
// message about it.
type Output struct{ *os.File }

func newOutput(t testing.TB) Output {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "output")
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return Output{f}
}

// String returns the output so far.
func (o Output) String() string {
	b, err := os.ReadFile(o.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Start starts a process in a process group of its own. It is killed with the test.
func Start(t testing.TB, cmd *exec.Cmd) *Proc {
	t.Helper()
	p := &Proc{t: t, Cmd: cmd, Stdout: newOutput(t), Stderr: newOutput(t), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.Stdout.File
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.Stderr.File
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	require.NoError(t, cmd.Start())
	go func() { _ = cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and the guardian kills the rest
		<-p.done
		if t.Failed() {
			t.Logf("%s\nstdout:\n%s\nstderr:\n%s", cmd, &p.Stdout, &p.Stderr)
		}
	})
	return p
}

// Wait returns the exit code, as a shell gives it.
func (p *Proc) Wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		require.FailNow(p.t, "the process does not end", "%s\nstderr: %s", p.Cmd, &p.Stderr)
	}
	ws := p.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// Signal sends the process a signal.
func (p *Proc) Signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.Cmd.Process.Signal(s))
}

// JobEnv makes the test binary a ticking job in a process and those below it.
func JobEnv(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, EnvJob+"=1") }

// Eventually waits for a condition.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for !cond() {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited in vain until "+what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Prints waits until the process has printed this.
func (p *Proc) Prints(s string) {
	p.t.Helper()
	Eventually(p.t, fmt.Sprintf("%s prints %q", p.Cmd, s), func() bool {
		return strings.Contains(p.Stdout.String(), s) || strings.Contains(p.Stderr.String(), s)
	})
}

// Gone reports whether a process has ended.
func Gone(pid int) bool { return syscall.Kill(pid, 0) != nil || State(pid) == "Z" }

// State returns the state of a process on Linux: T if it is stopped, Z if it has ended; nothing if
// it cannot be seen.
func State(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	letter, _, _ := strings.Cut(rest, " ")
	return letter
}

// Family is a command with a child and a grandchild in its group; all three tick into $1.
const Family = `sh -c '"$0" "$1" & "$0" "$1" & wait' "$0" "$1" & "$0" "$1"`

// PIDs returns the processes that wrote lines of a token, or of any token if it is 0.
func PIDs(ls []Line, token int64) map[int]bool {
	m := make(map[int]bool)
	for _, l := range ls {
		if token == 0 || l.Token == token {
			m[l.PID] = true
		}
	}
	return m
}

// WaitForFamily returns the token under which all three run.
func WaitForFamily(t testing.TB, log string, after int64) (token int64) {
	t.Helper()
	Eventually(t, "the whole family runs", func() bool {
		for _, l := range ReadLines(t, log) {
			if l.Token > after {
				token = l.Token
			}
		}
		return token != 0 && len(PIDs(ReadLines(t, log), token)) == 3
	})
	return token
}

// RequireNoOverlap checks that no line has a smaller token than the line before: the order of the
// lines is the order of the writes.
func RequireNoOverlap(t testing.TB, ls []Line) {
	t.Helper()
	var token int64
	for i, l := range ls {
		require.GreaterOrEqual(t, l.Token, token, "line %d is of an earlier holder", i+1)
		token = l.Token
	}
}

// RequireAllGone waits until these processes have ended.
func RequireAllGone(t testing.TB, who map[int]bool) {
	t.Helper()
	require.NotEmpty(t, who)
	for pid := range who {
		Eventually(t, "process "+strconv.Itoa(pid)+" has ended", func() bool { return Gone(pid) })
	}
}

// ChildOf returns the only child of a process.
func ChildOf(t testing.TB, parent int) int {
	t.Helper()
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(parent)).Output()
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	return pid
}

// RequireInTime checks that a job wrote its last line before the latest possible deadline of a hold
// with this timeout, provided that no request sent after the silence began got a reply. It logs by
// how much.
func RequireInTime(t testing.TB, ls []Line, token int64, silence time.Time, timeout time.Duration) {
	t.Helper()
	var last Line
	for _, l := range ls {
		if l.Token == token && l.At.After(last.At) {
			last = l
		}
	}
	early := silence.Add(timeout*100/101 - 50*time.Millisecond).Sub(last.At)
	t.Logf("the last line was written %v after the silence began, %v before the latest possible deadline", last.At.Sub(silence), early)
	require.Positive(t, early)
}

// Whats returns the last words of lines.
func Whats(ls []Line) (w []string) {
	for _, l := range ls {
		w = append(w, l.What)
	}
	return w
}
