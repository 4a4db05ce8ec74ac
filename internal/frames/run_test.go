package frames

// A run of a scenario of the frames: its clients, the faults that strike, and the checks.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/internal/tracecheck"
	"github.com/zklock/zklock/zktest"
)

// frameWorld is the environment of scenarios: the in-process server in virtual time, or a real one.
type frameWorld struct {
	t        testing.TB
	virtual  bool
	addr     string // of the server
	proxy    *zktest.Proxy
	dial     zk.Dialer       // nil for the machine's network
	opts     []zklock.Option // of every Session
	timeout  time.Duration   // of every Session
	tick     time.Duration
	root     string // the lock root; its parent exists
	children func(root string) []string
	watches  func(paths ...string) []zktest.Watch        // on the server; nil where they cannot be listed
	data     func(root string) (data []byte, there bool) // nil likewise
	kill     func(session int64) (there bool)
	sasl     bool // the server requires SASL
}

// frameRun is one run of a scenario, with its faults. It checks the promises during the run.
type frameRun struct {
	*frameWorld
	cases  []frameCase
	repeat string         // the command that runs this again
	ledger *ledger.Ledger // the clients that believe, by ZooKeeper session
	way    *oneway.Way    // the network of the client under test, in a run in which it receives nothing

	u, o, third *frameClient // the client under test, behind the proxy, and other clients
	more        int          // other owners of the client under test, or nodes of its one
	subs        []string     // the roots below the lock path, of a recipe that has its nodes there
	lockOf      func(s *zklock.Session, path string) (zklock.Lock, error)
	lockOpts    []zklock.LockOption // of several locks together

	ctx    context.Context // of the calls of the client under test
	cancel context.CancelFunc
	closer sync.WaitGroup

	mu         sync.Mutex
	recording  bool
	began      time.Time
	frames     []recordedFrame
	counts     map[frameID]int
	session    int64 // of the last frame
	lastFrame  time.Time
	unanswered int // requests of the connection, as long as no fault strikes
	injections []*zktest.Injection
	through    []chan struct{} // closed when an injection that struck has done all that it calls
	hits       []time.Time     // when the faults struck
	struck     int             // how many frames had been recorded by then
	loses      bool            // a fault, or the scenario, may cost the client under test its hold, or the confirmation of its end
	slow       bool            // a hold was lost that nothing accounts for but a slow machine, in real time
	kills      int             // of sessions
	idle       bool            // one was over already
	cancelled  bool
	closedAt   time.Time
	failures   int
}

// frameClient is a client of the lock, always as the same owner.
type frameClient struct {
	r         *frameRun
	name      string
	s         *zklock.Session // nil if it could not connect
	m         zklock.Lock
	read      zklock.Lock // of a writer that reads, too
	owner     zklock.Owner
	connected chan struct{} // closed when s is set, or will not be
	traces    *tracecheck.Check
}

// frameHold is a hold, with the client's belief in it.
type frameHold struct {
	*zklock.Hold
	c    *frameClient
	over bool // released, or notified of the loss
	done chan struct{}
}

func (r *frameRun) failf(format string, args ...any) {
	r.mu.Lock()
	r.failures++
	r.mu.Unlock()
	r.t.Errorf("%s: %s\nrepeat: %s", caseNames(r.cases), fmt.Sprintf(format, args...), r.repeat)
}

func newFrameRun(w *frameWorld, cases []frameCase, repeat string) *frameRun {
	r := &frameRun{frameWorld: w, cases: cases, repeat: repeat,
		hits: make([]time.Time, len(cases)), counts: map[frameID]int{},
		lockOf: func(s *zklock.Session, path string) (zklock.Lock, error) { return zklock.NewMutex(s, path) }}
	r.ledger = ledger.New(r.failf)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	client := func(name string) *frameClient {
		return &frameClient{r: r, name: name, owner: zklock.NewOwner(name), connected: make(chan struct{}), traces: tracecheck.New()}
	}
	r.proxy.OnFrame(r.saw)
	if slices.ContainsFunc(cases, func(c frameCase) bool { return c.fault.deaf }) {
		r.way = oneway.New(r.dial)
	}
	r.u, r.o, r.third = client("the client under test"), client("the other"), client("the third")
	return r
}

// patience is the limit for every step: a longer one hangs (I6).
func (r *frameRun) patience() time.Duration { return 6 * r.timeout }

// longDelay exceeds the session timeout and the ticks until the session expires.
func (r *frameRun) longDelay() time.Duration { return r.timeout + 2*r.tick + time.Second }

// deafDelay is how long a client receives nothing.
func (r *frameRun) deafDelay() time.Duration {
	if r.sasl {
		return 3 * r.timeout // longer than noticed
	}
	return 2 * r.timeout
}

// noticed returns the time by which such a client has no node any more: lease.Unheard, and a second
// for the ZooKeeper client's pause. If servers require SASL, the client cannot end its session,
// which expires.
func (r *frameRun) noticed() time.Duration {
	d := lease.Unheard(r.timeout) + time.Second + r.slack()
	if r.sasl {
		d += r.timeout + r.tick
	}
	return d
}

// slack is the excess over a call's limit that scheduling may cause.
func (r *frameRun) slack() time.Duration {
	if r.virtual {
		return 50 * time.Millisecond
	}
	return 3 * time.Second
}

// begin starts the recording and injects the faults: all later frames belong to the scenario.
func (r *frameRun) begin() {
	r.mu.Lock()
	r.recording, r.began = true, time.Now()
	r.mu.Unlock()
	for i, c := range r.cases {
		f := c.frame.moment(r.root).Call(func() { r.struckNow(i) })
		through := make(chan struct{})
		f = c.fault.do(r, f).Call(func() { close(through) })
		if i > 0 {
			f = f.Optional() // the frame was there in another run
		}
		r.mu.Lock()
		r.loses = r.loses || c.fault.loses
		r.mu.Unlock()
		r.injections, r.through = append(r.injections, r.proxy.Inject(f)), append(r.through, through)
	}
}

func (r *frameRun) saw(f zktest.Frame) {
	id := frameID{op: f.Op, reply: f.Reply, event: f.Event, place: lockPlace(r.root, r.subs, f.Op, f.Paths)}
	if id.op == zktest.SetWatches {
		id.place = "" // what a client restores is in no order: any path may be the first
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session, r.lastFrame = f.Session, time.Now()
	switch {
	case f.Op == zktest.Connect && !f.Reply: // requests of the previous connection get no reply
		r.unanswered = 1
	case f.Reply:
		r.unanswered--
	case f.Event == 0:
		r.unanswered++
	}
	if r.recording {
		r.counts[id]++
		id.nth = r.counts[id]
		r.frames = append(r.frames, recordedFrame{id, f.Session, time.Since(r.began)})
	}
}

func (r *frameRun) struckNow(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.struck, r.hits[i] = len(r.frames), time.Now()
	if r.cases[i].fault.deaf {
		time.AfterFunc(r.deafDelay(), r.way.Heal)
	}
}

// end stops the recording.
func (r *frameRun) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recording = false
}

// The effects of a fault on the client under test.

func (r *frameRun) killNow() {
	r.mu.Lock()
	id := r.session
	r.loses = true
	r.kills++
	r.mu.Unlock()
	r.excuse(id)
	there := r.kill(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = r.idle || !there
}

// excuse records that an admin killed a session, whose holder cannot be notified in time.
func (r *frameRun) excuse(session int64) { r.ledger.Killing(fmt.Sprint(session)) }

func (r *frameRun) cancelNow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = true
	r.cancel()
}

func (r *frameRun) closeNow() {
	r.closer.Go(func() {
		<-r.u.connected
		if r.u.s != nil {
			r.u.close()
		}
	})
}

// connect opens the client's Session: through the proxy for the client under test.
func (c *frameClient) connect(ctx context.Context) {
	r := c.r
	addr := r.addr
	if c == r.u {
		addr = r.proxy.Addr()
	}
	defer close(c.connected)
	if r.virtual { // CLOCK_BOOTTIME is the machine's also in a bubble
		ctx = hook.With(ctx, hook.Session{SuspendedTime: func() time.Duration { return 0 }})
	}
	var s *zklock.Session
	// A Connect that gives up closes its connection, so Close's limit applies.
	err := c.bounded("Connect", ctx, 4*time.Second, func() (err error) {
		opts := append([]zklock.Option{zklock.WithSessionTimeout(r.timeout), c.traces.Option()}, r.opts...)
		if c == r.u && r.way != nil {
			opts = append(opts, zklock.WithDialer(r.way.Dial))
		}
		s, err = zklock.Connect(ctx, addr, opts...)
		return err
	})
	if err != nil {
		c.refused("Connect", err)
		return
	}
	c.m, err = r.lockOf(s, r.root)
	if err != nil {
		r.failf("%v", err)
	}
	c.s = s
}

func (c *frameClient) close() {
	r := c.r
	if c == r.u {
		r.mu.Lock()
		if r.closedAt.IsZero() {
			r.closedAt = time.Now()
		}
		r.mu.Unlock()
	}
	start := time.Now()
	if err := c.s.Close(); err != nil {
		r.failf("Close: %v", err)
	}
	if took := time.Since(start); took > 4*time.Second+r.slack() {
		r.failf("I6: Close took %v", took)
	}
	if err := c.traces.Ended(r.patience()); err != nil {
		r.failf("what %s traced: %v", c.name, err)
	}
}

// isUnderTest reports whether the client is the one under test, or another owner of it.
func (c *frameClient) isUnderTest() bool { return c == c.r.u || c.s != nil && c.s == c.r.u.s }

// readWrite has the client use a read/write lock: as a writer, or as a reader.
func (c *frameClient) readWrite(reader bool) {
	if c.s == nil {
		return
	}
	m, err := zklock.NewRWMutex(c.s, c.r.root)
	if err != nil {
		c.r.failf("%v", err)
		return
	}
	if c.m, c.read = m.WriteLock(), m.ReadLock(); reader {
		c.m = c.read
	}
}

// frameDelay is longer than faults delay frames. The patience allows for two of them, because the
// session of the first in the queue may also end in the first delay.
const frameDelay = 30 * time.Second

// lockDelays gives the clients' locks a lock-delay.
func (r *frameRun) lockDelays(clients ...*frameClient) {
	for _, c := range clients {
		c.mutex("", zklock.WithLockDelay(frameDelay))
	}
}

// mutex has the client use the mutex below the lock path.
func (c *frameClient) mutex(below string, opts ...zklock.MutexOption) {
	if c.s == nil {
		return
	}
	m, err := zklock.NewMutex(c.s, c.r.root+below, opts...)
	if err != nil {
		c.r.failf("%v", err)
	}
	c.m = m
}

// undelayed checks that no client has waited for a lock-delay since then, unless a hold may have
// been lost.
func (r *frameRun) undelayed(since time.Time) {
	took := time.Since(since)
	r.mu.Lock()
	lost := r.loses || r.kills > 0 || r.cancelled || !r.closedAt.IsZero()
	r.mu.Unlock()
	if took >= frameDelay && !lost {
		r.failf("F47: the next holder waited %v, although the last one has released", took)
	}
}

// another returns another owner of the same client.
func (c *frameClient) another() *frameClient {
	c.r.more++
	o := *c
	o.name, o.owner = "another owner of "+c.name, zklock.NewOwner("another")
	return &o
}

// context returns the context of the client's calls.
func (c *frameClient) context(d time.Duration) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if c.isUnderTest() {
		c.r.mu.Lock()
		ctx = c.r.ctx
		c.r.mu.Unlock()
	}
	return context.WithTimeout(zklock.WithOwner(ctx, c.owner), d)
}

// bounded runs a call and checks that it returned within grace of the end of its context and of its
// Session (I6).
func (c *frameClient) bounded(what string, ctx context.Context, grace time.Duration, f func() error) error {
	r := c.r
	var mu sync.Mutex
	var ended time.Time
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		ended = time.Now()
	})
	defer stop()
	start := time.Now()
	err := f()
	mu.Lock()
	defer mu.Unlock()
	if !ended.IsZero() {
		if late := time.Since(later(start, ended)); late > grace+r.slack() {
			r.failf("I6: %s of %s came back %v after the end of its context", what, c.name, late)
		}
	}
	if c.isUnderTest() {
		r.mu.Lock()
		closed := r.closedAt
		r.mu.Unlock()
		if late := time.Since(later(start, closed)); !closed.IsZero() && late > grace+r.slack() {
			r.failf("I6: %s came back %v after the Session was closed", what, late)
		}
	}
	return err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

const callGrace = 500 * time.Millisecond

// refused checks that an error is explained by the faults, or expected by the scenario.
func (c *frameClient) refused(what string, err error, expected ...error) {
	r := c.r
	r.mu.Lock()
	cancelled, closed := r.cancelled && c.isUnderTest(), !r.closedAt.IsZero() && c.isUnderTest()
	r.mu.Unlock()
	switch {
	case cancelled && errors.Is(err, context.Canceled):
	case closed && errors.Is(err, zklock.ErrClosed):
	default:
		if !slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
			r.failf("%s of %s: %v", what, c.name, err)
		}
	}
}

// acquire waits for the lock, for d at most. It returns nil if it did not get it, and then checks
// the error.
func (c *frameClient) acquire(d time.Duration, expected ...error) *frameHold {
	return c.take("Acquire", d, func(ctx context.Context) (*zklock.Hold, error) { return c.m.Acquire(ctx) }, expected)
}

// try does not wait for the lock, nor long for a response.
func (c *frameClient) try(expected ...error) *frameHold {
	return c.take("TryAcquire", c.r.patience(), func(ctx context.Context) (*zklock.Hold, error) { return c.m.TryAcquire(ctx) },
		append(expected, zklock.ErrNotConnected))
}

func (c *frameClient) take(what string, d time.Duration, f func(context.Context) (*zklock.Hold, error), expected []error) *frameHold {
	ctx, cancel := c.context(d)
	defer cancel()
	var h *zklock.Hold
	err := c.bounded(what, ctx, callGrace, func() (err error) {
		h, err = f(ctx)
		return err
	})
	if err != nil {
		c.refused(what, err, expected...)
		return nil
	}
	return c.r.granted(c, h)
}

// granted records a belief, and compares it with all others (I1, I5).
func (r *frameRun) granted(c *frameClient, h *zklock.Hold) *frameHold {
	b := &frameHold{Hold: h, c: c, done: make(chan struct{})}
	session := c.s.Stats().SessionID
	if session == 0 {
		r.excuse(session) // it has ended already, with an unknown cause
	}
	r.ledger.Granted(h.Path(), fmt.Sprint(session), b)
	go func() {
		select {
		case <-h.Lost():
			b.end()
		case <-b.done:
		}
	}()
	return b
}

// Err reports to the ledger whether the belief has ended. In virtual time it ends with the holder's
// notification, without a call of Err.
func (b *frameHold) Err() error {
	b.c.r.mu.Lock()
	over := b.over
	b.c.r.mu.Unlock()
	switch {
	case over:
		return zklock.ErrNotHeld
	case b.c.r.virtual:
		return nil
	}
	return b.Hold.Err() // the goroutine that notes it may not have run
}

func (b *frameHold) end() {
	b.c.r.mu.Lock()
	defer b.c.r.mu.Unlock()
	b.over = true
}

// enter acquires once more as the holder.
func (b *frameHold) enter() *zklock.Hold {
	r := b.c.r
	ctx, cancel := context.WithTimeout(zklock.WithOwner(b.Hold.Context(), b.Hold.Owner()), r.patience())
	defer cancel()
	var again *zklock.Hold
	err := b.c.bounded("re-entry", ctx, callGrace, func() (err error) {
		again, err = b.c.m.Acquire(ctx)
		return err
	})
	switch {
	case err != nil:
		b.refused("re-entry", err)
		return nil
	case again.Token() != b.Hold.Token() || again.Node() != b.Hold.Node():
		r.failf("I2: re-entry gave %s, token %d, instead of %s, token %d", again.Node(), again.Token(), b.Hold.Node(), b.Hold.Token())
	}
	return again
}

// reads also takes the read lock, as the writer.
func (b *frameHold) reads() *frameHold {
	if b == nil {
		return nil
	}
	b.c.r.more++
	return b.c.take("ReadLock.Acquire", b.c.r.patience(), b.c.read.Acquire, b.expected())
}

// expected returns the errors that a holder may get at its next call.
func (b *frameHold) expected() []error {
	r := b.c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	var expected []error
	if b.c.isUnderTest() && r.loses {
		expected = append(expected, zklock.ErrLost, zklock.ErrNotConfirmed)
	}
	if b.c.isUnderTest() && r.cancelled {
		expected = append(expected, context.Canceled)
	}
	if b.c.isUnderTest() && !r.closedAt.IsZero() {
		expected = append(expected, zklock.ErrClosed, context.Canceled, zklock.ErrLost)
	}
	return expected
}

// release releases the lock. It does nothing for nil.
func (b *frameHold) release() {
	if b != nil {
		b.end()
		close(b.done)
		b.give("Release", b.Hold)
	}
}

// releaseAsync releases the lock without waiting. The node may still exist when the owner has the
// next one.
func (b *frameHold) releaseAsync() {
	if b == nil {
		return
	}
	r := b.c.r
	b.end()
	close(b.done)
	r.more++
	since := time.Now()
	if err := b.Hold.ReleaseAsync(); err != nil {
		b.refused("ReleaseAsync", err)
	}
	if took := time.Since(since); took > r.slack() {
		r.failf("ReleaseAsync came back after %v", took)
	}
}

func (b *frameHold) give(what string, h *zklock.Hold) {
	ctx, cancel := b.c.context(b.c.r.patience())
	defer cancel()
	err := b.c.bounded(what, ctx, callGrace, func() error { return h.Release(ctx) })
	if err != nil {
		b.refused(what, err)
	}
}

// refused checks a holder's error. In real time a slow machine loses holds, or the confirmation of
// their end, which is counted.
func (b *frameHold) refused(what string, err error) {
	r := b.c.r
	r.mu.Lock()
	slow := !r.virtual && b.c.isUnderTest() && !r.loses && r.closedAt.IsZero() && (errors.Is(err, zklock.ErrLost) || errors.Is(err, zklock.ErrNotConfirmed))
	r.slow = r.slow || slow
	r.mu.Unlock()
	if !slow {
		b.c.refused(what, err, b.expected()...)
	}
}

// frameWait is an Acquire in the background.
type frameWait struct {
	c    *frameClient
	done chan struct{}
	hold *frameHold
	stop context.CancelFunc
}

// start begins an Acquire in the background.
func (c *frameClient) start(expected ...error) *frameWait {
	w := &frameWait{c: c, done: make(chan struct{})}
	ctx, cancel := c.context(c.r.patience())
	w.stop = cancel
	go func() {
		defer close(w.done)
		defer cancel()
		var h *zklock.Hold
		err := c.bounded("Acquire", ctx, callGrace, func() (err error) {
			h, err = c.m.Acquire(ctx)
			return err
		})
		if err != nil {
			c.refused("Acquire", err, expected...)
			return
		}
		w.hold = c.r.granted(c, h)
	}()
	return w
}

// nodes returns the nodes of the lock, or of all roots below it.
func (r *frameRun) nodes() (all []string) {
	if r.subs == nil {
		return r.children(r.root)
	}
	for _, sub := range r.subs {
		all = append(all, r.children(r.root+"/"+sub)...)
	}
	return all
}

// queued returns when n nodes are in the queue and the client under test has no further requests.
func (r *frameRun) queued(n int) {
	quiet := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.unanswered == 0 && time.Since(r.lastFrame) > 200*time.Millisecond
	}
	for end := time.Now().Add(r.patience()); len(r.nodes()) < n || !quiet(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.failf("the queue has %d nodes, not %d", len(r.nodes()), n)
			return
		}
	}
}

func (w *frameWait) wait() *frameHold {
	<-w.done
	return w.hold
}

// dwell lets time pass in which the clock sends frames. It lasts longer than a fault that outlasts
// the session, and in real time until a fault at such a frame has struck.
func (r *frameRun) dwell() {
	d := 7 * time.Second // with two heartbeats at least, and a ping
	if !r.virtual {
		d = r.timeout/10 + 300*time.Millisecond
	}
	time.Sleep(d)
	if end := r.faultsEnd(); time.Now().Before(end) {
		time.Sleep(time.Until(end.Add(d)))
	}
	r.awaitTimed()
}

// faultsEnd returns until when a fault that has struck delays a frame.
func (r *frameRun) faultsEnd() (end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range r.cases {
		if c.fault.long && !r.hits[i].IsZero() {
			lasts := r.longDelay()
			if c.fault.deaf {
				lasts = r.deafDelay()
			}
			end = later(end, r.hits[i].Add(lasts))
		}
	}
	return end
}

func (r *frameRun) awaitTimed() {
	for i, in := range r.injections {
		if !r.virtual && r.cases[i].frame.timed() {
			ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
			_ = in.Wait(ctx) // whether it fired is checked at the end
			cancel()
		}
	}
}

// finish ends the scenario: all holds are released, the lock is free, and no node is left (I4).
func (r *frameRun) finish(holds ...*frameHold) {
	r.end()
	r.awaitTimed()
	for i, in := range r.injections {
		if i == 0 && in.Fired() != 1 {
			r.failf("the fault %v fired %d times", in, in.Fired())
		}
		in.Remove()
		// A fault counts as fired before its call: on a busy machine the Close or the kill may
		// still follow.
		if in.Fired() > 0 {
			<-r.through[i]
		}
	}
	r.closer.Wait()
	for _, b := range holds {
		b.release()
	}

	// A frame that a fault still delays is part of the fault.
	from := later(time.Now(), r.faultsEnd())
	bound := r.slack()
	if len(r.cases) > 0 {
		bound = r.timeout + r.tick + time.Second + r.slack()
	}
	for left := r.nodes(); len(left) > 0; left = r.nodes() {
		if time.Since(from) > bound {
			r.failf("I4: %v after the end of the scenario there is still %v", time.Since(from), left)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}

	// The client under test works as before, and any client can get the lock (R41).
	r.mu.Lock()
	usable := r.u.s != nil && r.closedAt.IsZero()
	r.loses = false // the faults' effects have ended
	r.cancel()
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.mu.Unlock()
	defer r.cancel()
	if usable {
		if b := r.u.acquire(r.patience()); b != nil {
			if err := b.Hold.Context().Err(); err != nil {
				r.failf("R62: the new hold has ended as it begins: %v", err)
			}
			b.release()
		}
	}
	fresh := &frameClient{r: r, name: "a fresh client", owner: zklock.NewOwner("fresh"), connected: make(chan struct{}), traces: tracecheck.New()}
	ctx, cancel := fresh.context(r.patience())
	defer cancel()
	fresh.connect(ctx)
	if fresh.s == nil {
		return
	}
	start := time.Now()
	fresh.acquire(r.patience()).release()
	if took := time.Since(start); took > time.Second+r.slack() {
		r.failf("I4: a fresh client needed %v for a free lock", took)
	}
	if left := r.nodes(); len(left) > 0 {
		r.failf("I4: after the last release there is %v", left)
	}
	if usable && r.data != nil {
		if data, _ := r.data(r.root); len(data) > 0 {
			r.failf("F47: after the last release the lock root has %q", data)
		}
	}
	if r.watches != nil {
		if left := r.watches(); len(left) > 0 {
			r.failf("I7: watches are left: %v", left)
		}
	}
	for _, c := range []*frameClient{r.u, r.o, r.third, fresh} {
		if c.s != nil {
			c.close()
		}
	}
}

// silent is a logger for thousands of runs.
func silent() zklock.Option { return zklock.WithLogger(slog.New(slog.DiscardHandler)) }
