package zklock_test

// These tests disconnect and reconnect a waiter: its watches are restored, and none of them grants
// (I3).

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// F25, F31, I1, I3: own node and predecessor are deleted during the outage, one after the other or
// at once. The events arrive in either order, the second a while after the first. The waiter
// checks, and queues again.
func TestVirtual_RestoredWatches_NeverGrant(t *testing.T) {
	for i := range 8 {
		atOnce, ownDeletedFirst, ownToldFirst := i&1 != 0, i&2 != 0, i&4 != 0
		t.Run(fmt.Sprintf("at once %t, own deleted first %t, own told first %t", atOnce, ownDeletedFirst, ownToldFirst), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(false)
				comeBack := f.a.leave(t)
				f.deleteBoth(t, ownDeletedFirst, atOnce)
				next := f.behind.granted2(t, time.Second)

				first, second := f.pair(ownToldFirst)
				f.a.restoreFirst(first)
				f.a.proxy.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(second).Delay(100 * time.Millisecond).Once())
				comeBack()
				time.Sleep(5 * time.Second)
				require.Equal(t, zklock.StateReconnected, f.a.s.Stats().State)
				require.Equal(t, []string{first, second}, f.a.deletions(), "told in another order")
				f.goesOn(t, next)
			})
		})
	}
}

// F30, I1: the watches of the previous connection are set on the next one before any other request,
// even if the client has watches of its own to restore.
func TestVirtual_RestoredWatches_GoFirst(t *testing.T) {
	for _, clients := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.standoff(false)
			if clients {
				_, _, _, err := f.a.s.Conn().ExistsW("/elsewhere")
				require.NoError(t, err)
			}
			release(t, acquire(t, newMutex(t, f.a.s, "/other")))
			other := acquire(t, newMutex(t, f.a.s, "/other")) // whose heartbeat is due at once
			for range 3 {
				time.Sleep(5300 * time.Millisecond) // connected for a while, the client dials again at once
				f.a.proxy.CloseConnections()
				time.Sleep(time.Second)
				require.Equal(t, zklock.StateReconnected, f.a.s.Stats().State)
				sent := f.a.requests()
				require.Contains(t, sent, zktest.GetChildren, "the waiter lists")
				require.Contains(t, sent, zktest.Multi, "the heartbeat")
				require.Equal(t, zktest.SetWatches, sent[0])
				require.Subset(t, f.a.asked(), []string{f.own, f.h.Node()})
			}
			require.False(t, f.w.isGranted())
			require.NoError(t, other.Err())
			release(t, other)
			release(t, f.h)
			release(t, f.w.granted2(t, time.Second))
			release(t, f.behind.granted2(t, time.Second))
		})
	}
}

// F25, F30, I1, I3: the client reconnects, and the watch on our own node is not restored, although
// the server confirms it. Another node is the predecessor now, and its watch is new. Our own node
// is deleted without an event, then the predecessor is deleted.
func TestVirtual_OwnWatchNotRestored_NeverGrants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		between := []*waiting{v.queueUp(newMutex(t, v.connect(), "/job")), v.queueUp(newMutex(t, v.connect(), "/job"))}
		f := &standoff{virtual: v, a: v.away(), h: h}
		f.w = v.queueUp(newMutex(t, f.a.s, "/job"))
		f.own = "/job/" + lastOf(v.srv.Children("/job"))
		f.behind = v.queueUp(newMutex(t, v.connect(), "/job"))

		comeBack := f.a.leave(t)
		for _, b := range between { // the two that it watches
			b.stop()
			_, err := b.get(t)
			require.ErrorIs(t, err, context.Canceled)
		}
		f.a.forget(f.own)
		comeBack()
		time.Sleep(2 * time.Second)
		id := f.a.s.Stats().SessionID
		watches := func(path string) bool {
			return slices.ContainsFunc(v.srv.Watches(path), func(w zktest.Watch) bool { return w.Session == id })
		}
		require.True(t, watches(h.Node()))
		require.False(t, watches(f.own), "its watch is not dead")

		require.NoError(t, v.srv.Delete(f.own))
		synctest.Wait()
		require.NoError(t, v.srv.Delete(h.Node()))
		next := f.behind.granted2(t, time.Second)
		time.Sleep(time.Second)
		require.Contains(t, f.a.deletions(), h.Node())
		require.NotContains(t, f.a.deletions(), f.own, "it is to go unheard")
		f.goesOn(t, next)
	})
}

// F30: the server rejects the restored watches. The waiter is notified, and sets them again by
// itself.
func TestVirtual_WatchesRefused_AreSetAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		comeBack := f.a.leave(t)
		refused := f.a.proxy.Inject(zktest.Before(zktest.SetWatches).Fail(zktest.OperationTimeout).Once())
		comeBack()
		require.NoError(t, refused.Wait(t.Context()))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{f.own, f.h.Node()}, f.a.watched())
		release(t, f.h)
		release(t, f.w.granted2(t, 100*time.Millisecond))
		release(t, f.behind.granted2(t, time.Second))
	})
}

// F22, R55, I3, I8: only the predecessor is deleted during the outage. The waiter keeps its node,
// checks on the new connection, and is granted; no other client is.
func TestVirtual_PredecessorGoesWhileAway_IsGrantedByAList(t *testing.T) {
	for _, c := range []struct {
		name       string
		ownSession bool
		goes       func(t *testing.T, f *standoff)
		lost       bool
	}{
		{"released", false, func(t *testing.T, f *standoff) { release(t, f.h) }, false},
		{"deleted", false, func(t *testing.T, f *standoff) { require.NoError(t, f.srv.Delete(f.h.Node())) }, true},
		{"of our own session, released", true, func(t *testing.T, f *standoff) {
			f.released = make(chan error, 1)
			go func() { f.released <- f.h.Release(within(t, soon)) }()
		}, false},
		{"of our own session, deleted", true, func(t *testing.T, f *standoff) { require.NoError(t, f.srv.Delete(f.h.Node())) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(c.ownSession)
				nodes := len(creates(v.srv.History()))
				comeBack := f.a.leave(t)
				c.goes(t, f)
				synctest.Wait()
				require.False(t, f.w.isGranted(), "granted while away")
				comeBack()
				mine := f.w.granted2(t, 5*time.Second)
				require.Len(t, v.srv.Children("/job"), 2)
				require.Equal(t, f.own, mine.Node(), "R55: it keeps its node")
				if c.ownSession {
					require.NotContains(t, f.a.requests(), zktest.SetWatches, "it watches nothing")
					require.Equal(t, c.lost, slices.Contains(f.a.requests(), zktest.GetChildren), "it lists if there was no turn to pass")
				} else {
					require.Equal(t, zktest.SetWatches, f.a.requests()[0])
					require.True(t, f.a.listedAfter(f.h.Node()), "granted by the event of a restored watch")
				}
				if f.released != nil {
					require.NoError(t, <-f.released)
				}
				time.Sleep(15 * time.Second) // longer than any watch waits for its event
				require.NoError(t, mine.Err())
				require.False(t, f.behind.isGranted(), "I1")
				require.Len(t, creates(v.srv.History()), nodes, "I2: nobody made another node")
				require.Greater(t, mine.Token(), f.h.Token())
				if c.lost {
					require.ErrorIs(t, f.h.Release(within(t, soon)), zklock.ErrLost)
				}
				release(t, mine)
				release(t, f.behind.granted2(t, time.Second))
			})
		})
	}
}

// I3, I8: the watch on the predecessor is restored, and all other facts are from this connection:
// the deletion wakes the waiter, and the list grants.
func TestVirtual_PredecessorsWatchRestored_IsGrantedByAList(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		f.a.leave(t)()
		time.Sleep(2 * time.Second)
		require.NoError(t, v.srv.SetData(f.own, []byte("somebody writes"))) // the watch on it is set again
		synctest.Wait()
		require.Equal(t, []string{f.own}, f.a.watched(), "set on this connection")
		release(t, f.h)
		mine := f.w.granted2(t, time.Second)
		require.Equal(t, f.own, mine.Node())
		require.True(t, f.a.listedAfter(f.h.Node()), "granted by the event of a restored watch")
		release(t, mine)
		release(t, f.behind.granted2(t, time.Second))
	})
}

// F22, F30, R55: the predecessor is deleted during the outage, and the server does not send the
// event. The waiter checks at once on the new connection, and keeps its node.
func TestVirtual_WatchesNotRestored_ListsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		time.Sleep(2 * time.Second)
		f.a.forget(f.h.Node())
		comeBack := f.a.leave(t)
		release(t, f.h)
		start := time.Now()
		comeBack()
		mine := f.w.granted2(t, time.Minute)
		require.Less(t, time.Since(start), 5*time.Second, "the waiter was not woken by the reconnect")
		require.Equal(t, f.own, mine.Node())
		require.NotContains(t, f.a.deletions(), f.h.Node(), "it is to go unheard")
		release(t, mine)
		release(t, f.behind.granted2(t, time.Second))
	})
}

// R22: a waiter is woken by the loss of its connection and by the next one, repeatedly. Nothing of
// that grants, or costs its position.
func TestVirtual_Reconnects_NeverGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		w := v.queueUp(newMutex(t, s, "/job"))
		nodes := v.srv.Children("/job")
		for range 20 {
			require.True(t, v.srv.DropConnection(s.Stats().SessionID))
			time.Sleep(3 * time.Second)
			require.False(t, w.isGranted(), "R22: granted by a connection event")
			require.ElementsMatch(t, nodes, v.srv.Children("/job"))
		}
		release(t, h)
		release(t, w.granted2(t, time.Second))
	})
}

// I7: the connection ends while both watches are being set. The waiter lists once on the next one,
// and sets them again: the failed one does not count twice.
func TestVirtual_ConnectionLostWhileWatchesAreSet_ListsOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		var lists atomic.Int32
		v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Call(func() { lists.Add(1) }))
		v.srv.Inject(zktest.Before(zktest.GetData).Session(s.Stats().SessionID).Once().Close())
		w := v.queueUp(newMutex(t, s, "/job"))
		time.Sleep(10 * time.Second) // the client dials again after one at the most
		require.EqualValues(t, 2, lists.Load(), "one with the create, one on the next connection")
		release(t, h)
		release(t, w.granted2(t, time.Second))
		require.EqualValues(t, 2, lists.Load(), "the event granted")
	})
}
