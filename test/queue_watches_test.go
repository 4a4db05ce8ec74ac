package zklock_test

// These tests count the watches on the servers and in the Session: a node that no caller waits for
// is not watched (I7, R118).

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// I7, R8, R118: however many waits behind another client's hold end in vain, none of them leaves a
// watch, for any recipe.
func TestVirtual_WaitsTimeOut_LeaveNoWatch(t *testing.T) {
	type locks func(t *testing.T, s *zklock.Session) zklock.Lock
	permits := func(k int, opts ...zklock.SemaphoreOption) locks {
		return func(t *testing.T, s *zklock.Session) zklock.Lock {
			return newSemaphore(t, s, semPath, 2, opts...).Permits(k)
		}
	}
	mutex := func(opts ...zklock.MutexOption) locks {
		return func(t *testing.T, s *zklock.Session) zklock.Lock { return newMutex(t, s, "/job/m", opts...) }
	}
	reader := func(t *testing.T, s *zklock.Session) zklock.Lock { return newRWMutex(t, s, "/job/m").ReadLock() }
	writer := func(t *testing.T, s *zklock.Session) zklock.Lock { return newRWMutex(t, s, "/job/m").WriteLock() }
	limit := zklock.WithSharedLimit("/job/limit")
	for name, x := range map[string]struct{ holds, waits locks }{
		"mutex":                     {mutex(), mutex()},
		"lock-delay":                {mutex(), mutex(zklock.WithLockDelay(time.Second))},
		"writer behind readers":     {reader, writer},
		"reader":                    {writer, reader},
		"permits":                   {permits(1), permits(2)},
		"permits of a shared limit": {permits(1, limit), permits(2, limit)},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				h := take(t, x.holds(t, v.connect()))
				v.waitInVain(v.connect(), func(s *zklock.Session) func(context.Context) error {
					return func(ctx context.Context) error {
						_, err := x.waits(t, s).Acquire(ctx)
						return err
					}
				})
				release(t, h)
			})
		})
	}
	t.Run("Multi", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := take(t, newMutex(t, v.connect(), "/job/m"))
			v.waitInVain(v.connect(), func(s *zklock.Session) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := newMulti(t, newMutex(t, s, "/job/a"), newMutex(t, s, "/job/m"), newMutex(t, s, "/job/z")).Acquire(ctx)
					return err
				}
			})
			release(t, h)
		})
	})
}

// waitInVain has three callers of a Session wait at a time, again and again. Nothing of that grows,
// and no watch remains.
func (v *virtual) waitInVain(s *zklock.Session, acquire func(*zklock.Session) func(context.Context) error) {
	waits := func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 3)
		for range cap(ended) { // the second may be behind the first, of another owner
			go func() { ended <- acquire(s)(ctx) }()
			synctest.Wait()
		}
		require.NotEmpty(v.t, v.watchedBy(s), "or this shows nothing")
		cancel()
		for range cap(ended) {
			require.ErrorIs(v.t, <-ended, context.Canceled)
		}
	}
	waits()
	before := inWatches(footprint(s))
	for range 20 {
		waits()
	}
	require.Equal(v.t, before, inWatches(footprint(s)))
	require.Empty(v.t, v.watchedBy(s))
}

// I7, R144: a wait ends in vain, and another caller of the Session begins to wait behind the same
// node while the removal of the watch is under way. When it ends too, at any time, no watch
// remains.
func TestVirtual_WaitBeginsDuringARemoval_LeavesNoWatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := take(t, newRWMutex(t, v.connect(), "/job/m").WriteLock())
		v.net.SetLatency(10 * time.Millisecond)
		s := v.connect()
		for stops := range 60 {
			first := v.queueUp(newRWMutex(t, s, "/job/m").ReadLock())
			time.Sleep(time.Second)
			second := v.queueUp(newRWMutex(t, s, "/job/m").ReadLock())
			time.Sleep(10 * time.Millisecond) // the second lists
			first.stop()
			time.Sleep(time.Duration(stops) * time.Millisecond)
			second.stop()
			<-second.done
			time.Sleep(time.Second)
			require.Empty(t, v.watchedBy(s), "the second stops after %d ms", stops)
		}
		release(t, h)
	})
}

// watchedBy returns the paths that the Session watches.
func (v *virtual) watchedBy(s *zklock.Session) (paths []string) {
	var below func(path string)
	below = func(path string) {
		for _, w := range v.srv.Watches(path) {
			if w.Session == s.Stats().SessionID {
				paths = append(paths, path)
			}
		}
		for _, c := range v.srv.Children(path) {
			below(strings.TrimSuffix(path, "/") + "/" + c)
		}
	}
	below("/")
	return paths
}

// I7, R118: a semaphore for each order, with a limit of its own. When all have ended, none of their
// nodes is watched.
func TestVirtual_SharedLimit_ManyPaths_LeaveNoWatch(t *testing.T) {
	for _, more := range [][]zklock.SemaphoreOption{nil, {zklock.WithContainer()}} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			a, b := v.connect(), v.connect()
			contend := func(p string) {
				opts := append([]zklock.SemaphoreOption{zklock.WithSharedLimit(p + "-limit")}, more...)
				h := take(t, newSemaphore(t, a, p, 1, opts...).Permits(1))
				w := v.queueUp(newSemaphore(t, b, p, 1, opts...).Permits(1))
				require.Equal(t, 1, len(v.srv.Watches(p+"-limit")), "or this shows nothing")
				release(t, h)
				release(t, w.granted2(t, time.Minute))
			}
			contend("/job/s")
			before := inWatches(footprint(b))
			for i := range 30 {
				contend(fmt.Sprintf("/job/s%d", i))
			}
			synctest.Wait()
			require.Empty(t, v.srv.Watches())
			require.Equal(t, before, inWatches(footprint(b)))
		})
	}
}

// inWatches returns the part of a footprint that is about watches.
func inWatches(footprint map[string]int) map[string]int {
	of := make(map[string]int)
	for at, n := range footprint {
		if strings.Contains(at, ".watches.") {
			of[at] = n
		}
	}
	return of
}

// I7, I8, R118: two readers of a Session share the watch on the writer. It remains for the second
// when the first gives up, and is removed when both have.
func TestVirtual_OneOfTwoLeaves_WatchStaysForTheOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		w, s := newRWMutex(t, v.connect(), "/job").WriteLock(), v.connect()
		for _, bothLeave := range []bool{false, true} {
			h := acquire(t, w)
			first, second := v.queueUp(newRWMutex(t, s, "/job").ReadLock()), v.queueUp(newRWMutex(t, s, "/job").ReadLock())
			leave := func(w *waiting) {
				w.stop()
				_, err := w.get(t)
				require.ErrorIs(t, err, context.Canceled)
				synctest.Wait()
			}
			leave(first)
			require.Len(t, v.srv.Watches(h.Node()), 1)
			if bothLeave {
				leave(second)
				require.Empty(t, v.srv.Watches(h.Node()))
			}
			v.srv.ResetRequests()
			release(t, h)
			if !bothLeave {
				mine := second.granted2(t, time.Second)
				require.Zero(t, v.srv.Requests().Total(zktest.GetChildren), "granted by the event")
				release(t, mine)
			}
		}
		synctest.Wait()
		require.Empty(t, v.srv.Watches())
	})
}

// I7, I8, R118: a waiter gives up at every instant around the holder's release, and another of the
// Session arrives at every instant around that. In any order of these events, the other is granted
// at once, and nothing remains watched.
func TestVirtual_WatchTakenBack_AroundTheEvent(t *testing.T) {
	const latency = 10 * time.Millisecond
	for leaves := -3 * latency; leaves <= 3*latency; leaves += latency / 2 {
		for comes := -4 * latency; comes <= 4*latency; comes += latency / 2 {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(latency)
				s := v.connect()
				readers := func() zklock.Lock { return newRWMutex(t, s, "/job").ReadLock() }
				h := acquire(t, newRWMutex(t, v.connect(), "/job").WriteLock())
				w := v.queueUp(readers())
				time.Sleep(time.Second)
				time.AfterFunc(time.Second, func() { _ = h.Release(context.Background()) })
				time.AfterFunc(time.Second+leaves, w.stop)
				time.Sleep(time.Second + leaves + comes)
				began := time.Now()
				release(t, acquire(t, readers()))
				require.Less(t, time.Since(began), time.Second, "it waited for a second look")
				if mine, err := w.get(t); err == nil {
					release(t, mine)
				} else {
					require.True(t, errors.Is(err, context.Canceled), err)
				}
				time.Sleep(time.Second)
				require.Empty(t, v.srv.Watches())
			})
		}
	}
}
