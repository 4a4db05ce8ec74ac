package zklock_test

// These tests attack WithPassOn: the callers of a Session take turns under one lock node.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// round is the turns of a hold, and its callers in their order.
type round struct {
	*virtual
	m    *zklock.Mutex
	hold *zklock.Hold // turn 0
	next []*waiting
}

// round begins a round of a new Session, behind which that many callers wait.
func (v *virtual) round(k int, d time.Duration, callers int, opts ...zklock.MutexOption) *round {
	r := &round{virtual: v, m: newMutex(v.t, v.connect(), "/job", append(opts, zklock.WithPassOn(k, d))...)}
	r.hold = acquire(v.t, r.m)
	for range callers {
		r.next = append(r.next, r.queueUp(r.m))
	}
	return r
}

// granted lists the callers that have their turn, or had it.
func (r *round) granted() (n int) {
	synctest.Wait()
	for _, w := range r.next {
		if w.isGranted() {
			n++
		}
	}
	return n
}

// I1: two Sessions with 32 callers each share a lock evenly, one caller at a time. The turns of a
// token are numbered, and no round exceeds its number of turns or its time.
func TestVirtual_PassOn_TwoSessions_ShareTheLock(t *testing.T) {
	const k, callers = 10, 32
	for name, c := range map[string]struct{ d, work time.Duration }{
		"by number": {time.Hour, time.Millisecond}, "by time": {20 * time.Millisecond, 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				var all sync.WaitGroup
				var inside, granted atomic.Int32
				var token int64
				var turn int
				var began time.Time
				var rounds, shares [2]int
				end := time.Now().Add(5 * time.Second)
				for i := range shares {
					m := newMutex(t, v.connect(), "/job", zklock.WithPassOn(k, c.d))
					for range callers {
						all.Go(func() {
							for time.Now().Before(end) {
								err := m.Do(t.Context(), func(_ context.Context, h *zklock.Hold) error {
									if inside.Add(1) != 1 {
										t.Error("I1: two turns at a time")
									}
									if h.Token() != token {
										token, turn, began = h.Token(), 0, time.Now()
										rounds[i]++
									} else if turn++; time.Since(began) >= c.d {
										t.Errorf("turn %d began %v after the first", turn, time.Since(began))
									}
									if h.Turn() != turn || turn >= k {
										t.Errorf("turn %d, want %d, at most %d", h.Turn(), turn, k-1)
									}
									shares[i]++
									granted.Add(1)
									time.Sleep(c.work)
									inside.Add(-1)
									return nil
								})
								if err != nil {
									t.Error(err)
								}
							}
						})
					}
				}
				all.Wait()
				most := min(k, int(c.d/c.work))
				require.Greater(t, int(granted.Load()), 200)
				require.InEpsilon(t, shares[0], shares[1], 0.1)
				require.Less(t, rounds[0]+rounds[1], int(granted.Load())/most+20, "the rounds are full")
				require.Empty(t, v.srv.Children("/job"))
			})
		})
	}
}

// The callers have their turns in the order of their calls, and a turn costs no request.
func TestVirtual_PassOn_InOrder_WithoutRequests(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		r := v.round(100, time.Hour, 20)
		require.Len(t, v.srv.Children("/job"), 1, "all of them have one node")
		v.srv.ResetRequests()
		last := r.hold
		for i, w := range r.next {
			require.Equal(t, i, r.granted())
			_, err := r.m.TryAcquire(t.Context())
			require.ErrorIs(t, err, zklock.ErrNotAcquired, "a try overtakes no caller")
			release(t, last)
			require.ErrorIs(t, last.Err(), zklock.ErrNotHeld)
			require.Error(t, last.Context().Err())
			require.Equal(t, i+1, r.granted())
			next := w.granted2(t, time.Millisecond)
			require.Equal(t, i+1, next.Turn())
			require.Equal(t, r.hold.Token(), next.Token())
			require.Equal(t, r.hold.Node(), next.Node())
			require.False(t, isLost(last))
			last = next
		}
		require.Zero(t, v.srv.Requests().Total())
		release(t, last)
		require.Empty(t, v.srv.Children("/job"))
		require.Zero(t, acquireNow(t, r.m).Turn())
	})
}

func acquireNow(t *testing.T, m *zklock.Mutex) *zklock.Hold {
	h, err := m.TryAcquire(t.Context())
	require.NoError(t, err)
	return h
}

// A second release of an earlier turn, later, at the same time or by several goroutines, does not
// end the turn that runs.
func TestVirtual_PassOn_ReleasedAgain_EndsNoOtherTurn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		r := v.round(100, time.Hour, 3)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { release(t, r.hold) })
		}
		all.Wait()
		require.Equal(t, 1, r.granted(), "I1: a second release passed the lock on")
		release(t, r.hold)
		require.Equal(t, 1, r.granted(), "I1: a late release passed the lock on")
		second := r.next[0].granted2(t, time.Millisecond)
		require.NoError(t, second.Err())
		release(t, second)
		release(t, r.hold)
		release(t, second)
		require.Equal(t, 2, r.granted())
		require.NoError(t, r.next[1].granted2(t, time.Millisecond).Err())
	})
}

// A panic ends a turn like every other hold.
func TestVirtual_PassOn_Panic_EndsTheTurn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		r := v.round(100, time.Hour, 0)
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			_ = r.m.Do(context.Background(), func(context.Context, *zklock.Hold) error { panic("in turn 1") })
		}()
		synctest.Wait()
		w := r.queueUp(r.m)
		release(t, r.hold)
		require.Equal(t, "in turn 1", <-panicked)
		require.Equal(t, 2, w.granted2(t, time.Second).Turn())
	})
}

// Re-entry stays within a turn: the turn ends with the owner's last handle, and the context of an
// earlier turn does not enter a later one.
func TestVirtual_PassOn_ReentryStaysWithinATurn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		r := v.round(100, time.Hour, 2)
		again, err := r.m.Acquire(r.hold.Context())
		require.NoError(t, err)
		release(t, r.hold)
		require.Zero(t, r.granted(), "I1: the owner has another handle")
		release(t, again)
		require.Equal(t, 1, r.granted())

		ctx := context.WithoutCancel(again.Context())
		require.False(t, r.m.OwnedBy(ctx))
		_, err = r.m.TryAcquire(ctx)
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		second := r.next[0].granted2(t, time.Millisecond)
		require.True(t, r.m.OwnedBy(second.Context()))
	})
}

// A caller whose wait ends as it gets the turn has the lock or has left. The next caller is granted
// either way, and no turn remains unused.
func TestVirtual_PassOn_WaitEndsAtTheHandOver(t *testing.T) {
	tries := 100_000 / oneIn(100)
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithPassOn(1000, time.Hour))
		var granted, left int
		for range tries {
			h := acquire(t, m)
			outcome := make(chan error, 1)
			go func() {
				outcome <- m.Do(context.Background(), func(context.Context, *zklock.Hold) error { return nil }, zklock.WaitAtMost(time.Millisecond))
			}()
			synctest.Wait()
			next := v.queueUp(m)
			time.Sleep(time.Millisecond)
			release(t, h)
			switch err := <-outcome; {
			case err == nil:
				granted++
			case errors.Is(err, zklock.ErrNotAcquired):
				left++
			default:
				require.NoError(t, err)
			}
			release(t, next.granted2(t, time.Minute))
		}
		t.Logf("%d had the turn, %d had left", granted, left)
		require.Positive(t, granted)
		require.Positive(t, left)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// The first caller leaves while its node is in the queue: the next one keeps the node, and with it
// the position before a later Session. If no caller waits, the node is deleted.
func TestVirtual_PassOn_LeaderLeaves_NextKeepsTheNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		holder := acquire(t, newMutex(t, v.connect(), "/job"))
		m := newMutex(t, v.connect(), "/job", zklock.WithPassOn(100, time.Hour))
		first, second, third := v.queueUp(m), v.queueUp(m), v.queueUp(m)
		require.Len(t, v.srv.Children("/job"), 2)
		later := v.queueUp(newMutex(t, v.connect(), "/job"))
		queued := v.srv.Children("/job")
		for _, w := range []*waiting{first, second} {
			w.stop()
			_, err := w.get(t)
			require.ErrorIs(t, err, context.Canceled)
			synctest.Wait()
			require.ElementsMatch(t, queued, v.srv.Children("/job"))
		}
		release(t, holder)
		h := third.granted2(t, time.Second)
		require.False(t, later.isGranted())
		release(t, h)
		release(t, later.granted2(t, time.Second))

		holder = acquire(t, newMutex(t, v.connect(), "/job"))
		w := v.queueUp(m)
		w.stop()
		_, err := w.get(t)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{base(holder.Node())}, v.srv.Children("/job"))
	})
}

// A caller of the same Session without the option ends the round that is before it, and the next
// round is behind it.
func TestVirtual_PassOn_CallerWithoutTheOption(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithPassOn(100, time.Hour))
		h := acquire(t, m)
		w1, plain, w2 := v.queueUp(m), v.queueUp(newMutex(t, s, "/job")), v.queueUp(m)
		release(t, h)
		h = plain.granted2(t, time.Second)
		require.False(t, w1.isGranted() || w2.isGranted(), "I1")
		require.Zero(t, h.Turn())
		release(t, h)
		require.Equal(t, "10", grantedOf(w1, w2)) // and its round has begun: a release before that ends it
		release(t, w1.hold)
		require.Equal(t, 1, w2.granted2(t, time.Millisecond).Turn())
	})
}

// Two Mutexes of one path and Session take turns together; the values of the first turn count.
func TestVirtual_PassOn_TwoMutexes_AreOneQueue(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job", zklock.WithPassOn(2, time.Hour)))
		m := newMutex(t, s, "/job", zklock.WithPassOn(100, time.Hour))
		w1, w2 := v.queueUp(m), v.queueUp(m)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, h)
		h = w1.granted2(t, time.Millisecond)
		require.Equal(t, 1, h.Turn())
		release(t, h)
		require.Zero(t, w2.granted2(t, time.Second).Turn())
	})
}

// No server responds: callers leave in time, and the callers that remain are granted when the
// servers respond again.
func TestVirtual_PassOn_NoServer_CallersLeave(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithPassOn(100, time.Hour))
		v.srv.Freeze()
		first, second, third := v.queueUp(m), v.queueUp(m), v.queueUp(m)
		for _, w := range []*waiting{first, second} {
			w.stop()
			_, err := w.get(t)
			require.ErrorIs(t, err, context.Canceled)
		}
		v.srv.Thaw()
		release(t, third.granted2(t, time.Minute))
		eventually(t, "no node remains", func() bool { return len(v.srv.Children("/job")) == 0 })
	})
}

// The option is rejected where it has no meaning.
func TestPassOn_Rejected(t *testing.T) {
	s := connect(t, zktest.Start(t).Addr())
	for _, bad := range [][]zklock.MutexOption{
		{zklock.WithPassOn(1, time.Second)},
		{zklock.WithPassOn(2, 0)},
		{zklock.WithPassOn(2, time.Second), zklock.WithMinHold(time.Second)},
	} {
		_, err := zklock.NewMutex(s, "/job", bad...)
		require.ErrorContains(t, err, "WithPassOn")
		require.True(t, zklock.IsFinal(err))
	}
	m := newMutex(t, s, "/job", zklock.WithPassOn(2, time.Second))
	_, err := zklock.NewMulti(m)
	require.ErrorContains(t, err, "WithPassOn")
	_, err = m.Once(t.Context(), "today", func(context.Context, *zklock.Hold) error { return nil })
	require.ErrorContains(t, err, "WithPassOn")
}
