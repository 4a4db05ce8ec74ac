package zklock_test

// This test injects random faults into an election. At most one candidate leads at a time, and when
// the faults stop, one does.

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I1, I5, I8: candidates are cut off for less and for longer than their sessions last, lose
// connections and responses, resign and return. No two lead at the same time, tokens grow, and in
// the end all campaign, one leads, and the observers agree on the leader.
func TestVirtual_Election_RandomFaults_OneLeader(t *testing.T) {
	randomWorlds(t, 0, 5, func(t *testing.T, v *virtual, r *random) {
		seed := r.seed
		v.net.SetLatency(time.Millisecond)
		var leading atomic.Int32
		var last, reigns atomic.Int64
		lead := func(ctx context.Context, hold *zklock.Hold) error {
			if n := leading.Add(1); n != 1 {
				t.Errorf("seed %d: I1: %d lead", seed, n)
			}
			defer leading.Add(-1)
			if before := last.Swap(hold.Token()); before >= hold.Token() {
				t.Errorf("seed %d: I1: token %d after %d", seed, hold.Token(), before)
			}
			reigns.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		ended := make(chan struct{}, 4)
		lines := make([]*line, 4)
		var sessions []*zklock.Session
		var all []*zklock.Election
		for i := range lines {
			lines[i] = &line{dial: v.net.Dial}
			s := v.connect(zklock.WithDialer(lines[i].Dial))
			e := newElection(t, s, "/job", fmt.Sprint("c", i))
			sessions, all = append(sessions, s), append(all, e)
			go func() {
				for ctx.Err() == nil { // after a resignation it campaigns again
					_ = e.Campaign(ctx, lead)
				}
				ended <- struct{}{}
			}()
		}
		seen := []*observer{v.observe(all[0]), v.observe(newElection(t, v.connect(), "/job", "o"))}
		resigned, cut := 0, 0
		for range 150 {
			i := r.intN(len(all))
			switch r.intN(5) {
			case 0:
				lines[i].silent.Store(true)
				cut++
				r.strikes()
			case 1:
				lines[i].silent.Store(false)
			case 2:
				v.srv.DropConnection(sessions[i].SessionID())
				r.strikes()
			case 3:
				if all[i].Resign(within(t, time.Second)) == nil {
					resigned++
					r.strikes()
				}
			case 4:
				op := []zktest.Op{zktest.Create, zktest.Delete, zktest.Multi, zktest.GetChildren, zktest.GetData}[r.intN(5)]
				f := zktest.After(op).DropReply()
				if r.intN(2) == 0 {
					f = zktest.Before(op)
				}
				r.injectsAt(v.srv, sessions[i], f.Close())
			}
			time.Sleep(r.atPace(8 * time.Second))
		}
		r.ends()
		for i := range lines {
			lines[i].silent.Store(false)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if *randomHours == 0 {
			t.Logf("seed %d: %d leaders, %d resigned, %d cut off", seed, reigns.Load(), resigned, cut)
		}
		require.Greater(t, reigns.Load(), int64(2), "seed %d", seed)
		require.EqualValues(t, 1, leading.Load(), "seed %d", seed)
		require.Len(t, v.srv.Children("/job"), len(all), "I4, seed %d", seed)
		leader, err := all[0].Leader(within(t, soon))
		require.NoError(t, err)
		require.Equal(t, last.Load(), leader.Token)
		for _, o := range seen {
			require.Equal(t, leader.Node, o.last().Node, "seed %d", seed)
		}
		stop()
		for range all {
			<-ended
		}
		require.Empty(t, v.srv.Children("/job"), "I4, seed %d", seed)
	})
}
