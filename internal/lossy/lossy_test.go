package lossy

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

var (
	wantGrants = flag.Int("lossy.grants", 20_000, "how many grants TestReal_Faults sees at the least")
	wantFaults = flag.Int("lossy.faults", 500, "how many faults TestReal_Faults sees at the least")
	seed       = flag.Uint64("lossy.seed", 0, "what the faults and the clients' doings are drawn from; 0 draws a seed")
)

const (
	noise = 3 * time.Second  // by how much a call may be late on a busy machine (I6)
	stuck = 90 * time.Second // for how long a lock may go without a grant under faults
)

// world is one run: a server, its clients, and what they saw.
type world struct {
	t       *testing.T
	srv     server
	admin   *zk.Conn
	ledger  *ledger.Ledger
	store   store
	locks   []string
	clients []*client

	lost, refused atomic.Int64 // holds lost and told; acquires that came back without the lock

	mu     sync.Mutex
	faults map[string]int // that happened, by name
	total  int
}

func (w *world) count(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[name]++
	w.total++
}

func (w *world) struck() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// byKind lists the faults, the most frequent first.
func (w *world) byKind() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(w.faults), func(a, b string) int {
		if d := w.faults[b] - w.faults[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%d %s", w.faults[name], name))
	}
	return strings.Join(parts, ", ")
}

// inTime checks I6.
func (w *world) inTime(what string, begun time.Time, bound time.Duration) {
	if late := time.Since(begun) - bound; late > noise {
		w.t.Errorf("I6: %s of at most %v came back %v late", what, bound, late)
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// size is how much of everything there is in a run.
type size struct {
	clients, workers, locks int // each client has so many workers in a hurry, and one who is not
	grants, faults          int
	disturb                 time.Duration // how often something happens to the server, on average
}

// run lets clients lock while things go wrong, until there were enough grants and faults, and checks I1 and I4–I8. (I8:
// tokens are czxids, so they increase only if grants follow the queue.)
func run(t *testing.T, kind string, srv server, seed uint64, z size) {
	begun := time.Now()
	rnd := rand.New(rand.NewPCG(seed, 5))
	draws := func() *rand.Rand { return rand.New(rand.NewPCG(seed, rnd.Uint64())) }
	w := &world{t: t, srv: srv, admin: newAdmin(t, srv), ledger: ledger.New(t.Errorf), faults: make(map[string]int)}
	w.store.landed = make(map[string]map[int32]int64)
	_, err := w.admin.Create("/fenced", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for n := range z.locks {
		lock := fmt.Sprintf("/job-%02d", n)
		w.locks = append(w.locks, lock)
		_, err := w.admin.Create(resource(lock), nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	for n := range z.clients {
		c := w.newClient(n)
		c.open()
		require.False(t, t.Failed())
		w.clients = append(w.clients, c)
	}

	// Things go wrong until stop; the clients go on until rest.
	chaos, stop := context.WithCancel(context.Background())
	working, rest := context.WithCancel(context.Background())
	var troubles, workers sync.WaitGroup
	defer workers.Wait()
	defer rest()
	defer troubles.Wait()
	defer stop()
	// Those who are in no hurry have locks of their own, or they would hold up all others.
	quick := habit{locks: w.locks[:z.locks-z.clients/2], wait: 2 * time.Second, sit: 1000}
	slow := habit{locks: w.locks[len(quick.locks):], wait: 10 * time.Second, sit: 1}
	for _, c := range w.clients {
		r, patient := draws(), draws()
		troubles.Go(func() { c.befall(chaos, r) })
		workers.Go(func() { c.work(working, patient, slow) })
		for range z.workers {
			r := draws()
			workers.Go(func() { c.work(working, r, quick) })
		}
	}
	meddler, disturber := draws(), draws()
	troubles.Go(func() { w.meddle(chaos, meddler) })
	troubles.Go(func() { w.disturb(chaos, disturber, z.disturb) })

	said := time.Now()
	for (w.ledger.Grants() < z.grants || w.struck() < z.faults) && !t.Failed() {
		time.Sleep(50 * time.Millisecond)
		for _, lock := range w.locks {
			if at := w.ledger.Latest(lock); time.Since(begun) > stuck && time.Since(at) > stuck {
				t.Errorf("%s was not granted for %v: %v", lock, time.Since(at), children(t, w.admin, lock))
			}
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			t.Logf("after %v: %d grants, %d faults, %d told losses", time.Since(begun).Round(time.Second), w.ledger.Grants(), w.struck(), w.lost.Load())
		}
	}
	stop()
	troubles.Wait()
	rest()
	workers.Wait()
	w.settle()
	first, landed := w.store.stale()
	require.Empty(t, first, "a stale write landed")
	outcome := "0 violations"
	if t.Failed() {
		outcome = "FAILED"
	}
	t.Logf("%s: %d grants, %d faults (%s), %d told losses, %d acquires without the lock; fenced writes: %d known to have landed, %d stale ones refused; %s, %.0f s",
		kind, w.ledger.Grants(), w.struck(), w.byKind(), w.lost.Load(), w.refused.Load(), landed, w.store.refused, outcome, time.Since(begun).Seconds())
	require.NotZero(t, landed)
}

// settle checks what must be true when nothing goes wrong any more: nothing is left (I4, I7), and every lock can be had.
func (w *world) settle() {
	for _, lock := range w.locks {
		// A node of a session that nobody ended lives as long as that.
		require.True(w.t, eventually(func() bool { return len(children(w.t, w.admin, lock)) == 0 }), "I4: left in %s: %v", lock, lister{w, lock})
	}
	require.True(w.t, eventually(func() bool { n, err := w.srv.WatchCount(); return err == nil && n == 0 }), "I7: watches are left")
	var all sync.WaitGroup
	for _, c := range w.clients {
		all.Go(func() {
			for _, lock := range w.locks {
				w.pass(c, lock)
			}
		})
	}
	all.Wait()
	w.queue(w.locks[0])
	for _, lock := range w.locks {
		w.store.read(lock, w.admin)
	}
	for _, c := range w.clients {
		c.close()
	}
}

// queue has all clients queue several times for one lock, and counts the events of each node while the lock passes
// through all hands: one release wakes one waiter (I8), and who has waited hears of the end of its own node.
func (w *world) queue(lock string) {
	const each = 3
	var mu sync.Mutex
	events := make(map[string]int)
	for _, c := range w.clients {
		c.proxy.OnFrame(func(f zktest.Frame) {
			if f.Kind == zktest.EventFrame {
				mu.Lock()
				defer mu.Unlock()
				events[f.Paths[0]]++
			}
		})
		defer c.proxy.OnFrame(nil)
	}
	first := w.acquire(w.clients[0], lock)
	require.NotNil(w.t, first)
	var all sync.WaitGroup
	defer all.Wait()
	for range each {
		for _, c := range w.clients {
			all.Go(func() { w.pass(c, lock) })
		}
	}
	waiters := each * len(w.clients)
	want := make(map[string]int)
	require.True(w.t, eventually(func() bool {
		clear(want)
		watches := 0
		nodes := w.inOrder(lock)
		for i, n := range nodes {
			// Sessions with a watch on it: those of the next two in line, and its own if it waits; but who stands directly behind a
			// node of its own session watches nothing.
			at := make(map[int64]bool)
			for k := max(i, 1); k < min(i+3, len(nodes)); k++ {
				if by := nodes[k].session; by != nodes[k-1].session {
					at[by] = true
				}
			}
			if len(at) > 0 {
				want[n.path] = len(at)
			}
			watches += len(at)
		}
		n, err := w.srv.WatchCount()
		return err == nil && len(nodes) == 1+waiters && n == watches
	}), "%d waiters with their watches", waiters)
	w.release(w.clients[0], lock, first)
	all.Wait()
	told := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(events)
	}
	eventually(func() bool { return maps.Equal(want, told()) })
	require.Equal(w.t, want, told(), "I8: events by node")
	w.t.Logf("%d waiters in a queue, each granted in its turn: each node's end was told to the next two in line and to its own session, where the predecessor is of another", waiters)
}

type queued struct {
	path    string
	session int64
}

// inOrder is the lock's queue. A node that goes meanwhile is left out.
func (w *world) inOrder(lock string) (nodes []queued) {
	zxids := make(map[string]int64)
	for _, name := range children(w.t, w.admin, lock) {
		node := path.Join(lock, name)
		if ok, stat, err := w.admin.Exists(node); err == nil && ok {
			nodes, zxids[node] = append(nodes, queued{node, stat.EphemeralOwner}), stat.Czxid
		}
	}
	slices.SortFunc(nodes, func(a, b queued) int { return cmp.Compare(zxids[a.path], zxids[b.path]) })
	return nodes
}

// pass acquires and releases where nothing goes wrong.
func (w *world) pass(c *client, lock string) {
	if h := w.acquire(c, lock); h != nil {
		w.release(c, lock, h)
	}
}

func (w *world) acquire(c *client, lock string) *zklock.Hold {
	ctx, cancel := context.WithTimeout(context.Background(), 2*soon)
	defer cancel()
	m, err := zklock.NewMutex(c.session(), lock)
	if err != nil {
		w.t.Error(err)
		return nil
	}
	h, err := m.Acquire(ctx)
	if err != nil {
		w.t.Errorf("%s, after all faults: %v", c.name, err)
	} else if !w.ledger.Granted(lock, c.name, h) {
		w.t.Errorf("%s, after all faults: %v", c.name, h.Err())
	}
	return h
}

func (w *world) release(c *client, lock string, h *zklock.Hold) {
	w.ledger.Ended(lock, h)
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := h.Release(ctx); err != nil {
		w.t.Errorf("%s, after all faults: %v", c.name, err)
	}
}

// lister is a lock's nodes at the time when they are printed.
type lister struct {
	w    *world
	lock string
}

func (l lister) String() string {
	var b strings.Builder
	for _, name := range children(l.w.t, l.w.admin, l.lock) {
		if ok, stat, err := l.w.admin.Exists(path.Join(l.lock, name)); err == nil && ok {
			fmt.Fprintf(&b, "%s of session %#x; ", name, stat.EphemeralOwner)
		}
	}
	return b.String()
}

func chosen(t *testing.T, kind string) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("%s: seed %d (repeat what is drawn: -lossy.seed=%d)", kind, s, s)
	return s
}

// I1, I4–I8 on a real server behind connections that fail: F1, F3, F5 to F10, F15 to F17, F22, F24 to F26, F30, F31 and F33,
// in any order and at the same time.
func TestReal_Faults(t *testing.T) {
	asked(t)
	srv := zkserver.Single(t, zkserver.TickTime(tick))
	run(t, "real server", srv, chosen(t, "real server"), size{clients: 15, workers: 9, locks: 120,
		grants: *wantGrants, faults: *wantFaults, disturb: 4 * time.Second})
}

// The same on the in-process server, for a few seconds.
func TestInProcess_Faults(t *testing.T) {
	srv := inProcess{zktest.Start(t, zktest.WithTick(tick), zktest.WithSessionTimeouts(2*tick, time.Minute))}
	run(t, "in-process server", srv, chosen(t, "in-process server"), size{clients: 5, workers: 5, locks: 15,
		grants: 500, faults: 10, disturb: time.Second})
}

// The check of the fenced writes can tell.
func TestStore_CatchesAStaleWrite(t *testing.T) {
	s := store{landed: make(map[string]map[int32]int64)}
	for version, token := range map[int32]int64{1: 100, 2: 100, 5: 300, 6: 400} {
		s.note("/job", version, token)
	}
	first, landed := s.stale()
	require.Empty(t, first)
	require.Equal(t, 4, landed)
	s.note("/job", 8, 300)
	first, _ = s.stale()
	require.Equal(t, "/job: version 8 was written with token 300, after 400", first)
}
