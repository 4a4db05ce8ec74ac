package zklock_test

// These tests cut the network between a client and its servers in one direction: requests arrive,
// and responses do not, or late. Such a client blocks no other for longer than it takes to detect
// the cut (F51).

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/zktest"
)

// oneWayCut is the fault of a client's network.
type oneWayCut struct {
	name string
	do   func(w *oneway.Way, timeout time.Duration)
}

var oneWayCuts = []oneWayCut{
	{"answers lost", func(w *oneway.Way, _ time.Duration) { w.LoseAnswers() }},
	// Later than a handshake may take, T/3, and earlier than the session expires: no server can be
	// attached to any more.
	{"answers late", func(w *oneway.Way, timeout time.Duration) { w.DelayAnswers(timeout * 5 / 12); w.Cut() }},
	{"requests lost", func(w *oneway.Way, _ time.Duration) { w.LoseRequests() }},
	{"both lost", func(w *oneway.Way, _ time.Duration) { w.LoseAnswers(); w.LoseRequests() }},
}

// oneWayWorld has one client whose network can be cut, and two other clients.
type oneWayWorld struct {
	t             *testing.T
	way           *oneway.Way
	cut           oneWayCut
	timeout       time.Duration
	first         *zklock.Session
	second, third *zklock.Session
}

// inOneWayWorlds runs f in each combination of session timeout, number of servers and cut.
func inOneWayWorlds(t *testing.T, f func(w *oneWayWorld)) {
	for _, timeout := range []time.Duration{6 * time.Second, 10 * time.Second, 30 * time.Second} {
		for _, servers := range []int{1, 3} {
			for _, cut := range oneWayCuts {
				t.Run(fmt.Sprintf("%v, %d servers, %s", timeout, servers, cut.name), func(t *testing.T) {
					inOneWayWorld(t, timeout, servers, cut, f)
				})
			}
		}
	}
}

func inOneWayWorld(t *testing.T, timeout time.Duration, servers int, cut oneWayCut, f func(w *oneWayWorld)) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		n.SetLatency(time.Millisecond)
		ens := zktest.StartEnsemble(t, servers, zktest.WithNetwork(n), zktest.WithConfig("maxSessionTimeout=60000"))
		_, err := ens.Create("/job", nil, 0)
		require.NoError(t, err)
		lease := zklock.QuorumLease(0)
		if timeout < 7500*time.Millisecond { // it has no room there
			lease = zklock.SingleServerLease()
		}
		connect := func(dial zk.Dialer) *zklock.Session {
			return connect(t, strings.Join(ens.Addrs(), ","), zklock.WithDialer(dial), zklock.WithSessionTimeout(timeout), zklock.WithLease(lease))
		}
		w := &oneWayWorld{t: t, way: oneway.New(n.Dial), cut: cut, timeout: timeout}
		w.first, w.second, w.third = connect(w.way.Dial), connect(n.Dial), connect(n.Dial)
		f(w)
	})
}

// goes cuts the network, and returns the time.
func (w *oneWayWorld) goes() time.Time {
	time.Sleep(time.Minute + 700*time.Millisecond)
	synctest.Wait()
	w.cut.do(w.way, w.timeout)
	return time.Now()
}

// R90, F51, I5: the network of a leader is cut in one direction or in both. It is notified, and the
// next one leads.
func TestVirtual_OneWay_LeaderCutOff_NextLeads(t *testing.T) {
	inOneWayWorlds(t, func(w *oneWayWorld) {
		t := w.t
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		told, next := make(chan time.Time, 1), make(chan time.Time, 1)
		stand := func(s *zklock.Session, lead func(ctx context.Context)) {
			e, err := zklock.NewElection(s, "/job")
			require.NoError(t, err)
			all.Go(func() {
				_ = e.Campaign(ctx, func(ctx context.Context, _ *zklock.Hold) error { lead(ctx); return nil })
			})
			synctest.Wait()
			time.Sleep(time.Second)
		}
		stand(w.first, func(ctx context.Context) {
			<-ctx.Done()
			select {
			case told <- time.Now():
			default:
			}
		})
		stand(w.second, func(ctx context.Context) { next <- time.Now(); <-ctx.Done() })
		cut := w.goes()
		bound := w.timeout + 2*time.Second + 2*time.Second // T, a pause of the client's and its dial, or a tick
		select {
		case at := <-next:
			heard := <-told
			t.Logf("notified after %v, the next leads after %v", heard.Sub(cut).Round(time.Millisecond), at.Sub(cut).Round(time.Millisecond))
			require.Less(t, heard, at, "I5")
			require.LessOrEqual(t, at.Sub(cut), bound)
		case <-time.After(30 * time.Minute):
			t.Errorf("nobody leads within 30 minutes")
		}
		w.way.Heal()
	})
}

// F51: the same for a client that waits. The holder releases right after the cut, and the client
// behind the waiter that receives nothing is granted.
func TestVirtual_OneWay_WaiterCutOff_NextIsGranted(t *testing.T) {
	inOneWayWorlds(t, func(w *oneWayWorld) {
		t := w.t
		ahead := acquire(t, newMutex(t, w.second, "/job"))
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() {
			if h, err := newMutex(t, w.first, "/job").Acquire(ctx); err == nil {
				_ = h.Release(ctx)
			}
		})
		synctest.Wait()
		time.Sleep(time.Second)
		next := make(chan time.Time, 1)
		all.Go(func() {
			if h, err := newMutex(t, w.third, "/job").Acquire(ctx); err == nil {
				next <- time.Now()
				_ = h.Release(ctx)
			}
		})
		cut := w.goes()
		time.Sleep(10 * time.Millisecond)
		release(t, ahead)
		select {
		case at := <-next:
			t.Logf("the one behind is granted after %v", at.Sub(cut).Round(time.Millisecond))
			require.LessOrEqual(t, at.Sub(cut), w.timeout+w.timeout/6+4*time.Second)
		case <-time.After(30 * time.Minute):
			t.Errorf("nobody is granted within 30 minutes")
		}
		w.way.Heal()
	})
}

// F51, I4: a Session that receives nothing is closed, at any time after the cut: while it is
// attached, while its client reconnects, and when it has given its ZooKeeper session up. The end of
// that session is still sent, and Close returns in time.
func TestVirtual_OneWay_Close_EndsTheSession(t *testing.T) {
	const timeout = 9 * time.Second
	for _, servers := range []int{1, 3} {
		for after := 100 * time.Millisecond; after < 2*timeout; after += time.Duration(oneIn(3)) * 380 * time.Millisecond {
			inOneWayWorld(t, timeout, servers, oneWayCuts[0], func(w *oneWayWorld) {
				h := acquire(t, newMutex(t, w.first, "/job"))
				next := make(chan time.Time, 1)
				var all sync.WaitGroup
				defer all.Wait()
				all.Go(func() {
					if h, err := newMutex(t, w.second, "/job").Acquire(context.Background()); err == nil {
						next <- time.Now()
						_ = h.Release(context.Background())
					}
				})
				w.goes()
				time.Sleep(after)
				closes := time.Now()
				require.NoError(t, w.first.Close())
				require.LessOrEqual(t, time.Since(closes), 4*time.Second, "%v after the cut", after)
				require.Error(t, h.Err())
				at := <-next
				require.LessOrEqual(t, at.Sub(closes), 100*time.Millisecond, "%v after the cut, %d servers", after, servers)
			})
		}
	}
}

// F51 on a real server: how long until the next client is granted, behind a leader and behind a
// waiter that receive nothing, or late.
func TestReal_OneWay_NextIsGranted(t *testing.T) {
	if !onReal {
		t.Skip("ZKLOCK_TEST_REAL=1 runs this on a real ZooKeeper")
	}
	const timeout = 6 * time.Second
	for _, cut := range oneWayCuts[:2] {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, waits %v", cut.name, waits), func(t *testing.T) {
				t.Parallel()
				srv := target(t)
				path := lockPath(t, srv)
				opts := []zklock.Option{zklock.WithSessionTimeout(timeout), zklock.WithLease(zklock.SingleServerLease())}
				way := oneway.New(net.DialTimeout)
				deaf := newMutex(t, connect(t, srv, append(opts, zklock.WithDialer(way.Dial))...), path)
				ahead, a := newMutex(t, connect(t, srv, opts...), path), admin(t, srv)
				release := func() {}
				if waits {
					h := acquire(t, ahead)
					queueUp(t, a, deaf, path)
					release = func() { _ = h.Release(context.Background()) }
				} else {
					acquire(t, deaf)
				}
				next := queueUp(t, a, newMutex(t, connect(t, srv, opts...), path), path)
				time.Sleep(timeout) // so that nothing is of the beginning
				cut.do(way, timeout)
				since := time.Now()
				release()
				h, err := next.get(t)
				require.NoError(t, err)
				t.Logf("%v, waits %v: the next was granted after %v; requests arrived %d times", cut.name, waits, time.Since(since).Round(10*time.Millisecond), way.Arrived())
				require.Less(t, time.Since(since), 2*timeout+soon)
				_ = h.Release(context.Background())
				way.Heal()
			})
		}
	}
}

// I6: a Session without a server is closed. One server is mute, the other servers are unresponsive,
// so no dial returns by itself: each has a time limit.
func TestVirtual_Close_DarkServers_Returns(t *testing.T) {
	for _, latency := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond} {
		for mute := range 3 {
			synctest.Test(t, func(t *testing.T) {
				n := zktest.NewNetwork()
				n.SetLatency(latency)
				ens := zktest.StartEnsemble(t, 3, zktest.WithNetwork(n), zktest.WithConfig("maxSessionTimeout=60000"))
				dial := func(network, addr string, d time.Duration) (net.Conn, error) {
					if d <= 0 {
						t.Errorf("a dial has %v", d)
					}
					return n.Dial(network, addr, d)
				}
				s := connect(t, strings.Join(ens.Addrs(), ","), zklock.WithDialer(dial), zklock.WithSessionTimeout(30*time.Second))
				for i, m := range ens.Members() {
					m.Isolate()
					if i != mute {
						n.Partition(m.Addr())
					}
				}
				ens.Freeze()
				ens.Inject(zktest.Before(zktest.Connect).Hold().Optional())
				time.Sleep(40 * time.Second)
				require.Empty(t, s.Stats().Server)
				start := time.Now()
				require.NoError(t, s.Close())
				require.LessOrEqual(t, time.Since(start), 4*time.Second+2*latency)
				ens.Thaw()
				for _, m := range ens.Members() {
					n.Heal(m.Addr())
				}
			})
		}
	}
}
