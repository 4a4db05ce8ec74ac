package zklock_test

// These tests cut the holder off with a minority of the servers: it is notified before the next
// grant (I5).

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// ensembleToCut is three servers with a lock root, one server to cut off, the leader or not, and
// another server.
func ensembleToCut(t *testing.T, leader bool) (n *zktest.Network, ens *zktest.Ensemble, own, other *zktest.Member) {
	n = zktest.NewNetwork()
	n.SetLatency(time.Millisecond)
	ens = zktest.StartEnsemble(t, 3, zktest.WithNetwork(n))
	_, err := ens.Create("/job", nil, 0)
	require.NoError(t, err)
	for _, m := range ens.Members() {
		if (m == ens.Leader()) == leader {
			own = m
		} else {
			other = m
		}
	}
	return n, ens, own, other
}

// cutOffHolder shows the difference between pings and a quorum: the holder's server is cut off from
// the other servers and still responds to pings and reads, while the rest of the ensemble expires
// the session and grants the lock to the next client. It returns the times at which the holder was
// notified and the next client was granted.
func cutOffHolder(t *testing.T, seed uint64, mode zklock.LeaseMode, timeout time.Duration, onLeader bool) (told, granted time.Time) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		n, ens, own, other := ensembleToCut(t, onLeader)
		v := &virtual{t: t, net: n}
		s1 := connect(t, own.Addr(), zklock.WithDialer(n.Dial), zklock.WithLease(mode), zklock.WithSessionTimeout(timeout))
		s2 := connect(t, other.Addr(), zklock.WithDialer(n.Dial), zklock.WithLease(mode), zklock.WithSessionTimeout(timeout))
		h := acquire(t, newMutex(t, s1, "/job"))
		time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
		w := v.queueUp(newMutex(t, s2, "/job"))
		time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
		require.NoError(t, h.Err())

		lost := make(chan struct{})
		go func() {
			defer close(lost)
			<-h.Lost()
			told = time.Now()
		}()
		own.Isolate()
		h2 := w.granted2(t, 10*time.Minute)
		granted = time.Now()
		require.Greater(t, h2.Token(), h.Token())
		ens.Heal()
		<-lost
		release(t, h2)
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	})
	return told, granted
}

// F12, F13, I5, R36, R37: the central case. Lost is notified before the successor's grant, with a
// follower cut off and with a deposed leader.
func TestVirtual_HolderOnTheMinority_IsNotifiedBeforeTheNextGrant(t *testing.T) {
	for _, c := range []struct {
		mode    zklock.LeaseMode
		timeout time.Duration
	}{
		{zklock.QuorumLease(0), 8 * time.Second},
		{zklock.QuorumLease(0), 10 * time.Second},
		{zklock.QuorumLease(0), 30 * time.Second},
	} {
		for _, onLeader := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v/leader=%v", c.mode, c.timeout, onLeader), func(t *testing.T) {
				least := time.Hour
				for seed := range uint64(25) {
					told, granted := cutOffHolder(t, seed, c.mode, c.timeout, onLeader)
					least = min(least, granted.Sub(told))
					require.GreaterOrEqual(t, granted.Sub(told), 100*time.Millisecond, "seed %d: two believe to hold at a time", seed)
				}
				t.Logf("told at least %v before the next grant", least)
			})
		}
	}
}

// The run above can detect a mistake: a holder that waits for the client's Disconnected event, as
// Curator's SUSPENDED does, is notified after the next grant, because its server still responds to
// pings.
func TestVirtual_HolderOnTheMinority_WaitingForDisconnectedIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ens, own, other := ensembleToCut(t, false)

		told := make(chan time.Time, 16)
		naive, events, err := zk.Connect([]string{own.Addr()}, 6*time.Second, zk.WithDialer(n.Dial), zk.WithHostProvider(&oneHost{addr: own.Addr()}), zk.WithLogger(nullLogger{}),
			zk.WithEventCallback(func(ev zk.Event) {
				if ev.State == zk.StateDisconnected {
					told <- time.Now()
				}
			}))
		require.NoError(t, err)
		_, err = naive.CreateProtectedEphemeralSequential("/job/lock-", nil, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		s := connect(t, other.Addr(), zklock.WithDialer(n.Dial))
		w := (&virtual{t: t, net: n}).queueUp(newMutex(t, s, "/job"))
		time.Sleep(20 * time.Second)
		own.Isolate()
		h := w.granted2(t, 10*time.Minute)
		granted := time.Now()
		require.Empty(t, told, "the naive holder still believes")
		require.Greater(t, (<-told).Sub(granted), time.Second)
		ens.Heal()
		release(t, h)
		naive.Close()
		for range events {
		}
	})
}

// oneHost passes the name of an in-memory server to the dialer, because no resolver has it.
type oneHost struct {
	addr  string
	tries int
}

func (h *oneHost) Init([]string) error { return nil }

func (h *oneHost) Len() int { return 1 }

func (h *oneHost) Next() (string, bool) { h.tries++; return h.addr, h.tries > 1 }

func (h *oneHost) Connected() { h.tries = 0 }
