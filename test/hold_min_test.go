package zklock_test

// These tests attack the minimum hold: the node of a released hold remains for the rest of it,
// blocks every client, and not longer.

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// minHold is longer than everything else in these tests.
const minHold = time.Minute

// Every client waits for the rest: another Session, a call of the same Session, the same owner. The
// releaser itself holds no more.
func TestVirtual_MinHold_Released_OthersWait(t *testing.T) {
	for who, of := range map[string]func(v *virtual, s *zklock.Session) *zklock.Session{
		"another Session": func(v *virtual, _ *zklock.Session) *zklock.Session { return v.connect() },
		"the same":        func(_ *virtual, s *zklock.Session) *zklock.Session { return s },
	} {
		t.Run(who, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				owner := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("job"))
				m := newMutex(t, s, "/job", zklock.WithMinHold(minHold))
				h, err := m.Acquire(owner)
				require.NoError(t, err)
				granted := time.Now()
				w := v.queueUp(newMutex(t, of(v, s), "/job"))
				time.Sleep(10 * time.Millisecond)
				released := time.Now()
				release(t, h)
				require.Equal(t, released, time.Now(), "at once")

				require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
				require.False(t, m.Held())
				require.False(t, m.OwnedBy(owner))
				require.Zero(t, s.Stats().Held)
				_, err = m.TryAcquire(owner)
				require.ErrorIs(t, err, zklock.ErrNotAcquired)
				ps, err := m.Participants(owner)
				require.NoError(t, err)
				require.Equal(t, h.Node(), ps[0].Node)
				require.True(t, ps[0].Holds)
				require.NoError(t, s.CheckSequencer(owner, "/job", h.Sequencer().String()), "nobody has had it since")

				next := w.granted2(t, 2*minHold)
				require.GreaterOrEqual(t, w.at.Sub(granted), minHold)
				require.Less(t, w.at.Sub(granted), minHold+time.Second)
				require.ErrorIs(t, s.CheckSequencer(owner, "/job", h.Sequencer().String()), zklock.ErrNotHeld)
				require.Greater(t, next.Token(), h.Token())
				checked := v.srv.Inject(zktest.Before(zktest.AnyOp).Path(h.Node()).Delay(0).Optional())
				time.Sleep(minHold)
				require.Zero(t, checked.Fired(), "the heartbeat no longer checks the node")
				release(t, next)
				require.Empty(t, v.srv.Children("/job"))
			})
		})
	}
}

// Three hosts run a job once, although their clocks differ by more than the job takes.
func TestVirtual_MinHold_ClocksApart_OneRun(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		runs := 0
		for range 3 {
			m := newMutex(t, v.connect(), "/job", zklock.WithMinHold(minHold))
			err := m.TryDo(within(t, time.Minute), func(context.Context, *zklock.Hold) error { runs++; return nil })
			if runs != 1 || err != nil {
				require.ErrorIs(t, err, zklock.ErrNotAcquired)
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, runs)
	})
}

// It ends early with its node or its session, however they end. No node remains of a job that takes
// longer, or of one that did not run.
func TestVirtual_MinHold_OverBefore_NextIsGrantedAtOnce(t *testing.T) {
	for how, end := range map[string]func(v *virtual, s *zklock.Session, h *zklock.Hold){
		"the Session is closed": func(v *virtual, s *zklock.Session, h *zklock.Hold) { release(v.t, h); require.NoError(v.t, s.Close()) },
		"the session expires": func(v *virtual, s *zklock.Session, h *zklock.Hold) {
			release(v.t, h)
			v.srv.ExpireSession(s.Stats().SessionID)
		},
		"the node is deleted": func(v *virtual, _ *zklock.Session, h *zklock.Hold) {
			release(v.t, h)
			require.NoError(v.t, v.srv.Delete(h.Node()))
		},
		"the job was longer": func(v *virtual, _ *zklock.Session, h *zklock.Hold) { time.Sleep(minHold); release(v.t, h) },
		"the hold was lost": func(v *virtual, _ *zklock.Session, h *zklock.Hold) {
			require.NoError(v.t, v.srv.Delete(h.Node()))
			synctest.Wait()
			require.ErrorIs(v.t, h.Release(within(v.t, time.Minute)), zklock.ErrLost)
		},
		"a call of the same one": nil,
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect()
				h := acquire(t, newMutex(t, s, "/job", zklock.WithMinHold(minHold)))
				var w *waiting
				if end == nil { // a waiter of the same Session is also notified of the deletion
					w = v.queueUp(newMutex(t, s, "/job"))
					release(t, h)
					require.NoError(t, v.srv.Delete(h.Node()))
				} else {
					w = v.queueUp(newMutex(t, v.connect(), "/job"))
					end(v, s, h)
				}
				ended := time.Now()
				release(t, w.granted2(t, time.Hour))
				require.Less(t, w.at.Sub(ended), 2*time.Second, "the same Session hears it at its heartbeat, each second")
			})
		})
	}
}

// F47: a released holder has not disappeared. With a lock-delay, too, the next client is granted at
// once when the node is deleted, however that happens; also if the response to the release was
// lost.
func TestVirtual_MinHold_LockDelay_ReleasedIsNotGone(t *testing.T) {
	for how, end := range map[string]func(v *virtual, s *zklock.Session, h *zklock.Hold){
		"it is over":            func(*virtual, *zklock.Session, *zklock.Hold) { time.Sleep(minHold) },
		"the Session is closed": func(v *virtual, s *zklock.Session, _ *zklock.Hold) { require.NoError(v.t, s.Close()) },
		"the session expires":   func(v *virtual, s *zklock.Session, _ *zklock.Hold) { v.srv.ExpireSession(s.Stats().SessionID) },
		"the node is deleted":   func(v *virtual, _ *zklock.Session, h *zklock.Hold) { require.NoError(v.t, v.srv.Delete(h.Node())) },
	} {
		for _, isLost := range []bool{false, true} {
			t.Run(fmt.Sprint(how, ", answer lost ", isLost), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) {
					s := v.connect()
					h := acquire(t, newMutex(t, s, "/job", zklock.WithMinHold(minHold), zklock.WithLockDelay(lockDelay)))
					w := v.queueUp(newMutex(t, v.connect(), "/job", zklock.WithLockDelay(lockDelay)))
					if isLost {
						v.srv.Inject(zktest.After(zktest.Multi).Path(h.Node()).DropReply().Close().Once())
					}
					release(t, h)
					require.Empty(t, v.record())
					require.Len(t, v.srv.Children("/job"), 2, "it stays")
					end(v, s, h)
					ended := time.Now()
					release(t, w.granted2(t, time.Hour))
					require.Less(t, w.at.Sub(ended), 2*time.Second)
				})
			})
		}
	}
}

// The release of the last handle counts, and the time runs from the grant.
func TestVirtual_MinHold_Reentered_StaysAfterTheLast(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithMinHold(minHold))
		h := acquire(t, m)
		granted := time.Now()
		again, err := m.Acquire(reentering(h))
		require.NoError(t, err)
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		release(t, h)
		time.Sleep(minHold / 2)
		release(t, again)
		release(t, w.granted2(t, time.Hour))
		require.WithinDuration(t, granted.Add(minHold), w.at, time.Second)
	})
}

// The response to the release's request is lost with its connection: the request is repeated, and
// the node remains.
func TestVirtual_MinHold_CheckUnanswered_Stays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job", zklock.WithMinHold(minHold)))
		granted := time.Now()
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		lost := v.srv.Inject(zktest.After(zktest.Multi).Path(h.Node()).DropReply().Close().Once())
		release(t, h)
		require.NoError(t, lost.Wait(within(t, time.Minute)))
		release(t, w.granted2(t, time.Hour))
		require.WithinDuration(t, granted.Add(minHold), w.at, time.Second)
	})
}

// No work ran under it: a Multi that did not get the next lock, and a Do whose context had ended.
func TestVirtual_MinHold_NotUsed_GoesAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job", zklock.WithMinHold(minHold))
		held := acquire(t, newMutex(t, v.connect(), "/other"))
		both, err := zklock.NewMulti(m, newMutex(t, s, "/other"))
		require.NoError(t, err)
		_, err = both.TryAcquire(within(t, time.Minute))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = both.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job"))
		release(t, held)
		all, err := both.Acquire(within(t, time.Minute))
		require.NoError(t, err)
		require.NoError(t, all.Release(within(t, time.Minute)))
		require.Len(t, v.srv.Children("/job"), 1, "with the other, it was used")
	})
}

// The function of Once panics: it has still run, so the node remains.
func TestVirtual_MinHold_Once_FunctionPanics_Stays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job", zklock.WithMinHold(minHold))
		require.PanicsWithValue(t, "the work", func() {
			_, _ = m.Once(within(t, time.Hour), "day", func(context.Context, *zklock.Hold) error { panic("the work") })
		})
		synctest.Wait()
		require.Len(t, v.srv.Children("/job"), 1)
	})
}

// The function of Do, Multi.Do or Once is not called, or the call that got the lock does not
// return: the nodes of what was granted are deleted at once.
func TestVirtual_MinHold_FunctionNotCalled_GoesAtOnce(t *testing.T) {
	const pathA, pathB = "/job/a", "/job/b"
	f := func(context.Context, *zklock.Hold) error { panic("the function is called") }
	for how, c := range map[string]struct {
		call func(t *testing.T, v *virtual, ctx context.Context, a, b *zklock.Mutex)
		end  func(cancel func()) // what AcquireEnd of the second does
	}{
		"the context of Do ends": {func(t *testing.T, _ *virtual, ctx context.Context, _, b *zklock.Mutex) {
			require.ErrorIs(t, b.Do(ctx, f), context.Canceled)
		}, func(cancel func()) { cancel() }},
		"the context of Multi.Do ends": {func(t *testing.T, _ *virtual, ctx context.Context, a, b *zklock.Mutex) {
			err := newMulti(t, a, b).Do(ctx, func(context.Context, *zklock.MultiHold) error { return f(nil, nil) })
			require.ErrorIs(t, err, context.Canceled)
		}, func(cancel func()) { cancel() }},
		"a method of a Multi's lock panics": {func(t *testing.T, _ *virtual, ctx context.Context, a, b *zklock.Mutex) {
			require.Panics(t, func() { _, _ = newMulti(t, a, panicky{b}).Acquire(ctx) })
		}, nil},
		"the trace ends the goroutine of Acquire": {func(_ *testing.T, _ *virtual, ctx context.Context, _, b *zklock.Mutex) {
			_, _ = b.Acquire(ctx)
		}, func(func()) { runtime.Goexit() }},
		"the trace ends the goroutine of a Multi": {func(t *testing.T, _ *virtual, ctx context.Context, a, b *zklock.Mutex) {
			_, _ = newMulti(t, a, b).Acquire(ctx)
		}, func(func()) { runtime.Goexit() }},
		"Once may not check its node": {func(t *testing.T, v *virtual, ctx context.Context, a, _ *zklock.Mutex) {
			v.srv.Inject(zktest.Before(zktest.Multi).Path(pathA + "/*").Fail(zktest.NoAuth).Once())
			ran, err := a.Once(ctx, "2026-11-27", f)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.False(t, ran)
		}, nil},
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				s := v.connect(zklock.WithTrace(&zklock.Trace{AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) {
					if a.Path == pathB && c.end != nil {
						c.end(cancel)
					}
				}}))
				a, b := newMutex(t, s, pathA, zklock.WithMinHold(minHold)), newMutex(t, s, pathB, zklock.WithMinHold(minHold))
				var call sync.WaitGroup
				call.Go(func() { c.call(t, v, ctx, a, b) })
				call.Wait()
				time.Sleep(time.Second)
				require.Empty(t, v.srv.Children(pathA))
				require.Empty(t, v.srv.Children(pathB))
			})
		})
	}
}

// R145: READ on the node is rejected at the release, for a moment or from then on. The node stays,
// and the error says so.
func TestVirtual_MinHold_CheckRejected_Stays(t *testing.T) {
	for _, once := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			h := acquire(t, newMutex(t, s, "/job", zklock.WithMinHold(minHold)))
			granted := time.Now()
			w := v.queueUp(newMutex(t, v.connect(), "/job"))
			if once {
				v.srv.Inject(zktest.Before(zktest.Multi).Path(h.Node()).Fail(zktest.NoAuth).Once())
			} else {
				_, err := s.Conn().SetACL(h.Node(), zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
				require.NoError(t, err)
			}
			err := h.Release(within(t, time.Minute))
			require.ErrorIs(t, err, zklock.ErrNotConfirmed)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.ErrorContains(t, err, "it stays for its minimum hold")
			time.Sleep(minHold - time.Since(granted) - time.Millisecond)
			require.Len(t, v.srv.Children("/job"), 2)
			release(t, w.granted2(t, time.Hour))
			require.LessOrEqual(t, w.at.Sub(granted), minHold+10*time.Second, "a waiter that may not read a node polls it")
		})
	}
}

func TestMinHold_OfNoTime_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, err := zklock.NewMutex(v.connect(), "/job", zklock.WithMinHold(0))
		require.ErrorContains(t, err, "WithMinHold(0s): give how long")
		require.True(t, zklock.IsFinal(err))
	})
}

// A Release without a response in time reports that the node remains.
func TestVirtual_MinHold_ReleaseTooLate_ReportsThatTheNodeStays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		h := acquire(t, newMutex(t, v.connect(), "/job", zklock.WithMinHold(minHold)))
		v.srv.Inject(zktest.Before(zktest.Multi).Delay(time.Second).Once())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := h.Release(ctx)
		require.ErrorIs(t, err, zklock.ErrNotConfirmed)
		require.ErrorContains(t, err, "if the node is there, it stays for its minimum hold")
		time.Sleep(minHold / 2)
		require.Len(t, v.srv.Children("/job"), 1)
	})
}
