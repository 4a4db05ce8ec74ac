package shards

// These tests attack a group by the functions that it calls, in virtual time: they return early,
// fail, panic, never return. No other shard may be affected, and no shard may have two functions.

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// A function that returns at once is called less and less often, and the other shards are not
// affected.
func TestVirtual_Func_Fails(t *testing.T) {
	for what, fail := range map[string]func() error{
		"returns an error": func() error { return errors.New("no database") },
		"returns nil":      func() error { return nil },
		"panics":           func() error { panic("no database") },
		"calls Goexit":     func() error { runtime.Goexit(); return nil },
		"returns an error of zklock that would be final": func() error {
			return &zklock.Error{Op: "acquire", Path: "/other", Err: zklock.ErrAuthFailed}
		},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 8, func(t *testing.T, w *world) {
				var calls, others atomic.Int32
				p := w.joinWith("m", func(ctx context.Context, shard int, hold *zklock.Hold) error {
					if shard == 3 {
						calls.Add(1)
						return fail()
					}
					others.Add(1)
					<-ctx.Done()
					return nil
				}, w.n)
				time.Sleep(2 * time.Second) // a second to settle, and one to fail
				require.LessOrEqual(t, calls.Load(), int32(4))
				time.Sleep(10 * time.Minute)
				at := calls.Load()
				time.Sleep(5 * time.Minute)
				require.InDelta(t, 10, calls.Load()-at, 1, "one in 30 s")
				require.EqualValues(t, 7, others.Load())
				st := p.g.Stats()
				require.Equal(t, 7, st.Working)
				require.Equal(t, 8, st.Wanted)
				require.EqualValues(t, calls.Load(), st.Failed)
				require.NotEmpty(t, w.logs.about("returned early"))
			})
		})
	}
}

// A function that fails after a minute's work is called again at once.
func TestVirtual_Func_FailsLate(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var calls atomic.Int32
		w.joinWith("m", func(ctx context.Context, shard int, hold *zklock.Hold) error {
			calls.Add(1)
			time.Sleep(time.Minute)
			return errors.New("now and then")
		}, w.n)
		time.Sleep(time.Hour)
		require.InDelta(t, 60, calls.Load(), 1)
	})
}

// A function that does not return keeps its shard, and nothing else: others move, and no member
// gets that shard. Run waits.
func TestVirtual_Func_NeverReturns(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		letGo := make(chan struct{})
		stuck := w.joinWith("stuck", func(ctx context.Context, shard int, hold *zklock.Hold) error {
			<-ctx.Done()
			if shard == 63 || shard == 1 {
				<-letGo
			}
			return nil
		}, w.n)
		w.within(3*time.Second, "start", w.isComplete)
		w.join("a") // the highest shards move
		time.Sleep(w.quiet + 5*time.Minute)
		loads, free := w.loads()
		require.Equal(t, map[string]int{"stuck": 33, "a": 31}, loads)
		require.Zero(t, free)
		st := stuck.g.Stats()
		require.Equal(t, 1, st.Returning)
		require.Greater(t, st.LongestReturn, 4*time.Minute)
		require.InDelta(t, 5, len(w.logs.about("has not returned")), 1, "one a minute")

		stuck.cancel()
		time.Sleep(time.Minute)
		require.Error(t, stuck.hasEnded())
		loads, _ = w.loads()
		require.Equal(t, map[string]int{"stuck": 2, "a": 62}, loads)
		close(letGo)
		w.within(time.Second, "let go", func() bool { return stuck.hasEnded() == context.Canceled })
		w.within(time.Second, "owned", func() bool { loads, free := w.loads(); return free == 0 && loads["a"] == 64 })
		stuck.gone()
		stuck.s.Close()
	})
}

// F59, in one process: the function of a lost hold still runs. The next one waits for it,
// although the shard is free and wanted.
func TestVirtual_Func_OfLostHold_NextOneWaits(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		w.return_ = func(shard int) time.Duration { return 20 * time.Second }
		p := w.join("m")
		w.within(3*time.Second, "start", w.isComplete)
		p.loseSession()
		time.Sleep(15 * time.Second)
		_, free := w.loads()
		require.Equal(t, 8, free)
		require.Equal(t, 8, w.starts)
		w.within(10*time.Second, "again", w.isComplete)
		require.Equal(t, 16, w.starts)
		require.EqualValues(t, 8, p.g.Stats().Lost)
	})
}

// The previous owner works until the next one is queued, and returns slowly: the shard is without
// an owner for no longer than that.
func TestVirtual_Func_SlowReturn(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.started(3)
		w.return_ = func(shard int) time.Duration { return time.Duration(shard) * 100 * time.Millisecond }
		w.join("new")
		w.within(w.quiet+8*time.Second, "join", w.isEven)
		moves, gaps := w.reset()
		require.Equal(t, 16, moves)
		require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
	})
}

// The context of a function has the values of Run's context, and not its end.
func TestVirtual_Func_Context(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		type key struct{}
		s, _ := w.connect()
		defer s.Close()
		g, err := New(s, groupPath, 2, WithLogger(w.logger()))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "value"), 5*time.Second)
		defer cancel()
		var ended atomic.Int32
		err = g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
			_, hasDeadline := ctx.Deadline()
			if ctx.Value(key{}) == "value" && !hasDeadline {
				<-ctx.Done()
				if context.Cause(ctx) == errAsked {
					ended.Add(1)
				}
			}
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 2, ended.Load())
	})
}

// The context of a function whose hold is lost ends with the loss as its cause, and not as if
// another member took the shard over.
func TestVirtual_Func_OfLostHold_Cause(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		var lost, asked atomic.Int32
		p := w.joinWith("m", func(ctx context.Context, shard int, hold *zklock.Hold) error {
			<-ctx.Done()
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, zklock.ErrLost):
				lost.Add(1)
			case errors.Is(hold.Err(), zklock.ErrLost):
				asked.Add(1)
			}
			return nil
		}, w.n)
		for n := range int32(5) {
			w.within(20*time.Second, "start", func() bool { return p.g.Stats().Working == w.n })
			p.loseSession()
			w.within(20*time.Second, "loss", func() bool { return lost.Load()+asked.Load() == 64*(n+1) })
			require.Zero(t, asked.Load())
		}
	})
}

// Two Groups of one process run under one owner, and one of them under a hold of a shard: no lock
// of a shard is re-entered.
func TestVirtual_Func_OwnerInContext(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		m, err := zklock.NewMutex(s, groupPath+"/shards/0007")
		require.NoError(t, err)
		hold, err := m.Acquire(t.Context())
		require.NoError(t, err)
		owner := zklock.NewOwner("both")
		held, err := zklock.NewMutex(s, "/held")
		require.NoError(t, err)
		_, err = held.Acquire(zklock.WithOwner(t.Context(), owner))
		require.NoError(t, err)
		var running [8]atomic.Int32
		var overlaps, starts atomic.Int32
		work := func(ctx context.Context, shard int, h *zklock.Hold) error {
			starts.Add(1)
			if running[shard].Add(1) > 1 || shard == 7 && hold.Err() == nil {
				overlaps.Add(1)
			}
			defer running[shard].Add(-1)
			if !held.OwnedBy(ctx) {
				return errors.New("the owner is not in the context")
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		}
		done := make(chan error)
		ctx, cancel := context.WithCancel(zklock.WithOwner(hold.Context(), owner))
		for _, name := range []string{"a", "b"} {
			g, err := New(s, groupPath, 8, WithMember(name, nil), WithLogger(w.logger()))
			require.NoError(t, err)
			go func() { done <- g.Run(ctx, work) }()
			time.Sleep(5 * time.Second)
		}
		time.Sleep(w.quiet + 5*time.Second)
		require.Zero(t, overlaps.Load())
		require.EqualValues(t, 7+3, starts.Load(), "all but the one that is held, and those that have moved")
		cancel()
		<-done
		<-done
		require.NoError(t, hold.Release(context.Background()))
		require.Zero(t, overlaps.Load())
	})
}

// The last member does not wait for anybody to take over; neither do members that leave together.
func TestVirtual_Leave_Last(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		p := w.join("m")
		w.within(3*time.Second, "start", w.isComplete)
		w.return_ = func(int) time.Duration { return 30 * time.Millisecond }
		began := time.Now()
		p.leave()
		require.LessOrEqual(t, time.Since(began), 80*time.Millisecond)

		w.started(4)
		began = time.Now()
		for _, p := range w.procs {
			p.cancel()
		}
		for _, p := range w.procs {
			<-p.done
		}
		require.LessOrEqual(t, time.Since(began), time.Second)
		require.Empty(t, w.srv.Children(groupPath+"/members"))
	})
}

// Nobody takes over, because the others have weight 0: a member that leaves waits for 2 s.
func TestVirtual_Leave_NobodyTakesOver(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		p := w.join("m")
		w.join("observer", WithWeight(0))
		w.within(3*time.Second, "start", w.isComplete)
		began := time.Now()
		p.leave()
		require.InDelta(t, handOver.Seconds(), time.Since(began).Seconds(), 0.6)
	})
}

// Another kind of client that waits for a shard gets it when the shard is not wanted any more, and
// not before.
func TestVirtual_OtherWaiter(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		w.join("m")
		w.within(3*time.Second, "start", w.isComplete)
		s, _ := w.connect()
		defer s.Close()
		m, err := zklock.NewMutex(s, groupPath+"/shards/0003")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(w.t.Context())
		defer cancel()
		got := make(chan *zklock.Hold, 1)
		go func() {
			if h, err := m.Acquire(ctx); err == nil {
				got <- h
			}
		}()
		time.Sleep(time.Hour)
		require.Empty(t, got, "the shard is wanted")
		w.join("new") // gets 2 and 3
		h := <-got
		time.Sleep(time.Minute)
		require.NoError(t, h.Release(ctx))
		w.within(time.Second, "owned", w.isEven)
	})
}

// Waiting and Unserved measure the time for which a wanted shard is not worked on, over the rounds
// of a function that fails, and no other time.
func TestVirtual_Stats_Unserved(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		g, err := New(s, groupPath, 2)
		require.NoError(t, err)
		_, err = g.SetShards(t.Context(), 2)
		require.NoError(t, err)
		m, err := zklock.NewMutex(s, g.Path()+"/shards/0000")
		require.NoError(t, err)
		hold, err := m.Acquire(t.Context())
		require.NoError(t, err)
		var calls atomic.Int32
		p := w.joinWith("m", func(ctx context.Context, shard int, hold *zklock.Hold) error {
			if calls.Add(1) == 1 { // of shard 1: the other is held
				time.Sleep(time.Second)
				return errors.New("once")
			}
			<-ctx.Done()
			return nil
		}, 2)
		w.within(3*time.Second, "start", func() bool { return calls.Load() > 0 })
		time.Sleep(time.Minute)
		st := p.g.Stats()
		require.InDelta(t, time.Minute, st.Waiting, float64(50*time.Millisecond))
		require.InDelta(t, time.Minute+pauseMin, st.Unserved, float64(50*time.Millisecond), "and the pause of the other shard")
		require.NoError(t, hold.Release(t.Context()))
		w.within(time.Second, "complete", func() bool { return p.g.Stats().Working == 2 })
		st = p.g.Stats()
		time.Sleep(time.Hour)
		require.Zero(t, st.Waiting)
		require.InDelta(t, time.Minute+pauseMin, st.Unserved, float64(50*time.Millisecond))
		require.Equal(t, st, p.g.Stats(), "it does not grow")
	})
}
