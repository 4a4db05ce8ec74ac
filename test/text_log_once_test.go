package zklock_test

// These tests have many goroutines check locks, and attack how often the log reports the end of
// each.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// once requires a message exactly once for each thing, and for no other. A thing is a part of the
// line.
func (w *warnings) once(t testing.TB, message string, things ...string) {
	t.Helper()
	got := w.of(message)
	require.Len(t, got, len(things), "%s: %q", message, got)
	for _, thing := range things {
		require.Equal(t, 1, having(got, thing), "%s: %s", message, thing)
	}
}

// having returns the number of lines that contain a thing.
func having(lines []string, thing string) (n int) {
	for _, line := range lines {
		if strings.Contains(line+" ", thing+" ") {
			n++
		}
	}
	return n
}

// lookAt has four goroutines check each hold and its Session repeatedly, until stop is called.
func lookAt(s *zklock.Session, holds ...*zklock.Hold) (stop func()) {
	var lookers sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for _, h := range holds {
		for range 4 {
			lookers.Go(func() {
				for ctx.Err() == nil {
					_, _, _, _ = h.Err(), h.Context().Err(), s.Stats(), s.State()
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
	}
	return func() { cancel(); lookers.Wait() }
}

// manyOfAKind is the number of holds of each kind.
const manyOfAKind = 5

// manyHolds takes holds of all kinds. more are additional handles of some of them.
func (v *virtual) manyHolds(s *zklock.Session) (holds, more []*zklock.Hold) {
	for i := range manyOfAKind {
		path := fmt.Sprintf("/job/%d", i)
		m, rw := newMutex(v.t, s, path), newRWMutex(v.t, s, path+"rw")
		h, w := acquire(v.t, m), acquire(v.t, rw.WriteLock())
		again, err := m.Acquire(h.Context())
		require.NoError(v.t, err)
		r, err := rw.ReadLock().Acquire(w.Context())
		require.NoError(v.t, err)
		holds = append(holds, h, w, r, acquire(v.t, newSemaphore(v.t, s, path+"sem", 3).Permits(3)))
		more = append(more, again)
	}
	synctest.Wait()
	return holds, more
}

func saidNodes(holds []*zklock.Hold) (nodes []string) {
	for _, h := range holds {
		nodes = append(nodes, "node="+h.Node())
	}
	return nodes
}

// R91: each hold ends once in the log, as lost or as released, whatever the cause of its loss, and
// even if other goroutines check or release it at that moment.
func TestVirtual_LogOnce_EachHoldEndsOnce(t *testing.T) {
	for name, lose := range map[string]func(v *virtual, s *zklock.Session, holds []*zklock.Hold, sleeps *suspension){
		"no server answers": func(v *virtual, _ *zklock.Session, _ []*zklock.Hold, _ *suspension) { v.srv.Stop() },
		"the session has expired": func(v *virtual, s *zklock.Session, _ []*zklock.Hold, _ *suspension) {
			v.srv.ExpireSession(s.SessionID())
		},
		"the process stood still": func(_ *virtual, _ *zklock.Session, _ []*zklock.Hold, sleeps *suspension) {
			sleeps.Add(int64(time.Hour))
		},
		"the nodes are deleted": func(v *virtual, _ *zklock.Session, holds []*zklock.Hold, _ *suspension) {
			for _, h := range holds {
				for _, check := range h.Checks() {
					_ = v.srv.Delete(check.Path) // one that is released just now may be gone
				}
			}
		},
		"the nodes give no READ": func(v *virtual, _ *zklock.Session, holds []*zklock.Hold, _ *suspension) {
			a := v.connect().Conn()
			for _, h := range holds {
				_, _ = a.SetACL(h.Node(), unreadable, -1)
			}
		},
	} {
		for _, releasedToo := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, released meanwhile: %v", name, releasedToo), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					var log warnings
					var sleeps suspension
					s := v.hooked(sleeps.hooks(), lines(&log, slog.LevelDebug))
					holds, more := v.manyHolds(s)
					stop := lookAt(s, append(more, holds...)...)
					var all sync.WaitGroup
					for i, h := range holds {
						if releasedToo && i%3 == 0 {
							all.Go(func() {
								if name == "no server answers" {
									time.Sleep(time.Until(h.Deadline()) - time.Duration(i%2)*time.Millisecond)
								}
								_ = h.Release(t.Context())
							})
						}
					}
					all.Go(func() { lose(v, s, holds, &sleeps) })
					time.Sleep(15 * time.Second)
					all.Wait()
					stop()
					for _, h := range append(more, holds...) {
						_ = h.Release(t.Context())
					}
					said := append(log.of("zklock: hold lost"), log.of("zklock: released")...)
					require.Len(t, said, len(holds), "%q", said)
					for _, node := range saidNodes(holds) {
						require.Equal(t, 1, having(said, node), "%s: %q", node, said)
					}
					if !releasedToo {
						log.once(t, "zklock: hold lost", saidNodes(holds)...)
					}
					_ = v.srv.Start()
				})
			})
		}
	}
}

// Each node that many goroutines acquire and release is queued, granted and released once in the
// log, even if connections end meanwhile and the servers do not confirm a release in time.
func TestVirtual_LogOnce_QueuedGrantedReleased(t *testing.T) {
	for _, confirmed := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			var log warnings
			s := v.connect(lines(&log, slog.LevelDebug))
			holds, more := v.manyHolds(s)
			for range 2 {
				v.srv.Inject(zktest.Before(zktest.Multi).Session(s.SessionID()).Close().Once())
				time.Sleep(10 * time.Second)
			}
			log.once(t, "zklock: granted", saidNodes(holds)...)
			stop := lookAt(s, append(more, holds...)...)
			if !confirmed {
				v.srv.Freeze()
			}
			var all sync.WaitGroup
			for _, h := range append(more, holds...) {
				for range 3 {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						defer cancel()
						_ = h.Release(ctx)
					})
				}
			}
			all.Wait()
			stop()
			log.once(t, "zklock: released", saidNodes(holds)...)
			require.Empty(t, log.of("zklock: hold lost"))
			if !confirmed {
				v.srv.Thaw()
			}
			time.Sleep(time.Minute)
			log.once(t, "zklock: released", saidNodes(holds)...)
		})
	}
}

// A hold that no caller gets, because a trace ended the goroutine, is also released in the log.
func TestVirtual_LogOnce_NobodyGetsTheHold_IsReleased(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		ends := &zklock.Trace{AcquireEnd: func(context.Context, zklock.AcquireEndInfo) { runtime.Goexit() }}
		s, err := zklock.Connect(within(t, soon), v.srv.Addr(), zklock.WithDialer(v.net.Dial), zklock.WithTrace(ends), lines(&log, slog.LevelDebug))
		require.NoError(t, err)
		defer s.Close()
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() { _, _ = newMutex(t, s, fmt.Sprintf("/job/%d", i)).Acquire(t.Context()) })
		}
		calls.Wait()
		require.Len(t, log.of("zklock: granted"), 10)
		require.Len(t, log.of("zklock: released"), 10)
		for i := range 10 {
			require.Equal(t, 1, having(log.of("zklock: released"), fmt.Sprintf("path=/job/%d", i)))
		}
	})
}

// Each wait is logged as queued once for each of its nodes, and as long after one, two and four
// minutes, whatever part of its connection and session ends meanwhile.
func TestVirtual_LogOnce_EachLongWait(t *testing.T) {
	for _, expires := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			var paths, nodes []string
			var log warnings
			s, holder := v.connect(lines(&log, slog.LevelDebug)), v.connect()
			for i := range 10 {
				path := fmt.Sprintf("/job/%d", i)
				paths = append(paths, "path="+path)
				acquire(t, newMutex(t, holder, path))
				v.queueUp(newMutex(t, s, path))
				nodes = append(nodes, "node="+path+"/"+lastOf(v.srv.Children(path)))
			}
			log.once(t, "zklock: queued", nodes...)
			for range 10 { // repeated checks
				v.srv.Stop()
				require.NoError(t, v.srv.Start())
				time.Sleep(25 * time.Second)
			}
			queued := 1
			if expires {
				v.srv.ExpireSession(s.SessionID())
				queued++
			}
			time.Sleep(20 * time.Second)
			for _, path := range paths {
				require.Equal(t, queued, having(log.of("zklock: queued"), path), path)
			}
			for _, waited := range []string{"waited=1m0s", "waited=2m0s", "waited=4m0s"} {
				said := log.of("zklock: still waiting for the lock")
				require.Len(t, said, 3*len(paths), "%q", said)
				require.Equal(t, len(paths), having(said, waited), waited)
				for _, path := range paths {
					require.Equal(t, 3, having(said, path), path)
				}
			}
		})
	}
}

// A disappeared holder is logged once in each Session that notices it, even if calls begin and end
// until the delay has ended, and their connections end.
func TestVirtual_LogOnce_TheHolderDisappeared(t *testing.T) {
	for _, tryFirst := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			const line = "zklock: the holder disappeared; no client is granted before the end of the lock-delay"
			var log warnings
			s := v.connect(lines(&log, slog.LevelInfo))
			m := newMutex(t, s, "/job", zklock.WithLockDelay(lockDelay))
			gone := v.connect()
			held := acquire(t, newMutex(t, gone, "/job", zklock.WithLockDelay(lockDelay)))
			try := func() {
				_, err := m.TryAcquire(within(t, soon))
				require.ErrorIs(t, err, zklock.ErrNotAcquired)
			}
			if tryFirst {
				v.srv.ExpireSession(gone.SessionID())
				try()
			}
			var ws []*waiting
			for range 5 {
				ws = append(ws, v.queueUp(m))
			}
			v.srv.ExpireSession(gone.SessionID())
			time.Sleep(time.Second)
			for _, w := range ws[:4] {
				v.srv.Stop()
				require.NoError(t, v.srv.Start())
				time.Sleep(2 * time.Second)
				try()
				w.stop()
				<-w.done
				time.Sleep(2 * time.Second)
			}
			log.once(t, line, "holder="+base(held.Node()))
			h := ws[4].granted2(t, 2*lockDelay)
			log.once(t, line, "holder="+base(held.Node()))
			require.NoError(t, v.srv.Delete(h.Node()))
			ws[4] = v.queueUp(m)
			log.once(t, line, "holder="+base(held.Node()), "holder="+base(h.Node()))
		})
	}
}

// Each candidate campaigns again once for each leadership that it lost.
func TestVirtual_LogOnce_StandingAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelInfo))
		var cs []*candidate
		for i := range 10 {
			cs = append(cs, v.stand(newElection(t, s, fmt.Sprintf("/job/%d", i), "a"), untilItEnds))
		}
		for round := 1; round <= 3; round++ {
			var holds []*zklock.Hold
			for _, c := range cs {
				holds = append(holds, c.hold.Load())
			}
			stop := lookAt(s, holds...)
			v.srv.ExpireSession(s.SessionID())
			time.Sleep(time.Minute)
			stop()
			said := log.of("zklock: campaigning again")
			require.Len(t, said, round*len(cs), "%q", said)
			for i := range cs {
				require.Equal(t, round, having(said, fmt.Sprintf("path=/job/%d", i)))
			}
		}
	})
}

// Each function that continues after the loss of its lock is logged after five seconds, ten, twenty
// and forty. A Multi is logged once, for the first lock that it lost.
func TestVirtual_LogOnce_WorkStillRuns(t *testing.T) {
	const line = "zklock: work still runs after its lock was lost"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelWarn))
		worked := errors.New("has worked on")
		var works sync.WaitGroup
		works.Go(func() {
			multi := newMulti(t, newMutex(t, s, "/job/a"), newMutex(t, s, "/job/b"))
			_ = multi.Do(t.Context(), func(context.Context, *zklock.MultiHold) error { time.Sleep(time.Minute); return worked })
		})
		var paths []string
		for i := range 10 {
			m := newMutex(t, s, fmt.Sprintf("/job/%d", i))
			paths = append(paths, "path="+m.Path())
			works.Go(func() {
				_ = m.Do(t.Context(), func(_ context.Context, h *zklock.Hold) error {
					defer lookAt(s, h)()
					time.Sleep(time.Minute)
					return worked
				})
			})
		}
		time.Sleep(10 * time.Second)
		v.srv.ExpireSession(s.SessionID())
		works.Wait()
		said := log.of(line)
		require.Len(t, said, 4*(len(paths)+1), "%q", said)
		for _, path := range paths {
			require.Equal(t, 4, having(said, path), path)
		}
		for _, lasted := range []string{"for=5s", "for=10s", "for=20s", "for=40s"} {
			require.Equal(t, len(paths)+1, having(said, lasted), lasted)
		}
	})
}

// Each hold that two goroutines re-enter at the same time is logged once, however many there are
// and however often they do. A hold that is re-entered in nested calls, in calls one after the
// other, by an owner or by readers is not.
func TestVirtual_LogOnce_SharedHold(t *testing.T) {
	const line = "zklock: two calls re-entered one hold at the same time; they do not exclude each other"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelWarn))
		together := func(ctx context.Context, l zklock.Lock) {
			for range 3 {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						_ = l.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
							time.Sleep(time.Second)
							return l.Do(ctx, func(context.Context, *zklock.Hold) error { time.Sleep(time.Second); return nil })
						})
					})
				}
				all.Wait()
			}
		}
		var nodes []string
		for i := range 10 {
			m := newMutex(t, s, fmt.Sprintf("/job/%d", i%5)) // each lock is held twice
			require.NoError(t, m.Do(t.Context(), func(ctx context.Context, h *zklock.Hold) error {
				nodes = append(nodes, "node="+h.Node())
				return m.Do(ctx, func(inner context.Context, _ *zklock.Hold) error {
					together(inner, m)
					together(ctx, m)
					return nil
				})
			}))
		}
		log.once(t, line, nodes...)

		m := newMutex(t, s, "/nested")
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context, _ *zklock.Hold) error {
			for range 3 {
				require.NoError(t, m.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
					return m.Do(ctx, func(context.Context, *zklock.Hold) error { return nil })
				}))
			}
			return nil
		}))
		inPart := newMutex(t, s, "/in-part") // one re-entry sets the owner, and those inside it do not
		require.NoError(t, inPart.Do(t.Context(), func(ctx context.Context, h *zklock.Hold) error {
			nodes = append(nodes, "node="+h.Node())
			together(ctx, inPart)
			return inPart.Do(zklock.WithOwner(ctx, h.Owner()), func(ctx context.Context, _ *zklock.Hold) error {
				together(zklock.WithOwner(ctx, zklock.Owner{}), inPart)
				return nil
			})
		}))
		owner := zklock.WithOwner(t.Context(), zklock.NewOwner("a"))
		require.NoError(t, m.Do(owner, func(ctx context.Context, _ *zklock.Hold) error { together(ctx, m); together(owner, m); return nil }))
		readers := newRWMutex(t, s, "/rw").ReadLock()
		require.NoError(t, readers.Do(t.Context(), func(ctx context.Context, _ *zklock.Hold) error { together(ctx, readers); return nil }))
		log.once(t, line, nodes...)
	})
}
