package zklock_test

// These tests inject random faults into readers, writers, writers that read and mutexes on one
// path: on one server, and on an ensemble whose members lag, whose leaders change, and whose
// clients pause for a while (I1, I4, I5, I6).

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// throng has workers of a few processes on one path.
type throng struct {
	*random
	srv    servers
	t      *testing.T
	l      *ledger.Ledger
	linger bool // some holds last longer than a disconnected session: a belief that lasts too long is then visible
	grants struct{ read, write, mutex, both atomic.Int64 }
	over   context.Context
}

// servers is one server, or an ensemble.
type servers interface {
	Inject(zktest.Fault) *zktest.Injection
	Children(path string) []string
	Delete(path string) error
	ExpireSession(id int64) bool
	Zxid() int64
}

// work takes one of the locks repeatedly, as one owner, and holds it for a while.
func (c *throng) work(p *process) {
	owner := zklock.NewOwner("")
	rw, m := newRWMutex(c.t, p.s, "/job"), newMutex(c.t, p.s, "/job")
	for c.over.Err() == nil {
		time.Sleep(c.atPace(500 * time.Millisecond))
		l, counts := rw.ReadLock(), &c.grants.read
		switch c.intN(5) {
		case 0, 1:
			l, counts = rw.WriteLock(), &c.grants.write
		case 2:
			l, counts = m, &c.grants.mutex
		}
		h := c.take(p, l, owner)
		if h == nil {
			continue
		}
		counts.Add(1)
		c.dwell(p, h)
		var reads *zklock.Hold
		if counts == &c.grants.write && c.intN(2) == 0 {
			if reads = c.take(p, rw.ReadLock(), owner); reads != nil {
				c.grants.both.Add(1)
				c.dwell(p, reads)
			}
		}
		if reads != nil && c.intN(2) == 0 {
			h, reads = reads, h
		}
		c.give(p, h)
		if reads != nil {
			c.dwell(p, reads)
			c.give(p, reads)
		}
	}
}

// take returns nil if it gets no hold, for an expected reason.
func (c *throng) take(p *process, l zklock.Lock, owner zklock.Owner) *zklock.Hold {
	var h *zklock.Hold
	got := c.takes(c.t, l, zklock.WithOwner(context.Background(), owner),
		func(ctx context.Context) (err error) { h, err = l.Acquire(ctx); return err },
		func(ctx context.Context) (err error) { h, err = l.TryAcquire(ctx); return err })
	p.awake()
	if !got {
		return nil
	}
	c.l.Granted("/job", p.name, h)
	return h
}

func (c *throng) dwell(p *process, h *zklock.Hold) {
	d := c.atPace(3 * time.Second)
	if c.linger && c.intN(8) == 0 {
		d *= 10
	}
	select {
	case <-time.After(d):
	case <-h.Lost():
	}
	p.awake()
}

func (c *throng) give(p *process, h *zklock.Hold) {
	c.l.Ended("/job", h)
	c.gives(c.t, h.Release)
	p.awake()
}

// strike injects one random fault into one of the processes.
func (c *throng) strike(ps []*process) {
	p := ps[c.intN(len(ps))]
	ops := []zktest.Op{zktest.Create, zktest.Multi, zktest.Multi, zktest.Delete, zktest.GetChildren, zktest.GetData}
	before, after := zktest.Before(ops[c.intN(len(ops))]), zktest.After(ops[c.intN(len(ops))])
	inject := func(f zktest.Fault) { c.injectsAt(c.srv, p.s, f) }
	switch c.intN(10) {
	case 0, 1:
		inject(before.Close())
	case 2, 3:
		inject(after.DropReply().Close())
	case 4:
		inject(before.Fail(zktest.OperationTimeout))
	case 5:
		inject(after.Fail(zktest.OperationTimeout))
	case 6:
		inject(before.Delay(c.upTo(3 * time.Second)))
	case 7:
		inject(after.Delay(c.upTo(3 * time.Second)))
	case 8:
		if nodes := c.srv.Children("/job"); len(nodes) > 0 && c.intN(3) == 0 {
			node := "/job/" + nodes[c.intN(len(nodes))]
			c.l.Deleting(node)
			c.strikes()
			_ = c.srv.Delete(node)
		}
	case 9:
		if c.intN(5) == 0 {
			killed := c.l.Killing(p.name)
			c.strikes()
			c.srv.ExpireSession(p.s.SessionID())
			killed(c.srv.Zxid())
		}
	}
}

// I1, I4, I5, I6: whatever responses are lost, nodes deleted and sessions ended: readers hold
// together, a writer holds alone, tokens grow as they should, every call ends in time, and in the
// end no node is left.
func TestVirtual_ReadWrite_RandomFaults(t *testing.T) {
	randomWorlds(t, rand.Uint64N(1<<63), 3, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(time.Millisecond)
		over, end := context.WithTimeout(context.Background(), 10*time.Minute*r.pace)
		defer end()
		c := &throng{srv: v.srv, random: r, t: t, l: ledger.New(t.Errorf), over: over}
		var all sync.WaitGroup
		var ps []*process
		for i := range 3 {
			p := &process{name: fmt.Sprint(i), s: v.connect()}
			ps = append(ps, p)
			for range 3 {
				all.Go(func() { c.work(p) })
			}
		}
		for over.Err() == nil {
			time.Sleep(c.atPace(2 * time.Second))
			c.strike(ps)
		}
		all.Wait()
		time.Sleep(time.Minute)
		require.Empty(t, v.srv.Children("/job"), "I4")
		require.Empty(t, v.srv.Watches(), "I7")
		c.wasBusy(10)
	})
}

// wasBusy fails a world in which any kind was granted too rarely.
func (c *throng) wasBusy(than int64) {
	g := &c.grants
	if *randomHours == 0 {
		c.t.Logf("seed %d: %d read locks, %d write locks, %d mutexes, %d writers that read, too", c.seed, g.read.Load(), g.write.Load(), g.mutex.Load(), g.both.Load())
	}
	require.Greater(c.t, min(g.read.Load(), g.write.Load(), g.mutex.Load(), g.both.Load()), than, "seed %d", c.seed)
}

// process is a client: a Session, a host of its own, and a clock that stops while it is paused.
type process struct {
	name string // its host, in an ensemble's world
	s    *zklock.Session

	mu      sync.Mutex    // guards those below; a leaf
	since   time.Time     // since when it is paused; zero while it is not
	resumed chan struct{} // closed when it is not, nil if it never was
}

// behind returns how late the process's clock is.
func (p *process) behind() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return 0
	}
	return -time.Since(p.since)
}

// awake returns when the process is not paused.
func (p *process) awake() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	if resumed != nil {
		<-resumed
	}
}

// standStill pauses the process for a while, as SIGSTOP and a VM's pause do: its clock stops,
// incoming data is kept for it, and its workers do nothing. Timers of the library still fire, and
// find that nothing is due. The first check of its holds precedes the first incoming frame.
func (p *process) standStill(net *zktest.Network, l *ledger.Ledger, d time.Duration) (firstLooks int) {
	p.mu.Lock()
	p.since, p.resumed = time.Now(), make(chan struct{})
	p.mu.Unlock()
	look := l.Pausing(p.name)
	net.Partition(p.name)
	time.Sleep(d)
	p.mu.Lock()
	p.since = time.Time{}
	p.mu.Unlock()
	firstLooks = look()
	net.Heal(p.name)
	close(p.resumed)
	return firstLooks
}

// strikeMembers injects realistic faults into the ensemble, one at a time, and leaves it healthy.
func (c *throng) strikeMembers(ens *zktest.Ensemble) {
	for c.over.Err() == nil {
		time.Sleep(c.atPace(10 * time.Second))
		member, d := ens.Member(1+c.intN(3)), c.upTo(40*time.Second)
		c.strikes()
		switch c.intN(8) {
		case 0, 1, 2, 3:
			member.SetLag(d / 20)
		case 4, 5:
			member.Isolate()
			time.Sleep(d)
			ens.Heal()
		case 6:
			ens.Elect()
		case 7:
			member.Stop()
			time.Sleep(d)
			if err := member.Start(); err != nil {
				c.t.Error(err)
			}
		}
	}
	for _, member := range ens.Members() {
		member.SetLag(0)
	}
}

// I1, I4, I5, I6, F18: the same on an ensemble of three. Members respond to reads with an older
// state, are cut off and stopped, and leaders change; processes pause, also for longer than their
// sessions last.
func TestVirtual_ReadWrite_Ensemble_RandomFaults(t *testing.T) {
	firstLooks := 0
	randomWorldsFor(t, *randomHours/10, rand.Uint64N(1<<63), 2, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(time.Millisecond)
		ens := zktest.StartEnsemble(t, 3, zktest.WithNetwork(v.net))
		over, end := context.WithTimeout(context.Background(), 20*time.Minute*r.pace)
		defer end()
		c := &throng{srv: ens, random: r, t: t, l: ledger.New(t.Errorf), over: over, linger: true}
		var all sync.WaitGroup
		var ps []*process
		for i := range 4 {
			p := &process{name: fmt.Sprintf("10.3.0.%d", i+1)}
			p.s = hooked(t, hook.Session{SuspendedTime: p.behind}, strings.Join(ens.Addrs(), ","), zklock.WithDialer(v.net.DialFrom(p.name)),
				zklock.WithSessionTimeout(8*time.Second)) // a member that is cut off serves for longer than that
			ps = append(ps, p)
			for range 2 {
				all.Go(func() { c.work(p) })
			}
		}
		all.Go(func() { c.strikeMembers(ens) })
		all.Go(func() {
			for over.Err() == nil {
				time.Sleep(c.atPace(20 * time.Second))
				c.strikes()
				firstLooks += ps[c.intN(len(ps))].standStill(v.net, c.l, c.upTo(30*time.Second))
			}
		})
		for over.Err() == nil {
			time.Sleep(c.atPace(4 * time.Second))
			c.strike(ps)
		}
		all.Wait()
		time.Sleep(2 * time.Minute)
		require.Empty(t, ens.Children("/job"), "I4")
		require.Empty(t, ens.Watches(), "I7")
		c.wasBusy(3)
	})
	if !t.Failed() {
		t.Logf("%d losses seen at the first look after a pause", firstLooks)
		require.Positive(t, firstLooks, "nobody was paused for longer than a lease while somebody waited")
	}
}
