package shards

// These tests attack what Inspect reads of a group: a shard or a member that it leaves out, and a
// path that is no group, in virtual time.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// Inspect agrees with what the members work on, reports who waits, and changes nothing.
func TestVirtual_Inspect(t *testing.T) {
	inWorld(t, 70, func(t *testing.T, w *world) { // more shards than are read at a time
		w.started(3)
		s, _ := w.connect()
		defer s.Close()
		m, err := zklock.NewMutex(s, groupPath+"/shards/0007", zklock.WithData([]byte("operator")))
		require.NoError(t, err)
		ctx, leave := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() {
			_, err := m.Acquire(ctx)
			waited <- err
		}()
		time.Sleep(time.Second)
		w.srv.ResetRequests()
		sn, err := Inspect(t.Context(), s, groupPath)
		require.NoError(t, err)
		for _, op := range []zktest.Op{zktest.Create, zktest.SetData, zktest.Delete, zktest.Multi} {
			require.Zero(t, w.srv.Requests().Total(op), op)
		}
		require.Equal(t, 70, sn.Plan.Shards())
		require.Len(t, sn.Plan.Members, 3)
		require.Len(t, sn.Queues, 70)
		require.Equal(t, []string{w.planner().name, "data of " + w.planner().name}, []string{sn.Members[0].Name, string(sn.Members[0].Data)})
		require.ElementsMatch(t, sn.Plan.Members, sn.Members)
		for shard, q := range sn.Queues {
			owner, ok := sn.Plan.Owner(shard)
			require.True(t, ok)
			require.Equal(t, owner.Name, string(q[0].Data))
			require.True(t, q[0].Holds)
			require.Equal(t, w.tokens[shard], q[0].Token)
			if shard == 7 {
				require.Len(t, q, 2)
				require.Equal(t, "operator", string(q[1].Data))
			} else {
				require.Len(t, q, 1)
			}
		}
		leave()
		require.ErrorIs(t, <-waited, context.Canceled)

		before, _ := w.srv.Get(groupPath + "/plan")
		require.NoError(t, w.srv.SetData(groupPath+"/plan", []byte("garbage")))
		sn, err = Inspect(t.Context(), s, groupPath)
		require.ErrorIs(t, err, errPlan)
		require.Zero(t, sn.Plan.Shards())
		require.Len(t, sn.Members, 3, "the rest is there")
		require.Len(t, sn.Queues[69], 1)
		require.NoError(t, w.srv.SetData(groupPath+"/plan", before))
	})
}

// A path that is no group is rejected with a text that says so; a group without members is one.
func TestVirtual_Inspect_NoGroup(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		inspect := func() (Snapshot, error) { return Inspect(t.Context(), s, groupPath) }
		_, err := inspect()
		require.ErrorIs(t, err, errLayout)
		require.EqualError(t, err, "zklock: shards: inspect /orders/workers: not a group of shards that this program supports: there is no group at /orders/workers: its first member creates it")
		for _, p := range []string{"/orders", groupPath} {
			_, err := w.srv.Create(p, nil, 0)
			require.NoError(t, err)
		}
		for data, says := range map[string]string{
			"": "there is no group", "hello": "does not belong to a group", `{"format":2,"shards":8}`: "update the program", `{"format":1,"shards":1000000000}`: "10000 is the most",
		} {
			require.NoError(t, w.srv.SetData(groupPath, []byte(data)))
			_, err = inspect()
			require.ErrorIs(t, err, errLayout)
			require.ErrorContains(t, err, says)
		}
		_, err = Inspect(t.Context(), s, "no path")
		require.ErrorContains(t, err, "must begin with a slash")

		require.NoError(t, w.srv.SetData(groupPath, nil))
		g, err := New(s, groupPath, 8)
		require.NoError(t, err)
		_, err = g.SetShards(t.Context(), 8)
		require.NoError(t, err)
		sn, err := inspect()
		require.NoError(t, err)
		require.Zero(t, sn.Plan.Shards())
		require.Empty(t, sn.Members)
		require.Len(t, sn.Queues, 8)
		require.Empty(t, sn.Queues[0])

		w.srv.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = Inspect(ctx, s, groupPath)
		require.ErrorIs(t, err, context.DeadlineExceeded, "it waits for a server")
		require.NoError(t, w.srv.Start())
	})
}
