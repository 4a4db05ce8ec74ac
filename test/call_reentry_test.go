package zklock_test

// These tests attack owners: which calls re-enter a hold, which wait for another call of their
// owner, and which are excluded (I2).

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// R67, I1: five goroutines work under the hold of an outer lock and take another lock with its
// context. They exclude each other in that lock: the outer hold does not admit any of them.
func TestVirtual_FanOutUnderAnOuterHold_ExcludesInTheInnerLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		outer := acquire(t, newMutex(t, s, "/outer"))
		m, l := newMutex(t, s, "/job"), ledger.New(t.Errorf)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				h, err := m.Acquire(outer.Context())
				if err != nil {
					t.Error(err)
					return
				}
				work(t, l, h, func() { time.Sleep(time.Second) })
				if err := h.Release(within(t, soon)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 5, l.Grants())
		release(t, outer)
	})
}

// R67, I2: the context carries each hold of the nested locks, and either can be re-entered from
// inside by its owner: nothing is sent. An owner that was set is the same in every lock.
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
			for _, of := range []*zklock.Hold{ha, hb, ha, ha} {
				m := newMutex(t, s, of.Path())
				require.True(t, m.OwnedBy(inner))
				inner = zklock.WithOwner(inner, of.Owner())
				h, err := m.TryAcquire(inner)
				require.NoError(t, err)
				inner = zklock.WithOwner(h.Context(), zklock.Owner{})
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

// R67, I1: a hold whose last handle was released cannot be re-entered. Goroutines that still carry
// its context exclude each other in that lock.
func TestVirtual_ReleasedHold_IsNobodysPermission(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		left := context.WithoutCancel(h.Context())
		again, err := m.Acquire(reentering(h))
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

// The context has the hold of the given lock: from Do, from a hold, from a derived context, and
// through other locks.
func TestVirtual_OwnedBy_IsOfThatLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		a, b, elsewhere := newMutex(t, s, "/a"), newMutex(t, s, "/b"), newMutex(t, v.connect(), "/a")
		require.False(t, a.OwnedBy(context.Background()))
		require.False(t, a.OwnedBy(zklock.WithOwner(context.Background(), zklock.NewOwner("another"))))
		var kept context.Context
		require.NoError(t, a.Do(within(t, time.Hour), func(ctx context.Context, outer *zklock.Hold) error {
			require.True(t, a.OwnedBy(ctx))
			require.False(t, b.OwnedBy(ctx))
			require.False(t, elsewhere.OwnedBy(ctx))
			require.NoError(t, b.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				require.True(t, newMutex(t, s, "/a").OwnedBy(ctx))
				require.True(t, b.OwnedBy(ctx))

				again, err := a.Acquire(zklock.WithOwner(ctx, outer.Owner()))
				require.NoError(t, err)
				require.True(t, b.OwnedBy(zklock.WithOwner(again.Context(), zklock.Owner{})))
				release(t, again)
				return nil
			}))
			kept = context.WithoutCancel(ctx)
			return nil
		}))
		require.False(t, a.OwnedBy(kept), "released")
	})
}

// I2, R21: re-entry adds no node and sends nothing. Handles are released in any order; the node is
// deleted with the last.
func TestAcquire_SameOwner_ReEnters(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer())
	m, other := newMutex(t, s, p), newMutex(t, s, p)

	h1 := acquire(t, m)
	w.reset()
	h2, err := m.Acquire(reentering(h1))
	require.NoError(t, err)
	derived, cancel := context.WithTimeout(h2.Context(), soon)
	defer cancel()
	h3, err := other.TryAcquire(derived) // another Mutex on the path is the same lock
	require.NoError(t, err)
	n, by := w.sent()
	require.Zero(t, n, "re-entry sent %v", by)
	require.Equal(t, []int64{h1.Token(), h1.Token()}, []int64{h2.Token(), h3.Token()})
	require.Equal(t, h1.Node(), h3.Node())
	require.True(t, m.Held())
	require.True(t, m.OwnedBy(h3.Context()))
	require.False(t, m.OwnedBy(context.Background()))
	require.False(t, m.OwnedBy(zklock.WithOwner(context.Background(), zklock.NewOwner("x"))))

	release(t, h1)
	require.ErrorIs(t, h1.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(h1.Context()), zklock.ErrNotHeld)
	require.NoError(t, h2.Context().Err(), "another handle's release does not end this one")
	done := make(chan error)
	go func() { done <- h3.Release(context.Background()) }() // from any goroutine
	require.NoError(t, <-done)
	require.Len(t, children(t, a, p), 1)
	release(t, h2)
	require.Empty(t, children(t, a, p))
	require.False(t, m.Held())
	release(t, h2) // idempotent
}

// I2: an owner has one call in the queue at a time. When that call gives up, it loses its position,
// the next call queues, and when it is granted, the other calls re-enter.
func TestVirtual_SameOwnerWaiting_OneAfterTheOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		holder := acquire(t, newMutex(t, v.connect(), "/job"))
		m := newMutex(t, v.connect(), "/job")
		owner := zklock.NewOwner("one")

		type outcome struct {
			h   *zklock.Hold
			err error
		}
		call := func() (chan outcome, context.CancelFunc) {
			ctx, cancel := context.WithCancel(zklock.WithOwner(context.Background(), owner))
			ch := make(chan outcome, 1)
			go func() { h, err := m.Acquire(ctx); ch <- outcome{h, err} }()
			synctest.Wait()
			return ch, cancel
		}
		first, cancelFirst := call()
		_, err := m.TryAcquire(zklock.WithOwner(within(t, soon), owner))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		second, cancelSecond := call()
		third, cancelThird := call()
		defer cancelSecond()
		defer cancelThird()
		require.Len(t, v.srv.Children("/job"), 2)
		before := v.srv.Children("/job")
		cancelFirst()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		synctest.Wait()
		require.Len(t, v.srv.Children("/job"), 2, "one of the others queues")
		require.NotEqual(t, before, v.srv.Children("/job"), "at the tail")
		release(t, holder)
		o2, o3 := <-second, <-third
		require.NoError(t, o2.err)
		require.NoError(t, o3.err)
		require.Equal(t, o2.h.Node(), o3.h.Node())
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, o2.h)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, o3.h)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// I2, I6: a hundred goroutines of a writer read under it, all at once and repeatedly. They share
// one reader's node, and none waits for another that waits for it.
func TestVirtual_ReadersUnderTheirWriter_ShareOneNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		m := newRWMutex(t, s, "/job")
		w := acquire(t, m.WriteLock())
		start := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for range 5 {
					h, err := m.ReadLock().Acquire(w.Context())
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					if err := h.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		require.Less(t, time.Since(start), time.Second)
		require.Len(t, nodesOf(v.srv.History(), s.Stats().SessionID), 2, "the writer's and the reader's")
		release(t, w)
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// I6: tries under a writer, all at once, also read: none of them waits for another call.
func TestVirtual_TriesUnderTheirWriter_Read(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		m := newRWMutex(t, v.connect(), "/job")
		w := acquire(t, m.WriteLock())
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				h, err := m.ReadLock().TryAcquire(w.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Release(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		release(t, w)
	})
}

// I6: a call waits for its owner's other call, but not for that call's clean-up: it may take long
// until it is known whether the create made a node.
func TestVirtual_OtherCallOfItsOwnerLeaves_QueuesAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		release(t, acquire(t, m))
		v.srv.Inject(zktest.Before(zktest.Create).Path("/job/*").Close().Once())
		v.srv.Inject(zktest.Before(zktest.Sync).Fail(zktest.OperationTimeout).Times(8))
		ctx := zklock.WithOwner(within(t, soon), zklock.NewOwner(""))
		const patience = 100 * time.Millisecond
		var all sync.WaitGroup
		all.Go(func() {
			first, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if _, err := m.Acquire(first); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		h, err := m.Acquire(ctx)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 2*time.Second, "one of them to connect again")
		all.Wait()
		synctest.Wait() // the first looks for its node at the same instant
		release(t, h)
	})
}

// R53, I2: calls of one owner, all at once, are one participant with one node.
func TestVirtual_OneOwner_ManyCalls_OneNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		m := newMutex(t, s, "/job")
		ctx := zklock.WithOwner(within(t, soon), zklock.NewOwner(""))
		v.srv.Inject(zktest.After(zktest.Create).Path("/job/*").DropReply().Close().Once())
		holds := make(chan *zklock.Hold, 20)
		for range cap(holds) {
			go func() {
				h, err := m.Acquire(ctx)
				if err != nil {
					t.Error(err)
				}
				holds <- h
			}()
		}
		for range cap(holds) {
			defer release(t, <-holds)
		}
		require.Len(t, nodesOf(v.srv.History(), s.Stats().SessionID), 1)
	})
}

// I2, I1: owners also exclude each other on one Session, and a try does not wait. Neither leaves a
// node.
func TestVirtual_TwoOwnersOfOneSession_ExcludeEachOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		start := time.Now()
		_, err := m.TryAcquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Less(t, time.Since(start), time.Second)
		require.Equal(t, []string{base(h.Node())}, v.srv.Children("/job"))
		w := v.queueUp(m)
		require.False(t, w.isGranted(), "I1")
		release(t, h)
		release(t, w.granted2(t, time.Second))
	})
}
