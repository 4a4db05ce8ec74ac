package zklock_test

// These tests attack an owner of a read/write lock: when it re-enters, when it is rejected, and
// what it waits for (I2).

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I2: each side re-enters by its own holds and by owners. An upgrade is rejected at once, also by a
// try.
func TestVirtual_ReadWrite_Reentry(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRWMutex(t, v.connect(), "/job")
		other := newRWMutex(t, v.connect(), "/job")
		r := acquire(t, m.ReadLock())
		theirs := acquire(t, other.ReadLock())
		v.srv.ResetRequests()
		again, err := m.ReadLock().TryAcquire(reentering(r))
		require.NoError(t, err)
		require.Equal(t, r.Node(), again.Node(), "I2")
		release(t, again)
		start := time.Now()
		for _, enter := range []func(context.Context) (*zklock.Hold, error){m.WriteLock().Acquire, m.WriteLock().TryAcquire} {
			ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
			_, err = enter(ctx)
			cancel()
			require.ErrorIs(t, err, zklock.ErrUpgrade)
			require.True(t, zklock.IsFinal(err), "the same call would be refused again")
		}
		multi := newMulti(t, m.WriteLock())
		for _, enter := range []func(context.Context) (*zklock.MultiHold, error){multi.Acquire, multi.TryAcquire} {
			_, err = enter(r.Context())
			require.ErrorIs(t, err, zklock.ErrUpgrade)
		}
		require.Zero(t, time.Since(start), "at once")
		require.Zero(t, v.srv.Requests().Total())
		_, err = m.WriteLock().TryAcquire(theirs.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired, "a hold of another Session is nobody's here")
		release(t, r)
		release(t, theirs)

		w := acquire(t, m.WriteLock())
		v.srv.ResetRequests()
		again, err = m.WriteLock().Acquire(reentering(w))
		require.NoError(t, err)
		require.Zero(t, v.srv.Requests().Total())
		release(t, w)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, again)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// R67: a Mutex's hold does not admit its owner to either side of the read/write lock of its path,
// and vice versa. The waiters' errors name the holder.
func TestVirtual_ReadWrite_MutexOfThePathIsAnotherLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		rw, m := newRWMutex(t, s, "/job"), newMutex(t, s, "/job")
		for _, c := range []struct{ outer, inner zklock.Lock }{
			{m, rw.ReadLock()}, {m, rw.WriteLock()}, {rw.ReadLock(), m}, {rw.WriteLock(), m},
		} {
			h := acquire(t, c.outer)
			_, err := c.inner.TryAcquire(h.Context())
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			require.ErrorContains(t, err, "for another kind of lock")
			require.Equal(t, c.outer == m, m.Held())
			require.Equal(t, c.outer == m, m.OwnedBy(h.Context()))
			release(t, h)
		}
	})
}

// R67, I1: two goroutines request the write lock with the context of a Mutex's hold of its path.
// They exclude each other when that hold is released.
func TestVirtual_ReadWrite_FanOutUnderAMutexOfThePath(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		var ws []*waiting
		for range 2 {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Context()), time.Hour)
			ws = append(ws, startAcquireIn(t, ctx, cancel, newRWMutex(t, s, "/job").WriteLock()))
			synctest.Wait()
		}
		require.Len(t, v.srv.Children("/job"), 3)
		release(t, h)
		require.Equal(t, "10", grantedOf(ws...))
		release(t, ws[0].hold)
		release(t, ws[1].granted2(t, time.Second))
	})
}

// Two calls of one owner, one for each side: the second waits for the first, and its context limits
// that wait. Then it is rejected, reads together with the writer, or queues, depending on the
// result of the first.
func TestVirtual_ReadWrite_OneOwnerQueuesForOneSideAtATime(t *testing.T) {
	for _, writerFirst := range []bool{false, true} {
		for _, quits := range []bool{false, true} {
			t.Run(fmt.Sprintf("writer first=%t, it gives up=%t", writerFirst, quits), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					h := acquire(t, newMutex(t, v.connect(), "/job"))
					m := newRWMutex(t, v.connect(), "/job")
					first, second := m.ReadLock(), m.WriteLock()
					if writerFirst {
						first, second = second, first
					}
					ctx := zklock.WithOwner(context.Background(), zklock.NewOwner("both"))
					queueUp := func(l zklock.Lock) *waiting {
						ctx, cancel := context.WithTimeout(ctx, time.Hour)
						w := startAcquireIn(t, ctx, cancel, l)
						synctest.Wait()
						return w
					}
					one := queueUp(first)
					two := queueUp(second)
					require.Len(t, v.srv.Children("/job"), 2, "it would wait for itself")
					_, err := second.TryAcquire(ctx)
					require.ErrorIs(t, err, zklock.ErrNotAcquired)
					brief, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					_, err = second.Acquire(brief)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					var e *zklock.Error
					require.ErrorAs(t, err, &e)
					require.Equal(t, []string{h.Node(), e.Node}, childPaths(v.srv, "/job"), "the owner's node, which is the first call's")
					require.Equal(t, h.Node(), e.Predecessor, "of that")
					require.Equal(t, 2, e.Position)
					err = second.Do(ctx, func(context.Context, *zklock.Hold) error { return nil }, zklock.WaitAtMost(time.Second))
					require.ErrorIs(t, err, zklock.ErrNotAcquired)
					if quits {
						one.stop()
						<-one.done
					}
					release(t, h)
					if !quits {
						h = one.granted2(t, time.Second)
					}
					if !quits && !writerFirst {
						_, err = two.get(t)
						require.ErrorIs(t, err, zklock.ErrUpgrade)
						release(t, h)
						return
					}
					mine := two.granted2(t, time.Second)
					if !quits {
						require.Equal(t, h.Token(), mine.Token())
						release(t, h)
					}
					release(t, mine)
					synctest.Wait()
					require.Empty(t, v.srv.Children("/job"), "I4")
				})
			})
		}
	}
}

// Close ends a call that waits for its owner's other side.
func TestVirtual_ReadWrite_CloseWhileWaitingForTheOtherSide(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		m := newRWMutex(t, s, "/job")
		ctx := zklock.WithOwner(context.Background(), zklock.NewOwner("both"))
		one := startAcquireIn(t, ctx, func() {}, m.ReadLock())
		synctest.Wait()
		two := startAcquireIn(t, ctx, func() {}, m.WriteLock())
		synctest.Wait()
		require.NoError(t, s.Close())
		for _, w := range []*waiting{one, two} {
			_, err := w.get(t)
			require.ErrorIs(t, err, zklock.ErrClosed)
		}
	})
}

// childPaths are the children of a lock root in the order of their numbers.
func childPaths(srv *zktest.Server, root string) (paths []string) {
	for _, name := range srv.Children(root) {
		paths = append(paths, root+"/"+name)
	}
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return paths
}
