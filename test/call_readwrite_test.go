package zklock_test

// These tests attack the read/write lock: which clients hold together, in what order, and what an
// owner may do on both sides (I1, I2, I8).

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// acquireIn acquires with the context of a hold.
func acquireIn(t testing.TB, ctx context.Context, l zklock.Lock) *zklock.Hold {
	t.Helper()
	h, err := l.Acquire(ctx)
	require.NoError(t, err)
	return h
}

func newRWMutex(t testing.TB, s *zklock.Session, p string, opts ...zklock.RWMutexOption) *zklock.RWMutex {
	t.Helper()
	m, err := zklock.NewRWMutex(s, p, opts...)
	require.NoError(t, err)
	return m
}

// grantedOf returns the waiters that have the lock, in virtual time, when the system is idle.
func grantedOf(ws ...*waiting) string {
	synctest.Wait()
	out := ""
	for _, w := range ws {
		if w.isGranted() {
			out += "1"
		} else {
			out += "0"
		}
	}
	return out
}

// forEachHouse runs the test with clients of one Session and with a Session each.
func forEachHouse(t *testing.T, f func(t *testing.T, v *virtual, client func() *zklock.Session)) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("one Session for all=%t", shared), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				one := v.connect()
				f(t, v, func() *zklock.Session {
					if shared {
						return one
					}
					return v.connect()
				})
				synctest.Wait()
				require.Empty(t, v.srv.Children("/job"), "I4")
			})
		})
	}
}

// I1: of mutexes, readers and writers on one path, only readers hold together, and the lock passes
// between any two of them.
func TestVirtual_ReadWrite_WhoHoldsBesideWhom(t *testing.T) {
	kinds := map[string]func(t *testing.T, s *zklock.Session) zklock.Lock{
		"mutex":  func(t *testing.T, s *zklock.Session) zklock.Lock { return newMutex(t, s, "/job") },
		"reader": func(t *testing.T, s *zklock.Session) zklock.Lock { return newRWMutex(t, s, "/job").ReadLock() },
		"writer": func(t *testing.T, s *zklock.Session) zklock.Lock { return newRWMutex(t, s, "/job").WriteLock() },
	}
	for first, one := range kinds {
		for second, other := range kinds {
			t.Run(first+" and "+second, func(t *testing.T) {
				forEachHouse(t, func(t *testing.T, v *virtual, client func() *zklock.Session) {
					h := acquire(t, one(t, client()))
					w := v.queueUp(other(t, client()))
					time.Sleep(20 * time.Second) // longer than every recheck interval
					if first == "reader" && second == "reader" {
						require.True(t, w.isGranted())
					} else {
						require.False(t, w.isGranted(), "I1")
						_, err := other(t, client()).TryAcquire(within(t, soon))
						require.ErrorIs(t, err, zklock.ErrNotAcquired)
					}
					release(t, h)
					release(t, w.granted2(t, time.Second))
				})
			})
		}
	}
}

// I8: readers hold together, and share one queue with writers: a reader that arrives after a writer
// waits for it. A writer's token exceeds all earlier ones, a reader's token those of all earlier
// writers.
func TestVirtual_ReadWrite_OneQueue(t *testing.T) {
	forEachHouse(t, func(t *testing.T, v *virtual, client func() *zklock.Session) {
		read := func() *waiting { return v.queueUp(newRWMutex(t, client(), "/job").ReadLock()) }
		write := func() *waiting { return v.queueUp(newRWMutex(t, client(), "/job").WriteLock()) }
		w1 := acquire(t, newRWMutex(t, client(), "/job").WriteLock())
		r1, r2 := read(), read()
		w2 := write()
		r3, m := read(), v.queueUp(newMutex(t, client(), "/job"))
		r4 := read()
		all := []*waiting{r1, r2, w2, r3, m, r4}
		require.Equal(t, "000000", grantedOf(all...))
		release(t, w1)
		require.Equal(t, "110000", grantedOf(all...))
		require.Less(t, w1.Token(), min(r1.hold.Token(), r2.hold.Token()))
		release(t, r1.hold)
		require.Equal(t, "110000", grantedOf(all...), "I1: a reader holds still")
		release(t, r2.hold)
		require.Equal(t, "111000", grantedOf(all...))
		require.Less(t, max(r1.hold.Token(), r2.hold.Token()), w2.hold.Token())
		release(t, w2.hold)
		require.Equal(t, "111100", grantedOf(all...))
		release(t, r3.hold)
		require.Equal(t, "111110", grantedOf(all...))
		require.Less(t, r3.hold.Token(), m.hold.Token())
		release(t, m.hold)
		release(t, r4.granted2(t, time.Second))
	})
}

// I1: a writer behind readers is granted only after the last of them, whether the one that it
// watches is deleted first or last. A reader that gives up does not admit any client either.
func TestVirtual_ReadWrite_WriterWaitsForAllReaders(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		forEachHouse(t, func(t *testing.T, v *virtual, client func() *zklock.Session) {
			var readers []*zklock.Hold
			for range 3 {
				readers = append(readers, acquire(t, newRWMutex(t, client(), "/job").ReadLock()))
			}
			w := v.queueUp(newRWMutex(t, client(), "/job").WriteLock())
			quits := v.queueUp(newRWMutex(t, client(), "/job").ReadLock())
			for _, i := range order {
				require.Equal(t, "00", grantedOf(w, quits), "I1")
				release(t, readers[i])
			}
			require.Equal(t, "10", grantedOf(w, quits))
			quits.stop()
			<-quits.done
			release(t, w.hold)
		})
	}
}

// I8, I1: a waiting writer gives up: the readers behind it join the readers that hold, and the
// writer behind them does not.
func TestVirtual_ReadWrite_WaitingWriterGivesUp(t *testing.T) {
	forEachHouse(t, func(t *testing.T, v *virtual, client func() *zklock.Session) {
		h := acquire(t, newRWMutex(t, client(), "/job").ReadLock())
		quits := v.queueUp(newRWMutex(t, client(), "/job").WriteLock())
		r1 := v.queueUp(newRWMutex(t, client(), "/job").ReadLock())
		r2 := v.queueUp(newRWMutex(t, client(), "/job").ReadLock())
		w := v.queueUp(newRWMutex(t, client(), "/job").WriteLock())
		require.Equal(t, "000", grantedOf(r1, r2, w))
		quits.stop()
		<-quits.done
		require.Equal(t, "110", grantedOf(r1, r2, w))
		for _, r := range []*zklock.Hold{r2.hold, h, r1.hold} {
			require.Equal(t, "0", grantedOf(w))
			release(t, r)
		}
		release(t, w.granted2(t, time.Second))
	})
}

// I1, R73: the same on a real server: readers, a writer behind them, and a writer that continues as
// a reader.
func TestReadWrite_OneQueue(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	client := func() *zklock.RWMutex { return newRWMutex(t, connect(t, srv), p) }
	r1, r2 := acquire(t, client().ReadLock()), acquire(t, client().ReadLock())
	m := client()
	w := queueUp(t, a, m.WriteLock(), p)
	r3 := queueUp(t, a, client().ReadLock(), p)
	release(t, r1)
	require.False(t, w.isGranted(), "I1")
	release(t, r2)
	writes := w.granted(t)
	next := queueUp(t, a, newMutex(t, connect(t, srv), p), p)
	reads, err := m.ReadLock().Acquire(writes.Context())
	require.NoError(t, err)
	require.Len(t, children(t, a, p), 4)
	require.False(t, r3.isGranted(), "I1")
	release(t, writes)
	h := r3.granted(t)
	release(t, h)
	eventually(t, "the mutex looks at what has come in the writer's place", func() bool { return len(children(t, a, p)) == 2 })
	require.False(t, next.isGranted(), "I1")
	release(t, reads)
	h = next.granted(t)
	require.Greater(t, h.Token(), reads.Token())
	release(t, h)
	require.Empty(t, children(t, a, p))
}

// F36, I1: go-zookeeper's own lock waits for readers, for writers, and for the reader's node of a
// writer that has downgraded.
func TestReadWrite_GoZookeepersLockWaits(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m := newRWMutex(t, connect(t, srv), p)
	writes := acquire(t, m.WriteLock())
	theirs := zk.NewLock(admin(t, srv), p, zk.WorldACL(zk.PermAll))
	locked := make(chan error, 1)
	go func() { locked <- theirs.Lock() }()
	eventually(t, "it is in the queue", func() bool { return len(children(t, a, p)) == 2 })
	reads, err := m.ReadLock().Acquire(writes.Context())
	require.NoError(t, err)
	release(t, writes)
	_, err = m.WriteLock().TryAcquire(within(t, soon)) // it has had the time of a few requests
	require.ErrorIs(t, err, zklock.ErrNotAcquired)
	require.Empty(t, locked, "I1")
	release(t, reads)
	select {
	case err := <-locked:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("it waits for nobody")
	}
	_, err = m.ReadLock().TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrNotAcquired)
	require.NoError(t, theirs.Unlock())
	release(t, acquire(t, m.ReadLock()))
}

// Each side of the lock has the usual name, and Participants reports which nodes share.
func TestVirtual_ReadWrite_Participants(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRWMutex(t, v.connect(), "/job", zklock.WithData([]byte("me")))
		require.Equal(t, "ReadLock(/job) WriteLock(/job)", fmt.Sprint(m.ReadLock(), " ", m.WriteLock()))
		r := acquire(t, m.ReadLock())
		w := v.queueUp(m.WriteLock())
		ps, err := m.ReadLock().Participants(within(t, soon))
		require.NoError(t, err)
		require.Len(t, ps, 2)
		require.Equal(t, []bool{true, false}, []bool{ps[0].Shared, ps[1].Shared})
		require.Equal(t, r.Node(), ps[0].Node)
		require.Regexp(t, `^/job/_c_[-0-9a-f]{36}-__READ__\d{10}$`, ps[0].Node)
		require.Regexp(t, `^/job/_c_[-0-9a-f]{36}-__WRIT__\d{10}$`, ps[1].Node)
		require.Equal(t, "me", string(ps[1].Data))
		release(t, r)
		release(t, w.granted2(t, time.Second))
	})
	_, err := zklock.NewRWMutex(nil, "/job")
	require.True(t, zklock.IsFinal(err))
}

// The wait's error names the holder only if the node ahead holds: a reader waits for the nearest
// writer, which may be waiting itself.
func TestVirtual_ReadWrite_ErrorNamesTheHolder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRWMutex(t, v.connect(), "/job", zklock.WithData([]byte("them")))
		r := acquire(t, m.ReadLock())
		w := v.queueUp(m.WriteLock())
		late := func() *zklock.Error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := newRWMutex(t, v.connect(), "/job").ReadLock().Acquire(ctx)
			var e *zklock.Error
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Contains(t, e.Predecessor, "__WRIT__")
			return e
		}
		require.Empty(t, late().Holder)
		release(t, r)
		h := w.granted2(t, time.Second)
		require.Contains(t, late().Holder, "them")
		release(t, h)
	})
}

// The context carries a write hold, and sets another owner: the error of the wait reports that.
func TestVirtual_ReadWrite_ReadUnderAnotherOwnersWrite_ReportsIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		rw := newRWMutex(t, v.connect(), "/job/b")
		w := take(t, rw.WriteLock())
		ctx, cancel := context.WithTimeout(zklock.WithOwner(w.Context(), zklock.NewOwner("other")), time.Minute)
		defer cancel()
		_, err := rw.ReadLock().Acquire(ctx)
		require.ErrorContains(t, err, "this call's own context carries a hold")
	})
}
