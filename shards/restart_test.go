package shards

// These tests attack a group by what operators do to it, in virtual time: restarts, SetShards while
// a member is cut off, a prune, a revocation.

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R129: a member is cut off while SetShards doubles the number. When it is back, none of its
// functions runs beside those of the new number, whenever it comes.
func TestVirtual_SetShards_WhileAMemberIsCutOff(t *testing.T) {
	for _, back := range []time.Duration{-3 * time.Second, -time.Second, -500 * time.Millisecond, 0, 500 * time.Millisecond,
		900 * time.Millisecond, 1100 * time.Millisecond, 3 * time.Second} { // after the new member's start
		t.Run(back.String(), func(t *testing.T) {
			inWorld(t, 16, func(t *testing.T, w *world) {
				var after time.Time // of SetShards
				late := 0
				old := w.joinWith("old", func(ctx context.Context, shard int, hold *zklock.Hold) error {
					if !after.IsZero() {
						late++
					}
					<-ctx.Done()
					return nil
				}, 8)
				time.Sleep(5 * time.Second)
				require.Equal(t, 8, old.g.Stats().Working)
				w.net.Partition(old.host)
				time.Sleep(2*sessionTimeout + 2*tick)
				s, _ := w.connect()
				defer s.Close()
				admin, err := New(s, groupPath, 8)
				require.NoError(t, err)
				_, err = admin.SetShards(t.Context(), 16)
				require.NoError(t, err)
				after = time.Now()
				if back < 0 {
					w.net.Heal(old.host)
					time.Sleep(-back)
				}
				p := w.join("new")
				if back >= 0 {
					time.Sleep(back)
					w.net.Heal(old.host)
				}
				w.within(20*time.Second, "rejected", func() bool { return isClosed(old.done) })
				require.ErrorIs(t, old.err, ErrShardCount)
				old.gone()
				old.s.Close()
				w.within(10*time.Second, "the new number", func() bool { return p.g.Stats().Working == 16 })
				require.Zero(t, late)
			})
		})
	}
}

// R129: the number changes back while a member is cut off. The plan is empty, and it works on
// nothing until there is a new one.
func TestVirtual_SetShards_AndBack_WhileAMemberIsCutOff(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		p := w.join("m")
		time.Sleep(5 * time.Second)
		w.net.Partition(p.host)
		time.Sleep(2*sessionTimeout + 2*tick)
		s, _ := w.connect()
		defer s.Close()
		admin, err := New(s, groupPath, 8)
		require.NoError(t, err)
		for _, n := range []int{16, 8} {
			_, err = admin.SetShards(t.Context(), n)
			require.NoError(t, err)
		}
		starts := w.starts
		w.srv.Inject(zktest.Before(zktest.Multi).Path(groupPath + "/plan").Once().Delay(time.Second)) // the planner's write
		w.net.Heal(p.host)
		w.within(10*time.Second, "back", func() bool { return len(w.srv.Children(groupPath+"/members")) == 2 })
		time.Sleep(900 * time.Millisecond)
		require.Equal(t, starts, w.starts)
		w.within(5*time.Second, "complete", w.isComplete)
	})
}

// R130: parts of an idle group have been pruned.
func TestVirtual_SetShards_AfterAPrune(t *testing.T) {
	for _, gone := range [][]string{{"/plan"}, {"/members"}, {"/shards"}, {"/plan", "/members", "/shards"}} {
		t.Run(strings.Join(gone, " "), func(t *testing.T) {
			inWorld(t, 16, func(t *testing.T, w *world) {
				s, _ := w.connect()
				defer s.Close()
				admin, err := New(s, groupPath, 8)
				require.NoError(t, err)
				_, err = admin.SetShards(t.Context(), 8)
				require.NoError(t, err)
				for _, part := range gone {
					require.NoError(t, w.srv.Delete(groupPath+part))
				}
				was, err := admin.SetShards(t.Context(), 16)
				require.NoError(t, err)
				require.Equal(t, 8, was)
				w.started(2)
			})
		})
	}
}

// R130: a group is stopped and started again, and no member claims that another has its name.
func TestVirtual_Restart_NoWarning(t *testing.T) {
	for _, how := range []string{"in order", "by SIGKILL, and their sessions are ended", "alone"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, 30, func(t *testing.T, w *world) {
				m := 3
				if how == "alone" {
					m = 1
				}
				w.started(m)
				for range m {
					p := w.procs[0]
					if how == "in order" || how == "alone" {
						p.leave()
					} else {
						p.loseSession() // as the next process does, which has the same session file
						p.crash()
					}
				}
				w.joinAll(m)
				w.within(5*time.Second, "complete", w.isComplete)
				time.Sleep(w.quiet)
				require.Empty(t, w.logs.about("another member has this name"))
				for _, p := range w.procs {
					require.False(t, p.g.Stats().NameTaken)
				}
			})
		})
	}
}

// R130, I7: a shard that is not wanted and for which no client queues does not cost a watch more
// each minute.
func TestVirtual_Unwanted_NoMoreWatches(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		p := w.join("m")
		w.within(3*time.Second, "start", w.isComplete)
		w.srv.Inject(zktest.Before(zktest.Create).Path(groupPath + "/shards/0003/*").Fail(zktest.NoAuth)) // of the next owner
		w.join("new")
		w.within(w.quiet+5*time.Second, "unwanted", func() bool { return p.g.Stats().Unwanted == 1 })
		time.Sleep(10 * time.Second)
		watches := w.srv.Watches()
		require.NotEmpty(t, watches)
		w.srv.ResetRequests()
		time.Sleep(20 * time.Minute)
		require.Len(t, w.srv.Watches(), len(watches))
		require.GreaterOrEqual(t, w.srv.Requests().Total(zktest.GetChildren), 20, "it still looks")
	})
}

// R130: a member returns under its name with weight 0, which has no shards.
func TestVirtual_Weight_0_OfAnEarlierOwner(t *testing.T) {
	inWorld(t, 30, func(t *testing.T, w *world) {
		w.started(3)
		p := w.procs[2]
		p.crash()
		p.w.srv.ExpireSession(p.s.Stats().SessionID)
		q := w.join(p.name, WithWeight(0))
		w.within(10*time.Second, "without it", func() bool { loads, free := w.loads(); return free == 0 && loads[q.name] == 0 })
		require.Equal(t, 0, q.g.Stats().Wanted)
	})
}

// R130: the only delete of the node of a member that leaves fails.
func TestVirtual_Leave_ItsNodeIsDeleted(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		w.started(2)
		p := w.procs[1]
		w.srv.Inject(zktest.Before(zktest.Delete).Path(groupPath + "/members/left-*").Once().Close())
		p.cancel()
		<-p.done
		require.Len(t, w.srv.Children(groupPath+"/members"), 2)
		p.gone()
		p.s.Close()
	})
}

// R130: the response to a write of the member's state is lost, and it leaves. Nothing of it remains
// that keeps SetShards out.
func TestVirtual_Leave_ResponseLost(t *testing.T) {
	for _, state := range []string{newPrefix, readyPrefix} {
		t.Run(state, func(t *testing.T) {
			inWorld(t, 4, func(t *testing.T, w *world) {
				s, _ := w.connect()
				defer s.Close()
				g, err := New(s, groupPath, 4, WithLogger(w.logger()))
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				w.srv.Inject(zktest.After(zktest.Multi).Path(groupPath + "/members/" + state + "*").Once().Call(cancel).DropReply().Close())
				_ = g.Run(ctx, func(ctx context.Context, _ int, _ *zklock.Hold) error { <-ctx.Done(); return nil })
				require.Empty(t, w.srv.Children(groupPath+"/members"))
				_, err = g.SetShards(t.Context(), 8)
				require.NoError(t, err)
			})
		})
	}
}

// R130: a revocation of the planner has another member plan, and the planner's data are in the
// queue again.
func TestVirtual_RevokedPlanner(t *testing.T) {
	inWorld(t, 30, func(t *testing.T, w *world) {
		w.started(3)
		time.Sleep(w.quiet + time.Second)
		p := w.planner()
		starts := w.starts
		s, _ := w.connect()
		defer s.Close()
		e, err := zklock.NewElection(s, groupPath+"/members")
		require.NoError(t, err)
		first, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Revoke(t.Context(), first.Node))
		w.within(3*time.Second, "another one plans", func() bool { q := w.planner(); return q != nil && q != p })
		time.Sleep(3 * time.Second)
		candidates, err := e.Candidates(t.Context())
		require.NoError(t, err)
		require.Len(t, candidates, 3)
		for _, c := range candidates {
			var m candidate
			require.NoError(t, json.Unmarshal(c.Data, &m))
		}
		require.Equal(t, starts, w.starts, "a shard has moved")
	})
}

// R130: more shards than the Session may have lock nodes are rejected with both numbers.
func TestVirtual_New_TooFewLockNodes(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		s, _ := w.connect(zklock.WithMaxLockNodes(64))
		defer s.Close()
		_, err := New(s, groupPath, 64)
		require.ErrorContains(t, err, "64 shards are 65 lock nodes")
		require.ErrorContains(t, err, "may have 64")
		_, err = New(s, groupPath, 63)
		require.NoError(t, err)
	})
}

// A member reports which of its shards have no function that works, since when and why.
func TestVirtual_Stats_Idle(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		g, err := New(s, groupPath, 8)
		require.NoError(t, err)
		_, err = g.SetShards(t.Context(), 8)
		require.NoError(t, err)
		m, err := zklock.NewMutex(s, groupPath+"/shards/0002")
		require.NoError(t, err)
		_, err = m.Acquire(t.Context())
		require.NoError(t, err)
		_, err = s.Conn().Create(groupPath+"/shards/0005", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(t, err)
		p := w.join("m")
		w.within(3*time.Second, "the others", func() bool { return p.g.Stats().Working == 6 })
		time.Sleep(time.Minute)
		st := p.g.Stats()
		require.Equal(t, 8, st.Shards)
		require.Equal(t, 1, st.Rejected)
		require.Len(t, st.Idle, 2)
		require.Equal(t, []any{2, "queued", 5, "rejected"}, []any{st.Idle[0].Shard, st.Idle[0].Reason, st.Idle[1].Shard, st.Idle[1].Reason})
		require.InDelta(t, time.Minute, time.Since(st.Idle[0].Since), float64(time.Second))
	})
}
