package zklock_test

// These tests count the requests of readers and writers, and their remaining state (I7, I8).

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I8, the request budget: R readers behind a writer, each of a Session of its own. Its release
// costs one request and an event for each, and no list. Readers of one Session share the watch and
// the list.
func TestVirtual_ReadWrite_Requests(t *testing.T) {
	for _, readers := range []int{1, 10, 100} {
		for _, sessions := range []int{1, readers} {
			t.Run(fmt.Sprintf("%d readers on %d sessions", readers, sessions), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					wired := &wire{dial: v.net.Dial}
					h := acquire(t, newRWMutex(t, v.connect(), "/job").WriteLock())
					var rs []*waiting
					var s *zklock.Session
					for i := range readers {
						if i%(readers/sessions) == 0 {
							s = v.connect(wired.dialer())
						}
						rs = append(rs, v.queueUp(newRWMutex(t, s, "/job").ReadLock()))
					}
					w := v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock())
					synctest.Wait()
					wired.reset()
					v.srv.ResetRequests()
					release(t, h)
					require.NotContains(t, grantedOf(rs...), "0")
					require.False(t, w.isGranted(), "I1")
					sent, by := wired.sent()
					require.Zero(t, sent, "%v", by)
					require.Equal(t, sessions, wired.received().events)
					require.LessOrEqual(t, v.srv.Requests().Total(zktest.GetChildren), 1, "the writer's, if it is second now")

					// The last reader's release grants the writer. Each earlier release makes the
					// writer check, at most.
					v.srv.ResetRequests()
					for _, r := range rs {
						release(t, r.hold)
					}
					next := w.granted2(t, time.Second)
					require.Equal(t, readers, v.srv.Requests().Total(zktest.Delete))
					require.LessOrEqual(t, v.srv.Requests().Total(zktest.GetChildren), 2)
					release(t, next)
				})
			})
		}
	}
	t.Run("within one Session", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			const readers = 100
			v.net.SetLatency(time.Millisecond)
			m := newRWMutex(t, v.connect(), "/job")
			h := acquire(t, m.WriteLock())
			var rs []*waiting
			for range readers {
				rs = append(rs, v.queueUp(m.ReadLock()))
			}
			time.Sleep(time.Second)
			v.srv.ResetRequests()
			release(t, h)
			time.Sleep(100 * time.Millisecond)
			require.NotContains(t, grantedOf(rs...), "0")
			require.Equal(t, 1, v.srv.Requests().Total(), "the deletion, whose answer proves to each that the writer is gone")
			require.Zero(t, v.srv.Requests().Events)
			for _, r := range rs {
				release(t, r.hold)
			}
		})
	})
}

// I8: a reader's release notifies the next writer. If that reader is directly ahead of the writer,
// its release also notifies the writer after that. No other client is notified.
func TestVirtual_ReaderRelease_NotifiesTwoWritersAtMost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var rs []*zklock.Hold
		for range 3 {
			rs = append(rs, acquire(t, newRWMutex(t, v.connect(), "/job").ReadLock()))
		}
		var ws []*waiting
		for range 4 {
			ws = append(ws, v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock()))
		}
		for i, notified := range []int{1, 1, 2} {
			require.Len(t, v.srv.Watches(rs[i].Node()), notified, "reader %d", i)
		}
		for i := len(rs) - 1; i >= 0; i-- { // the nearest first
			v.srv.ResetRequests()
			release(t, rs[i])
			synctest.Wait()
			require.LessOrEqual(t, v.srv.Requests().Events, 2)
			require.LessOrEqual(t, v.srv.Requests().Total(zktest.GetChildren), 1, "the second writer's")
		}
		for _, w := range ws {
			release(t, w.granted2(t, time.Second))
		}
	})
}

// I7: reading, writing and reading under the write lock, ten thousand times: nothing is left.
func TestVirtual_ReadWrite_GrowsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newRWMutex(t, s, "/job")
		round := func(n int) {
			for range n {
				w := acquire(t, m.WriteLock())
				waits := v.queueUp(m.ReadLock())
				r, err := m.ReadLock().Acquire(w.Context())
				require.NoError(t, err)
				release(t, w)
				release(t, r)
				release(t, waits.granted2(t, time.Second))
			}
			time.Sleep(time.Minute)
		}
		round(10)
		before := footprint(s)
		round(1000)
		require.Equal(t, before, footprint(s))
		require.Empty(t, v.srv.Children("/job"))
		require.Empty(t, v.srv.Watches())
	})
}
