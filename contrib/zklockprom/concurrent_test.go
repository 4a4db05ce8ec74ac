package zklockprom_test

// These tests attack a Metrics from many goroutines at a time, with -race: calls, losses, scrapes
// and Sessions that open and close. In the end the sums agree.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
)

func lead(d time.Duration) func(context.Context, *zklock.Hold) error {
	return func(ctx context.Context, _ *zklock.Hold) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// crowd has callers that take locks in every way, and their results.
type crowd struct {
	acquires, holds atomic.Int64
}

// call takes one of the locks, or tries to, perhaps re-enters, and releases.
func (c *crowd) call(ctx context.Context, l zklock.Lock) {
	c.acquires.Add(1)
	wait, cancel := context.WithTimeout(ctx, time.Duration(1+rand.N(3000))*time.Millisecond)
	defer cancel()
	take := l.Acquire
	if rand.N(3) == 0 {
		take = l.TryAcquire
	}
	h, err := take(wait)
	if err != nil {
		return
	}
	c.holds.Add(1)
	time.Sleep(rand.N(time.Second))
	if rand.N(2) == 0 { // re-enters, unless the hold is lost
		if again, err := l.TryAcquire(zklock.WithOwner(h.Context(), h.Owner())); err == nil {
			defer func() { _ = again.Release(context.Background()) }()
		} else {
			c.acquires.Add(1)
		}
	}
	_ = h.Release(context.Background())
}

// Callers in several Sessions, sessions that expire, and concurrent scrapes: every acquire has one
// outcome, every hold one end, every loss one overrun, and nothing is under way when all have
// returned.
func TestVirtual_Crowd_TheSumsAgree(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var c crowd
		ctx, stop := context.WithCancel(context.Background())
		var callers, scrapers sync.WaitGroup
		for i := range 4 {
			s := v.connect()
			for j := range 4 {
				m := newMutex(t, s, fmt.Sprintf("/job/%d", (i+j)%3))
				callers.Go(func() {
					for range 50 {
						c.call(context.Background(), m)
					}
				})
			}
			scrapers.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(rand.N(10 * time.Second))
					v.srv.ExpireSession(s.Stats().SessionID)
				}
			})
			scrapers.Go(func() {
				for ctx.Err() == nil {
					v.shown()
					time.Sleep(rand.N(2 * time.Second))
				}
			})
		}
		callers.Wait()
		stop()
		scrapers.Wait()
		now := v.shown()
		lost := now.sum("zklock_holds_lost_total")
		t.Logf("%d acquires, %d holds, %v lost", c.acquires.Load(), c.holds.Load(), lost)
		require.Positive(t, lost)
		require.Equal(t, float64(c.holds.Load()), now.sum("zklock_hold_duration_seconds_count"))
		require.Equal(t, lost, now.sum("zklock_overrun_seconds_count"))
		for _, over := range []string{"zklock_waiting", "zklock_holds", "zklock_holds_lost_unreleased", "zklock_longest_wait_seconds", "zklock_longest_hold_seconds"} {
			require.Zero(t, now[over]+now.sum(over+"{"), over)
		}
		require.InDelta(t, float64(c.acquires.Load()), now.sum("zklock_acquire_duration_seconds_count"), 0)
	})
}

// The same in real time, where goroutines run in parallel: Sessions are closed under their callers,
// which continue with the next one.
func TestParallel_SessionsComeAndGo(t *testing.T) {
	srv, metrics := startServer(t), zklockprom.New()
	var all, ends sync.WaitGroup // ends: HoldEnd may follow HoldLost, which no Release and no Close waits for
	var holds atomic.Int64
	afterMetrics := zklock.WithTrace(&zklock.Trace{HoldEnd: func(context.Context, zklock.HoldInfo) { ends.Done() }})
	for i := range 4 {
		all.Go(func() {
			for range 5 {
				s := connectTo(t, srv, metrics.Option(), afterMetrics)
				metrics.Watch(s)
				var callers sync.WaitGroup
				granted := make(chan bool, 4*20)
				for j := range 4 {
					m, err := zklock.NewMutex(s, fmt.Sprintf("/job/%d", (i+j)%3))
					if err != nil {
						t.Error(err)
						return
					}
					callers.Go(func() {
						for range 20 {
							h, err := m.Acquire(context.Background())
							if err != nil {
								return // closed
							}
							holds.Add(1)
							ends.Add(1)
							granted <- true
							_ = metrics.Option()
							_ = h.Release(context.Background())
						}
					})
				}
				go func() { callers.Wait(); close(granted) }()
				shownBy(t, metrics)
				for range 10 {
					<-granted
				}
				_ = s.Close()
				callers.Wait()
			}
		})
	}
	all.Wait()
	ends.Wait()
	now := shownBy(t, metrics)
	require.Equal(t, float64(holds.Load()), now.sum("zklock_hold_duration_seconds_count"))
	require.Equal(t, now.sum("zklock_holds_lost_total"), now.sum("zklock_overrun_seconds_count"))
	require.Zero(t, now.sum("zklock_longest")+now["zklock_sessions"])
}
