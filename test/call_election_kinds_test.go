package zklock_test

// These tests put candidates of two kinds on one path. They do not wait for each other, so there
// would be two leaders.

import (
	"context"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// refused requires that a campaign has ended with a final error that names the other candidate's
// node.
func refused(t *testing.T, c, beside *candidate, says string) {
	t.Helper()
	err := c.returned(t)
	require.ErrorContains(t, err, path.Base(beside.hold.Load().Node()))
	require.ErrorContains(t, err, says)
	require.ErrorContains(t, err, "campaign /job")
	require.True(t, zklock.IsFinal(err))
}

// I1: two candidates of different kinds start at once, before either can see the other. The one
// with the later node is rejected, and its node is deleted; the other one leads, and continues to
// lead.
func TestVirtual_Election_TwoKindsStartAtOnce_OneLeads(t *testing.T) {
	for _, latchIsFirst := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			s := v.connect()
			first, second, says := newElection(t, v.connect(), "/job", "a"), newElection(t, s, "/job", "b", zklock.WithLatchNodes()), "leave that out"
			if latchIsFirst {
				first, second, says = newElection(t, v.connect(), "/job", "b", zklock.WithLatchNodes()), newElection(t, s, "/job", "a"), "give WithLatchNodes"
			}
			late := v.srv.Inject(zktest.Before(zktest.Create).Session(s.Stats().SessionID).Delay(100 * time.Millisecond).Once())
			x, y := v.stand(first, untilItEnds), v.stand(second, untilItEnds)
			time.Sleep(time.Minute)
			require.Equal(t, 1, late.Fired(), "both have looked before there was a node")
			require.EqualValues(t, 1, x.leads.Load())
			require.False(t, x.isOver())
			require.Zero(t, y.reigns.Load(), "I1")
			refused(t, y, x, says)
			require.Len(t, v.srv.Children("/job"), 1)
		})
	}
}

// I1: a leader loses its session, and a candidate of the other kind leads before the first one
// campaigns again. The first one is rejected, and its observers do not report that there is no
// leader.
func TestVirtual_Election_OtherKindLeadsMeanwhile_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, other := v.connect(), v.connect()
		a := v.stand(newElection(t, s, "/job", "a"), untilItEnds)
		e := newElection(t, v.connect(), "/job", "o")
		o := v.observe(e)
		require.Equal(t, []string{"a"}, o.names())
		v.srv.Inject(zktest.Before(zktest.Connect).Delay(5 * time.Second).Once())
		require.True(t, v.srv.ExpireSession(s.Stats().SessionID))
		b := v.stand(newElection(t, other, "/job", "b", zklock.WithLatchNodes()), untilItEnds)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, b.leads.Load())
		require.Zero(t, a.leads.Load(), "I1: two leaders")
		refused(t, a, b, "give WithLatchNodes")
		require.Len(t, v.srv.Children("/job"), 1)
		require.ErrorContains(t, o.err, path.Base(b.hold.Load().Node()))
		_, err := e.Leader(within(t, soon))
		require.ErrorContains(t, err, path.Base(b.hold.Load().Node()))
	})
}

// A candidate of the leader's kind is behind a candidate of another kind that is being rejected. It
// campaigns again, because the mistake is the other candidate's.
func TestVirtual_Election_OtherKindBetween_CampaignsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s, last := v.connect(), v.connect()
		a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		c := newElection(t, last, "/job", "c")
		made := make(chan string, 1)
		v.srv.Inject(zktest.Before(zktest.Create).Session(last.Stats().SessionID).Once().Call(func() {
			name, err := v.srv.Create("/job/_c_00000000-0000-0000-0000-000000000000-latch-", nil, zk.FlagSequence)
			if err != nil {
				t.Error(err)
			}
			made <- name
		}))
		time.Sleep(time.Second)
		third := v.stand(c, untilItEnds)
		time.Sleep(time.Minute)
		between := <-made
		a.stop()
		time.Sleep(time.Second)
		require.Zero(t, third.reigns.Load(), "I1")
		require.ErrorContains(t, third.returned(t), path.Base(between), "it is in front")
		require.NoError(t, v.srv.Delete(between))

		b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		time.Sleep(time.Second)
		v.srv.Inject(zktest.Before(zktest.Create).Session(s.Stats().SessionID).Once().Call(func() {
			name, err := v.srv.Create("/job/_c_00000000-0000-0000-0000-000000000000-latch-", nil, zk.FlagSequence)
			if err != nil {
				t.Error(err)
			}
			made <- name
		}))
		again := v.stand(newElection(t, s, "/job", "c"), untilItEnds)
		time.Sleep(time.Second)
		require.NoError(t, v.srv.Delete(<-made))
		time.Sleep(5 * time.Second)
		b.stop()
		time.Sleep(time.Second)
		require.EqualValues(t, 1, again.leads.Load())
	})
}

// I1: in whatever order the requests of many candidates of both kinds arrive, one leads at a time.
// No rejected candidate leaves a node.
func TestVirtual_Election_TwoKindsAtRandom_OneLeads(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	refusals, reigns := 0, 0
	worlds := 40 / oneIn(4)
	for range worlds {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			for range 8 {
				v.srv.Inject(zktest.Before([]zktest.Op{zktest.Create, zktest.GetChildren, zktest.Delete}[rnd.IntN(3)]).Path("/job*").Nth(1 + rnd.IntN(20)).
					Delay(time.Duration(rnd.IntN(50)) * time.Millisecond).Once().Optional())
			}
			var leading, led atomic.Int32
			var ended sync.WaitGroup
			var mu sync.Mutex
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			for i := range 8 {
				var opts []zklock.ElectionOption
				if i%2 == 0 {
					opts = append(opts, zklock.WithLatchNodes())
				}
				e, wait, reign := newElection(t, v.connect(), "/job", "c", opts...), time.Duration(rnd.IntN(60))*time.Millisecond, time.Duration(rnd.IntN(30))*time.Millisecond
				ended.Go(func() {
					time.Sleep(wait)
					for ctx.Err() == nil {
						err := e.Campaign(ctx, func(ctx context.Context, _ *zklock.Hold) error {
							if n := leading.Add(1); n != 1 {
								t.Errorf("seed %d: I1: %d lead", seed, n)
							}
							led.Add(1)
							time.Sleep(reign)
							leading.Add(-1)
							return nil
						})
						if zklock.IsFinal(err) {
							mu.Lock()
							refusals++
							mu.Unlock()
							return
						}
					}
				})
			}
			time.Sleep(time.Second)
			reigns += int(led.Load())
			stop()
			ended.Wait()
			synctest.Wait()
			require.Empty(t, v.srv.Children("/job"), "I4, seed %d", seed)
		})
	}
	t.Logf("%d leaders, %d refused", reigns, refusals)
	require.Greater(t, refusals, worlds)
	require.Greater(t, reigns, 10*worlds)
}
