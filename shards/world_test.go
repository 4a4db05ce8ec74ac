package shards

// What the tests of a whole group use: a server, its network and many members in one bubble of virtual time, and an observer that knows
// nothing of the plan. It sees which functions run, and asks each hold whether it still believes to hold.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
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
	net     *zktest.Network // nil on a real server
	srv     *zktest.Server  // as well
	addr    string
	n       int
	quiet   time.Duration
	return_ func(shard int) time.Duration // how long a function takes to return; nil: no time
	procs   []*proc
	hosts   int
	logs    *logBook

	mu       sync.Mutex
	running  [][]*job
	tokens   []int64
	last     []string    // who worked on the shard last
	endedAt  []time.Time // since when nobody works on it
	gaps     []time.Duration
	moves    int
	starts   int
	failures []string
}

// job is one function that runs.
type job struct {
	p       *proc
	hold    *zklock.Hold
	isFreed bool
	excused bool // its session was ended from outside: it is notified later
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

// newWorld returns a world with n shards on the server at addr.
func newWorld(t *testing.T, n int, addr string) *world {
	return &world{t: t, addr: addr, n: n, quiet: DefaultQuiet, logs: &logBook{},
		running: make([][]*job, n), tokens: make([]int64, n), last: make([]string, n), endedAt: make([]time.Time, n)}
}

// inWorld runs f in virtual time, with n shards.
func inWorld(t *testing.T, n int, f func(t *testing.T, w *world), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		network.SetLatency(roundTrip / 2)
		opts := append([]zktest.Option{zktest.WithNetwork(network), zktest.WithTick(tick), zktest.WithShuffledChildren()}, opts...)
		srv := zktest.Start(t, opts...)
		w := newWorld(t, n, srv.Addr())
		w.net, w.srv = network, srv
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
	opts = append([]zklock.Option{zklock.WithSessionTimeout(sessionTimeout),
		zklock.WithLease(zklock.SingleServerLease()), zklock.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))}, opts...)
	if w.net != nil {
		opts = append(opts, zklock.WithDialer(w.net.DialFrom(host)))
	}
	s, err := zklock.Connect(w.t.Context(), w.addr, opts...)
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

// work is the usual function: it works until its context ends, and takes its time to return.
func (p *proc) work(ctx context.Context, shard int, hold *zklock.Hold) error {
	j := &job{p: p, hold: hold}
	p.w.began(shard, j)
	defer p.w.ended(shard, j)
	stop := context.AfterFunc(hold.Context(), func() { p.w.freed(shard, j) })
	defer stop()
	if p.f != nil {
		return p.f(ctx, shard, hold)
	}
	<-ctx.Done()
	if p.w.return_ != nil {
		time.Sleep(p.w.return_(shard))
	}
	return context.Cause(ctx)
}

// began is where the observer looks for overlaps.
func (w *world) began(shard int, j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.p.isDead {
		return
	}
	for _, other := range w.running[shard] {
		switch {
		case other.p == j.p:
			w.failLocked("shard %d: %s runs two functions", shard, j.p.name)
		case !other.p.isDead && !other.excused && !isLost(other.hold):
			w.failLocked("shard %d: %s and %s both work and believe to hold", shard, other.p.name, j.p.name)
		}
	}
	if token := j.hold.Token(); token <= w.tokens[shard] {
		w.failLocked("shard %d: token %d after %d", shard, token, w.tokens[shard])
	} else {
		w.tokens[shard] = token
	}
	w.starts++
	if w.last[shard] != "" && w.last[shard] != j.p.name {
		w.moves++
	}
	if w.last[shard] != "" && w.countLocked(shard) == 0 {
		w.gaps = append(w.gaps, time.Since(w.endedAt[shard]))
	}
	w.last[shard] = j.p.name
	w.running[shard] = append(w.running[shard], j)
}

// isLost reports whether the hold has ended otherwise than by a release: then the function knows that it must stop.
func isLost(h *zklock.Hold) bool {
	err := h.Err()
	return errors.Is(err, zklock.ErrLost) || errors.Is(err, zklock.ErrClosed)
}

func (w *world) failLocked(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func (w *world) countLocked(shard int) (n int) {
	for _, j := range w.running[shard] {
		if !j.p.isDead && j.hold.Err() == nil {
			n++
		}
	}
	return n
}

func (w *world) ended(shard int, j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[shard] = slices.DeleteFunc(w.running[shard], func(o *job) bool { return o == j })
	w.freedLocked(shard, j)
}

// freed notes that nobody works on the shard from now on: the function has returned, or its hold is lost.
func (w *world) freed(shard int, j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freedLocked(shard, j)
}

func (w *world) freedLocked(shard int, j *job) {
	if !j.p.isDead && !j.isFreed {
		j.isFreed, w.endedAt[shard] = true, time.Now()
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

// crash ends the process as kill -9 does: its connection closes, and its ZooKeeper session remains for its timeout.
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
	p.w.srv.ExpireSession(p.s.SessionID())
}

// loads returns how many shards each process works on, and how many nobody works on.
func (w *world) loads() (loads map[string]int, free int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	loads = map[string]int{}
	for _, p := range w.procs {
		loads[p.name] = 0
	}
	for shard := range w.running {
		n := 0
		for _, j := range w.running[shard] {
			if !j.p.isDead && j.hold.Err() == nil {
				loads[j.p.name]++
				n++
			}
		}
		if n == 0 {
			free++
		}
	}
	return loads, free
}

// isEven reports whether each shard is worked on, and the numbers of shards of the processes differ by one at most.
func (w *world) isEven() bool {
	loads, free := w.loads()
	least, most := w.n, 0
	for _, n := range loads {
		least, most = min(least, n), max(most, n)
	}
	return free == 0 && len(loads) == len(w.procs) && most-least <= 1
}

func (w *world) isComplete() bool {
	_, free := w.loads()
	return free == 0
}

// within waits until the condition is true, and returns how long that took. It fails after the given time.
func (w *world) within(most time.Duration, what string, isTrue func() bool) time.Duration {
	w.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if w.net != nil {
			synctest.Wait()
		}
		if isTrue() {
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

// reset forgets the numbers and returns them.
func (w *world) reset() (moves int, gaps []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moves, gaps = w.moves, w.gaps
	w.moves, w.gaps = 0, nil
	slices.Sort(gaps)
	return moves, gaps
}

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
	if w.net != nil {
		time.Sleep(10 * sessionTimeout) // for those that have crashed
	}
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

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[len(d)/2]
}

func longest(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[len(d)-1]
}
