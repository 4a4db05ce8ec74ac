package zklock_test

// These tests attack the queue: waiters are granted in order, one at a time, and queue again if
// their node is deleted (I1, I8).

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I8, R4, F40: one release wakes one waiter, which sends no request, and makes the one after it
// list. It deletes one node: all other waiters keep their nodes and positions.
func TestVirtual_Release_WakesOneWaiter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		var queue []*waiting
		for range 6 {
			queue = append(queue, v.queueUp(newMutex(t, v.connect(), "/job")))
		}
		for i, w := range queue {
			nodes := v.srv.Children("/job")
			slices.Sort(nodes)
			v.srv.ResetRequests()
			own := base(h.Node())
			release(t, h)
			synctest.Wait()
			for j, other := range queue {
				require.Equal(t, j <= i, other.isGranted(), "release %d, waiter %d", i, j)
			}
			require.ElementsMatch(t, without(nodes, own), v.srv.Children("/job"), "a release deletes its own node")
			n := v.srv.Requests()
			behind := min(len(queue)-i, 2) // the next, and the one after it
			if i == 0 {
				require.Equal(t, behind, n.Events, "I8")
			}
			require.LessOrEqual(t, n.Events, 1+behind, "I8: the holder's own watch and those of the next two")
			looks := 0
			if i > 0 { // the first of them has the data of both nodes ahead of it
				looks = behind - 1
			}
			require.Equal(t, looks, n.Total(zktest.GetChildren), "I8: the one after it looks, and nobody else")
			h = w.hold
		}
		release(t, h)
	})
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// I1: two in the middle give up, one just after the other: the predecessor's event arrives during a
// list that shows another predecessor.
func TestVirtual_TwoGiveUp_TheSecondDuringTheList(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(10 * time.Millisecond)
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		second := v.queueUp(newMutex(t, v.connect(), "/job"))
		predecessor := v.queueUp(newMutex(t, v.connect(), "/job"))
		last := v.queueUp(newMutex(t, v.connect(), "/job"))
		time.Sleep(time.Second) // all watch
		second.stop()
		time.Sleep(5 * time.Millisecond)
		predecessor.stop()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, v.srv.Children("/job"), 2)
		require.False(t, last.isGranted(), "I1: granted while another holds")
		release(t, h)
		release(t, last.granted2(t, time.Second))
	})
}

// I1: a waiter in the middle gives up. The waiter behind it is not first, although its predecessor
// is deleted.
func TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		var middle []*waiting
		for range 3 {
			middle = append(middle, v.queueUp(newMutex(t, v.connect(), "/job")))
		}
		last := v.queueUp(newMutex(t, v.connect(), "/job"))
		for i, w := range []*waiting{middle[2], middle[0], middle[1]} {
			w.stop()
			_, err := w.get(t)
			require.ErrorIs(t, err, context.Canceled)
			synctest.Wait()
			require.Len(t, v.srv.Children("/job"), 4-i, "I4: the node of a waiter that gave up is deleted")
			require.False(t, last.isGranted(), "I1: granted while another holds")
		}
		release(t, h)
		release(t, last.granted2(t, time.Second))
	})
}

// R61: a waiter queues again however often its session expires. A final error is returned.
func TestVirtual_SessionsExpire_WaiterQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		w := v.queueUp(newMutex(t, s, "/job"))
		for range 5 {
			require.True(t, v.srv.ExpireSession(s.Stats().SessionID))
			time.Sleep(3 * time.Second)
			require.False(t, w.isGranted())
			require.Len(t, v.srv.Children("/job"), 2, "it is in the queue again")
		}
		require.NoError(t, s.Close())
		_, err := w.get(t)
		require.ErrorIs(t, err, zklock.ErrClosed, "R61")
		release(t, h)
	})
}

// R72: the ZooKeeper session of a waiter ends, and the client first notices that its node is
// deleted. The waiter queues again in the next session, with one node.
func TestVirtual_SessionEndsAfterTheNode_QueuesAgain(t *testing.T) {
	for _, used := range []bool{false, true} { // from its first node on, the call itself carries the attempt out
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			if used {
				release(t, acquire(t, newMutex(t, s, "/job")))
			}
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			w := v.queueUp(newMutex(t, s, "/job"))
			old := s.Stats().SessionID
			require.NoError(t, v.srv.Delete("/job/"+lastOf(v.srv.Children("/job"))))
			synctest.Wait()
			require.True(t, v.srv.ExpireSession(old))
			time.Sleep(time.Minute)
			require.NotEqual(t, old, s.Stats().SessionID)
			require.False(t, w.isGranted())
			require.Len(t, v.srv.Children("/job"), 2)
			release(t, h)
			release(t, w.granted2(t, time.Second))
		})
	}
}

// F7, R12, R30: the session expires while waiting: queue again at the tail, never granted on the
// old node.
func TestAcquire_SessionExpires_QueuesAgain(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := acquire(t, newMutex(t, connect(t, srv), p))
	s := connect(t, srv)
	w := queueUp(t, a, newMutex(t, s, p), p)
	old := s.Stats().SessionID
	expire(t, srv, s)
	eventually(t, "a node of the new session is in the queue", func() bool {
		for _, n := range children(t, a, p) {
			ok, stat, err := a.Exists(p + "/" + n)
			require.NoError(t, err)
			if ok && stat.EphemeralOwner != old && n != base(holder.Node()) {
				return true
			}
		}
		return false
	})
	release(t, holder)
	h := w.granted(t)
	_, stat, err := a.Exists(h.Node())
	require.NoError(t, err)
	require.Equal(t, s.Stats().SessionID, stat.EphemeralOwner)
	release(t, h)
}

// F25, R55: a waiter's node is deleted: it queues again, and no waiter behind it is granted early.
func TestAcquire_WaitersNodeDeleted_QueuesAgain(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)
	w1 := queueUp(t, a, m, p)
	w1Node := lastOf(children(t, a, p))
	w2 := queueUp(t, a, newMutex(t, connect(t, srv), p), p)
	require.NoError(t, a.Delete(p+"/"+w1Node, -1))
	eventually(t, "it queues again", func() bool { return len(children(t, a, p)) == 3 })
	require.NoError(t, holder.Err())
	require.False(t, w2.isGranted(), "F25: granted early")
	release(t, holder)
	release(t, w2.granted(t))
	release(t, w1.granted(t))
}
