package zklock_test

// These tests attack waiters that watch each of a few nodes ahead, and are granted when the last of
// them is deleted (I1, I3, I8).

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// few is a writer that waits behind readers of other Sessions and, as the last one, a reader of its
// own Session.
type few struct {
	s       *zklock.Session
	readers []*zklock.Hold
	w       *waiting
}

func (v *virtual) few(t *testing.T, readers int) *few {
	f := &few{s: v.connect()}
	for range readers - 1 {
		f.readers = append(f.readers, acquire(t, newRWMutex(t, v.connect(), "/job").ReadLock()))
	}
	f.readers = append(f.readers, acquire(t, newRWMutex(t, f.s, "/job").ReadLock()))
	f.w = v.queueUp(newRWMutex(t, f.s, "/job").WriteLock())
	time.Sleep(time.Second)
	return f
}

// I8: in whatever order the readers release, the writer is granted after the last of them, without
// a request, also if one of them was deleted between the list and the read that sets its watch.
func TestVirtual_Few_AnyOrder_NoList(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.few(t, 3)
			v.srv.ResetRequests()
			for _, i := range order {
				require.False(t, f.w.isGranted(), "I1")
				release(t, f.readers[i])
			}
			release(t, f.w.granted2(t, time.Second))
			require.Zero(t, v.srv.Requests().Total(zktest.GetChildren), "%v", order)
		})
	}
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, first := v.connect(), acquire(t, newRWMutex(t, v.connect(), "/job").ReadLock())
		second := acquire(t, newRWMutex(t, v.connect(), "/job").ReadLock())
		v.srv.Inject(zktest.Before(zktest.GetData).Path(first.Node()).Session(s.Stats().SessionID).Once().Call(func() { _ = v.srv.Delete(first.Node()) }))
		w := v.queueUp(newRWMutex(t, s, "/job").WriteLock())
		v.srv.ResetRequests()
		release(t, second)
		release(t, w.granted2(t, time.Second))
		require.Zero(t, v.srv.Requests().Total(zktest.GetChildren))
	})
}

// I1, F27: a reader of the writer's own Session is released, and its node cannot be deleted. The
// release is not a deletion.
func TestVirtual_Few_ReleaseRefused_WriterWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		f := v.few(t, 2)
		allow := func(perms int32) {
			_, err := v.connect().Conn().SetACL("/job", zk.WorldACL(perms), -1)
			require.NoError(t, err)
		}
		release(t, f.readers[0])
		allow(zk.PermAll &^ zk.PermDelete)
		require.ErrorIs(t, f.readers[1].Release(within(t, soon)), zk.ErrNoAuth)
		time.Sleep(time.Second)
		require.False(t, f.w.isGranted(), "I1")
		allow(zk.PermAll)
		release(t, f.w.granted2(t, time.Minute))
	})
}

// I1, F31: a reader is asked to give way, which is an event of its node but not its deletion. The
// writer checks, and still waits.
func TestVirtual_Few_NodeIsWrittenTo_WriterWaits(t *testing.T) {
	for _, i := range []int{0, 1} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.few(t, 3)
			require.NoError(t, v.connect().Revoke(within(t, soon), f.readers[i].Node()))
			time.Sleep(time.Second)
			asked := f.readers[i]
			for _, h := range append(slices.DeleteFunc(f.readers, func(h *zklock.Hold) bool { return h == asked }), asked) {
				require.False(t, f.w.isGranted(), "I1")
				release(t, h)
				time.Sleep(time.Second)
			}
			release(t, f.w.granted2(t, time.Second))
		})
	}
}

// I1, I3: the connection is lost when one reader's node is deleted, and during the outage the
// writer's own node and the other reader's are deleted. No client is granted on that node.
func TestVirtual_Few_ConnectionLostInBetween_GrantsOnAList(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			f := v.few(t, 2)
			own := "/job/" + lastOf(v.srv.Children("/job"))
			release(t, f.readers[1])
			require.True(t, v.srv.DropConnection(f.s.Stats().SessionID))
			if deleted {
				require.NoError(t, v.srv.Delete(own))
			}
			release(t, f.readers[0])
			h := f.w.granted2(t, time.Minute)
			require.Equal(t, deleted, h.Node() != own, "I3")
			release(t, h)
		})
	}
}

// I1, R73: two clients wait behind a writer that also reads, and then releases its write lock: a
// reader, which joins it, and a writer, which has watched both nodes ahead. Their deletions do not
// grant it.
func TestVirtual_Few_WriterAmongThem_LeavesAReader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRWMutex(t, v.connect(), "/job")
		first := acquire(t, m.WriteLock())
		r := v.queueUp(newRWMutex(t, v.connect(), "/job").ReadLock())
		w := v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock())
		time.Sleep(time.Second)
		reads := acquireIn(t, first.Context(), m.ReadLock())
		release(t, first)
		release(t, r.granted2(t, time.Second))
		time.Sleep(time.Second)
		require.False(t, w.isGranted(), "I1")
		release(t, reads)
		release(t, w.granted2(t, time.Second))
	})
}

// I1: a reader behind more writers than it watches is not granted when the one that it watches
// gives up. It lists, and then watches each of the remaining ones.
func TestVirtual_Few_MoreWriters_NearestGivesUp_ReaderWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newRWMutex(t, v.connect(), "/job").WriteLock())
		var writers []*waiting
		for range 4 {
			writers = append(writers, v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock()))
		}
		r := v.queueUp(newRWMutex(t, v.connect(), "/job").ReadLock())
		for i := len(writers) - 1; i >= 0; i-- {
			writers[i].stop()
			<-writers[i].done
			time.Sleep(time.Second)
			require.False(t, r.isGranted(), "I1")
		}
		v.srv.ResetRequests()
		release(t, h)
		release(t, r.granted2(t, time.Second))
		require.Zero(t, v.srv.Requests().Total(zktest.GetChildren))
	})
}

// F27: the node of one reader may not be read, so the writer cannot watch it, and has data only
// about those that it watches. It lists when the nearest of them is deleted.
func TestVirtual_Few_OneCannotBeWatched_WriterWaits(t *testing.T) {
	for _, own := range []bool{false, true} { // the nearer ones are of the writer's own Session
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			client := func() *zklock.Session {
				if own {
					return s
				}
				return v.connect()
			}
			first := acquire(t, newRWMutex(t, v.connect(), "/job").ReadLock())
			second := acquire(t, newRWMutex(t, client(), "/job").ReadLock())
			third := acquire(t, newRWMutex(t, client(), "/job").ReadLock())
			v.srv.Inject(zktest.Before(zktest.GetData).Path(first.Node()).Session(s.Stats().SessionID).Fail(zktest.NoAuth))
			w := v.queueUp(newRWMutex(t, s, "/job").WriteLock())
			for _, h := range []*zklock.Hold{third, second, first} {
				time.Sleep(time.Minute)
				require.False(t, w.isGranted(), "I1")
				release(t, h)
			}
			release(t, w.granted2(t, time.Minute))
		})
	}
}

// I6, I7: a client that waits behind a few nodes gives up, repeatedly. No waiter is left that would
// be notified of their deletions.
func TestVirtual_Few_GivesUp_LeavesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newRWMutex(t, s, "/job")
		readers := []*zklock.Hold{acquire(t, newRWMutex(t, v.connect(), "/job").ReadLock()), acquire(t, m.ReadLock())}
		round := func(n int) {
			for range n {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, err := m.WriteLock().Acquire(ctx)
				cancel()
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			time.Sleep(time.Minute)
		}
		round(10)
		before := footprint(s)
		round(200)
		require.Equal(t, before, footprint(s))
		w := v.queueUp(m.WriteLock())
		v.srv.ResetRequests()
		time.Sleep(30 * time.Second) // the Session rechecks its watches for waiters
		require.Less(t, v.srv.Requests().Total(), 200)
		for _, h := range readers {
			release(t, h)
		}
		release(t, w.granted2(t, time.Second))
		require.Empty(t, v.srv.Children("/job"), "I4")
	})
}
