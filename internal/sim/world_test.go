package sim

// A world of the simulation: its servers, its clients, and one run.

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/internal/tracecheck"
	"github.com/zklock/zklock/zktest"
)

// world is a running simulation: an ensemble, its clients, and the record of their actions and
// beliefs.
type world struct {
	t      *testing.T
	seed   uint64
	kind   worldKind
	start  time.Time
	log    *slog.Logger
	net    *zktest.Network
	ens    *zktest.Ensemble
	locks  []string
	reg    []*register // what each lock protects
	client []*client

	watching sync.WaitGroup // the readers of a Session's changes
	traces   []*tracecheck.Check

	mu         sync.Mutex // guards all below; a leaf
	rec        record
	plan       []string // of faults
	sum        *tally
	violations []string
}

func (w *world) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sum.counts[what]++
}

// orderLocked returns the time in the record: no two events are simultaneous.
func (w *world) orderLocked() int64 {
	w.rec.last++
	return w.rec.last
}

func (w *world) order() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.orderLocked()
}

// begun records an operation. Later changes of it are made under the world's mutex.
func (w *world) begun(o *op) *op {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.call, o.at = w.orderLocked(), time.Now()
	w.rec.ops = append(w.rec.ops, o)
	return o
}

// ended completes an operation.
func (w *world) ended(o *op, set func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set()
	o.ret, o.end = w.orderLocked(), time.Now()
}

// simulate runs one world and reports violations of I1–I8.
func simulate(t *testing.T, seed uint64, kind worldKind) *world {
	w := runWorld(t, seed, kind)
	for _, v := range w.violations {
		t.Errorf("seed %d, a %s world: %s (%s)", seed, kind.name, v, kind.repeat(seed))
	}
	if len(w.violations) > 0 && *simSeed != 0 {
		for _, line := range w.rec.lines() {
			t.Log(line)
		}
	}
	return w
}

// runWorld runs one world and compares its record with the promises.
func runWorld(t *testing.T, seed uint64, kind worldKind) *world {
	w := &world{t: t, seed: seed, kind: kind, sum: newTally()}
	w.rec.left = map[int64]bool{}
	lines := slog.Handler(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if *simSeed != 0 && testing.Verbose() {
		lines = slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})
	}
	w.log = slog.New(&reader{lines, w})
	finished := false
	defer func() { // a bubble that cannot end panics (I7)
		if !finished {
			fmt.Printf("seed %d of a %s world did not end; %s\n", seed, kind.name, kind.repeat(seed))
		}
	}()
	synctest.Test(t, w.run)
	finished = true
	w.violations = append(w.violations, w.rec.check(w.sum.checked)...)
	w.violations = append(w.violations, w.rec.linearizable(w.sum.checked)...)
	if kind.recipe == delayed {
		for _, lock := range w.locks {
			w.violations = append(w.violations, checkDelays(w.rec.applied, lock, delay, w.sum.checked)...)
		}
	}
	w.sum.seeds, w.sum.hours = 1, kind.long.Hours()
	return w
}

// reader reads the log for sessions that were left to expire.
type reader struct {
	slog.Handler
	w *world
}

func (r *reader) Handle(ctx context.Context, line slog.Record) error {
	if strings.Contains(line.Message, "unless one does, it expires") {
		line.Attrs(func(a slog.Attr) bool {
			if a.Key == "session" {
				id, _ := strconv.ParseInt(strings.TrimPrefix(a.Value.String(), "0x"), 16, 64)
				r.w.mu.Lock()
				r.w.rec.left[id] = true
				r.w.mu.Unlock()
			}
			return true
		})
	}
	return r.Handler.Handle(ctx, line)
}

// run runs the world, in the bubble.
func (w *world) run(t *testing.T) {
	w.start = time.Now()
	w.rec.start = w.start
	rnd := rand.New(rand.NewPCG(w.seed, 3))
	w.net = zktest.NewNetwork()
	w.net.SetLatency(time.Duration(1+rnd.IntN(5)) * time.Millisecond)
	w.ens = zktest.StartEnsemble(t, 3, zktest.WithNetwork(w.net), zktest.WithShuffledChildren(),
		zktest.WithConfig("maxSessionTimeout=300000"))
	for i := range w.kind.locks {
		w.locks = append(w.locks, fmt.Sprintf("/locks/%c", 'a'+i))
		w.reg = append(w.reg, &register{})
	}
	if err := w.makeLimits(); err != nil {
		w.failf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var workers, faults sync.WaitGroup
	for i := range w.kind.clients {
		c := newClient(w, i, w.kind.timeouts[rnd.IntN(len(w.kind.timeouts))])
		w.client = append(w.client, c)
		if err := c.connect(); err != nil {
			w.failf("connect: %v", err)
			return
		}
		for k := range w.kind.workers {
			wk := &worker{w: w, c: c, name: fmt.Sprintf("c%dw%d", i, k), rnd: rand.New(rand.NewPCG(w.seed, rnd.Uint64())), lock: rnd.IntN(w.kind.locks)}
			workers.Go(func() { wk.run(ctx) })
		}
	}
	servers, clients := rand.New(rand.NewPCG(w.seed, rnd.Uint64())), rand.New(rand.NewPCG(w.seed, rnd.Uint64()))
	if w.kind.calm > 0 {
		f := &simFaults{w: w}
		faults.Go(func() { f.atServers(ctx, servers) })
		faults.Go(func() { f.atClients(ctx, clients) })
		if w.kind.roots > 0 {
			roots := rand.New(rand.NewPCG(w.seed, rnd.Uint64()))
			faults.Go(func() { f.atRoots(ctx, roots) })
		}
	}

	time.Sleep(w.kind.long)
	cancel()
	faults.Wait()
	w.mu.Lock()
	w.rec.healed = time.Now()
	w.mu.Unlock()
	workers.Wait()
	w.settle()
	w.mu.Lock()
	w.rec.applied = w.ens.History()
	w.mu.Unlock()
}

// settle checks the state after faults and load: nothing is left (I4, I7), and the locks are
// available.
func (w *world) settle() {
	events, deletions := w.ens.Requests().Events, 0
	if w.kind.calm == 0 {
		for _, a := range w.ens.History() {
			if a.Kind == zktest.Deleted {
				deletions++
			}
		}
		// Each waiter is notified of its own node, of the node ahead and, if it was further back,
		// of the node ahead of that: at most three notifications for each deletion, however many
		// wait. Tries that fail again have no node, and no deletion.
		w.sum.checked["releases that woke one waiter (I8)"] += deletions
		if events > 3*deletions {
			w.failf("I8: %d events for %d deletions", events, deletions)
		}
	}
	time.Sleep(slices.Max(w.kind.timeouts) + 90*time.Second) // sessions that could not be closed have expired, too
	for _, root := range w.roots() {
		if left := w.ens.Children(root); len(left) > 0 {
			w.failf("I4: left in %s: %v", root, left)
		}
	}
	w.sum.checked[sawRoots] += len(w.roots())
	observing := 0 // each Session of an election has one watch
	if w.kind.recipe == election {
		observing = len(w.client)
	}
	if left := w.ens.Watches(); len(left) > observing {
		w.failf("I7: watches are left: %v", left)
	}
	if all := w.ens.Sessions(); len(all) != len(w.client) {
		w.failf("I7: %d ZooKeeper sessions of %d clients: %+v", len(all), len(w.client), all)
	}
	for _, c := range w.client {
		for i := range w.locks {
			wk := &worker{w: w, c: c, name: fmt.Sprintf("c%dlast%d", c.id, i), lock: i, rnd: rand.New(rand.NewPCG(w.seed, 4))}
			w.settleLock(wk)
		}
	}
	for _, c := range w.client {
		c.close()
	}
	w.watching.Wait()
	for _, check := range w.traces {
		if err := check.Ended(time.Minute); err != nil {
			w.failf("traces: %v", err)
		}
	}
	if all := w.ens.Sessions(); len(all) > 0 {
		w.failf("I7: ZooKeeper sessions outlive Close: %+v", all)
	}
}

// client is a process: a Session, a host of its own, and a clock that stops while it is paused.
type client struct {
	w       *world
	id      int
	host    string
	way     *oneway.Way
	timeout time.Duration
	leader  atomic.Pointer[zklock.Leadership] // of the first lock, as its Session has observed it

	mu struct {
		sync.Mutex // a leaf
		s          *zklock.Session
		closed     *zklock.Session // the last that was closed, or is being
		paused     time.Time       // since when; zero while it is not
		resumed    chan struct{}   // closed when it is not
		restarting bool
		grants     map[*op]*zklock.Hold // that are believed in
	}
}

func newClient(w *world, id int, timeout time.Duration) *client {
	c := &client{w: w, id: id, host: fmt.Sprintf("10.2.0.%d", id+1), timeout: timeout}
	c.way = oneway.New(w.net.DialFrom(c.host))
	c.mu.resumed = make(chan struct{})
	close(c.mu.resumed)
	c.mu.grants = map[*op]*zklock.Hold{}
	return c
}

// behind returns how late the process's clock is: by its pauses, or because it is slow.
func (c *client) behind() time.Duration {
	late := -time.Duration(c.w.kind.slow * float64(time.Since(c.w.start)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.paused.IsZero() {
		late -= time.Since(c.mu.paused)
	}
	return late
}

func (c *client) connect() error {
	check := tracecheck.New()
	s, err := zklock.Connect(hook.With(context.Background(), hook.Session{SuspendedTime: c.behind}), strings.Join(c.w.ens.Addrs(), ","), zklock.WithDialer(c.way.Dial),
		zklock.WithSessionTimeout(c.timeout), zklock.WithLogger(c.w.log), check.Option())
	if err != nil {
		return err
	}
	c.w.mu.Lock()
	c.w.traces = append(c.w.traces, check)
	c.w.mu.Unlock()
	if c.w.kind.calm == 0 {
		changes := s.Changes(context.Background())
		c.w.watching.Go(func() {
			for ch := range changes {
				if ch.State != zklock.StateClosed {
					c.w.failf("without faults: %v", ch)
				}
			}
		})
	}
	if c.w.kind.recipe == election {
		e, err := zklock.NewElection(s, c.w.locks[0])
		if err != nil {
			return err
		}
		c.w.watching.Go(func() {
			for seen := range e.Observe(context.Background()) {
				c.leader.Store(&seen)
			}
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.s = s
	return nil
}

func (c *client) session() *zklock.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.s
}

// close closes the Session, within its limit.
func (c *client) close() {
	start := time.Now()
	c.mu.Lock()
	s := c.mu.s
	c.mu.closed = s
	c.mu.Unlock()
	if err := s.Close(); err != nil {
		c.w.failf("close: %v", err)
	}
	if late := time.Since(start); late > 4*time.Second {
		c.w.failf("I6: Close took %v", late)
	}
}

func (c *client) hasClosed(s *zklock.Session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.closed == s
}

// awake returns when the process is not paused.
func (c *client) awake() {
	c.mu.Lock()
	resumed := c.mu.resumed
	c.mu.Unlock()
	<-resumed
}
