package zklockotel_test

// These tests attack the spans of acquires and holds: their parents, times, attributes, events and
// ends, in every way in which an acquire or a hold ends.

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
)

// A request waits three seconds for the lock, and holds it for five.
func TestSpan_WaitsAndHolds_OneSpanWithAWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		other := sc.acquire(t.Context(), sc.mutex(sc.connect(), "/job"))
		s, _ := sc.watched()
		ctx, endRequest := sc.begin("request")
		began := time.Now()
		end := sc.waitsFor(ctx, sc.mutex(s, "/job", zklock.WithName("jobs")))
		time.Sleep(3 * time.Second)
		sc.release(other)
		hold, err := end()
		require.NoError(t, err)
		granted := time.Now()
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"wait"}, sc.names(), "ended while it is held")
		sc.release(hold)
		endRequest()

		span, wait := sc.one("mutex jobs"), sc.one("wait")
		sc.isChild(span, sc.one("request"))
		sc.isChild(wait, span)
		require.Equal(t, []time.Time{began, began, granted, time.Now()}, []time.Time{span.StartTime(), wait.StartTime(), wait.EndTime(), span.EndTime()})
		require.Equal(t, 3*time.Second, granted.Sub(began))
		require.Equal(t, map[string]string{"path": "/job", "name": "jobs", "kind": "mutex", "try": "false", "position": "2", "requeued": "0", "reentered": "false"}, attrs(span))
		require.Equal(t, hold.Token(), attrOf(span.Attributes(), "token").AsInt64())
		require.Equal(t, hold.Node(), attrOf(span.Attributes(), "node").AsString())
		require.Empty(t, span.Events())
		require.Equal(t, codes.Unset, span.Status().Code)
	})
}

// An acquire that ends without a hold ends its span, and only unusual results are errors.
func TestSpan_AcquireFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		other := sc.acquire(t.Context(), sc.mutex(sc.connect(), "/taken"))
		s, tel := sc.watched()
		_, err := sc.mutex(s, "/taken", zklock.WithName("try")).TryAcquire(t.Context())
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = sc.mutex(s, "/taken", zklock.WithName("too long")).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = sc.mutex(s, "/taken", zklock.WithName("ended before")).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		end := sc.waitsFor(t.Context(), sc.mutex(s, "/taken", zklock.WithName("closed")))
		require.NoError(t, s.Close())
		_, err = end()
		require.ErrorIs(t, err, zklock.ErrClosed)
		sc.release(other)

		for name, want := range map[string]codes.Code{"try": codes.Unset, "too long": codes.Error, "ended before": codes.Error, "closed": codes.Error} {
			span := sc.one("mutex " + name)
			require.Equal(t, want, span.Status().Code, name)
			require.Equal(t, want == codes.Error, len(events(span)) == 1, name)
			require.False(t, attrOf(span.Attributes(), "token").AsInt64() > 0, name)
		}
		require.Equal(t, "true", attrs(sc.one("mutex try"))["try"])
		require.Len(t, sc.named("wait"), 4)
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// Work under the hold's context is a part of the hold: spans of its own, other locks, and the same
// lock again, which does not wait.
func TestSpan_WorkUnderTheHoldsContext_IsAChild(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		a, b := sc.mutex(s, "/a", zklock.WithName("outer")), sc.mutex(s, "/b")
		outer := sc.acquire(t.Context(), a)
		_, work := sc.tracers.Tracer("test").Start(outer.Context(), "work")
		work.End()
		inner := sc.acquire(outer.Context(), b)
		again := sc.acquire(zklock.WithOwner(inner.Context(), outer.Owner()), a)
		sc.release(again)
		sc.release(inner)
		sc.release(outer)

		spans := sc.named("mutex outer")
		require.Len(t, spans, 2)
		reentry, hold := spans[0], spans[1]
		sc.isChild(sc.one("work"), hold)
		sc.isChild(sc.one("mutex /b"), hold)
		sc.isChild(reentry, sc.one("mutex /b"))
		require.Equal(t, "true", attrs(reentry)["reentered"])
		require.Len(t, sc.named("wait"), 2, "none for a re-entry")
		require.Empty(t, hold.Links())
		require.Len(t, reentry.Links(), 1, "the hold is not its parent")
		require.Equal(t, hold.SpanContext(), reentry.Links()[0].SpanContext)
	})
}

// A re-entry whose parent is the hold needs no link. One by an owner that the context only names
// has the caller's parent, and a link.
func TestSpan_Reentry_Link(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		m, owner := sc.mutex(s, "/a"), zklock.NewOwner("")
		outer := sc.acquire(zklock.WithOwner(t.Context(), owner), m)
		sc.release(sc.acquire(outer.Context(), m))
		ctx, endRequest := sc.begin("request")
		sc.release(sc.acquire(zklock.WithOwner(ctx, owner), m))
		endRequest()
		sc.release(outer)

		spans := sc.named("mutex /a")
		require.Len(t, spans, 3)
		under, named, hold := spans[0], spans[1], spans[2]
		sc.isChild(under, hold)
		require.Empty(t, under.Links())
		sc.isChild(named, sc.one("request"))
		require.Len(t, named.Links(), 1)
		require.Equal(t, hold.SpanContext(), named.Links()[0].SpanContext)
	})
}

// The context of the work of Do and Campaign is also the hold's.
func TestSpan_WorkOfDo_IsAChild(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		work := func(name string) func(context.Context, *zklock.Hold) error {
			return func(ctx context.Context, _ *zklock.Hold) error {
				_, span := sc.tracers.Tracer("test").Start(ctx, name)
				span.End()
				return nil
			}
		}
		require.NoError(t, sc.mutex(s, "/a").Do(t.Context(), work("of Do")))
		require.NoError(t, sc.mutex(s, "/b").TryDo(t.Context(), work("of TryDo")))
		e, err := zklock.NewElection(s, "/c")
		require.NoError(t, err)
		require.NoError(t, e.Campaign(t.Context(), work("of Campaign")))
		sc.isChild(sc.one("of Do"), sc.one("mutex /a"))
		sc.isChild(sc.one("of TryDo"), sc.one("mutex /b"))
		sc.isChild(sc.one("of Campaign"), sc.one("election /c"))
	})
}

// The lock node is deleted, and the holder acts on the notification five seconds later.
func TestSpan_Lost_ReportsWhenAndWhy_AndEndsWithTheRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, tel := sc.watched()
		hold := sc.acquire(t.Context(), sc.mutex(s, "/job"))
		require.NoError(t, sc.srv.Delete(hold.Node()))
		<-hold.Lost()
		lost := time.Now()
		time.Sleep(5 * time.Second)
		require.Empty(t, sc.named("mutex /job"), "work may still run")
		err := hold.Release(t.Context())
		require.ErrorIs(t, err, zklock.ErrLost)

		span := sc.one("mutex /job")
		require.Equal(t, []string{"lost"}, events(span))
		e := span.Events()[0]
		require.WithinDuration(t, lost, e.Time, time.Millisecond)
		require.Equal(t, string(zklock.LossNode), attrOf(e.Attributes, "reason").AsString())
		require.Equal(t, err.Error(), attrOf(e.Attributes, "error").AsString())
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: err.Error()}, span.Status())
		require.Equal(t, time.Now(), span.EndTime())
		require.InDelta(t, 5, attrOf(span.Attributes(), "overrun").AsFloat64(), 1e-3)
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// A server is away for a moment: the spans of a hold and a wait of the Session have the events;
// spans that have ended or belong to another Session do not.
func TestSpan_SuspendedAndBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		other, _ := sc.watched()
		ended := sc.acquire(t.Context(), sc.mutex(s, "/ended"))
		sc.release(ended)
		hold, elsewhere := sc.acquire(t.Context(), sc.mutex(s, "/held")), sc.acquire(t.Context(), sc.mutex(other, "/elsewhere"))
		end := sc.waitsFor(t.Context(), sc.mutex(s, "/elsewhere", zklock.WithName("waits")))
		changes := s.Changes(t.Context())
		require.True(t, sc.srv.DropConnection(s.Stats().SessionID))
		suspended := <-changes
		back := <-changes
		require.Equal(t, []zklock.State{zklock.StateSuspended, zklock.StateReconnected}, []zklock.State{suspended.State, back.State})
		sc.release(elsewhere)
		waited, err := end()
		require.NoError(t, err)
		sc.release(hold, waited)

		for name, want := range map[string][]string{"mutex /ended": nil, "mutex /elsewhere": nil, "mutex /held": {"suspended", "back"}, "mutex waits": {"suspended", "back"}} {
			require.Equal(t, want, events(sc.one(name)), name)
		}
		es := sc.one("mutex /held").Events()
		require.True(t, es[0].Time.Equal(suspended.Time) && es[1].Time.Equal(back.Time))
		for _, attrs := range [][]attribute.KeyValue{es[1].Attributes, sc.one("mutex /held").Attributes()} {
			set := attribute.NewSet(attrs...)
			host, _ := set.Value("server.address")
			port, _ := set.Value("server.port")
			require.Equal(t, sc.srv.Addr(), fmt.Sprintf("%s:%d", host.AsString(), port.AsInt64()))
		}
	})
}

// A change that is read late is not on the span of an acquire that began after it.
func TestSpan_StepBeforeTheAcquire_IsNotOnIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, tel := sc.watched()
		early := sc.acquire(t.Context(), sc.mutex(s, "/early"))
		time.Sleep(time.Second)
		step := zklock.Change{State: zklock.StateSuspended, Time: time.Now()}
		time.Sleep(time.Second)
		late := sc.acquire(t.Context(), sc.mutex(s, "/late"))
		zklockotel.Step(tel, s, step)
		sc.release(early, late)
		require.Equal(t, []string{"suspended"}, events(sc.one("mutex /early")))
		require.Empty(t, events(sc.one("mutex /late")))
	})
}

// The ZooKeeper session ends under a waiter: it queues again in the next one.
func TestSpan_SessionEnds_WaiterQueuesAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		other := sc.acquire(t.Context(), sc.mutex(sc.connect(), "/job"))
		s, _ := sc.watched()
		end := sc.waitsFor(t.Context(), sc.mutex(s, "/job"))
		require.True(t, sc.srv.ExpireSession(s.Stats().SessionID))
		synctest.Wait()
		time.Sleep(time.Minute)
		sc.release(other)
		hold, err := end()
		require.NoError(t, err)
		sc.release(hold)

		span := sc.one("mutex /job")
		require.Positive(t, attrOf(span.Attributes(), "requeued").AsInt64())
		require.Equal(t, codes.Unset, span.Status().Code)
		require.Contains(t, events(span), "back")
	})
}

// Each lock of a Multi has a span, in the caller's trace, that names the Multi.
func TestSpan_Multi(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, tel := sc.watched()
		m, err := zklock.NewMulti(sc.mutex(s, "/a"), sc.mutex(s, "/b"), sc.mutex(s, "/c"))
		require.NoError(t, err)
		ctx, endRequest := sc.begin("request")
		require.NoError(t, m.Do(ctx, func(context.Context, *zklock.MultiHold) error { return nil }))
		other := sc.acquire(ctx, sc.mutex(sc.connect(), "/b"))
		_, err = m.TryAcquire(ctx)
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		sc.release(other)
		endRequest()

		require.Len(t, sc.named("wait"), 5, "three of Do, and two of the try, which ended in the second")
		for _, name := range []string{"mutex /a", "mutex /b", "mutex /c"} {
			require.NotEmpty(t, sc.named(name))
			for _, span := range sc.named(name) {
				require.Equal(t, "Multi(/a, /b, /c)", attrs(span)["multi"])
				require.Equal(t, sc.one("request").SpanContext().TraceID(), span.SpanContext().TraceID())
				require.Equal(t, codes.Unset, span.Status().Code)
			}
		}
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// Each candidate begins a trace, with a link to the span in which Campaign was called.
func TestSpan_Election_TracesOfTheirOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		e, err := zklock.NewElection(s, "/leader")
		require.NoError(t, err)
		ctx, endStart := sc.begin("start of the program")
		terms := 0
		require.NoError(t, e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
			if terms++; terms == 2 {
				return nil
			}
			require.NoError(t, sc.srv.Delete(hold.Node()))
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		endStart()

		spans, start := sc.named("election /leader"), sc.one("start of the program")
		require.Len(t, spans, 2)
		for i, want := range []codes.Code{codes.Error, codes.Unset} {
			require.Equal(t, want, spans[i].Status().Code)
			require.False(t, spans[i].Parent().IsValid())
			require.Equal(t, []sdktrace.Link{{SpanContext: start.SpanContext()}}, spans[i].Links())
		}
		require.NotEqual(t, spans[0].SpanContext().TraceID(), spans[1].SpanContext().TraceID())
	})
}

// Work that panics, and functions of other traces that do: the span still ends.
func TestSpan_Panics(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		panics := zklock.WithTrace(&zklock.Trace{
			AcquireStart: func(context.Context, zklock.AcquireInfo) context.Context { panic("start") },
			AcquireEnd:   func(context.Context, zklock.AcquireEndInfo) { panic("end") },
			HoldEnd:      func(context.Context, zklock.HoldInfo) { panic("hold") },
		})
		tel := sc.telemetry()
		s := sc.connect(panics, tel.Option(), panics)
		require.NoError(t, tel.Watch(s))
		require.PanicsWithValue(t, "work", func() {
			_ = sc.mutex(s, "/a").Do(t.Context(), func(context.Context, *zklock.Hold) error { panic("work") })
		})
		require.ErrorIs(t, sc.mutex(s, "/b").Do(t.Context(), func(context.Context, *zklock.Hold) error { return errOwn }), errOwn)
		sc.one("mutex /a")
		sc.one("mutex /b")
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// panicking has tracers that panic where they should start the span of one lock.
type panicking struct{ trace.TracerProvider }

func (p panicking) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	return panickingTracer{p.TracerProvider.Tracer(name, opts...)}
}

type panickingTracer struct{ trace.Tracer }

func (p panickingTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name == "mutex /inner" {
		panic(name)
	}
	return p.Tracer.Start(ctx, name, opts...)
}

// If the span of an acquire under a hold cannot be started, the span of that hold is not taken for
// it: neither an acquire that fails nor a release ends it.
func TestSpan_PanicsUnderAHold_OuterSpanStays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		tel := sc.telemetry(zklockotel.WithTracerProvider(panicking{sc.tracers}))
		s := sc.connect(tel.Option())
		outer, inner := sc.acquire(t.Context(), sc.mutex(s, "/outer")), sc.mutex(s, "/inner")
		hold := sc.acquire(outer.Context(), inner)
		_, err := inner.TryAcquire(zklock.WithOwner(outer.Context(), zklock.NewOwner("another")))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		time.Sleep(time.Second)
		sc.release(hold)
		require.Equal(t, []string{"wait"}, sc.names())
		time.Sleep(time.Second)
		sc.release(outer)
		span := sc.one("mutex /outer")
		require.Equal(t, 2*time.Second, span.EndTime().Sub(span.StartTime()))
		require.Equal(t, outer.Node(), attrOf(span.Attributes(), "node").AsString())
		require.Equal(t, map[string]float64{"kind=mutex,lock=/outer": 1, "kind=mutex,lock=/inner": 1}, sc.numbers().of("hold.duration"))
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// Every attribute has a prefix of its own, or a name of OpenTelemetry's conventions; spans and
// metrics contain their version.
func TestAttributes_HavePrefixes_AndTheScopeAVersion(t *testing.T) {
	require.NotEmpty(t, zklockotel.Version())
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		hold := sc.acquire(t.Context(), sc.mutex(s, "/job"))
		require.True(t, sc.srv.DropConnection(s.Stats().SessionID))
		time.Sleep(time.Second)
		require.NoError(t, sc.srv.Delete(hold.Node()))
		<-hold.Lost()
		sc.release(hold)
		var keys []attribute.KeyValue
		for _, span := range sc.spans.Ended() {
			require.Equal(t, zklockotel.Version(), span.InstrumentationScope().Version)
			keys = append(keys, span.Attributes()...)
			for _, e := range span.Events() {
				keys = append(keys, e.Attributes...)
			}
		}
		sc.collect(func(scope instrumentation.Scope, _ string, set attribute.Set, _, _ float64) {
			require.Equal(t, zklockotel.Version(), scope.Version)
			keys = append(keys, set.ToSlice()...)
		})
		seen := map[attribute.Key]bool{}
		for _, kv := range keys {
			seen[kv.Key] = true
			require.Regexp(t, `^(zklock\.|server\.(address|port)$)`, kv.Key)
		}
		for _, want := range []attribute.Key{"server.address", "zklock.lock", "zklock.kind", "zklock.outcome", "zklock.reason", "zklock.path", "zklock.error"} {
			require.True(t, seen[want], want)
		}
	})
	const path = "github.com/zklock/zklock/contrib/zklockotel"
	for want, info := range map[string]*debug.BuildInfo{
		"":       nil,
		"v0.1.0": {Main: debug.Module{Path: "example.com/service", Version: "v1.0.0"}, Deps: []*debug.Module{{Path: path, Version: "v0.1.0"}}},
		"v0.2.0": {Deps: []*debug.Module{{Path: path, Version: "v0.1.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.2.0"}}}},
		"v0.3.0": {Main: debug.Module{Path: path, Version: "v0.3.0"}},
	} {
		require.Equal(t, want, zklockotel.VersionIn(info))
	}
}

// A release without a confirmation was held to the end: an exception, and no error status.
func TestSpan_ReleaseNotConfirmed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, _ := sc.watched()
		hold := sc.acquire(t.Context(), sc.mutex(s, "/a"))
		sc.srv.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, hold.Release(ctx), zklock.ErrNotConfirmed)
		sc.srv.Thaw()
		span := sc.one("mutex /a")
		require.Equal(t, []string{"exception"}, events(span))
		require.Equal(t, codes.Unset, span.Status().Code)
	})
}

// A trace after ours that starts spans of its own has no effect on ours.
func TestSpan_AnotherTraceStartsSpans(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		tel := sc.telemetry()
		s := sc.connect(tel.Option(), zklock.WithTrace(&zklock.Trace{AcquireStart: func(ctx context.Context, _ zklock.AcquireInfo) context.Context {
			ctx, span := sc.tracers.Tracer("another").Start(ctx, "another's")
			span.End()
			return ctx
		}}))
		sc.release(sc.acquire(t.Context(), sc.mutex(s, "/a")))
		sc.isChild(sc.one("another's"), sc.one("mutex /a"))
		sc.isChild(sc.one("wait"), sc.one("mutex /a"))
	})
}

// A trace that returns a context of its own removes the span from the work's context, as Option
// documents, and has no other effect.
func TestSpan_AnotherTraceReturnsAContextOfItsOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		tel := sc.telemetry()
		own, end := sc.begin("another's")
		s := sc.connect(tel.Option(), zklock.WithTrace(&zklock.Trace{AcquireStart: func(context.Context, zklock.AcquireInfo) context.Context { return own }}))
		require.NoError(t, sc.mutex(s, "/a").Do(t.Context(), func(ctx context.Context, _ *zklock.Hold) error {
			_, span := sc.tracers.Tracer("test").Start(ctx, "work")
			span.End()
			return nil
		}))
		end()
		sc.isChild(sc.one("wait"), sc.one("mutex /a"))
		sc.isChild(sc.one("work"), sc.one("another's"))
		require.Positive(t, attrOf(sc.one("mutex /a").Attributes(), "token").AsInt64())
		require.Zero(t, zklockotel.Remembered(tel))
	})
}

// Exporters drop a whole batch for one text that is not UTF-8. A name, a cause and a state's error
// that are not UTF-8 are converted.
func TestSpan_TextIsNotUTF8_IsMadeSuch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		s, tel := sc.watched()
		bad := errors.New("caf\xe9 closed")
		m := sc.mutex(s, "/café", zklock.WithName("caf\xe9"))
		hold := sc.acquire(t.Context(), m)
		zklockotel.Step(tel, s, zklock.Change{State: zklock.StateSuspended, Time: time.Now(), Err: bad})
		other := sc.mutex(s, "/b", zklock.WithName("b"))
		multi, err := zklock.NewMulti(other, m)
		require.NoError(t, err)
		stopped, stop := context.WithCancelCause(t.Context())
		stop(bad)
		_, err = multi.Acquire(stopped)
		require.ErrorIs(t, err, bad)
		ended := make(chan error)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { _, err := m.Acquire(ctx); ended <- err }()
		synctest.Wait()
		cancel(bad)
		require.ErrorIs(t, <-ended, bad)
		sc.release(hold)
		sc.release(sc.acquire(t.Context(), m))

		require.Len(t, sc.named("mutex caf\uFFFD"), 3)
		valid := func(text string) { t.Helper(); require.True(t, utf8.ValidString(text), "%q", text) }
		texts := func(all []attribute.KeyValue) {
			for _, a := range all {
				valid(a.Value.Emit())
			}
		}
		for _, span := range sc.spans.Ended() {
			valid(span.Name())
			valid(span.Status().Description)
			texts(span.Attributes())
			for _, e := range span.Events() {
				texts(e.Attributes)
			}
		}
		for key := range sc.numbers() {
			valid(key)
		}
	})
}

// An acquire that is not sampled has no spans, but still counts in the metrics.
func TestSpan_NotSampled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sc *scene) {
		sc.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sc.spans), sdktrace.WithSampler(sdktrace.NeverSample()))
		s, tel := sc.watched()
		hold := sc.acquire(t.Context(), sc.mutex(s, "/a"))
		require.True(t, trace.SpanContextFromContext(hold.Context()).IsValid())
		sc.release(hold)
		require.Empty(t, sc.names())
		require.Zero(t, zklockotel.Remembered(tel))
		require.Equal(t, map[string]float64{"kind=mutex,lock=/a": 1}, sc.numbers().of("hold.duration"))
	})
}
