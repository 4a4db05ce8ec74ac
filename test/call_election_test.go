package zklock_test

// These tests attack elections: two leaders, a leadership without a leader, candidates that leave
// nodes behind, and observers that cost too much or miss a leader.

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/hook"
	"github.com/zklock/zklock/zktest"
)

func newElection(t testing.TB, s *zklock.Session, p, name string, opts ...zklock.ElectionOption) *zklock.Election {
	t.Helper()
	e, err := zklock.NewElection(s, p, append([]zklock.ElectionOption{zklock.WithData([]byte(name))}, opts...)...)
	require.NoError(t, err)
	return e
}

// candidate is a campaign in the background, with its leader's function.
type candidate struct {
	e      *zklock.Election
	stop   context.CancelFunc
	done   chan struct{} // closed when Campaign has returned
	err    error         // the result of Campaign
	leads  atomic.Int32  // how many leaders run
	reigns atomic.Int32  // how many have begun
	hold   atomic.Pointer[zklock.Hold]
}

// stand has a candidate campaign. Its leader works until its context ends, and then returns the
// result of after.
func (v *virtual) stand(e *zklock.Election, after func(ctx context.Context) error) *candidate {
	ctx, stop := context.WithCancel(context.Background())
	c := &candidate{e: e, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
			c.hold.Store(hold)
			c.reigns.Add(1)
			c.leads.Add(1)
			defer c.leads.Add(-1)
			<-ctx.Done()
			return after(ctx)
		})
	}()
	v.t.Cleanup(func() { stop(); <-c.done })
	synctest.Wait()
	return c
}

func untilItEnds(context.Context) error { return nil }

func (c *candidate) isOver() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *candidate) returned(t testing.TB) error {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		t.Fatal("Campaign did not return within a minute")
	}
	return c.err
}

// Campaign returns the result of lead as long as it leads, and drops no error. No node is left, and
// the candidate may campaign again.
func TestVirtual_Campaign_ReturnsWhatLeadReturns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		e := newElection(t, v.connect(), "/job", "a")
		failed := errors.New("the disk is full")
		for _, want := range []error{nil, failed, context.Canceled, zklock.ErrLost} {
			calls := 0
			err := e.Campaign(within(t, soon), func(ctx context.Context, hold *zklock.Hold) error {
				calls++
				require.NoError(t, ctx.Err())
				require.NoError(t, hold.Err())
				return want
			})
			require.Equal(t, want, err, "an ErrLost of another lock is like any other error")
			require.Equal(t, 1, calls)
			require.Empty(t, v.srv.Children("/job"))
		}
		// The end of the caller's context is not an error of the leader.
		ctx, cancel := context.WithCancel(context.Background())
		require.NoError(t, e.Campaign(ctx, func(ctx context.Context, _ *zklock.Hold) error {
			cancel()
			<-ctx.Done()
			return nil
		}))
		// A leader that panics leaves no node.
		require.PanicsWithValue(t, "bug", func() {
			_ = e.Campaign(within(t, soon), func(context.Context, *zklock.Hold) error { panic("bug") })
		})
		require.Empty(t, v.srv.Children("/job"))
		require.NoError(t, e.Campaign(within(t, soon), func(context.Context, *zklock.Hold) error { return nil }))
	})
}

// Hold returns the leader's hold from memory: nil before lead, the hold during lead, and nil from
// the moment of the loss by the clock, even while lead still runs.
func TestVirtual_ElectionHold_ReportsWhetherItLeadsNow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.stand(newElection(t, v.connect(), "/job", "a"), func(context.Context) error { time.Sleep(time.Minute); return nil })
		w := &wire{dial: v.net.Dial}
		b := v.stand(newElection(t, v.connect(w.dialer()), "/job", "b"), untilItEnds)
		require.Same(t, a.hold.Load(), a.e.Hold())
		w.reset()
		require.Nil(t, b.e.Hold())
		sent, _ := w.sent()
		require.Zero(t, sent)

		v.srv.Stop()
		time.Sleep(time.Until(a.hold.Load().Deadline()))
		require.EqualValues(t, 1, a.leads.Load(), "lead still runs")
		require.Nil(t, a.e.Hold(), "another may lead")
		v.srv.Start()
		time.Sleep(3 * time.Minute)
		require.EqualValues(t, 1, a.leads.Load()+b.leads.Load())
		leader, other := a, b
		if b.leads.Load() == 1 {
			leader, other = b, a
		}
		require.Same(t, leader.hold.Load(), leader.e.Hold())
		require.Nil(t, other.e.Hold())
		leader.stop()
		<-leader.done
		require.Nil(t, leader.e.Hold())
	})
}

// A release that no server confirms is in the error of Campaign and of Resign, because the next
// leader may be late.
func TestVirtual_Campaign_ReleaseNotConfirmed_IsAnError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		failed := errors.New("the disk is full")
		c := v.stand(newElection(t, v.connect(), "/job", "a"), func(context.Context) error { return failed })
		v.srv.Inject(zktest.Before(zktest.Delete).Fail(zktest.NoAuth).Once())
		require.ErrorIs(t, c.e.Resign(within(t, soon)), zklock.ErrNotConfirmed)
		require.ErrorIs(t, c.returned(t), zklock.ErrNotConfirmed)
		require.ErrorIs(t, c.err, failed)
	})
}

// I5, and Curator's two leaders (620, 652, 653, 696): a leader that is cut off stops before the
// next one begins. When it is connected again, it campaigns again, at the tail. The result of its
// function after the loss is in the log.
func TestVirtual_Campaign_CutOff_NeverTwoLeaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		line := &line{dial: v.net.Dial}
		a := v.stand(newElection(t, v.connect(zklock.WithDialer(line.Dial), lines(&log, slog.LevelInfo)), "/job", "a"), func(context.Context) error {
			return errors.New("the disk is full")
		})
		b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		require.EqualValues(t, 1, a.leads.Load())
		first := a.hold.Load()
		line.silent.Store(true)
		for range 600 { // a minute
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			require.LessOrEqual(t, a.leads.Load()+b.leads.Load(), int32(1), "I1: two leaders")
		}
		require.EqualValues(t, 1, b.leads.Load(), "nobody leads")
		require.Greater(t, b.hold.Load().Token(), first.Token())
		require.EqualValues(t, 1, a.reigns.Load())
		require.False(t, a.isOver(), "it stands again")

		line.silent.Store(false)
		time.Sleep(time.Minute)
		require.Len(t, v.srv.Children("/job"), 2)
		require.NoError(t, b.e.Resign(within(t, soon)))
		synctest.Wait()
		require.EqualValues(t, 2, a.reigns.Load())
		require.Greater(t, a.hold.Load().Token(), b.hold.Load().Token())
		require.Equal(t, 1, log.about("campaigning again", "the disk is full"))
		a.stop()
		require.ErrorContains(t, a.returned(t), "the disk is full")
	})
}

// If the caller's context ends during the leader's last work, after a loss, the candidate does not
// campaign again: Campaign returns the loss and the error.
func TestVirtual_Campaign_LossAndEnd_BothAreReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		c := v.stand(newElection(t, v.connect(), "/job", "a"), func(context.Context) error {
			time.Sleep(time.Minute)
			return errors.New("the disk is full")
		})
		require.NoError(t, v.srv.Delete(c.hold.Load().Node()))
		time.Sleep(30 * time.Second)
		require.True(t, isLost(c.hold.Load()))
		c.stop()
		require.ErrorIs(t, c.returned(t), zklock.ErrLost)
		require.ErrorContains(t, c.err, "the disk is full")
	})
}

// A loss that only the release shows is a loss: the leader's work may have overlapped with the next
// leader's.
func TestVirtual_Campaign_LossSeenByTheRelease_CampaignsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		e, calls := newElection(t, v.connect(), "/job", "a"), 0
		require.NoError(t, e.Campaign(within(t, soon), func(_ context.Context, hold *zklock.Hold) error {
			if calls++; calls == 1 {
				require.NoError(t, v.srv.Delete(hold.Node()))
			}
			return nil
		}))
		require.Equal(t, 2, calls)
	})
}

// Each loss moves the leader to the tail. So two candidates whose nodes another client deletes do
// not chase each other (504, 644, 645): their pauses grow, and they continue when the deletions
// stop.
func TestVirtual_Campaign_LostAgainAndAgain_BacksOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.stand(newElection(t, v.connect(), "/job", "a"), untilItEnds)
		b := v.stand(newElection(t, v.connect(), "/job", "b"), untilItEnds)
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			for _, name := range v.srv.Children("/job") {
				_ = v.srv.Delete("/job/" + name)
			}
		}
		made := len(creates(v.srv.History()))
		require.Less(t, made, 2*60+20, "nodes made in two minutes")
		require.Greater(t, made, 20, "they stopped")
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, a.leads.Load()+b.leads.Load())
		require.Len(t, v.srv.Children("/job"), 2)
	})
}

// An interrupt leaves no node and has no other effect (62, 202, 205, 337, 468, 518, 671): the
// candidate's context ends at each request of a campaign. Its node is deleted, and it can campaign
// again.
func TestVirtual_Campaign_Interrupted_LeavesNoNode(t *testing.T) {
	for _, queued := range []bool{false, true} {
		for nth, again := 1, true; again; nth++ {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				v.net.SetLatency(time.Millisecond)
				others := 0
				if queued {
					v.stand(newElection(t, v.connect(), "/job", "ahead"), untilItEnds)
					time.Sleep(time.Second)
					others = 1
				}
				s := v.connect()
				e := newElection(t, s, "/job", "a")
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				struck := v.srv.Inject(zktest.Before(zktest.AnyOp).Session(s.Stats().SessionID).Nth(nth).Call(cancel).Optional())
				done := make(chan error, 1)
				go func() {
					done <- e.Campaign(ctx, func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return ctx.Err() })
				}()
				time.Sleep(2 * time.Second)
				cancel()
				require.ErrorIs(t, <-done, context.Canceled)
				time.Sleep(time.Second)
				require.Len(t, v.srv.Children("/job"), others, "I4, interrupted at request %d", nth)
				again = struck.Fired() > 0
				struck.Remove()
				c := v.stand(e, untilItEnds)
				time.Sleep(time.Second)
				require.Len(t, v.srv.Children("/job"), others+1)
				require.EqualValues(t, 1-others, c.leads.Load())
			})
		}
	}
}

// Curator's 724: the path is deleted with all its nodes. Candidates and observers find the next
// leader.
func TestVirtual_Election_PathGone_GoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		a := v.stand(newElection(t, v.connect(), "/job/x/y", "a"), untilItEnds)
		b := v.stand(newElection(t, v.connect(), "/job/x/y", "b"), untilItEnds)
		seen := v.observe(newElection(t, v.connect(), "/job/x/y", "o"))
		for range 3 {
			wipe(v.srv, "/job")
			time.Sleep(20 * time.Second)
			require.EqualValues(t, 1, a.leads.Load()+b.leads.Load())
			require.Len(t, v.srv.Children("/job/x/y"), 2)
			leader := a
			if b.leads.Load() > 0 {
				leader = b
			}
			require.Equal(t, leader.hold.Load().Node(), seen.last().Node)
		}
	})
}

// A permanent error ends Campaign; a temporary one does not.
func TestVirtual_Campaign_EndsWithFinalErrors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, err := v.srv.Create("/root", nil, 0)
		require.NoError(t, err)
		s := hooked(t, hook.Session{}, v.srv.Addr()+"/root", zklock.WithDialer(v.net.Dial))
		wipe(v.srv, "/root")
		err = newElection(t, s, "/e", "a").Campaign(within(t, soon), func(context.Context, *zklock.Hold) error { return nil })
		require.ErrorIs(t, err, zklock.ErrNoChroot)

		s = v.connect(zklock.WithMaxLockNodes(1))
		h := acquire(t, newMutex(t, s, "/other"))
		c := v.stand(newElection(t, s, "/job", "a"), func(context.Context) error { return errors.New("the disk is full") })
		time.Sleep(time.Minute)
		require.False(t, c.isOver(), "too many lock nodes: that can pass")
		release(t, h)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 1, c.leads.Load())
		require.NoError(t, s.Close())
		require.ErrorIs(t, c.returned(t), zklock.ErrClosed)
		require.ErrorContains(t, c.err, "the disk is full", "nobody else hears of it")
	})
}

// WithLatchNodes: the nodes are the same as in Curator's LeaderLatch, one candidate leads at a
// time, and a handover takes an event and no list, as for a mutex.
func TestVirtual_Election_LatchNodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		latch := zklock.WithLatchNodes()
		a := v.stand(newElection(t, v.connect(), "/job", "", latch), untilItEnds)
		w := &wire{dial: v.net.Dial}
		b := v.stand(newElection(t, v.connect(w.dialer()), "/job", "b", latch), untilItEnds)
		for _, name := range v.srv.Children("/job") {
			require.Regexp(t, `^_c_[0-9a-f-]{36}-latch-\d{10}$`, name)
		}
		require.Zero(t, b.leads.Load())
		w.reset()
		require.NoError(t, a.e.Resign(within(t, soon)))
		synctest.Wait()
		require.EqualValues(t, 1, b.leads.Load())
		_, by := w.sent()
		require.Zero(t, by[opGetChildren2])
		require.Equal(t, 1, w.received().events)
	})
}

// On either kind of server: candidates and an observer of three Sessions, from a missing path to
// the last leader.
func TestElection_FromFirstToLast(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv) + "/new"
	type elected struct {
		name  string
		token int64
	}
	leads := make(chan elected, 1)
	seen := make(chan string)
	ctx, cancel := context.WithCancel(within(t, 4*soon))
	observed := make(chan error, 1)
	observer := newElection(t, connect(t, srv), p, "o")
	go func() {
		for leader, err := range observer.Observe(ctx) {
			if err != nil {
				observed <- err
				return
			}
			seen <- string(leader.Data)
		}
	}()
	require.Empty(t, <-seen, "nobody leads")
	stand := func(name string) (e *zklock.Election, ended chan error) {
		e, ended = newElection(t, connect(t, srv), p, name), make(chan error, 1)
		go func() {
			ended <- e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
				leads <- elected{name, hold.Token()}
				<-ctx.Done()
				return nil
			})
		}()
		return e, ended
	}
	a, aEnded := stand("a")
	first := <-leads
	require.Equal(t, "a", first.name)
	require.Equal(t, "a", <-seen)
	b, bEnded := stand("b")
	eventually(t, "both stand", func() bool {
		all, err := b.Candidates(ctx)
		require.NoError(t, err)
		return len(all) == 2
	})
	leader, err := b.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "a", string(leader.Data))
	require.Equal(t, first.token, leader.Token)
	require.NoError(t, a.Resign(ctx))
	require.NoError(t, <-aEnded)
	second := <-leads
	require.Equal(t, "b", second.name)
	require.Greater(t, second.token, first.token)
	require.Equal(t, "b", <-seen)
	require.NoError(t, b.Resign(ctx))
	require.NoError(t, <-bEnded)
	require.Empty(t, <-seen)
	cancel()
	require.ErrorIs(t, <-observed, context.Canceled)
	require.Empty(t, children(t, admin(t, srv), p))
}

// Two candidates of one owner are two candidates.
func TestVirtual_Campaign_OwnersAreTheirOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		first, second := newElection(t, s, "/job", "a"), newElection(t, s, "/job", "b")
		ctx := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("process"))
		err := first.Campaign(ctx, func(lead context.Context, _ *zklock.Hold) error {
			for _, ctx := range []context.Context{ctx, lead} {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				err := second.Campaign(ctx, func(context.Context, *zklock.Hold) error { return errors.New("two lead") })
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			return nil
		})
		require.NoError(t, err)
	})
}

// I1, R67: under a leader's hold, callers contend for other locks, as under any hold.
func TestVirtual_Campaign_UnderItsHold_OtherLocksExclude(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job/inner")
		e := newElection(t, s, "/job/e", "a")
		err := e.Campaign(t.Context(), func(ctx context.Context, hold *zklock.Hold) error {
			h1, err := m.Acquire(hold.Context())
			require.NoError(t, err)
			defer h1.Release(context.Background())
			wait, cancel := context.WithTimeout(hold.Context(), time.Minute) // for example another goroutine's
			defer cancel()
			h2, err := m.Acquire(wait)
			if err == nil {
				t.Errorf("two holds of one mutex at a time, none under the other: nodes %s and %s", h1.Node(), h2.Node())
				h2.Release(context.Background())
			}
			return nil
		})
		require.NoError(t, err)
	})
}

// The hold's context has the owner of Campaign's context.
func TestVirtual_Campaign_KeepsTheCallersOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		o := zklock.NewOwner("mine")
		m := newMutex(t, s, "/other")
		h, err := m.Acquire(zklock.WithOwner(t.Context(), o))
		require.NoError(t, err)
		e := newElection(t, s, "/job/e", "a")
		err = e.Campaign(zklock.WithOwner(t.Context(), o), func(ctx context.Context, hold *zklock.Hold) error {
			require.True(t, m.OwnedBy(hold.Context()))
			return nil
		})
		require.NoError(t, err)
		release(t, h)
	})
}
