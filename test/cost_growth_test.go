package zklock_test

// These tests repeat operations many times: no goroutine, watch or memory remains (I7).

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// R8, R7, R16, R25, I7: ten thousand contended cycles, most of which fail in some way. Goroutines,
// watches and the memory of the Session and the client do not grow.
func TestVirtual_TenThousandCycles_GrowNothing(t *testing.T) {
	once := func(f zktest.Fault) zktest.Fault { return f.Once().Optional() }
	each := []zktest.Fault{ // a round
		once(zktest.Before(zktest.Create).Fail(quotaExceeded)),
		zktest.Before(zktest.GetChildren).Fail(zktest.NoAuth).Times(2).Optional(), // the one in the create's flight, and the next
		once(zktest.Before(zktest.GetData).Fail(badArguments)),
	}
	some := []zktest.Fault{ // one in ten rounds
		once(zktest.Before(zktest.Create).Fail(zktest.OperationTimeout)),
		once(zktest.After(zktest.Create).Fail(zktest.OperationTimeout)),
		once(zktest.After(zktest.Create).DropReply().Close()),
		once(zktest.Before(zktest.GetData).Close()),
		once(zktest.Before(zktest.Delete).Fail(zktest.OperationTimeout)),
	}
	expires := once(zktest.After(zktest.GetChildren).Expire())
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other, s := v.connect(), v.connect()
		mOther, m := newMutex(t, other, "/job"), newMutex(t, s, "/job")
		cycles, rounds := 0, 0
		struck := map[string]int{}
		round := func() {
			faults := each
			if rounds%10 == 0 {
				faults = append(each[:2:2], some[rounds/10%len(some)]) // of the reads, there may be no second
			}
			if rounds%50 == 5 && rounds < 400 { // then there is one session, in which things can pile up
				faults = append(faults[:len(faults):len(faults)], expires)
			}
			rounds++
			var injected []*zktest.Injection
			for _, f := range faults {
				injected = append(injected, v.srv.Inject(f.Session(s.Stats().SessionID)))
			}
			h := acquire(t, mOther)
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
					defer cancel()
					enter := m.Acquire
					if i%2 == 0 {
						enter = m.TryAcquire
					}
					if h, err := enter(ctx); err == nil {
						t.Errorf("I1: %s while another holds", h.Node())
					}
				})
			}
			all.Wait()
			remove := func(i int) {
				struck[faults[i].String()] += injected[i].Fired()
				injected[i].Remove()
			}
			for i := range injected[:len(injected)-1] {
				remove(i)
			}
			time.Sleep(20 * time.Millisecond)
			var w *waiting
			if rounds%10 == 1 { // one of some, each of which a waiter survives: it sets watches, as not every waiter has
				w = v.queueUp(m)
				remove(len(injected) - 1)
			} else {
				remove(len(injected) - 1)
				w = v.queueUp(m)
			}
			release(t, h)
			release(t, w.granted2(t, time.Minute))
			cycles += 12
		}
		settle := func() {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		for range 50 {
			round()
		}
		settle()
		heapBefore, watches, memory, goroutines := heap(), len(v.srv.Watches()), footprint(s), runtime.NumGoroutine()
		for cyclesBefore := cycles; cycles < cyclesBefore+10_000; {
			round()
		}
		settle()
		growth := (heap() - heapBefore) / 10_000
		t.Logf("%d cycles, %d bytes each, most of them the server's history; struck: %v", cycles, growth, struck)
		require.Len(t, v.srv.Watches(), watches)
		require.Equal(t, memory, footprint(s))
		atMost(t, goroutines, "goroutines")
		require.Empty(t, v.srv.Children("/job"))
		require.Less(t, growth, int64(1<<10))
		for fault, n := range struck {
			require.GreaterOrEqual(t, n, 5, fault)
		}
	})
}

// I7, F29: a waiter does not keep the list that showed its position: the cost of many waiters grows
// with their number, not with its square.
func TestVirtual_ManyWaiters_KeepNoLists(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const many = 600
		s := v.connect()
		m := newMutex(t, s, "/job")
		h := acquire(t, m)
		before := heap()
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range many { // one after the other: each has a list of its own
			all.Go(func() { _, _ = m.Acquire(ctx) })
			synctest.Wait()
		}
		each := (heap() - before) / many
		t.Logf("%d bytes a waiter, server and client together", each)
		require.Less(t, each, int64(16<<10), "a list of this queue has %d bytes at the end", many*60)
		cancel()
		all.Wait()
		release(t, h)
	})
}
