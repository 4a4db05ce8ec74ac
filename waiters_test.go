package zklock_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// isGranted says whether the waiter's call has returned.
func (w *waiting) isGranted() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// I8, R4, F40: one release wakes one waiter, who asks nothing, and lets the one after it look; it deletes one node: the others keep
// theirs and their places.
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
			own := base(h.Path())
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
			require.Equal(t, behind-1, n.Total(zktest.GetChildren), "I8: the one after it looks, and nobody else")
			h = w.hold
		}
		release(t, h)
	})
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// I1: two in the middle give up, one just after the other: the predecessor's event comes while a list is under way that shows
// another predecessor.
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

// I1: a waiter in the middle gives up. Who stood behind it is not in front, although its predecessor is gone.
func TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		middle := v.queueUp(newMutex(t, v.connect(), "/job"))
		last := v.queueUp(newMutex(t, v.connect(), "/job"))
		middle.stop()
		_, err := middle.get(t)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Len(t, v.srv.Children("/job"), 2, "I4: the node of a waiter that gave up is deleted")
		require.False(t, last.isGranted(), "I1: granted while another holds")
		release(t, h)
		release(t, last.granted2(t, time.Second))
	})
}

// I2, I1: owners exclude each other also on one Session, and a try does not wait. Either way nothing is left behind.
func TestVirtual_TwoOwnersOfOneSession_ExcludeEachOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		start := time.Now()
		_, err := m.TryAcquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Less(t, time.Since(start), time.Second)
		require.Equal(t, []string{base(h.Path())}, v.srv.Children("/job"))
		w := v.queueUp(m)
		require.False(t, w.isGranted(), "I1")
		release(t, h)
		release(t, w.granted2(t, time.Second))
	})
}

// I7, R8: the client cannot take a watch back. However many waits for one holder time out, one watch is set on its node.
func TestVirtual_WaitsTimeOut_ShareOneWatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		m := newMutex(t, v.connect(), "/job")
		var reads atomic.Int32
		v.srv.Inject(zktest.Before(zktest.GetData).Path(h.Path()).Call(func() { reads.Add(1) }))
		for range 50 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			_, err := m.Acquire(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		synctest.Wait()
		require.Equal(t, int32(1), reads.Load(), "I7: each wait set a watch of its own")
		require.Equal(t, 1, v.srv.WatchCount())
		release(t, h)
	})
}

// F31: an event that says nothing is asked about once, and the watch set again: the next event is heard at once.
func TestVirtual_DataChanged_IsWatchedOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		time.Sleep(100 * time.Millisecond)
		v.srv.ResetRequests()
		require.NoError(t, v.srv.SetData(h.Path(), []byte("somebody writes")))
		time.Sleep(100 * time.Millisecond)
		require.LessOrEqual(t, v.srv.Requests().Total(zktest.GetChildren), 1, "no busy loop")
		require.False(t, w.isGranted())
		start := time.Now()
		release(t, h)
		release(t, w.granted2(t, time.Minute))
		require.Less(t, time.Since(start), time.Second, "the second event was not heard")
	})
}

// F22, F30, R55: the predecessor goes while the waiter is away, and the server forgets to tell. The waiter asks at once when it
// is back, and keeps its node.
func TestVirtual_WatchesNotRestored_ListsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		time.Sleep(2 * time.Second)
		f.a.forget(f.h.Path())
		comeBack := f.a.leave(t)
		release(t, f.h)
		start := time.Now()
		comeBack()
		mine := f.w.granted2(t, time.Minute)
		require.Less(t, time.Since(start), 5*time.Second, "the waiter was not woken by the reconnect")
		require.Equal(t, f.own, mine.Path())
		require.NotContains(t, f.a.deletions(), f.h.Path(), "it is to go unheard")
		release(t, mine)
		release(t, f.behind.granted2(t, time.Second))
	})
}

// F30: watches that were not restored are dead. After the re-check they are set again, and the next event is heard.
func TestVirtual_WatchesNotRestored_AreSetAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		w := v.queueUp(newMutex(t, s, "/job"))
		time.Sleep(2 * time.Second)
		v.srv.Inject(zktest.Before(zktest.SetWatches).Fail(zktest.OperationTimeout).Once())
		require.True(t, v.srv.DropConnection(s.SessionID()))
		time.Sleep(25 * time.Second) // two re-checks
		start := time.Now()
		release(t, h)
		release(t, w.granted2(t, time.Minute))
		require.Less(t, time.Since(start), time.Second, "the watches stayed dead")
	})
}

// F30, I7: the event of a waiter's own node is lost. The waiter is in the queue again after the session timeout.
func TestVirtual_OwnEventLost_QueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		time.Sleep(time.Minute)
		own := lastOf(v.srv.Children("/job"))
		v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path("/job/" + own).Drop().Once())
		require.NoError(t, v.srv.Delete("/job/"+own))
		time.Sleep(10*time.Second + time.Second)
		nodes := v.srv.Children("/job")
		require.Len(t, nodes, 2)
		require.NotContains(t, nodes, own)
		release(t, h)
		require.NotEqual(t, own, base(w.granted2(t, time.Second).Path()))
		release(t, w.hold)
	})
}

// F30, I3: the predecessor and our own node are gone, and both events are lost. Which of the two is looked at first does not
// matter: nobody is granted on a node that is not there.
func TestVirtual_BothEventsLost_NeverGrants(t *testing.T) {
	for range 10 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect()
			defer release(t, acquire(t, newMutex(t, s, "/other"))) // so that the lease needs no request before a grant
			w := v.queueUp(newMutex(t, s, "/job"))
			own := "/job/" + lastOf(v.srv.Children("/job"))
			behind := v.queueUp(newMutex(t, v.connect(), "/job"))
			for _, node := range []string{own, h.Path()} {
				v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(node).Drop())
				require.NoError(t, v.srv.Delete(node))
			}
			v.srv.Inject(zktest.Before(zktest.Exists).Path(own).Delay(time.Second).Once())
			next := behind.granted2(t, 15*time.Second)
			time.Sleep(15 * time.Second)
			require.False(t, w.isGranted(), "I3")
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			release(t, next)
			release(t, w.granted2(t, time.Second))
		})
	}
}

// F30, F40: what a quiet wait costs does not depend on how many wait. In each session timeout a node is looked at once,
// though it is one's own and the next one's predecessor, and nobody lists. When the wait is over, nobody looks any more.
func TestVirtual_QuietWait_CostsOneReadANode(t *testing.T) {
	const timeout, quiet = 10 * time.Second, 10 * time.Minute
	for _, waiters := range []int{1, 200} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect()
			m := newMutex(t, s, "/job")
			var queue []*waiting
			for range waiters {
				queue = append(queue, v.queueUp(m))
			}
			time.Sleep(timeout)
			var looks atomic.Int32
			v.srv.Inject(zktest.Before(zktest.Exists).Path("/job/*").Call(func() { looks.Add(1) }).Optional())
			v.srv.ResetRequests()
			time.Sleep(quiet)
			sent := v.srv.Requests()
			require.Zero(t, sent.Of(s.SessionID(), zktest.GetChildren, zktest.GetData, zktest.Sync), "%d wait", waiters)
			const rounds = int(quiet / timeout)
			t.Logf("%d wait: %d looks in %d rounds", waiters, looks.Load(), rounds)
			require.LessOrEqual(t, int(looks.Load()), (waiters+1)*rounds)
			require.Greater(t, int(looks.Load()), (waiters+1)*(rounds-2), "a round takes a little longer than the timeout")
			release(t, h)
			for _, w := range queue {
				release(t, w.granted2(t, time.Second))
			}
			time.Sleep(timeout)
			looks.Store(0)
			time.Sleep(time.Minute)
			require.Zero(t, looks.Load())
		})
	}
}

// F29, I7: the cap on a session's lock nodes refuses with an error of its own, and counts right in the long run.
func TestVirtual_MaxLockNodes_DoesNotDrift(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(zklock.WithMaxLockNodes(2)), "/job")
		for range 5 {
			h := acquire(t, m)
			w := v.queueUp(m)
			_, err := m.Acquire(within(t, soon))
			require.ErrorIs(t, err, zklock.ErrTooManyWaiters)
			release(t, h)
			release(t, w.granted2(t, time.Second))
		}
	})
}

// R22: a waiter is woken by the loss of its connection and by the next one, over and over. None of that grants, or
// costs it its place.
func TestVirtual_Reconnects_NeverGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		w := v.queueUp(newMutex(t, s, "/job"))
		nodes := v.srv.Children("/job")
		for range 20 {
			require.True(t, v.srv.DropConnection(s.SessionID()))
			time.Sleep(3 * time.Second)
			require.False(t, w.isGranted(), "R22: granted by a connection event")
			require.ElementsMatch(t, nodes, v.srv.Children("/job"))
		}
		release(t, h)
		release(t, w.granted2(t, time.Second))
	})
}

// R61: a waiter queues again however often its session expires. An end that is final is told.
func TestVirtual_SessionsExpire_WaiterQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		w := v.queueUp(newMutex(t, s, "/job"))
		for range 5 {
			require.True(t, v.srv.ExpireSession(s.SessionID()))
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

// R62, R44: the wait is cancelled at every moment of it. The call returns, and the same owner's next attempt knows nothing
// of that.
func TestVirtual_CancelledWait_DoesNotReachTheNext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		m, other := newMutex(t, v.connect(), "/job"), newMutex(t, v.connect(), "/job")
		release(t, acquire(t, m))
		cancelled := 0
		for i := range 40 {
			h := acquire(t, other)
			time.AfterFunc(6*time.Millisecond, func() { _ = h.Release(context.Background()) })
			ctx, cancel := context.WithTimeout(zklock.WithOwner(context.Background(), zklock.NewOwner("")), time.Duration(i)*400*time.Microsecond)
			o, _ := zklock.OwnerFrom(ctx)
			h2, err := m.Acquire(ctx)
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancelled++
				h2, err = m.Acquire(zklock.WithOwner(within(t, soon), o))
			}
			require.NoError(t, err)
			cancel()
			require.NoError(t, h2.Err())
			release(t, h2)
		}
		require.Positive(t, cancelled)
		require.Less(t, cancelled, 40)
		time.Sleep(time.Second)
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// R64: after a loss the owner gives its handle back, twice for good measure, and is in the queue again at once.
func TestVirtual_AfterALoss_TheOwnerQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		ctx := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner(""))
		last := int64(0)
		for range 5 {
			h, err := m.Acquire(ctx)
			require.NoError(t, err)
			require.Greater(t, h.Token(), last)
			last = h.Token()
			require.True(t, v.srv.ExpireSession(s.SessionID()))
			<-h.Lost()
			_, err = m.Acquire(ctx)
			require.ErrorIs(t, err, zklock.ErrLost, "not before the lost hold is given back")
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			require.NoError(t, h.Release(within(t, soon)), "a second release does nothing")
		}
	})
}

// I1, R55, F31: the predecessor goes between the list and the read that is to watch it. The answer that it is gone proves what its
// event would: in front of it nobody was, and our own node is there. Else it proves nothing.
func TestVirtual_PredecessorGoneWhenAsked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		goes   func(t *testing.T, v *virtual, own string, h *zklock.Hold, middle *waiting)
		lists  int32 // of the waiter, with the one that goes out with its create; 0: as many as it likes
		grants bool

		userWatches bool // the node ahead, over Conn: its event comes before the answer
	}{
		{"it was the holder: no other list", func(t *testing.T, _ *virtual, _ string, h *zklock.Hold, _ *waiting) { release(t, h) }, 1, true, false},
		{"and the user watched it", func(t *testing.T, _ *virtual, _ string, h *zklock.Hold, _ *waiting) { release(t, h) }, 1, true, true},
		{"it was a waiter that gave up", func(_ *testing.T, _ *virtual, _ string, _ *zklock.Hold, middle *waiting) { middle.stop() }, 2, false, false},
		{"our own node went too, in one transaction", func(t *testing.T, v *virtual, own string, h *zklock.Hold, _ *waiting) {
			_, err := v.connect().Conn().Multi(&zk.DeleteRequest{Path: h.Path(), Version: -1}, &zk.DeleteRequest{Path: own, Version: -1})
			require.NoError(t, err)
		}, 0, true, false}, // it queues again, and nobody holds any more
	} {
		t.Run(tt.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				h := acquire(t, newMutex(t, v.connect(), "/job"))
				ahead, middle := h.Path(), (*waiting)(nil)
				if !tt.grants {
					middle = v.queueUp(newMutex(t, v.connect(), "/job"))
					ahead = "/job/" + without(v.srv.Children("/job"), base(h.Path()))[0]
				}
				s := v.connect()
				if tt.userWatches {
					_, _, _, err := s.Conn().GetW(ahead)
					require.NoError(t, err)
				}
				var lists atomic.Int32
				v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.SessionID()).Call(func() { lists.Add(1) }))
				v.srv.Inject(zktest.Before(zktest.GetData).Path(ahead).Session(s.SessionID()).Once().Delay(time.Second))
				before := v.srv.Children("/job")
				w := v.queueUp(newMutex(t, s, "/job"))
				own := slices.DeleteFunc(v.srv.Children("/job"), func(n string) bool { return slices.Contains(before, n) })
				require.Len(t, own, 1)
				tt.goes(t, v, "/job/"+own[0], h, middle)
				time.Sleep(2 * time.Second) // the read is answered after one
				synctest.Wait()
				if tt.lists > 0 {
					require.Equal(t, tt.lists, lists.Load())
				}
				require.Equal(t, tt.grants, w.isGranted())
				if !tt.grants {
					release(t, h)
				}
				release(t, w.granted2(t, time.Second))
			})
		})
	}
}

// I7: the connection goes while both watches are being set. The waiter lists once on the next, and sets them anew: what it knows of
// the one that could not be set does not count again.
func TestVirtual_ConnectionLostWhileWatchesAreSet_ListsOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		s := v.connect()
		var lists atomic.Int32
		v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.SessionID()).Call(func() { lists.Add(1) }))
		v.srv.Inject(zktest.Before(zktest.GetData).Session(s.SessionID()).Once().Close())
		w := v.queueUp(newMutex(t, s, "/job"))
		time.Sleep(10 * time.Second) // the client dials again after one at the most
		require.EqualValues(t, 2, lists.Load(), "one with the create, one on the next connection")
		release(t, h)
		release(t, w.granted2(t, time.Second))
		require.EqualValues(t, 2, lists.Load(), "the event granted")
	})
}
