package zklock_test

// These tests attack a semaphore's leases: responses are lost, nodes are deleted, connections and
// sessions end.

import (
	"bytes"
	"context"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// leasesOf returns the leases that a session has created, including deleted ones.
func leasesOf(history []zktest.Applied, session int64) []string {
	return slices.DeleteFunc(nodesOf(history, session), func(p string) bool { return !strings.HasPrefix(p, semLeases+"/") })
}

// F3, I2, I4: the transaction that creates the leases was applied, and its response lost. The
// leases are adopted: there are never more.
func TestVirtual_Semaphore_AnswerLost_LeasesAreAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 3)))
		s := v.connect()
		v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").DropReply().Close().Once())
		h := take(t, newSemaphore(t, s, semPath, 3).Permits(3))
		v.has(3, 0)
		require.Len(t, leasesOf(v.srv.History(), s.Stats().SessionID), 3, "I2")
		require.Len(t, h.Checks(), 3)
		release(t, h)
		v.has(0, 0, "I4")
	})
}

// losing is a client's connection that loses the first request that creates leases, and then ends.
type losing struct {
	net.Conn
	id *string // the protection id of those leases
}

func (l losing) Write(p []byte) (int, error) {
	at := bytes.Index(p, []byte(semLeases+"/_c_"))
	if at < 0 || *l.id != "" {
		return l.Conn.Write(p)
	}
	*l.id = string(p[at+len(semLeases+"/_c_"):][:36])
	l.Conn.Close()
	return 0, net.ErrClosed
}

// F2, I4: the transaction was lost on its way. A copy of it arrives late, just before the client
// deletes its node in the queue; after that, a copy has no effect. The leases of the copy are found
// and deleted, and no permit leaks.
func TestVirtual_Semaphore_RequestLost_LateCopyLeaksNothing(t *testing.T) {
	for _, late := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			release(t, take(t, v.permits(1, 2)))
			id := ""
			s := v.connect(zklock.WithDialer(func(network, addr string, d time.Duration) (net.Conn, error) {
				c, err := v.net.Dial(network, addr, d)
				return losing{c, &id}, err
			}))
			if late {
				v.srv.Inject(zktest.Before(zktest.Delete).Session(s.Stats().SessionID).Path(semQueue + "/*").Call(func() {
					v.onlyNode(semQueue) // so the check in the copy succeeds
					for range 2 {
						_, err := v.srv.CreateAs(s.Stats().SessionID, semLeases+"/_c_"+id+"-lease-", nil, zk.FlagEphemeral|zk.FlagSequence)
						require.NoError(t, err)
					}
				}).Once())
			}
			h := take(t, newSemaphore(t, s, semPath, 2).Permits(2))
			require.NotEmpty(t, id)
			require.NotContains(t, h.Node(), id)
			v.has(2, 0, "I4")
			release(t, h)
			v.has(0, 0, "I4")
		})
	}
}

// RULES: exclusion does not rest on the inner lock. The node of the first client in the queue is
// deleted while that client waits with its lease. So the next client creates a lease too. Their
// order decides: when the permit is free, the first gets it. By their count, both would wait
// indefinitely.
func TestVirtual_Semaphore_QueueNodeDeleted_OrderDecides(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.permits(1, 1))
		first := v.lineUp(v.permits(1, 1))
		require.NoError(t, v.srv.Delete(v.onlyNode(semQueue)))
		second := v.lineUp(v.permits(1, 1))
		v.has(3, 1)
		release(t, h)
		synctest.Wait()
		require.False(t, second.isGranted(), "I1")
		release(t, first.granted(t))
		release(t, second.granted(t))
		v.has(0, 0)
	})
}

// F24, I5: one of three leases is deleted. The whole hold is lost, within a heartbeat, and the
// other permits are free.
func TestVirtual_Semaphore_LeaseDeleted_WholeHoldIsLost(t *testing.T) {
	for i := range 3 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			h := take(t, newSemaphore(t, s, semPath, 3).Permits(3))
			other := take(t, newSemaphore(t, s, "/job/other", 1).Permits(1))
			next := v.lineUp(v.permits(3, 3))
			require.NoError(t, v.srv.Delete(h.Checks()[i].Path))
			lostWithin(t, h, 1100*time.Millisecond) // h is a tenth of 10 s
			require.ErrorIs(t, h.Err(), zklock.ErrLost)
			release(t, next.granted(t))
			v.has(0, 0, "I4")
			require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
			require.NoError(t, other.Err())
			release(t, other)
		})
	}
}

// F24: a lease is deleted while its call waits for a permit. The call queues again, and all of its
// leases are new.
func TestVirtual_Semaphore_LeaseDeletedInTheWait_QueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.permits(2, 3))
		w := v.lineUp(v.permits(2, 3))
		names := v.srv.Children(semLeases)
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		require.NoError(t, v.srv.Delete(semLeases+"/"+names[3]))
		time.Sleep(time.Minute)
		v.has(4, 1)
		_, ok := v.srv.Stat(semLeases + "/" + names[2])
		require.False(t, ok, "I4: a part of what it had made")
		release(t, h)
		release(t, w.granted(t))
		v.has(0, 0)
	})
}

// F9, I4: the response to a release is lost, after or before the deletion of the leases. All are
// deleted, in one transaction.
func TestVirtual_Semaphore_ReleaseLost_AllGo(t *testing.T) {
	for name, f := range map[string]zktest.Fault{
		"applied": zktest.After(zktest.Multi).DropReply().Close(), "not applied": zktest.Before(zktest.Multi).Close(),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				h := take(t, newSemaphore(t, s, semPath, 3).Permits(3))
				v.srv.Inject(f.Session(s.Stats().SessionID).Path(semLeases + "/*").Once())
				release(t, h)
				v.has(0, 0)
				zxids := map[int64]bool{}
				for _, a := range v.srv.History() {
					if a.Kind == zktest.Deleted && strings.HasPrefix(a.Path, semLeases) {
						zxids[a.Zxid] = true
					}
				}
				require.Len(t, zxids, 1)
			})
		})
	}
}

// F22, F30: the connection ends while a call waits for a permit, or the server loses the event, or
// is too busy to set the next watch. The call is still granted.
func TestVirtual_Semaphore_WaiterMissesTheEvent_IsGranted(t *testing.T) {
	for name, miss := range map[string]func(v *virtual, s *zklock.Session, free func()){
		"reconnects": func(v *virtual, s *zklock.Session, free func()) {
			require.True(v.t, v.srv.DropConnection(s.Stats().SessionID))
			free()
		},
		"event lost": func(v *virtual, s *zklock.Session, free func()) {
			v.srv.Inject(zktest.OnEvent(zktest.NodeChildrenChanged).Session(s.Stats().SessionID).Drop().Once())
			free()
		},
		"watch rejected": func(v *virtual, s *zklock.Session, free func()) {
			v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Path(semLeases).Nth(2).Fail(zktest.Throttled)) // after the list
			other, err := v.srv.Create(semLeases+"/other", nil, 0)
			require.NoError(v.t, err)
			require.NoError(v.t, v.srv.Delete(other))
			synctest.Wait()
			free()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				h := take(t, v.permits(1, 1))
				s := v.connect()
				w := v.lineUp(newSemaphore(t, s, semPath, 1).Permits(1))
				miss(v, s, func() { release(t, h) })
				release(t, w.granted2(t, 25*time.Second))
				v.has(0, 0)
			})
		})
	}
}

// I3, I4: the ZooKeeper session ends while a call waits for a permit with its leases. The call
// queues again in the next session.
func TestVirtual_Semaphore_SessionEndsInTheWait_QueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.permits(2, 2))
		s := v.connect()
		w := v.lineUp(newSemaphore(t, s, semPath, 2).Permits(2))
		require.True(t, v.srv.ExpireSession(s.Stats().SessionID))
		time.Sleep(time.Minute)
		v.has(4, 1)
		release(t, h)
		mine := w.granted(t)
		st, ok := v.srv.Stat(mine.Node())
		require.True(t, ok)
		require.Equal(t, s.Stats().SessionID, st.EphemeralOwner)
		release(t, mine)
	})
}

// I4, I6: a call that waits for a permit gives up: its leases and its node in the queue are deleted
// in one transaction, and the next call proceeds.
func TestVirtual_Semaphore_GivesUp_LeavesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.permits(2, 3))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		failed := make(chan error, 1)
		many := v.permits(3, 3)
		go func() {
			_, err := many.Acquire(ctx)
			failed <- err
		}()
		synctest.Wait()
		one := v.lineUp(v.permits(1, 3))
		v.has(5, 2)
		left := v.srv.Zxid()
		cancel()
		err := <-failed
		require.ErrorIs(t, err, context.Canceled)
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 1, e.Position, "first in line")
		require.Contains(t, e.Node, semLeases+"/")
		gone := map[int64]int{} // by transaction
		for _, a := range v.srv.History() {
			if a.Kind == zktest.Deleted && a.Zxid > left {
				gone[a.Zxid]++
			}
		}
		require.Contains(t, slices.Collect(maps.Values(gone)), 4, "three leases and the node in the queue")
		release(t, one.granted(t))
		release(t, h)
		v.has(0, 0)
	})
}

// F26: all nodes of the semaphore are deleted while one call holds and one waits. They are created
// again.
func TestVirtual_Semaphore_RootsDeleted_AreMadeAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.permits(1, 1))
		w := v.lineUp(v.permits(1, 1))
		v.srv.Freeze() // all at once: granted on the holder's lease alone, the waiter would lose its own to the next deletion
		for _, p := range []string{semLeases, semQueue} {
			for _, name := range v.srv.Children(p) {
				require.NoError(t, v.srv.Delete(p+"/"+name))
			}
			require.NoError(t, v.srv.Delete(p))
		}
		require.NoError(t, v.srv.Delete(semPath))
		v.srv.Thaw()
		lostWithin(t, h, 2*time.Second)
		release(t, w.granted(t))
		v.has(0, 0)
	})
}

// F34, I1: the leases' counter is at its end. No call is granted there, the empty root is
// recreated, and another try succeeds.
func TestVirtual_Semaphore_SequenceEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		p := v.permits(2, 3)
		h := take(t, p)
		require.True(t, v.srv.SetCreates(semLeases, 1<<31-1<<20))
		_, err := v.permits(1, 3).Acquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
		v.has(2, 0)
		release(t, h)
		time.Sleep(time.Second)
		_, err = p.Acquire(t.Context())
		if err != nil {
			require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
			_, err = p.Acquire(t.Context())
			require.NoError(t, err)
		}
	})
}

// R30, I3: the response is lost, and the nodes that have its id afterwards belong to another
// session. No hold rests on them, and they are deleted.
func TestVirtual_Semaphore_AnswerLost_LeasesOfAnotherSession_AreNotAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 2)))
		s := v.connect()
		v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").Call(func() {
			for _, name := range v.srv.Children(semLeases) {
				_ = v.srv.Delete(semLeases + "/" + name)
				_, _ = v.srv.Create(semLeases+"/"+name, nil, 0)
			}
		}).DropReply().Close().Once())
		h := take(t, newSemaphore(t, s, semPath, 2).Permits(2))
		st, ok := v.srv.Stat(h.Node())
		require.True(t, ok)
		require.Equal(t, s.Stats().SessionID, st.EphemeralOwner)
		v.has(2, 0, "I4")
		release(t, h)
	})
}

// The node in the queue is deleted just before the leases are created: the transaction creates
// none, and the call queues again.
func TestVirtual_Semaphore_TurnLost_NothingIsMade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 2)))
		s := v.connect()
		v.srv.Inject(zktest.Before(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").Call(func() {
			_ = v.srv.Delete(v.onlyNode(semQueue))
		}).Once())
		h := take(t, newSemaphore(t, s, semPath, 2).Permits(2))
		require.Len(t, leasesOf(v.srv.History(), s.Stats().SessionID), 2)
		require.Len(t, nodesOf(v.srv.History(), s.Stats().SessionID), 2+2, "it queues again")
		v.has(2, 0)
		release(t, h)
	})
}

// F22: the connection ends while a call waits for a permit, and the events of the outage are lost.
// The call checks again by itself.
func TestVirtual_Semaphore_Reconnects_ListsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, v.permits(1, 1))
		s := v.connect()
		w := v.lineUp(newSemaphore(t, s, semPath, 1).Permits(1))
		v.srv.Inject(zktest.OnEvent(zktest.NodeChildrenChanged).Session(s.Stats().SessionID).Drop())
		require.True(t, v.srv.DropConnection(s.Stats().SessionID))
		release(t, h)
		release(t, w.granted2(t, 3*time.Second))
	})
}

// R74, F27: the response is lost, and the root gives no READ, so the existence of the leases is
// unknown. They are deleted when READ is given again.
func TestVirtual_Semaphore_AnswerLost_NoRead_GoesWhenItDoes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 3)))
		s := v.connect()
		denied := v.srv.Inject(zktest.Before(zktest.GetChildren).Path(semLeases).Session(s.Stats().SessionID).Fail(zktest.NoAuth))
		v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").DropReply().Close().Once())
		_, err := newSemaphore(t, s, semPath, 3).Acquire(within(t, soon), 3)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		v.has(3, 0)
		denied.Remove()
		time.Sleep(10 * time.Second)
		v.has(0, 0, "I4")
	})
}

// I7: goroutines, watches, memory and the count of lock nodes do not grow with cycles, waits in
// vain, leases that the servers deny and changes of the limit.
func TestVirtual_Semaphore_GrowsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		sem := newSemaphore(t, s, semPath, 2, zklock.WithSharedLimit(semLimit))
		other := take(t, v.sharing(1, 2))
		cycle := func() {
			h := take(t, sem.Permits(1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := sem.Acquire(ctx, 2)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = sem.TryAcquire(t.Context(), 1)
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			v.setLimit(2)
			release(t, h)
			denied := v.denied(s, zktest.Multi, semLeases+"/*")
			_, err = sem.Acquire(t.Context(), 1)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			denied.Remove()
			time.Sleep(time.Second)
		}
		for range 5 {
			cycle()
		}
		before := footprint(s)
		watches, goroutines := len(v.srv.Watches()), runtime.NumGoroutine()
		for range 50 {
			cycle()
		}
		require.Equal(t, before, footprint(s))
		require.LessOrEqual(t, len(v.srv.Watches()), watches)
		atMost(t, goroutines, "goroutines")
		release(t, other)
	})
}

// I4: the response is lost, and another client has created more nodes with our leases' id. None of
// them is granted, and all of ours are deleted.
func TestVirtual_Semaphore_AnswerLost_MoreNodesWithItsId_QueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 2)))
		s := v.connect()
		v.srv.Inject(zktest.After(zktest.Multi).Session(s.Stats().SessionID).Path(semLeases + "/*").Call(func() {
			name := v.srv.Children(semLeases)[0]
			for _, suffix := range []string{"7", "8", "9"} {
				_, err := v.srv.Create(semLeases+"/"+name[:len(name)-1]+suffix, nil, 0)
				require.NoError(t, err)
			}
		}).DropReply().Close().Once())
		h := take(t, newSemaphore(t, s, semPath, 2).Permits(1))
		require.Len(t, leasesOf(v.srv.History(), s.Stats().SessionID), 2, "one was given up, one is held")
		v.has(1, 0, "I4")
		release(t, h)
	})
}

// F30, F48: the limit is raised, and the event is lost. A check within the session timeout grants.
func TestVirtual_Semaphore_LimitsEventLost_IsGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		take(t, v.sharing(1, 1))
		s := v.connect()
		w := v.lineUp(newSemaphore(t, s, semPath, 1, zklock.WithSharedLimit(semLimit)).Permits(1))
		f := v.srv.Inject(zktest.OnEvent(zktest.NodeDataChanged).Session(s.Stats().SessionID).Drop().Once())
		v.setLimit(2)
		synctest.Wait()
		require.Equal(t, 1, f.Fired())
		require.False(t, w.isGranted())
		time.Sleep(25 * time.Second)
		require.True(t, w.isGranted(), "a permit has been free for two session timeouts")
	})
}
