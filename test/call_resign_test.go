package zklock_test

// These tests end a leadership in order: the leader resigns, or is asked to give way.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// Resign hands over in order. The next candidate waits until the leader has returned, and is
// elected while the old process still runs: at once, without a session timeout.
func TestVirtual_Resign_HandsOverInOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		a := v.stand(newElection(t, s, "/job", "a"), func(ctx context.Context) error {
			require.ErrorIs(t, context.Cause(ctx), zklock.ErrResigned)
			time.Sleep(3 * time.Second) // it finishes a step
			return ctx.Err()
		})
		b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		begun := time.Now()
		resigned := make(chan error, 1)
		go func() { resigned <- a.e.Resign(context.Background()) }()
		time.Sleep(2900 * time.Millisecond)
		require.EqualValues(t, 1, a.leads.Load())
		require.Zero(t, b.leads.Load(), "I1: two leaders")
		require.NoError(t, <-resigned)
		synctest.Wait()
		require.Equal(t, 3*time.Second, time.Since(begun))
		require.EqualValues(t, 1, b.leads.Load(), "the next does not lead yet")
		require.NotEmpty(t, s.Stats().Server, "the old process still runs")
		require.ErrorIs(t, a.returned(t), zklock.ErrResigned)
		require.ErrorIs(t, a.err, context.Canceled, "what lead returned")
		require.NoError(t, a.e.Resign(within(t, soon)), "nobody stands")

		// A waiting candidate leaves the queue without a node.
		c := v.stand(newElection(t, s, "/job", "c"), untilItEnds)
		require.Len(t, v.srv.Children("/job"), 2)
		require.NoError(t, c.e.Resign(within(t, soon)))
		require.ErrorIs(t, c.returned(t), zklock.ErrResigned)
		require.Len(t, v.srv.Children("/job"), 1)
		require.Zero(t, c.reigns.Load())
	})
}

// The release may take its time even if the leader's context has ended: Resign's own context limits
// the wait.
func TestVirtual_Resign_SlowRelease_IsWaitedFor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		v.srv.Inject(zktest.Before(zktest.Delete).Delay(2 * time.Second).Once())
		require.NoError(t, a.e.Resign(within(t, soon)))
		require.NoError(t, a.returned(t))
		require.Empty(t, v.srv.Children("/job"))
	})
}

// I6: Resign returns when its context ends, and the resignation remains in effect. In lead, with
// lead's context, Resign returns at once, but not in a later campaign.
func TestVirtual_Resign_DoesNotHang(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.stand(newElection(t, v.connect(), "/job", "a"), func(context.Context) error { time.Sleep(time.Hour); return nil })
		start := time.Now()
		require.ErrorIs(t, a.e.Resign(within(t, time.Second)), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		time.Sleep(time.Hour)
		require.NoError(t, a.returned(t))

		e := newElection(t, v.connect(), "/job", "b")
		var earlier context.Context
		require.NoError(t, e.Campaign(within(t, soon), func(ctx context.Context, _ *zklock.Hold) error {
			earlier = context.WithoutCancel(ctx)
			require.ErrorIs(t, e.Resign(ctx), zklock.ErrResigned)
			synctest.Wait()
			require.Len(t, v.srv.Children("/job"), 1, "it leads until it has returned")
			return nil
		}))
		v.stand(newElection(t, v.connect(), "/job", "c"), untilItEnds)
		b := v.stand(e, untilItEnds)
		require.NoError(t, e.Resign(earlier))
		require.ErrorIs(t, b.returned(t), zklock.ErrResigned)
	})
}

// I6: in lead, Resign with a context that is not lead's waits for itself. It reports that: at once
// if the context carries the hold, and after a minute if it never ends. The resignation remains in
// effect, and the next candidate leads when lead has returned.
func TestVirtual_Resign_InLeadWithAnotherContext_ErrorNamesTheRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		of    func(hold *zklock.Hold) context.Context
		after time.Duration
		says  string
	}{
		"fresh":          {func(*zklock.Hold) context.Context { return context.Background() }, time.Minute, "give it lead's context"},
		"without cancel": {func(h *zklock.Hold) context.Context { return context.WithoutCancel(h.Context()) }, 0, "has only to return"},
		"the hold's":     {func(h *zklock.Hold) context.Context { return h.Context() }, 0, "has only to return"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				e := newElection(t, v.connect(), "/job", "a")
				done := make(chan error, 1)
				go func() {
					done <- e.Campaign(context.Background(), func(lead context.Context, hold *zklock.Hold) error {
						start := time.Now()
						err := e.Resign(c.of(hold))
						if time.Since(start) != c.after {
							t.Errorf("it took %v", time.Since(start))
						}
						if context.Cause(lead) != zklock.ErrResigned {
							t.Errorf("the resignation does not stand: %v", context.Cause(lead))
						}
						return err
					})
				}()
				synctest.Wait() // it leads before the next one campaigns
				next := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
				select {
				case err := <-done:
					require.ErrorContains(t, err, c.says)
					require.ErrorContains(t, err, "resign /job")
				case <-time.After(time.Hour):
					t.Fatal("Resign waits for itself")
				}
				synctest.Wait()
				require.EqualValues(t, 1, next.leads.Load())
			})
		})
	}
}

// Curator's #692: a leader is asked to give way, finishes, and campaigns again at the tail if it
// wants to.
func TestVirtual_Election_Revocation(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var e *zklock.Election
		e = newElection(t, v.connect(), "/job", "a", zklock.WithRevocation(func(*zklock.Hold) { _ = e.Resign(context.Background()) }))
		a := v.stand(e, untilItEnds)
		b := newElection(t, v.connect(), "/job", "b")
		next := v.stand(b, untilItEnds)
		leader, err := b.Leader(within(t, soon))
		require.NoError(t, err)
		require.NoError(t, v.connect().Revoke(within(t, soon), leader.Node))
		require.NoError(t, a.returned(t))
		synctest.Wait()
		require.EqualValues(t, 1, next.leads.Load())
		v.stand(e, untilItEnds)
		require.EqualValues(t, 1, next.leads.Load())
		require.Len(t, v.srv.Children("/job"), 2)
	})
}
