package zklock_test

// This test counts what the recipes but the mutex send and receive (I8).

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// cost is what an operation sends, and the events that come back.
type cost struct{ requests, events int }

// I8: the request budget of the other recipes, heartbeats, pings and keep-alive reads aside, row by row beside Curator's, which
// TestCuratorBudget counts. The table in docs/performance.md has these numbers.
func TestVirtual_RequestBudget_Recipes(t *testing.T) {
	want := map[string]cost{
		"read lock":                     {requests: 2},
		"read lock: release":            {requests: 1},
		"write lock":                    {requests: 2},
		"downgrade":                     {requests: 1},
		"write lock: release":           {requests: 1},
		"permit":                        {requests: 5},
		"queue for a permit":            {requests: 6},
		"hand-over of a permit":         {requests: 3, events: 1},
		"permit: release":               {requests: 1},
		"three locks together":          {requests: 6},
		"three locks together: release": {requests: 3},
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
		release(t, take(theirs, never)) // a Session's first acquire on a path looks at the path, too
		count("permit", func() { h = take(mine, never) })
		var next *waiting
		count("queue for a permit", func() { next = v.lineUp(theirs) })
		count("hand-over of a permit", func() { release(t, h); next.granted2(t, time.Second) })
		count("permit: release", func() { release(t, next.hold) })

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
		second := v.stand(newElection(t, b, "/job/election", "b"), untilItEnds)
		count("election hand-over", func() { first.stop(); time.Sleep(100 * time.Millisecond) })
		require.NotNil(t, second.hold.Load())
		second.stop()
		require.Empty(t, want, "rows that were not counted")
	})
}

// I8: R readers behind one writer, each of a Session of its own: requests, events and bytes at the writer's release.
func TestVirtual_RequestBudget_ReadersBehindAWriter(t *testing.T) {
	for _, readers := range []int{1, 10, 100, 1000} {
		if readers == 1000 && *randomHours == 0 {
			continue // make simulation has it
		}
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			w := &wire{dial: v.net.Dial}
			h := acquire(t, newRWMutex(t, v.connect(w.dialer()), "/job").WriteLock())
			var all []*waiting
			for range readers {
				all = append(all, v.queueUp(newRWMutex(t, v.connect(w.dialer(), zklock.WithSessionTimeout(40*time.Second)), "/job").ReadLock()))
			}
			synctest.Wait()
			w.reset()
			release(t, h)
			require.NotContains(t, grantedOf(all...), "0")
			n, by := w.sent()
			t.Logf("%-40s %2d requests, %d events, %d bytes back: %s", fmt.Sprint(readers, " readers behind a writer: its release"), n, w.received().events, w.received().bytes, spell(by))
			require.Equal(t, cost{1, readers}, cost{n, w.received().events})
		})
	}
}
