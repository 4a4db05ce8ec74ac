package zklock_test

// This test injects random faults into clients that do each work once, and checks that no work
// begins again after a call has reported it as done.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I1, I4, I6: responses are lost, connections and sessions end, nodes are deleted, callers give up.
// No holder begins work that a call has reported as done, and after the faults only the mark is
// left.
func TestVirtual_Once_RandomFaults(t *testing.T) {
	randomWorlds(t, 0, 6, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(3 * time.Millisecond)
		var mu sync.Mutex
		done, begun := map[string]bool{}, 0
		var sessions []*zklock.Session
		var all sync.WaitGroup
		over, start := make(chan struct{}), time.Now()
		for range 3 {
			s := v.connect()
			sessions = append(sessions, s)
			m := newMutex(t, s, "/job")
			for range 2 {
				all.Go(func() {
					for !isOver(over) {
						key := fmt.Sprint(int(time.Since(start) / (3 * time.Second))) // the next work each 3 s
						ctx, cancel := context.WithTimeout(context.Background(), time.Second+r.atPace(20*time.Second))
						_, err := m.Once(ctx, key, func(_ context.Context, h *zklock.Hold) error {
							mu.Lock()
							if begun++; done[key] && h.Err() == nil {
								t.Errorf("%s is begun again", key)
							}
							mu.Unlock()
							time.Sleep(r.atPace(time.Second))
							return nil
						})
						cancel()
						if mu.Lock(); err == nil {
							done[key] = true
						}
						mu.Unlock()
						time.Sleep(r.atPace(time.Second))
					}
				})
			}
		}
		for range 100 {
			time.Sleep(r.atPace(2 * time.Second))
			s := sessions[r.intN(len(sessions))]
			switch r.intN(6) {
			case 0:
				r.strikes()
				v.srv.ExpireSession(s.SessionID())
			case 1:
				r.strikes()
				v.srv.DropConnection(s.SessionID())
			case 2:
				if names := v.srv.Children("/job"); len(names) > 0 {
					r.strikes()
					_ = v.srv.Delete("/job/" + names[0])
				}
			case 3:
				r.injects(v.srv, zktest.After(zktest.Multi).Path("/job-done").DropReply().Close().Once().Optional())
			case 4:
				r.injects(v.srv, zktest.Before(zktest.Multi).Path("/job-done").Close().Once().Optional())
			case 5:
				r.injects(v.srv, zktest.After(zktest.GetData).Path("/job-done").DropReply().Close().Once().Optional())
			}
		}
		close(over)
		all.Wait()
		r.ends()
		time.Sleep(time.Minute)
		require.Empty(t, v.srv.Children("/job"))
		require.Greater(t, begun, 20)
		m := newMutex(t, sessions[0], "/job")
		runs, err := m.Runs(within(t, time.Minute))
		require.NoError(t, err)
		for key := range done {
			if !slices.ContainsFunc(runs, func(r zklock.OnceRun) bool { return r.Key == key }) {
				require.Len(t, runs, 100, "%s is forgotten", key)
				continue
			}
			ran, err := m.Once(within(t, time.Minute), key, idle)
			require.NoError(t, err)
			require.False(t, ran, key)
		}
	})
}
