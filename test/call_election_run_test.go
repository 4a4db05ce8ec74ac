package zklock_test

// These tests attack Run: a lead that fails at once, terms that end in each way, and ends of Run
// that come late or not at all.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// running is a Run in the background.
type running struct {
	e    *zklock.Election
	stop context.CancelFunc
	done chan error
}

// runFor has a candidate run for election until the test stops it.
func (v *virtual) runFor(e *zklock.Election, lead func(ctx context.Context, hold *zklock.Hold) error) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{e: e, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- e.Run(ctx, lead) }()
	v.t.Cleanup(stop)
	synctest.Wait()
	return r
}

func (r *running) returned(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("Run did not return within a minute")
		return nil
	}
}

func (r *running) requireRuns(t testing.TB) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-r.done:
		t.Fatalf("Run has returned: %v", err)
	default:
	}
}

// A lead that fails at once a thousand times is called after pauses that double from 20 ms to 5 s,
// and each failure is logged. An error marked final ends Run, and leaves no node.
func TestVirtual_Run_LeadFailsAtOnce_PausesGrow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const fails = 1000
		var log warnings
		unavailable, unknown := errors.New("the database is unavailable"), errors.New("the schema is unknown")
		var calls []time.Time
		r := v.runFor(newElection(t, v.connect(lines(&log, slog.LevelInfo)), "/job", "a"), func(context.Context, *zklock.Hold) error {
			if calls = append(calls, time.Now()); len(calls) <= fails {
				return unavailable
			}
			return zklock.Final(unknown)
		})
		time.Sleep(fails * 5 * time.Second)
		err := r.returned(t)
		require.ErrorIs(t, err, unknown)
		require.True(t, zklock.IsFinal(err))
		require.Len(t, calls, fails+1)
		for i, pause := 1, 20*time.Millisecond; i < len(calls); i, pause = i+1, min(2*pause, 5*time.Second) {
			require.Equal(t, pause, calls[i].Sub(calls[i-1]), "before call %d", i+1)
		}
		require.Len(t, log.of("zklock: campaigning again"), fails)
		require.Equal(t, fails, having(log.of("zklock: campaigning again"), "unavailable\""))
		require.Empty(t, v.srv.Children("/job"))
	})
}

// After a term that lasted for longer than 5 s the pauses start again from 20 ms. lead may have
// returned nil.
func TestVirtual_Run_AfterALongTerm_PausesStartAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var begun, ended []time.Time
		v.runFor(newElection(t, v.connect(), "/job", "a"), func(context.Context, *zklock.Hold) error {
			if begun = append(begun, time.Now()); len(begun) == 10 {
				time.Sleep(6 * time.Second)
			}
			ended = append(ended, time.Now())
			return nil
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Greater(t, len(begun), 11)
		require.Equal(t, 5*time.Second, begun[9].Sub(ended[8]))
		require.Equal(t, 20*time.Millisecond, begun[10].Sub(ended[9]))
		require.Equal(t, 40*time.Millisecond, begun[11].Sub(ended[10]))
	})
}

// While one candidate fails and pauses, the next one leads. The first stands again at the tail.
func TestVirtual_Run_AnotherCandidateLeadsInThePause(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		terms, fail := 0, make(chan struct{})
		a := v.runFor(newElection(t, v.connect(), "/job", "a"), func(ctx context.Context, _ *zklock.Hold) error {
			terms++
			<-fail
			return errors.New("failed")
		})
		b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		require.Zero(t, b.reigns.Load())
		close(fail)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, terms)
		require.EqualValues(t, 1, b.leads.Load())
		require.Len(t, v.srv.Children("/job"), 2, "the first waits")
		a.requireRuns(t)
	})
}

// Run ends when its context does: at once in a pause, with the cause, and with the result of lead
// while it leads.
func TestVirtual_Run_ContextEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var calls atomic.Int32
		r := v.runFor(newElection(t, v.connect(), "/job", "a"), func(context.Context, *zklock.Hold) error {
			calls.Add(1)
			return errors.New("failed")
		})
		time.Sleep(time.Minute) // the pauses last for 5 s
		for before := calls.Load(); calls.Load() == before; {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		stopped, before := time.Now(), calls.Load()
		r.stop()
		err := r.returned(t)
		require.Zero(t, time.Since(stopped))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "campaign /job")
		require.Equal(t, before, calls.Load())
		require.Empty(t, v.srv.Children("/job"))

		for _, want := range []error{nil, errors.New("failed")} {
			r = v.runFor(newElection(t, v.connect(), "/job", "a"), func(ctx context.Context, _ *zklock.Hold) error {
				<-ctx.Done()
				return want
			})
			r.stop()
			require.Equal(t, want, r.returned(t))
			require.Empty(t, v.srv.Children("/job"))
		}
	})
}

// After a loss lead is called again, whatever error it returned, unless that is marked final.
func TestVirtual_Run_Loss(t *testing.T) {
	for _, isFinal := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			failed := errors.New("failed")
			terms := 0
			r := v.runFor(newElection(t, s, "/job", "a"), func(ctx context.Context, _ *zklock.Hold) error {
				terms++
				<-ctx.Done()
				if isFinal {
					return zklock.Final(failed)
				}
				return failed
			})
			for round := 1; round <= 3 && !isFinal; round++ {
				require.Equal(t, round, terms)
				v.srv.ExpireSession(s.Stats().SessionID)
				time.Sleep(time.Minute)
				synctest.Wait()
			}
			if !isFinal {
				require.Equal(t, 4, terms)
				r.requireRuns(t)
				return
			}
			v.srv.ExpireSession(s.Stats().SessionID)
			err := r.returned(t)
			require.ErrorIs(t, err, failed)
			require.ErrorIs(t, err, zklock.ErrLost)
			require.True(t, zklock.IsFinal(err))
			require.Equal(t, 1, terms)
		})
	}
}

// Resign ends the present term: the next candidate leads, and Run stands again behind it. In a
// pause there is no term to end.
func TestVirtual_Run_Resign(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		terms := 0
		a := v.runFor(newElection(t, v.connect(), "/job", "a"), func(ctx context.Context, _ *zklock.Hold) error {
			terms++
			<-ctx.Done()
			return ctx.Err()
		})
		b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		require.NoError(t, a.e.Resign(within(t, soon)))
		require.NoError(t, a.e.Resign(within(t, soon)), "Run pauses, and no Campaign is under way")
		time.Sleep(time.Second)
		require.EqualValues(t, 1, b.leads.Load())
		require.Nil(t, a.e.Hold())
		require.Len(t, v.srv.Children("/job"), 2)
		require.NoError(t, a.e.Resign(within(t, soon)), "it waits")
		time.Sleep(time.Second)
		require.Len(t, v.srv.Children("/job"), 2, "it stands again")
		b.stop()
		require.NoError(t, b.returned(t))
		synctest.Wait()
		require.Equal(t, 2, terms)
		require.NotNil(t, a.e.Hold())
		a.requireRuns(t)
		a.stop()
		require.ErrorIs(t, a.returned(t), context.Canceled)
	})
}

// Errors that another try does not mend end Run: a closed Session, bad arguments, and a second Run
// of the candidate.
func TestVirtual_Run_FinalErrors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		e := newElection(t, s, "/job", "a")
		lead := func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return ctx.Err() }
		r := v.runFor(e, lead)
		require.ErrorContains(t, e.Run(within(t, soon), lead), "create another with NewElection")
		var none context.Context
		require.ErrorContains(t, e.Run(none, lead), "nil context")
		require.ErrorContains(t, newElection(t, s, "/job", "b").Run(within(t, soon), nil), "nil function")
		require.NoError(t, s.Close())
		err := r.returned(t)
		require.ErrorIs(t, err, zklock.ErrClosed)
		require.True(t, zklock.IsFinal(err))
	})
}

// Run ends at once when the Session is closed in a pause (I6), and when its client is.
func TestVirtual_Run_SessionClosedInAPause(t *testing.T) {
	for name, end := range map[string]func(s *zklock.Session) error{
		"the Session": (*zklock.Session).Close,
		"its client":  func(s *zklock.Session) error { s.Conn().Close(); return nil },
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			var calls atomic.Int32
			r := v.runFor(newElection(t, s, "/job", "a"), func(context.Context, *zklock.Hold) error {
				calls.Add(1)
				return errors.New("failed")
			})
			time.Sleep(time.Minute) // the pauses last for 5 s
			for before := calls.Load(); calls.Load() == before; {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(time.Second)
			closed := time.Now()
			require.NoError(t, end(s))
			err := r.returned(t)
			require.LessOrEqual(t, time.Since(closed), 500*time.Millisecond, name)
			require.ErrorIs(t, err, zklock.ErrClosed)
			require.True(t, zklock.IsFinal(err))
		})
	}
}

// A panic of lead leaves Run, and no node.
func TestVirtual_Run_LeadPanics(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		e := newElection(t, v.connect(), "/job", "a")
		require.PanicsWithValue(t, "bug", func() {
			_ = e.Run(within(t, soon), func(context.Context, *zklock.Hold) error { panic("bug") })
		})
		require.Empty(t, v.srv.Children("/job"))
	})
}

// An error that Final marks is final wherever it is wrapped, beside whatever, and is still the
// error that it was.
func TestFinal(t *testing.T) {
	failed := &zklock.Error{Op: "work", Err: errors.New("failed")}
	for _, err := range []error{
		zklock.Final(failed),
		zklock.Final(zklock.Final(failed)),
		fmt.Errorf("leading: %w", zklock.Final(failed)),
		errors.Join(zklock.ErrLost, zklock.Final(failed)),
		zklock.Final(errors.Join(context.DeadlineExceeded, failed)),
	} {
		require.True(t, zklock.IsFinal(err), "%v", err)
		require.ErrorIs(t, err, failed)
		var found *zklock.Error
		require.ErrorAs(t, err, &found)
	}
	require.False(t, zklock.IsFinal(failed))
	require.Equal(t, failed.Error(), zklock.Final(failed).Error())
	require.NoError(t, zklock.Final(nil))
}
