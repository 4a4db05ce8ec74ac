package zklock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run this one seed of TestVirtual_Simulation")
	simSeeds = flag.Uint64("sim.seeds", 60, "how many seeds TestVirtual_Simulation runs")
)

// world is what a simulation knows: who believed to hold what, when. Its checks run as things happen.
type world struct {
	t    *testing.T
	seed uint64

	mu       sync.Mutex
	holders  map[string]*belief // by lock path: who believes to hold
	tokens   map[string]int64   // the largest token granted
	touched  map[string]bool    // lock nodes that the admin deleted, and those of sessions that the admin killed
	killed   map[int64]bool
	grants   int
	losses   int
	refusals int
	faults   int
}

// belief is the time from the grant until the holder was told of its end, or ended it.
type belief struct {
	h     *zklock.Hold
	since time.Time
	over  bool
}

func (w *world) failf(format string, args ...any) {
	w.t.Errorf("seed %d: %s (repeat: go test -race -run TestVirtual_Simulation -sim.seed=%d .)", w.seed, fmt.Sprintf(format, args...), w.seed)
}

func (w *world) granted(lock string, h *zklock.Hold, session int64) *belief {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants++
	b := &belief{h: h, since: time.Now()}
	// The admin's doing is outside the assumptions of I5: a holder is told of it afterwards, and from a server that lags
	// a waiter may learn of it only then (F24).
	if old := w.holders[lock]; old != nil && !old.over && !w.touched[old.h.Path()] && !w.touched[h.Path()] {
		w.failf("I5: %s granted with token %d while the holder of token %d, since %v, still believes; its deadline is in %v",
			lock, h.Token(), old.h.Token(), time.Since(old.since), time.Until(old.h.Deadline()))
	}
	if h.Token() <= w.tokens[lock] && !w.touched[h.Path()] {
		w.failf("I1: token %d after %d", h.Token(), w.tokens[lock])
	}
	w.tokens[lock] = max(w.tokens[lock], h.Token())
	if w.killed[session] {
		w.touched[h.Path()] = true
	}
	w.holders[lock] = b
	return b
}

func (w *world) ended(b *belief) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b.over = true
}

// simulate runs clients, workers and faults over an ensemble in miniature for a while, and checks I1 and I4–I8.
func simulate(t *testing.T, seed uint64, long time.Duration) (w *world) {
	w = &world{t: t, seed: seed, holders: map[string]*belief{}, tokens: map[string]int64{}, touched: map[string]bool{}, killed: map[int64]bool{}}
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		rnd := rand.New(rand.NewPCG(seed, 3))
		n := zktest.NewNetwork()
		n.SetLatency(time.Duration(1+rnd.IntN(5)) * time.Millisecond)
		ens := zktest.StartEnsemble(t, 3, zktest.WithNetwork(n), zktest.WithTick(2*time.Second), zktest.WithSyncLimit(5))
		servers := strings.Join(ens.Addrs(), ",")
		locks := []string{"/locks/a", "/locks/b"}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var workers, chaos sync.WaitGroup
		var sessions []*zklock.Session
		for range 4 {
			T := []time.Duration{8, 10, 15, 30}[rnd.IntN(4)] * time.Second
			s, err := zklock.Connect(context.Background(), servers, zklock.WithDialer(n.Dial), zklock.WithSessionTimeout(T), quiet(t))
			require.NoError(t, err)
			sessions = append(sessions, s)
			for range 3 {
				r := rand.New(rand.NewPCG(seed, rnd.Uint64()))
				m := newMutex(t, s, locks[rnd.IntN(2)])
				workers.Go(func() { w.worker(ctx, r, s, m) })
			}
		}
		r := rand.New(rand.NewPCG(seed, rnd.Uint64()))
		chaos.Go(func() { w.chaos(ctx, r, ens, sessions) })

		time.Sleep(long)
		cancel()
		chaos.Wait()
		workers.Wait()
		time.Sleep(2 * time.Minute)
		for _, lock := range locks {
			if left := ens.Children(lock); len(left) > 0 {
				w.failf("I4: left in %s: %v", lock, left)
				ids := map[int64]bool{}
				for _, a := range ens.History() {
					for _, name := range left {
						if strings.HasSuffix(a.Path, name) {
							ids[a.Session] = true
						}
					}
				}
				for _, a := range ens.History() {
					if ids[a.Session] {
						t.Logf("history: %v %v", a.Time, a)
					}
				}
				t.Log("live: ", ens.Sessions())
				for i, s := range sessions {
					t.Logf("session %d: %#x %v %v", i, s.SessionID(), s.State(), zklock.DebugNodes(s))
				}
			}
			for _, s := range sessions {
				h, err := newMutex(t, s, lock).Acquire(within(t, time.Minute))
				if err != nil {
					w.failf("after all faults: %v", err)
					continue
				}
				release(t, h)
			}
		}
		for _, s := range sessions {
			require.NoError(t, s.Close())
		}
	})
	return w
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// worker acquires, tries, gives up, re-enters, holds and releases at random.
func (w *world) worker(ctx context.Context, r *rand.Rand, s *zklock.Session, m *zklock.Mutex) {
	for pause(ctx, time.Duration(r.Int64N(int64(5*time.Second)))) {
		bound := time.Duration(1+r.Int64N(int64(time.Minute)/int64(time.Millisecond))) * time.Millisecond
		if r.IntN(4) == 0 {
			bound /= 100
		}
		actx, cancel := context.WithTimeout(context.Background(), bound)
		start := time.Now()
		var h *zklock.Hold
		var err error
		if r.IntN(3) == 0 {
			h, err = m.TryAcquire(actx)
		} else {
			h, err = m.Acquire(actx)
		}
		cancel()
		if late := time.Since(start) - bound; late > time.Second {
			w.failf("I6: an acquire of %v came back %v late", bound, late)
		}
		if err != nil {
			w.mu.Lock()
			w.refusals++
			w.mu.Unlock()
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, zklock.ErrNotAcquired) {
				w.failf("acquire: %v", err)
			}
			continue
		}
		w.hold(ctx, r, s, m, h)
	}
}

func (w *world) hold(ctx context.Context, r *rand.Rand, s *zklock.Session, m *zklock.Mutex, h *zklock.Hold) {
	b := w.granted(m.Path(), h, s.SessionID())
	told := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-h.Lost():
			w.ended(b)
		case <-told:
		}
	})
	if r.IntN(3) == 0 {
		if again, err := m.Acquire(h.Context()); err == nil {
			if again.Token() != h.Token() {
				w.failf("I2: re-entered with another token")
			}
			_ = again.Release(context.Background())
		}
	}
	pause(h.Context(), time.Duration(r.Int64N(int64(8*time.Second))))
	bound := time.Duration(r.Int64N(int64(20 * time.Second)))
	rctx, cancel := context.WithTimeout(context.Background(), bound)
	start := time.Now()
	w.ended(b)
	err := h.Release(rctx)
	cancel()
	close(told)
	watcher.Wait()
	if late := time.Since(start) - bound; late > time.Second {
		w.failf("I6: a release of %v came back %v late", bound, late)
	}
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, zklock.ErrLost):
		w.mu.Lock()
		w.losses++
		w.mu.Unlock()
	default:
		w.failf("release: %v", err)
	}
}

// chaos does to the ensemble and its clients what happens in the field, and leaves it well.
func (w *world) chaos(ctx context.Context, r *rand.Rand, ens *zktest.Ensemble, sessions []*zklock.Session) {
	var open []*zktest.Injection
	ops := []zktest.Op{zktest.Create, zktest.Delete, zktest.GetChildren, zktest.GetData, zktest.Exists, zktest.Sync, zktest.Multi, zktest.SetWatches, zktest.AnyOp}
	for pause(ctx, time.Duration(r.Int64N(int64(40*time.Second)))) {
		w.mu.Lock()
		w.faults++
		w.mu.Unlock()
		s, member := sessions[r.IntN(len(sessions))], ens.Member(1+r.IntN(3))
		switch r.IntN(14) {
		case 0, 1:
			ens.DropConnection(s.SessionID())
		case 2:
			id := s.SessionID()
			w.mu.Lock()
			w.killed[id] = true
			for _, lock := range []string{"/locks/a", "/locks/b"} {
				for _, c := range ens.Children(lock) {
					if st, ok := ens.Stat(path.Join(lock, c)); ok && st.EphemeralOwner == id {
						w.touched[path.Join(lock, c)] = true
					}
				}
			}
			w.mu.Unlock()
			ens.ExpireSession(id)
		case 3, 4:
			member.Isolate()
			pause(ctx, time.Duration(r.Int64N(int64(40*time.Second))))
			ens.Heal()
		case 5:
			member.Stop()
			pause(ctx, time.Duration(r.Int64N(int64(40*time.Second))))
			if err := member.Start(); err != nil {
				w.failf("%v", err)
			}
		case 6:
			ens.Elect()
		case 7:
			member.SetLag(time.Duration(r.Int64N(int64(2 * time.Second))))
		case 8:
			lock := []string{"/locks/a", "/locks/b"}[r.IntN(2)]
			if names := ens.Children(lock); len(names) > 0 {
				node := path.Join(lock, names[r.IntN(len(names))])
				w.mu.Lock()
				w.touched[node] = true
				w.mu.Unlock()
				_ = ens.Delete(node)
			}
		case 9:
			lock := []string{"/locks/a", "/locks/b"}[r.IntN(2)]
			if names := ens.Children(lock); len(names) > 0 {
				_ = ens.SetData(path.Join(lock, names[r.IntN(len(names))]), []byte("noise"))
			}
		case 10:
			open = append(open, ens.Inject(zktest.Before(ops[r.IntN(len(ops))]).Session(s.SessionID()).Nth(1+r.IntN(3)).Close().Optional()))
		case 11, 12:
			open = append(open, ens.Inject(zktest.After(ops[r.IntN(len(ops))]).Session(s.SessionID()).Nth(1+r.IntN(3)).DropReply().Close().Optional()))
		case 13:
			open = append(open, ens.Inject(zktest.OnEvent(zktest.NodeDeleted).Session(s.SessionID()).Drop().Once().Optional()))
		}
	}
	for _, i := range open {
		i.Remove()
	}
	ens.Heal()
	for id := 1; id <= 3; id++ {
		ens.Member(id).SetLag(0)
	}
}

// I1–I8: seeded runs of many clients and random faults, in virtual time.
func TestVirtual_Simulation(t *testing.T) {
	first, last := uint64(1), *simSeeds
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	var grants, losses, refusals, faults int
	const long = 30 * time.Minute
	for seed := first; seed <= last && !t.Failed(); seed++ {
		w := simulate(t, seed, long)
		grants, losses, refusals, faults = grants+w.grants, losses+w.losses, refusals+w.refusals, faults+w.faults
	}
	hours := float64(last-first+1) * long.Hours()
	t.Logf("%d seeds, %.0f virtual hours: %d faults, %d grants, %d not acquired, %d lost", last-first+1, hours, faults, grants, refusals, losses)
}
