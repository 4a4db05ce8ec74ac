// Package zklockotel shows the locks of a zklock Session in OpenTelemetry: a span for each acquire with its hold, and metrics.
//
// A span's name is the lock's kind and name, such as "mutex /locks/nightly". It starts when the
// acquire does. It ends when the acquire fails, or when the hold is released: not when it is lost,
// because work may go on under it. A hold that is not released has no span. Its attributes are
// zklock.path, zklock.name (of WithName), zklock.kind, zklock.multi and zklock.try; later
// zklock.place (if a client was ahead), zklock.requeued, zklock.reentered, zklock.token,
// zklock.node and zklock.overrun (in seconds); and, with Watch, server.address and server.port of
// the server to which the Session was attached. A child named "wait" is the acquire alone; a
// re-entry has none. Events are "suspended" and "back", when the Session loses its server and has
// one again, and "lost" with the reason. The status is an error after a loss, and if the acquire
// failed otherwise than with ErrNotAcquired. A release that the servers did not confirm is recorded
// as an exception.
//
// The span's parent is the span in the context that the acquire was given. Spans that are started with the hold's context, or with the
// context of the work, are its children; so is a re-entry with such a context. A re-entry by an owner that a context only names has a link to
// the hold's span. Each candidature of an election begins a trace of its own with a link to the span in Campaign's context, because it may
// outlive that by days.
//
// The metrics are those of zklockprom in OpenTelemetry's spelling, but for the longest wait and the
// longest hold. Durations are in seconds. The names of their attributes begin with "zklock.", too:
// zklock.lock, zklock.kind, zklock.outcome, zklock.reason.
//
//	zklock.acquire.duration        histogram       lock, kind, outcome (what zklock.Outcome returns)
//	zklock.hold.duration           histogram       lock, kind
//	zklock.overrun                 histogram       lock           how long lost holds were not released
//	zklock.holds.lost              counter         lock, reason   what zklock.LossReason returns
//	zklock.is_leader               gauge           lock           1 if this Session leads an election of that name, else 0; missing if it does not stand
//	zklock.waiting                 up-down counter                acquires under way
//	zklock.holds                   up-down counter                holds that stand
//	zklock.holds.lost_unreleased   up-down counter                lost holds that nobody has released, also those of a Session that is closed
//	zklock.deletions.pending       up-down counter                deletions of lock nodes that no server has confirmed
//	zklock.sessions                up-down counter                1 until the Session is closed
//	zklock.sessions.attached       up-down counter                1 if it is attached to a server, else 0
//	zklock.lease.left              gauge                          how long the holds may be relied on; missing if there are none
//	zklock.reconnects              counter                        how often the Session was attached again
//
// The last nine take Watch, and are as they are when they are collected. A re-entry is no acquire,
// and its handle no hold: a hold is counted once, and ends when its last handle is released. The
// scope of spans and metrics has the version of this module.
//
// The lock attribute is the name that WithName gave, otherwise the path. A Telemetry keeps the first 100 apart: all later ones are "_others", in
// metrics and in the names of spans. The path attribute of a span is always the true one. So an acquire has at most 808 series a kind, and
// in practice one or two a lock.
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

// version returns the version of this module in the program that runs, as the scope of its spans
// and metrics has it.
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

// Telemetry makes the spans and the metrics of one Session. Its methods are safe for use from many goroutines.
type Telemetry struct {
	tracer trace.Tracer
	meter  metric.Meter
	inst   instruments
	series series
	attrs  []attribute.KeyValue // of each span

	watched struct {
		sync.Mutex                     // held while Watch runs
		session    *zklock.Session     // the last one
		observed   metric.Registration // its callback; nil once that is let go
	}
	mu struct {
		sync.Mutex                       // never held across a call of zklock or of OpenTelemetry
		isOver     bool                  // the Session that is watched is closed
		server     []attribute.KeyValue  // that it was last attached to
		open       map[*op]struct{}      // those with a span that records
		holds      map[*zklock.Hold]hold // that have not ended, by their first handle
		standing   map[string]int        // by lock attribute: the candidatures under way
	}
}

// Option configures New.
type Option func(*options)

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	attrs   []attribute.KeyValue
}

// WithTracerProvider sets where spans go; the default is otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider sets where metrics go; the default is otel.GetMeterProvider().
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithAttributes adds attributes to each span and each metric. If a process has several Sessions, give each a value of its own: otherwise their
// metrics are added up, but for zklock.lease.left and zklock.is_leader, which show one of them.
func WithAttributes(attrs ...attribute.KeyValue) Option {
	return func(o *options) { o.attrs = append(o.attrs, attrs...) }
}

// New returns a Telemetry for one Session: make another for each. It returns an error if the meter refuses an instrument, or for a nil
// option or provider.
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
	t.mu.open, t.mu.holds, t.mu.standing = make(map[*op]struct{}), make(map[*zklock.Hold]hold), make(map[string]int)
	var err error
	if t.inst, err = newInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("zklockotel: %w", err)
	}
	return t, nil
}

// Option returns what zklock.Connect is to be given, for one Session. Then give that Session to [Telemetry.Watch]. It goes with other traces. But the
// work's context is what the last one's AcquireStart returns: if that does not come from the context that it was given, it takes the span away
// from the work, whose own spans have another parent then.
func (t *Telemetry) Option() zklock.Option {
	return zklock.WithTrace(&zklock.Trace{AcquireStart: t.acquireStart, AcquireEnd: t.acquireEnd, HoldLost: t.holdLost, HoldEnd: t.holdEnd})
}
