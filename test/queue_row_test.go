package zklock_test

// These tests attack the grants without a list: the sequence numbers of a Session's nodes are in a
// row.

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// rowWarmUp is the number of cycles after which a row is expected: two whose numbers are in a row,
// after the first.
const rowWarmUp = 3

// cycles acquires and releases a lock n times.
func cycles(t testing.TB, m zklock.Lock, n int) {
	t.Helper()
	for range n {
		release(t, acquire(t, m))
	}
}

// cost returns the requests of one call, without the keep-alive ones.
func (v *virtual) cost(call func()) zktest.Counts {
	v.srv.ResetRequests()
	call()
	return v.srv.Requests()
}

// lists reports whether an acquire and release of a lock sends a list.
func (v *virtual) lists(m zklock.Lock) bool {
	v.t.Helper()
	return v.cost(func() { cycles(v.t, m, 1) }).Total(zktest.GetChildren) > 0
}

// nodeNumber returns the sequence number of a hold's node.
func nodeNumber(h *zklock.Hold) string { return h.Node()[len(h.Node())-10:] }

// inARow acquires and releases a lock until a row is expected, and then once in a row. It returns
// the last number.
func (v *virtual) inARow(m zklock.Lock) (last string) {
	v.t.Helper()
	cycles(v.t, m, rowWarmUp)
	return v.nextInARow(m)
}

// nextInARow takes the lock once more, without a list, and returns the number of the node.
func (v *virtual) nextInARow(m zklock.Lock) (last string) {
	v.t.Helper()
	got := v.cost(func() {
		h := acquire(v.t, m)
		last = nodeNumber(h)
		release(v.t, h)
	})
	require.Zero(v.t, got.Total(zktest.GetChildren), "it is in a row")
	return last
}

// I8: each kind of lock that may be in a row takes two requests for a cycle, and one round trip for
// an acquire. Each other kind lists each time.
func TestVirtual_Row_TwoRequestsForEachCycle(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way = time.Millisecond
		v.net.SetLatency(way)
		s := v.connect()
		rw := newRWMutex(t, s, "/job/rw")
		for _, tt := range []struct {
			name string
			m    zklock.Lock
			want bool
		}{
			{"mutex", newMutex(t, s, "/job/mutex"), true},
			{"read lock", rw.ReadLock(), true},
			{"write lock", rw.WriteLock(), true},
			{"mutex with a minimum hold", newMutex(t, s, "/job/min", zklock.WithMinHold(3*way)), true},
			{"mutex in a container", newMutex(t, s, "/job/c", zklock.WithContainer()), true},
			{"mutex with a lock-delay", newMutex(t, s, "/job/delay", zklock.WithLockDelay(time.Second)), false},
			{"permits", newSemaphore(t, s, "/job/permits", 1).Permits(1), false},
		} {
			for range rowWarmUp {
				cycles(t, tt.m, 1)
				time.Sleep(10 * way) // the minimum hold ends
			}
			var took time.Duration
			got := v.cost(func() {
				began := time.Now()
				h := acquire(t, tt.m)
				took = time.Since(began)
				release(t, h)
				time.Sleep(10 * way)
			})
			t.Logf("%-28s %v", tt.name, got)
			require.Equal(t, !tt.want, got.Total(zktest.GetChildren) > 0, tt.name)
			if tt.want {
				require.Equal(t, 2*way, took, tt.name)
			}
			h, err := tt.m.TryAcquire(context.Background())
			require.NoError(t, err, tt.name)
			release(t, h)
		}

		m := newMutex(t, s, "/job/once")
		for i := range rowWarmUp {
			_, err := m.Once(t.Context(), fmt.Sprint(i), func(context.Context, *zklock.Hold) error { return nil })
			require.NoError(t, err)
		}
		got := v.cost(func() {
			_, err := m.Once(t.Context(), "last", func(context.Context, *zklock.Hold) error { return nil })
			require.NoError(t, err)
		})
		require.Zero(t, got.Total(zktest.GetChildren), "once")

		e := newElection(t, s, "/job/election", "a")
		campaign := func() {
			require.NoError(t, e.Campaign(t.Context(), func(context.Context, *zklock.Hold) error { return nil }))
		}
		for range rowWarmUp {
			campaign()
		}
		require.Equal(t, 1, v.cost(campaign).Total(zktest.GetChildren), "election: the list before it queues")

		var locks []zklock.Lock
		for i := range 3 {
			locks = append(locks, newMutex(t, s, fmt.Sprintf("/job/multi-%d", i)))
		}
		multi, err := zklock.NewMulti(locks...)
		require.NoError(t, err)
		both := func() {
			require.NoError(t, multi.Do(t.Context(), func(context.Context, *zklock.MultiHold) error { return nil }))
		}
		for range rowWarmUp {
			both()
		}
		require.Zero(t, v.cost(both).Total(zktest.GetChildren), "multi")
	})
}

// I1, F57: the lock root is deleted and created again, and another client's nodes reach the number
// that would be next in the old root. The watch on the root shows that; without it, two clients
// hold.
func TestVirtual_Row_RootCreatedAgain_WaitsBehindItsHolder(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, v *virtual, s *zklock.Session)
	}{
		{"the root is deleted", func(*testing.T, *virtual, *zklock.Session) {}},
		{"its data is written first, which ends the watch", func(t *testing.T, v *virtual, _ *zklock.Session) {
			require.NoError(t, v.srv.SetData("/job/a", []byte("x")))
		}},
		{"the connection is lost first", func(t *testing.T, v *virtual, s *zklock.Session) {
			v.srv.DropConnection(s.SessionID())
			synctest.Wait()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				m, other := newMutex(t, s, "/job/a"), newMutex(t, v.connect(), "/job/a")
				last := v.inARow(m)
				tt.change(t, v, s)
				require.NoError(t, v.srv.Delete("/job/a"))
				cycles(t, other, rowWarmUp)
				h := acquire(t, other)
				require.Equal(t, last, nodeNumber(h), "our next number is the one after it, as in the old root")
				w := v.queueUp(m)
				time.Sleep(time.Second)
				require.False(t, w.isGranted(), "I1")
				release(t, h)
				release(t, w.granted2(t, time.Second))
			})
		})
	}
}

// I1, F57: the same on any server: the numbers meet, and the Session waits behind the other holder.
func TestRow_RootCreatedAgain_Waits(t *testing.T) {
	const path = "/row"
	server := startOwn(t, serverConfig{})
	a := admin(t, server.Addr())
	m, other := newMutex(t, connect(t, server.Addr()), path), newMutex(t, connect(t, server.Addr()), path)
	cycles(t, m, rowWarmUp)
	h := acquire(t, m)
	last := nodeNumber(h)
	release(t, h)
	require.NoError(t, a.Delete(path, -1))
	cycles(t, other, rowWarmUp)
	h = acquire(t, other)
	require.Equal(t, last, nodeNumber(h), "our next number is the one after it, as in the old root")
	before, err := server.WatchCount()
	require.NoError(t, err)
	w := queueUp(t, a, m, path)
	eventually(t, "it watches its node and the holder's, or was granted", func() bool {
		n, err := server.WatchCount()
		return w.isGranted() || err == nil && n >= before+2
	})
	require.False(t, w.isGranted(), "I1")
	release(t, h)
	release(t, w.granted(t))
}

// I1, F57: READ is removed from the lock root, so the server withholds its event, and the root is
// deleted and created again. A row lasts no longer than a session timeout, and then the Session
// lists.
func TestVirtual_Row_NoEvents_EndsAfterASessionTimeout(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m, other := newMutex(t, s, "/job/a"), newMutex(t, v.connect(), "/job/a")
		v.inARow(m)
		time.Sleep(s.Timeout() / 2)
		last := v.nextInARow(m) // keeps the watch for longer than the list
		_, err := v.connect().Conn().SetACL("/job/a", zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(t, err)
		require.NoError(t, v.srv.Delete("/job/a"))
		cycles(t, other, rowWarmUp+1)
		h := acquire(t, other)
		require.Equal(t, last, nodeNumber(h), "our next number is the one after it, as in the old root")
		time.Sleep(s.Timeout()/2 + time.Millisecond)
		w := v.queueUp(m)
		require.False(t, w.isGranted(), "I1")
		release(t, h)
		release(t, w.granted2(t, time.Second))
		cycles(t, m, rowWarmUp)
		require.False(t, v.lists(m), "the watch is of the new root")
	})
}

// I8: another client takes the lock in between. The next acquire lists: it takes one more round
// trip, and no more requests. Then no row is expected until four acquires would have been in a row,
// because each miss doubles their number.
func TestVirtual_Row_Broken_CostsARoundTrip(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way = time.Millisecond
		v.net.SetLatency(way)
		m, other := newMutex(t, v.connect(), "/job/a"), newMutex(t, v.connect(), "/job/a")
		cycles(t, m, rowWarmUp)
		took := func() (d time.Duration, lists int) {
			got := v.cost(func() {
				began := time.Now()
				h := acquire(t, m)
				d = time.Since(began)
				release(t, h)
			})
			return d, got.Total(zktest.GetChildren)
		}
		d, lists := took()
		require.Equal(t, 2*way, d)
		require.Zero(t, lists)
		cycles(t, other, 1)
		d, lists = took()
		require.Equal(t, 4*way, d, "a miss")
		require.Equal(t, 1, lists)
		for range 4 {
			d, lists = took()
			require.Equal(t, 2*way, d, "no row is expected")
			require.Equal(t, 1, lists)
		}
		d, lists = took()
		require.Equal(t, 2*way, d)
		require.Zero(t, lists)
		for range 10 { // two clients in turn never expect a row
			cycles(t, other, 1)
			d, _ = took()
		}
		require.Equal(t, 2*way, d)
	})
}

// F35: a node that was created by name has the next number. The Session lists, and finds that it has
// a twin.
func TestVirtual_Row_TwinByName_QueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job/a")
		cycles(t, m, 1)
		_, err := v.srv.Create("/job/a/lock-0000000005", nil, 0) // takes the number 1
		require.NoError(t, err)
		cycles(t, m, 3)   // 2, 3, 4
		w := v.queueUp(m) // 5, and then 6
		synctest.Wait()
		require.False(t, w.isGranted())
		require.NoError(t, v.srv.Delete("/job/a/lock-0000000005"))
		release(t, w.granted2(t, time.Second))
	})
}

// I7: the watch on a lock root is removed when no row has used it for a session timeout, and is not
// restored on another connection.
func TestVirtual_Row_WatchIsRemoved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job/a")
		cycles(t, m, rowWarmUp+1)
		require.Len(t, v.srv.Watches("/job/a"), 1)
		for range 10 {
			time.Sleep(s.Timeout() / 2)
			cycles(t, m, 1)
			require.Len(t, v.srv.Watches("/job/a"), 1)
		}
		v.srv.DropConnection(s.SessionID())
		time.Sleep(time.Second)
		require.Empty(t, v.srv.Watches())
		cycles(t, m, rowWarmUp)
		require.Len(t, v.srv.Watches("/job/a"), 1)
		require.False(t, v.lists(m))
		time.Sleep(2 * s.Timeout())
		synctest.Wait()
		require.Empty(t, v.srv.Watches())
		require.True(t, v.lists(m))
		for range 3 { // a lock that is taken seldom is never in a row, and not watched
			time.Sleep(2 * s.Timeout())
			require.True(t, v.lists(m))
			require.Empty(t, v.srv.Watches())
		}
	})
}

// I7: the notes on a lock root outlive the ZooKeeper session of its last hold, and do not keep that
// session in memory.
func TestVirtual_Row_SessionEnds_NotesDoNotKeepIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		cycles(t, newMutex(t, s, "/job/a"), rowWarmUp)
		require.Contains(t, footprint(s), ".sessionState.roots.notes", "or this shows nothing")
		v.srv.ExpireSession(s.SessionID())
		time.Sleep(time.Minute)
		cycles(t, newMutex(t, s, "/job/b"), 1)
		for path := range footprint(s) {
			require.NotContains(t, path, "notes[].")
		}
	})
}

// I7: a user of Session.Conn has a watch on a path of its own. The watches on lock roots are removed
// all the same.
func TestVirtual_Row_UserHasWatches_WatchesOnRootsAreRemoved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		_, _, _, err := s.Conn().ExistsW("/mine")
		require.NoError(t, err)
		for i := range 20 {
			cycles(t, newMutex(t, s, fmt.Sprintf("/job/%d", i)), rowWarmUp)
		}
		require.Len(t, v.srv.Watches(), 21)
		time.Sleep(3 * s.Timeout())
		require.Len(t, v.srv.Watches(), 1)
	})
}

// Two Sessions that take turns in bursts of four would lose a round trip in each burst. Each miss
// doubles the number of acquires after which a row is expected, so they list soon.
func TestVirtual_Row_Bursts_MissesGrowRare(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way, bursts = time.Millisecond, 20
		v.net.SetLatency(way)
		a, b := newMutex(t, v.connect(), "/job/a"), newMutex(t, v.connect(), "/job/a")
		misses := 0
		for range bursts {
			for range 3 {
				began := time.Now()
				h := acquire(t, a)
				if time.Since(began) > 2*way {
					misses++
				}
				release(t, h)
			}
			cycles(t, b, 3)
		}
		require.LessOrEqual(t, misses, 3)
	})
}
