package zklock_test

// These tests freeze servers that go on accepting connections, and servers that share one address or one name: the Session finds a
// server that responds in time, and keeps its holds.

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/zktest"
)

// frozen is an ensemble whose servers can stop responding while their machines still accept connections.
type frozen struct {
	t    *testing.T
	net  *zktest.Network
	ens  *zktest.Ensemble
	mute net.Listener // accepts for all frozen servers, and never responds

	mu     sync.Mutex
	frozen map[string]bool
	dialed string // the last server to which a connection was made
}

func inTheFrost(t *testing.T, n int, run func(t *testing.T, f *frozen)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{t: t, net: zktest.NewNetwork(), frozen: map[string]bool{}}
		f.net.SetLatency(time.Millisecond)
		f.ens = zktest.StartEnsemble(t, n, zktest.WithNetwork(f.net), zktest.WithTick(2*time.Second), zktest.WithSessionTimeouts(4*time.Second, time.Minute))
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

// R109, F41: one address is a load balancer's, of all servers. One heartbeat after a server has stopped responding, the balancer sends
// new connections to the others. The Session leaves the server in time, although it has no other address, and loses no hold.
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
				time.Sleep(time.Minute + time.Duration(phase)*timeout/10/phases*3) // virtual, as all here
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
