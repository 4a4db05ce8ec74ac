package zklockprom_test

// These tests attack the numbers of a group of shards: a shard that waits and does not show, a time
// that does not add up, a label that differs from the label of the group's locks.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/shards"
)

// joinGroup runs a member of a group until the test ends, and watches it.
func (v *virtual) joinGroup(path, name string, n int, f shards.Func) *zklock.Session {
	v.t.Helper()
	s := v.connect()
	g, err := shards.New(s, path, n, shards.WithMember(name, nil), shards.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(v.t, err)
	v.metrics.WatchGroup(g)
	v.metrics.WatchGroup(g) // once
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Run(ctx, f)
	}()
	v.t.Cleanup(func() { leave(); <-done })
	return s
}

func untilEnd(ctx context.Context, _ int, _ *zklock.Hold) error { <-ctx.Done(); return nil }

func TestVirtual_Group_ShowsItsStats(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other := v.connect()
		s := v.joinGroup("/jobs", "a", 4, untilEnd)
		time.Sleep(2 * time.Second)
		now := v.shown()
		of := func(name string) float64 { return now["zklock_shards_"+name+`{lock="/jobs"}`] }
		require.Equal(t, []float64{4, 4, 1, 4}, []float64{of("wanted"), of("working"), of("plans_total"), of("moves_total")})
		require.Equal(t, 1.0, now[`zklock_is_leader{lock="/jobs"}`], "it plans, under the same label")

		m := newMutex(t, other, "/jobs/shards/0000")
		waits := make(chan *zklock.Hold)
		go func() { h, _ := m.Acquire(context.Background()); waits <- h }()
		time.Sleep(time.Second)
		v.srv.ExpireSession(s.Stats().SessionID)
		h := <-waits
		time.Sleep(time.Minute)
		now = v.shown()
		require.Equal(t, []float64{4, 3, 4}, []float64{of("wanted"), of("working"), of("lost_total")})
		require.InDelta(t, 60, now[`zklock_shards_idle_seconds{lock="/jobs",reason="lost",shard="0"}`], 5)
		require.InDelta(t, 60, of("longest_wait_seconds"), 5)
		require.InDelta(t, 60, of("unserved_seconds_total"), 20)
		release(t, h)
		time.Sleep(time.Second)
		now = v.shown()
		require.Equal(t, []float64{4, 0}, []float64{of("working"), of("longest_wait_seconds")})
		require.Greater(t, of("unserved_seconds_total"), 55.0)
	})
}

// Idle shards have a series each, the 20 oldest of the process; a shard that just moves has none.
func TestVirtual_Group_IdleShards_FewSeries(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other, held := v.connect(), []*zklock.Hold{}
		for shard := range 30 {
			held = append(held, acquire(t, newMutex(t, other, fmt.Sprintf("/jobs/shards/%04d", shard))))
		}
		idle := func() (series int) {
			for s := range v.shown() {
				if strings.HasPrefix(s, "zklock_shards_idle_seconds{") {
					require.Contains(t, s, `lock="/jobs",reason="queued",shard="`)
					series++
				}
			}
			return series
		}
		v.joinGroup("/jobs", "a", 40, untilEnd)
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, 10.0, v.shown()[`zklock_shards_working{lock="/jobs"}`])
		require.Zero(t, idle(), "for half a second")
		time.Sleep(time.Second)
		require.Equal(t, 20, idle())
		for _, h := range held[:15] {
			release(t, h)
		}
		time.Sleep(time.Second)
		require.Equal(t, 15, idle())
	})
}

// Two members in one process are one line; another group is another.
func TestVirtual_Groups_AddedUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		for _, name := range []string{"a", "b"} {
			v.joinGroup("/jobs", name, 4, untilEnd)
		}
		v.joinGroup("/other", "a", 2, func(context.Context, int, *zklock.Hold) error { return errors.New("no") })
		v.joinGroup("/other", "a", 2, untilEnd) // with the same name
		time.Sleep(10 * time.Second)
		synctest.Wait()
		now := v.shown()
		require.Equal(t, 4.0, now[`zklock_shards{lock="/jobs"}`], "of the group, not of each member")
		require.Equal(t, []float64{4, 4, 0}, []float64{now[`zklock_shards_wanted{lock="/jobs"}`], now[`zklock_shards_working{lock="/jobs"}`], now[`zklock_shards_name_taken{lock="/jobs"}`]})
		require.Equal(t, 1.0, now[`zklock_shards_name_taken{lock="/other"}`])
		require.Equal(t, 2.0, now[`zklock_shards_wanted{lock="/other"}`])
	})
}

func TestWatchGroup_NilGroup_PanicsThere(t *testing.T) {
	require.Panics(t, func() { newMetrics().WatchGroup(nil) })
}
