//go:build linux || darwin

package crash

// The service that the tests start, kill and start again: this test binary, in a role.

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/sasl"
)

const envRole = "ZKLOCK_TEST_CRASH"

// role is what a service does.
type role struct {
	Servers string
	File    string // "" for none
	Guard   string // the socket; "" for none
	Timeout time.Duration
	Within  time.Duration // the limit of Connect; 0 for none
	Then    string        // what it does when it holds the lock, or connects
	Digest  string        // the password of the user boss; "" for none
	SASL    string        // likewise
	TLS     []string      // files: the authority, the certificate and its key; nil for none
}

// report is a line that a service prints.
type report struct {
	What    string // "connected", "holds", "failed" or the answer to Then; in a random world also "born", "held" and "execs"
	Session int64
	PID     int // of the heir
	Token   int64
	At      int64         // when it had the lock, otherwise when it reports, by the kernel's clock
	After   time.Duration // since the beginning of Connect
	Ended   int           // Stats.SessionsEnded
	Errors  int           // Stats.SessionFileErrors
	Err     string
	InUse   bool
	Final   bool
}

const lockPath = "/crash"

func init() {
	if os.Getenv(envRole) != "" {
		runtime.LockOSThread() // main runs on the first thread, which a role may end
	}
}

func TestMain(m *testing.M) {
	var r role
	if text := os.Getenv(envRole); text != "" {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			panic(err)
		}
		r.serve()
		return
	}
	os.Exit(m.Run())
}

// clock reads the kernel's clock, which all processes share, in ns.
func clock() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

func say(r report) {
	r.At = cmp.Or(r.At, clock())
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

func (r role) options() []zklock.Option {
	opts := []zklock.Option{
		zklock.WithSessionTimeout(r.Timeout), zklock.WithLease(zklock.SingleServerLease()),
		zklock.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	}
	if r.File != "" {
		opts = append(opts, zklock.WithSessionFile(r.File))
	}
	if r.Guard != "" {
		opts = append(opts, zklock.WithGuard(r.Guard))
	}
	if r.Digest != "" {
		opts = append(opts, zklock.WithDigest("boss", r.Digest))
	}
	if r.SASL != "" {
		opts = append(opts, zklock.WithSASL(sasl.DigestMD5("boss", r.SASL)))
	}
	if r.TLS != nil {
		opts = append(opts, zklock.WithTLSFiles(r.TLS[0], r.TLS[1], r.TLS[2]), zklock.WithTLS(&tls.Config{ServerName: "zk.test"}))
	}
	return opts
}

func (r role) connect() (*zklock.Session, time.Time, error) {
	ctx, began := context.Background(), time.Now()
	if r.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Within)
		defer cancel()
	}
	s, err := zklock.Connect(ctx, r.Servers, r.options()...)
	return s, began, err
}

// serve connects, takes the lock, and holds it until its standard input ends. A line there is what
// it does meanwhile.
func (r role) serve() {
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			r.do(lines.Text())
		}
		os.Exit(0)
	}()
	if r.Then == "takes turns" {
		say(report{What: "born"})
	}
	s, began, err := r.connect()
	if err != nil {
		say(failure(began, err))
		os.Exit(1)
	}
	say(report{What: "connected", Session: s.Stats().SessionID, After: time.Since(began), Ended: s.Stats().SessionsEnded})
	if r.Then == "takes turns" {
		takeTurns(s)
	}
	m, err := zklock.NewMutex(s, lockPath)
	if err != nil {
		panic(err)
	}
	h, err := m.Acquire(context.Background())
	if err != nil {
		say(failure(began, err))
		os.Exit(1)
	}
	st := s.Stats()
	say(report{What: "holds", Session: s.Stats().SessionID, Token: h.Token(), After: time.Since(began), Ended: st.SessionsEnded, Errors: st.SessionFileErrors})
	r.then(s, h)
	<-h.Context().Done()
	if r.Then != "close" {
		say(report{What: "lost", Err: fmt.Sprint(h.Err())})
	}
	select {}
}

// takeTurns takes the lock again and again, for a short time each. It reports its ZooKeeper
// sessions, and when it has the lock: at a time that was read before it verified the hold.
func takeTurns(s *zklock.Session) {
	go func() {
		for last := s.Stats().SessionID; ; time.Sleep(time.Millisecond) {
			if id := s.Stats().SessionID; id != last {
				say(report{What: "connected", Session: id})
				last = id
			}
		}
	}()
	m, err := zklock.NewMutex(s, lockPath)
	if err != nil {
		panic(err)
	}
	for {
		h, err := m.Acquire(context.Background())
		if zklock.IsFinal(err) {
			panic(err)
		}
		if err != nil {
			continue
		}
		for range 10 {
			now := clock()
			if h.Context().Err() != nil || !time.Now().Before(h.Deadline()) {
				break
			}
			say(report{What: "held", Session: s.Stats().SessionID, Token: h.Token(), At: now})
			time.Sleep(5 * time.Millisecond)
		}
		_ = h.Release(context.Background())
	}
}

// then does what the role asks for while the service holds the lock.
func (r role) then(s *zklock.Session, h *zklock.Hold) {
	switch r.Then {
	case "second": // a second Session with the same file
		_, began, err := r.connect()
		say(failure(began, err))
	case "first thread": // its end leaves the process in state Z, although it works
		go func() {
			<-h.Context().Done()
			say(report{What: "lost"})
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	case "forks": // often there is a child between fork and exec
		go func() {
			for {
				_ = exec.Command("true").Run()
				time.Sleep(time.Millisecond)
			}
		}()
	case "close":
		say(report{What: "closed", Err: fmt.Sprint(s.Close())})
	default:
		r.do(r.Then)
	}
}

func (r role) do(what string) {
	switch what {
	case "heir": // a child that has the file open, as after a fork without exec
		child := exec.Command("sleep", "60")
		child.ExtraFiles = []*os.File{descriptorOf(r.File)}
		if err := child.Start(); err != nil {
			panic(err)
		}
		say(report{What: "heir", PID: child.Process.Pid})
	case "exec": // in place
		exe, err := os.Executable()
		if err == nil {
			if r.Then == what {
				r.Then = ""
			}
			if r.Then == "takes turns" {
				say(report{What: "execs"}) // this program lives until now
			}
			err = syscall.Exec(exe, os.Args, append([]string{r.env()}, os.Environ()...)) // the first one counts
		}
		panic(err)
	}
}

// env returns the variable that gives a process the role.
func (r role) env() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return envRole + "=" + string(b)
}

func failure(began time.Time, err error) report {
	r := report{What: "failed", After: time.Since(began), Err: fmt.Sprint(err)}
	r.InUse, r.Final = isInUse(err), zklock.IsFinal(err)
	return r
}

// descriptorOf returns the descriptor under which this process has the file open.
func descriptorOf(path string) *os.File {
	want, err := os.Stat(path)
	if err != nil {
		panic(err)
	}
	for fd := 3; fd < 1000; fd++ {
		n, err := syscall.Dup(fd) // shares the lock
		if err != nil {
			continue
		}
		f := os.NewFile(uintptr(n), path)
		if info, err := f.Stat(); err == nil && os.SameFile(info, want) {
			return f
		}
		_ = f.Close()
	}
	panic("the file is not open")
}

// service is a running service.
type service struct {
	t       testing.TB
	cmd     *exec.Cmd
	stdin   io.Closer
	reports chan report // closed at its end
	log     *strings.Builder
}

func (r role) start(t testing.TB) *service {
	t.Helper()
	s := &service{t: t, cmd: exec.Command(os.Args[0]), reports: make(chan report, 100), log: new(strings.Builder)}
	s.cmd.Env = append(os.Environ(), r.env())
	s.cmd.Stderr = s.log // to be read after the end
	stdin, err := s.cmd.StdinPipe()
	require.NoError(t, err)
	s.stdin = stdin
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(s.reports)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				s.reports <- r
			}
		}
	}()
	t.Cleanup(func() {
		s.kill()
		<-read
	})
	return s
}

const patience = 30 * time.Second

// await returns the next report of a kind, and fails the test if another one comes first that is
// not "connected".
func (s *service) await(what string) report {
	s.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case r, ok := <-s.reports:
			require.True(s.t, ok, "the service ended before it reported %q", what)
			if r.What == what {
				return r
			}
			require.Equal(s.t, "connected", r.What, "%+v, want %q", r, what)
		case <-deadline:
			require.Fail(s.t, "no report", "want %q", what)
		}
	}
}

// kill kills the service, and waits for its end.
func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// output kills the service, and returns its log.
func (s *service) output() string {
	s.kill()
	return s.log.String()
}
