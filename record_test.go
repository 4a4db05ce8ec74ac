package zklock_test

// These tests attack record.go: in a long queue, a release says in the lock root who released.

import (
	"context"
	"fmt"
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

// longQueue is a holder and waiters, a Session each, in a queue that counts as long.
type longQueue struct {
	*virtual
	h     *zklock.Hold
	queue []*waiting
}

func (v *virtual) longQueue(waiters int, opts ...zklock.MutexOption) *longQueue {
	client := func() *zklock.Mutex {
		return newMutex(v.t, v.connect(zklock.WithLongQueue(2)), "/job", opts...)
	}
	q := &longQueue{virtual: v}
	first := client()
	q.h = acquire(v.t, first)
	for range waiters {
		q.queue = append(q.queue, v.queueUp(client()))
	}
	return q
}

// next releases the lock, and returns what was asked until all has come to rest.
func (q *longQueue) next() zktest.Counts {
	q.srv.ResetRequests()
	before := q.h
	release(q.t, q.h)
	q.h, q.queue = q.queue[0].granted2(q.t, time.Second), q.queue[1:]
	require.Greater(q.t, q.h.Token(), before.Token(), "I1")
	synctest.Wait()
	return q.srv.Requests()
}

func (q *longQueue) data() string {
	data, ok := q.srv.Get("/job")
	require.True(q.t, ok)
	return string(data)
}

// I8: once the first records are there, nobody lists: a hand-over is one transaction and one event, and the next in line looks
// by one small read.
func TestVirtual_Record_NobodyLists(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(12)
		for i := range 11 {
			released := q.h
			counts := q.next()
			if i < 3 { // the first hold was made in an empty queue, and the next two had nothing to look by
				continue
			}
			require.Equal(t, fmt.Sprintf("zklock/1 released=%s token=%d\n", base(released.Path()), released.Token()), q.data())
			require.Zero(t, counts.Total(zktest.GetChildren, zktest.GetChildren2), "%v", counts)
			require.Equal(t, 1, counts.Total(zktest.Multi), "%v", counts)
			require.Zero(t, counts.Total(zktest.Delete), "%v", counts)
			require.Equal(t, 2, counts.Total(zktest.GetData), "a look, and the holder's own read: %v", counts)
			require.Equal(t, counts.Total(), counts.Total(zktest.Multi, zktest.GetData, zktest.Ping, zktest.Exists), "%v", counts)
		}
		release(t, q.h)
		release(t, q.queue[0].granted2(t, time.Second))
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// Data that is not ours is never overwritten, and costs no hold.
func TestVirtual_Record_ForeignDataStays(t *testing.T) {
	for _, data := range []string{"the payments team's", " ", "zklock/2 released=x", "zklock/1x"} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			require.NoError(t, v.srv.SetData("/job", []byte(data)))
			q := v.longQueue(6)
			for range 6 {
				q.next()
				require.Equal(t, data, q.data())
			}
			release(t, q.h)
			require.Equal(t, data, q.data())
		})
	}
}

// It is written after somebody has looked: the version tells. The release succeeds without a record.
func TestVirtual_Record_DataWrittenMeanwhileStays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(9)
		for range 5 {
			q.next()
		}
		require.True(t, strings.HasPrefix(q.data(), "zklock/1 released="), "or this shows nothing")
		require.NoError(t, v.srv.SetData("/job", []byte("the payments team's")))
		for range 4 {
			q.next()
			require.Equal(t, "the payments team's", q.data())
		}
		release(t, q.h)
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}

// After a release that could leave no record, one lists, and then nobody does again.
func TestVirtual_Record_GoesOnAfterAGap(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(14)
		for range 5 {
			q.next()
		}
		require.NoError(t, v.srv.SetData("/job", []byte(q.data()))) // the version is another
		lists := 0
		for range 5 {
			lists += q.next().Total(zktest.GetChildren, zktest.GetChildren2)
		}
		require.Equal(t, 1, lists)
		require.Zero(t, q.next().Total(zktest.GetChildren, zktest.GetChildren2))
	})
}

// Without WRITE on the lock root there are no records, and releases succeed. A Session tries once to leave one.
func TestVirtual_Record_NoPermission_IsLeftOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		acl := zk.WorldACL(zk.PermAll &^ zk.PermWrite)
		var clients []*zklock.Mutex
		for range 2 {
			clients = append(clients, newMutex(t, v.connect(zklock.WithLongQueue(2)), "/job/deep", zklock.WithACL(acl)))
		}
		h := acquire(t, clients[0]) // makes the root
		var queue []*waiting
		for i := range 12 {
			queue = append(queue, v.queueUp(clients[(i+1)%2]))
		}
		v.srv.ResetRequests()
		for _, w := range queue {
			release(t, h)
			h = w.granted2(t, time.Second)
			synctest.Wait()
		}
		release(t, h)
		require.Equal(t, len(clients), v.srv.Requests().Total(zktest.Multi))
		data, _ := v.srv.Get("/job/deep")
		require.Empty(t, data)
	})
}

// I6: a release that comes before the holder has read the root waits for that, and not for longer than any release: it ends with its
// context, with Close and with the session; and if the connection goes, it succeeds without a record.
func TestVirtual_Record_ReleaseBeforeTheRead(t *testing.T) {
	for _, c := range []struct {
		name string
		ends func(q *longQueue, s *zklock.Session, read *zktest.Injection)
		want error // of the release; nil: it succeeds
	}{
		{"the answer comes", func(_ *longQueue, _ *zklock.Session, read *zktest.Injection) { read.Release() }, nil},
		{"the connection goes", func(q *longQueue, s *zklock.Session, _ *zktest.Injection) {
			require.True(q.t, q.srv.DropConnection(s.SessionID()))
		}, nil},
		{"the session expires", func(q *longQueue, s *zklock.Session, _ *zktest.Injection) {
			require.True(q.t, q.srv.ExpireSession(s.SessionID()))
		}, nil},
		{"Close", func(_ *longQueue, s *zklock.Session, _ *zktest.Injection) { _ = s.Close() }, zklock.ErrClosed},
		{"ctx ends", func(*longQueue, *zklock.Session, *zktest.Injection) {}, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				q := v.longQueue(5)
				for range 3 {
					q.next()
				}
				s := v.connect(zklock.WithLongQueue(2))
				mine := v.queueUp(newMutex(t, s, "/job"))
				for len(q.queue) > 0 {
					q.next()
				}
				read := v.srv.Inject(zktest.After(zktest.GetData).Path("/job").Session(s.SessionID()).Once().Hold()) // it has looked before
				release(t, q.h)
				h := mine.granted2(t, time.Second)
				released := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
					defer cancel()
					released <- h.Release(ctx)
				}()
				synctest.Wait()
				require.Empty(t, released, "or this shows nothing")
				c.ends(q, s, read)
				select {
				case err := <-released:
					require.ErrorIs(t, err, c.want)
				case <-time.After(5 * time.Second):
					t.Fatal("I6: Release hangs")
				}
				read.Release()
			})
		})
	}
}

// F28: a server asks for less. The release is tried again, with its record, after a pause.
func TestVirtual_Record_Throttled_IsTriedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(9)
		for range 4 {
			q.next()
		}
		struck := v.srv.Inject(zktest.Before(zktest.Multi).Path(q.h.Path()).Fail(zktest.Throttled).Once())
		released := q.h
		q.next()
		require.Equal(t, 1, struck.Fired())
		require.Contains(t, q.data(), base(released.Path()))
		q.next()
		release(t, q.h)
	})
}

// I1: a waiter that gives up leaves no record: others are ahead of it.
func TestVirtual_Record_WhoGivesUpLeavesNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(8)
		for range 4 {
			q.next()
		}
		record := q.data()
		for i := range 2 {
			q.queue[i].stop()
			<-q.queue[i].done
			synctest.Wait()
			require.Equal(t, record, q.data())
		}
		q.queue = q.queue[2:]
		require.False(t, q.queue[0].isGranted(), "I1")
		q.next()
		for len(q.queue) > 0 {
			q.next()
		}
		release(t, q.h)
	})
}

// I1, F24: an administrator deletes nodes in the middle of the queue. No record says so, and nobody is let in.
func TestVirtual_Record_NodesDeleted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(8)
		for range 4 {
			q.next()
		}
		names := v.srv.Children("/job")
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(suffixOf(a), suffixOf(b)) })
		for _, i := range []int{1, 2} { // the two behind the holder, in the order of the queue
			require.NoError(t, v.srv.Delete("/job/"+names[i]))
			synctest.Wait()
		}
		for _, w := range q.queue {
			require.False(t, w.isGranted(), "I1")
		}
		q.queue = append(q.queue[2:], q.queue[:2]...) // they queue again at the tail
		time.Sleep(15 * time.Second)                  // virtual: longer than the session timeout, in which each node is looked at once
		for len(q.queue) > 2 {
			q.next()
		}
	})
}

// The answers to a release with a record are lost: it has succeeded, once.
func TestVirtual_Record_AnswerLost(t *testing.T) {
	for _, applied := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			q := v.longQueue(9)
			for range 5 {
				q.next()
			}
			fault := zktest.Before(zktest.Multi).Path(q.h.Path()).Close().Once()
			if applied {
				fault = zktest.After(zktest.Multi).Path(q.h.Path()).DropReply().Close().Once()
			}
			struck := v.srv.Inject(fault)
			released := q.h
			q.next()
			require.Equal(t, 1, struck.Fired())
			require.Contains(t, q.data(), base(released.Path()))
			q.next()
			release(t, q.h)
		})
	}
}

// F34: the counter's restart takes a record for an empty root's data, and a root that is made again has no record.
func TestVirtual_Record_CounterStartsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(6)
		require.True(t, v.srv.SetCreates("/job", 1<<31-1<<26))
		for len(q.queue) > 0 {
			q.next()
		}
		require.True(t, strings.HasPrefix(q.data(), "zklock/1 released="), "or this shows nothing")
		s := v.connect()
		m := newMutex(t, s, "/job")
		w := v.queueUp(m)
		release(t, q.h)
		release(t, w.granted2(t, time.Second))
		synctest.Wait()
		_, ok := v.srv.Get("/job")
		require.False(t, ok, "the root was removed, to start the counter again")
		h := acquire(t, m)
		require.Equal(t, "0000000000", suffixOf(h.Path()))
		require.Empty(t, q.data())
		release(t, h)
	})
}

// Clients that see other queues than zklock's own leave no records.
func TestVirtual_Record_OtherQueue_TakesNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(6, zklock.WithQueuePattern("mine-"))
		for range 6 {
			q.next()
			require.Empty(t, q.data())
		}
		release(t, q.h)
	})
}

// F35, I1: another client's node has the number of the holder, who leaves a record. The record says nothing about that node.
func TestVirtual_Record_NoneForANodeWithTheHoldersNumber(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		q := v.longQueue(1)
		q.next()
		twin := v.foreignTwin(q.h)
		waiter := func() *zklock.Mutex { return newMutex(t, v.connect(zklock.WithLongQueue(2)), "/job") }
		ahead := v.queueUp(waiter())
		// It would watch the holder, too, if the holder's node came last in its list.
		watched := v.srv.Inject(zktest.Before(zktest.GetData).Path(q.h.Path()).Call(func() {}).Optional())
		w := v.queueUpUntil(waiter(), func() bool { return watched.Fired() > 0 })
		release(t, q.h)
		synctest.Wait()
		require.Contains(t, q.data(), base(q.h.Path()), "or this shows nothing")
		ahead.stop()
		<-ahead.done
		synctest.Wait()
		require.False(t, w.isGranted(), "I1: granted behind a node that stands")
		require.NoError(t, v.srv.Delete(twin))
		release(t, w.granted2(t, time.Second))
	})
}
