package zklock_test

// These tests have hundreds wait for one lock, and measure the cost of a handover, a lost
// connection and a quiet wait, and the cap (I8).

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// crowd is a thousand waiters for one lock, on ten sessions.
type crowd struct {
	all     sync.WaitGroup
	mu      sync.Mutex
	granted []string // suffixes, in the order of the grants
}

const crowdSessions, crowdEach = 10, 100

// wait adds the waiters of one session to the queue. Each releases the lock as soon as it has it.
func (c *crowd) wait(t *testing.T, m *zklock.Mutex) {
	ctx := within(t, time.Hour)
	for range crowdEach {
		c.all.Go(func() {
			h, err := m.Acquire(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			c.mu.Lock()
			c.granted = append(c.granted, suffixOf(h.Node()))
			c.mu.Unlock()
			if err := h.Release(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// handOff is the cost of emptying a queue whose nodes belong to the given sessions; the first one
// has not waited.
type handOver struct {
	watchers     []map[int64]bool // of each node
	watches      int
	turns, looks int // releases with a handoff, and lists
}

func handOvers(owners []int64) (o handOver) {
	for range owners {
		o.watchers = append(o.watchers, map[int64]bool{})
	}
	for i := 1; i < len(owners); i++ {
		if owners[i] == owners[i-1] { // it watches nothing
			o.turns++
			continue
		}
		for _, node := range []int{i, i - 1, i - 2} {
			if node >= 0 {
				o.watchers[node][owners[i]] = true
			}
		}
		if i > 1 {
			o.looks++
		}
	}
	for _, by := range o.watchers {
		o.watches += len(by)
	}
	return o
}

// F40, I8: a thousand wait and the holder's session expires. They are granted in the order of the
// queue. Only the next two in the queue, and the session that created a node, watch it. So a
// release wakes one waiter, and the one after it lists; all but the first list at most once. If the
// next waiter is of the same session, it gets a handoff, and no client lists.
func TestVirtual_ManyWaiters_HolderDies(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		long := zklock.WithSessionTimeout(10 * time.Minute) // no recheck for lost events
		holder := v.connect(long)
		h := acquire(t, newMutex(t, holder, "/job"))
		var c crowd
		for range crowdSessions {
			c.wait(t, newMutex(t, v.connect(long), "/job"))
		}
		time.Sleep(50 * time.Second) // after a minute the first of each session would look up the holder

		const waiters = crowdSessions * crowdEach
		nodes := v.srv.Children("/job")
		require.Len(t, nodes, waiters+1)
		slices.SortFunc(nodes, func(a, b string) int { return cmp.Compare(suffixOf(a), suffixOf(b)) })
		owners := make([]int64, len(nodes))
		for i, node := range nodes {
			st, _ := v.srv.Stat("/job/" + node)
			owners[i] = st.EphemeralOwner
		}
		require.Equal(t, base(h.Node()), nodes[0])
		want := handOvers(owners)
		for i, node := range nodes {
			watchers := map[int64]bool{}
			for _, w := range v.srv.Watches("/job/" + node) {
				watchers[w.Session] = true
			}
			require.Equal(t, want.watchers[i], watchers, "I8: who watches %s, the %dth", node, i)
		}
		require.Empty(t, v.srv.Watches("/job"), "I8")
		watches := len(v.srv.Watches())

		v.srv.ResetRequests()
		v.srv.ExpireSession(holder.Stats().SessionID)
		c.all.Wait()
		require.Len(t, c.granted, waiters)
		require.IsIncreasing(t, c.granted)
		counts := v.srv.Requests()
		t.Logf("%d hand-overs: %v", waiters, counts)
		require.Equal(t, want.turns, counts.Total(zktest.Multi), "and the holds are too short for heartbeats")
		require.Equal(t, waiters-want.turns, counts.Total(zktest.Delete))
		require.LessOrEqual(t, counts.Total(zktest.GetChildren), want.looks) // concurrent lists of one session are shared
		require.Zero(t, counts.Total(zktest.GetData, zktest.Create, zktest.Sync))
		require.Equal(t, watches, counts.Events, "I8: an event for each watch, and no watch was set")
		require.Empty(t, v.srv.Watches(), "I7")
		require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	}, zktest.WithConfig("minSessionTimeout=1000", "maxSessionTimeout=3600000"))
}

// R50, F30: the connection is lost at any time between two checks of the watches. No check follows
// right after the reconnect, when all have listed and the watches were just restored: no watch is
// set again, and no client lists once more.
func TestVirtual_ConnectionLost_NoCheckRightAfter(t *testing.T) {
	const timeout = 10 * time.Second
	for after := time.Duration(0); after < timeout; after += 250 * time.Millisecond {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect()
			m := newMutex(t, s, "/job")
			for range 5 {
				v.queueUp(m)
			}
			time.Sleep(timeout + after)
			v.srv.ResetRequests()
			require.True(t, v.srv.DropConnection(s.Stats().SessionID))
			time.Sleep(timeout)
			sent := v.srv.Requests()
			require.Equal(t, zklock.StateReconnected, s.Stats().State)
			require.LessOrEqual(t, sent.Of(s.Stats().SessionID, zktest.GetChildren), 2, "lost after %v", after)
			require.Zero(t, sent.Of(s.Stats().SessionID, zktest.GetData), "lost after %v", after)
			release(t, h)
		})
	}
}

// R69, I2, I4: the connection is lost while the responses to two hundred creates are awaited. The
// calls share the syncs and lists by which they find their nodes: a few, and a few more when
// missing nodes are looked for again.
func TestVirtual_CreatesLost_AreSearchedForTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		m := newMutex(t, s, "/job")
		_, err := m.TryAcquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrNotAcquired) // it has used the lock root
		const waiters = 200
		v.srv.Inject(zktest.After(zktest.Create).Session(s.Stats().SessionID).Nth(waiters / 2).DropReply().Close())
		v.srv.ResetRequests()
		var queue []*waiting
		for range waiters {
			queue = append(queue, startAcquire(t, m))
		}
		time.Sleep(8 * time.Second)
		require.Len(t, v.srv.Children("/job"), waiters+1, "I2, I4")
		sent := v.srv.Requests()
		syncs, lists := sent.Of(s.Stats().SessionID, zktest.Sync), sent.Of(s.Stats().SessionID, zktest.GetChildren)
		t.Logf("%d creates, %d syncs, %d lists", sent.Of(s.Stats().SessionID, zktest.Create), syncs, lists)
		require.LessOrEqual(t, syncs, 4)
		require.LessOrEqual(t, lists, 10)
		for _, w := range queue {
			w.stop()
			<-w.done
		}
		release(t, h)
	})
}

// R50, I8: the connection of a Session with many waiters is lost. It checks its watches again, and
// lists at most twice, regardless of the number of waiters: the number in the table of
// docs/performance.md. The next grants take no list.
func TestVirtual_ConnectionLost_ManyWait_ListsTwice(t *testing.T) {
	for _, waiters := range []int{20, 200} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			long := zklock.WithSessionTimeout(30 * time.Second)
			h := acquire(t, newMutex(t, v.connect(long), "/job"))
			s := v.connect(long)
			m := newMutex(t, s, "/job")
			var queue []*waiting
			for range waiters {
				queue = append(queue, v.queueUp(m))
				time.Sleep(10 * time.Millisecond)
			}
			sent := func(ops ...zktest.Op) int { return v.srv.Requests().Of(s.Stats().SessionID, ops...) }
			v.srv.ResetRequests()
			require.True(t, v.srv.DropConnection(s.Stats().SessionID))
			time.Sleep(5 * time.Second)
			require.Equal(t, zklock.StateReconnected, s.Stats().State)
			lists, watches := sent(zktest.GetChildren), sent(zktest.SetWatches)
			others := sent(zktest.GetData, zktest.Create, zktest.Delete, zktest.Sync)
			t.Logf("%d wait: %d lists, %d setWatches", waiters, lists, watches)
			require.Positive(t, lists)
			require.LessOrEqual(t, lists, 2, "%d wait", waiters)
			require.Equal(t, 1, watches)
			require.Zero(t, others)
			release(t, h)
			h = queue[0].granted2(t, time.Second)
			release(t, h)
			release(t, queue[1].granted2(t, time.Second))
			require.LessOrEqual(t, sent(zktest.GetChildren), lists+1, "the first was granted by a list, for its watch was restored")
		})
	}
}

// F30, F40: the cost of a quiet wait does not depend on the number of waiters. In each session
// timeout a node is read once, even if it is the own node of one waiter and the predecessor of the
// next, and no client lists. After the wait, there are no reads.
func TestVirtual_QuietWait_CostsOneReadANode(t *testing.T) {
	const timeout, quiet = 10 * time.Second, 10 * time.Minute
	for _, waiters := range []int{1, 200} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect()
			m := newMutex(t, s, "/job")
			var queue []*waiting
			for range waiters {
				queue = append(queue, v.queueUp(m))
			}
			time.Sleep(timeout)
			var looks atomic.Int32
			v.srv.Inject(zktest.Before(zktest.Exists).Path("/job/*").Call(func() { looks.Add(1) }).Optional())
			v.srv.ResetRequests()
			time.Sleep(quiet)
			sent := v.srv.Requests()
			require.Zero(t, sent.Of(s.Stats().SessionID, zktest.GetChildren, zktest.GetData, zktest.Sync), "%d wait", waiters)
			const rounds = int(quiet / timeout)
			t.Logf("%d wait: %d looks in %d rounds", waiters, looks.Load(), rounds)
			require.LessOrEqual(t, int(looks.Load()), (waiters+1)*rounds)
			require.Greater(t, int(looks.Load()), (waiters+1)*(rounds-2), "a round takes a little longer than the timeout")
			release(t, h)
			for _, w := range queue {
				release(t, w.granted2(t, time.Second))
			}
			time.Sleep(timeout)
			looks.Store(0)
			time.Sleep(time.Minute)
			require.Zero(t, looks.Load())
		})
	}
}

// F30: while the Session waits for one lock, the nodes of its holds are read once in ten session
// timeouts, because the heartbeat checks them as well.
func TestVirtual_QuietWait_HoldsAreReadSeldom(t *testing.T) {
	const timeout, quiet = 10 * time.Second, 10 * time.Minute
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other, s := v.connect(), v.connect()
		before := acquire(t, newMutex(t, other, "/held"))
		next := v.queueUp(newMutex(t, s, "/held"))
		release(t, before)
		h := next.granted2(t, time.Second) // it has waited, so it watches its node
		blocker := acquire(t, newMutex(t, other, "/job"))
		waiting := v.queueUp(newMutex(t, s, "/job"))
		var looks, waits atomic.Int32
		v.srv.Inject(zktest.Before(zktest.Exists).Path("/held/*").Call(func() { looks.Add(1) }))
		v.srv.Inject(zktest.Before(zktest.Exists).Path("/job/*").Call(func() { waits.Add(1) }))
		time.Sleep(quiet)
		require.InDelta(t, quiet/timeout/10, looks.Load(), 1)
		require.InDelta(t, 2*quiet/timeout, waits.Load(), 6)
		release(t, blocker)
		release(t, waiting.granted2(t, time.Second))
		release(t, h)
	})
}

// F29, I7: beyond the cap on a session's lock nodes, acquires fail with an error of its own, and
// the count remains correct in the long run.
func TestVirtual_MaxLockNodes_DoesNotDrift(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(zklock.WithMaxLockNodes(2)), "/job")
		for range 5 {
			h := acquire(t, m)
			w := v.queueUp(m)
			_, err := m.Acquire(within(t, soon))
			require.ErrorIs(t, err, zklock.ErrTooManyLockNodes)
			release(t, h)
			release(t, w.granted2(t, time.Second))
		}
	})
}

// F29: the reader's node of a writer counts like any other, whether the writer has released or not,
// and once: reading again under one write hold does not count twice. A released node does not
// count.
func TestVirtual_MaxLockNodes_CountsWritersThatRead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithMaxLockNodes(4))
		lock := func(i int) *zklock.RWMutex { return newRWMutex(t, s, fmt.Sprintf("/job/%d", i)) }
		for range 3 {
			var reads []*zklock.Hold
			for i := range 3 { // each leaves its reader's node
				w := acquire(t, lock(i).WriteLock())
				reads = append(reads, acquireIn(t, w.Context(), lock(i).ReadLock()))
				release(t, w)
			}
			w := acquire(t, lock(3).WriteLock())
			for range 2 {
				for _, enter := range []func(context.Context) (*zklock.Hold, error){lock(3).ReadLock().Acquire, lock(3).ReadLock().TryAcquire} {
					_, err := enter(w.Context())
					require.ErrorIs(t, err, zklock.ErrTooManyLockNodes)
				}
			}
			require.NoError(t, w.Err())
			release(t, reads[0])
			for range 3 { // the fourth node stays between
				release(t, acquireIn(t, w.Context(), lock(3).ReadLock()))
			}
			_, err := lock(0).ReadLock().Acquire(within(t, soon))
			require.ErrorIs(t, err, zklock.ErrTooManyLockNodes)
			for _, h := range append(reads[1:], w) {
				release(t, h)
			}
		}
	})
}
