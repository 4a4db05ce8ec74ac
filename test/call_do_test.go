package zklock_test

// These tests attack Do: the context of its function, the error it returns, how long it waits.

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

// The function's context has the caller's deadline and values. It ends with the caller's context,
// by the same Err and cause.
func TestVirtual_Do_ContextIsTheCallers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		type key struct{}
		why := errors.New("the shop is closing")
		withCause, end := context.WithCancelCause(context.Background())
		for name, c := range map[string]struct {
			caller     context.Context
			end        func()
			err, cause error
		}{
			"a time-out":          {within(t, time.Minute), func() {}, context.DeadlineExceeded, context.DeadlineExceeded},
			"a cancel with cause": {withCause, func() { end(why) }, context.Canceled, why},
		} {
			caller := context.WithValue(c.caller, key{}, name)
			err := m.Do(caller, func(ctx context.Context, hold *zklock.Hold) error {
				require.Equal(t, name, ctx.Value(key{}))
				want, bounded := caller.Deadline()
				got, has := ctx.Deadline()
				require.Equal(t, want, got, name)
				require.Equal(t, bounded, has, name)
				require.True(t, m.OwnedBy(ctx), "it carries the hold")
				c.end()
				<-ctx.Done()
				require.Equal(t, c.err, ctx.Err(), name)
				require.Equal(t, c.cause, context.Cause(ctx), name)
				require.NoError(t, hold.Err(), "the hold stands until the work has returned")
				return ctx.Err()
			})
			require.Equal(t, c.err, err, name)
			require.Empty(t, v.srv.Children("/job"))
		}
	})
}

// After a loss, Do's error is ErrLost once, whatever the function returns.
func TestVirtual_Do_LossIsReportedOnce(t *testing.T) {
	own := errors.New("the work failed")
	for name, c := range map[string]struct {
		returns func(ctx context.Context, hold *zklock.Hold) error
		also    error // is in the error too
	}{
		"nothing":                            {func(context.Context, *zklock.Hold) error { return nil }, zklock.ErrLost},
		"its context's error":                {func(ctx context.Context, _ *zklock.Hold) error { return ctx.Err() }, zklock.ErrLost},
		"its context's cause":                {func(ctx context.Context, _ *zklock.Hold) error { return context.Cause(ctx) }, zklock.ErrLost},
		"the hold's error, wrapped":          {func(_ context.Context, h *zklock.Hold) error { return fmt.Errorf("step 3: %w", h.Err()) }, zklock.ErrLost},
		"its context's error, wrapped":       {func(ctx context.Context, _ *zklock.Hold) error { return fmt.Errorf("query: %w", ctx.Err()) }, context.Canceled},
		"an error of its own":                {func(context.Context, *zklock.Hold) error { return own }, own},
		"what a Release in between returned": {func(ctx context.Context, h *zklock.Hold) error { return h.Release(ctx) }, zklock.ErrLost},
	} {
		for _, reentered := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				m := newMutex(t, v.connect(), "/job")
				work := func(ctx context.Context, hold *zklock.Hold) error {
					require.NoError(t, v.srv.Delete(hold.Node()))
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), zklock.ErrLost)
					return c.returns(ctx, hold)
				}
				do := work
				if reentered {
					do = func(_ context.Context, outer *zklock.Hold) error { return m.Do(reentering(outer), work) }
				}
				err := m.Do(within(t, time.Hour), do)
				require.ErrorIs(t, err, zklock.ErrLost, name)
				require.ErrorIs(t, err, c.also, name)
				require.Equal(t, 1, strings.Count(err.Error(), zklock.ErrLost.Error()), "%s: %v", name, err)
			})
		}
	}
}

// The loss of another lock is another loss: the error has both.
func TestVirtual_Do_TwoLocksLost_BothAreReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		err := newMutex(t, s, "/a").Do(within(t, time.Hour), func(ctx context.Context, outer *zklock.Hold) error {
			return newMutex(t, s, "/b").Do(ctx, func(ctx context.Context, inner *zklock.Hold) error {
				require.NoError(t, v.srv.Delete(inner.Node()))
				<-inner.Lost()
				require.NoError(t, v.srv.Delete(outer.Node()))
				<-outer.Lost()
				return nil
			})
		})
		require.Equal(t, 2, strings.Count(err.Error(), zklock.ErrLost.Error()), "%v", err)
	})
}

// ErrNotAcquired reports that a client is ahead. If the last report of a server is different, a
// call whose time has expired returns ErrNotConnected: the client ahead has released, or the
// lock-delay has ended, and no server responds to the requests before the grant; or our node was
// deleted, and no server responds to the next create (R108).
func TestVirtual_Do_WaitAtMost_NotKnownIsNotNotAcquired(t *testing.T) {
	hold := func(v *virtual, at zktest.Fault) { v.srv.Inject(at.Hold()) }
	test := func(name string, change func(v *virtual, s, holders *zklock.Session, holder *zklock.Hold), opts ...zklock.MutexOption) {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				holders, s := v.connect(), v.connect()
				holder := acquire(t, newMutex(t, holders, "/job", opts...))
				m, done := newMutex(t, s, "/job", opts...), make(chan error)
				go func() {
					done <- m.Do(t.Context(), func(context.Context, *zklock.Hold) error { return errors.New("it was granted") }, zklock.WaitAtMost(time.Minute))
				}()
				time.Sleep(56 * time.Second)
				change(v, s, holders, holder)
				err := <-done
				require.ErrorIs(t, err, zklock.ErrNotConnected)
				require.NotErrorIs(t, err, zklock.ErrNotAcquired)
			})
		})
	}
	for name, change := range map[string]func(v *virtual, s, holders *zklock.Session, holder *zklock.Hold){
		"the client ahead released": func(v *virtual, s, _ *zklock.Session, holder *zklock.Hold) {
			hold(v, zktest.Before(zktest.AnyOp).Session(s.Stats().SessionID))
			require.NoError(v.t, holder.Release(v.t.Context()))
		},
		"our node is gone": func(v *virtual, s, _ *zklock.Session, holder *zklock.Hold) {
			hold(v, zktest.Before(zktest.Create).Session(s.Stats().SessionID))
			require.NoError(v.t, v.srv.Delete("/job/"+without(v.srv.Children("/job"), base(holder.Node()))[0]))
		},
		"our session is gone": func(v *virtual, s, _ *zklock.Session, _ *zklock.Hold) {
			hold(v, zktest.Before(zktest.Create))
			require.True(v.t, v.srv.ExpireSession(s.Stats().SessionID))
		},
	} {
		test(name, change)
		test(name+", with a lock-delay", change, zklock.WithLockDelay(time.Second))
	}
	test("the lock-delay is over", func(v *virtual, s, holders *zklock.Session, _ *zklock.Hold) {
		require.True(v.t, v.srv.ExpireSession(holders.Stats().SessionID))
		time.Sleep(500 * time.Millisecond)
		hold(v, zktest.Before(zktest.AnyOp).Session(s.Stats().SessionID))
	}, zklock.WithLockDelay(time.Second))
}

// WaitAtMost limits the wait exactly, and not the work. Its error shows whether another client was
// ahead or no server responded.
func TestVirtual_Do_WaitAtMost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		line := &line{dial: v.net.Dial}
		s := v.connect(zklock.WithDialer(line.Dial), zklock.WithSessionTimeout(40*time.Second))
		m := newMutex(t, s, "/job")
		worked := func(context.Context, *zklock.Hold) error { time.Sleep(time.Hour); return nil }
		never := func(context.Context, *zklock.Hold) error { panic("not held") }
		began := time.Now()
		require.NoError(t, m.Do(context.Background(), worked, zklock.WaitAtMost(time.Second)))
		require.GreaterOrEqual(t, time.Since(began), time.Hour)

		other := acquire(t, newMutex(t, v.connect(), "/job"))
		for d, f := range map[time.Duration]func() error{
			time.Minute: func() error { return m.Do(context.Background(), never, zklock.WaitAtMost(time.Minute)) },
			0:           func() error { return m.Do(context.Background(), never, zklock.WaitAtMost(0)) },
			1:           func() error { return m.TryDo(context.Background(), never) },
		} {
			began := time.Now()
			err := f()
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			require.NotErrorIs(t, err, zklock.ErrNotConnected)
			require.LessOrEqual(t, time.Since(began), d+500*time.Millisecond)
			require.Len(t, v.srv.Children("/job"), 1, "I4")
			var e *zklock.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, 2, e.Position)
		}

		line.silent.Store(true)
		v.srv.DropConnection(s.Stats().SessionID)
		synctest.Wait()
		began = time.Now()
		err := m.Do(context.Background(), never, zklock.WaitAtMost(time.Second))
		require.ErrorIs(t, err, zklock.ErrNotConnected)
		require.NotErrorIs(t, err, zklock.ErrNotAcquired)
		require.Equal(t, time.Second, time.Since(began))
		for _, try := range []error{m.TryDo(context.Background(), never), m.Do(context.Background(), never, zklock.WaitAtMost(0))} {
			require.ErrorIs(t, try, zklock.ErrNotConnected)
		}
		require.Equal(t, time.Second, time.Since(began), "tries answer at once")
		line.silent.Store(false)
		require.ErrorContains(t, m.Do(context.Background(), never, zklock.WaitAtMost(-1)), "give 0 for a try")
		release(t, other)
	})
}

// Another goroutine, such as a timer, releases the hold while the function works. The function's
// context ends, and Do reports once that the work did not have the lock to its end, whatever the
// function returns.
func TestVirtual_Do_ReleasedUnderIt_ReportsIt(t *testing.T) {
	own := errors.New("the work failed")
	for name, c := range map[string]struct {
		returns func(ctx context.Context) error
		also    error // is in the error too
	}{
		"nothing":                      {func(context.Context) error { return nil }, zklock.ErrNotHeld},
		"its context's error":          {func(ctx context.Context) error { return ctx.Err() }, zklock.ErrNotHeld},
		"its context's cause":          {func(ctx context.Context) error { return context.Cause(ctx) }, zklock.ErrNotHeld},
		"its context's error, wrapped": {func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, context.Canceled},
		"an error of its own":          {func(context.Context) error { return own }, own},
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			m, multi := newMutex(t, s, "/job"), newMulti(t, newMutex(t, s, "/a"), newMutex(t, s, "/b"))
			e := newElection(t, s, "/leader", "ann")
			releases := func(h interface{ Release(context.Context) error }) {
				time.AfterFunc(time.Second, func() { _ = h.Release(context.Background()) })
			}
			work := func(ctx context.Context, h *zklock.Hold) error {
				releases(h)
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), zklock.ErrNotHeld)
				return c.returns(ctx)
			}
			for what, err := range map[string]error{
				"Do":       m.Do(within(t, time.Minute), work),
				"TryDo":    newMutex(t, s, "/try").TryDo(within(t, time.Minute), work),
				"Campaign": e.Campaign(within(t, time.Minute), work),
				"Multi": multi.Do(within(t, time.Minute), func(ctx context.Context, h *zklock.MultiHold) error {
					releases(h)
					<-ctx.Done()
					return c.returns(ctx)
				}),
				"one of a Multi": multi.Do(within(t, time.Minute), func(ctx context.Context, h *zklock.MultiHold) error {
					return work(ctx, h.Holds()[0])
				}),
			} {
				require.ErrorIs(t, err, zklock.ErrNotHeld, "%s: %s", what, name)
				require.ErrorIs(t, err, c.also, "%s: %s", what, name)
				require.Equal(t, 1, strings.Count(err.Error(), zklock.ErrNotHeld.Error()), "%s: %s: %v", what, name, err)
				require.NotErrorIs(t, err, zklock.ErrLost)
			}
			require.NoError(t, m.Do(within(t, time.Minute), func(ctx context.Context, h *zklock.Hold) error {
				again, err := m.Acquire(reentering(h))
				require.NoError(t, err)
				return again.Release(ctx) // another handle's release is none of this one
			}))
		})
	}
}
