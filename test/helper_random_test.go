package zklock_test

// What the tests share that throw random faults at a recipe: how many worlds they go through, how long those are, and what struck.

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

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

var (
	randomHours = flag.Float64("random.hours", 0, "so many virtual hours of random faults for each recipe; 0 for a few minutes")
	randomFew   = flag.Uint64("random.few", 1, "of those few minutes, as many worlds at most")
)

// oneIn is the step of a test that repeats itself: 1 in a long run, which -random.hours asks for, and otherwise n.
func oneIn(n int) int {
	if *randomHours > 0 {
		return 1
	}
	return n
}

// leisure is by how much everything but the recipe takes longer in three of four worlds of a long run: a session lives through many a
// fault, holds are long, and an hour costs less.
const leisure = 20

// random is a world's seed and pace, and what struck there.
type random struct {
	seed uint64
	pace time.Duration // a factor

	mu         sync.Mutex // guards all below
	rnd        *rand.Rand
	struck     int
	injections []*zktest.Injection
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

// atPace is up to d, and longer in a world of leisure.
func (r *random) atPace(d time.Duration) time.Duration { return r.upTo(d * r.pace) }

// strikes counts a fault that somebody sees to.
func (r *random) strikes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.struck++
}

// injects has the servers do a fault, which counts if it strikes.
func (r *random) injects(srv interface {
	Inject(zktest.Fault) *zktest.Injection
}, f zktest.Fault) {
	in := srv.Inject(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injections = append(r.injections, in)
}

// takes calls Acquire or, one time in four, TryAcquire. It returns false if the call got no hold, for a reason that it may have.
func (r *random) takes(t *testing.T, what any, ctx context.Context, acquire, try func(context.Context) error) bool {
	enter := acquire
	if r.intN(4) == 0 {
		enter = try
	}
	return r.bounded(t, fmt.Sprint(what), ctx, r.atPace(20*time.Second), enter,
		context.DeadlineExceeded, zklock.ErrNotAcquired, zklock.ErrNotConnected, zklock.ErrLost)
}

func (r *random) gives(t *testing.T, release func(context.Context) error) {
	r.bounded(t, "Release", context.Background(), r.upTo(20*time.Second), release, zklock.ErrLost, zklock.ErrNotConfirmed)
}

// bounded says whether a call succeeded. It fails the test if the call fails for another reason than those, or outlasts its context (I6).
func (r *random) bounded(t *testing.T, what string, ctx context.Context, d time.Duration, call func(context.Context) error, reasons ...error) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	if took := time.Since(start); took > d+510*time.Millisecond {
		t.Errorf("I6: %s took %v with a context of %v", what, took, d)
	}
	if err != nil && !slices.ContainsFunc(reasons, func(reason error) bool { return errors.Is(err, reason) }) {
		t.Errorf("%s: %v", what, err)
	}
	return err == nil
}

// ends takes back what has not struck.
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

// randomWorlds runs worlds, seeds from first on, each in a bubble of its own: few of them, or as many as -random.hours takes.
func randomWorlds(t *testing.T, first, few uint64, run func(t *testing.T, v *virtual, r *random)) {
	t.Helper()
	randomWorldsFor(t, *randomHours, first, few, run)
}

// randomWorldsFor is randomWorlds for so many hours.
func randomWorldsFor(t *testing.T, hours float64, first, few uint64, run func(t *testing.T, v *virtual, r *random)) {
	t.Helper()
	if few = min(few, *randomFew); *randomHours > 0 {
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
	if least := 20 * hours; float64(faults) < least { // what make simulation is to come to
		t.Errorf("only %d faults in %.1f hours", faults, long.Hours())
	}
}
