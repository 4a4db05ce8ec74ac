package zklock_test

// These tests attack containers: all nodes of a lock are deleted when no client uses it, even while
// other clients acquire.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// ordersLock is the lock of an order: a mutex, a semaphore with a shared limit, or one of the two
// sides of a read/write lock.
func ordersLock(t testing.TB, s *zklock.Session, top string, i int) zklock.Lock {
	t.Helper()
	order := fmt.Sprintf("%s/%d", top, i)
	switch i % 4 {
	case 0:
		return newMutex(t, s, order+"/lock", zklock.WithContainer())
	case 1:
		return newSemaphore(t, s, order+"/gate", 2, zklock.WithContainer(), zklock.WithSharedLimit(order+"/limits/gate")).Permits(1)
	case 2:
		return newSemaphore(t, s, order, 2, zklock.WithContainer(), zklock.WithSharedLimit(order+"/limit")).Permits(2)
	}
	rw, err := zklock.NewRWMutex(s, order+"/a/b", zklock.WithContainer())
	require.NoError(t, err)
	if i%8 == 3 {
		return rw.ReadLock()
	}
	return rw.WriteLock()
}

// F26, I1: of sixty orders no node is left, not even their parent, and each can have its lock
// again, with a larger token. Nodes that existed before remain.
func TestVirtual_Container_SixtyOrders_NothingIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, tokens := v.connect(), make([]int64, 60)
		for range 3 {
			for i := range tokens {
				h := acquire(t, ordersLock(t, s, "/job/orders", i))
				require.Greater(t, h.Token(), tokens[i])
				tokens[i] = h.Token()
				release(t, h)
			}
			time.Sleep(10 * time.Second)
			st, there := v.srv.Stat("/job")
			require.True(t, there)
			require.Empty(t, v.srv.Children("/job"))
			require.False(t, st.Container)
		}
	}, zktest.WithConfig("znode.container.checkIntervalMs=1000"))
}

// The same in real time, so it also runs on a real server.
func TestContainer_SixtyOrders_NothingIsLeft(t *testing.T) {
	srv := startOwn(t, serverConfig{containerCheck: 50 * time.Millisecond}).Addr()
	if isBefore(t, srv, "3.5") {
		t.Skip("not on ZooKeeper before 3.5, which has no containers")
	}
	a, s := admin(t, srv), connect(t, srv)
	var token int64
	for range 2 {
		for i := range 60 {
			h := acquire(t, ordersLock(t, s, "/orders", i))
			require.Greater(t, h.Token(), token)
			token = h.Token()
			release(t, h)
		}
		eventually(t, "nothing is left", func() bool {
			names, _, err := a.Children("/")
			return err == nil && len(names) == 1
		})
	}
}

// reap deletes the empty containers below a node, and the node, as the servers do, but all at once.
func reap(srv *zktest.Server, path string) {
	for _, name := range srv.Children(path) {
		reap(srv, path+"/"+name)
	}
	if st, there := srv.Stat(path); there && st.Container && st.Creates > 0 && st.NumChildren == 0 {
		_ = srv.Delete(path)
	}
}

// F26, I4: before and after each request of an acquire, the servers delete all empty containers:
// roots, and parents that were found or just created. The acquire continues, with a bounded number
// of requests, and no node is left in the end.
func TestVirtual_Container_ReapedAtEveryRequest(t *testing.T) {
	cases := 0
	for i := range 4 {
		for gone := 0; gone < 4; gone += oneIn(3) { // so many nodes of the path have been reaped already, from the bottom
			for _, when := range []func(zktest.Op) zktest.Fault{zktest.Before, zktest.After} {
				for nth, again := 1, true; again; nth++ {
					inVirtualTime(t, func(t *testing.T, v *virtual) {
						v.net.SetLatency(time.Millisecond)
						s := v.connect()
						release(t, acquire(t, ordersLock(t, v.connect(), "/orders", i)))
						for p, n := ordersLock(t, s, "/orders", i).Path(), gone; n > 0 && p != "/"; n-- {
							wipe(v.srv, p)
							p = path.Dir(p)
						}
						v.srv.ResetRequests()
						fault := v.srv.Inject(when(zktest.AnyOp).Session(s.Stats().SessionID).Nth(nth).Call(func() { reap(v.srv, "/orders") }).Optional())
						h := acquire(t, ordersLock(t, s, "/orders", i))
						again = fault.Fired() > 0
						fault.Remove()
						require.Less(t, v.srv.Requests().Of(s.Stats().SessionID, zktest.AnyOp), 40, "%v", fault)
						require.NoError(t, h.Err())
						release(t, h)
						time.Sleep(time.Minute)
						_, there := v.srv.Stat("/orders")
						require.False(t, there, "%d, %v", i, fault)
					}, zktest.WithConfig("znode.container.checkIntervalMs=1000"))
					cases++
				}
			}
		}
	}
	require.Greater(t, cases, 100, "each request was to be hit")
	t.Logf("%d cases", cases)
}

// fleet has Sessions acquire the locks of 12 orders at random. Some of the calls give up while they
// create the nodes. No other call may fail, and no two may overlap.
func fleet(t *testing.T, sessions []*zklock.Session, each int, pause time.Duration) (calls, gaveUp int64) {
	t.Helper()
	check, seed := ledger.New(t.Errorf), rand.Uint64()
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	var left atomic.Int64
	for n, s := range sessions {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
		all.Go(func() {
			for range each {
				i, wait := rng.IntN(12), time.Minute
				if leaves := upTo(20 * time.Millisecond); rng.IntN(5) == 0 {
					wait = leaves
				}
				ctx, cancel := context.WithTimeout(context.Background(), wait)
				h, err := ordersLock(t, s, "/orders", i).Acquire(ctx)
				cancel()
				if err != nil {
					left.Add(1)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Less(t, wait, time.Minute)
					continue
				}
				if d := upTo(pause / 20); i%4 == 0 {
					work(t, check, h, func() { time.Sleep(d) })
				}
				assert.NoError(t, h.Release(context.Background()))
				time.Sleep(upTo(pause))
			}
		})
	}
	all.Wait()
	return int64(len(sessions) * each), left.Load()
}

// F26, I1, I4: a fleet works while the servers reap, several times between two calls. No acquire
// fails because of it, the requests of a call are bounded, and no node is left in the end.
func TestVirtual_Container_FleetGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		var sessions []*zklock.Session
		for range 8 {
			sessions = append(sessions, v.connect())
		}
		v.srv.ResetRequests()
		calls, gaveUp := fleet(t, sessions, 150, time.Second)
		require.Less(t, gaveUp, calls/4)
		require.Positive(t, gaveUp)
		requests := 0
		for _, s := range sessions {
			requests += v.srv.Requests().Of(s.Stats().SessionID, zktest.AnyOp)
		}
		require.Less(t, int64(requests), 20*calls, "%d calls", calls)
		t.Logf("%d calls, %d gave up, %d requests", calls, gaveUp, requests)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"job", "zookeeper"}, v.srv.Children("/"))
	}, zktest.WithConfig("znode.container.checkIntervalMs=200"))
}

// The same in real time, so it also runs on a real server.
func TestContainer_FleetGoesOn(t *testing.T) {
	srv := startOwn(t, serverConfig{containerCheck: 20 * time.Millisecond}).Addr()
	if isBefore(t, srv, "3.5") {
		t.Skip("not on ZooKeeper before 3.5, which has no containers")
	}
	a := admin(t, srv)
	var sessions []*zklock.Session
	for range 6 {
		sessions = append(sessions, connect(t, srv))
	}
	calls, gaveUp := fleet(t, sessions, 15, 100*time.Millisecond)
	t.Logf("%d calls, %d gave up", calls, gaveUp)
	eventually(t, "nothing is left", func() bool {
		names, _, err := a.Children("/")
		return err == nil && len(names) == 1
	})
}

// I4: a call gives up when the containers exist and its node does not, or its leases do not. The
// servers never remove a container that had no child, so the call deletes it.
func TestVirtual_Container_CallLeaves_NothingIsLeft(t *testing.T) {
	for i, at := range map[int]string{0: "/orders/0", 1: "/orders/1/gate/leases", 2: "/orders/2/leases", 3: "/orders/3/a"} {
		for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				s := v.connect()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				made := v.srv.Inject(zktest.After(zktest.Create).Path(at).Once().Call(func() {
					if delay == 0 {
						cancel()
					} else {
						time.AfterFunc(delay, cancel)
					}
				}))
				h, err := ordersLock(t, s, "/orders", i).Acquire(ctx)
				if err == nil {
					release(t, h)
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
				require.Equal(t, 1, made.Fired())
				time.Sleep(time.Minute)
				require.Equal(t, []string{"job", "zookeeper"}, v.srv.Children("/"), "%s, %v", at, delay)
			}, zktest.WithConfig("znode.container.checkIntervalMs=1000"))
		}
	}
}

// I4: the servers reject the node for which the container was created. The call deletes the
// container, unless another client has written to it.
func TestVirtual_Container_NodeRefused_NothingIsLeft(t *testing.T) {
	for i, queue := range map[int]string{0: "/orders/0/lock", 1: "/orders/1/gate/locks", 3: "/orders/3/a/b"} {
		for _, written := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s, nth := v.connect(), 3 // after those that find no lock root
				if i != 1 {
					nth = 2
					v.srv.Inject(zktest.Before(zktest.Multi).Path(queue + "/*").Fail(zktest.NoAuth))
				}
				v.srv.Inject(zktest.Before(zktest.Create).Path(queue + "/*").Nth(nth).Fail(zktest.NoAuth).Call(func() {
					if written {
						require.NoError(t, v.srv.SetData(queue, []byte("x")))
					}
				}))
				_, err := ordersLock(t, s, "/orders", i).Acquire(within(t, soon))
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.Contains(t, creates(v.srv.History()), queue)
				time.Sleep(time.Minute)
				_, isThere := v.srv.Get(queue)
				require.Equal(t, written, isThere, queue)
				if !written {
					require.Equal(t, []string{"job", "zookeeper"}, v.srv.Children("/"), queue)
				}
			}, zktest.WithConfig("znode.container.checkIntervalMs=1000"))
		}
	}
}

// I4: a Multi takes a lock in a new container, and the next lock root gives no CREATE. The
// container is deleted.
func TestVirtual_Container_MultiRejected_NothingIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, err := v.srv.Create("/job/b", nil, 0)
		require.NoError(t, err)
		_, err = v.connect().Conn().SetACL("/job/b", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		s := v.connect()
		_, err = newMulti(t, newMutex(t, s, "/job/a", zklock.WithContainer()), newMutex(t, s, "/job/b", zklock.WithContainer())).Acquire(within(t, time.Minute))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		time.Sleep(time.Second)
		require.Equal(t, []string{"b"}, v.srv.Children("/job"))
	}, neverReaped)
}

// I4: the leases' root is recreated for a semaphore, and then the servers reject the leases. The
// container, which had no child, is deleted.
func TestVirtual_Container_LeasesRejected_NothingIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		sem := newSemaphore(t, s, semPath, 1, zklock.WithContainer())
		h := take(t, newSemaphore(t, v.connect(), semPath, 1, zklock.WithContainer()).Permits(1))
		release(t, h)
		v.srv.Inject(zktest.After(zktest.Create).Path(semQueue + "/*").Call(func() { _ = v.srv.Delete(semLeases) }).Once())
		v.srv.Inject(zktest.Before(zktest.Multi).Path(semLeases + "/*").Nth(2).Fail(zktest.NoAuth))
		_, err := sem.Acquire(within(t, time.Minute), 1)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		time.Sleep(time.Hour)
		require.Empty(t, v.srv.Children("/job"))
	}, zktest.WithConfig("znode.container.checkIntervalMs=60000"))
}

// With WithContainer an acquire creates no node for the limit: the number in NewSemaphore applies
// until a client sets another. A limit that was set remains when no client uses the semaphore any
// more, because it is a decision, and so do the nodes above it. Deleting the node revokes the
// decision.
func TestVirtual_Container_SharedLimit_OnlyWhatIsSetStays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const limit = "/orders/5/limits/gate"
		gate := func() *zklock.Semaphore {
			return newSemaphore(t, v.connect(), "/orders/5/gate", 2, zklock.WithContainer(), zklock.WithSharedLimit(limit))
		}
		one, two := take(t, gate().Permits(1)), take(t, gate().Permits(1))
		_, there := v.srv.Stat("/orders/5/limits")
		require.False(t, there)
		require.Equal(t, 2, limitOf(t, gate()))
		third := v.lineUp(gate().Permits(1))
		time.Sleep(time.Minute)
		require.False(t, third.isGranted())
		require.NoError(t, gate().SetLimit(within(t, soon), 3))
		st, _ := v.srv.Stat(limit)
		require.Positive(t, st.Version, "so nobody takes it for one that an acquire made")
		release(t, third.granted2(t, time.Second)) // it was notified of a node that did not exist when it began to wait
		require.NoError(t, gate().SetLimit(within(t, soon), 0))
		release(t, one)
		release(t, two)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"limits"}, v.srv.Children("/orders/5"))
		_, err := gate().TryAcquire(within(t, soon), 1)
		require.ErrorIs(t, err, zklock.ErrNotAcquired, "a pause outlasts the night")

		waits := v.lineUp(gate().Permits(2))
		require.NoError(t, v.srv.Delete(limit))
		release(t, waits.granted2(t, time.Second))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"job", "zookeeper"}, v.srv.Children("/"))
	}, zktest.WithConfig("znode.container.checkIntervalMs=1000"))
}

// The same in real time, so it also runs on a real server: a waiter is notified of a limit whose
// node did not exist.
func TestContainer_SharedLimit_WhatIsSetIsHeard(t *testing.T) {
	srv := target(t)
	if isBefore(t, srv, "3.5") {
		t.Skip("not on ZooKeeper before 3.5, which has no containers")
	}
	a, p := admin(t, srv), lockPath(t, srv)
	limit := p + "/limits/gate"
	gate := func() *zklock.Semaphore {
		return newSemaphore(t, connect(t, srv), p+"/gate", 2, zklock.WithContainer(), zklock.WithSharedLimit(limit))
	}
	both := acquire(t, gate().Permits(2))
	w := startAcquire(t, gate().Permits(1))
	eventually(t, "it waits with its lease", func() bool { return len(children(t, a, p+"/gate/leases")) == 3 })
	require.NoError(t, gate().SetLimit(within(t, soon), 3))
	release(t, w.granted(t))
	_, stat, err := a.Get(limit)
	require.NoError(t, err)
	require.Positive(t, stat.Version)
	require.NoError(t, gate().SetLimit(within(t, soon), 0))
	release(t, both)
	_, err = gate().TryAcquire(within(t, soon), 1)
	require.ErrorIs(t, err, zklock.ErrNotAcquired)
}
