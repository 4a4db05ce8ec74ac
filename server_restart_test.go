package zklock_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R51: a step of the state can be seen before anybody is told of it.
func TestVirtual_Changes_StateIsVisibleFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond) // or the next step is there at the same instant
		s := v.connect()
		changes := s.Changes(within(t, time.Hour))
		step := func(want zklock.State) {
			t.Helper()
			c := <-changes
			require.Equal(t, want, c.State)
			require.Equal(t, want, s.State(), "no time has passed since")
		}
		for range 5 {
			time.Sleep(5 * time.Second)
			v.srv.DropConnection(s.SessionID())
			step(zklock.Suspended)
			step(zklock.Reconnected)
		}
	})
}

// R10: an acquire that gives up says why, although deleting its node is refused on top of that.
func TestVirtual_CleanUpFails_FirstErrorIsReturned(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		refuses := v.srv.Inject(zktest.Before(zktest.Delete).Session(s.SessionID()).Fail(zktest.NoAuth))
		_, err := newMutex(t, s, "/job").Acquire(within(t, 10*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, zk.ErrNoAuth)
		_, err = newMutex(t, s, "/job").TryAcquire(within(t, 10*time.Second))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		refuses.Remove()
		time.Sleep(6 * time.Second)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, h)
	})
}

// restartOlder replaces the server by one from an older snapshot: with smaller zxids, and without the sessions.
func (v *virtual) restartOlder(t *testing.T) {
	before := v.srv
	before.Close()
	time.Sleep(time.Second) // servers make session ids of the time
	v.srv = zktest.Start(t, zktest.WithNetwork(v.net), zktest.WithAddr(before.Addr()), zktest.WithTick(2*time.Second))
	_, err := v.srv.Create("/job", nil, 0)
	require.NoError(t, err)
	require.Less(t, v.srv.Zxid(), before.Zxid())
}

// F23: the server comes back from an older snapshot. It refuses whoever has seen more than it has, so the hold cannot be
// renewed: it ends at its deadline. Then a new ZooKeeper session is made there, and locks.
func TestVirtual_ServerRestartsOlder_LostAtTheDeadline(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithSessionTimeout(20 * time.Second))
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		old, deadline := s.SessionID(), h.Deadline()
		v.restartOlder(t)
		time.Sleep(time.Until(deadline) - time.Second)
		require.NoError(t, h.Err())
		require.Empty(t, v.srv.Sessions(), "whoever has seen more is refused, or this shows nothing")
		<-h.Lost()
		require.WithinDuration(t, deadline, time.Now(), 2*time.Millisecond)
		require.ErrorIs(t, h.Err(), zklock.ErrLost)
		next := acquire(t, m)
		require.NotEqual(t, old, s.SessionID())
		require.Less(t, next.Token(), h.Token(), "tokens begin again, as documented")
		release(t, next)
	}, zktest.WithZxid(1000))
}

// F23, I6: the same for a Session that holds nothing: nothing ends its ZooKeeper session here, and the server answers
// nobody who has seen more. The client asks after it when it should be over, and who waits queues again.
func TestVirtual_ServerRestartsOlder_WaiterQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithSessionTimeout(20 * time.Second))
		h := acquire(t, newMutex(t, v.connect(zklock.WithSessionTimeout(20*time.Second)), "/job"))
		w := v.queueUp(newMutex(t, s, "/job"))
		idle := v.connect(zklock.WithSessionTimeout(20 * time.Second))
		before := []int64{s.SessionID(), idle.SessionID()}
		v.restartOlder(t)
		<-h.Lost()
		release(t, w.granted2(t, 80*time.Second))
		release(t, acquire(t, newMutex(t, idle, "/job")))
		require.NotEqual(t, before[0], s.SessionID())
		require.NotEqual(t, before[1], idle.SessionID())
		require.Len(t, v.srv.Sessions(), 3)
	}, zktest.WithZxid(1000))
}

// F22: the server is away for much longer than the session timeout, and comes back with its data and its sessions. Asking
// after a session does not end it: the waiter keeps its node and its place.
func TestVirtual_ServerAwayForLong_WaiterKeepsItsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithSessionTimeout(20 * time.Second))
		h := acquire(t, newMutex(t, v.connect(zklock.WithSessionTimeout(20*time.Second)), "/job"))
		w := v.queueUp(newMutex(t, s, "/job"))
		id, nodes := s.SessionID(), v.srv.Children("/job")
		v.srv.Stop()
		time.Sleep(5 * time.Minute)
		require.ErrorIs(t, h.Err(), zklock.ErrLost)
		require.NoError(t, v.srv.Start())
		next := w.granted2(t, time.Minute)
		require.Equal(t, id, s.SessionID())
		require.Contains(t, nodes, base(next.Path()))
		release(t, next)
	})
}

// A Session that holds nothing is heard of all the same: after a short cut nobody asks whether it is still there.
func TestVirtual_IdleForLong_ReconnectsAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var dials atomic.Int64
		s := v.connect(zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
			dials.Add(1)
			return v.net.Dial(network, addr, d)
		}))
		for n := range int64(3) {
			time.Sleep(time.Hour)
			require.Equal(t, n+1, dials.Load())
			v.srv.DropConnection(s.SessionID())
		}
	})
}

// moving is a Session on an ensemble, whose next connection goes where target says.
type moving struct {
	ens    *zktest.Ensemble
	s      *zklock.Session
	m      *zklock.Mutex
	target string
}

// onLeader gives a Session on the leader, which has used the lock before, and the name of another server.
func onLeader(t *testing.T) (c *moving, other *zktest.Member) {
	n := zktest.NewNetwork()
	n.SetLatency(time.Millisecond)
	c = &moving{ens: zktest.StartEnsemble(t, 3, zktest.WithNetwork(n))}
	_, err := c.ens.Create("/job", nil, 0)
	require.NoError(t, err)
	c.target = c.ens.Leader().Addr()
	c.s = connect(t, c.target, zklock.WithSessionTimeout(30*time.Second),
		zklock.WithDialer(func(network, _ string, d time.Duration) (net.Conn, error) { return n.Dial(network, c.target, d) }))
	c.m = newMutex(t, c.s, "/job")
	release(t, acquire(t, c.m))
	for _, member := range c.ens.Members() {
		if member != c.ens.Leader() {
			other = member
		}
	}
	c.target = other.Addr()
	return c, other
}

// F4, I2: the reply to a create is lost, and the client comes to a server that has not heard of the create yet. It does
// not take a list that does not show its node for an answer: there is one node, and it does not wait for itself.
func TestVirtual_CreateLost_NextServerLags_FindsItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := onLeader(t)
		other.SetLag(5 * time.Second)
		created := len(creates(c.ens.History()))
		c.ens.Inject(zktest.After(zktest.Create).Path("/job/*").Once().DropReply().Close())
		start := time.Now()
		h := acquire(t, c.m)
		require.GreaterOrEqual(t, time.Since(start), 5*time.Second, "the other server had the create before it was asked")
		require.Len(t, creates(c.ens.History()), created+1)
		require.Equal(t, []string{base(h.Path())}, c.ens.Children("/job"))
		release(t, h)
	})
}

// F2, I2, I4: a create lies at a server that does not get to it. The client moves to another one, does not find its node
// and makes one. When the first server goes on, what it was left with is refused, or found and deleted.
func TestVirtual_CreateHeldUp_ClientMoves_LateCreateLeavesNothing(t *testing.T) {
	for _, lag := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c, other := onLeader(t)
			other.SetLag(lag)
			held := c.ens.Inject(zktest.Before(zktest.Create).Path("/job/*").Once().Hold())
			w := startAcquire(t, c.m)
			require.NoError(t, held.Wait(t.Context()))
			c.ens.DropConnection(c.s.SessionID())
			h := w.granted2(t, time.Minute)
			held.Release()
			time.Sleep(30 * time.Second)
			require.Equal(t, []string{base(h.Path())}, c.ens.Children("/job"))
			require.NoError(t, h.Err())
			release(t, h)
			time.Sleep(10 * time.Second) // the other server hears of it
			require.Empty(t, c.ens.Children("/job"))
		})
	}
}

func creates(history []zktest.Applied) (paths []string) {
	for _, a := range history {
		if a.Kind == zktest.Created {
			paths = append(paths, a.Path)
		}
	}
	return paths
}

// F29 in part: a Session takes in as many waiters as its cap says, and refuses the next with an error that says so.
func TestVirtual_ManyWaiters_CapIsClear(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const most = 300
		s := v.connect(zklock.WithMaxLockNodes(most))
		m := newMutex(t, s, "/job")
		before := heap()
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range most {
			all.Go(func() {
				h, err := m.Acquire(ctx)
				if err == nil {
					<-ctx.Done()
					err = h.Release(context.Background())
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(30 * time.Second)
		require.Len(t, v.srv.Children("/job"), most)
		each := (heap() - before) / most
		t.Logf("%d bytes a waiter, server and client together", each)
		require.Less(t, each, int64(50<<10))
		_, err := m.Acquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrTooManyWaiters)
		cancel()
		all.Wait()
		time.Sleep(time.Minute)
		require.Empty(t, v.srv.Children("/job"))
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
