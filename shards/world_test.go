package shards

// What the tests of a whole group use: a server, its network and many members in one bubble of
// virtual time, and an observer that knows nothing of the plan. It sees which functions run, and
// asks each hold whether it still believes to hold.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/zktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envMember) != "" {
		memberMain()
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	sessionTimeout = 6 * time.Second
	tick           = 2 * time.Second
	roundTrip      = 2 * time.Millisecond
	groupPath      = "/orders/workers"
)

// world is a server and the processes of a group.
type world struct {
	t       *testing.T
	net     *zktest.Network
	srv     *zktest.Server
	n       int
	quiet   time.Duration
	session []zklock.Option               // of the processes, instead of the usual ones
	return_ func(shard int) time.Duration // how long a function takes to return; nil: no time
	procs   []*proc
	hosts   int
	logs    *logBook
	faults  []*zktest.Injection // of a random world
	bytes   atomic.Int64        // that the clients have sent and received

	mu       sync.Mutex
	running  [][]*job
	tokens   []int64
	last     []string    // who worked on the shard last
	endedAt  []time.Time // since when nobody works on it
	gaps     []time.Duration
	moves    int
	idle     int // shards without an owner, unless members crash
	mostIdle int
	starts   int
	failures []string
}

// proc is one process.
type proc struct {
	w      *world
	name   string
	host   string
	s      *zklock.Session
	g      *Group
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run
	isDead bool  // guarded by w.mu
	f      Func  // instead of the usual one
}

// inWorld runs f in virtual time, with n shards.
func inWorld(t *testing.T, n int, f func(t *testing.T, w *world), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		network.SetLatency(roundTrip / 2)
		opts := append([]zktest.Option{zktest.WithNetwork(network), zktest.WithShuffledChildren()}, opts...)
		w := &world{t: t, net: network, srv: zktest.Start(t, opts...), n: n, quiet: DefaultQuiet, logs: &logBook{},
			running: make([][]*job, n), tokens: make([]int64, n), last: make([]string, n), endedAt: make([]time.Time, n)}
		defer w.end()
		f(t, w)
	})
}

// logBook keeps the lines that the members log.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

func (w *world) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w.logs, nil)) }

// connect opens a Session from a host of its own.
func (w *world) connect(opts ...zklock.Option) (*zklock.Session, string) {
	w.hosts++
	host := fmt.Sprintf("10.0.%d.%d", w.hosts/250, w.hosts%250+1)
	opts = slices.Concat([]zklock.Option{zklock.WithSessionTimeout(sessionTimeout), zklock.WithLease(zklock.SingleServerLease()),
		zklock.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))), zklock.WithDialer(counted(w.net.DialFrom(host), &w.bytes))}, w.session, opts)
	ctx := hook.With(w.t.Context(), hook.Session{SuspendedTime: func() time.Duration { return 0 }}) // a pause of this process is no suspend
	s, err := zklock.Connect(ctx, w.srv.Addr(), opts...)
	require.NoError(w.t, err)
	return s, host
}

// join starts a process. Without a name it has the default one.
func (w *world) join(name string, opts ...Option) *proc { return w.joinWith(name, nil, w.n, opts...) }

func (w *world) joinWith(name string, f Func, n int, opts ...Option) *proc {
	s, host := w.connect()
	opts = append([]Option{WithQuiet(w.quiet), WithLogger(w.logger()), WithMember(name, []byte("data of "+name))}, opts...)
	g, err := New(s, groupPath, n, opts...)
	require.NoError(w.t, err)
	p := &proc{w: w, name: name, host: host, s: s, g: g, f: f}
	p.start()
	w.procs = append(w.procs, p)
	return p
}

func (p *proc) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done = cancel, make(chan struct{})
	go func() {
		defer close(p.done)
		p.err = p.g.Run(ctx, p.work)
	}()
}

func (w *world) joinAll(n int) {
	for i := range n {
		w.join(fmt.Sprintf("m%02d", i))
	}
}

// leave ends Run and waits for that.
func (p *proc) leave() {
	p.cancel()
	<-p.done
	p.s.Close()
	p.gone()
}

// gone forgets the process.
func (p *proc) gone() { p.w.procs = slices.DeleteFunc(p.w.procs, func(o *proc) bool { return o == p }) }

// crash ends the process as kill -9 does: its connection closes, and its ZooKeeper session remains
// for its timeout.
func (p *proc) crash() {
	p.w.mu.Lock()
	p.isDead = true
	for shard, jobs := range p.w.running {
		for _, j := range jobs {
			if j.p == p {
				p.w.endedAt[shard] = time.Now()
			}
		}
	}
	p.w.mu.Unlock()
	p.w.net.Partition(p.host)
	p.gone()
	p.cancel()
	go p.s.Close() // what the process would not do, and nobody hears
}

// loseSession ends the ZooKeeper session as an operator can.
func (p *proc) loseSession() {
	p.w.mu.Lock()
	for _, jobs := range p.w.running {
		for _, j := range jobs {
			j.excused = j.excused || j.p == p
		}
	}
	p.w.mu.Unlock()
	p.w.srv.ExpireSession(p.s.Stats().SessionID)
}

// within waits until the condition is true, and returns how long that took. It fails after the
// given time.
func (w *world) within(most time.Duration, what string, isTrue func() bool) time.Duration {
	w.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if synctest.Wait(); isTrue() {
			return time.Since(began)
		}
		if time.Since(began) > most {
			loads, free := w.loads()
			require.FailNow(w.t, "not within "+most.String()+": "+what, "loads %v, without an owner %d\n%s", loads, free, lastOf(w.logs.all(), 20))
		}
	}
}

func (b *logBook) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines)
}

func lastOf(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// planner returns the process that plans.
func (w *world) planner() *proc {
	for _, p := range w.procs {
		if p.g.Stats().Planner {
			return p
		}
	}
	return nil
}

// end ends all processes and reports what the observer has seen.
func (w *world) end() {
	for _, p := range w.procs {
		p.cancel()
	}
	for _, p := range w.procs {
		<-p.done
		p.s.Close()
	}
	time.Sleep(10 * sessionTimeout) // for those that have crashed
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.failures {
		w.t.Error(f)
	}
}

// started returns a world in which m processes have settled.
func (w *world) started(m int) {
	w.t.Helper()
	w.joinAll(m)
	w.within(settleMax+time.Second, "start", w.isEven)
	w.reset()
}

func (p *proc) hasEnded() error {
	select {
	case <-p.done:
		return p.err
	default:
		return errors.New("Run has not returned")
	}
}
