package zklockotel

// Spans: the trace functions from an acquire to the end of its hold.

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/zklock"
)

// op is an acquire, and then the handle that it got. It is in the context that acquireStart
// returns.
type op struct {
	span   trace.Span
	caller trace.SpanContext // of the span in the context that the acquire was given
	began  time.Time
}

type opKey struct{ t *Telemetry }

// opFrom returns the op that the context carries. If acquireStart panicked, because the
// TracerProvider is the program's, the context is empty, and opFrom returns an op without a span.
func (t *Telemetry) opFrom(ctx context.Context) *op {
	if o, ok := ctx.Value(opKey{t}).(*op); ok {
		return o
	}
	return &op{span: trace.SpanFromContext(context.Background())}
}

// hold is a hold with at least one handle that is not released.
type hold struct {
	first *zklock.Hold      // its first handle, which may be released already
	span  trace.SpanContext // of the first handle
	lock  string            // its attribute: the last handle may have another name
	kind  zklock.Kind
}

// isLost reports whether the hold was lost. Err compares the clock with the lease. All handles
// share Lost.
func (h hold) isLost() bool {
	_ = h.first.Err()
	select {
	case <-h.first.Lost():
		return true
	default:
		return false
	}
}

func (t *Telemetry) acquireStart(ctx context.Context, a zklock.AcquireInfo) context.Context {
	lock := t.series.name(a)
	o := &op{caller: trace.SpanContextFromContext(ctx), began: time.Now()}
	attrs := append(make([]attribute.KeyValue, 0, len(t.attrs)+5), t.attrs...)
	attrs = append(attrs, attribute.String("zklock.path", valid(a.Path)), attribute.String("zklock.kind", string(a.Kind)), attribute.Bool("zklock.try", a.Try))
	if a.Name != "" {
		attrs = append(attrs, attribute.String("zklock.name", valid(a.Name)))
	}
	if a.Multi != "" {
		attrs = append(attrs, attribute.String("zklock.multi", valid(a.Multi)))
	}
	opts := append(make([]trace.SpanStartOption, 0, 4), trace.WithTimestamp(o.began), trace.WithAttributes(attrs...))
	if a.Kind == zklock.KindElection {
		opts = append(opts, trace.WithNewRoot())
		if o.caller.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: o.caller}))
		}
		t.stands(campaign{ctx, a.Path, lock})
	}
	ctx, o.span = t.tracer.Start(ctx, string(a.Kind)+" "+lock, opts...)
	if o.span.IsRecording() {
		t.mu.Lock()
		t.mu.open[o] = struct{}{}
		t.mu.Unlock()
	}
	return context.WithValue(ctx, opKey{t}, o)
}

func (t *Telemetry) acquireEnd(ctx context.Context, a zklock.AcquireEndInfo) {
	lock, o := t.series.name(a.AcquireInfo), t.opFrom(ctx)
	ctx = trace.ContextWithSpan(ctx, o.span)
	now := time.Now()
	if !a.Reentered {
		t.inst.acquired.Record(ctx, a.Waited.Seconds(), t.series.of(key{lock, a.Kind, "zklock.outcome", a.Outcome}))
	}
	var first trace.SpanContext
	if a.Hold != nil {
		first = t.got(lock, a, o)
	}
	if !o.span.IsRecording() {
		return
	}
	if !a.Reentered {
		_, wait := t.tracer.Start(ctx, "wait", trace.WithTimestamp(o.began))
		wait.End(trace.WithTimestamp(now))
	}
	attrs := append(make([]attribute.KeyValue, 0, 7), t.serverAttrs()...)
	if a.Position > 0 {
		attrs = append(attrs, attribute.Int("zklock.position", a.Position))
	}
	attrs = append(attrs, attribute.Int("zklock.requeued", a.Requeued), attribute.Bool("zklock.reentered", a.Reentered))
	if a.Hold != nil {
		attrs = append(attrs, attribute.Int64("zklock.token", a.Hold.Token()), attribute.String("zklock.node", valid(a.Hold.Node())))
	}
	o.span.SetAttributes(attrs...)
	if a.Reentered && first.IsValid() && !first.Equal(o.caller) && !first.Equal(o.span.SpanContext()) {
		o.span.AddLink(trace.Link{SpanContext: first})
	}
	if a.Hold == nil {
		if !errors.Is(a.Err, zklock.ErrNotAcquired) {
			record(o.span, a.Err)
			o.span.SetStatus(codes.Error, valid(a.Err.Error()))
		}
		t.end(o, now)
	}
}

// record records the error. Its text may be the program's own, such as the cause of a context.
func record(span trace.Span, err error) {
	if !utf8.ValidString(err.Error()) {
		err = errors.New(valid(err.Error()))
	}
	span.RecordError(err)
}

// got notes a hold that was granted, and returns the span of its first handle.
func (t *Telemetry) got(lock string, a zklock.AcquireEndInfo, o *op) trace.SpanContext {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.Reentered {
		return t.mu.holds[a.First].span
	}
	h := hold{first: a.First, span: o.span.SpanContext(), lock: lock, kind: a.Kind}
	t.mu.holds[a.First] = h
	return h.span
}

func (t *Telemetry) holdLost(ctx context.Context, h zklock.HoldInfo) {
	ctx = trace.ContextWithSpan(ctx, t.opFrom(ctx).span)
	t.inst.lost.Add(ctx, 1, t.series.of(key{lock: t.series.name(h.AcquireInfo), more: "zklock.reason", value: string(h.Reason)}))
}

// holdEnd ends the span of a handle, and ends the hold with its last handle.
func (t *Telemetry) holdEnd(ctx context.Context, h zklock.HoldInfo) {
	now, o := time.Now(), t.opFrom(ctx)
	ctx = trace.ContextWithSpan(ctx, o.span)
	if h.Last {
		t.mu.Lock()
		held, isNoted := t.mu.holds[h.First]
		delete(t.mu.holds, h.First)
		t.mu.Unlock()
		defer t.letGo()
		if !isNoted { // another trace ended the goroutine in AcquireEnd
			held = hold{lock: t.series.name(h.AcquireInfo), kind: h.Kind}
		}
		t.inst.held.Record(ctx, h.Held.Seconds(), t.series.of(key{lock: held.lock, kind: held.kind}))
		if h.Reason != "" {
			t.inst.overrun.Record(ctx, h.Overrun.Seconds(), t.series.of(key{lock: held.lock}))
		}
	}
	if !o.span.IsRecording() {
		return
	}
	switch {
	case h.Err == nil:
	case h.Reason != "":
		o.span.AddEvent("lost", trace.WithTimestamp(now.Add(-h.Overrun)),
			trace.WithAttributes(attribute.String("zklock.reason", string(h.Reason)), attribute.String("zklock.error", valid(h.Err.Error()))))
		o.span.SetStatus(codes.Error, valid(h.Err.Error()))
		o.span.SetAttributes(attribute.Float64("zklock.overrun", h.Overrun.Seconds()))
	default:
		record(o.span, h.Err)
	}
	t.end(o, now)
}

func (t *Telemetry) end(o *op, at time.Time) {
	t.mu.Lock()
	delete(t.mu.open, o)
	t.mu.Unlock()
	o.span.End(trace.WithTimestamp(at))
}
