package zklock_test

// These tests attack a semaphore whose servers deny requests, and lose responses before or after
// that.

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// denied has the servers deny a session's requests of that kind on a path, until the returned fault
// is removed.
func (v *virtual) denied(s *zklock.Session, op zktest.Op, path string) *zktest.Injection {
	return v.srv.Inject(zktest.Before(op).Session(s.Stats().SessionID).Path(path).Fail(zktest.NoAuth))
}

// listsQueue has the Session list the semaphore's queue but not the leases.
func listsQueue(t *testing.T, s *zklock.Session) {
	t.Helper()
	_, err := newMutex(t, s, semQueue).Participants(within(t, soon))
	require.NoError(t, err)
}

// R105, I4, F60: the response to the transaction that makes the leases is lost, and then the list
// that looks for them is denied. Meanwhile the Session lists the queue, where a node with the id of
// the leases still is. The leases are deleted once the list is allowed.
func TestVirtual_Semaphore_AnswerLost_NoRead_QueueIsListed_LeasesGo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 3)))
		s := v.connect()
		noDelete := v.denied(s, zktest.Delete, semQueue+"/*") // the queue's node remains for a while
		noRead := v.denied(s, zktest.GetChildren, semLeases)
		v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").DropReply().Close().Once())
		_, err := newSemaphore(t, s, semPath, 3).Acquire(within(t, soon), 3)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		v.has(3, 1)
		listsQueue(t, s)
		noRead.Remove()
		noDelete.Remove()
		time.Sleep(time.Minute)
		v.has(0, 0, "I4")
	})
}

// F27, I4, F60: a caller that has leases leaves, and the servers deny the deletion of the leases.
// Its node in the queue, which one transaction was to delete with them, is still deleted.
func TestVirtual_Semaphore_LeasesMayNotBeDeleted_NodeInTheQueueGoes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		held := take(t, v.permits(1, 1))
		w := v.queueUp(v.permits(1, 1))
		v.has(2, 1)
		a := v.connect().Conn()
		_, err := a.SetACL(semLeases, zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		require.NoError(t, err)
		w.stop()
		<-w.done
		v.has(2, 0, "I4")
		_, err = a.SetACL(semLeases, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		v.has(1, 0, "I4")
		release(t, held)
	})
}

// R105, I4, F60: the transaction is lost on its way, and then the deletion of the node in the queue
// is denied. The Session lists the queue before and after a late copy of the transaction, whose
// check finds that node. The leases are found and deleted.
func TestVirtual_Semaphore_RequestLost_NoDelete_LateCopyLeaksNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 2)))
		id := ""
		s := v.connect(zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
			c, err := v.net.Dial(network, addr, d)
			return losing{c, &id}, err
		}))
		noDelete := v.denied(s, zktest.Delete, semQueue+"/*")
		_, err := newSemaphore(t, s, semPath, 2).Acquire(within(t, soon), 2)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotEmpty(t, id)
		listsQueue(t, s)
		require.Contains(t, v.onlyNode(semQueue), id, "so the check in the copy succeeds")
		for range 2 {
			_, err := v.srv.CreateAs(s.Stats().SessionID, semLeases+"/_c_"+id+"-lease-", nil, zk.FlagEphemeral|zk.FlagSequence)
			require.NoError(t, err)
		}
		listsQueue(t, s)
		time.Sleep(time.Second) // for the deletions
		noDelete.Remove()
		time.Sleep(time.Minute)
		v.has(0, 0, "I4")
		h := take(t, newSemaphore(t, v.connect(), semPath, 2).Permits(2))
		require.NoError(t, h.Release(context.Background()))
	})
}
