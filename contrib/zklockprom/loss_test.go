package zklockprom_test

// These tests attack the metrics of losses: a loss that does not count or counts twice, an overrun
// that does not show while it lasts, a leader that the metric shows for longer than its hold.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/zktest"
)

// Each loss counts once, under its reason, and its overrun lasts from the loss to the release.
func TestVirtual_Loss_ReasonAndOverrun(t *testing.T) {
	for reason, lose := range map[zklock.Loss]func(v *virtual, l *oneway.Way, s *zklock.Session, h *zklock.Hold){
		zklock.LossSession: func(v *virtual, _ *oneway.Way, s *zklock.Session, _ *zklock.Hold) {
			v.srv.ExpireSession(s.Stats().SessionID)
		},
		zklock.LossNode:     func(v *virtual, _ *oneway.Way, _ *zklock.Session, h *zklock.Hold) { _ = v.srv.Delete(h.Node()) },
		zklock.LossNoServer: func(_ *virtual, l *oneway.Way, _ *zklock.Session, _ *zklock.Hold) { cut(l) },
		zklock.LossClosed:   func(_ *virtual, _ *oneway.Way, s *zklock.Session, _ *zklock.Hold) { _ = s.Close() },
	} {
		t.Run(string(reason), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				l := oneway.New(v.net.Dial)
				s := v.connect(zklock.WithDialer(l.Dial))
				h := acquire(t, newMutex(t, s, "/job"))
				time.Sleep(time.Minute)
				lose(v, l, s, h)
				<-h.Lost()
				synctest.Wait() // for HoldLost
				now := v.shown()
				require.Equal(t, 1.0, now.lost("/job", reason))
				require.Zero(t, now.sum("zklock_overrun_seconds_count"))
				l.Heal()
				time.Sleep(7 * time.Second)
				require.Equal(t, 1.0, v.shown()["zklock_holds_lost_unreleased"])
				require.ErrorIs(t, h.Release(context.Background()), zklock.ErrLost)
				now = v.shown()
				require.Zero(t, now["zklock_holds_lost_unreleased"])
				require.Zero(t, now["zklock_holds"])
				require.Equal(t, 1.0, now.sum("zklock_holds_lost_total"))
				require.Equal(t, 1.0, now[`zklock_overrun_seconds_count{lock="/job"}`])
				require.InDelta(t, 7, now[`zklock_overrun_seconds_sum{lock="/job"}`], 0.01) // a timer sees the end of a lease a moment later
				require.Equal(t, 1.0, now.sum("zklock_hold_duration_seconds_count"))
			})
		})
	}
}

// If all servers begin to reject the credentials of a Session, it loses its holds when their lease
// ends, for that reason.
func TestVirtual_CredentialsRefused_LossShows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect(zklock.WithDigest("someone", "secret"))
		h := acquire(t, newMutex(t, s, "/job"))
		v.srv.Inject(zktest.Before(zktest.Op(100)).Fail(-115))
		v.srv.DropConnection(s.Stats().SessionID)
		<-h.Lost()
		require.ErrorIs(t, h.Err(), zklock.ErrAuthFailed)
		synctest.Wait() // for HoldLost
		require.Equal(t, 1.0, v.shown().lost("/job", zklock.LossAuth))
		require.Equal(t, 1.0, v.shown()["zklock_holds_lost_unreleased"])
		require.ErrorIs(t, h.Release(context.Background()), zklock.ErrLost)
		require.Zero(t, v.shown()["zklock_holds_lost_unreleased"])
	})
}

// Another trace's HoldLost that blocks does not prevent a loss from showing.
func TestVirtual_AnotherHoldLostBlocks_LossShows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		goOn := make(chan struct{})
		other := zklock.WithTrace(&zklock.Trace{HoldLost: func(context.Context, zklock.HoldInfo) { <-goOn }})
		s := v.connect(other)
		a, b := acquire(t, newMutex(t, s, "/a")), acquire(t, newMutex(t, s, "/b")) // one waits behind the other
		v.srv.ExpireSession(s.Stats().SessionID)
		<-a.Lost()
		<-b.Lost()
		synctest.Wait()
		require.Equal(t, 1.0, v.shown().sum("zklock_holds_lost_total"))
		require.Equal(t, 2.0, v.shown()["zklock_holds_lost_unreleased"])
		require.ErrorIs(t, a.Release(context.Background()), zklock.ErrLost)
		require.ErrorIs(t, b.Release(context.Background()), zklock.ErrLost)
		close(goOn)
		synctest.Wait()
		require.Zero(t, v.shown()["zklock_holds_lost_unreleased"])
	})
}

// Before any loss the counters exist with 0, so that the first loss is an increase.
func TestVirtual_NothingLost_CountersAreThere(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, acquire(t, newMutex(t, v.connect(), "/job")))
		now := v.shown()
		for _, reason := range []zklock.Loss{zklock.LossNoServer, zklock.LossNoQuorum, zklock.LossPaused, zklock.LossSession, zklock.LossNode,
			zklock.LossUnreadable, zklock.LossAuth, zklock.LossClosed, zklock.LossOther} {
			require.Contains(t, now, `zklock_holds_lost_total{lock="/job",reason="`+string(reason)+`"}`)
		}
		require.Contains(t, now, `zklock_overrun_seconds_count{lock="/job"}`)
		require.Contains(t, now, `zklock_acquire_duration_seconds_count{kind="mutex",lock="/job",outcome="error"}`)
	})
}

// A hold with two handles is lost once. Its overrun ends with the handle that is released last,
// even if that re-entered.
func TestVirtual_LossUnderTwoHandles_CountsOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		outer := acquire(t, m)
		inner := acquireIn(t, zklock.WithOwner(outer.Context(), outer.Owner()), m)
		v.srv.ExpireSession(s.Stats().SessionID)
		<-outer.Lost()
		time.Sleep(time.Second)
		require.ErrorIs(t, outer.Release(context.Background()), zklock.ErrLost)
		require.Zero(t, v.shown().sum("zklock_overrun_seconds_count"))
		time.Sleep(4 * time.Second)
		require.Equal(t, 1.0, v.shown()["zklock_holds_lost_unreleased"])
		require.ErrorIs(t, inner.Release(context.Background()), zklock.ErrLost)
		now := v.shown()
		require.Equal(t, 1.0, now.sum("zklock_holds_lost_total"))
		require.Equal(t, 5.0, now.sum("zklock_overrun_seconds_sum"))
		require.Equal(t, 1.0, now.sum("zklock_overrun_seconds_count"))
	})
}

// The granted handle may be released first. The loss of the remaining handle still counts.
func TestVirtual_LossUnderAHandleThatReentered_Counts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newMutex(t, s, "/job")
		outer := acquire(t, m)
		inner := acquireIn(t, zklock.WithOwner(outer.Context(), outer.Owner()), m)
		release(t, outer)
		v.srv.ExpireSession(s.Stats().SessionID)
		<-inner.Lost()
		require.ErrorIs(t, inner.Release(context.Background()), zklock.ErrLost)
		synctest.Wait() // for HoldLost
		require.Equal(t, 1.0, v.shown().lost("/job", zklock.LossSession))
	})
}

func newElection(t testing.TB, s *zklock.Session) *zklock.Election {
	t.Helper()
	e, err := zklock.NewElection(s, "/leader")
	require.NoError(t, err)
	return e
}

const leads = `zklock_is_leader{lock="/leader"}`

// A process leads from its election and while its hold is valid, and no longer, even if lead
// continues. A waiting candidate shows 0.
func TestVirtual_Leader_AsItsHoldReports(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		l := oneway.New(v.net.Dial)
		e := newElection(t, v.connect(zklock.WithDialer(l.Dial)))
		require.NotContains(t, v.shown(), leads)
		ctx, stop := context.WithCancel(context.Background())
		elected, done := make(chan *zklock.Hold), make(chan error)
		goOn := make(chan struct{})
		go func() {
			done <- e.Campaign(ctx, func(_ context.Context, h *zklock.Hold) error { elected <- h; <-goOn; return nil })
		}()
		hold := <-elected
		require.Equal(t, 1.0, v.shown()[leads])
		time.Sleep(time.Minute + 100*time.Millisecond) // between two heartbeats
		cut(l)
		time.Sleep(time.Until(hold.Deadline()) - time.Second)
		require.Equal(t, 1.0, v.shown()[leads], "the lease stands")
		time.Sleep(time.Second)
		require.Zero(t, v.shown()[leads], "the lease has ended, and lead goes on")
		require.Equal(t, 1.0, v.shown()["zklock_holds_lost_unreleased"])
		l.Heal()
		stop()
		close(goOn)
		<-done
		synctest.Wait() // for HoldLost, which HoldEnd follows
		require.NotContains(t, v.shown(), leads, "it stands no more")
		require.Equal(t, 1.0, v.shown().sum("zklock_overrun_seconds_count"))
	})
}

// After a Run that ended with an error, the process does not lead. The metric shows that until the
// Session is closed: otherwise no alert could fire when no process leads.
func TestVirtual_Leader_RunEndedWithAnError_ShowsUntilClosed(t *testing.T) {
	noDatabase := zklock.Final(errors.New("no database"))
	deny := func(v *virtual) {
		admin := v.connect()
		_, err := admin.Conn().SetACL("/leader", zk.DigestACL(zk.PermAll, "somebody", "else"), -1)
		require.NoError(v.t, err)
		require.NoError(v.t, admin.Close())
	}
	for name, c := range map[string]struct {
		before func(v *virtual) // it runs
		lead   func(v *virtual, s *zklock.Session) error
		ends   error
	}{
		"the work ends it": {nil, func(*virtual, *zklock.Session) error { return noDatabase }, noDatabase},
		"denied in the next term": {nil, func(v *virtual, s *zklock.Session) error {
			v.srv.ExpireSession(s.Stats().SessionID)
			deny(v)
			return nil
		}, zk.ErrNoAuth},
		"denied at once": {func(v *virtual) {
			_, err := v.srv.Create("/leader", nil, 0)
			require.NoError(v.t, err)
			deny(v)
		}, nil, zk.ErrNoAuth},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				if c.before != nil {
					c.before(v)
				}
				s := v.connect()
				err := newElection(t, s).Run(t.Context(), func(context.Context, *zklock.Hold) error { return c.lead(v, s) })
				require.ErrorIs(t, err, c.ends)
				for range 2 {
					time.Sleep(time.Hour)
					now := v.shown()
					require.Contains(t, now, leads)
					require.Zero(t, now[leads])
				}
				require.NoError(t, s.Close())
				require.NotContains(t, v.shown(), leads)
			})
		})
	}
}

// A Campaign replaces one that an error has ended. Nothing shows after the end of the caller's
// context, or of the Session.
func TestVirtual_Leader_CampaignsAgainAfterAnError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, other := v.connect(), v.connect()
		e := newElection(t, s)
		failed := errors.New("no database")
		require.ErrorIs(t, e.Campaign(t.Context(), func(context.Context, *zklock.Hold) error { return failed }), failed)
		require.Contains(t, v.shown(), leads)
		require.NoError(t, e.Campaign(t.Context(), func(context.Context, *zklock.Hold) error { require.Equal(t, 1.0, v.shown()[leads]); return nil }))
		require.NotContains(t, v.shown(), leads)
		ctx, stop := context.WithCancelCause(t.Context())
		err := e.Run(ctx, func(context.Context, *zklock.Hold) error { stop(failed); return failed })
		require.ErrorIs(t, err, failed)
		require.NotContains(t, v.shown(), leads, "its caller has ended it")
		require.ErrorIs(t, e.Run(t.Context(), func(context.Context, *zklock.Hold) error { _ = s.Close(); return nil }), zklock.ErrClosed)
		require.NotContains(t, v.shown(), leads, "its Session is closed")
		require.NotEmpty(t, other.Stats().Server)
	})
}

// Candidates of two processes: one leads, and the other when it has resigned.
func TestVirtual_Leader_OneOfTwo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		other := &virtual{v.t, v.net, v.srv, newMetrics()}
		var done []chan error
		var all []*zklock.Election
		for _, process := range []*virtual{v, other} {
			e, ended := newElection(t, process.connect()), make(chan error, 1)
			all, done = append(all, e), append(done, ended)
			go func() {
				ended <- e.Campaign(context.Background(), func(ctx context.Context, _ *zklock.Hold) error { <-ctx.Done(); return nil })
			}()
			synctest.Wait()
		}
		require.Equal(t, []float64{1, 0}, []float64{v.shown()[leads], other.shown()[leads]})
		require.NoError(t, all[0].Resign(context.Background()))
		<-done[0]
		synctest.Wait()
		require.NotContains(t, v.shown(), leads)
		require.Equal(t, 1.0, other.shown()[leads])
		require.NoError(t, all[1].Resign(context.Background()))
		<-done[1]
		require.NotContains(t, other.shown(), leads)
		require.Zero(t, v.shown().sum("zklock_holds_lost_total"), "Resign is no loss")
	})
}
