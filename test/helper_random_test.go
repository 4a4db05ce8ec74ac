package zklock_test

// The helpers of tests that inject random faults into a recipe: how many worlds they run, how long
// each lasts, and which faults struck.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/zktest"
)

var (
	randomHours = flag.Float64("random.hours", 0, "so many virtual hours of random faults for each recipe; 0 for a few minutes")
	randomFew   = flag.Uint64("random.few", 1, "of those few minutes, as many worlds at most")
	randomMany  = flag.Uint64("random.worlds", 0, "so many short worlds for each recipe; 0 for a few")
)

// oneIn returns the step of a test that repeats itself: 1 in a long run, which -random.hours
// requests, and otherwise n.
func oneIn(n int) int {
	if *randomHours > 0 {
		return 1
	}
	return n
}

// leisure is the factor by which everything but the recipe takes longer in three of four worlds of
// a long run: a session survives many faults, holds are long, and an hour costs less.
const leisure = 20

// random is a world's seed and pace, and the faults that struck there.
type random struct {
	seed  uint64
	pace  time.Duration  // a factor
	begun sync.WaitGroup // what faults have begun

	mu         sync.Mutex // guards all below
	rnd        *rand.Rand
	struck     int
	injections []*zktest.Injection
	denied     map[string]bool // nodes from which a permission was taken
}

func (r *random) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rnd.IntN(n)
}

func (r *random) upTo(d time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.rnd.Int64N(int64(d)))
}

// atPace returns up to d, and longer in a world of leisure.
func (r *random) atPace(d time.Duration) time.Duration { return r.upTo(d * r.pace) }

// strikes counts a fault that the test injects itself.
func (r *random) strikes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.struck++
}

// injects has the servers inject a fault, which counts if it strikes.
func (r *random) injects(srv interface {
	Inject(zktest.Fault) *zktest.Injection
}, f zktest.Fault) {
	in := srv.Inject(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injections = append(r.injections, in)
}

// injectsAt is injects for the next request of one Session, if it has a ZooKeeper session.
func (r *random) injectsAt(srv interface {
	Inject(zktest.Fault) *zktest.Injection
}, s *zklock.Session, f zktest.Fault) {
	if id := s.SessionID(); id != 0 {
		r.injects(srv, f.Session(id).Once().Optional())
	}
}

// deniesSome takes a permission on one of the nodes, or on a child of one, from all clients.
func (r *random) deniesSome(admin *zk.Conn, v *virtual, nodes []string) {
	node := nodes[r.intN(len(nodes))]
	perm := []int32{zk.PermRead, zk.PermRead, zk.PermWrite, zk.PermCreate, zk.PermDelete}[r.intN(5)]
	if children := v.srv.Children(node); len(children) > 0 && r.intN(4) == 0 {
		node, perm = node+"/"+children[r.intN(len(children))], zk.PermRead
	}
	r.denies(admin, node, perm)
}

// denies takes a permission on a node from all clients.
func (r *random) denies(admin *zk.Conn, node string, perm int32) {
	if _, err := admin.SetACL(node, zk.WorldACL(zk.PermAll&^perm), -1); err != nil {
		return // it was deleted
	}
	r.strikes()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.denied == nil {
		r.denied = make(map[string]bool)
	}
	r.denied[node] = true
}

// meanwhile runs f outside the server's loop, in which a fault strikes.
func (r *random) meanwhile(f func()) func() {
	return func() { r.begun.Go(f) }
}

// settles removes the faults that have not struck, and restores all permissions.
func (r *random) settles(admin *zk.Conn) {
	r.ends()
	r.begun.Wait()
	r.allows(admin)
}

// allows restores all permissions.
func (r *random) allows(admin *zk.Conn) {
	r.mu.Lock()
	denied := r.denied
	r.denied = nil
	r.mu.Unlock()
	for node := range denied {
		_, _ = admin.SetACL(node, zk.WorldACL(zk.PermAll), -1) // it may have been deleted
	}
}

// takes calls Acquire or, one time in four, TryAcquire. It returns false if the call got no hold,
// for an expected reason.
func (r *random) takes(t *testing.T, what any, ctx context.Context, acquire, try func(context.Context) error, more ...error) bool {
	enter := acquire
	if r.intN(4) == 0 {
		enter = try
	}
	return r.bounded(t, fmt.Sprint(what), ctx, r.atPace(20*time.Second), enter,
		append(more, context.DeadlineExceeded, zklock.ErrNotAcquired, zklock.ErrNotConnected, zklock.ErrLost)...)
}

func (r *random) gives(t *testing.T, release func(context.Context) error) {
	r.bounded(t, "Release", context.Background(), r.upTo(20*time.Second), release, zklock.ErrLost, zklock.ErrNotConfirmed)
}

// bounded reports whether a call succeeded. It fails the test if the call fails for an unexpected
// reason, or outlasts its context (I6). Faults close connections by chance. If three in a row
// strike creates, a call fails as on servers that do not support them.
func (r *random) bounded(t *testing.T, what string, ctx context.Context, d time.Duration, call func(context.Context) error, reasons ...error) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	if took := time.Since(start); took > d+510*time.Millisecond {
		t.Errorf("I6: %s took %v with a context of %v", what, took, d)
	}
	reasons = append(reasons, link.ErrHungUp)
	if err != nil && !slices.ContainsFunc(reasons, func(reason error) bool { return errors.Is(err, reason) }) {
		t.Errorf("%s: %v", what, err)
	}
	return err == nil
}

// ends removes the faults that have not struck.
func (r *random) ends() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range r.injections {
		in.Remove()
	}
}

func (r *random) faults() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.struck
	for _, in := range r.injections {
		n += in.Fired()
	}
	return n
}

// randomWorlds runs worlds with seeds from first on, each in a bubble of its own: few of them, or
// as many as -random.hours takes.
func randomWorlds(t *testing.T, first, few uint64, run func(t *testing.T, v *virtual, r *random)) {
	t.Helper()
	randomWorldsFor(t, *randomHours, first, few, run)
}

// randomWorldsFor runs randomWorlds for so many hours.
func randomWorldsFor(t *testing.T, hours float64, first, few uint64, run func(t *testing.T, v *virtual, r *random)) {
	t.Helper()
	if few = min(few, *randomFew); *randomMany > 0 {
		few = *randomMany
	}
	if *randomHours > 0 || *randomMany > 0 {
		t.Parallel()
	}
	var long time.Duration
	worlds, faults := uint64(0), 0
	var r *random
	defer func() { // in a deferred call, because a failed world does not return
		if t.Failed() && r != nil {
			t.Logf("seed %d, pace %d", r.seed, r.pace)
		}
	}()
	for ; worlds < few && *randomHours == 0 || long.Hours() < hours; worlds++ {
		r = &random{seed: first + worlds, pace: 1}
		if *randomHours > 0 && worlds%4 != 0 {
			r.pace = leisure
		}
		r.rnd = rand.New(rand.NewPCG(r.seed, uint64(r.pace)))
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			start := time.Now()
			run(t, v, r)
			long += time.Since(start)
		})
		faults += r.faults()
		if t.Failed() {
			return
		}
	}
	t.Logf("random faults: seeds %d to %d, %.1f virtual hours, %d faults, 0 violations", first, first+worlds-1, long.Hours(), faults)
	if least := 20 * hours; float64(faults) < least { // the goal of make simulation
		t.Errorf("only %d faults in %.1f hours", faults, long.Hours())
	}
}
