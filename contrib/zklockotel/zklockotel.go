// Package zklockotel shows the locks of a zklock Session in OpenTelemetry: a span for each acquire
// with its hold, and metrics.
//
// A span's name is the lock's kind and name, such as "mutex /locks/nightly". The span starts with
// the acquire. It ends when the acquire fails or the hold is released. A loss does not end it,
// because work may continue under the lost hold. A hold that is not released has no span.
//
// Its attributes are zklock.path, zklock.name (of WithName), zklock.kind, zklock.multi and
// zklock.try; later zklock.position (if another client was first in the queue), zklock.requeued,
// zklock.reentered, zklock.token, zklock.node and zklock.overrun (in seconds); and, with Watch,
// server.address and server.port of the server to which the Session was attached. A child named
// "wait" is the acquire alone; a re-entry has none. Events are "suspended" and "back", when the
// Session loses its server and is attached again, and "lost" with the reason. The status is an
// error after a loss, and if the acquire failed with any error except ErrNotAcquired. A release
// that the servers did not confirm is recorded as an exception.
//
// The span's parent is the span in the acquire's context. Spans that start with the hold's context
// or the context of the work are children of the hold's span, and so is a re-entry with such a
// context. A re-entry by an owner that a context only names has a link to the hold's span. Each
// candidate of an election begins a new trace with a link to the span in Campaign's context,
// because it may outlive that span by days.
//
// The metrics are the same as in zklockprom, in OpenTelemetry's spelling, except for the longest
// wait and the longest hold. Durations are in seconds. The names of their attributes also begin
// with "zklock.": zklock.lock, zklock.kind, zklock.outcome, zklock.reason.
//
//	zklock.acquire.duration        histogram        lock, kind, outcome (AcquireEndInfo.Outcome)
//	zklock.hold.duration           histogram        lock, kind
//	zklock.overrun                 histogram        lock; from a loss to the release
//	zklock.holds.lost              counter          lock, reason (HoldInfo.Reason)
//	zklock.is_leader               gauge            lock; 1 if this Session leads an election
//	                                                of that name, else 0; 0, too, after an
//	                                                error ended its campaign; missing if it
//	                                                does not campaign
//	zklock.waiting                 up-down counter  acquires under way
//	zklock.holds                   up-down counter  valid holds
//	zklock.holds.lost_unreleased   up-down counter  lost holds that are not released,
//	                                                also of a closed Session
//	zklock.deletions.pending       up-down counter  deletions of lock nodes that no server
//	                                                has confirmed
//	zklock.sessions                up-down counter  1 until the Session is closed
//	zklock.sessions.attached       up-down counter  1 if it is attached to a server, else 0
//	zklock.lease.left              gauge            how long the holds may be relied on;
//	                                                missing without a hold
//	zklock.reconnects              counter          how often the Session was attached again
//
// The last nine require Watch, and are read at each collection. A re-entry does not count as an
// acquire, nor its handle as a hold: a hold is counted once, and ends when its last handle is
// released. The scope of spans and metrics has the version of this module.
//
// The lock attribute is the name from WithName, otherwise the path. A Telemetry distinguishes the
// first 100 values: all later ones are "_others", in metrics and in the names of spans. The path
// attribute of a span is always the real path. So an acquire has at most 808 series for each kind,
// and in practice one or two for each lock.
package zklockotel

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zklock/zklock"
)

const scope = "github.com/zklock/zklock/contrib/zklockotel"

// version returns the version of this module in the running program, for the scope of its spans and
// metrics.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return versionIn(info)
}

func versionIn(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		switch {
		case m.Path != scope:
		case m.Replace != nil:
			return m.Replace.Version
		default:
			return m.Version
		}
	}
	return ""
}

// Telemetry creates the spans and the metrics of one Session. Its methods are safe for use by many
// goroutines.
type Telemetry struct {
	tracer trace.Tracer
	meter  metric.Meter
	inst   instruments
	series series
	attrs  []attribute.KeyValue // of each span

	watched struct {
		sync.Mutex                     // held while Watch runs
		session    *zklock.Session     // the last one
		observed   metric.Registration // its callback; nil after it is unregistered
	}
	mu struct {
		sync.Mutex                       // never held across a call of zklock or of OpenTelemetry
		isOver     bool                  // the watched Session is closed
		server     []attribute.KeyValue  // to which it was last attached
		open       map[*op]struct{}      // ops with a span that records
		holds      map[*zklock.Hold]hold // holds that have not ended, by their first handle

		campaigns map[<-chan struct{}]campaign // by the end of their contexts
	}
}

// Option configures New.
type Option func(*options)

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	attrs   []attribute.KeyValue
}

// WithTracerProvider sets the destination of spans; the default is otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider sets the destination of metrics; the default is otel.GetMeterProvider().
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithAttributes adds attributes to each span and each metric. If a process has several Sessions,
// give each a different value: otherwise their metrics are added up, except zklock.lease.left and
// zklock.is_leader, which then show one of them.
func WithAttributes(attrs ...attribute.KeyValue) Option {
	return func(o *options) { o.attrs = append(o.attrs, attrs...) }
}

// New returns a Telemetry for one Session: create another for each. It returns an error if the
// meter returns one for an instrument, or if an option or a provider is nil.
func New(opts ...Option) (*Telemetry, error) {
	o := options{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("zklockotel: nil Option: leave it out")
		}
		opt(&o)
	}
	if o.tracers == nil || o.meters == nil {
		return nil, errors.New("zklockotel: nil provider: leave the option out for the global one, or give a no-op provider for none")
	}
	v := version()
	t := &Telemetry{tracer: o.tracers.Tracer(scope, trace.WithInstrumentationVersion(v)), meter: o.meters.Meter(scope, metric.WithInstrumentationVersion(v)),
		attrs: slices.Clone(o.attrs)}
	t.series.init(t.attrs)
	t.mu.open, t.mu.holds, t.mu.campaigns = make(map[*op]struct{}), make(map[*zklock.Hold]hold), make(map[<-chan struct{}]campaign)
	var err error
	if t.inst, err = newInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("zklockotel: %w", err)
	}
	return t, nil
}

// Option returns the option to pass to zklock.Connect, for one Session. Then pass that Session to
// [Telemetry.Watch]. It can be combined with other traces. The context of the work is the one that
// the last trace's AcquireStart returns. If it does not derive from the context that AcquireStart
// was given, the work's own spans have another parent.
func (t *Telemetry) Option() zklock.Option {
	return zklock.WithTrace(&zklock.Trace{AcquireStart: t.acquireStart, AcquireEnd: t.acquireEnd, HoldLost: t.holdLost, HoldEnd: t.holdEnd})
}
