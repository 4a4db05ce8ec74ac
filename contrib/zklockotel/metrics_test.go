package zklockotel_test

// These tests attack the metrics: events that are counted twice or not at all, gauges that drift,
// and lock attributes without a limit.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
)

func TestMetrics_AcquireByOutcome_AndHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		other := sc.connect()
		m := sc.mutex(s, "/job")
		hold := sc.acquire(t.Context(), m)
		sc.release(sc.acquire(zklock.WithOwner(hold.Context(), hold.Owner()), m))
		time.Sleep(90 * time.Second)
		sc.release(hold)

		blocks := sc.acquire(t.Context(), sc.mutex(other, "/job"))
		_, err := m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, err = m.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stopped, stop := context.WithCancelCause(t.Context())
		end := sc.waitsFor(stopped, m)
		stop(errOwn)
		_, err = end()
		require.ErrorIs(t, err, errOwn)
		owner := zklock.NewOwner("")
		sc.acquire(zklock.WithOwner(t.Context(), owner), sc.mutex(s, "/lost", zklock.WithName("/job")))
		old := s.Stats().SessionID
		require.True(t, sc.srv.ExpireSession(old))
		require.Eventually(t, func() bool { return s.Stats().SessionID != old && s.Stats().Server != "" }, time.Minute, time.Second)
		sc.srv.Freeze()
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotConnected)
		sc.srv.Thaw()
		require.Eventually(t, func() bool { return s.Stats().Server != "" }, time.Minute, time.Second)
		_, err = sc.mutex(s, "/lost", zklock.WithName("/job")).Acquire(zklock.WithOwner(t.Context(), owner)) // lost, and not released
		require.ErrorIs(t, err, zklock.ErrLost)
		end = sc.waitsFor(t.Context(), m)
		require.NoError(t, s.Close())
		_, err = end()
		require.ErrorIs(t, err, zklock.ErrClosed)
		sc.release(blocks)

		n := sc.numbers()
		require.Equal(t, map[string]float64{
			"kind=mutex,lock=/job,outcome=acquired": 2, "kind=mutex,lock=/job,outcome=not_acquired": 1, "kind=mutex,lock=/job,outcome=deadline": 1,
			"kind=mutex,lock=/job,outcome=canceled": 1, "kind=mutex,lock=/job,outcome=not_connected": 1,
			"kind=mutex,lock=/job,outcome=closed": 1, "kind=mutex,lock=/job,outcome=error": 1,
		}, n.of("acquire.duration"), "a re-entry is none")
		require.Equal(t, map[string]float64{"kind=mutex,lock=/job": 1}, n.of("hold.duration"), "a re-entry is no hold of its own")
		require.InDelta(t, 90, n.of("hold.duration.sum")["kind=mutex,lock=/job"], 1e-3)
		require.InDelta(t, 4, n.of("acquire.duration.sum")["kind=mutex,lock=/job,outcome=deadline"], 1e-3)
	})
}

// The metrics have the exact times of the lease's end and of the work that continued: no server
// responds any more.
func TestMetrics_LeaseEnds_OverrunCountsFromItsEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		hold := sc.acquire(t.Context(), sc.mutex(s, "/job"))
		sc.srv.Freeze()
		<-hold.Lost()
		lost := hold.Deadline()
		time.Sleep(10 * time.Second)
		released := time.Now()
		sc.release(hold)
		sc.srv.Thaw()
		n := sc.numbers()
		require.Equal(t, map[string]float64{"lock=/job,reason=" + string(zklock.LossNoServer): 1}, n.of("holds.lost"))
		require.Equal(t, map[string]float64{"lock=/job": 1}, n.of("overrun"))
		require.InDelta(t, released.Sub(lost).Seconds(), n.of("overrun.sum")["lock=/job"], 1e-3)
		span := sc.one("mutex /job")
		require.Equal(t, []string{"suspended", "lost"}, events(span)[:2])
		require.WithinDuration(t, lost, span.Events()[1].Time, time.Millisecond)
	})
}

// A hold with three handles is lost once, even if the first handle was released before; the overrun
// ends with the last one.
func TestMetrics_SeveralHandles_OneLossAndTheLastOverrun(t *testing.T) {
	for _, firstReleased := range []bool{false, true} {
		t.Run(fmt.Sprint(firstReleased), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sc *scene) {
				s, tel := sc.watched()
				m, ctx := sc.mutex(s, "/job"), zklock.WithOwner(t.Context(), zklock.NewOwner(""))
				began, first := time.Now(), sc.acquire(ctx, m)
				time.Sleep(3 * time.Second)
				second, third := sc.acquire(ctx, m), sc.acquire(ctx, m)
				if firstReleased {
					sc.release(first)
				}
				require.NoError(t, sc.srv.Delete(second.Node()))
				<-second.Lost()
				time.Sleep(2 * time.Second)
				sc.release(second, first)
				time.Sleep(5 * time.Second)
				sc.release(third)
				n := sc.numbers()
				require.Equal(t, map[string]float64{"lock=/job,reason=" + string(zklock.LossNode): 1}, n.of("holds.lost"))
				require.Equal(t, map[string]float64{"kind=mutex,lock=/job": 1}, n.of("hold.duration"))
				require.InDelta(t, time.Since(began).Seconds(), n.of("hold.duration.sum")["kind=mutex,lock=/job"], 1e-3, "to the last release")
				require.Equal(t, map[string]float64{"lock=/job": 1}, n.of("overrun"))
				require.InDelta(t, 7, n.of("overrun.sum")["lock=/job"], 1e-3)
				require.Zero(t, zklockotel.Remembered(tel))
			})
		})
	}
}

// A trace before ours may delay AcquireEnd of a re-entry until the granted handle is released. The
// hold still counts once.
func TestMetrics_ReentryTracedLate_CountsOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		tel := sc.telemetry()
		s := sc.connect(zklock.WithTrace(&zklock.Trace{AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) {
			if a.Reentered {
				time.Sleep(time.Minute)
			}
		}}), tel.Option())
		m := sc.mutex(s, "/job")
		granted := sc.acquire(t.Context(), m)
		end := sc.waitsFor(zklock.WithOwner(granted.Context(), granted.Owner()), m)
		sc.release(granted)
		again, err := end()
		require.NoError(t, err)
		sc.release(again)
		n := sc.numbers()
		require.Equal(t, map[string]float64{"kind=mutex,lock=/job": 1}, n.of("hold.duration"))
		require.InDelta(t, 60, n.of("hold.duration.sum")["kind=mutex,lock=/job"], 1e-3)
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// The last handle of a hold has another name: the hold ends under the name of its grant.
func TestMetrics_ReentryUnderAnotherName_EndsTheHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		tel := sc.telemetry()
		s := sc.connect(tel.Option())
		outer := sc.acquire(t.Context(), sc.mutex(s, "/job", zklock.WithName("outer")))
		inner := sc.acquire(zklock.WithOwner(outer.Context(), outer.Owner()), sc.mutex(s, "/job", zklock.WithName("inner")))
		sc.release(outer)
		sc.release(inner)
		require.Equal(t, map[string]float64{"kind=mutex,lock=outer": 1}, sc.numbers().of("hold.duration"))
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// The gauges are the Session's numbers at the time of the collection, and end with the Session.
func TestMetrics_Gauges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		other := sc.acquire(t.Context(), sc.mutex(sc.connect(), "/taken"))
		s, tel := sc.watched()
		is := func(when string, waiting, holds, lost, deletions, attached, reconnects float64) {
			t.Helper()
			n := sc.numbers()
			require.Equal(t, []float64{waiting, holds, lost, deletions, attached, reconnects}, []float64{n["waiting{}"], n["holds{}"],
				n["holds.lost_unreleased{}"], n["deletions.pending{}"], n["sessions.attached{}"], n["reconnects{}"]}, when)
			left, has := n["lease.left{}"]
			require.Equal(t, holds > 0, has, when)
			require.LessOrEqual(t, left, timeout.Seconds())
		}
		is("at first", 0, 0, 0, 0, 1, 0)
		a, b := sc.acquire(t.Context(), sc.mutex(s, "/a")), sc.acquire(t.Context(), sc.mutex(s, "/b"))
		end := sc.waitsFor(t.Context(), sc.mutex(s, "/taken"))
		is("two held, one waits", 1, 2, 0, 0, 1, 0)
		left := sc.numbers()["lease.left{}"]
		time.Sleep(time.Second)
		require.NotEqual(t, left, sc.numbers()["lease.left{}"])
		require.NoError(t, sc.srv.Delete(a.Node()))
		<-a.Lost()
		is("one is lost", 1, 1, 1, 0, 1, 0)
		sc.srv.Freeze()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Release(ended), zklock.ErrNotConfirmed)
		is("one is being deleted", 1, 0, 1, 1, 1, 0)
		sc.srv.Thaw()
		time.Sleep(time.Second)
		sc.srv.Stop()
		synctest.Wait()
		is("no server", 1, 0, 1, 0, 0, 0)
		require.NoError(t, sc.srv.Start())
		time.Sleep(10 * time.Second)
		is("back", 1, 0, 1, 0, 1, 1)
		sc.release(other, a)
		hold, err := end()
		require.NoError(t, err)
		sc.release(hold)
		is("all released", 0, 0, 0, 0, 1, 1)

		require.NoError(t, s.Close())
		for _, name := range []string{"waiting", "sessions", "sessions.attached", "reconnects", "lease.left"} {
			require.Empty(t, sc.numbers().of(name), "closed")
		}
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// Work continues under a hold that the Session's end took away. That shows until the release, once,
// even if another Session is watched by then.
func TestMetrics_ClosedUnderAHold_LossShowsUntilTheRelease(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched again: %v", again), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, sc *scene) {
				var callbacks atomic.Int32
				tel := sc.telemetry(zklockotel.WithMeterProvider(meters{sc.meters, &callbacks}))
				s := sc.connect(tel.Option())
				require.NoError(t, tel.Watch(s))
				m, ctx := sc.mutex(s, "/a"), zklock.WithOwner(t.Context(), zklock.NewOwner(""))
				first, second, other := sc.acquire(ctx, m), sc.acquire(ctx, m), sc.acquire(t.Context(), sc.mutex(s, "/b"))
				require.NoError(t, s.Close())
				<-first.Lost()
				require.Equal(t, map[string]float64{"": 2}, sc.numbers().of("holds.lost_unreleased"))
				require.Equal(t, zklock.StateClosed, s.Stats().State)
				want := map[string]float64{}
				if again {
					require.NoError(t, tel.Watch(sc.connect(tel.Option())))
					want[""] = 0
				}
				sc.release(first, other)
				require.Equal(t, map[string]float64{"": 1}, sc.numbers().of("holds.lost_unreleased"))
				require.EqualValues(t, 1, callbacks.Load())
				sc.release(second)
				require.Equal(t, want, sc.numbers().of("holds.lost_unreleased"))
				require.EqualValues(t, len(want), callbacks.Load())
				require.Len(t, sc.numbers().of("sessions"), len(want))
			})
		})
	}
}

// The gauge of an election exists while the program campaigns or leads, and after an error ended
// the campaign. It is 0 before and after the terms, and a pause shows in it at once.
func TestMetrics_IsLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, tel := sc.watched()
		other := sc.acquire(t.Context(), sc.mutex(sc.connect(), "/leader"))
		e, err := zklock.NewElection(s, "/leader", zklock.WithName("orders"))
		require.NoError(t, err)
		leads := func() map[string]float64 { return sc.numbers().of("is_leader") }
		require.Empty(t, leads())
		terms, ended := make(chan *zklock.Hold), make(chan error)
		go func() {
			ended <- e.Campaign(t.Context(), func(ctx context.Context, hold *zklock.Hold) error {
				terms <- hold
				<-terms
				return errOwn
			})
		}()
		synctest.Wait()
		require.Equal(t, map[string]float64{"lock=orders": 0}, leads(), "queued")
		sc.release(other)
		hold := <-terms
		require.Equal(t, map[string]float64{"lock=orders": 1}, leads(), "elected")
		require.NoError(t, sc.srv.Delete(hold.Node()))
		<-hold.Lost()
		require.Equal(t, map[string]float64{"lock=orders": 0}, leads(), "lost, and lead has not returned")
		terms <- nil
		<-terms
		require.Equal(t, map[string]float64{"lock=orders": 1}, leads(), "elected again")
		terms <- nil
		require.ErrorIs(t, <-ended, errOwn)
		require.Equal(t, map[string]float64{"lock=orders": 0}, leads(), "an error ended it")
		other = sc.acquire(t.Context(), sc.mutex(sc.connect(), "/leader"))
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- e.Campaign(ctx, func(context.Context, *zklock.Hold) error { return nil }) }()
		synctest.Wait()
		require.Equal(t, map[string]float64{"lock=orders": 0}, leads(), "queued again")
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Empty(t, leads(), "gave up before it led")
		sc.release(other)
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// Ten thousand paths give a hundred and one lock attributes, in metrics and in the names of spans.
// The first ones remain, names count like paths, and each span has its real path.
func TestMetrics_TenThousandPaths_HundredAndOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, tel := sc.watched()
		try := func(path string, opts ...zklock.MutexOption) {
			hold, err := sc.mutex(s, path, opts...).TryAcquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, hold.Release(t.Context()))
		}
		const paths = 10_000
		for i := range paths {
			try(fmt.Sprintf("/order-%d", i))
		}
		for range 3 {
			try("/order-7")
		}
		try("/order-too", zklock.WithName("orders")) // too late
		n := sc.numbers()
		for _, name := range []string{"acquire.duration", "hold.duration"} {
			of := n.of(name)
			require.Len(t, of, 101)
			all := 0.0
			for _, count := range of {
				all += count
			}
			require.Equal(t, float64(paths+4), all)
		}
		require.Equal(t, 4.0, n["hold.duration{kind=mutex,lock=/order-7}"])
		require.Equal(t, float64(paths-100+1), n["hold.duration{kind=mutex,lock=_others}"])
		names, seen := map[string]bool{}, map[string]bool{}
		for _, span := range sc.spans.Ended() {
			names[span.Name()] = true
			seen[attrOf(span.Attributes(), "path").AsString()] = true
		}
		require.Len(t, names, 102, "and the wait")
		require.True(t, seen["/order-9999"] && seen["/order-7"])
		require.Len(t, seen, paths+2, "and the wait's, which has none")
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// Two Sessions of a process, with attributes: the metrics and spans of each are its own.
func TestMetrics_TwoSessions_Attributes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		var holds []*zklock.Hold
		for _, name := range []string{"east", "west"} {
			tel := sc.telemetry(zklockotel.WithAttributes(attribute.String("ensemble", name)))
			s := sc.connect(tel.Option())
			require.NoError(t, tel.Watch(s))
			holds = append(holds, sc.acquire(t.Context(), sc.mutex(s, "/"+name)))
			holds = append(holds, sc.acquire(t.Context(), sc.mutex(s, "/2"+name)))
		}
		n := sc.numbers()
		require.Equal(t, map[string]float64{"ensemble=east": 2, "ensemble=west": 2}, n.of("holds"))
		require.Len(t, n.of("lease.left"), 2)
		require.Equal(t, 1.0, n["acquire.duration{ensemble=west,kind=mutex,lock=/west,outcome=acquired}"])
		sc.release(holds...)
		require.Contains(t, sc.one("mutex /east").Attributes(), attribute.String("ensemble", "east"))
	})
}

// Without attributes, the numbers of two Sessions add up.
func TestMetrics_TwoSessions_AddUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		for _, path := range []string{"/a", "/b"} {
			s, _ := sc.watched()
			sc.acquire(t.Context(), sc.mutex(s, path))
		}
		n := sc.numbers()
		require.Equal(t, []float64{2, 2, 0}, []float64{n["holds{}"], n["sessions.attached{}"], n["waiting{}"]})
	})
}

// The basis of dashboards: names, units and kinds.
func TestMetrics_NamesAndUnits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		e, err := zklock.NewElection(s, "/job")
		require.NoError(t, err)
		all := map[string]string{}
		err = e.Campaign(t.Context(), func(ctx context.Context, hold *zklock.Hold) error {
			var got metricdata.ResourceMetrics
			require.NoError(t, sc.reader.Collect(ctx, &got))
			for _, m := range got.ScopeMetrics[0].Metrics {
				all[m.Name] = fmt.Sprintf("%T %s", m.Data, m.Unit)
			}
			if len(all) == 13 {
				return nil
			}
			require.NoError(t, sc.srv.Delete(hold.Node()))
			<-ctx.Done()
			return errors.New("lost")
		})
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			"zklock.acquire.duration":      "metricdata.Histogram[float64] s",
			"zklock.hold.duration":         "metricdata.Histogram[float64] s",
			"zklock.overrun":               "metricdata.Histogram[float64] s",
			"zklock.holds.lost":            "metricdata.Sum[int64] {hold}",
			"zklock.is_leader":             "metricdata.Gauge[int64] 1",
			"zklock.waiting":               "metricdata.Sum[int64] {acquire}",
			"zklock.holds":                 "metricdata.Sum[int64] {hold}",
			"zklock.holds.lost_unreleased": "metricdata.Sum[int64] {hold}",
			"zklock.deletions.pending":     "metricdata.Sum[int64] {deletion}",
			"zklock.sessions":              "metricdata.Sum[int64] {session}",
			"zklock.sessions.attached":     "metricdata.Sum[int64] {session}",
			"zklock.lease.left":            "metricdata.Gauge[float64] s",
			"zklock.reconnects":            "metricdata.Sum[int64] {reconnect}",
		}, all)
	})
}
