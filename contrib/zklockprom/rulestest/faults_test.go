package rulestest

// These tests attack the alerts with faults: a process on a server in virtual time, scraped every
// 15 seconds. The expected alerts fire, and no others.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/shards"
	"github.com/zklock/zklock/zktest"
)

const every = 15 * time.Second

// process is a process with one Session, and its scraped samples.
type process struct {
	t       *testing.T
	net     *zktest.Network
	srv     *zktest.Server
	metrics *zklockprom.Metrics
	s       *zklock.Session

	scrapes int
	samples map[string][]string // by series; "_" if it was missing
}

func (p *process) connect(opts ...zklock.Option) *zklock.Session {
	ctx := hook.With(context.Background(), hook.Session{SuspendedTime: func() time.Duration { return 0 }}) // the machine does not sleep
	s, err := zklock.Connect(ctx, p.srv.Addr(), append([]zklock.Option{zklock.WithDialer(p.net.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (p *process) scrape() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.metrics)
	families, err := registry.Gather()
	require.NoError(p.t, err)
	var text strings.Builder
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(p.t, err)
	}
	for line := range strings.Lines(text.String()) {
		at := strings.LastIndex(line, " ")
		series := line[:at]
		if strings.HasPrefix(line, "#") || strings.Contains(series, "_bucket{") {
			continue
		}
		all := p.samples[series]
		for len(all) < p.scrapes {
			all = append(all, "_")
		}
		p.samples[series] = append(all, strings.TrimSpace(line[at:]))
	}
	p.scrapes++
}

// pass lets time pass, and scrapes.
func (p *process) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		p.scrape()
		time.Sleep(every)
		synctest.Wait()
	}
}

func (p *process) load() string {
	var text strings.Builder
	fmt.Fprintf(&text, "load %v\n", every)
	for series, all := range p.samples {
		fmt.Fprintf(&text, "  %s %s\n", series, strings.Join(all, " "))
	}
	return text.String()
}

func (p *process) acquire(s *zklock.Session) *zklock.Hold {
	h, err := p.mutex(s).Acquire(context.Background())
	require.NoError(p.t, err)
	return h
}

func (p *process) mutex(s *zklock.Session) *zklock.Mutex {
	m, err := zklock.NewMutex(s, "/job")
	require.NoError(p.t, err)
	return m
}

// queue has n callers wait until the test ends.
func (p *process) queue(n int) {
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(func() { cancel(); synctest.Wait() })
	for range n {
		m := p.mutex(p.s)
		go func() { _, _ = m.Acquire(ctx) }()
	}
}

func (p *process) stand() {
	e, err := zklock.NewElection(p.s, "/job")
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(func() { cancel(); synctest.Wait() })
	go func() {
		_ = e.Campaign(ctx, func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return ctx.Err() })
	}()
}

// join runs a member of a group of eight shards until the test ends, and watches it.
func (p *process) join(s *zklock.Session, name string, f shards.Func) {
	p.joinOf(p.metrics, s, name, f)
}

func (p *process) joinOf(metrics *zklockprom.Metrics, s *zklock.Session, name string, f shards.Func) {
	g, err := shards.New(s, "/orders/workers", 8, shards.WithMember(name, nil), shards.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(p.t, err)
	metrics.WatchGroup(g)
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan struct{})
	p.t.Cleanup(func() { leave(); <-done })
	go func() {
		defer close(done)
		_ = g.Run(ctx, f)
	}()
}

// crash joins a member that is not scraped, lets the group settle, does what prepare does to a
// shard of that member, and ends the member's session and its connection.
func (p *process) crash(prepare func(admin *zk.Conn, shard int)) {
	const host = "10.0.0.9"
	victim := p.connect(zklock.WithDialer(p.net.DialFrom(host)))
	works := make(chan int, 8)
	p.joinOf(zklockprom.New(), victim, "victim", func(ctx context.Context, shard int, h *zklock.Hold) error {
		works <- shard
		return partition(ctx, shard, h)
	})
	time.Sleep(30 * time.Second)
	prepare(p.connect().Conn(), <-works)
	p.net.Partition(host)
	p.srv.ExpireSession(victim.Stats().SessionID)
}

// partition works until its context ends.
func partition(ctx context.Context, _ int, _ *zklock.Hold) error { <-ctx.Done(); return nil }

var faults = map[string]struct {
	happens func(p *process)
	fire    []string // sorted
}{
	"none: jobs run, a server restarts, a leader leads": {func(p *process) {
		p.stand()
		m, err := zklock.NewMutex(p.s, "/jobs/quick")
		require.NoError(p.t, err)
		for i := range 60 {
			h, err := m.Acquire(context.Background())
			require.NoError(p.t, err)
			p.pass(time.Minute)
			require.NoError(p.t, h.Release(context.Background()))
			if i == 30 {
				p.srv.Stop()
				time.Sleep(time.Second)
				require.NoError(p.t, p.srv.Start())
			}
		}
	}, nil},
	"the session expires, and the work ends at once": {func(p *process) {
		h := p.acquire(p.s)
		p.pass(time.Minute)
		p.srv.ExpireSession(p.s.Stats().SessionID)
		<-h.Lost()
		_ = h.Release(context.Background())
		p.pass(2 * time.Minute)
	}, []string{"ZklockHoldLost"}},
	"the session expires, and the work goes on for ten seconds": {func(p *process) {
		h := p.acquire(p.s)
		p.pass(time.Minute)
		p.srv.ExpireSession(p.s.Stats().SessionID)
		<-h.Lost()
		time.Sleep(10 * time.Second)
		_ = h.Release(context.Background())
		p.pass(2 * time.Minute)
	}, []string{"ZklockHoldLost", "ZklockWorkedAfterLoss"}},
	"the session expires, and the work goes on for a minute": {func(p *process) {
		h := p.acquire(p.s)
		p.pass(time.Minute)
		p.srv.ExpireSession(p.s.Stats().SessionID)
		p.pass(time.Minute)
		_ = h.Release(context.Background())
		p.pass(2 * time.Minute)
	}, []string{"ZklockHoldLost", "ZklockWorkAfterLoss", "ZklockWorkedAfterLoss"}},
	"the Session is closed, and the work goes on": {func(p *process) {
		h := p.acquire(p.s)
		p.pass(time.Minute)
		require.NoError(p.t, p.s.Close())
		p.pass(45 * time.Second)
		_ = h.Release(context.Background())
	}, []string{"ZklockWorkAfterLoss"}},
	"no server for a minute": {func(p *process) {
		p.pass(time.Minute)
		p.srv.Stop()
		p.pass(time.Minute)
		require.NoError(p.t, p.srv.Start())
		p.pass(2 * time.Minute)
	}, []string{"ZklockNotAttached"}},
	"no server for two minutes, in which the process starts": {func(p *process) {
		p.srv.Stop()
		p.metrics = zklockprom.New()
		p.pass(2 * time.Minute)
		require.NoError(p.t, p.srv.Start())
		p.metrics.Watch(p.connect(p.metrics.Option()))
		p.pass(2 * time.Minute)
	}, []string{"ZklockNoSession"}},
	"connections are cut every minute": {func(p *process) {
		for range 8 {
			p.pass(time.Minute)
			p.srv.DropConnection(p.s.Stats().SessionID)
		}
	}, []string{"ZklockReconnects"}},
	"the servers refuse to delete": {func(p *process) {
		h := p.acquire(p.s)
		p.pass(time.Minute)
		refusal := p.srv.Inject(zktest.Before(zktest.Delete).Fail(zktest.NoAuth))
		require.ErrorIs(p.t, h.Release(context.Background()), zklock.ErrNotConfirmed)
		p.pass(3 * time.Minute)
		refusal.Remove()
	}, []string{"ZklockDeletionsPending"}},
	"the servers refuse to create": {func(p *process) {
		p.pass(time.Minute)
		require.NoError(p.t, p.acquire(p.s).Release(context.Background()))
		p.pass(time.Minute)
		refusal := p.srv.Inject(zktest.Before(zktest.Create).Fail(zktest.NoAuth))
		_, err := p.mutex(p.s).Acquire(context.Background())
		require.True(p.t, zklock.IsFinal(err), err)
		refusal.Remove()
		p.pass(2 * time.Minute)
	}, []string{"ZklockAcquireFails"}},
	"the servers refuse to create, from the first acquire on": {func(p *process) {
		p.pass(time.Minute)
		p.srv.Inject(zktest.Before(zktest.Create).Fail(zktest.NoAuth))
		_, err := p.mutex(p.s).Acquire(context.Background())
		require.True(p.t, zklock.IsFinal(err), err)
		p.pass(2 * time.Minute)
	}, []string{"ZklockAcquireFails"}},
	"a job hangs": {func(p *process) {
		p.acquire(p.s)
		p.pass(70 * time.Minute)
	}, []string{"ZklockHeldTooLong"}},
	"another process hangs with the lock": {func(p *process) {
		p.acquire(p.connect())
		p.queue(1)
		p.pass(40 * time.Minute)
	}, []string{"ZklockWaitTooLong"}},
	"more and more wait": {func(p *process) {
		p.pass(time.Hour)
		p.acquire(p.connect())
		for range 20 {
			p.queue(1)
			p.pass(time.Minute)
		}
	}, []string{"ZklockQueueGrows"}},
	"none: the only candidate resigns for good": {func(p *process) {
		e, err := zklock.NewElection(p.s, "/job")
		require.NoError(p.t, err)
		require.NoError(p.t, e.Campaign(context.Background(), func(context.Context, *zklock.Hold) error { p.pass(time.Minute); return nil }))
		p.pass(3 * time.Minute)
	}, nil},
	"none: a group works on its shards for hours, and a member joins": {func(p *process) {
		p.join(p.s, "a", partition)
		p.pass(70 * time.Minute)
		p.join(p.connect(), "b", partition)
		p.pass(10 * time.Minute)
	}, nil},
	"another client holds a shard that is no member": {func(p *process) {
		m, err := zklock.NewMutex(p.connect(), "/orders/workers/shards/0003")
		require.NoError(p.t, err)
		p.join(p.s, "a", func(ctx context.Context, shard int, h *zklock.Hold) error { // it lets go of one shard for a moment
			if shard == 3 {
				time.Sleep(time.Second)
				return nil
			}
			return partition(ctx, shard, h)
		})
		time.Sleep(1500 * time.Millisecond)
		_, err = m.Acquire(context.Background())
		require.NoError(p.t, err)
		p.pass(10 * time.Minute)
	}, []string{"ZklockShardsUnowned", "ZklockShardsWaiting"}},
	"the servers reject the next owner of a shard whose owner crashes": {func(p *process) {
		p.join(p.s, "a", partition)
		p.crash(func(admin *zk.Conn, shard int) {
			_, err := admin.SetACL(fmt.Sprintf("/orders/workers/shards/%04d", shard), zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
			require.NoError(p.t, err)
		})
		p.pass(7 * time.Minute)
		require.Contains(p.t, p.load(), `reason="rejected"`)
	}, []string{"ZklockAcquireFails", "ZklockShardsRejected", "ZklockShardsUnowned", "ZklockShardsWaiting"}},
	"a member crashes, and the plan cannot be read": {func(p *process) {
		p.join(p.s, "a", partition)
		p.crash(func(admin *zk.Conn, _ int) {
			_, err := admin.Set("/orders/workers/plan", []byte("garbage"), -1)
			require.NoError(p.t, err)
		})
		p.pass(7 * time.Minute)
	}, []string{"ZklockShardsUnowned"}},
	"a function does not return": {func(p *process) {
		letGo := make(chan struct{})
		defer close(letGo)
		p.join(p.s, "a", func(ctx context.Context, shard int, h *zklock.Hold) error {
			<-ctx.Done()
			<-letGo
			return nil
		})
		p.pass(time.Minute)
		p.join(p.connect(), "b", partition)
		p.pass(5 * time.Minute)
	}, []string{"ZklockShardsNotReturning"}},
	"a function fails": {func(p *process) {
		p.join(p.s, "a", func(ctx context.Context, shard int, h *zklock.Hold) error {
			if shard == 3 {
				return errors.New("no")
			}
			return partition(ctx, shard, h)
		})
		p.pass(20 * time.Minute)
	}, []string{"ZklockShardsFailing", "ZklockShardsUnowned"}},
	"two members have one name": {func(p *process) {
		p.join(p.connect(p.metrics.Option()), "a", partition) // the leader is scraped
		p.pass(time.Minute)
		p.join(p.s, "a", partition)
		p.pass(3 * time.Minute)
	}, []string{"ZklockShardsNameTaken"}},
	"something that is no candidate keeps the candidates from leading": {func(p *process) {
		p.acquire(p.connect())
		p.stand()
		p.pass(3 * time.Minute)
	}, []string{"ZklockNoLeader"}},
	"the only candidate gives up": {func(p *process) {
		e, err := zklock.NewElection(p.s, "/job")
		require.NoError(p.t, err)
		require.Error(p.t, e.Run(context.Background(), func(context.Context, *zklock.Hold) error {
			p.pass(time.Minute)
			return zklock.Final(errors.New("the database has an unknown schema"))
		}))
		p.pass(3 * time.Minute)
	}, []string{"ZklockNoLeader"}},
}

func TestVirtual_Faults_FireWhatTheyShould(t *testing.T) {
	for name, fault := range faults {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			var p *process
			synctest.Test(t, func(t *testing.T) {
				n := zktest.NewNetwork()
				p = &process{t: t, net: n, srv: zktest.Start(t, zktest.WithNetwork(n)), metrics: zklockprom.New(), samples: make(map[string][]string)}
				p.s = p.connect(p.metrics.Option())
				p.metrics.Watch(p.s)
				fault.happens(p)
			})
			fired := make(map[string]bool)
			run(t, p.load(), every, time.Duration(p.scrapes)*every, func(_ time.Duration, all []*rules.AlertingRule) {
				for _, r := range all {
					if len(firing(t, all, r.Name())) > 0 {
						fired[r.Name()] = true
					}
				}
			})
			var got []string
			for alert := range fired {
				got = append(got, alert)
			}
			slices.Sort(got)
			require.Equal(t, fault.fire, got)
		})
	}
}

// Each alert is fired by one of the faults, except the alerts on the output of `zklock run`.
func TestFaults_FireEachAlert(t *testing.T) {
	fired := make(map[string]bool)
	for _, fault := range faults {
		for _, alert := range fault.fire {
			fired[alert] = true
		}
	}
	for _, g := range parse(t).Groups {
		for _, r := range g.Rules {
			require.Equal(t, g.Name != "zklock-run", fired[r.Alert], r.Alert)
		}
	}
}
