//go:build linux

package cutup_test

// A long run: one cut or failover after the other under clients that lock, hold and release all the time.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/cutup"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/internal/zkserver"
)

var (
	cuts = flag.Int("chaos.cuts", 20, "how many cuts and failovers TestLongRun makes at the least")
	long = flag.Duration("chaos.for", 0, "how long TestLongRun runs at the least")
	seed = flag.Uint64("chaos.seed", 0, "what TestLongRun draws its faults from; 0 draws a seed")
)

// crew is the workers' common record.
type crew struct {
	*ledger.Ledger
	errorf     func(format string, args ...any)
	lost, gave atomic.Int64 // holds lost; calls that came back without the lock when their time was up
}

// since says whether every lock was granted after the moment.
func (c *crew) since(at time.Time, locks []string) bool {
	for _, lock := range locks {
		if !c.Latest(lock).After(at) {
			return false
		}
	}
	return true
}

// inTime checks I6, with room for a busy machine.
func (c *crew) inTime(what string, begun time.Time, bound time.Duration) {
	if late := time.Since(begun) - bound; late > 2*time.Second {
		c.errorf("I6: %s of at most %v came back %v late", what, bound, late)
	}
}

// work takes the lock, holds it for a while and gives it back, until ctx ends.
func (c *crew) work(ctx context.Context, m *zklock.Mutex) {
	const bound = 20 * time.Second
	for ctx.Err() == nil {
		actx, cancel := context.WithTimeout(ctx, bound)
		begun := time.Now()
		h, err := m.Acquire(actx)
		cancel()
		c.inTime("an acquire", begun, bound)
		if err != nil {
			c.gave.Add(1)
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				c.errorf("acquire: %v", err)
			}
			continue
		}
		c.Granted(m.Path(), "", h)
		work := rand.N(3 * time.Second)
		if rand.N(4) == 0 {
			work *= 4 // long enough to be overtaken by a fault
		}
		select {
		case <-h.Context().Done():
		case <-time.After(work):
		}
		c.Ended(m.Path(), h)
		rctx, cancel := context.WithTimeout(context.Background(), bound)
		begun = time.Now()
		err = h.Release(rctx)
		cancel()
		c.inTime("a release", begun, bound)
		switch {
		case errors.Is(err, zklock.ErrLost):
			c.lost.Add(1)
		case err != nil && !errors.Is(err, zklock.ErrNotConfirmed):
			c.errorf("release: %v", err)
		}
	}
}

// fault is one thing that befalls the ensemble or its clients; its do strikes, waits and takes it back.
type fault struct {
	name string
	do   func(s *scene, r *rand.Rand) error
}

// wait lets a fault last.
func wait(r *rand.Rand, from, to time.Duration) {
	time.Sleep(from + time.Duration(r.Int64N(int64(to-from))))
}

// pick is the leader or one of the followers.
func (s *scene) pick(r *rand.Rand, lead bool) *zkserver.Server {
	leader, followers := s.roles()
	if lead {
		return leader
	}
	return followers[r.IntN(len(followers))]
}

func (s *scene) serverHosts(but *zkserver.Server) (hosts []*cutup.Host) {
	for _, srv := range s.others(but) {
		hosts = append(hosts, s.host(srv))
	}
	return hosts
}

func isolated(lead bool) func(*scene, *rand.Rand) error {
	return func(s *scene, r *rand.Rand) error {
		s.isolate(s.pick(r, lead))
		wait(r, time.Second, 12*time.Second)
		return nil
	}
}

func killed(lead bool) func(*scene, *rand.Rand) error {
	return func(s *scene, r *rand.Rand) error {
		srv := s.pick(r, lead)
		if err := srv.Kill(); err != nil {
			return err
		}
		wait(r, 0, 8*time.Second)
		return srv.Launch()
	}
}

func frozen(lead bool, from, to time.Duration) func(*scene, *rand.Rand) error {
	return func(s *scene, r *rand.Rand) error {
		srv := s.pick(r, lead)
		if err := srv.Pause(); err != nil {
			return err
		}
		wait(r, from, to)
		return srv.Resume()
	}
}

var faultKinds = []fault{
	{"follower cut off", isolated(false)},
	{"leader cut off", isolated(true)},
	{"follower killed", killed(false)},
	{"leader killed", killed(true)},
	{"follower frozen", frozen(false, time.Second, 12*time.Second)},
	// A leader that freezes for longer than G, and comes back before the others have given it up, does not ping them as
	// QuorumLease assumes. Doing so over and over is outside of it, so it is less, or so long that another leads.
	{"leader frozen shortly", frozen(true, 200*time.Millisecond, 3*time.Second)},
	{"leader frozen until deposed", frozen(true, 13*time.Second, 15*time.Second)},
	{"link between two servers cut", func(s *scene, r *rand.Rand) error {
		leader, followers := s.roles()
		if err := s.net.Cut(s.host(leader), s.host(followers[r.IntN(2)])); err != nil {
			return err
		}
		wait(r, time.Second, 12*time.Second)
		return nil
	}},
	{"one direction between servers blocked", func(s *scene, r *rand.Rand) error {
		a := s.pick(r, r.IntN(2) == 0)
		if err := s.net.Block(s.host(a), s.serverHosts(a)[r.IntN(2)]); err != nil {
			return err
		}
		wait(r, time.Second, 12*time.Second)
		return nil
	}},
	{"one direction of a client blocked", func(s *scene, r *rand.Rand) error {
		from, to := s.clients[r.IntN(2)], s.host(s.pick(r, r.IntN(2) == 0))
		if r.IntN(2) == 0 {
			from, to = to, from
		}
		if err := s.net.Block(from, to); err != nil {
			return err
		}
		wait(r, time.Second, 12*time.Second)
		return nil
	}},
	{"client cut off", func(s *scene, r *rand.Rand) error {
		if err := s.net.Cut(s.clients[r.IntN(2)], s.serverHosts(nil)...); err != nil {
			return err
		}
		wait(r, time.Second, 14*time.Second)
		return nil
	}},
}

// diverged says, when it is printed, whether the servers' trees have come apart, by what the servers themselves log. Then
// one server shows a node that another has deleted, and no client can put that right: ZooKeeper 3.8.0 has faults of that
// kind (ZOOKEEPER-4785 is one).
type diverged struct{ s *scene }

func (d diverged) String() string {
	for _, srv := range d.s.ens.Servers() {
		for line := range strings.Lines(srv.Log()) {
			if strings.Contains(line, "igest mismatch") || strings.Contains(line, "Digests are not matching") {
				return fmt.Sprintf(". The servers' trees have come apart, a fault of theirs; zk%d says: %s", srv.ID(), strings.TrimSpace(line))
			}
		}
	}
	return ". The servers do not say that their trees have come apart"
}

// I1, I4, I5, I6, I7: twelve workers in six sessions on two hosts share two locks while the ensemble is cut up. After
// each fault the locks must be granted again.
func TestLongRun(t *testing.T) {
	s := newScene(t)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d (repeat the faults: -chaos.seed=%d -chaos.cuts=%d)", *seed, *seed, *cuts)
	r := rand.New(rand.NewPCG(*seed, 4))
	locks := []string{"/long/a", "/long/b"}
	l := &crew{Ledger: ledger.New(t.Errorf), errorf: t.Errorf}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var workers sync.WaitGroup
	var sessions []*zklock.Session
	for _, from := range s.clients {
		for _, timeout := range []time.Duration{8 * time.Second, 10 * time.Second, 20 * time.Second} {
			session, err := zklock.Connect(within(t, soon), s.ens.ConnectString(), zklock.WithSessionTimeout(timeout), zklock.WithDialer(from.Dial), zklock.WithLogger(quiet))
			require.NoError(t, err)
			t.Cleanup(func() { session.Close() })
			sessions = append(sessions, session)
			for _, lock := range locks {
				m, err := zklock.NewMutex(session, lock)
				require.NoError(t, err)
				workers.Go(func() { l.work(ctx, m) })
			}
		}
	}
	t.Cleanup(workers.Wait)
	t.Cleanup(stop)

	begun := time.Now()
	times := make(map[string]int)
	var changes int
	var longest time.Duration
	var order []fault // every kind once, in a random order, before any comes again
	for n := 0; (n < *cuts || time.Since(begun) < *long) && !t.Failed(); n++ {
		if len(order) == 0 {
			order = append(order, faultKinds...)
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		f := order[0]
		order = order[1:]
		before, _ := s.roles()
		struck := time.Now()
		require.NoError(t, f.do(s, r), f.name)
		healed := time.Now()
		require.NoError(t, s.net.Heal())
		require.Eventually(t, func() bool { return l.since(healed, locks) }, late, 50*time.Millisecond, "%s: a lock was not granted again%v", f.name, diverged{s})
		granted := time.Since(healed)
		s.whole()
		after, _ := s.roles()
		if after != before {
			changes++
		}
		times[f.name]++
		longest = max(longest, granted)
		t.Logf("%3d %-38s %5.1f s, both locks granted after %4.1f s, all servers serve after %4.1f s", n+1, f.name,
			healed.Sub(struck).Seconds(), granted.Seconds(), time.Since(healed).Seconds())
	}
	stop()
	workers.Wait()
	total := 0
	var kinds []string
	for name, n := range times {
		total += n
		kinds = append(kinds, fmt.Sprintf("%d %s", n, name))
	}
	sort.Strings(kinds)
	t.Logf("%d faults in %v (%s), the leader changed %d times; %d grants, %d holds lost in time, %d waits given up; a lock was granted at most %v after the fault was over",
		total, time.Since(begun).Round(time.Second), strings.Join(kinds, ", "), changes, l.Grants(), l.lost.Load(), l.gave.Load(), longest.Round(100*time.Millisecond))
	require.NotZero(t, l.Grants())
	for _, lock := range locks {
		(&lane{s: s, path: lock}).empty()
	}
	for _, session := range sessions {
		begun := time.Now()
		require.NoError(t, session.Close())
		l.inTime("a close", begun, 4*time.Second)
	}
	require.Eventually(t, func() bool { n, err := s.ens.WatchCount(); return err == nil && n == 0 }, soon, 100*time.Millisecond, "I7: watches are left")
}
