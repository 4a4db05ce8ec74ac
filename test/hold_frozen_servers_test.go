package zklock_test

// These tests freeze servers whose machines still accept connections, and servers that share one
// address or one name: the Session finds a server that responds in time, and keeps its holds.

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/internal/testca"
	"github.com/zklock/zklock/zktest"
)

// frozen is an ensemble whose servers can stop responding while their machines still accept
// connections.
type frozen struct {
	t    *testing.T
	net  *zktest.Network
	ens  *zktest.Ensemble
	mute net.Listener // accepts for all frozen servers, and never responds

	mu     sync.Mutex
	frozen map[string]bool
	dialed string // the last server to which a connection was made
	named  string // the address that the name server gives first
}

func inTheFrost(t *testing.T, n int, run func(t *testing.T, f *frozen)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{t: t, net: zktest.NewNetwork(), frozen: map[string]bool{}}
		f.net.SetLatency(time.Millisecond)
		f.ens = zktest.StartEnsemble(t, n, zktest.WithNetwork(f.net), zktest.WithConfig("maxSessionTimeout=60000"))
		_, err := f.ens.Create("/job", nil, 0)
		require.NoError(t, err)
		f.mute, err = f.net.Listen("192.0.2.250:2181")
		require.NoError(t, err)
		defer f.mute.Close()
		run(t, f)
	})
}

// dial connects to the server, or to a machine that only accepts.
func (f *frozen) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	f.mu.Lock()
	f.dialed = addr
	if f.frozen[addr] {
		addr = f.mute.Addr().String()
	}
	f.mu.Unlock()
	return f.net.Dial(network, addr, timeout)
}

// freeze stops a server. Its connections stay open, and new ones are accepted.
func (f *frozen) freeze(addr string) {
	f.mu.Lock()
	f.frozen[addr] = true
	f.mu.Unlock()
	f.net.Partition(addr)
	for _, m := range f.ens.Members() {
		if m.Addr() == addr {
			m.Isolate()
		}
	}
}

func (f *frozen) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dialed
}

// R109, F41: one address is a load balancer's, of all servers. One heartbeat after a server has
// stopped responding, the balancer sends new connections to other servers. The Session leaves the
// server in time, although it has no other address, and loses no hold.
func TestVirtual_OneAddressForAllServers_OneStops_NoHoldIsLost(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 15 * time.Second, 30 * time.Second} {
		lost := 0
		const phases = 24
		for phase := range phases {
			inTheFrost(t, 3, func(t *testing.T, f *frozen) {
				var healthy []string
				for _, m := range f.ens.Members() {
					if m != f.ens.Leader() {
						healthy = append(healthy, m.Addr())
					}
				}
				var mu sync.Mutex
				balance := func(network, _ string, timeout time.Duration) (net.Conn, error) {
					mu.Lock()
					to := healthy[0]
					mu.Unlock()
					return f.dial(network, to, timeout)
				}
				s := hooked(t, hook.Session{}, "192.0.2.200:2181", zklock.WithDialer(balance), zklock.WithSessionTimeout(timeout))
				h := acquire(t, newMutex(t, s, "/job"))
				time.Sleep(time.Minute + time.Duration(phase)*timeout/10/phases*3) // virtual
				f.freeze(healthy[0])
				time.Sleep(timeout / 10)
				mu.Lock()
				healthy = healthy[1:]
				mu.Unlock()
				time.Sleep(2 * timeout)
				if h.Err() != nil {
					lost++
					return
				}
				release(t, h)
			})
		}
		t.Logf("T = %v: %d of %d holds lost", timeout, lost, phases)
		require.Zero(t, lost, "R109: T = %v", timeout)
	}
}

// R110, F17, F41: of five servers, two freeze that still accept connections: the one that the
// Session is attached to, and the one that it tries next. The second costs as little time as one
// that drops packets.
func TestVirtual_TwoServersFreeze_NoHoldIsLost(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 15 * time.Second, 30 * time.Second} {
		lost := 0
		const phases = 40
		for phase := range phases {
			inTheFrost(t, 5, func(t *testing.T, f *frozen) {
				var second sync.Once
				var frost atomic.Bool
				leader := f.ens.Leader().Addr()
				dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
					if addr == leader { // as with leaderServes=no
						return nil, syscall.ECONNREFUSED
					}
					if frost.Load() {
						second.Do(func() { f.freeze(addr) })
					}
					return f.dial(network, addr, timeout)
				}
				s := hooked(t, hook.Session{}, strings.Join(f.ens.Addrs(), ","), zklock.WithDialer(dial), zklock.WithSessionTimeout(timeout))
				h := acquire(t, newMutex(t, s, "/job"))
				time.Sleep(time.Minute + time.Duration(phase)*timeout/10/phases*3) // virtual
				f.freeze(f.last())
				frost.Store(true)
				time.Sleep(3 * timeout)
				f.mu.Lock()
				require.Len(t, f.frozen, 2)
				f.mu.Unlock()
				if h.Err() != nil {
					lost++
					return
				}
				release(t, h)
			})
		}
		t.Logf("T = %v: %d of %d holds lost", timeout, lost, phases)
		require.Zero(t, lost, "R110: T = %v", timeout)
	}
}

// R110, F17: one name has the addresses of five servers, as a headless Service has. The first
// server is frozen and accepts connections, and the server of a holder restarts. The Session tries
// each address once, so it is attached again after one heartbeat.
func TestVirtual_NameOfFiveServers_FirstIsFrozen_HoldRemains(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, 30 * time.Second} {
		inTheFrost(t, 5, func(t *testing.T, f *frozen) {
			s := f.ofOneName(timeout, f.ens.Addrs())
			h := acquire(t, newMutex(t, s, "/job"))
			own := f.last()
			time.Sleep(time.Minute) // virtual, as all here
			for _, addr := range f.ens.Addrs() {
				if addr != own && addr != f.ens.Leader().Addr() {
					f.freeze(addr)
					f.first(addr)
					break
				}
			}
			began := time.Now()
			f.ens.DropConnection(s.Stats().SessionID)
			synctest.Wait()
			for s.Stats().Server == "" && h.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("T = %v: attached again after %v", timeout, time.Since(began))
			require.NoError(t, h.Err())
			require.Less(t, time.Since(began), timeout/10+time.Second/2, "R110: T = %v", timeout)
		})
	}
}

// ofOneName connects to one name for several servers.
func (f *frozen) ofOneName(timeout time.Duration, addrs []string, opts ...zklock.Option) *zklock.Session {
	f.t.Helper()
	f.first("")
	hooks := hook.Session{
		Lookup: func(context.Context, string) (hosts []string, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, addr := range addrs {
				host, _, err := net.SplitHostPort(addr)
				if err != nil {
					return nil, err
				}
				if addr == f.named {
					hosts = slices.Insert(hosts, 0, host)
				} else {
					hosts = append(hosts, host)
				}
			}
			return hosts, nil
		},
		Connect: untilDeadline(f.dial),
	}
	return hooked(f.t, hooks, "zk.test:2181", append([]zklock.Option{zklock.WithSessionTimeout(timeout)}, opts...)...)
}

// first has the name server give an address first.
func (f *frozen) first(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.named = addr
}

// R110: a handshake that takes longer than one heartbeat interval, because of the network or of the
// server, gets more time in the next lap. So the Session connects, and is attached again in the
// same session.
func TestVirtual_SlowHandshake_IsGivenMoreTime(t *testing.T) {
	const timeout = 20 * time.Second // the first lap gives TLS 2 s, and then the handshake 2 s
	slow := func(v *virtual, connect func() *zklock.Session) {
		began := time.Now()
		s := connect()
		v.t.Logf("connected after %v", time.Since(began))
		require.Greater(v.t, time.Since(began), 5*time.Second, "more than one lap, or this shows nothing")
		id := s.Stats().SessionID
		time.Sleep(time.Minute)
		v.srv.DropConnection(id)
		time.Sleep(15 * time.Second)
		require.Equal(v.t, zklock.StateReconnected, s.Stats().State)
		require.Equal(v.t, id, s.Stats().SessionID)
		release(v.t, acquire(v.t, newMutex(v.t, s, "/job")))
	}
	t.Run("server", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.srv.Inject(zktest.After(zktest.Connect).Delay(3 * time.Second))
			slow(v, func() *zklock.Session { return v.connect(zklock.WithSessionTimeout(timeout)) })
		})
	})
	t.Run("SASL", func(t *testing.T) {
		inSASLTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(600 * time.Millisecond)
			slow(v, func() *zklock.Session { return v.connect(withSASL(), zklock.WithSessionTimeout(timeout)) })
		})
	})
	overBoth(t, func(t *testing.T, v *virtual, front *tlsFront, a *testca.Authority, n certs.Names) {
		front.shows(a, "zk.test", time.Hour, a)
		writeTo(t, n, a, a, time.Hour)
		v.net.SetLatency(600 * time.Millisecond)
		slow(v, func() *zklock.Session { return v.connectTLS(front, n, zklock.WithSessionTimeout(timeout)) })
	})
}
