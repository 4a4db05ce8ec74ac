package sim

// The simulation: seeded runs of clients and random faults in virtual time.

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run this one seed of each simulation")
	simFirst = flag.Uint64("sim.first", 1, "the first seed that a simulation runs")
	simSeeds = flag.Uint64("sim.seeds", 1, "how many seeds each simulation runs")
	simKind  = flag.String("sim.kind", "", "run worlds of this kind only: busy or long")
	simTimes = flag.Uint64("sim.times", 1, "how often -sim.seed is run, until it fails: same seed, same world and faults, another schedule")
	simJobs  = flag.Int("sim.jobs", 1, "how many seeds run at a time")
	simCalm  = flag.Uint64("sim.calm", 1, "how many hours without faults TestVirtual_SimulationWithoutFaults runs")
	simEvery = flag.Int("sim.every", 500, "say how far it is after so many seeds")
)

// worldKind describes a simulated world. Durations are upper bounds of random values, except in
// long.
type worldKind struct {
	name     string
	long     time.Duration // how long it is under load and faults
	locks    int
	clients  int
	workers  int             // of each client
	timeouts []time.Duration // of sessions
	think    time.Duration   // between two acquires
	wait     time.Duration   // the bound of an acquire
	hold     time.Duration   // of three in four; the fourth is six times as long
	calm     time.Duration   // between two faults at servers, and between two at clients; 0 for none
	slow     float64         // by how much clients' clocks are too slow
	roots    time.Duration   // between two acts on the lock roots; 0 for none
	recipe   *recipe         // what the workers take
	denies   bool            // whether the servers also deny requests for a while
}

var (
	// busy has many short holds in dense contention, and a fault every few seconds.
	busy = worldKind{
		name: "busy", recipe: mutexes, long: 8 * time.Minute, locks: 2, clients: 4, workers: 3,
		timeouts: []time.Duration{8 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second},
		think:    5 * time.Second, wait: time.Minute, hold: 8 * time.Second, calm: 30 * time.Second,
	}
	// long has hours of nightly jobs, and a fault every few minutes.
	long = worldKind{
		name: "long", recipe: mutexes, long: 5 * time.Hour, locks: 1, clients: 3, workers: 1,
		timeouts: slices.Concat([]time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 2 * time.Minute}, slices.Repeat([]time.Duration{5 * time.Minute}, 6)),
		think:    20 * time.Minute, wait: 30 * time.Minute, hold: 15 * time.Minute, calm: 22 * time.Minute,
	}
)

// repeat is the command that runs one seed again.
func (k worldKind) repeat(seed uint64) string {
	test := "TestVirtual_Simulation$"
	if k.recipe != mutexes || k.roots > 0 {
		return fmt.Sprintf("repeat: go test -run TestVirtual_SimulationOf -v ./internal/sim -sim.seed=%d -sim.times=50", seed)
	}
	if k.calm == 0 {
		test = "TestVirtual_SimulationWithoutFaults"
	}
	return fmt.Sprintf("repeat: go test -run '%s' -v ./internal/sim -sim.seed=%d -sim.kind=%s -sim.times=50", test, seed, k.name)
}

// seedsOf returns n seeds, or the requested ones.
func seedsOf(n uint64) (seeds []uint64) {
	if *simSeed != 0 {
		return slices.Repeat([]uint64{*simSeed}, int(*simTimes))
	}
	for i := range n {
		seeds = append(seeds, *simFirst+i)
	}
	return seeds
}

// kindOf returns the kind of world of a seed.
func kindOf(seed uint64) worldKind {
	switch {
	case *simKind == busy.name, *simKind == "" && seed%5 < 2:
		return busy
	case *simKind == long.name, *simKind == "":
		return long
	}
	panic("-sim.kind is busy or long")
}

// tally has the counts of a kind of world.
type tally struct {
	seeds   int
	hours   float64
	counts  map[string]int // what happened
	faults  map[string]int // by kind
	checked map[string]int // how often something was held against a promise
}

func newTally() *tally {
	return &tally{counts: map[string]int{}, faults: map[string]int{}, checked: map[string]int{}}
}

func (a *tally) add(b *tally) {
	a.seeds, a.hours = a.seeds+b.seeds, a.hours+b.hours
	for _, m := range []struct{ to, from map[string]int }{{a.counts, b.counts}, {a.faults, b.faults}, {a.checked, b.checked}} {
		for k, n := range m.from {
			m.to[k] += n
		}
	}
}

func total(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// listed formats counts, the most frequent first.
func listed(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(m[b]-m[a], strings.Compare(a, b)) })
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(out, ", ")
}

func (a *tally) String() string {
	return fmt.Sprintf("%d seeds, %.0f virtual hours, %d faults (%s); %s; checked: %s",
		a.seeds, a.hours, total(a.faults), listed(a.faults), listed(a.counts), listed(a.checked))
}

// worlds runs the seeds of a test, and returns the sums by the names of the kinds. It stops after a
// few seeds with violations.
func worlds(t *testing.T, kindOf func(seed uint64) worldKind) (sums map[string]*tally, all *tally) {
	seeds := seedsOf(*simSeeds)
	var mu sync.Mutex
	sums, all = map[string]*tally{}, newTally()
	failed := 0
	report := func() {
		for _, name := range slices.Sorted(maps.Keys(sums)) {
			t.Logf("%s worlds: %v", name, sums[name])
		}
		t.Logf("all: %d seeds, %.0f virtual hours, %d faults, %d seeds with violations", all.seeds, all.hours, total(all.faults), failed)
	}
	next, enough := 0, 10
	if *simSeed != 0 {
		enough = 1
	}
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(seeds) || failed >= enough {
			return 0, false
		}
		next++
		return seeds[next-1], true
	}
	var jobs sync.WaitGroup
	for range *simJobs {
		jobs.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				w := simulate(t, seed, kindOf(seed))
				mu.Lock()
				if sums[w.kind.name] == nil {
					sums[w.kind.name] = newTally()
				}
				sums[w.kind.name].add(w.sum)
				if all.add(w.sum); len(w.violations) > 0 {
					failed++
				}
				if all.seeds%*simEvery == 0 {
					report()
				}
				mu.Unlock()
			}
		})
	}
	jobs.Wait()
	report()
	return sums, all
}

// I1–I8: seeded runs of clients and random faults over a miniature ensemble, in virtual time. Every
// run is recorded by the servers and by the clients, and the record is compared with the promises.
func TestVirtual_Simulation(t *testing.T) {
	_, all := worlds(t, kindOf)
	if all.seeds >= 50 && *simSeed == 0 && *simKind == "" {
		all.hasSeen(t, sawAll)
	}
	// The goal of make nightly PART=simulation.
	if all.seeds >= 2000 && *simKind == "" && (all.hours < 5000 || total(all.faults) < 50_000) {
		t.Errorf("only %.0f hours and %d faults", all.hours, total(all.faults))
	}
}

// hasSeen fails the test if a check never had any input.
func (a *tally) hasSeen(t *testing.T, checks []string) {
	for _, what := range checks {
		if a.checked[what] == 0 {
			t.Errorf("never seen: %s", what)
		}
	}
}

// ofRecipe is a busy world of another recipe.
func ofRecipe(r *recipe) worldKind {
	k := busy
	k.recipe, k.name = r, r.name
	k.long, k.locks, k.workers, k.think, k.hold, k.calm = 10*time.Minute, 1, 2, 3*time.Second, 4*time.Second, 10*time.Second
	return k
}

// recipeWorlds runs worlds of one kind. After some of them, all checks must have had input.
func recipeWorlds(t *testing.T, kind worldKind, checks ...string) {
	_, all := worlds(t, func(uint64) worldKind { return kind })
	if all.seeds < 20 || *simSeed != 0 {
		return
	}
	all.hasSeen(t, append(checks, sawBounds, sawReleases, sawRoots))
	if n := total(all.faults); n < 50*all.seeds {
		t.Errorf("only %d faults in %d worlds", n, all.seeds)
	}
}

// I1, I5, I8: candidates campaign, resign and campaign again. One leads at a time, and in the end
// all observers see the one leader.
func TestVirtual_SimulationOfElections(t *testing.T) {
	recipeWorlds(t, ofRecipe(election), sawMutex, sawRegister, sawLeaders, sawBeliefs)
}

// I1, I5, I8, F18: readers hold together, a writer or a mutex holds alone, and writers also read.
func TestVirtual_SimulationOfReadersAndWriters(t *testing.T) {
	recipeWorlds(t, ofRecipe(readers), sawMutex, sawRegister, sawTries, sawBeliefs, sawFirstLooks)
}

// I1, F48, F60: semaphores whose limit changes, also to 0, and whose requests are denied for a
// while.
func TestVirtual_SimulationOfSemaphores(t *testing.T) {
	kind := ofRecipe(permits)
	kind.wait, kind.denies, kind.timeouts = 8*time.Minute, true, []time.Duration{8 * time.Second, 15 * time.Second}
	recipeWorlds(t, kind, sawPermits, sawWaits)
}

// I1, I5, I6, F60: callers take some of three locks together, each for reading, for writing or as a
// mutex; requests are denied for a while.
func TestVirtual_SimulationOfMultis(t *testing.T) {
	kind := ofRecipe(several)
	kind.locks, kind.denies = 3, true
	recipeWorlds(t, kind, sawMutex, sawBeliefs, sawPermits)
}

// F47, I1: no client is granted before the lock-delay is over after a holder disappeared.
func TestVirtual_SimulationOfLockDelays(t *testing.T) {
	recipeWorlds(t, ofRecipe(delayed), sawMutex, sawRegister, sawTries, sawBeliefs, sawDelays)
}

// I1: work that is done once is not begun again after a call has reported it as done.
func TestVirtual_SimulationOfOnce(t *testing.T) {
	kind := ofRecipe(works)
	kind.think = 10 * time.Second // so often there is the next work
	recipeWorlds(t, kind, sawMutex, sawOnce, sawBeliefs)
}

// I5, I8: without faults no holder is ever notified of a loss, no connection is suspended, and one
// release wakes one waiter.
func TestVirtual_SimulationWithoutFaults(t *testing.T) {
	sums := map[string]*tally{busy.name: newTally(), long.name: newTally()}
	for _, seed := range seedsOf(*simCalm) {
		kind := kindOf(seed + 2) // a long world first: it is cheaper
		kind.long, kind.calm = time.Hour, 0
		w := simulate(t, seed, kind)
		if n := w.sum.counts["told losses"] + w.sum.counts["releases of lost holds"]; n > 0 {
			t.Errorf("seed %d: Lost %d times without a fault (%s)", seed, n, kind.repeat(seed))
		}
		sums[kind.name].add(w.sum)
	}
	for name, sum := range sums {
		t.Logf("%s, without faults: %v", name, sum)
	}
}

// The simulation detects a violation: with clocks that run slower than the lease allows for, some
// seed breaks I5, and both the check of beliefs and the model of the mutex find it.
func TestVirtual_SimulationWithSlowClocks_BreaksI5(t *testing.T) {
	kind := busy
	kind.slow, kind.timeouts, kind.hold = 0.8, []time.Duration{8 * time.Second}, 20*time.Second
	for seed := range uint64(100) {
		said := strings.Join(runWorld(t, seed, kind).violations, "\n")
		if strings.Contains(said, "I5") && strings.Contains(said, "the mutex is not linearizable") {
			t.Logf("found by seed %d", seed)
			return
		}
	}
	t.Error("no holder that believes too long was found")
}

// A seed decides the world, its faults, their times and their targets. It cannot decide in which
// order goroutines run that are ready at the same instant: Go decides that randomly in each run,
// for select, for maps, and in a bubble for timers. A failed seed is therefore run many times.
func TestVirtual_SimulationRepeatsTheFaultsOfASeed(t *testing.T) {
	for _, kind := range []worldKind{busy, long} {
		kind.long /= 4
		var plans [2][]string
		for i := range plans {
			w := runWorld(t, 7, kind)
			plans[i] = w.plan
			slices.Sort(plans[i]) // two goroutines write it
		}
		require.NotEmpty(t, plans[0])
		require.Equal(t, plans[0], plans[1])
	}
}
