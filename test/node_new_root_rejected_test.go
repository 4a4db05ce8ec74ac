package zklock_test

// These tests attack the transactions of a new lock root where the servers, or their own length, do
// not permit them.

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R34: data that fits into the create of the node, and not into the transaction, is no error.
func TestVirtual_NewRoot_TooLong_IsCreatedByItself(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithJuteMaxBuffer(4096))
		for _, p := range []string{"/job/a", "/job/a", "/job/b"} {
			release(t, acquire(t, newMutex(t, s, p, zklock.WithContainer(), zklock.WithData(make([]byte, 3950)))))
		}
		require.ElementsMatch(t, []string{"a", "b"}, v.srv.Children("/job"), "the servers remove them")
	}, neverReaped)
}

// R34: an ACL that gives no client READ is an error of the first acquire, as without WithContainer.
func TestVirtual_NewRoot_ACLWithoutRead_IsRejected(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job/a", zklock.WithContainer(), zklock.WithACL(zk.WorldACL(zk.PermAll&^zk.PermRead)))
		_, err := m.Acquire(within(t, soon))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "no READ permission on /job/a")
	}, neverReaped)
}

// I4: a server rejects the deletion of both and does not name the operation: the node is deleted
// alone, and the waiter gets the lock.
func TestVirtual_NewRoot_DeletionRejectedAsAWhole_NodeIsDeleted(t *testing.T) {
	for _, code := range []zktest.Code{-111, -101, -8, -102} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := acquire(t, newRoot(t, v.connect(), "/job/a"))
			next := v.queueUp(newRoot(t, v.connect(), "/job/a"))
			v.srv.Inject(zktest.Before(zktest.Multi).Path(h.Node()).Fail(code))
			release(t, h)
			release(t, next.granted2(t, time.Second))
			require.Empty(t, v.srv.Children("/job/a"))
		}, neverReaped)
	}
}

// I8: a writer that was a reader too leaves the root to the servers, and notes that it exists.
func TestVirtual_NewRoot_Downgrade_IsNotNew(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		rw := newRWMutex(t, v.connect(), "/job/a", zklock.WithContainer())
		w := acquire(t, rw.WriteLock())
		r, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		release(t, r)
		release(t, w)
		require.Equal(t, []string{"a"}, v.srv.Children("/job"))
		got := v.cost(func() { release(t, acquire(t, rw.WriteLock())) })
		require.Zero(t, got.Total(zktest.Multi), "no transaction for a new root: %v", got)
		require.Equal(t, 3, got.Total(zktest.AnyOp), "%v", got)
	}, neverReaped)
}

// I8: other calls of the Session want the same new name, while one creates the root or after that.
// They expect the root, and the next new name is still expected to be missing. So do those that
// want a name whose root the last release has deleted.
func TestVirtual_NewRoot_WaitersOfTheSession_ExpectIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way, waiters = time.Millisecond, 3
		v.net.SetLatency(way)
		s := v.connect()
		for i, between := range []time.Duration{0, 10 * way, 0, 10 * way} {
			a := newRoot(t, s, fmt.Sprint("/job/a", i))
			if i >= 2 {
				release(t, acquire(t, a))
				require.NotContains(t, v.srv.Children("/job"), fmt.Sprint("a", i))
			}
			var all []*waiting
			got := v.cost(func() {
				for range 1 + waiters {
					all = append(all, v.queueUp(a))
					time.Sleep(between)
				}
				time.Sleep(10 * way)
			})
			require.Equal(t, 1, got.Total(zktest.Multi), "one creates the root: %v", got)
			require.Equal(t, waiters, got.Total(zktest.Create), "%v", got)
			next, trips := v.costOf(newRoot(t, s, fmt.Sprint("/job/b", i)), way)
			require.Equal(t, 2, next.Total(zktest.Multi), "%v", next)
			require.Zero(t, next.Total(zktest.Create)+next.Total(zktest.GetChildren), "%v", next)
			require.Equal(t, 1.0, trips) //nolint:testifylint // whole numbers
			for _, w := range all {
				release(t, w.granted2(t, time.Second))
			}
		}
	}, neverReaped)
}

// I8: the last try was blocked, and the release of the holder has deleted the lock root. The next
// try notes that no node blocks it, so the one after that does not list first.
func TestVirtual_NewRoot_DeletedAfterATry_IsProbedOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRoot(t, v.connect(), "/job/a")
		h := acquire(t, newRoot(t, v.connect(), "/job/a"))
		_, err := m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		release(t, h)
		require.Empty(t, v.srv.Children("/job"))
		try := func() {
			h, err := m.TryAcquire(t.Context())
			require.NoError(t, err)
			release(t, h)
		}
		require.Equal(t, 1, v.cost(try).Total(zktest.Sync))
		require.Zero(t, v.cost(try).Total(zktest.Sync))
	}, neverReaped)
}
