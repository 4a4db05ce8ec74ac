package zklock_test

// This test counts the requests and responses of all recipes except the mutex (I8).

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// cost has the requests of an operation and the events that arrive.
type cost struct{ requests, events int }

// I8: the request budget of all other recipes, without heartbeats, pings and keep-alive reads, row
// by row next to Curator's, which TestCuratorBudget counts. The table in docs/performance.md has
// some of them.
func TestVirtual_RequestBudget_Recipes(t *testing.T) {
	want := map[string]cost{
		"read lock":                     {requests: 2},
		"read lock: release":            {requests: 1},
		"write lock":                    {requests: 2},
		"downgrade":                     {requests: 1},
		"write lock: release":           {requests: 1},
		"permit":                        {requests: 3},
		"queue, the last one was free":  {requests: 10},
		"queue for a permit":            {requests: 6},
		"hand-over of a permit":         {requests: 3, events: 1},
		"permit: release":               {requests: 1},
		"three locks together":          {requests: 6},
		"three locks together: release": {requests: 1},
		"election hand-over":            {requests: 1, events: 1},
	}
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		w := &wire{dial: v.net.Dial}
		count := func(name string, act func()) {
			t.Helper()
			time.Sleep(time.Second)
			w.reset()
			act()
			time.Sleep(200 * time.Millisecond)
			n, by := w.sent()
			t.Logf("%-40s %2d requests, %d events, %d bytes back: %s", name, n, w.received().events, w.received().bytes, spell(by))
			require.Equal(t, want[name], cost{n, w.received().events}, name)
			delete(want, name)
		}
		a, b := v.connect(w.dialer()), v.connect(w.dialer())
		take := func(l zklock.Lock, ctx context.Context) *zklock.Hold {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			h, err := l.Acquire(ctx)
			require.NoError(t, err)
			return h
		}
		var h, reads *zklock.Hold
		never := context.Background()

		rw := newRWMutex(t, a, "/job/rw")
		release(t, take(rw.ReadLock(), never))
		count("read lock", func() { h = take(rw.ReadLock(), never) })
		count("read lock: release", func() { release(t, h) })
		count("write lock", func() { h = take(rw.WriteLock(), never) })
		count("downgrade", func() { reads = take(rw.ReadLock(), h.Context()) })
		count("write lock: release", func() { release(t, h) })
		release(t, reads)

		mine, theirs := newSemaphore(t, a, "/job/sem", 1).Permits(1), newSemaphore(t, b, "/job/sem", 1).Permits(1)
		release(t, take(mine, never))
		release(t, take(theirs, never)) // a Session's first acquire on a path also checks the path
		count("permit", func() { h = take(mine, never) })
		var next *waiting
		count("queue, the last one was free", func() { next = v.lineUp(theirs) })
		count("hand-over of a permit", func() { release(t, h); next.granted2(t, time.Second) })
		count("permit: release", func() { release(t, next.hold) })
		h = take(mine, never)
		count("queue for a permit", func() { next = v.lineUp(theirs) })
		release(t, h)
		release(t, next.granted2(t, time.Second))

		m := newMulti(t, newMutex(t, a, "/job/m1"), newMutex(t, a, "/job/m2"), newMutex(t, a, "/job/m3"))
		all, err := m.Acquire(within(t, time.Minute))
		require.NoError(t, err)
		require.NoError(t, all.Release(never))
		count("three locks together", func() {
			all, err = m.Acquire(within(t, time.Minute))
			require.NoError(t, err)
		})
		count("three locks together: release", func() { require.NoError(t, all.Release(never)) })

		first := v.stand(newElection(t, a, "/job/election", "a"), untilItEnds)
		time.Sleep(100 * time.Millisecond) // virtual: it leads before the second queues
		require.NotNil(t, first.hold.Load())
		second := v.stand(newElection(t, b, "/job/election", "b"), untilItEnds)
		count("election hand-over", func() { first.stop(); time.Sleep(100 * time.Millisecond) })
		require.NotNil(t, second.hold.Load())
		second.stop()
		require.Empty(t, want, "rows that were not counted")
	})
}

// I8: readers behind up to five writers, each of a Session of its own: the cost to queue the
// readers, and to grant them when one writer after the other has released. A reader behind up to
// four writers sends no more requests. The tables in docs/performance.md have these numbers.
func TestVirtual_RequestBudget_ReadersBehindWriters(t *testing.T) {
	const few = 4 // writers that a reader watches
	for writers := 1; writers <= few+1; writers++ {
		for _, readers := range []int{1, 10, 100, 1000} {
			if readers == 1000 && (!*everyCase || writers > 1 && writers < few) { // each takes seconds: PART=simulation has two
				continue
			}
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				w := &wire{dial: v.net.Dial}
				h := acquire(t, newRWMutex(t, v.connect(), "/job").WriteLock())
				var next, all []*waiting
				for range writers - 1 {
					next = append(next, v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock()))
				}
				for range readers {
					s := v.connect(w.dialer(), zklock.WithSessionTimeout(40*time.Second))
					l := newRWMutex(t, s, "/job").ReadLock()
					all = append(all, v.queueUp(l))
				}
				synctest.Wait()
				n, by := w.sent()
				t.Logf("%d writers, %4d readers: to queue them %5d requests, %9d bytes back: %s", writers, readers, n, w.received().bytes, spell(by))
				w.reset()
				release(t, h)
				for _, n := range next {
					require.NotContains(t, grantedOf(all...), "1", "I1")
					release(t, n.granted2(t, time.Second))
				}
				require.NotContains(t, grantedOf(all...), "0")
				n, by = w.sent()
				t.Logf("%d writers, %4d readers: to let them in %5d requests, %5d events, %9d bytes back: %s", writers, readers, n, w.received().events, w.received().bytes, spell(by))
				want := cost{requests: 0, events: writers * readers}
				if writers > few {
					want = cost{requests: readers, events: readers} // each lists when the nearest one is deleted
				}
				require.Equal(t, want, cost{n, w.received().events})
			})
		}
	}
}
