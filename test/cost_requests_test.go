package zklock_test

// This test counts the requests and events of each operation (I8).

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I8: the request budget: the requests of each operation and the events that it gets, without
// pings, heartbeats and keep-alive reads. The table in docs/performance.md has some of them.
func TestRequestBudget(t *testing.T) {
	srv := target(t)
	a, root := admin(t, srv), lockPath(t, srv)
	n := 0
	freshPath := func() string { n++; return fmt.Sprintf("%s/%d", root, n) }
	row := func(what string, got int, by map[int32]int, most int) {
		t.Helper()
		t.Logf("%-62s %2d (at most %d) %s", what, got, most, spell(by))
		require.LessOrEqual(t, got, most, what)
	}
	events := func(what string, want int, ws ...*wire) {
		t.Helper()
		got := 0
		for _, w := range ws {
			got += w.received().events
		}
		require.Equal(t, want, got, "events: %s", what)
	}
	wired := func(opts ...zklock.Option) (*wire, *zklock.Session) {
		w := &wire{}
		return w, connect(t, srv, append(opts, w.dialer())...)
	}

	t.Run("free", func(t *testing.T) {
		w, s := wired()
		m := newMutex(t, s, freshPath())
		release(t, acquire(t, m)) // the first creates the root and verifies the token
		w.reset()
		h := acquire(t, m)
		sent, by := w.sent()
		row("uncontended acquire", sent, by, 2)
		require.Equal(t, map[int32]int{opCreate: 1, opGetChildren2: 1}, by)

		w.reset()
		again, err := m.Acquire(reentering(h))
		require.NoError(t, err)
		release(t, again)
		sent, by = w.sent()
		row("re-entrant pair", sent, by, 0)

		w.reset()
		release(t, h)
		sent, by = w.sent()
		row("release", sent, by, 1)
	})

	t.Run("one round trip", func(t *testing.T) {
		// The list is sent before the response to the create arrives: that response is held back,
		// so the list cannot have waited for it.
		proxy, p := zktest.StartProxy(t, srv), freshPath()
		m := newMutex(t, connect(t, proxy.Addr()), p)
		release(t, acquire(t, m))
		created := proxy.Inject(zktest.After(zktest.Create).Path(p + "/*").Once().Hold())
		proxy.Inject(zktest.Before(zktest.GetChildren).Path(p).Once().Call(created.Release))
		release(t, acquire(t, m))
	})

	t.Run("not acquired", func(t *testing.T) {
		p := freshPath()
		_, s0 := wired()
		h := acquire(t, newMutex(t, s0, p))
		w, s := wired()
		m := newMutex(t, s, p)
		w.reset()
		_, err := m.TryAcquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		sent, by := w.sent()
		row("try that fails", sent, by, 3)
		w.reset()
		_, err = m.TryAcquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		sent, by = w.sent()
		row("try that fails, as the one before", sent, by, 2)
		events("try that fails", 0, w)

		w.reset()
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err = m.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		sent, by = w.sent()
		row("wait that times out", sent, by, 6)
		release(t, h)
	})

	t.Run("hand-over", func(t *testing.T) {
		p := freshPath()
		w1, s1 := wired()
		w2, s2 := wired()
		w3, s3 := wired()
		w4, s4 := wired()
		m1, m2, m3, m4 := newMutex(t, s1, p), newMutex(t, s2, p), newMutex(t, s3, p), newMutex(t, s4, p)
		for _, m := range []*zklock.Mutex{m1, m2, m3, m4} {
			release(t, acquire(t, m))
		}
		h := acquire(t, m1)
		w2.reset()
		second := queueUp(t, a, m2, p)
		watches := func(w *wire, n int) func() bool {
			return func() bool { sent, by := w.sent(); return by[opGetData] == n && w.received().answers == sent }
		}
		eventually(t, "both watches are set", watches(w2, 2))
		sent, by := w2.sent()
		row("queue one waiter", sent, by, 4)
		w3.reset()
		third := queueUp(t, a, m3, p)
		eventually(t, "all three watches are set", watches(w3, 3))
		sent, by = w3.sent()
		row("queue one waiter behind two", sent, by, 5)
		w4.reset()
		fourth := queueUp(t, a, m4, p)
		eventually(t, "all three watches are set", watches(w4, 3))
		sent, by = w4.sent()
		row("queue one waiter behind three", sent, by, 5)
		lists := func(w *wire) int { _, by := w.sent(); return by[opGetChildren2] }

		w3.reset()
		w1.reset()
		w2.reset()
		release(t, h)
		h2 := second.granted(t)
		sent, by = both(w1, w2)
		row("hand-over to one that was second when it listed", sent, by, 1)
		events("hand-over from one that had not waited, and so watched nothing", 1, w1, w2)

		eventually(t, "the one after it hears of the release, too", func() bool { return w3.received().events > 0 })

		w2.reset()
		w4.reset()
		release(t, h2)
		h3 := third.granted(t)
		require.Zero(t, lists(w3), "it heard of all who were ahead")
		sent, by = both(w2, w3)
		row("hand-overs to the second and to the third, beside the first release", sent, by, 1)
		events("two hand-overs, and the old holder's watch on its own node", 2+1, w2, w3)

		eventually(t, "the one that is second now has looked", func() bool { return lists(w4) > 0 && w4.received().answers == lists(w4) })
		sent, by = w4.sent()
		row("the look of the one that is second now", sent, by, 1)
		events("it heard of the last release, too", 1, w4)

		w3.reset()
		w4.reset()
		release(t, h3)
		h4 := fourth.granted(t)
		sent, by = both(w3, w4)
		row("hand-over to one that was further back", sent, by, 1)
		events("hand-over, and the old holder's watch on its own node", 1+1, w3, w4)
		release(t, h4)
	})

	t.Run("bytes", func(t *testing.T) {
		// The cost of a handover to the second in the queue, for the two, does not depend on the
		// number of waiters behind.
		bytes := map[int]int{}
		for _, waiters := range []int{2, 20} {
			p := fmt.Sprintf("%s/bytes-%02d", root, waiters)
			w1, s1 := wired()
			w2, s2 := wired()
			_, s3 := wired()
			h := acquire(t, newMutex(t, s1, p))
			queue := []*waiting{queueUp(t, a, newMutex(t, s2, p), p)}
			for len(queue) < waiters {
				queue = append(queue, queueUp(t, a, newMutex(t, s3, p), p))
			}
			eventually(t, "the second in line has its watches", func() bool {
				sent, by := w2.sent()
				return by[opGetData] == 2 && w2.received().answers == sent
			})
			w1.reset()
			w2.reset()
			release(t, h)
			for i, q := range queue {
				h = q.granted(t)
				if i == 0 {
					events("hand-over with many behind", 1, w1, w2)
					bytes[waiters] = w1.received().bytes + w2.received().bytes
				}
				release(t, h)
			}
		}
		t.Logf("hand-over to the second in line: %d bytes come back, however many wait", bytes[2])
		require.Equal(t, bytes[2], bytes[20], "O(1) bytes")
	})

	t.Run("within one process", func(t *testing.T) {
		p := freshPath()
		var log warnings
		w, s := wired(lines(&log, slog.LevelDebug))
		m := newMutex(t, s, p)
		h := acquire(t, m)
		const goroutines = 8
		var queue []*waiting
		for range goroutines {
			w.reset()
			queue = append(queue, queueUp(t, a, m, p))
			eventually(t, "it stands behind", func() bool { return log.about("zklock: queued", p) == len(queue) })
			sent, by := w.sent()
			row("queue one goroutine behind another of its process", sent, by, 2)
		}
		w.reset()
		for _, next := range queue {
			release(t, h)
			h = next.granted(t)
		}
		sent, by := w.sent()
		row(fmt.Sprintf("%d hand-overs among goroutines of one process", goroutines), sent, by, goroutines)
		require.Equal(t, map[int32]int{opMulti: goroutines}, by)
		events("hand-over among goroutines of one process", 0, w)
		release(t, h)
	})

	t.Run("lock-delay", func(t *testing.T) {
		p := freshPath()
		var log warnings
		w, s := wired(lines(&log, slog.LevelDebug))
		m := newMutex(t, s, p, zklock.WithLockDelay(time.Minute))
		release(t, acquire(t, m))
		w.reset()
		h := acquire(t, m)
		sent, by := w.sent()
		row("uncontended acquire with a lock-delay", sent, by, 4)
		require.Equal(t, map[int32]int{opCreate: 1, opGetChildren2: 1, opGetData: 1, opMulti: 1}, by)
		w.reset()
		again, err := m.Acquire(reentering(h))
		require.NoError(t, err)
		release(t, again)
		sent, by = w.sent()
		row("re-entrant pair with a lock-delay", sent, by, 0)
		next := queueUp(t, a, m, p)
		eventually(t, "it stands behind, and has read the record", func() bool {
			_, by := w.sent()
			return log.about("zklock: queued", p) == 1 && by[opGetData] == 1
		})
		w.reset()
		release(t, h)
		h = next.granted(t)
		sent, by = w.sent()
		row("hand-over within one process with a lock-delay", sent, by, 3)

		w2, s2 := wired()
		next = queueUp(t, a, newMutex(t, s2, p, zklock.WithLockDelay(time.Minute)), p)
		eventually(t, "both watches are set", func() bool { sent, by := w2.sent(); return by[opGetData] == 3 && w2.received().answers == sent })
		w.reset()
		w2.reset()
		release(t, h)
		h = next.granted(t)
		sent, by = both(w, w2)
		row("hand-over with a lock-delay", sent, by, 3)
		w2.reset()
		release(t, h)
		sent, by = w2.sent()
		row("release with a lock-delay", sent, by, 1)
	})

	t.Run("lock-delay, two round trips", func(t *testing.T) {
		// The record is read before the response to the create arrives.
		proxy, p := zktest.StartProxy(t, srv), freshPath()
		m := newMutex(t, connect(t, proxy.Addr()), p, zklock.WithLockDelay(time.Minute))
		release(t, acquire(t, m))
		created := proxy.Inject(zktest.After(zktest.Create).Path(p + "/*").Once().Hold())
		proxy.Inject(zktest.Before(zktest.GetData).Path(p).Once().Call(created.Release))
		release(t, acquire(t, m))
	})

	t.Run("first acquire", func(t *testing.T) {
		for d := range 4 {
			w, s := wired()
			w.reset()
			p := freshPath()
			release(t, acquire(t, newMutex(t, connect(t, srv), p)))
			path := p + strings.Repeat("/x", d)
			w.reset()
			h := acquire(t, newMutex(t, s, path))
			sent, by := w.sent()
			most := 2 + 3*d // what found no lock root is sent again with it,
			if d > 1 {
				most = 5 + strings.Count(path, "/") + 2 // and then with all parents, some of which exist
			}
			row(fmt.Sprintf("first acquire, %d of its %d nodes missing", d, strings.Count(path, "/")), sent, by, most)
			release(t, h)
		}
	})
}

func both(ws ...*wire) (n int, by map[int32]int) {
	by = map[int32]int{}
	for _, w := range ws {
		k, b := w.sent()
		n += k
		for op, c := range b {
			by[op] += c
		}
	}
	return n, by
}

func spell(by map[int32]int) string {
	names := map[int32]string{opCreate: "create", opDelete: "delete", opExists: "exists", opGetData: "getData", opSync: "sync", opGetChildren2: "getChildren", opSetWatches: "setWatches", opMulti: "multi"}
	var parts []string
	for op, n := range by {
		parts = append(parts, fmt.Sprintf("%d %s", n, names[op]))
	}
	return strings.Join(parts, ", ")
}
