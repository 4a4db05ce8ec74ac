package zklock_test

// What a Session's traces do wrong themselves, or at a bad moment: they block, panic, end their goroutine, or hear of a loss early.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/tracecheck"
)

// A function that blocks for ever in HoldLost holds up nobody: not Close, not other calls, not the release of the hold. The losses that
// wait behind it are told by who releases.
func TestVirtual_HoldLostBlocks_NobodyWaits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log traced
		blocked := make(chan struct{})
		trace := log.trace()
		tell := trace.HoldLost
		trace.HoldLost = func(ctx context.Context, h zklock.HoldInfo) {
			tell(ctx, h)
			if h.Path == "/job/0" {
				<-blocked
			}
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
		require.ErrorIs(t, holds[1].Release(t.Context()), zklock.ErrLost)
		require.Equal(t, []string{"lost mutex /job/1: node_deleted", "end mutex /job/1: node_deleted"}, log.outcomes())
		require.ErrorIs(t, holds[0].Release(t.Context()), zklock.ErrLost, "although its HoldLost runs")
		release(t, acquire(t, newMutex(t, s, "/job/0")))
		log.outcomes()
		began := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, log.outcomes())
		close(blocked)
		require.Equal(t, []string{"end mutex /job/0: node_deleted", "lost mutex /job/2: node_deleted"}, log.outcomes())
		require.ErrorIs(t, holds[2].Release(t.Context()), zklock.ErrLost)
		require.Equal(t, []string{"end mutex /job/2: node_deleted"}, log.outcomes())
	})
}

// HoldLost may release what it hears of.
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

// A loss while AcquireEnd runs is told after it.
func TestVirtual_LostDuringAcquireEnd_IsToldAfterIt(t *testing.T) {
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

// A function that panics is logged, and changes nothing; those of the other traces are called.
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
		require.Equal(t, []string{
			"function=AcquireStart panic=start", "function=AcquireEnd panic=end", "function=HoldLost panic=lost",
			"function=HoldEnd panic=ended",
		}, log.of("zklock: a function of a Trace panicked"))
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
