package shards

// These tests attack a group whose members crash, are cut off, lose their sessions or come back, in
// virtual time. No shard may have two functions, few shards may move, and none may stay without an
// owner for long.

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// afterCrash is by when the shards of a member that crashed have owners: its session ends on a
// tick, and the planner waits a second.
const afterCrash = sessionTimeout + 2*tick + settle + 200*time.Millisecond

func TestVirtual_Crash(t *testing.T) {
	for _, at := range []time.Duration{0, 300 * time.Millisecond, tick / 2, 1700 * time.Millisecond} {
		inWorld(t, 256, func(t *testing.T, w *world) {
			w.started(8)
			time.Sleep(w.quiet + at)
			victim := w.procs[3]
			had, _ := w.loads()
			victim.crash()
			took := w.within(afterCrash, "crash", w.isEven)
			moves, gaps := w.reset()
			t.Logf("%v, without an owner %v, %v at most", took, median(gaps), longest(gaps))
			require.Equal(t, had[victim.name], moves)
			require.Greater(t, longest(gaps), sessionTimeout, "or it has not crashed")
			require.LessOrEqual(t, longest(gaps), afterCrash)
		})
	}
}

// Members are restarted one after the other. Their shards move to others and, at the end, back: N
// moves if the pauses are shorter than Quiet.
func TestVirtual_RollingRestart(t *testing.T) {
	const n, m = 400, 20
	restart := func(t *testing.T, pause time.Duration, rename bool) (moves int) {
		inWorld(t, n, func(t *testing.T, w *world) {
			w.started(m)
			if rename { // one more member first, so that there is always room
				w.join("new-00")
				w.within(w.quiet+time.Second, "one more", w.isEven)
			}
			for i, p := range append([]*proc(nil), w.procs[:m]...) {
				p.leave()
				name := p.name
				if rename {
					name = fmt.Sprintf("new-%02d", i+1)
				}
				if !rename || i < m-1 {
					w.join(name)
				}
				time.Sleep(pause)
				require.True(t, w.isComplete(), "after %s", p.name)
			}
			w.within(w.quiet+time.Second, "restart", w.isEven)
			var gaps []time.Duration
			moves, gaps = w.reset()
			t.Logf("%d moves, without an owner %v, %v at most", moves, median(gaps), longest(gaps))
			require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
			require.Empty(t, w.logs.about("has crashed"))
		})
		return moves
	}
	t.Run("5s between, new names", func(t *testing.T) { require.LessOrEqual(t, restart(t, 5*time.Second, true), n*115/100) })
	if testing.Short() {
		return
	}
	t.Run("1s between", func(t *testing.T) { require.LessOrEqual(t, restart(t, time.Second, false), n*115/100) })
	t.Run("5s between", func(t *testing.T) { require.LessOrEqual(t, restart(t, 5*time.Second, false), n*115/100) })
	t.Run("20s between", func(t *testing.T) { require.LessOrEqual(t, restart(t, 20*time.Second, false), 2*n) })
}

// The ways to deploy that docs/shards.md compares: each new member is started a second before an
// old one ends, or the members are restarted one by one, with pauses shorter or longer than Quiet.
func TestVirtual_Deploy(t *testing.T) {
	for _, size := range []struct{ n, m int }{{60, 3}, {500, 6}} {
		n, m := size.n, size.m
		for _, way := range []struct {
			name        string
			isSurge     bool
			pause       time.Duration
			moves, idle int // at most, but for a few
		}{
			{"surge", true, 5 * time.Second, n, n / m},
			{"one by one, 5 s between", false, 5 * time.Second, n + 2*n/m, n / (m - 1)},
			{"one by one, 30 s between", false, 30 * time.Second, 2 * n, n / m},
		} {
			t.Run(fmt.Sprintf("%d shards, %d members, %s", n, m, way.name), func(t *testing.T) {
				inWorld(t, n, func(t *testing.T, w *world) {
					w.started(m)
					time.Sleep(w.quiet + time.Second) // then all are ready
					w.mostIdle = 0
					for i, p := range append([]*proc(nil), w.procs...) {
						name := p.name
						if way.isSurge {
							name = fmt.Sprintf("new-%d", i)
							w.join(name)
							time.Sleep(time.Second)
						}
						p.leave()
						if !way.isSurge {
							w.join(name)
						}
						time.Sleep(way.pause)
						require.True(t, w.isComplete(), "after %s", name)
					}
					w.within(w.quiet+time.Second, "deployed", w.isEven)
					moves, gaps := w.reset()
					t.Logf("%d moves; %d of %d shards always had an owner; without one for %v, %v at most", moves, n-w.mostIdle, n, median(gaps), longest(gaps))
					require.InDelta(t, way.moves, moves, float64(m))
					require.InDelta(t, way.idle, w.mostIdle, 1)
					require.LessOrEqual(t, longest(gaps), 2*roundTrip)
				})
			})
		}
	}
}

// A member that comes and goes moves its shards away once, and gets shards again only when it
// stays.
func TestVirtual_Flapping(t *testing.T) {
	const n, m = 1000, 20
	inWorld(t, n, func(t *testing.T, w *world) {
		w.started(m)
		p := w.procs[7]
		for range 24 {
			p.leave()
			time.Sleep(3 * time.Second)
			p = w.join(p.name)
			time.Sleep(2 * time.Second)
		}
		w.within(w.quiet+time.Second, "flapping", w.isEven)
		moves, _ := w.reset()
		t.Logf("%d moves", moves)
		require.LessOrEqual(t, moves, n*22/10/m)
	})
}

// One session ends, and the member is back at once, in another session and under its name: nothing
// moves.
func TestVirtual_SessionLost_BackAtOnce(t *testing.T) {
	for _, what := range []string{"a member", "the planner"} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 256, func(t *testing.T, w *world) {
				w.started(8)
				p := w.planner()
				if what == "a member" {
					p = w.other(p)
				}
				p.loseSession()
				time.Sleep(100 * time.Millisecond)
				w.within(2*time.Second, "back", w.isEven)
				require.Empty(t, w.logs.about("has crashed"))
				moves, gaps := w.reset()
				t.Logf("without an owner %v, %v at most", median(gaps), longest(gaps))
				require.Zero(t, moves)
				require.NotEmpty(t, gaps)
				time.Sleep(w.quiet + time.Second)
				moves, _ = w.reset()
				require.Zero(t, moves)
			})
		})
	}
}

// other returns a process that is not this one.
func (w *world) other(p *proc) *proc {
	for _, o := range w.procs {
		if o != p {
			return o
		}
	}
	return nil
}

// All sessions end, and the members are back within 3 s: everybody keeps its shards.
func TestVirtual_AllSessionsLost(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	inWorld(t, 1000, func(t *testing.T, w *world) {
		w.started(20)
		// Eight come back at random moments of the first second, and twelve of the third. The pause is
		// longer than settle: that most are absent has to count for more. A pause of that length when
		// most are back would mean that the others have crashed.
		for i, place := range r.Perm(len(w.procs)) {
			p, back := w.procs[i], r.IntN(1000)
			if place >= 8 {
				back += 2000
			}
			w.net.Partition(p.host)
			p.loseSession()
			time.AfterFunc(time.Duration(back)*time.Millisecond, func() { w.net.Heal(p.host) })
		}
		time.Sleep(3 * time.Second)
		took := w.within(5*time.Second, "all back", w.isEven)
		moves, gaps := w.reset()
		t.Logf("all owned %v after the last is back; without an owner %v, %v at most", took, median(gaps), longest(gaps))
		require.Zero(t, moves)
	})
}

// requireOnePlanner fails if the plan was written by a session that was not the first in the queue
// of members.
func (w *world) requireOnePlanner() {
	w.t.Helper()
	alive := map[string]int64{} // the members' nodes, and their sessions
	plans := 0
	for _, a := range w.srv.History() {
		if len(a.Path) > len(groupPath+"/members/") && a.Path[:len(groupPath+"/members/")] == groupPath+"/members/" {
			switch a.Kind {
			case zktest.Created:
				if a.Path[len(groupPath+"/members/"):][:5] != leftPrefix {
					alive[a.Path] = a.Owner
				}
			case zktest.Deleted:
				delete(alive, a.Path)
			}
		}
		if a.Path == groupPath+"/plan" && a.Kind == zktest.DataSet && a.Session != 0 {
			plans++
			first := ""
			for node := range alive {
				if first == "" || sequence(node) < sequence(first) {
					first = node
				}
			}
			require.Equal(w.t, alive[first], a.Session, "%v while %v", a, alive)
		}
	}
	require.NotZero(w.t, plans)
}

// F59: whatever happens to the planner, the next one continues: no two members write plans, and
// orphans get owners.
func TestVirtual_Planner(t *testing.T) {
	plan := zktest.Before(zktest.Multi).Path(groupPath + "/plan").Once()
	for _, c := range []struct {
		what  string
		do    func(w *world, p *proc)
		owned time.Duration // by when all shards have owners again
	}{
		{"killed", func(w *world, p *proc) { p.crash() }, afterCrash},
		{"leaves", func(w *world, p *proc) { p.leave() }, time.Second},
		{"cut off", func(w *world, p *proc) {
			w.net.Partition(p.host)
			time.AfterFunc(2*sessionTimeout, func() { w.net.Heal(p.host) })
		}, 2*sessionTimeout + afterCrash},
		{"stopped while it writes, and goes on when its session has ended", func(w *world, p *proc) {
			stopped := w.srv.Inject(plan.Session(p.s.Stats().SessionID).Hold())
			w.other(p).leave()
			w.within(time.Second, "write", func() bool { return stopped.Fired() > 0 })
			time.AfterFunc(2*sessionTimeout, stopped.Release)
		}, 2*sessionTimeout + afterCrash},
		{"stopped while it writes, for a second", func(w *world, p *proc) {
			w.srv.Inject(plan.Session(p.s.Stats().SessionID).Delay(time.Second))
			w.other(p).leave()
		}, 3 * time.Second},
		{"its session ends while it writes", func(w *world, p *proc) {
			p.loseSession()
			w.srv.Inject(plan.Session(p.s.Stats().SessionID).Expire().Optional())
			w.other(p).leave()
		}, 4 * time.Second},
		{"its node is deleted while it writes", func(w *world, p *proc) {
			w.srv.Inject(plan.Session(p.s.Stats().SessionID).Call(func() {
				for _, c := range w.srv.Children(groupPath + "/members") {
					if st, ok := w.srv.Stat(groupPath + "/members/" + c); ok && st.EphemeralOwner == p.s.Stats().SessionID {
						_ = w.srv.Delete(groupPath + "/members/" + c)
					}
				}
			}))
			w.other(p).leave()
		}, 4 * time.Second},
		{"the reply to its write is lost", func(w *world, p *proc) {
			w.srv.Inject(zktest.After(zktest.Multi).Path(groupPath + "/plan").Once().DropReply().Close())
			w.other(p).leave()
		}, 3 * time.Second},
		{"its write is lost", func(w *world, p *proc) {
			w.srv.Inject(plan.Close())
			w.other(p).leave()
		}, 3 * time.Second},
		{"another client writes the plan at the same time", func(w *world, p *proc) {
			w.srv.Inject(plan.Call(func() {
				data, _ := w.srv.Get(groupPath + "/plan")
				require.NoError(w.t, w.srv.SetData(groupPath+"/plan", data))
			}))
			w.other(p).leave()
		}, 2 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			inWorld(t, 64, func(t *testing.T, w *world) {
				w.started(5)
				c.do(w, w.planner())
				time.Sleep(c.owned)
				w.within(100*time.Millisecond, "all are owned", w.isComplete) // a shard may be moving just then
				w.within(2*w.quiet+afterCrash, "even", w.isEven)
				_, gaps := w.reset()
				t.Logf("without an owner %v at most", longest(gaps))
				require.LessOrEqual(t, longest(gaps), c.owned)
				w.requireOnePlanner()
			})
		})
	}
}

// The planner and a member crash together.
func TestVirtual_PlannerAndMemberCrash(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.started(5)
		p := w.planner()
		w.other(p).crash()
		p.crash()
		w.within(afterCrash, "owned", w.isComplete)
		w.within(2*w.quiet, "even", w.isEven)
		w.requireOnePlanner()
	})
}

// A member is cut off for less than its session: nothing moves, and no function ends.
func TestVirtual_ShortCut(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.started(4)
		starts := w.starts
		for _, p := range w.procs {
			w.net.Partition(p.host)
			time.Sleep(time.Second)
			w.net.Heal(p.host)
		}
		time.Sleep(w.quiet + time.Second)
		require.True(t, w.isEven())
		require.Equal(t, starts, w.starts)
	})
}

// An event is lost: the change is noticed within a minute.
func TestVirtual_EventLost(t *testing.T) {
	for what, fault := range map[string]zktest.Fault{
		"of the plan":            zktest.OnEvent(zktest.NodeDataChanged).Path(groupPath + "/plan").Once(),
		"of the members":         zktest.OnEvent(zktest.NodeChildrenChanged).Path(groupPath + "/members").Once(),
		"of shards that must go": zktest.OnEvent(zktest.NodeChildrenChanged).Path(groupPath + "/shards/*"),
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 64, func(t *testing.T, w *world) {
				w.started(2)
				time.Sleep(w.quiet) // then they are ready, and look again once a minute
				p := w.join("new")
				// The others have to wait for it, because it reads the plan late.
				w.srv.Inject(zktest.OnEvent(zktest.NodeDataChanged).Session(p.s.Stats().SessionID).Delay(time.Second / 2).Optional())
				w.srv.Inject(fault.Drop())
				if what == "of the members" {
					w.join("another")
				}
				took := w.within(w.quiet+lookAgain+5*time.Second, "even", w.isEven)
				require.Greater(t, took, w.quiet+5*time.Second, "the event was not needed")
			})
		})
	}
}
