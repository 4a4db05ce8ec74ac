package shards

// These tests attack the number of shards, which all members must agree on, and what an observer
// sees of a group, in virtual time.

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// A member with another number of shards is rejected, and nothing moves.
func TestVirtual_OtherNumber(t *testing.T) {
	inWorld(t, 256, func(t *testing.T, w *world) {
		w.started(3)
		p := w.joinWith("m512", nil, 512)
		w.within(time.Second, "rejected", func() bool { return isClosed(p.done) })
		require.ErrorIs(t, p.err, ErrShardCount)
		require.ErrorContains(t, p.err, "256")
		p.gone()
		p.s.Close()
		w.steady("after a member with another number")
	})
}

// SetShards is rejected while a member is present or still works, and the new number counts
// afterwards.
func TestVirtual_SetShards(t *testing.T) {
	inWorld(t, 16, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		admin, err := New(s, groupPath, 1)
		require.NoError(t, err)
		was, err := admin.SetShards(w.t.Context(), 8)
		require.NoError(t, err)
		require.Zero(t, was)
		was, err = admin.SetShards(w.t.Context(), 16)
		require.NoError(t, err)
		require.Equal(t, 8, was)

		w.started(2)
		_, err = admin.SetShards(w.t.Context(), 32)
		require.ErrorIs(t, err, ErrMembers)
		w.steady("after SetShards was rejected")

		w.return_ = func(int) time.Duration { return time.Minute }
		for _, p := range w.procs {
			p.cancel()
		}
		time.Sleep(30 * time.Second)
		_, err = admin.SetShards(w.t.Context(), 32)
		require.ErrorIs(t, err, ErrMembers, "functions still work")
		for _, p := range w.procs {
			<-p.done
			p.s.Close()
		}
		w.procs = nil
		_, err = admin.SetShards(w.t.Context(), 32)
		require.NoError(t, err)
		_, err = admin.Holder(w.t.Context(), 31)
		require.NoError(t, err)

		p := w.join("old") // with 16
		<-p.done
		require.ErrorIs(t, p.err, ErrShardCount)
		p.gone()
		p.s.Close()
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		defer cancel()
		shards := make(chan int, 100)
		require.ErrorIs(t, admin.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
			shards <- shard
			<-ctx.Done()
			return nil
		}), context.DeadlineExceeded)
		require.Len(t, shards, 32)
	})
}

// A member that leaves loses its session while its functions return: SetShards is still rejected.
func TestVirtual_SetShards_WhileAMemberLeaves(t *testing.T) {
	inWorld(t, 16, func(t *testing.T, w *world) {
		w.started(1)
		w.return_ = func(int) time.Duration { return time.Minute }
		p := w.procs[0]
		p.cancel()
		time.Sleep(time.Second)
		w.srv.ResetRequests()
		time.Sleep(9 * time.Second)
		require.Zero(t, w.srv.Requests().Total(zktest.Create), "the node that shows it exists")
		p.loseSession()
		time.Sleep(5 * time.Second)
		s, _ := w.connect()
		defer s.Close()
		admin, err := New(s, groupPath, 1)
		require.NoError(t, err)
		_, err = admin.SetShards(t.Context(), 32)
		require.ErrorIs(t, err, ErrMembers)
		<-p.done
		_, err = admin.SetShards(t.Context(), 32)
		require.NoError(t, err)
	})
}

// The number of shards changes between a member's look and its node below PATH/members: it is
// rejected before it plans or works.
func TestVirtual_SetShards_WhileAMemberJoins(t *testing.T) {
	inWorld(t, 16, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		admin, err := New(s, groupPath, 16)
		require.NoError(t, err)
		_, err = admin.SetShards(w.t.Context(), 16)
		require.NoError(t, err)
		w.srv.Inject(zktest.Before(zktest.Multi).Path(groupPath + "/members/*").Once().Delay(3 * time.Second))
		p := w.join("m")
		time.Sleep(time.Second)
		_, err = admin.SetShards(w.t.Context(), 32)
		require.NoError(t, err)
		w.within(5*time.Second, "rejected", func() bool { return isClosed(p.done) })
		require.ErrorIs(t, p.err, ErrShardCount)
		require.Zero(t, w.starts)
	})
}

// Observe reports each change, and ends with its context; Holder and Stats agree with it.
func TestVirtual_Observe(t *testing.T) {
	inWorld(t, 16, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		g, err := New(s, groupPath, 16)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(w.t.Context())
		seen, ended := make(chan Assignment, 100), make(chan error, 1)
		go func() {
			for a, err := range g.Observe(ctx) {
				if err != nil {
					ended <- err
					continue
				}
				seen <- a
			}
			close(ended)
		}()
		require.Zero(t, (<-seen).Shards(), "there is no group yet")
		w.started(2)
		a := <-seen
		if a.Shards() == 0 { // the group has been created
			a = <-seen
		}
		require.Equal(t, 16, a.Shards())
		require.Len(t, a.Members, 2)
		for shard := range 16 {
			m, ok := a.Owner(shard)
			require.True(t, ok)
			require.Equal(t, "data of "+m.Name, string(m.Data))
			h, err := g.Holder(ctx, shard)
			require.NoError(t, err)
			require.Equal(t, m.Name, string(h.Data))
			require.NotZero(t, h.Token)
		}
		_, ok := a.Owner(16)
		require.False(t, ok)
		planner := w.planner().g.Stats()
		require.EqualValues(t, 1, planner.Plans)
		require.EqualValues(t, 16, planner.Moves)
		require.Equal(t, a.Version, planner.PlanVersion)
		require.Equal(t, 8, planner.Working)
		require.Equal(t, Stats{Name: g.o.name, PlanVersion: -1}, g.Stats())

		for _, p := range w.procs[:1] {
			p.leave()
		}
		require.Len(t, (<-seen).Members, 1)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		_, more := <-ended
		require.False(t, more)
	})
}

// All nodes have the ACL of WithACL, and containers of shards that are no more are removed.
func TestVirtual_ACLAndContainer(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		s, _ := w.connect(zklock.WithDigest("orders", "secret"))
		defer s.Close()
		acl := zk.DigestACL(zk.PermAll, "orders", "secret")
		g, err := New(s, groupPath, 4, WithACL(acl), WithContainer(), WithLogger(w.logger()))
		require.NoError(t, err)
		var hasEnded atomic.Bool
		run := func(work Func) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.ErrorIs(t, g.Run(ctx, work), context.DeadlineExceeded)
		}
		run(func(ctx context.Context, shard int, hold *zklock.Hold) error {
			for _, path := range []string{"", "/members", "/plan", "/shards", "/shards/0003"} {
				got, _, err := s.Conn().GetACL(groupPath + path)
				assert.NoError(t, err)
				assert.Equal(t, acl, got, path)
			}
			hasEnded.Store(true)
			<-ctx.Done()
			return nil
		})
		require.True(t, hasEnded.Load())
		_, err = g.SetShards(t.Context(), 2)
		require.NoError(t, err)
		run(func(ctx context.Context, shard int, hold *zklock.Hold) error {
			<-ctx.Done()
			return nil
		})
		time.Sleep(5 * time.Minute)
		require.Empty(t, w.srv.Children(groupPath+"/shards"))
		require.ElementsMatch(t, []string{"members", "plan", "shards"}, w.srv.Children(groupPath))
	})
}

// Members that would make the plan too long get no shards; the others are not affected.
func TestVirtual_PlanTooLong(t *testing.T) {
	inWorld(t, 10, func(t *testing.T, w *world) {
		w.started(2)
		s, _ := w.connect()
		defer s.Close()
		for i := range 200 { // nodes as members make them, later in the queue
			data := fmt.Sprintf(`{"name":"big-%03d","weight":1,"id":"%d","shards":10,"data":"%s"}`, i, i, strings.Repeat("AAAA", 340))
			_, err := s.Conn().Create(groupPath+"/members/_c_x-lock-", []byte(data), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			_, err = s.Conn().Create(fmt.Sprint(groupPath+"/members/", readyPrefix, i), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		time.Sleep(w.quiet + time.Second)
		data, _ := w.srv.Get(groupPath + "/plan")
		p, err := parsePlan(data, w.n)
		require.NoError(t, err)
		require.LessOrEqual(t, len(data), maxPlan)
		require.InDelta(t, 185, len(p.Members), 10)
		require.NotEmpty(t, w.logs.about("the plan would be too long"))
	})
}
