package zklock_test

// The helpers of tests in virtual time: a server, its network and its clients in one bubble.

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/zktest"
)

// virtual is a server, its network and its clients in one synctest bubble: time passes when all
// goroutines wait.
type virtual struct {
	t   *testing.T
	net *zktest.Network
	srv *zktest.Server
}

// Requests and codes that have no names in zktest.
const (
	createContainerOp = zktest.Op(19)
	authOp            = zktest.Op(100)
	saslOp            = zktest.Op(102)

	unimplemented = zktest.Code(-6)
	badArguments  = zktest.Code(-8)
	authFailed    = zktest.Code(-115)
	authRequired  = zktest.Code(-124)
	quotaExceeded = zktest.Code(-125)
)

// serverTick is the tick of the server in virtual time: zktest's default.
const serverTick = 2 * time.Second

func inVirtualTime(t *testing.T, f func(t *testing.T, v *virtual), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		srv := zktest.Start(t, append([]zktest.Option{zktest.WithNetwork(n), zktest.WithShuffledChildren()}, opts...)...)
		_, err := srv.Create("/job", nil, 0)
		require.NoError(t, err)
		f(t, &virtual{t, n, srv})
	})
}

func (v *virtual) connect(opts ...zklock.Option) *zklock.Session {
	return v.hooked(hook.Session{}, opts...)
}

func (v *virtual) hooked(hooks hook.Session, opts ...zklock.Option) *zklock.Session {
	return hooked(v.t, hooks, v.srv.Addr(), append([]zklock.Option{zklock.WithDialer(v.net.Dial)}, opts...)...)
}

// untilDeadline returns a dialer for hook.Session.Connect, with which a Session resolves names
// itself.
func untilDeadline(dial zk.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		deadline, _ := ctx.Deadline()
		return dial(network, addr, time.Until(deadline))
	}
}

// suspension is how long the machine has slept, from the point of view of a Session.
type suspension struct{ atomic.Int64 }

func (s *suspension) hooks() hook.Session {
	return hook.Session{SuspendedTime: func() time.Duration { return time.Duration(s.Load()) }}
}

// cost returns the requests of one call, without the keep-alive ones.
func (v *virtual) cost(call func()) zktest.Counts {
	v.srv.ResetRequests()
	call()
	return v.srv.Requests()
}

// queueUp starts an Acquire and returns when it waits, its watches set.
func (v *virtual) queueUp(m zklock.Lock) *waiting {
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	w := startAcquireIn(v.t, ctx, cancel, m)
	synctest.Wait()
	return w
}

// line is a client's connection to the server, which can be silenced in both directions like a cut
// cable. A connection that has lost bytes stays silent: TCP delivers all bytes or none.
type line struct {
	dial     zk.Dialer
	patience time.Duration // how long a dial lasts at most, which nothing else breaks off; 0: as long as the client allows
	silent   atomic.Bool
}

func (l *line) Dial(network, addr string, d time.Duration) (net.Conn, error) {
	if l.patience != 0 {
		d = min(d, l.patience)
	}
	for wait := time.Second; l.silent.Load(); wait *= 2 { // as TCP sends SYN again
		time.Sleep(min(wait, d))
		if d -= wait; d <= 0 {
			return nil, os.ErrDeadlineExceeded
		}
	}
	c, err := l.dial(network, addr, d)
	if err != nil {
		return nil, err
	}
	return &lineConn{Conn: c, l: l}, nil
}

type lineConn struct {
	net.Conn
	l    *line
	dead atomic.Bool
}

// loses reports whether data that arrives now is lost.
func (c *lineConn) loses() bool {
	if c.l.silent.Load() {
		c.dead.Store(true)
	}
	return c.dead.Load()
}

func (c *lineConn) Write(p []byte) (int, error) {
	if c.loses() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *lineConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.loses() {
			return n, err
		}
	}
}

func isLost(h *zklock.Hold) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

func (w *waiting) granted2(t testing.TB, d time.Duration) *zklock.Hold {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(d):
		t.Fatalf("Acquire did not return within %v", d)
	}
	require.NoError(t, w.err)
	return w.hold
}

type blockingWriter struct{ until chan struct{} }

func (w blockingWriter) Write(p []byte) (int, error) { <-w.until; return len(p), nil }

// syncBuffer receives a log's lines, one write each.
type syncBuffer struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	onLine func(string)
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onLine(string(p))
	return b.buf.Write(p)
}

// warnings keeps the log lines of level warning or higher.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, string(p))
	return len(p), nil
}

func (w *warnings) option() zklock.Option {
	return zklock.WithLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// about returns the number of lines that contain both texts.
func (w *warnings) about(this, that string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if strings.Contains(line, this) && strings.Contains(line, that) {
			n++
		}
	}
	return n
}

func creates(history []zktest.Applied) (paths []string) {
	for _, a := range history {
		if a.Kind == zktest.Created {
			paths = append(paths, a.Path)
		}
	}
	return paths
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// atMost fails the test if there are more goroutines. A goroutine that has returned is counted
// until its thread has recycled it, which on a busy machine may take a while; some thirty are also
// counted while a thread passes its recycled ones on. A garbage collection stops all threads, and
// thereby completes both.
func atMost(t *testing.T, most int, what string) {
	t.Helper()
	for range 100 {
		if runtime.NumGoroutine() <= most {
			return
		}
		runtime.GC()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), most, what)
}

// isGranted reports whether the waiter's call has returned.
func (w *waiting) isGranted() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// footprint counts the state of a Session and its client: the entries of each map and slice that a
// mutex guards, and the numbers next to them, by their path. It is for virtual time, when all
// goroutines wait and none has a mutex.
func footprint(s *zklock.Session) map[string]int {
	synctest.Wait()
	c := counter{map[visit]bool{}, map[uintptr]bool{}, map[string]int{}}
	c.count(reflect.ValueOf(s), "", false)
	return c.n
}

type counter struct {
	seen   map[visit]bool
	locked map[uintptr]bool // the mutexes that it has
	n      map[string]int
}

func (c counter) count(v reflect.Value, path string, guarded bool) {
	add := func(n int) {
		if guarded && !strings.HasSuffix(path, ".lease.exchanges") { // which has those of the last seconds
			c.n[path] += n
		}
	}
	switch v.Kind() {
	case reflect.Int:
		if guarded && v.Type() == reflect.TypeFor[int]() { // other numbers have an owner that may change them
			add(int(v.Int()))
		}
	case reflect.Pointer, reflect.Interface:
		at := visit{typ: v.Type()}
		if v.Kind() == reflect.Pointer {
			at.at = v.Pointer()
		}
		if !v.IsNil() && (at.at == 0 || !c.seen[at]) {
			c.seen[at] = true
			c.count(v.Elem(), path, false)
		}
	case reflect.Map:
		add(v.Len())
		for i := v.MapRange(); i.Next(); {
			c.count(i.Value(), path+"[]", guarded)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // a buffer
		}
		add(v.Len())
		for i := range v.Len() {
			c.count(v.Index(i), path+"[]", guarded)
		}
	case reflect.Struct:
		// Skip the user's logger, the network in memory, which leads to the server, and the count of
		// a mutex that checks invariants.
		pkg := v.Type().PkgPath()
		if pkg != "" && pkg != "github.com/go-zookeeper/zk" && !strings.HasPrefix(pkg, "github.com/zklock/zklock") ||
			strings.HasSuffix(pkg, "/zktest") || v.Type() == reflect.TypeFor[invariants.Mutex]() || strings.HasSuffix(pkg, "/zklock_test") {
			return
		}
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Type() == reflect.TypeFor[invariants.Mutex]() {
				f = f.Field(0)
			}
			if f.Type() == reflect.TypeFor[sync.Mutex]() && f.CanAddr() && !c.locked[f.UnsafeAddr()] {
				guarded = true
				mu := (*sync.Mutex)(unsafe.Pointer(f.UnsafeAddr()))
				mu.Lock()
				defer mu.Unlock()
				c.locked[f.UnsafeAddr()] = true
				defer delete(c.locked, f.UnsafeAddr())
			}
		}
		for i := range v.NumField() {
			// Of the client, count the watchers' channels; all other state is its own.
			if name := v.Type().Field(i).Name; v.Type() != reflect.TypeFor[zk.Conn]() || name == "watchers" {
				c.count(v.Field(i), path+"."+name, guarded)
			}
		}
	}
}
