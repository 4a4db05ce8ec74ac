package zklock_test

// This test counts the cost of containers: the first acquire after a pause in which the servers
// have removed the nodes that an acquire needs.

import (
	"context"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// pausedLock is a lock on a path, with the cost of an acquire: with all nodes present, and after
// the servers have removed some of them.
type pausedLock struct {
	name string
	lock func(t testing.TB, s *zklock.Session, p string) zklock.Lock
	path string
	free pauseCost
	gone []pauseCost // by the number of deleted nodes of the path, from the bottom
}

type pauseCost struct {
	requests int
	trips    float64
}

var pausedLocks = []pausedLock{
	{"mutex", func(t testing.TB, s *zklock.Session, p string) zklock.Lock {
		return newMutex(t, s, p, zklock.WithContainer())
	},
		"/1/lock", pauseCost{1, 1}, []pauseCost{{1, 1}, {4, 2}}},
	{"semaphore", func(t testing.TB, s *zklock.Session, p string) zklock.Lock {
		return newSemaphore(t, s, p, 3, zklock.WithContainer()).Permits(1)
	}, "/1/gate", pauseCost{3, 1}, []pauseCost{{12, 4}, {19, 5}}},
	{"semaphore, shared limit", func(t testing.TB, s *zklock.Session, p string) zklock.Lock {
		return newSemaphore(t, s, p, 3, zklock.WithContainer(), zklock.WithSharedLimit(p+"/limit")).Permits(1)
	}, "/1/gate", pauseCost{4, 1}, []pauseCost{{14, 4}, {21, 5}}},
}

// I8: a deleted root of a semaphore costs three more round trips, with its parent four. A mutex has
// deleted its root itself, and a deleted parent costs it one. The list, the create and all creates
// of missing nodes are sent without waiting for each other.
func TestVirtual_Container_AcquireAfterAPause_RoundTrips(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way = time.Millisecond
		v.net.SetLatency(way)
		for _, c := range pausedLocks {
			s := v.connect()
			l := c.lock(t, s, "/job"+c.path)
			row := func(what string, want pauseCost) {
				v.srv.ResetRequests()
				began := time.Now()
				h, err := l.Acquire(context.Background())
				trips := float64(time.Since(began)) / float64(2*way)
				require.NoError(t, err)
				requests := v.srv.Requests().Of(s.Stats().SessionID, zktest.AnyOp)
				t.Logf("%-24s %-18s %2d requests, %g round trips: %v", c.name, what, requests, trips, v.srv.Requests())
				require.LessOrEqual(t, requests, want.requests+1, "its place in the queue may be deleted by now")
				require.Equal(t, want.trips, trips) //nolint:testifylint // whole numbers
				release(t, h)
				time.Sleep(time.Second)
			}
			release(t, acquire(t, l))
			time.Sleep(time.Second)
			row("nothing is gone", c.free)
			for i, want := range c.gone {
				n := i + 1
				for p, left := "/job"+c.path, n; left > 0; p, left = path.Dir(p), left-1 {
					wipe(v.srv, p)
				}
				row(fmt.Sprint("gone: ", n), want)
			}
		}
	})
}

// The same requests on a real server, in real time: the duration of the first acquire after a pause
// is logged, for the choice of a default.
func TestContainer_AcquireAfterAPause_Requests(t *testing.T) {
	srv := target(t)
	a, top := admin(t, srv), lockPath(t, srv)
	var remove func(p string)
	remove = func(p string) {
		for _, name := range children(t, a, p) {
			remove(p + "/" + name)
		}
		if err := a.Delete(p, -1); err != zk.ErrNoNode {
			require.NoError(t, err)
		}
	}
	for _, c := range pausedLocks {
		w := &wire{}
		l := c.lock(t, connect(t, srv, w.dialer()), top+c.path)
		release(t, acquire(t, l))
		for gone := range len(c.gone) + 1 {
			var took []time.Duration
			most := c.free.requests
			if gone > 0 {
				most = c.gone[gone-1].requests
			}
			for range 30 {
				for p, n := top+c.path, gone; n > 0; p, n = path.Dir(p), n-1 {
					remove(p)
				}
				w.reset()
				began := time.Now()
				h := acquire(t, l)
				took = append(took, time.Since(began))
				n, by := w.sent()
				require.LessOrEqual(t, n, most+2, "%s, %d gone: %s", c.name, gone, spell(by)) // the path is one deeper
				release(t, h)
			}
			slices.Sort(took)
			t.Logf("%-24s gone: %d, at most %2d requests, median %v", c.name, gone, most, took[len(took)/2].Round(time.Microsecond))
		}
	}
}
