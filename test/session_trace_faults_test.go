package zklock_test

// A Session's traces with errors of their own, or at a bad moment: they block, panic, end their
// goroutine, or are notified of a loss early.

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
	"github.com/zklock/zklock/internal/tracecheck"
	"github.com/zklock/zklock/zktest"
)

// A function that blocks indefinitely in HoldLost delays nothing: not Close, not other calls, and
// no release. The later notifications follow in order when it returns.
func TestVirtual_HoldLostBlocks_NobodyWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log traced
		blocked := make(chan struct{})
		trace := log.trace()
		tell := trace.HoldLost
		trace.HoldLost = func(ctx context.Context, h zklock.HoldInfo) {
			tell(ctx, h)
			<-blocked
		}
		s := v.connect(zklock.WithTrace(trace))
		var holds []*zklock.Hold
		for i := range 3 {
			holds = append(holds, acquire(t, newMutex(t, s, fmt.Sprintf("/job/%d", i))))
		}
		log.outcomes()
		for _, h := range holds {
			require.NoError(t, v.srv.Delete(h.Node()))
			<-h.Lost()
		}
		require.Equal(t, []string{"lost mutex /job/0: node_deleted"}, log.outcomes())
		for _, h := range holds[:2] {
			began := time.Now()
			require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
			require.Zero(t, time.Since(began))
		}
		release(t, acquire(t, newMutex(t, s, "/job/0")))
		require.Equal(t, []string{"start mutex /job/0: ", "acquired mutex /job/0: ", "end mutex /job/0: "}, log.outcomes())
		began := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, log.outcomes())
		close(blocked)
		require.Equal(t, []string{"end mutex /job/0: node_deleted", "lost mutex /job/1: node_deleted", "end mutex /job/1: node_deleted", "lost mutex /job/2: node_deleted"}, log.outcomes())
		require.ErrorIs(t, holds[2].Release(t.Context()), zklock.ErrLost)
		require.Equal(t, []string{"end mutex /job/2: node_deleted"}, log.outcomes())
	})
}

// A hold that is released before AcquireEnd has returned, on a request to give way or by another
// trace, ends after it.
func TestVirtual_ReleasedDuringAcquireEnd_EndsAfterIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log traced
		first := log.trace()
		second := &zklock.Trace{AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) {
			require.NoError(t, a.Hold.Release(context.Background()))
		}}
		s := v.connect(zklock.WithTrace(second), zklock.WithTrace(first))
		h := acquire(t, newMutex(t, s, "/job"))
		require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
		require.Equal(t, []string{"start mutex /job: ", "acquired mutex /job: ", "end mutex /job: "}, log.outcomes())
		require.NoError(t, h.Release(t.Context()))

		// The waiting node already has the message.
		other := acquire(t, newMutex(t, v.connect(), "/job"))
		slow := log.trace()
		ended := slow.AcquireEnd
		slow.AcquireEnd = func(ctx context.Context, a zklock.AcquireEndInfo) {
			time.Sleep(time.Second)
			ended(ctx, a)
		}
		s = v.connect(zklock.WithTrace(slow))
		w := v.queueUp(newMutex(t, s, "/job", zklock.WithRevocation(func(h *zklock.Hold) { _ = h.Release(context.Background()) })))
		node := "/job/" + without(v.srv.Children("/job"), base(other.Node()))[0]
		require.NoError(t, v.srv.SetData(node, []byte("__REVOKE__")))
		release(t, other)
		h = w.granted2(t, time.Minute)
		require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
		require.Equal(t, []string{"start mutex /job: ", "acquired mutex /job: ", "end mutex /job: "}, log.outcomes())
	})
}

// A release without a confirmation because another lock was lost is no loss.
func TestVirtual_ReleaseNotConfirmed_BecauseAnotherWasLost_IsNoLoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var trace traced
		var log warnings
		s := v.connect(zklock.WithTrace(trace.trace()), lines(&log, slog.LevelDebug))
		outer, inner := newMutex(t, s, "/job/outer"), newMutex(t, s, "/job/inner")
		err := outer.Do(t.Context(), func(ctx context.Context, o *zklock.Hold) error {
			return inner.Do(ctx, func(ctx context.Context, h *zklock.Hold) error {
				require.NoError(t, v.srv.Delete(o.Node()))
				<-o.Lost()
				v.srv.Inject(zktest.Before(zktest.Delete).Delay(time.Second))
				return nil
			})
		})
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorIs(t, err, zklock.ErrNotConfirmed)
		require.Len(t, log.of("zklock: hold lost"), 1)
		released := log.of("zklock: released")
		require.Len(t, released, 1)
		require.Contains(t, released[0], "path=/job/inner")
		require.Contains(t, trace.outcomes(), "end mutex /job/inner: ")
	})
}

// A trace that ends its goroutine leaves no node of a Multi.
func TestVirtual_TraceEndsTheGoroutineInAMulti_NothingIsLeft(t *testing.T) {
	for name, ends := range map[string]*zklock.Trace{
		"AcquireStart": {AcquireStart: func(context.Context, zklock.AcquireInfo) context.Context { runtime.Goexit(); return nil }},
		"AcquireEnd":   {AcquireEnd: func(context.Context, zklock.AcquireEndInfo) { runtime.Goexit() }},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s, err := zklock.Connect(within(t, soon), v.srv.Addr(), zklock.WithDialer(v.net.Dial), zklock.WithTrace(ends), quiet(t))
				require.NoError(t, err)
				defer s.Close()
				multi, err := zklock.NewMulti(newMutex(t, s, "/job/a"), newMutex(t, s, "/job/b"), newMutex(t, s, "/job/c"))
				require.NoError(t, err)
				var call sync.WaitGroup
				call.Go(func() { _, _ = multi.Acquire(t.Context()) })
				call.Wait()
				time.Sleep(time.Second)
				for _, p := range []string{"/job/a", "/job/b", "/job/c"} {
					require.Empty(t, v.srv.Children(p))
				}
				require.Zero(t, s.Stats().Deleting)
			})
		})
	}
}

// A hold whose lease has ended unnoticed is lost, even if Close is the first to check.
func TestVirtual_CloseSeesTheLossFirst_ItIsALoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var trace traced
		var log warnings
		var sleeps suspension
		s := v.hooked(sleeps.hooks(), zklock.WithTrace(trace.trace()), lines(&log, slog.LevelWarn))
		h := acquire(t, newMutex(t, s, "/job"))
		sleeps.Add(int64(time.Hour))
		require.NoError(t, s.Close())
		require.ErrorIs(t, h.Err(), zklock.ErrLost)
		require.Len(t, log.of("zklock: hold lost"), 1)
		require.Contains(t, trace.outcomes(), "lost mutex /job: paused")
	})
}

// HoldLost may release the hold that it is notified about.
func TestVirtual_HoldLostReleases(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log traced
		trace := log.trace()
		tell := trace.HoldLost
		trace.HoldLost = func(ctx context.Context, h zklock.HoldInfo) {
			tell(ctx, h)
			_ = h.Hold.Release(context.Background())
		}
		s := v.connect(zklock.WithTrace(trace))
		h := acquire(t, newMutex(t, s, "/job"))
		log.since()
		require.NoError(t, v.srv.Delete(h.Node()))
		<-h.Lost()
		require.Equal(t, []string{"lost mutex /job: node_deleted", "end mutex /job: node_deleted"}, log.outcomes())
		require.Zero(t, s.Stats().Lost)
	})
}

// A loss while AcquireEnd runs is reported after it.
func TestVirtual_LostDuringAcquireEnd_IsReportedAfterIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log traced
		trace := log.trace()
		tell := trace.AcquireEnd
		trace.AcquireEnd = func(ctx context.Context, a zklock.AcquireEndInfo) {
			require.NoError(t, v.srv.Delete(a.Hold.Node()))
			<-a.Hold.Lost()
			synctest.Wait()
			tell(ctx, a)
		}
		s := v.connect(zklock.WithTrace(trace))
		h := acquire(t, newMutex(t, s, "/job"))
		require.Equal(t, []string{"start mutex /job: ", "acquired mutex /job: ", "lost mutex /job: node_deleted"}, log.outcomes())
		require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
	})
}

// F55: a function that panics is logged, and has no other effect; the functions of all other traces
// are called.
func TestVirtual_TracePanics_IsLogged_AndNothingElseChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		var calm traced
		panics := &zklock.Trace{
			AcquireStart: func(context.Context, zklock.AcquireInfo) context.Context { panic("start") },
			AcquireEnd:   func(context.Context, zklock.AcquireEndInfo) { panic("end") },
			HoldLost:     func(context.Context, zklock.HoldInfo) { panic(errors.New("lost")) },
			HoldEnd:      func(context.Context, zklock.HoldInfo) { panic("ended") },
		}
		s := v.connect(zklock.WithTrace(panics), zklock.WithTrace(calm.trace()), lines(&log, slog.LevelError))
		h := acquire(t, newMutex(t, s, "/job"))
		require.NoError(t, v.srv.Delete(h.Node()))
		<-h.Lost()
		synctest.Wait()
		require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
		require.Len(t, calm.since(), 4)
		var got []string
		for _, line := range log.of("zklock: a function of a Trace panicked") {
			before, stack, _ := strings.Cut(line, " stack=")
			got = append(got, before)
			require.Contains(t, stack, "session_trace_faults_test.go")
		}
		require.Equal(t, []string{
			"function=AcquireStart panic=start", "function=AcquireEnd panic=end", "function=HoldLost panic=lost",
			"function=HoldEnd panic=ended",
		}, got)
	})
}

// If AcquireStart panics, the values that the trace has put into the context of an outer call are
// not taken for this call's. The work's context still has them.
func TestVirtual_AcquireStartPanics_TheOuterCallsValuesAreNotItsOwn(t *testing.T) {
	type key struct{}
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var told []any
		s := v.connect(zklock.WithTrace(&zklock.Trace{
			AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context {
				if a.Path == "/inner" {
					panic("start")
				}
				return context.WithValue(ctx, key{}, a.Path)
			},
			AcquireEnd: func(ctx context.Context, _ zklock.AcquireEndInfo) { told = append(told, ctx.Value(key{})) },
			HoldEnd:    func(ctx context.Context, _ zklock.HoldInfo) { told = append(told, ctx.Value(key{})) },
		}), quiet(t))
		outer := acquire(t, newMutex(t, s, "/outer"))
		inner, err := newMutex(t, s, "/inner").Acquire(outer.Context())
		require.NoError(t, err)
		require.Equal(t, "/outer", inner.Context().Value(key{}))
		release(t, inner)
		release(t, outer)
		require.Equal(t, []any{"/outer", nil, nil, "/outer"}, told)
	})
}

// A goroutine that ends in a trace, as testing.T.FailNow ends it, leaves nothing behind.
func TestVirtual_TraceEndsTheGoroutine_NothingIsLeft(t *testing.T) {
	for _, in := range []string{"AcquireStart", "AcquireEnd", "HoldLost", "HoldEnd"} {
		t.Run(in, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				ends := &zklock.Trace{}
				switch in {
				case "AcquireStart":
					ends.AcquireStart = func(context.Context, zklock.AcquireInfo) context.Context { runtime.Goexit(); return nil }
				case "AcquireEnd":
					ends.AcquireEnd = func(context.Context, zklock.AcquireEndInfo) { runtime.Goexit() }
				case "HoldLost":
					ends.HoldLost = func(context.Context, zklock.HoldInfo) { runtime.Goexit() }
				case "HoldEnd":
					ends.HoldEnd = func(context.Context, zklock.HoldInfo) { runtime.Goexit() }
				}
				check := tracecheck.New() // its functions are called first
				s, err := zklock.Connect(within(t, soon), v.srv.Addr(), zklock.WithDialer(v.net.Dial), check.Option(), zklock.WithTrace(ends), quiet(t))
				require.NoError(t, err)
				defer func() {
					require.NoError(t, s.Close())
					if in != "AcquireStart" {
						require.NoError(t, check.Ended(time.Second))
					}
				}()
				var call sync.WaitGroup
				call.Go(func() {
					h, err := newMutex(t, s, "/job").Acquire(t.Context())
					if err != nil {
						return
					}
					if in == "HoldLost" {
						_ = v.srv.Delete(h.Node())
						<-h.Lost()
						synctest.Wait()
					}
					_ = h.Release(t.Context())
				})
				call.Wait()
				synctest.Wait()
				st := s.Stats()
				require.Zero(t, st.Held+st.Waiting+st.Lost+st.Deleting)
				require.Empty(t, v.srv.Children("/job"))
			})
		})
	}
}
