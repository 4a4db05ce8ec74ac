package shards

// These tests attack what a group promises when members join, leave and fail, in virtual time.

import (
	"flag"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// A join moves the new member's part, a leave what the leaving member had, and a move is short.
func TestVirtual_JoinAndLeave(t *testing.T) {
	for _, c := range []struct{ n, m, join int }{{256, 8, 28}, {1000, 20, 47}} {
		t.Run(fmt.Sprintf("%d over %d", c.n, c.m), func(t *testing.T) {
			inWorld(t, c.n, func(t *testing.T, w *world) {
				began := time.Now()
				w.started(c.m)
				t.Logf("start: %v", time.Since(began))
				time.Sleep(w.quiet) // then all are ready

				w.srv.ResetRequests()
				lists := w.countMemberLists()
				joined := w.join("new")
				took := w.within(w.quiet+time.Second, "join", w.isEven)
				moves, gaps := w.reset()
				t.Logf("join: %v, %d moves, without an owner %v, %v at most; %d lists of the members; %v", took, moves, median(gaps), longest(gaps),
					lists.Fired(), w.srv.Requests())
				require.Equal(t, c.join, moves)
				require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
				require.LessOrEqual(t, lists.Fired(), 5)

				w.reset()
				w.srv.ResetRequests()
				listed := lists.Fired()
				had, _ := w.loads()
				began = time.Now()
				joined.leave()
				took = time.Since(began)
				w.within(time.Second, "leave", w.isEven)
				moves, gaps = w.reset()
				require.LessOrEqual(t, took, 200*time.Millisecond, "it waits for the others to take over, and they do at once")
				t.Logf("leave: %v, %d moves, without an owner %v, %v at most; %d lists of the members; %v", took, moves, median(gaps), longest(gaps),
					lists.Fired()-listed, w.srv.Requests())
				require.LessOrEqual(t, lists.Fired()-listed, 5)
				require.Equal(t, had["new"], moves)
				require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
			})
		})
	}
}

// countMemberLists counts the lists of the members from now on.
func (w *world) countMemberLists() *zktest.Injection {
	return w.srv.Inject(zktest.Before(zktest.GetChildren).Path(groupPath + "/members").Call(func() {}))
}

// Half of the members see each plan half a second late. The previous owners continue to work
// meanwhile.
func TestVirtual_LateReaders(t *testing.T) {
	inWorld(t, 256, func(t *testing.T, w *world) {
		w.started(8)
		for i, p := range w.procs {
			if i%2 == 0 {
				w.srv.Inject(zktest.OnEvent(zktest.NodeDataChanged).Path(groupPath + "/plan").Session(p.s.Stats().SessionID).Delay(time.Second / 2).Optional())
			}
		}
		w.procs[1].leave()
		w.within(3*time.Second, "leave", w.isEven)
		moves, gaps := w.reset()
		t.Logf("%d moves, without an owner %v, %v at most", moves, median(gaps), longest(gaps))
		require.Equal(t, 32, moves)
		require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
		w.join("new")
		w.within(w.quiet+3*time.Second, "join", w.isEven)
		_, gaps = w.reset()
		require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
	})
}

// No server answers when the member leaves: Run ends all the same, when the holds have.
func TestVirtual_Leave_NoServer(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.started(3)
		p := w.procs[1]
		w.net.Partition(p.host)
		began := time.Now()
		p.cancel()
		<-p.done
		t.Logf("after %v", time.Since(began))
		require.LessOrEqual(t, time.Since(began), 2*sessionTimeout)
		p.crash()
	})
}

// I7: in a group that is at rest nothing grows, and little is sent.
func TestVirtual_AtRest(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.started(4)
		w.join("new")
		w.within(w.quiet+time.Second, "join", w.isEven)
		time.Sleep(time.Minute)
		synctest.Wait()
		watches := func() (n int) {
			for _, p := range w.procs {
				all := reflect.ValueOf(p.s.Conn()).Elem().FieldByName("watchers")
				for i := all.MapRange(); i.Next(); {
					n += i.Value().Len()
				}
			}
			return n
		}
		alive := func() int {
			runtime.GC() // or up to thirty that have returned may be counted: see atMost in package test
			return runtime.NumGoroutine()
		}
		before, goroutines := watches(), alive()
		w.srv.ResetRequests()
		time.Sleep(time.Hour)
		synctest.Wait()
		counts := w.srv.Requests()
		t.Logf("an hour, 5 members, 64 shards: %v; %d watches, %d goroutines", counts, before, goroutines)
		require.Equal(t, before, watches())
		require.LessOrEqual(t, alive(), goroutines+2)
		require.LessOrEqual(t, counts.Total(zktest.GetChildren), 60+2, "the planner looks at the members")
	})
}

var large = flag.Bool("shards.large", false, "run TestVirtual_Large, with 1,000 members and 10,000 shards")

// 1,000 members and 10,000 shards: a change costs few lists of the members, and the plan stays
// short.
func TestVirtual_Large(t *testing.T) {
	if !*large {
		t.Skip("takes minutes: -shards.large")
	}
	inWorld(t, 10_000, func(t *testing.T, w *world) {
		w.session = []zklock.Option{zklock.WithMaxLockNodes(10_001)}
		w.joinAll(1000)
		w.within(time.Minute, "start", w.isEven)
		for _, what := range []string{"join", "leave"} {
			time.Sleep(2 * w.quiet)
			w.reset()
			w.srv.ResetRequests()
			lists := w.countMemberLists()
			if what == "join" {
				w.join("new-member")
			} else {
				w.procs[500].leave()
			}
			took := w.within(w.quiet+5*time.Second, what, w.isEven)
			time.Sleep(time.Second)
			moves, gaps := w.reset()
			counts := w.srv.Requests()
			plan, _ := w.srv.Get(groupPath + "/plan")
			t.Logf("%s: %v, %d moves, without an owner %v, %v at most; plan of %d bytes; %d lists of the members; %v", what, took, moves,
				median(gaps), longest(gaps), len(plan), lists.Fired(), counts)
			require.LessOrEqual(t, lists.Fired(), 6, "three by the planner, one by the member that leaves, one by each of the two behind it")
			require.LessOrEqual(t, len(plan), maxPlan)
		}
	})
}
