package zklock_test

// The exact traces of a Session. Each Session of these tests also checks that they are well-formed
// (internal/tracecheck).

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// traced has the traces of a Session, a line each.
type traced struct {
	mu    sync.Mutex
	lines []string
}

func (l *traced) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// since returns the lines since its last call.
func (l *traced) since() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// outcomes returns the same lines without times.
func (l *traced) outcomes() (lines []string) {
	for _, line := range l.since() {
		before, rest, _ := strings.Cut(line, " after ")
		_, why, _ := strings.Cut(rest, ": ")
		lines = append(lines, before+": "+why)
	}
	return lines
}

func (l *traced) trace() *zklock.Trace {
	called := func(a zklock.AcquireInfo) string {
		s := string(a.Kind) + " " + a.Path
		if a.Name != "" {
			s += " as " + a.Name
		}
		if a.Multi != "" {
			s += " of " + a.Multi
		}
		if a.Try {
			s += " try"
		}
		return s
	}
	again := func(re bool) string {
		if re {
			return " again"
		}
		return ""
	}
	return &zklock.Trace{
		AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context {
			l.add("start %s", called(a))
			return ctx
		},
		AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) {
			outcome := "acquired"
			if a.Err != nil {
				outcome = "failed"
			}
			l.add("%s%s %s after %v, place %d, requeued %d", outcome, again(a.Reentered), called(a.AcquireInfo), a.Waited, a.Position, a.Requeued)
		},
		HoldLost: func(_ context.Context, h zklock.HoldInfo) {
			l.add("lost %s after %v: %s", called(h.AcquireInfo), h.Held, h.Reason)
		},
		HoldEnd: func(_ context.Context, h zklock.HoldInfo) {
			what := "end"
			if !h.Last {
				what = "end of one handle"
			}
			l.add("%s %s after %v, overrun %v, lost %v: %s", what, called(h.AcquireInfo), h.Held, h.Overrun, errors.Is(h.Err, zklock.ErrLost), h.Reason)
		},
	}
}

func TestVirtual_Trace_ReportsWhatHappened(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log traced
		s := v.connect(zklock.WithTrace(log.trace()))
		m := newMutex(t, s, "/job", zklock.WithName("nightly"))

		h := acquire(t, m)
		again, err := m.Acquire(reentering(h))
		require.NoError(t, err)
		require.Equal(t, []string{
			"start mutex /job as nightly", "acquired mutex /job as nightly after 0s, place 0, requeued 0",
			"start mutex /job as nightly", "acquired again mutex /job as nightly after 0s, place 0, requeued 0",
		}, log.since())
		time.Sleep(2 * time.Second)
		release(t, again)
		time.Sleep(time.Second)
		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, h.Release(t.Context()), "which ends nothing")
		require.Equal(t, []string{"end of one handle mutex /job as nightly after 2s, overrun 0s, lost false: ", "end mutex /job as nightly after 3s, overrun 0s, lost false: "}, log.since())

		// A wait and a try, behind another client.
		other := acquire(t, newMutex(t, v.connect(), "/job"))
		w := v.queueUp(m)
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		time.Sleep(5 * time.Second)
		release(t, other)
		h = w.granted2(t, time.Second)
		require.Equal(t, []string{
			"start mutex /job as nightly", "start mutex /job as nightly try", "failed mutex /job as nightly try after 0s, place 3, requeued 0",
			"acquired mutex /job as nightly after 5s, place 2, requeued 0",
		}, log.since())

		// The node of the hold, and of a wait, is deleted.
		require.NoError(t, v.srv.Delete(h.Node()))
		require.Equal(t, []string{"lost mutex /job as nightly after 0s: node_deleted"}, log.since())
		time.Sleep(7 * time.Second)
		require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
		require.Equal(t, []string{"end mutex /job as nightly after 7s, overrun 7s, lost true: node_deleted"}, log.since())
		other = acquire(t, newMutex(t, v.connect(), "/job"))
		w = v.queueUp(m)
		require.NoError(t, v.srv.Delete("/job/"+without(v.srv.Children("/job"), base(other.Node()))[0]))
		time.Sleep(time.Minute)
		release(t, other)
		h = w.granted2(t, time.Second)
		require.Equal(t, []string{"start mutex /job as nightly", "acquired mutex /job as nightly after 1m0s, place 2, requeued 1"}, log.since())
		release(t, h)
	})
}

// However many handles a hold has, it is lost once, and one HoldEnd is its last: even if AcquireEnd
// of a re-entry is called when the granted handle has been released.
func TestVirtual_Trace_SeveralHandles_OneLossAndOneLast(t *testing.T) {
	for _, isLost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost: %v", isLost), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				var log traced
				trace := log.trace()
				told := trace.AcquireEnd
				trace.AcquireEnd = func(ctx context.Context, a zklock.AcquireEndInfo) {
					if a.Reentered {
						time.Sleep(time.Minute)
					}
					told(ctx, a)
				}
				s := v.connect(zklock.WithTrace(trace))
				m := newMutex(t, s, "/job")
				granted := acquire(t, m)
				log.since()
				time.Sleep(time.Second)
				again := make(chan *zklock.Hold)
				go func() {
					h, err := m.Acquire(reentering(granted))
					require.NoError(t, err)
					again <- h
				}()
				time.Sleep(time.Second / 2) // between two heartbeats
				want, reason := []string{}, ": "
				if isLost {
					reason = ": node_deleted"
					require.NoError(t, v.srv.Delete(granted.Node()))
					want = append(want, "lost mutex /job after 2s"+reason)
				}
				time.Sleep(3 * time.Second / 2)
				require.Equal(t, isLost, granted.Release(t.Context()) != nil)
				overrun := func(d time.Duration) string {
					if !isLost {
						d = 0
					}
					return fmt.Sprintf(", overrun %v, lost %v", d, isLost)
				}
				want = append(want, "end of one handle mutex /job after 3s"+overrun(time.Second)+reason)
				require.Equal(t, append([]string{"start mutex /job"}, want...), log.since())
				require.Equal(t, isLost, (<-again).Release(t.Context()) != nil)
				require.Equal(t, []string{
					"acquired again mutex /job after 0s, place 0, requeued 0",
					"end mutex /job after 1m1s" + overrun(59*time.Second) + reason,
				}, log.since())
			})
		})
	}
}

// The last HoldEnd is of a handle that was released before another one. It reports how long the
// lock was held, to the end of the other handle.
func TestVirtual_Trace_LastEndOfTheFirstReleased_HeldToTheLastRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var last []zklock.HoldInfo
		s := v.connect(zklock.WithTrace(&zklock.Trace{
			AcquireEnd: func(ctx context.Context, a zklock.AcquireEndInfo) {
				if a.Reentered {
					require.NoError(t, a.Hold.Release(ctx))
					time.Sleep(time.Minute)
				}
			},
			HoldEnd: func(_ context.Context, h zklock.HoldInfo) {
				if h.Last {
					last = append(last, h)
				}
			},
		}))
		m := newMutex(t, s, "/job")
		granted := acquire(t, m)
		time.AfterFunc(time.Second, func() { release(t, granted) })
		again := acquireIn(t, reentering(granted), m)
		require.Len(t, last, 1)
		require.Equal(t, again, last[0].Hold)
		require.Equal(t, granted, last[0].First)
		require.Equal(t, time.Second, last[0].Held)
	})
}

func TestVirtual_Trace_ReportsWhatKind(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log traced
		s := v.connect(zklock.WithTrace(log.trace()))
		rw := newRWMutex(t, s, "/rw")
		multi, err := zklock.NewMulti(newMutex(t, s, "/b"), rw.WriteLock(), newMutex(t, s, "/a"))
		require.NoError(t, err)
		e := newElection(t, s, "/leader", "a")
		for _, take := range []func() error{
			func() error {
				return rw.ReadLock().TryDo(t.Context(), func(context.Context, *zklock.Hold) error { return nil })
			},
			func() error {
				return newSemaphore(t, s, "/sem", 2).Permits(2).Do(t.Context(), func(context.Context, *zklock.Hold) error { return nil })
			},
			func() error { return e.Campaign(t.Context(), func(context.Context, *zklock.Hold) error { return nil }) },
			func() error {
				return multi.Do(t.Context(), func(context.Context, *zklock.MultiHold) error { return nil })
			},
			func() error {
				return multi.Do(t.Context(), func(context.Context, *zklock.MultiHold) error { return nil }, zklock.WaitAtMost(time.Second))
			},
		} {
			require.NoError(t, take())
		}
		const all = " of Multi(/a, /b, /rw)"
		want := []string{}
		for _, called := range []string{"read /rw try", "semaphore /sem", "election /leader"} {
			want = append(want, "start "+called, "acquired "+called+" after 0s, place 0, requeued 0", "end "+called+" after 0s, overrun 0s, lost false: ")
		}
		for range 2 {
			for _, called := range []string{"mutex /a" + all, "mutex /b" + all, "write /rw" + all} {
				want = append(want, "start "+called, "acquired "+called+" after 0s, place 0, requeued 0")
			}
			for _, called := range []string{"write /rw" + all, "mutex /b" + all, "mutex /a" + all} {
				want = append(want, "end "+called+" after 0s, overrun 0s, lost false: ")
			}
		}
		require.Equal(t, want, log.since())

		// The work under a Multi is its own.
		require.NoError(t, multi.Do(t.Context(), func(ctx context.Context, _ *zklock.MultiHold) error {
			log.since()
			return newMutex(t, s, "/inside").TryDo(ctx, func(context.Context, *zklock.Hold) error { return nil })
		}))
		require.Contains(t, log.since(), "start mutex /inside try")
	})
}

// lossReason returns an option with a channel that receives the reason of a loss.
func lossReason() (zklock.Option, <-chan zklock.Loss) {
	reason := make(chan zklock.Loss, 1)
	return zklock.WithTrace(&zklock.Trace{HoldLost: func(_ context.Context, h zklock.HoldInfo) { reason <- h.Reason }}), reason
}

// The reason of a loss is one word, and an overrun counts from the end of the lease, even if it was
// noticed late.
func TestVirtual_Trace_Reasons(t *testing.T) {
	for _, tt := range []struct {
		reason zklock.Loss
		lose   func(t *testing.T, v *virtual, h *zklock.Hold, sleeps *suspension, s *zklock.Session)
	}{
		{zklock.LossNoServer, func(t *testing.T, v *virtual, h *zklock.Hold, _ *suspension, s *zklock.Session) { v.srv.Stop() }},
		{zklock.LossPaused, func(t *testing.T, v *virtual, h *zklock.Hold, sleeps *suspension, s *zklock.Session) {
			sleeps.Add(int64(time.Hour))
		}},
		{zklock.LossSession, func(t *testing.T, v *virtual, h *zklock.Hold, _ *suspension, s *zklock.Session) {
			v.srv.ExpireSession(s.Stats().SessionID)
		}},
		{zklock.LossNode, func(t *testing.T, v *virtual, h *zklock.Hold, _ *suspension, s *zklock.Session) {
			require.NoError(t, v.srv.Delete(h.Node()))
		}},
		{zklock.LossClosed, func(t *testing.T, v *virtual, h *zklock.Hold, _ *suspension, s *zklock.Session) {
			require.NoError(t, s.Close())
		}},
	} {
		t.Run(string(tt.reason), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				var log traced
				var sleeps suspension
				s := v.hooked(sleeps.hooks(), zklock.WithTrace(log.trace()))
				h := acquire(t, newMutex(t, s, "/job"))
				log.since()
				deadline := h.Deadline()
				tt.lose(t, v, h, &sleeps, s)
				<-h.Lost()
				got := log.since()
				require.Len(t, got, 1)
				require.Contains(t, got[0], ": "+string(tt.reason))
				_ = h.Release(t.Context())
				require.Contains(t, log.since()[0], ", lost true: "+string(tt.reason))
				if tt.reason == zklock.LossNoServer {
					require.InDelta(t, 0, time.Since(deadline).Milliseconds(), 10, "the loss is seen at the end of the lease")
				}
			})
		})
	}
}

// 100 holds are lost at once, and four goroutines check each: each is logged once, and traced once
// (R91).
func TestVirtual_ManyHoldsAreLost_EachIsLoggedAndTracedOnce(t *testing.T) {
	const holds = 100
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var trace traced
		var log warnings
		s := v.connect(zklock.WithTrace(trace.trace()), lines(&log, slog.LevelWarn))
		var held []*zklock.Hold
		for i := range holds {
			h := acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d", i)))
			held = append(held, h)
		}
		trace.since()
		v.srv.Stop()
		var lookers sync.WaitGroup
		for _, h := range held {
			end := h.Deadline()
			for range 4 {
				lookers.Go(func() { // all in the same instants
					time.Sleep(time.Until(end) - time.Millisecond)
					for time.Since(end) < 5*time.Millisecond {
						_ = h.Err()
						time.Sleep(time.Millisecond / 4)
					}
				})
			}
		}
		lookers.Wait()
		got := log.of("zklock: hold lost")
		require.Len(t, got, holds)
		for _, h := range held {
			require.True(t, slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, "node="+h.Node()+" ") }), h.Node())
		}
		require.Len(t, trace.since(), holds)
		require.NoError(t, v.srv.Start())
	})
}

// A release that finds its node deleted is the loss, and its log line is the one for alerts.
func TestVirtual_ReleaseFindsTheNodeGone_IsLoggedAndTraced(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var trace traced
		var log warnings
		s := v.connect(zklock.WithTrace(trace.trace()), lines(&log, slog.LevelDebug))
		h := acquire(t, newMutex(t, s, "/job"))
		trace.since()
		// The event of the deletion comes after the release has begun.
		v.srv.Inject(zktest.Before(zktest.Delete).Call(func() { _ = v.srv.Delete(h.Node()) }))
		require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
		require.Len(t, log.of("zklock: hold lost"), 1)
		require.Empty(t, log.of("zklock: released"))
		require.Equal(t, []string{"lost mutex /job after 0s: node_deleted", "end mutex /job after 0s, overrun 0s, lost true: node_deleted"}, trace.since())
	})
}

// A release that no server confirms is an end, too.
func TestVirtual_ReleaseIsNotConfirmed_IsLoggedAndTraced(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var trace traced
		var log warnings
		s := v.connect(zklock.WithTrace(trace.trace()), lines(&log, slog.LevelDebug))
		h := acquire(t, newMutex(t, s, "/job"))
		trace.since()
		v.srv.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Release(ctx), zklock.ErrNotConfirmed)
		got := log.of("zklock: released")
		require.Len(t, got, 1)
		require.Contains(t, got[0], "err=")
		require.Equal(t, []string{"end mutex /job after 0s, overrun 0s, lost false: "}, trace.since())
		v.srv.Thaw()
	})
}

// The values that AcquireStart puts into its context are in the work's context, which still ends
// with the caller's.
func TestVirtual_TraceContext_ItsValuesReachTheWork(t *testing.T) {
	type key struct{}
	type callers struct{}
	for name, of := range map[string]func(context.Context) context.Context{
		"derived":   func(ctx context.Context) context.Context { return ctx },
		"unrelated": func(context.Context) context.Context { return context.Background() },
		"ended": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect(zklock.WithTrace(&zklock.Trace{AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context {
					return context.WithValue(of(ctx), key{}, a.Path)
				}}))
				m := newMutex(t, s, "/job")
				multi, err := zklock.NewMulti(m, newMutex(t, s, "/other"))
				require.NoError(t, err)
				why := errors.New("the caller's")
				works := func(path string, end context.CancelCauseFunc) func(context.Context) error {
					return func(ctx context.Context) error {
						require.Equal(t, path, ctx.Value(key{}))
						require.Equal(t, "caller", ctx.Value(callers{}))
						require.NoError(t, ctx.Err())
						end(why)
						require.ErrorIs(t, context.Cause(ctx), why)
						return nil
					}
				}
				caller := func() (context.Context, context.CancelCauseFunc) {
					return context.WithCancelCause(context.WithValue(t.Context(), callers{}, "caller"))
				}
				ctx, end := caller()
				work := works("/job", end)
				require.NoError(t, m.Do(ctx, func(ctx context.Context, h *zklock.Hold) error {
					require.Equal(t, "/job", h.Context().Value(key{}))
					return work(ctx)
				}))
				ctx, end = caller()
				work = works("/other", end)
				require.NoError(t, multi.Do(ctx, func(ctx context.Context, h *zklock.MultiHold) error {
					require.Equal(t, "/other", h.Context().Value(key{}))
					return work(ctx)
				}))
				ctx, end = caller()
				work = works("/leader", end)
				require.NoError(t, newElection(t, s, "/leader", "a").Campaign(ctx, func(ctx context.Context, _ *zklock.Hold) error { return work(ctx) }))
			})
		})
	}
}

// The context of AcquireStart ends with the Campaign, and its cause distinguishes an error of the
// Campaign from the end of its caller. A Campaign that cannot queue is traced, too.
func TestVirtual_TraceContext_EndsWithTheCampaign(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var campaign context.Context
		var outcomes []string
		s := v.connect(zklock.WithTrace(&zklock.Trace{
			AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context { campaign = ctx; return ctx },
			AcquireEnd:   func(_ context.Context, a zklock.AcquireEndInfo) { outcomes = append(outcomes, a.Outcome) },
		}))
		e := newElection(t, s, "/leader", "a")
		failed := errors.New("no database")
		run := func(ends func(stop context.CancelCauseFunc) error) error {
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			err := e.Campaign(ctx, func(context.Context, *zklock.Hold) error {
				require.NoError(t, campaign.Err())
				return ends(stop)
			})
			require.Error(t, campaign.Err(), "it ends with the call")
			return err
		}
		ofCampaign := func() *zklock.Error {
			err, _ := context.Cause(campaign).(*zklock.Error)
			return err
		}

		require.NoError(t, run(func(context.CancelCauseFunc) error { return nil }))
		require.Nil(t, ofCampaign())
		require.ErrorIs(t, run(func(stop context.CancelCauseFunc) error { stop(failed); return failed }), failed)
		require.Nil(t, ofCampaign(), "its caller has ended it")
		require.Equal(t, failed, run(func(context.CancelCauseFunc) error { return failed }))
		require.Equal(t, &zklock.Error{Op: "campaign", Path: "/leader", Err: failed}, ofCampaign())

		v.srv.Inject(zktest.Before(zktest.GetChildren).Path("/leader").Fail(zktest.NoAuth))
		outcomes = nil
		require.ErrorIs(t, run(nil), zk.ErrNoAuth)
		require.ErrorIs(t, ofCampaign(), zk.ErrNoAuth)
		require.Equal(t, []string{"error"}, outcomes)
	})
}

// lookUps counts the look-ups that reach it of a key without a value.
type lookUps struct {
	context.Context
	n *int
}

type absent struct{}

func (c lookUps) Value(key any) any {
	if key == (absent{}) {
		*c.n++
	}
	return c.Context.Value(key)
}

// A look-up reaches the caller's context once, however deep the calls are nested. It once reached
// it twice as often with each further call, and each acquire looks up some keys.
func TestVirtual_TraceContext_NestedWork_LooksUpOnce(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"derived":   func(ctx context.Context) context.Context { return ctx },
		"unrelated": func(context.Context) context.Context { return context.Background() },
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect(zklock.WithTrace(&zklock.Trace{AcquireStart: func(ctx context.Context, _ zklock.AcquireInfo) context.Context { return of(ctx) }}))
			n := 0
			var nest func(ctx context.Context, calls int)
			nest = func(ctx context.Context, calls int) {
				if calls == 0 {
					require.Nil(t, ctx.Value(absent{}))
					return
				}
				require.NoError(t, newMutex(t, s, fmt.Sprint("/job/", calls)).Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
					nest(ctx, calls-1)
					return nil
				}))
			}
			nest(lookUps{t.Context(), &n}, 10)
			require.Equal(t, 1, n, name)
		})
	}
}

func TestVirtual_Stats(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		session := v.srv.Sessions()[0]
		require.Equal(t, zklock.Stats{MaxLockNodes: 10_000, State: zklock.StateConnected, Server: v.srv.Addr(), SessionID: session.ID, SessionTimeout: session.Timeout}, s.Stats())
		h := acquire(t, newMutex(t, s, "/job"))
		again, err := newMutex(t, s, "/job").Acquire(reentering(h))
		require.NoError(t, err)
		permits := acquire(t, newSemaphore(t, s, "/sem", 3).Permits(3))
		w := v.queueUp(newMutex(t, s, "/job"))
		got := s.Stats()
		require.Equal(t, time.Until(h.Deadline()), got.LeaseLeft)
		got.LeaseLeft = 0
		require.Equal(t, zklock.Stats{MaxLockNodes: 10_000, State: zklock.StateConnected, Server: v.srv.Addr(), SessionID: session.ID, SessionTimeout: session.Timeout, Waiting: 1, Held: 2}, got)
		w.stop()
		<-w.done

		v.srv.Stop()
		time.Sleep(time.Minute)
		require.Equal(t, zklock.Stats{MaxLockNodes: 10_000, State: zklock.StateLost, SessionID: session.ID, SessionTimeout: session.Timeout, Lost: 2}, s.Stats())
		require.NoError(t, v.srv.Start())
		time.Sleep(time.Minute)
		session = v.srv.Sessions()[0]
		require.Equal(t, zklock.Stats{MaxLockNodes: 10_000, State: zklock.StateConnected, Server: v.srv.Addr(), SessionID: session.ID, SessionTimeout: session.Timeout, Lost: 2, Reconnects: 1}, s.Stats())
		for _, h := range []*zklock.Hold{h, again, permits} {
			require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
		}
		require.NoError(t, s.Close())
		require.Equal(t, zklock.Stats{MaxLockNodes: 10_000, State: zklock.StateClosed, SessionID: session.ID, SessionTimeout: session.Timeout, Reconnects: 1}, s.Stats())
	})
}
