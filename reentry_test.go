package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R67, I1: five goroutines work under the hold of an outer lock and take another one with its context. They exclude each
// other there: the outer hold is nobody's permission for the inner lock.
func TestVirtual_FanOutUnderAnOuterHold_ExcludesInTheInnerLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		outer := acquire(t, newMutex(t, s, "/outer"))
		m, o := newMutex(t, s, "/job"), &overlap{t: t}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				h, err := m.Acquire(outer.Context())
				if err != nil {
					t.Error(err)
					return
				}
				o.work(h, func() { time.Sleep(time.Second) })
				if err := h.Release(within(t, soon)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 5, o.entries)
		release(t, outer)
	})
}

// R67, I2: the context carries each hold of the nested locks, so that either is re-entered from inside, and nothing is
// sent. An owner that was set takes it along into every lock.
func TestVirtual_NestedLocks_AreReentered(t *testing.T) {
	for _, set := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			a, b := newMutex(t, s, "/a"), newMutex(t, s, "/b")
			ctx := within(t, time.Hour)
			if set {
				ctx = zklock.WithOwner(ctx, zklock.NewOwner("both"))
			}
			ha, err := a.Acquire(ctx)
			require.NoError(t, err)
			require.False(t, b.OwnedBy(ha.Context()))
			hb, err := b.Acquire(ha.Context())
			require.NoError(t, err)
			require.Equal(t, set, ha.Owner() == hb.Owner())
			type key struct{}
			inner, cancel := context.WithCancel(context.WithValue(hb.Context(), key{}, 1))
			defer cancel()
			v.srv.ResetRequests()
			for _, m := range []*zklock.Mutex{a, b, a, newMutex(t, s, "/a")} {
				require.True(t, m.OwnedBy(inner))
				h, err := m.TryAcquire(inner)
				require.NoError(t, err)
				inner = h.Context()
				defer func() { release(t, h) }()
			}
			require.Zero(t, v.srv.Requests().Total())
			require.Len(t, v.srv.Children("/a"), 1, "I2")
			require.Len(t, v.srv.Children("/b"), 1, "I2")
			release(t, ha)
			release(t, hb)
		})
	}
}

// R67, I1: of a hold whose last handle was released nothing is left to re-enter. Those who still carry its context exclude
// each other in that lock.
func TestVirtual_ReleasedHold_IsNobodysPermission(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		left := context.WithoutCancel(h.Context())
		again, err := m.Acquire(left)
		require.NoError(t, err)
		release(t, h)
		require.True(t, m.OwnedBy(left), "another handle of it is left")
		release(t, again)
		require.False(t, m.OwnedBy(left))

		first, err := m.Acquire(left)
		require.NoError(t, err)
		require.False(t, m.OwnedBy(left), "it is somebody else's")
		second := make(chan *zklock.Hold, 1)
		go func() {
			h, err := m.Acquire(left)
			if err != nil {
				t.Error(err)
			}
			second <- h
		}()
		synctest.Wait()
		require.Empty(t, second, "I1")
		release(t, first)
		release(t, <-second)
	})
}

// A wait that ends and a try that fails say where they stood, and ask nobody for that.
func TestVirtual_NotLetIn_SaysThePlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		second := v.queueUp(newMutex(t, v.connect(), "/job"))
		ahead := "/job/" + lastOf(v.srv.Children("/job"))
		s := v.connect()
		m := newMutex(t, s, "/job")
		says := func(err, cause error) {
			t.Helper()
			var e *zklock.Error
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, cause)
			require.Equal(t, 3, e.Place)
			require.Equal(t, ahead, e.Predecessor)
			require.Regexp(t, "^/job/_c_.*-lock-[0-9]{10}$", e.Node)
			require.NotEqual(t, ahead, e.Node)
			require.Contains(t, err.Error(), "; place 3 in the queue when it was last listed, behind "+ahead)
		}

		_, err := m.TryAcquire(within(t, soon))
		says(err, zklock.ErrNotAcquired)

		cause := errors.New("the night is over")
		ctx, cancel := context.WithCancelCause(zklock.WithOwner(context.Background(), zklock.NewOwner("")))
		w := startAcquireIn(t, ctx, func() { cancel(cause) }, m)
		time.Sleep(time.Hour)
		_, err = m.TryAcquire(ctx) // of an owner that waits
		says(err, zklock.ErrNotAcquired)
		v.srv.ResetRequests()
		w.stop()
		<-w.done
		says(w.err, cause)
		require.ErrorIs(t, w.err, context.Canceled)
		sent := v.srv.Requests()
		require.Equal(t, 1, sent.Of(s.SessionID(), zktest.Delete))
		require.Zero(t, sent.Of(s.SessionID(), zktest.GetChildren, zktest.GetData, zktest.Sync))

		_, err = m.Acquire(ctx)
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		require.Zero(t, e.Place, "it did not get so far")
		require.NotContains(t, err.Error(), "place")
		second.stop()
		release(t, h)
	})
}

// A hold is its Session's. A call through another one contends, with itself if need be, and its error says so.
func TestVirtual_ReentryThroughAnotherSession_SaysSo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		mine := newMutex(t, v.connect(), "/job")
		other := newMutex(t, v.connect(), "/job")
		h := acquire(t, mine)
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.False(t, other.OwnedBy(ctx))
		const says = "this call's own context carries a hold of this path "
		_, err := other.TryAcquire(ctx)
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.ErrorContains(t, err, says+"through another Session, "+h.Path())
		_, err = mine.TryAcquire(zklock.WithOwner(ctx, zklock.NewOwner("")))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.ErrorContains(t, err, says+"for another owner, "+h.Path())
		_, err = other.TryAcquire(within(t, soon))
		require.NotContains(t, err.Error(), says)
		_, err = other.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, says)
		release(t, h)
		_, err = other.Acquire(ctx)
		require.NotContains(t, err.Error(), says)
	})
}

// The context says which lock's hold is meant: from Do, from a hold, derived, and through other locks.
func TestVirtual_HoldFrom_IsOfThatLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		a, b, elsewhere := newMutex(t, s, "/a"), newMutex(t, s, "/b"), newMutex(t, v.connect(), "/a")
		none := func(m *zklock.Mutex, ctx context.Context) {
			t.Helper()
			h, ok := m.HoldFrom(ctx)
			require.False(t, ok)
			require.Nil(t, h)
		}
		none(a, context.Background())
		none(a, zklock.WithOwner(context.Background(), zklock.NewOwner("nobody's")))
		var kept context.Context
		require.NoError(t, a.Do(within(t, time.Hour), func(ctx context.Context) error {
			outer, ok := a.HoldFrom(ctx)
			require.True(t, ok)
			require.NoError(t, outer.Err())
			none(b, ctx)
			none(elsewhere, ctx)
			require.NoError(t, b.Do(ctx, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				h, ok := newMutex(t, s, "/a").HoldFrom(ctx)
				require.True(t, ok)
				require.Same(t, outer, h)
				inner, ok := b.HoldFrom(ctx)
				require.True(t, ok)
				require.NotEqual(t, outer.Path(), inner.Path())

				again, err := a.Acquire(ctx)
				require.NoError(t, err)
				h, _ = a.HoldFrom(again.Context())
				require.Same(t, again, h, "the innermost")
				h, _ = b.HoldFrom(again.Context())
				require.Same(t, inner, h)
				release(t, again)
				return nil
			}))
			kept = context.WithoutCancel(ctx)
			return nil
		}))
		h, ok := a.HoldFrom(kept)
		require.True(t, ok)
		require.ErrorIs(t, h.Err(), zklock.ErrNotHeld, "released")
	})
}
