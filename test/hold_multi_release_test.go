package zklock_test

// These tests attack the release of a Multi, whose locks share one transaction: what each lock's
// result is if the servers reject it, or if its response is lost.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I8: the locks of one Session are released in one transaction, whatever their recipes: with their
// records, their new roots and their handoffs.
func TestVirtual_Multi_Release_IsOneTransaction(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, other := v.connect(), v.connect()
		a, b := newMutex(t, s, "/job/a"), newMutex(t, s, "/job/b", zklock.WithLockDelay(time.Hour))
		c, d := newMutex(t, s, "/job/c", zklock.WithContainer()), newRWMutex(t, s, "/job/d")
		e, f := newSemaphore(t, s, "/job/e", 3), newMutex(t, other, "/job/f")
		m := newMulti(t, a, b, c, d.WriteLock(), e.Permits(2), f)
		for range 2 {
			h, err := m.Acquire(within(t, time.Minute))
			require.NoError(t, err)
			next := []*waiting{v.queueUp(a), v.queueUp(d.WriteLock())}
			cost := v.cost(func() { require.NoError(t, h.Release(context.Background())) })
			require.Equal(t, 1, cost.Of(s.Stats().SessionID, zktest.Multi), "%v", cost)
			require.Zero(t, cost.Of(s.Stats().SessionID, zktest.Delete), "%v", cost)
			require.Equal(t, 1, cost.Of(other.Stats().SessionID, zktest.Delete), "another Session: %v", cost)
			for _, w := range next {
				release(t, w.granted2(t, time.Second))
			}
			for _, p := range []string{"/job/a", "/job/b", "/job/d", "/job/e/leases", "/job/f"} {
				require.Empty(t, v.srv.Children(p), p)
			}
			_, there := v.srv.Get("/job/c")
			require.False(t, there, "the new root is deleted with its node")
			record, _ := v.srv.Get("/job/b")
			require.Empty(t, record, "F47")
		}
	})
}

// I4, I5: the transaction is rejected because of one lock. The others are released as before, and
// each lock has its own error.
func TestVirtual_Multi_Release_OneIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, v *virtual, node string)
		err   error
		left  bool
	}{
		"its node was deleted": {func(t *testing.T, v *virtual, node string) { require.NoError(t, v.srv.Delete(node)) }, zklock.ErrLost, false},
		"it may not be deleted": {func(_ *testing.T, v *virtual, node string) {
			v.srv.Inject(zktest.Before(zktest.Multi).Fail(zktest.NoAuth).Once())
			v.srv.Inject(zktest.Before(zktest.Delete).Path("/job/b/*").Fail(zktest.NoAuth))
		}, zklock.ErrNotConfirmed, true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				a, b, d := newMutex(t, s, "/job/a"), newMutex(t, s, "/job/b"), newMutex(t, s, "/job/d")
				h, err := newMulti(t, a, b, d).Acquire(within(t, time.Minute))
				require.NoError(t, err)
				next := v.queueUp(a) // of this Session
				theirs := v.queueUp(newMutex(t, v.connect(), "/job/d"))
				c.spoil(t, v, h.Holds()[1].Node())
				err = h.Release(within(t, time.Minute))
				require.ErrorIs(t, err, c.err)
				joined, ok := err.(interface{ Unwrap() []error })
				require.True(t, ok, "%T", err)
				require.Len(t, joined.Unwrap(), 1)
				var of *zklock.Error
				require.ErrorAs(t, joined.Unwrap()[0], &of)
				require.Equal(t, "/job/b", of.Path)
				release(t, next.granted2(t, time.Second))
				release(t, theirs.granted2(t, time.Second))
				require.Equal(t, c.left, len(v.srv.Children("/job/b")) > 0)
			})
		})
	}
}

// I5: another client has deleted one of the nodes. The rejection of the transaction decides that
// this hold was lost; a second delete, whose response could be lost as well, is not sent for it.
func TestVirtual_Multi_Release_LostNode_IsNotDeletedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h, err := newMulti(t, newMutex(t, s, "/job/a"), newMutex(t, s, "/job/b")).Acquire(within(t, time.Minute))
		require.NoError(t, err)
		require.NoError(t, v.srv.Delete(h.Holds()[1].Node()))
		cost := v.cost(func() { require.ErrorIs(t, h.Release(within(t, time.Minute)), zklock.ErrLost) })
		require.Equal(t, 1, cost.Of(s.Stats().SessionID, zktest.Multi), "%v", cost)
		require.Equal(t, 1, cost.Of(s.Stats().SessionID, zktest.Delete), "of the node of /job/a: %v", cost)
	})
}

// F9, F10: the response to the transaction is lost, or the transaction. Each lock is released.
func TestVirtual_Multi_Release_AnswerLost(t *testing.T) {
	for _, lost := range []zktest.Fault{
		zktest.After(zktest.Multi).DropReply().Close(), zktest.Before(zktest.Multi).Close(), zktest.Before(zktest.Multi).Fail(zktest.OperationTimeout),
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			a, b := newMutex(t, s, "/job/a"), newMutex(t, s, "/job/b")
			h, err := newMulti(t, a, b, newMutex(t, s, "/job/c")).Acquire(within(t, time.Minute))
			require.NoError(t, err)
			next := v.queueUp(a)
			v.srv.Inject(lost.Once())
			require.NoError(t, h.Release(within(t, time.Minute)))
			release(t, next.granted2(t, time.Minute))
			for _, p := range []string{"/job/a", "/job/b", "/job/c"} {
				require.Empty(t, v.srv.Children(p))
			}
		})
	}
}

// F61, I4: another client has queued in one of the new roots. That root remains, and the rest are
// deleted.
func TestVirtual_Multi_Release_NewRootIsUsed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		a, b := newMutex(t, s, "/job/a", zklock.WithContainer()), newMutex(t, s, "/job/b", zklock.WithContainer())
		m := newMulti(t, a, b)
		h, err := m.Acquire(within(t, time.Minute))
		require.NoError(t, err)
		w := v.queueUp(newMutex(t, v.connect(), "/job/b", zklock.WithContainer()))
		require.NoError(t, h.Release(context.Background()))
		_, there := v.srv.Get("/job/a")
		require.False(t, there)
		release(t, w.granted2(t, time.Second))
	})
}

// I1: waiters of two locks get the handoff in one transaction, and another client deletes one of
// their nodes before. That one queues again, and the other is granted.
func TestVirtual_Multi_Release_WaitersNodeDeleted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		a, b := newMutex(t, s, "/job/a"), newMutex(t, s, "/job/b")
		h, err := newMulti(t, a, b).Acquire(within(t, time.Minute))
		require.NoError(t, err)
		first, second := v.queueUp(a), v.queueUp(b)
		behind := v.queueUp(newMutex(t, v.connect(), "/job/b"))
		var gone string
		for _, n := range v.srv.Children("/job/b") {
			if n = "/job/b/" + n; n != h.Holds()[1].Node() && (gone == "" || n[len(n)-10:] < gone[len(gone)-10:]) {
				gone = n
			}
		}
		require.NoError(t, v.srv.Delete(gone))
		require.NoError(t, h.Release(context.Background()))
		release(t, first.granted2(t, time.Second))
		release(t, behind.granted2(t, time.Second))
		release(t, second.granted2(t, time.Minute))
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job/b"))
	})
}
