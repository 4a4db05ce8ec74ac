package zklock_test

// These tests lose, duplicate, delay and forge events: an event is a hint, and grants only what it
// proves (I3).

import (
	"context"
	"fmt"
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

// F30: the predecessor's event is lost. A slow recheck grants within T.
func TestVirtual_EventLost_IsGrantedByTheRecheck(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m, other := newMutex(t, v.connect(), "/job"), newMutex(t, v.connect(), "/job")
		for range 2 { // also after a time without waiters
			h := acquire(t, m)
			w := v.queueUp(other)
			v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(h.Node()).Drop().Once())
			time.Sleep(time.Minute)
			start := time.Now()
			release(t, h)
			release(t, w.granted2(t, time.Minute))
			require.LessOrEqual(t, time.Since(start), 10*time.Second+time.Second)
			time.Sleep(time.Minute)
		}
	})
}

// F31: duplicate events, or events without a cause, cause a list and no grant.
func TestVirtual_SpuriousEvents(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newMutex(t, s, "/job"))
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		for range 20 {
			require.NoError(t, v.srv.SetData(h.Node(), []byte("somebody writes")))
			synctest.Wait()
		}
		require.False(t, w.isGranted(), "F31: granted by an event that says nothing")
		v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(h.Node()).Duplicate().Once())
		release(t, h)
		h2 := w.granted2(t, time.Second)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, h2)
	})
}

// I1, I3, I5: on one live connection, own node and predecessor are deleted in one transaction. If
// our own event arrives first, the waiter detects it. If the predecessor's event arrives first,
// then until our own event arrives the grant looks correct. That hold is then lost like any whose
// node is deleted (F24): the event notifies its holder, and its token is below the next.
func TestVirtual_BothDeletedAtOnce(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("own first %t", ownFirst), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				f := v.standoff(false)
				first, second := f.pair(ownFirst)
				v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(second).Session(f.a.s.Stats().SessionID).Delay(100 * time.Millisecond).Once())
				f.deleteBoth(t, ownFirst, true)
				next := f.behind.granted2(t, 50*time.Millisecond)
				time.Sleep(200 * time.Millisecond)
				require.Equal(t, []string{first, second}, f.a.deletions())
				if ownFirst {
					time.Sleep(time.Second)
					f.goesOn(t, next)
					return
				}
				require.True(t, f.w.isGranted(), "the rule has become stricter: say so there")
				require.True(t, isLost(f.w.hold), "I5: not told by the event")
				require.Less(t, f.w.hold.Token(), next.Token())
				require.ErrorIs(t, f.w.hold.Release(within(t, soon)), zklock.ErrLost)
				require.NoError(t, next.Err())
				release(t, next)
				require.Empty(t, v.srv.Children("/job"))
			})
		})
	}
}

// F31: a waiter watches its own node before its predecessor's: if both are deleted, it is notified
// about its own.
func TestVirtual_Waiter_WatchesItsOwnNodeFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.standoff(false)
		require.Equal(t, []string{f.own, f.h.Node()}, f.a.watched())
	})
}

// F30, I8: the predecessor is deleted as soon as its watch is set. The event directly follows the
// response, and counts although the client has not processed that response yet.
func TestVirtual_EventBehindTheAnswer_IsHeard(t *testing.T) {
	for range 20 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond) // both come at one instant
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect()
			v.srv.Inject(zktest.After(zktest.GetData).Path(h.Node()).Session(s.Stats().SessionID).Once().
				Call(func() { _ = v.srv.Delete(h.Node()) }))
			w := v.queueUp(newMutex(t, s, "/job"))
			mine := w.granted2(t, time.Second)
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			release(t, mine)
		})
	}
}

// F30, I7: the wait has ended, and the event of the waiter's own node is lost. The watch is dropped
// ten session timeouts later.
func TestVirtual_EventLost_NobodyWaits_WatchIsForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h, s := acquire(t, newMutex(t, v.connect(), "/job")), v.connect()
		wait := func(event func(node string)) (before, after map[string]int) {
			w := v.queueUp(newMutex(t, s, "/job"))
			event("/job/" + slices.DeleteFunc(v.srv.Children("/job"), func(c string) bool { return "/job/"+c == h.Node() })[0])
			w.stop()
			_, err := w.get(t)
			require.ErrorIs(t, err, context.Canceled)
			before = footprint(s)
			time.Sleep(112 * time.Second)
			return before, footprint(s)
		}
		_, heard := wait(func(string) {})
		waited, lost := wait(func(node string) {
			v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(node).Drop().Once())
		})
		require.NotEqual(t, heard, waited, "the watch on its own node")
		require.Equal(t, heard, lost, "I7")
	})
}

// F30, I7: no call of the Session ever waited, and the event of a holder that listens for
// revocation is lost. Its watch is dropped too. While it is set, it costs one read in ten session
// timeouts.
func TestVirtual_EventLost_OfWithRevocation_WatchIsForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithRevocation(func(*zklock.Hold) {}))
		hold := func(event func(h *zklock.Hold)) (before, after map[string]int) {
			h := acquire(t, m)
			v.srv.ResetRequests()
			time.Sleep(1001 * time.Second)
			require.Equal(t, 10, v.srv.Requests().Total(zktest.Exists))
			before = footprint(s)
			event(h)
			release(t, h)
			time.Sleep(101 * time.Second)
			return before, footprint(s)
		}
		_, heard := hold(func(*zklock.Hold) {})
		held, lost := hold(func(h *zklock.Hold) {
			v.srv.Inject(zktest.OnEvent(zktest.NodeDeleted).Path(h.Node()).Drop().Once())
		})
		require.NotEqual(t, heard, held, "the watch on its own node")
		require.Equal(t, heard, lost, "I7")
	})
}

// F31: an event that proves nothing causes one read, and the watch is set again: the next event is
// noticed at once.
func TestVirtual_DataChanged_IsWatchedOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		time.Sleep(100 * time.Millisecond)
		v.srv.ResetRequests()
		require.NoError(t, v.srv.SetData(h.Node(), []byte("somebody writes")))
		time.Sleep(100 * time.Millisecond)
		require.LessOrEqual(t, v.srv.Requests().Total(zktest.GetChildren), 1, "no busy loop")
		require.False(t, w.isGranted())
		start := time.Now()
		release(t, h)
		release(t, w.granted2(t, time.Minute))
		require.Less(t, time.Since(start), time.Second, "the second event was not heard")
	})
}

// F30, I7: the event of a waiter's own node is lost. The waiter queues again after the session
// timeout.
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
		require.NotEqual(t, own, base(w.granted2(t, time.Second).Node()))
		release(t, w.hold)
	})
}

// F30, I3: the predecessor and our own node are deleted, and both events are lost. Whichever of the
// two is checked first, no client is granted on a deleted node.
func TestVirtual_BothEventsLost_NeverGrants(t *testing.T) {
	for range 10 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := acquire(t, newMutex(t, v.connect(), "/job"))
			s := v.connect()
			defer release(t, acquire(t, newMutex(t, s, "/other"))) // so that the lease needs no request before a grant
			w := v.queueUp(newMutex(t, s, "/job"))
			own := "/job/" + lastOf(v.srv.Children("/job"))
			behind := v.queueUp(newMutex(t, v.connect(), "/job"))
			for _, node := range []string{own, h.Node()} {
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

// I1, R55, F31: the predecessor is deleted between the list and the read that sets its watch. The
// NoNode response proves the same as its event: if no node was ahead of it and our own node exists,
// we are first. Otherwise it proves nothing.
func TestVirtual_PredecessorGoneWhenAsked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		goes   func(t *testing.T, v *virtual, own string, h *zklock.Hold, middle *waiting)
		lists  int32 // of the waiter, including the one sent with its create; 0: any number
		grants bool

		userWatches bool // the node ahead, over Conn: its event arrives before the response
	}{
		{"it was the holder: no other list", func(t *testing.T, _ *virtual, _ string, h *zklock.Hold, _ *waiting) { release(t, h) }, 1, true, false},
		{"and the user watched it", func(t *testing.T, _ *virtual, _ string, h *zklock.Hold, _ *waiting) { release(t, h) }, 1, true, true},
		{"it was a waiter that gave up: nor is there one, as the holder is watched, too", func(_ *testing.T, _ *virtual, _ string, _ *zklock.Hold, middle *waiting) { middle.stop() }, 1, false, false},
		{"our own node went too, in one transaction", func(t *testing.T, v *virtual, own string, h *zklock.Hold, _ *waiting) {
			_, err := v.connect().Conn().Multi(&zk.DeleteRequest{Path: h.Node(), Version: -1}, &zk.DeleteRequest{Path: own, Version: -1})
			require.NoError(t, err)
		}, 0, true, false}, // it queues again, and no client holds any more
	} {
		t.Run(tt.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				h := acquire(t, newMutex(t, v.connect(), "/job"))
				ahead, middle := h.Node(), (*waiting)(nil)
				if !tt.grants {
					middle = v.queueUp(newMutex(t, v.connect(), "/job"))
					ahead = "/job/" + without(v.srv.Children("/job"), base(h.Node()))[0]
				}
				s := v.connect()
				if tt.userWatches {
					_, _, _, err := s.Conn().GetW(ahead)
					require.NoError(t, err)
				}
				var lists atomic.Int32
				v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Call(func() { lists.Add(1) }))
				v.srv.Inject(zktest.Before(zktest.GetData).Path(ahead).Session(s.Stats().SessionID).Once().Delay(time.Second))
				before := v.srv.Children("/job")
				w := v.queueUp(newMutex(t, s, "/job"))
				own := slices.DeleteFunc(v.srv.Children("/job"), func(n string) bool { return slices.Contains(before, n) })
				require.Len(t, own, 1)
				tt.goes(t, v, "/job/"+own[0], h, middle)
				time.Sleep(2 * time.Second) // the response to the read arrives after one
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

// F30: a holder is asked to give way, and the event is lost. The holder is notified within ten
// session timeouts.
func TestVirtual_EventLost_OfARevocation_IsHeard(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		asked := make(chan struct{}, 1)
		h := take(t, newMutex(t, s, "/job/r", zklock.WithRevocation(func(*zklock.Hold) { asked <- struct{}{} })))
		time.Sleep(time.Second)
		f := v.srv.Inject(zktest.OnEvent(zktest.NodeDataChanged).Session(s.Stats().SessionID).Drop().Once())
		require.NoError(t, v.connect().Revoke(within(t, soon), h.Node()))
		synctest.Wait()
		require.Equal(t, 1, f.Fired())
		time.Sleep(101 * time.Second)
		require.Len(t, asked, 1)
	})
}
