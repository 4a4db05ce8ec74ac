package zklockotel

// From an acquire to the end of its hold: what the trace's functions make of it.

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/zklock"
)

// op is an acquire, and then the handle that it got. The context that acquireStart returns has it.
type op struct {
	span           trace.Span
	caller         trace.SpanContext // of the span in the context that the acquire was given
	began, granted time.Time
}

type opKey struct{ t *Telemetry }

// opFrom returns the op that the context carries. It returns one without a span if it carries none, because acquireStart panicked: the
// TracerProvider is the program's.
func (t *Telemetry) opFrom(ctx context.Context) *op {
	if o, ok := ctx.Value(opKey{t}).(*op); ok {
		return o
	}
	return &op{span: trace.SpanFromContext(context.Background())}
}

// grant is what all handles of a hold share.
type grant struct {
	handles []*zklock.Hold // that are not released
	isLost  bool           // counted as such
	first   *zklock.Hold
	span    trace.SpanContext // of the first
	since   time.Time
}

func (t *Telemetry) acquireStart(ctx context.Context, a zklock.AcquireInfo) context.Context {
	lock := t.series.name(a)
	o := &op{caller: trace.SpanContextFromContext(ctx), began: time.Now()}
	attrs := append(make([]attribute.KeyValue, 0, len(t.attrs)+5), t.attrs...)
	attrs = append(attrs, attribute.String("zklock.path", valid(a.Path)), attribute.String("zklock.kind", a.Kind), attribute.Bool("zklock.try", a.Try))
	if a.Name != "" {
		attrs = append(attrs, attribute.String("zklock.name", valid(a.Name)))
	}
	if a.Multi != "" {
		attrs = append(attrs, attribute.String("zklock.multi", valid(a.Multi)))
	}
	opts := append(make([]trace.SpanStartOption, 0, 4), trace.WithTimestamp(o.began), trace.WithAttributes(attrs...))
	if a.Kind == election {
		opts = append(opts, trace.WithNewRoot())
		if o.caller.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: o.caller}))
		}
		t.stands(lock)
	}
	ctx, o.span = t.tracer.Start(ctx, a.Kind+" "+lock, opts...)
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
	o.granted = time.Now()
	if !a.Reentered {
		t.inst.acquired.Record(ctx, a.Waited.Seconds(), t.series.of(key{lock, a.Kind, "outcome", outcomeOf(a.Err)}))
	}
	if a.Kind == election {
		defer t.stood(lock) // last: in between, it leads
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
		wait.End(trace.WithTimestamp(o.granted))
	}
	attrs := make([]attribute.KeyValue, 0, 5)
	if a.Place > 0 {
		attrs = append(attrs, attribute.Int("zklock.place", a.Place))
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
		t.end(o, o.granted)
	}
}

// record records the error, whose text may be a program's own: the cause of a context.
func record(span trace.Span, err error) {
	if !utf8.ValidString(err.Error()) {
		err = errors.New(valid(err.Error()))
	}
	span.RecordError(err)
}

var outcomes = []struct {
	err     error
	outcome string
}{ // the first that fits: the cause of a context can be any error
	{context.Canceled, "canceled"}, {context.DeadlineExceeded, "deadline"}, {zklock.ErrNotAcquired, "not_acquired"},
	{zklock.ErrNotConnected, "not_connected"}, {zklock.ErrSessionExpired, "session_lost"}, {zklock.ErrClosed, "closed"},
}

// outcomeOf says in one word how an acquire ended.
func outcomeOf(err error) string {
	if err == nil {
		return "acquired"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.outcome
		}
	}
	return "error"
}

// got counts a handle, and returns the span of the first one of its hold.
func (t *Telemetry) got(lock string, a zklock.AcquireEndInfo, o *op) trace.SpanContext {
	node := a.Hold.Node()
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.Kind == election {
		t.mu.elections[lock] = append(t.mu.elections[lock], a.Hold)
	}
	g := t.mu.grants[node]
	if g == nil {
		g = &grant{first: a.Hold, span: o.span.SpanContext(), since: o.granted}
		t.mu.grants[node] = g
	}
	g.handles = append(g.handles, a.Hold)
	return g.span
}

func (t *Telemetry) holdLost(ctx context.Context, h zklock.HoldInfo) {
	o, node := t.opFrom(ctx), h.Hold.Node()
	ctx = trace.ContextWithSpan(ctx, o.span)
	t.mu.Lock()
	g := t.mu.grants[node]
	isFirst := g != nil && !g.isLost
	if isFirst {
		g.isLost = true
	}
	t.mu.Unlock()
	if isFirst {
		t.inst.lost.Add(ctx, 1, t.series.of(key{lock: t.series.name(h.AcquireInfo), more: "reason", value: h.Reason}))
	}
	if o.span.IsRecording() {
		o.span.AddEvent("lost", trace.WithTimestamp(o.granted.Add(h.Held)),
			trace.WithAttributes(attribute.String("zklock.reason", h.Reason), attribute.String("zklock.error", valid(h.Err.Error()))))
		o.span.SetStatus(codes.Error, valid(h.Err.Error()))
	}
}

func (t *Telemetry) holdEnd(ctx context.Context, h zklock.HoldInfo) {
	now, o, lock := time.Now(), t.opFrom(ctx), t.series.name(h.AcquireInfo)
	ctx = trace.ContextWithSpan(ctx, o.span)
	defer t.letGo()
	if held, isLast := t.gave(lock, h, now); isLast {
		t.inst.held.Record(ctx, held.Seconds(), t.series.of(key{lock: lock, kind: h.Kind}))
		if h.Reason != "" {
			t.inst.overrun.Record(ctx, h.Overrun.Seconds(), t.series.of(key{lock: lock}))
		}
	}
	if !o.span.IsRecording() {
		return
	}
	switch {
	case h.Reason != "":
		o.span.SetAttributes(attribute.Float64("zklock.overrun", h.Overrun.Seconds()))
	case h.Err != nil:
		record(o.span, h.Err)
	}
	t.end(o, now)
}

// gave counts a handle that was released, and says whether it was the last one of its hold, and how long that was held.
func (t *Telemetry) gave(lock string, h zklock.HoldInfo, now time.Time) (held time.Duration, isLast bool) {
	node := h.Hold.Node()
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.Kind == election {
		holds := slices.DeleteFunc(t.mu.elections[lock], func(other *zklock.Hold) bool { return other == h.Hold })
		if t.mu.elections[lock] = holds; len(holds) == 0 {
			delete(t.mu.elections, lock)
		}
	}
	g := t.mu.grants[node]
	if g == nil {
		return 0, false
	}
	g.handles = slices.DeleteFunc(g.handles, func(other *zklock.Hold) bool { return other == h.Hold })
	if len(g.handles) > 0 {
		return 0, false
	}
	delete(t.mu.grants, node)
	if g.first != h.Hold { // the first one was released before
		return now.Sub(g.since), true
	}
	return h.Held, true
}

// end ends the span, and forgets the op.
func (t *Telemetry) end(o *op, at time.Time) {
	t.mu.Lock()
	delete(t.mu.open, o)
	t.mu.Unlock()
	o.span.End(trace.WithTimestamp(at))
}
