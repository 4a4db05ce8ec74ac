package zklock_test

// The helpers of all tests: servers, clients, waits, and work under a hold.

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/internal/tracecheck"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// The behaviour tests run against the in-process server, and against a real ZooKeeper with
// ZKLOCK_TEST_REAL=1.
var onReal = os.Getenv("ZKLOCK_TEST_REAL") == "1"

// shared is the real server for tests that do not affect it; it is started once.
var shared struct {
	once sync.Once
	srv  *zkserver.Server
	err  error
}

func TestMain(m *testing.M) {
	if !onReal {
		fmt.Println("zklock: testing against the in-process server; ZKLOCK_TEST_REAL=1 runs the same tests against a real ZooKeeper")
	}
	goleak.VerifyTestMain(patient{m}, goleak.Cleanup(func(code int) {
		if shared.srv != nil {
			if err := shared.srv.Close(); err != nil {
				fmt.Println(err)
			}
		}
		os.Exit(code)
	}), ignoredGoroutines)
}

var ignoredGoroutines = goleak.IgnoreAnyFunction(zkserver.RunFunction)

// patient runs the tests, and then waits for goroutines that end by themselves: those of a failed
// Connect, which returns while the client's Close takes its second. goleak waits for less.
type patient struct{ *testing.M }

// Run implements goleak.TestingM.
func (p patient) Run() int {
	code := p.M.Run()
	for began := time.Now(); code == 0 && time.Since(began) < 4*time.Second && goleak.Find(ignoredGoroutines) != nil; {
		time.Sleep(10 * time.Millisecond)
	}
	return code
}

// target returns the address of a server that other tests may use too.
func target(t testing.TB) string {
	t.Helper()
	if !onReal {
		return zktest.Start(t).Addr()
	}
	if os.Getenv(zkserver.EnvServers) != "" {
		return zkserver.Single(t).Addr()
	}
	shared.once.Do(func() { shared.srv, shared.err = zkserver.Start(zkserver.NewConfig()) })
	if shared.err != nil {
		zkserver.Single(t) // skips, or fails, in its own words
	}
	return shared.srv.Addr()
}

// ownServer is a server that a test may stop, kill and pause.
type ownServer interface {
	Addr() string
	WatchCount() (int, error)
	Pause() error
	Resume() error
	Stop() error
	Kill() error
	Start() error
}

type serverConfig struct {
	shortest, longest time.Duration // session timeouts
	containerCheck    time.Duration
}

func startOwn(t testing.TB, c serverConfig) ownServer {
	t.Helper()
	if c.longest == 0 {
		c.shortest, c.longest = time.Second, time.Minute
	}
	if c.containerCheck == 0 {
		c.containerCheck = time.Minute
	}
	if onReal {
		return zkserver.Single(t, zkserver.SessionTimeouts(c.shortest, c.longest),
			zkserver.Property("znode.container.checkIntervalMs", fmt.Sprint(c.containerCheck.Milliseconds())))
	}
	return inProcess{zktest.Start(t, zktest.WithShuffledChildren(), zktest.WithConfig("tickTime=500",
		fmt.Sprintf("minSessionTimeout=%d", c.shortest.Milliseconds()), fmt.Sprintf("maxSessionTimeout=%d", c.longest.Milliseconds()),
		fmt.Sprintf("znode.container.checkIntervalMs=%d", c.containerCheck.Milliseconds())))}
}

// requiringCredentials is a real server that accepts no requests without digest credentials.
func requiringCredentials(t testing.TB, opts ...zkserver.Option) string {
	t.Helper()
	srv := zkserver.Single(t, append(opts, zkserver.Property("zookeeper.enforce.auth.enabled", "true"),
		zkserver.Property("zookeeper.enforce.auth.schemes", "digest"))...).Addr()
	if isBefore(t, srv, "3.7") {
		t.Skip("not on ZooKeeper before 3.7, which cannot require credentials")
	}
	return srv
}

// isBefore reports whether the server is of an older version.
func isBefore(t testing.TB, srv, version string) bool {
	t.Helper()
	is, err := zkserver.Version(srv)
	require.NoError(t, err)
	return zkserver.Older(is, version)
}

// inProcess is a zktest.Server with the interface of a real server. Stopping one keeps its data, as
// killing it does.
type inProcess struct{ s *zktest.Server }

func (p inProcess) Addr() string { return p.s.Addr() }

func (p inProcess) WatchCount() (int, error) { return len(p.s.Watches()), nil }

func (p inProcess) Pause() error { p.s.Freeze(); return nil }

func (p inProcess) Resume() error { p.s.Thaw(); return nil }

func (p inProcess) Stop() error { p.s.Stop(); return nil }

func (p inProcess) Kill() error { p.s.Stop(); return nil }

func (p inProcess) Start() error { return p.s.Start() }

// soon is a limit for events that should take a few round trips. It is long because machines are
// slow, and costs nothing in the normal case.
const soon = 15 * time.Second

var everyCase = flag.Bool("every", false, "try every case, where a test otherwise tries a few")

// oneIn returns the step of a test that repeats itself: 1 with -every, and otherwise n.
func oneIn(n int) int {
	if *everyCase {
		return 1
	}
	return n
}

// within returns a context for all requests of a test.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// quiet drops the log lines that a test provokes, unless the test runs verbosely.
func quiet(t testing.TB) zklock.Option {
	level := slog.LevelError
	if testing.Verbose() && !*everyCase {
		level = slog.LevelInfo
	}
	return zklock.WithLogger(slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: level})))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// connect opens a Session to srv that is closed with the test.
func connect(t testing.TB, srv string, opts ...zklock.Option) *zklock.Session {
	t.Helper()
	return hooked(t, hook.Session{}, srv, opts...)
}

// connected counts the Sessions: every second one has its traces checked.
var connected atomic.Int64

// hooked connects such a Session with hooks. Without a hook the machine does not sleep: in virtual
// time, a pause of this process during the system call would count as a sleep of the same length.
func hooked(t testing.TB, hooks hook.Session, srv string, opts ...zklock.Option) *zklock.Session {
	t.Helper()
	if hooks.SuspendedTime == nil {
		hooks.SuspendedTime = awake
	}
	opts = append([]zklock.Option{zklock.WithSessionTimeout(10 * time.Second), quiet(t)}, opts...)
	if connected.Add(1)%2 == 0 { // all other Sessions have the users' usual options
		check := tracecheck.New()
		t.Cleanup(func() { assert.NoError(t, check.Ended(soon), "what it traced") })
		opts = append([]zklock.Option{check.Option()}, opts...)
	}
	s, err := zklock.Connect(hook.With(within(t, soon), hooks), srv, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// lockPath returns a path that no other test uses. Its parents exist.
func lockPath(t testing.TB, srv string) string {
	t.Helper()
	a := admin(t, srv)
	_, err := a.Create("/zklock-tests", nil, 0, zk.WorldACL(zk.PermAll))
	if err != zk.ErrNodeExists {
		require.NoError(t, err)
	}
	p := "/zklock-tests/" + strings.ReplaceAll(t.Name(), "/", "-") + "-" + uuid.NewString()[:8]
	_, err = a.Create(p, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return p
}

func newMutex(t testing.TB, s *zklock.Session, p string, opts ...zklock.MutexOption) *zklock.Mutex {
	t.Helper()
	m, err := zklock.NewMutex(s, p, opts...)
	require.NoError(t, err)
	return m
}

func acquire(t testing.TB, m zklock.Lock) *zklock.Hold {
	t.Helper()
	h, err := m.Acquire(within(t, soon))
	require.NoError(t, err)
	return h
}

func release(t testing.TB, h *zklock.Hold) {
	t.Helper()
	require.NoError(t, h.Release(within(t, soon)))
}

// reentering returns a context with which a call re-enters the hold.
func reentering(h *zklock.Hold) context.Context {
	return zklock.WithOwner(h.Context(), h.Owner())
}

// cycles acquires and releases a lock n times.
func cycles(t testing.TB, m zklock.Lock, n int) {
	t.Helper()
	for range n {
		release(t, acquire(t, m))
	}
}

// admin is a plain client, independent of any Session.
func admin(t testing.TB, srv string) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect(strings.Split(srv, ","), 20*time.Second, zk.WithLogger(nullLogger{}), zk.WithDialer(zkserver.Impatient(net.DialTimeout)))
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		for range events { // until the client has ended
		}
	})
	return c
}

type nullLogger struct{}

func (nullLogger) Printf(string, ...any) {}

func children(t testing.TB, c *zk.Conn, p string) []string {
	t.Helper()
	names, _, err := c.Children(p)
	if err == zk.ErrNoNode {
		return nil
	}
	require.NoError(t, err)
	return names
}

// eventually waits for a condition that no event announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}

// waiting runs Acquire in the background and returns when its node is in the queue.
type waiting struct {
	hold *zklock.Hold
	err  error
	at   time.Time // when Acquire returned
	done chan struct{}
	stop context.CancelFunc
}

func queueUp(t testing.TB, a *zk.Conn, m zklock.Lock, p string) *waiting {
	t.Helper()
	before := len(children(t, a, p))
	w := startAcquire(t, m)
	eventually(t, "the waiter's node is in the queue", func() bool { return len(children(t, a, p)) > before })
	return w
}

func startAcquire(t testing.TB, m zklock.Lock) *waiting {
	ctx, cancel := context.WithTimeout(context.Background(), 2*soon)
	return startAcquireIn(t, ctx, cancel, m)
}

func startAcquireIn(t testing.TB, ctx context.Context, cancel context.CancelFunc, m zklock.Lock) *waiting {
	w := &waiting{done: make(chan struct{}), stop: cancel}
	go func() {
		defer close(w.done)
		w.hold, w.err = m.Acquire(ctx)
		w.at = time.Now()
	}()
	t.Cleanup(func() { cancel(); <-w.done })
	return w
}

// get waits for the outcome.
func (w *waiting) get(t testing.TB) (*zklock.Hold, error) {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(soon):
		t.Fatalf("Acquire did not return within %v", soon)
	}
	return w.hold, w.err
}

func (w *waiting) granted(t testing.TB) *zklock.Hold {
	t.Helper()
	h, err := w.get(t)
	require.NoError(t, err)
	return h
}

// lostWithin waits until a holder is notified that its hold is lost.
func lostWithin(t testing.TB, h *zklock.Hold, d time.Duration) {
	t.Helper()
	select {
	case <-h.Lost():
	case <-time.After(d):
		t.Fatalf("the loss was not told within %v", d)
	}
}

// work does something under a hold, and records it in the ledger of the test.
func work(t testing.TB, l *ledger.Ledger, h *zklock.Hold, f func()) {
	t.Helper()
	lock := path.Dir(h.Node())
	if !l.Granted(lock, "", h) {
		t.Errorf("I5: lost when it was granted: %v", h.Err())
	}
	f()
	l.Ended(lock, h)
}

func base(p string) string { return path.Base(p) }

// opsOf returns the checks as zk.Conn.Multi takes them.
func opsOf(checks []*zk.CheckVersionRequest) (ops []any) {
	for _, c := range checks {
		ops = append(ops, c)
	}
	return ops
}

func expire(t testing.TB, srv string, s *zklock.Session) {
	t.Helper()
	require.NoError(t, zkserver.ExpireSession(srv, s.Stats().SessionID))
}

func awake() time.Duration { return 0 }
