package zklock_test

// These tests attack the handoff: a release hands the lock to the next waiter of the same session.

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// Handoff within one session: the release passes the lock on (internal/node/own.go). In these
// tests a holder and a waiter are owners of one Session, and a waiter of another Session is behind
// them. All run in virtual time (inVirtualTime): a Sleep costs nothing, and when it returns the
// system is idle.

// F24, F25, I1, I3: the waiter's node is deleted, alone or together with its predecessor's, before
// or during the release. The waiter is never granted on it, and queues again at the tail.
func TestVirtual_Turn_NodeDeleted_IsNotPassed(t *testing.T) {
	for _, c := range []struct {
		name string
		both bool // the predecessor's too
		held bool // while its release is on its way
	}{
		{"the waiter's", false, false},
		{"the waiter's, during the release", false, true},
		{"both", true, false},
		{"both, during the release", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(true)
				goes := func() {
					if c.both {
						f.deleteBoth(t, false, true)
					} else {
						require.NoError(t, v.srv.Delete(f.own))
					}
				}
				if c.held {
					held := v.srv.Inject(f.onTurn(zktest.Before).Hold().Once())
					f.release2(t)
					require.NoError(t, held.Wait(t.Context()))
					goes()
					held.Release()
				} else {
					goes()
					if !c.both {
						f.release2(t)
					}
				}
				next := f.behind.granted2(t, time.Second)
				time.Sleep(5 * time.Second) // a heartbeat finds the holder's node gone
				if c.both {
					f.goesOn(t, next)
					return
				}
				require.NoError(t, <-f.released)
				require.False(t, f.w.isGranted(), "I1, I3: granted on a node that is gone, while another holds")
				release(t, next)
				mine := f.w.granted2(t, time.Second)
				require.Greater(t, mine.Token(), next.Token())
				release(t, mine)
			})
		})
	}
}

// F24: without a release, the waiter still detects that its node is deleted: the node is checked
// once every session timeout.
func TestVirtual_Turn_OwnNodeDeleted_IsSeen(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(true)
		require.NoError(t, v.srv.Delete(f.own))
		time.Sleep(15 * time.Second) // longer than the session timeout, in which each node is looked at once
		queue := v.srv.Children("/job")
		require.Len(t, queue, 3, "it is in the queue again")
		require.NotContains(t, queue, base(f.own))
		release(t, f.h)
		release(t, f.behind.granted2(t, time.Second))
		release(t, f.w.granted2(t, time.Second))
	})
}

// F9, F10, I1, I4: the connection ends during the handoff: before the servers have it, or before
// their response arrives. The next try checks too; the release succeeds, and no waiter is
// forgotten.
func TestVirtual_Turn_ConnectionLost_IsTriedAgain(t *testing.T) {
	for _, applied := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.standoff(true)
			cut := v.srv.Inject(f.turnLost(applied, func() {}).Once())
			f.release2(t)
			require.NoError(t, cut.Wait(t.Context()))
			mine := f.w.granted2(t, 5*time.Second)
			require.NoError(t, <-f.released)
			require.Equal(t, f.own, mine.Node(), "R55")
			require.Equal(t, applied, slices.Contains(f.a.requests(), zktest.GetChildren), "it lists if the servers had passed the turn unheard")
			require.False(t, f.behind.isGranted(), "I1")
			release(t, mine)
			release(t, f.behind.granted2(t, time.Second))
		})
	}
}

// F9, I1, I3: the servers have executed the handoff, the response is lost, and then the waiter's
// node is deleted. The next try grants nothing.
func TestVirtual_Turn_RetryChecksToo(t *testing.T) {
	for _, passed := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.standoff(true)
			cut := v.srv.Inject(f.turnLost(passed, func() { _ = v.srv.Delete(f.own) }).Once())
			f.release2(t)
			require.NoError(t, cut.Wait(t.Context()))
			next := f.behind.granted2(t, 5*time.Second)
			time.Sleep(2 * time.Second) // the release is tried again, and the waiter queues again
			require.NoError(t, <-f.released)
			require.False(t, f.w.isGranted(), "I1, I3: granted on a node that is gone, while another holds")
			release(t, next)
			release(t, f.w.granted2(t, time.Second))
		})
	}
}

// F5, I3: the session ends while the handoff is in flight: no client is granted in it.
func TestVirtual_Turn_SessionOver_IsNotPassed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(true)
		held := v.srv.Inject(f.onTurn(zktest.After).Hold().Once()) // executed, and its response is held back
		f.release2(t)
		require.NoError(t, held.Wait(t.Context()))
		v.srv.ExpireSession(f.a.s.Stats().SessionID)
		held.Release()
		next := f.behind.granted2(t, 20*time.Second)
		require.False(t, f.w.isGranted() && f.w.hold.Err() == nil, "I1, I3")
		release(t, next)
		mine := f.w.granted2(t, 20*time.Second)
		require.NotEqual(t, f.own, mine.Node())
		require.Greater(t, mine.Token(), next.Token())
		release(t, mine)
	})
}

// I1, I8: only a hold hands over. A waiter that gives up has other nodes ahead, and so has the next
// one.
func TestVirtual_Turn_WaiterGivesUp_PassesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		first := acquire(t, newMutex(t, v.connect(), "/job"))
		m := newMutex(t, v.connect(), "/job")
		quits, stays := v.queueUp(m), v.queueUp(m)
		v.srv.ResetRequests()
		quits.stop()
		_, err := quits.get(t)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(20 * time.Second) // longer than every recheck interval
		require.False(t, stays.isGranted(), "I1")
		require.Len(t, v.srv.Children("/job"), 2)
		release(t, first)
		release(t, stays.granted2(t, time.Second))
	})
}

// I7: a waiter that has given up is no longer checked: the lock is released by itself.
func TestVirtual_Turn_GivenUp_IsNotAsked(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		w := v.queueUp(m)
		w.stop()
		_, err := w.get(t)
		require.ErrorIs(t, err, context.Canceled)
		v.srv.ResetRequests()
		release(t, h)
		require.Equal(t, 1, v.srv.Requests().Total(zktest.Delete))
		require.Zero(t, v.srv.Requests().Total(zktest.Multi))
	})
}

// I1, F33: the next waiter gives up during the handoff. No client is granted on its node, and the
// lock continues to work.
func TestVirtual_Turn_NextGivesUpMeanwhile(t *testing.T) {
	for _, behindIt := range []bool{false, true} { // another owner of the Session waits behind the one that gives up
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.standoff(true)
			held := v.srv.Inject(f.onTurn(zktest.Before).Hold().Once())
			f.release2(t)
			require.NoError(t, held.Wait(t.Context()))
			var another *waiting
			if behindIt {
				another = v.queueUp(newMutex(t, v.connect(), "/job"))
			}
			f.w.stop()
			synctest.Wait()
			held.Release()
			_, err := f.w.get(t)
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, <-f.released)
			next := f.behind.granted2(t, time.Second)
			if another != nil {
				require.False(t, another.isGranted(), "I1")
			}
			release(t, next)
			if another != nil {
				release(t, another.granted2(t, time.Second))
			}
			synctest.Wait()
			require.Empty(t, v.srv.Children("/job"), "I4")
		})
	}
}

// F27: the waiter's node cannot be checked. The lock is still released, and the waiter lists.
func TestVirtual_Turn_NodeCannotBeRead_IsReleased(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		w := v.queueUp(newMutex(t, s, "/job"))
		own := "/job/" + lastOf(v.srv.Children("/job"))
		_, err := v.connect().Conn().SetACL(own, zk.WorldACL(zk.PermAdmin), -1)
		require.NoError(t, err)
		v.srv.ResetRequests()
		release(t, h)
		mine := w.granted2(t, time.Second)
		counts := v.srv.Requests()
		require.Equal(t, 1, counts.Total(zktest.Delete), "alone")
		require.Equal(t, 1, counts.Total(zktest.GetChildren))
		_, err = v.connect().Conn().SetACL(own, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		release(t, mine)
	})
}

// I8, F27, R25: the release is denied, for want of DELETE. The waiter behind it watches the node
// like any other, so it is notified when another client deletes it.
func TestVirtual_Turn_ReleaseRefused_SomebodyDeletesTheNode(t *testing.T) {
	for _, givesUp := range []bool{false, true} { // the one behind it is a waiter that gives up
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			m := newMutex(t, v.connect(), "/job")
			h := acquire(t, m)
			refuse := func(perms int32) {
				t.Helper()
				_, err := v.connect().Conn().SetACL("/job", zk.WorldACL(perms), -1)
				require.NoError(t, err)
			}
			stuck := h.Node()
			var quits *waiting
			if givesUp {
				quits = v.queueUp(m)
				stuck = "/job/" + lastOf(v.srv.Children("/job"))
			}
			w := v.queueUp(m)
			refuse(zk.PermAll &^ zk.PermDelete)
			if givesUp {
				quits.stop()
				_, err := quits.get(t)
				require.ErrorIs(t, err, context.Canceled)
				time.Sleep(37 * time.Second) // the tries to delete it have backed off to their longest pause
				require.NoError(t, v.srv.Delete(stuck))
				refuse(zk.PermAll)
				release(t, h)
			} else {
				require.ErrorIs(t, h.Release(within(t, soon)), zk.ErrNoAuth)
				time.Sleep(37 * time.Second) // the tries to delete it have backed off to their longest pause
				require.False(t, w.isGranted(), "I1")
				require.NoError(t, v.srv.Delete(stuck))
			}
			mine := w.granted2(t, 100*time.Millisecond)
			if !givesUp {
				refuse(zk.PermAll)
			}
			release(t, mine)
			time.Sleep(10 * time.Second) // longer than that pause
			require.Empty(t, v.srv.Children("/job"), "I4")
		})
	}
}

// F35, I1: another client's node has the holder's number. A list does not determine their order, so
// the release does not hand the lock over past that node.
func TestVirtual_Turn_NotPassedOverANodeWithTheHoldersNumber(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		twin := v.foreignTwin(h)
		// The waiter would queue behind the holder without a watch if the holder's node were last
		// in its list.
		w := v.queueUpUntil(m, func() bool { return v.srv.Requests().Total(zktest.GetData) == 0 })
		release(t, h)
		synctest.Wait()
		require.False(t, w.isGranted(), "I1: the turn was passed over a node that stands")
		require.NoError(t, v.srv.Delete(twin))
		release(t, w.granted2(t, time.Second))
	})
}

// foreignTwin creates a node of another client with the holder's number. Servers never assign a
// number twice, but accept a given name.
func (v *virtual) foreignTwin(h *zklock.Hold) string {
	v.t.Helper()
	twin, err := v.srv.Create("/job/_c_00000000-0000-4000-8000-000000000000-lock-"+suffixOf(h.Node()), nil, 0)
	require.NoError(v.t, err)
	return twin
}

// queueUpUntil has a waiter queue up repeatedly, because the server lists in any order, until its
// requests match the test's condition. After 200 times it takes the last.
func (v *virtual) queueUpUntil(m *zklock.Mutex, ok func() bool) *waiting {
	for i := 0; ; i++ {
		v.srv.ResetRequests()
		w := v.queueUp(m)
		if ok() || i == 200 {
			return w
		}
		w.stop()
		<-w.done
		synctest.Wait()
	}
}
