//go:build linux

package cutup_test

// scene: a real ensemble, each server on its own host, with clients on two other hosts, and the
// record of the events.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/cutup"
	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/tracecheck"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
)

const (
	tick      = 2 * time.Second
	syncLimit = 5

	soon = 30 * time.Second // bounds what should happen at once; costs nothing when all is well
	late = 2 * time.Minute  // the limit for elections and expiries

	// By how much a holder must be notified before the servers grant the lock to the next. If the
	// servers keep the session, the holder's own Session ends it, after the notification.
	margin = 100 * time.Millisecond
)

// scene is the setup of one test.
type scene struct {
	t   *testing.T
	net *cutup.Network
	ens *zkserver.Cluster

	clients [2]*cutup.Host
	admin   *zk.Conn
	line    timeline
}

// newScene starts the ensemble; lines are further lines of the zoo.cfg of the first, second and
// third server.
func newScene(t *testing.T, lines ...[]string) *scene {
	t.Helper()
	asked(t)
	t.Parallel() // two of these wait most of the time, even on two cores
	n := network(t, "zk1", "zk2", "zk3", "client1", "client2")
	var hosts []zkserver.Host
	for i, name := range []string{"zk1", "zk2", "zk3"} {
		h := n.Host(name)
		host := zkserver.Host{IP: h.IP(), Command: h.Front(), Dial: h.Dial}
		if i < len(lines) {
			host.Lines = lines[i]
		}
		hosts = append(hosts, host)
	}
	s := &scene{t: t, net: n, clients: [2]*cutup.Host{n.Host("client1"), n.Host("client2")}}
	s.ens = zkserver.Ensemble(t, 3, zkserver.On(hosts...), zkserver.TickTime(tick), zkserver.SyncLimit(syncLimit),
		// A server that is not back yet is no failure of the lock's, which needs only a majority.
		func(c *zkserver.Config) { c.StartTimeout = late },
		// A server that was cut off looks for the leader at intervals, by default of up to a
		// minute. The property changes how soon it is back, not how that works.
		zkserver.Property("zookeeper.fastleader.maxNotificationInterval", "1000"))
	conn, events, err := zk.Connect(s.ens.Addrs(), 30*time.Second, zk.WithLogger(silent{}), zk.WithDialer(zkserver.Impatient(s.clients[1].Dial)))
	require.NoError(t, err)
	s.admin = conn
	t.Cleanup(func() {
		conn.Close()
		for range events { // until the client has ended
		}
	})
	return s
}

// quiet drops the log of what a test provokes.
var quiet = slog.New(slog.DiscardHandler)

type silent struct{}

func (silent) Printf(string, ...any) {}

// host is the host that a server runs on.
func (s *scene) host(srv *zkserver.Server) *cutup.Host {
	return s.net.Host(fmt.Sprintf("zk%d", srv.ID()))
}

// others returns all servers but this one.
func (s *scene) others(srv *zkserver.Server) (servers []*zkserver.Server) {
	for _, o := range s.ens.Servers() {
		if o != srv {
			servers = append(servers, o)
		}
	}
	return servers
}

// roles returns the present leader and followers.
func (s *scene) roles() (leader *zkserver.Server, followers []*zkserver.Server) {
	s.t.Helper()
	leader, err := s.ens.Leader()
	require.NoError(s.t, err)
	return leader, s.others(leader)
}

// isolate cuts a server off from the other servers. Clients still reach it.
func (s *scene) isolate(srv *zkserver.Server) {
	s.t.Helper()
	var hosts []*cutup.Host
	for _, o := range s.others(srv) {
		hosts = append(hosts, s.host(o))
	}
	require.NoError(s.t, s.net.Cut(s.host(srv), hosts...))
}

// whole heals the network and returns when all servers that run serve again.
func (s *scene) whole() {
	s.t.Helper()
	require.NoError(s.t, s.net.Heal())
	require.NoError(s.t, s.ens.Ready())
	_, err := s.ens.Leader()
	require.NoError(s.t, err)
}

func addrs(servers ...*zkserver.Server) string {
	var list []string
	for _, s := range servers {
		list = append(list, s.Addr())
	}
	return strings.Join(list, ",")
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// firstTo dials the one server first, and afterwards the requested one.
func firstTo(from *cutup.Host, first *zkserver.Server) zklock.Option {
	var dialled atomic.Bool
	return zklock.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		if dialled.CompareAndSwap(false, true) {
			addr = first.Addr()
		}
		return from.Dial(network, addr, timeout)
	})
}

// connect opens a Session from a host that is closed with the test.
func (s *scene) connect(from *cutup.Host, servers string, timeout time.Duration, opts ...zklock.Option) *zklock.Session {
	s.t.Helper()
	level := slog.LevelError
	if testing.Verbose() {
		level = slog.LevelWarn
	}
	opts = append([]zklock.Option{zklock.WithSessionTimeout(timeout), zklock.WithDialer(from.Dial),
		zklock.WithLogger(slog.New(slog.NewTextHandler(testWriter{s.t}, &slog.HandlerOptions{Level: level})))}, opts...)
	check := tracecheck.New()
	s.t.Cleanup(func() { require.NoError(s.t, check.Ended(soon), "what it traced") })
	session, err := zklock.Connect(within(s.t, soon), servers, append(opts, check.Option())...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, session.Close()) })
	return session
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// lane is one lock with a holder and a waiter. Its times are zero until the event.
type lane struct {
	s       *scene
	name    string
	path    string
	timeout time.Duration
	own     *zklock.Session // the holder's
	next    *zklock.Session // the waiter's
	hold    *zklock.Hold

	told    chan time.Time // the holder was notified of its end
	granted chan grant
}

type grant struct {
	hold *zklock.Hold
	at   time.Time
	err  error
}

// open has one session acquire a lock and another queue up behind it.
func (s *scene) open(name string, own, next *zklock.Session) *lane {
	s.t.Helper()
	l := &lane{s: s, name: name, path: "/" + strings.ReplaceAll(name, " ", "-"), timeout: own.Stats().SessionTimeout, own: own, next: next,
		told: make(chan time.Time, 1), granted: make(chan grant, 1)}
	m, err := zklock.NewMutex(own, l.path)
	require.NoError(s.t, err)
	l.hold, err = m.Acquire(within(s.t, soon))
	require.NoError(s.t, err)
	l.watch()
	l.queue()
	return l
}

// watch records when the holder is notified.
func (l *lane) watch() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-l.hold.Lost():
			l.told <- time.Now()
		case <-l.hold.Context().Done(): // also at its release
			if at := time.Now(); errors.Is(context.Cause(l.hold.Context()), zklock.ErrLost) {
				l.told <- at
			}
		}
	}()
	l.s.t.Cleanup(func() { l.own.Close(); <-done })
}

// queue starts the waiter, and returns when it waits.
func (l *lane) queue() {
	t := l.s.t
	t.Helper()
	m, err := zklock.NewMutex(l.next, l.path)
	require.NoError(t, err)
	ctx := within(t, 10*time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h, err := m.Acquire(ctx)
		l.granted <- grant{h, time.Now(), err}
	}()
	t.Cleanup(func() { l.next.Close(); <-done })
	require.Eventually(t, func() bool {
		ps, err := m.Participants(within(t, soon))
		return err == nil && len(ps) == 2
	}, soon, 20*time.Millisecond, "nobody queued up for %s", l.path)
}

// sureToHold fails the test if the hold has ended, because the fault must end it.
func (l *lane) sureToHold() {
	l.s.t.Helper()
	require.NoError(l.s.t, l.hold.Err(), "%s: lost before anything happened; the room is %v", l.name, zklock.QuorumLease(0).Margin(l.timeout))
}

// awaitTold returns when the holder has been notified.
func (l *lane) awaitTold() time.Time {
	l.s.t.Helper()
	select {
	case at := <-l.told:
		return at
	case <-time.After(late):
		require.FailNow(l.s.t, "the holder was never told", l.name)
		panic("unreachable")
	}
}

// awaitGrant returns when the next one has the lock.
func (l *lane) awaitGrant() grant {
	l.s.t.Helper()
	select {
	case g := <-l.granted:
		require.NoError(l.s.t, g.err, l.name)
		require.Greater(l.s.t, g.hold.Token(), l.hold.Token(), "I1: %s", l.name)
		return g
	case <-time.After(late):
		require.FailNow(l.s.t, "the next one never got the lock", l.name)
		panic("unreachable")
	}
}

// handedOver is a lane whose lock was granted to the next while the holder was cut off.
type handedOver struct {
	told, granted time.Time
}

// say formats the times, counted from the cut.
func (h handedOver) say(name string, cut time.Time) string {
	gap, side := h.granted.Sub(h.told), "before"
	if gap < 0 {
		gap, side = -gap, "AFTER"
	}
	return fmt.Sprintf("%-12s told %6.3f s after the cut, next grant %6.3f s: told %.3f s %s it",
		name, h.told.Sub(cut).Seconds(), h.granted.Sub(cut).Seconds(), gap.Seconds(), side)
}

// lostInTime waits until the holder has lost the lock and the next one has it, and requires this
// order and this distance (I5).
func (l *lane) lostInTime(apart time.Duration) handedOver {
	t := l.s.t
	t.Helper()
	told := l.awaitTold()
	g := l.awaitGrant()
	require.GreaterOrEqual(t, g.at.Sub(told), apart, "I5: %s: told at %v, and the next one had it at %v", l.name, told, g.at)
	require.ErrorIs(t, l.hold.Err(), zklock.ErrLost)
	require.NoError(t, g.hold.Release(within(t, late)))
	require.ErrorIs(t, l.hold.Release(within(t, late)), zklock.ErrLost)
	l.s.line.add(told, l.name, "the holder is told: lost")
	l.s.line.add(g.at, l.name, "the next one has the lock")
	return handedOver{told, g.at}
}

// kept requires that the hold outlasted everything, and releases the lock to the waiter.
func (l *lane) kept() {
	t := l.s.t
	t.Helper()
	require.NoError(t, l.hold.Err(), "%s: the hold should have outlived it", l.name)
	require.Empty(t, l.granted, "I1: %s", l.name)
	ended := time.Now()
	require.NoError(t, l.hold.Release(within(t, late)))
	g := l.awaitGrant()
	require.True(t, g.at.After(ended))
	require.NoError(t, g.hold.Release(within(t, late)))
	l.s.line.add(ended, l.name, "the holder releases")
	l.s.line.add(g.at, l.name, "the next one has the lock")
}

// renewed waits until the hold rests on a later proof than the moment, or has ended, and reports
// which.
func (l *lane) renewed(since time.Time) bool {
	l.s.t.Helper()
	require.Eventually(l.s.t, func() bool {
		return l.hold.Err() != nil || l.hold.Deadline().After(since.Add(l.own.Stats().SessionTimeout))
	}, late, 10*time.Millisecond, "%s: neither renewed nor lost", l.name)
	return l.hold.Err() == nil
}

// empty requires that no node is left in the lane's lock (I4).
func (l *lane) empty() {
	l.s.t.Helper()
	var left []string
	require.Eventually(l.s.t, func() (ok bool) {
		var err error
		left, _, err = l.s.admin.Children(l.path)
		return (err == nil || err == zk.ErrNoNode) && len(left) == 0
	}, late, 100*time.Millisecond, "I4: left in %s", l.path)
	require.Empty(l.s.t, left)
}

// probe is a session of another client on the server that is to be cut off. It pings the server all
// the time and records the last response.
type probe struct {
	done chan struct{}
	last time.Time // once done is closed
}

func (s *scene) probe(from *cutup.Host, srv *zkserver.Server) *probe {
	s.t.Helper()
	nc, err := from.Dial("tcp", srv.Addr(), soon)
	require.NoError(s.t, err)
	c := rawzk.Wrap(nc)
	require.NoError(s.t, c.Connect(wire.ConnectRequest{Timeout: 40_000, Password: make([]byte, 16)}))
	p := &probe{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer nc.Close()
		for {
			if _, _, err := c.Call(wire.OpPing, nil); err != nil {
				return
			}
			p.last = time.Now()
			time.Sleep(20 * time.Millisecond)
		}
	}()
	s.t.Cleanup(func() { nc.Close(); <-p.done })
	return p
}

// silence returns the time of the server's last response.
func (p *probe) silence(t *testing.T) time.Time {
	t.Helper()
	select {
	case <-p.done:
		return p.last
	case <-time.After(late):
		require.FailNow(t, "the server goes on answering")
		panic("unreachable")
	}
}

// timeline is the events, to be printed relative to the cut.
type timeline struct {
	mu     sync.Mutex
	zero   time.Time
	events []event
}

type event struct {
	at   time.Time
	lane string
	what string
}

// start sets the zero of the timeline.
func (l *timeline) start(what string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.zero = time.Now()
	l.events = append(l.events, event{l.zero, "", what})
	return l.zero
}

func (l *timeline) add(at time.Time, lane, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{at, lane, what})
}

// print logs the events in their order, and those of each lane one below the other.
func (l *timeline) print(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	sort.SliceStable(l.events, func(i, j int) bool { return l.events[i].at.Before(l.events[j].at) })
	var b strings.Builder
	for _, e := range l.events {
		fmt.Fprintf(&b, "%+9.3f s  %-14s %s\n", e.at.Sub(l.zero).Seconds(), e.lane, e.what)
	}
	t.Logf("timeline\n%s", b.String())
}
