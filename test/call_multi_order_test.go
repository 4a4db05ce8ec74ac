package zklock_test

// These tests attack the order in which a Multi takes its locks, and the nodes that it has in their
// queues.

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// R106, I6: a semaphore's queue is below its path, and a Multi still takes the semaphore in the
// order of the paths as given. It does not deadlock with a caller that takes the locks one after
// the other in that order.
func TestVirtual_Multi_SemaphoreAmongMutexes_OrderOfThePaths(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, o := v.connect(), v.connect()
		sem, after := newSemaphore(t, s, "/job/import", 1).Permits(1), newMutex(t, s, "/job/import-lock")
		m := newMulti(t, after, sem)
		permit := take(t, newSemaphore(t, o, "/job/import", 1).Permits(1))
		c := startMulti(within(t, time.Hour), m)
		require.Empty(t, v.srv.Children("/job/import-lock"), "it waits for the first, and holds nothing")
		release(t, acquire(t, newMutex(t, o, "/job/import-lock")))
		release(t, permit)
		h := c.granted(t)
		require.Equal(t, []string{"/job/import", "/job/import-lock"}, holdPaths(h.Holds()))
		require.NoError(t, h.Release(within(t, soon)))
	})
}

// R106: the holds of a context are compared by the same paths: a hold of a mutex that sorts after
// the semaphore blocks it, and permits of the semaphore do not block the mutex.
func TestVirtual_Multi_SemaphoreAmongMutexes_ContextOutOfOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		sem, after := newSemaphore(t, s, "/job/import", 1).Permits(1), newMutex(t, s, "/job/import-lock")
		last := newMutex(t, s, "/job/z")
		h := acquire(t, after)
		_, err := newMulti(t, sem, last).Acquire(h.Context())
		require.ErrorContains(t, err, "acquire /job/import: the context carries a hold of /job/import-lock, and /job/import must be taken before it")
		release(t, h)

		h = take(t, sem)
		both, err := newMulti(t, last, after).Acquire(h.Context())
		require.NoError(t, err)
		require.NoError(t, both.Release(context.Background()))
		release(t, h)
	})
}

// A semaphore takes the path of its queue, too.
func TestMulti_MutexOnASemaphoresQueue_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		sem := newSemaphore(t, s, "/job/import", 1).Permits(1)
		_, err := zklock.NewMulti(newMutex(t, s, "/job/import/locks"), newMutex(t, s, "/job/import-lock"), sem)
		require.ErrorContains(t, err, "new multi /job/import/locks: two locks have this absolute path")
	})
}

// fourPaths are the locks of a Multi, in their order.
var fourPaths = []string{"/job/a", "/job/b", "/job/c", "/job/d"}

// fourReady returns a Session's Multi of four mutexes whose roots exist.
func (v *virtual) fourReady(opts ...zklock.Option) (*zklock.Session, *zklock.Multi) {
	v.t.Helper()
	s := v.connect(opts...)
	m := newMulti(v.t, mutexes(v.t, s, fourPaths...)...)
	h, err := m.Acquire(within(v.t, time.Hour))
	require.NoError(v.t, err)
	require.NoError(v.t, h.Release(within(v.t, soon)))
	v.srv.ResetRequests()
	return s, m
}

// nodes returns the number of nodes in each of the four queues.
func (v *virtual) nodes() (n [4]int) {
	for i, p := range fourPaths {
		n[i] = len(v.srv.Children(p))
	}
	return n
}

func (v *virtual) areHeld(h *zklock.MultiHold) {
	v.t.Helper()
	for _, one := range h.Holds() {
		st, ok := v.srv.Stat(one.Node())
		require.True(v.t, ok)
		require.Equal(v.t, st.Czxid, one.Token(), "I1")
	}
}

// R86, I6, I8: one lock is held, at each position in the order. The Multi waits for it with only
// the locks before it: a client that holds that lock and takes the other locks one by one gets them
// all. Then each further lock takes a round trip.
func TestVirtual_Multi_OneIsTaken_WaitsInOneQueue(t *testing.T) {
	for k := range fourPaths {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			_, m := v.fourReady()
			other := v.connect()
			ahead := acquire(t, newMutex(t, other, fourPaths[k]))
			c := startMulti(within(t, time.Hour), m)
			time.Sleep(100 * time.Millisecond)
			want := [4]int{}
			for i := range k + 1 {
				want[i] = 1
			}
			want[k]++
			require.Equal(t, want, v.nodes())
			var later []*zklock.Hold
			for _, p := range fourPaths[k+1:] {
				later = append(later, acquire(t, newMutex(t, other, p)))
			}
			for _, h := range later {
				release(t, h)
			}
			began := time.Now()
			go release(t, ahead)
			h := c.granted(t)
			ways := 2 + 2*(3-k) // the release's, its event's, and those of the locks after it
			require.Equal(t, time.Duration(ways)*time.Millisecond, time.Since(began))
			v.areHeld(h)
			require.NoError(t, h.Release(within(t, soon)))
			require.Equal(t, [4]int{}, v.nodes(), "I4")
		})
	}
}

// I4, I8: a try takes all locks or none, and names the lock that is held. It blocks no client: the
// waiter for that lock is granted next.
func TestVirtual_Multi_Try_OneIsTaken_LeavesNothing(t *testing.T) {
	for k := range fourPaths {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			_, m := v.fourReady()
			ahead := acquire(t, newMutex(t, v.connect(), fourPaths[k]))
			_, err := m.TryAcquire(within(t, time.Hour))
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			var e *zklock.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, []any{"try", fourPaths[k], 2, ahead.Node()}, []any{e.Op, e.Path, e.Position, e.Predecessor})
			require.Equal(t, 1, strings.Count(err.Error(), "zklock: "), "%v", err)
			want := [4]int{}
			want[k] = 1
			require.Equal(t, want, v.nodes(), "I4")

			next := v.queueUp(newMutex(t, v.connect(), fourPaths[k]))
			_, err = m.TryAcquire(within(t, time.Hour))
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			release(t, ahead)
			release(t, next.granted(t))
			h, err := m.TryAcquire(within(t, time.Hour))
			require.NoError(t, err)
			v.areHeld(h)
			require.NoError(t, h.Release(within(t, soon)))
			require.Equal(t, [4]int{}, v.nodes(), "I4")
		})
	}
}

// Two tries at the same time, without other clients: one of them gets all locks.
func TestVirtual_Multi_TwoTriesAtOnce_OneHasAll(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		_, one := v.fourReady()
		_, other := v.fourReady()
		for range 20 {
			type outcome struct {
				h   *zklock.MultiHold
				err error
			}
			got := make(chan outcome)
			for _, m := range []*zklock.Multi{one, other} {
				go func() {
					h, err := m.TryAcquire(context.Background())
					got <- outcome{h, err}
				}()
			}
			a, b := <-got, <-got
			if a.err == nil {
				a, b = b, a
			}
			require.ErrorIs(t, a.err, zklock.ErrNotAcquired)
			require.NoError(t, b.err)
			require.NoError(t, b.h.Release(within(t, soon)))
			for range 2 { // the result of the first try is not remembered
				for _, m := range []*zklock.Multi{one, other} {
					h, err := m.TryAcquire(context.Background())
					require.NoError(t, err)
					require.NoError(t, h.Release(within(t, soon)))
				}
			}
		}
	})
}

// The response to the create arrives when the call has returned. Its view of the queue is then not
// read without a lock, which the race detector checks. It depends on chance that there is anything
// to read, so there are several rounds.
func TestVirtual_Multi_ResponseAfterTheWait_NoRace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMulti(t, newMutex(t, v.connect(), "/job/a"))
		ahead := acquire(t, newMutex(t, v.connect(), "/job/a"))
		for range 20 {
			v.srv.Inject(zktest.After(zktest.Create).Delay(2 * time.Second).Once())
			err := m.Do(context.Background(), func(context.Context, *zklock.MultiHold) error { return nil }, zklock.WaitAtMost(time.Second))
			require.ErrorIs(t, err, zklock.ErrNotConnected)
			time.Sleep(5 * time.Second)
		}
		release(t, ahead)
	})
}

// One lock root rejects creates. The error names its lock, and no node is left in the other roots.
func TestVirtual_Multi_OneRootRefusesCreation_ErrorNamesIt(t *testing.T) {
	for k := range fourPaths {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			_, m := v.fourReady()
			_, err := v.connect().Conn().SetACL(fourPaths[k], zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
			require.NoError(t, err)
			for _, enter := range []func(context.Context) (*zklock.MultiHold, error){m.Acquire, m.TryAcquire} {
				_, err = enter(within(t, time.Hour))
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, "no CREATE permission on "+fourPaths[k])
				require.Equal(t, [4]int{}, v.nodes(), "I4")
			}
		})
	}
}

// F29: the nodes of a Multi count against the cap of the Session. If the cap does not allow all of
// them, none is left.
func TestVirtual_Multi_MaxLockNodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, m := v.fourReady(zklock.WithMaxLockNodes(4))
		h, err := m.Acquire(within(t, time.Hour))
		require.NoError(t, err)
		_, err = m.Acquire(within(t, time.Hour))
		require.ErrorIs(t, err, zklock.ErrTooManyLockNodes)
		require.NoError(t, h.Release(within(t, soon)))
		s := v.connect(zklock.WithMaxLockNodes(3))
		_, err = newMulti(t, mutexes(t, s, fourPaths...)...).Acquire(within(t, time.Hour))
		require.ErrorIs(t, err, zklock.ErrTooManyLockNodes)
		require.ErrorContains(t, err, fourPaths[3])
		require.Equal(t, [4]int{}, v.nodes(), "I4")
	})
}
