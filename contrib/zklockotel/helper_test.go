package zklockotel_test

// The helpers of the tests: a server, Sessions and their OpenTelemetry data, in one bubble of
// virtual time.

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
	"github.com/zklock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 30 * time.Second // of sessions

// scene has a server and an SDK that keeps its data.
type scene struct {
	t       *testing.T
	net     *zktest.Network
	srv     *zktest.Server
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
	reader  *metric.ManualReader
	meters  *metric.MeterProvider
}

func inVirtualTime(t *testing.T, f func(t *testing.T, sc *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{t: t, net: zktest.NewNetwork(), spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
		sc.srv = zktest.Start(t, zktest.WithNetwork(sc.net))
		sc.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sc.spans))
		sc.meters = metric.NewMeterProvider(metric.WithReader(sc.reader))
		f(t, sc)
	})
}

func (sc *scene) telemetry(opts ...zklockotel.Option) *zklockotel.Telemetry {
	sc.t.Helper()
	tel, err := zklockotel.New(append([]zklockotel.Option{zklockotel.WithTracerProvider(sc.tracers), zklockotel.WithMeterProvider(sc.meters)}, opts...)...)
	require.NoError(sc.t, err)
	return tel
}

// watched returns a Session that has a Telemetry.
func (sc *scene) watched(opts ...zklock.Option) (*zklock.Session, *zklockotel.Telemetry) {
	sc.t.Helper()
	tel := sc.telemetry()
	s := sc.connect(append(opts, tel.Option())...)
	require.NoError(sc.t, tel.Watch(s))
	return s, tel
}

func (sc *scene) connect(opts ...zklock.Option) *zklock.Session {
	sc.t.Helper()
	s, err := zklock.Connect(sc.t.Context(), sc.srv.Addr(), append([]zklock.Option{zklock.WithDialer(sc.net.Dial), zklock.WithSessionTimeout(timeout),
		zklock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(sc.t, err)
	sc.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (sc *scene) mutex(s *zklock.Session, path string, opts ...zklock.MutexOption) *zklock.Mutex {
	sc.t.Helper()
	m, err := zklock.NewMutex(s, path, opts...)
	require.NoError(sc.t, err)
	return m
}

func (sc *scene) acquire(ctx context.Context, l zklock.Lock) *zklock.Hold {
	sc.t.Helper()
	h, err := l.Acquire(ctx)
	require.NoError(sc.t, err)
	return h
}

func (sc *scene) release(holds ...*zklock.Hold) {
	sc.t.Helper()
	for _, h := range holds {
		if err := h.Release(context.Background()); err != nil {
			require.ErrorIs(sc.t, err, zklock.ErrLost)
		}
	}
	synctest.Wait()
}

// begin starts a span as a service does for its request.
func (sc *scene) begin(name string) (context.Context, func()) {
	ctx, span := sc.tracers.Tracer("test").Start(sc.t.Context(), name)
	return ctx, func() { span.End() }
}

// one returns the only span of the name that has ended.
func (sc *scene) one(name string) sdktrace.ReadOnlySpan {
	sc.t.Helper()
	synctest.Wait()
	all := sc.named(name)
	require.Len(sc.t, all, 1, "%q, of %v", name, sc.names())
	return all[0]
}

func (sc *scene) named(name string) (all []sdktrace.ReadOnlySpan) {
	for _, s := range sc.spans.Ended() {
		if s.Name() == name {
			all = append(all, s)
		}
	}
	return all
}

// names returns the names of the spans that have ended, in that order.
func (sc *scene) names() (names []string) {
	for _, s := range sc.spans.Ended() {
		names = append(names, s.Name())
	}
	return names
}

// isChild requires that a span is the child of another.
func (sc *scene) isChild(child, parent sdktrace.ReadOnlySpan) {
	sc.t.Helper()
	require.Equal(sc.t, parent.SpanContext().TraceID(), child.SpanContext().TraceID(), "the trace of %q", child.Name())
	require.Equal(sc.t, parent.SpanContext().SpanID(), child.Parent().SpanID(), "the parent of %q", child.Name())
}

// attrs returns a span's attributes of the lock, without those that differ each time.
func attrs(s sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		if name, ok := strings.CutPrefix(string(a.Key), "zklock."); ok && name != "node" && name != "token" {
			all[name] = a.Value.Emit()
		}
	}
	return all
}

func attrOf(all []attribute.KeyValue, name string) attribute.Value {
	for _, a := range all {
		if string(a.Key) == "zklock."+name {
			return a.Value
		}
	}
	return attribute.Value{}
}

func events(s sdktrace.ReadOnlySpan) (names []string) {
	for _, e := range s.Events() {
		names = append(names, e.Name)
	}
	return names
}

// numbers are the metrics, by name and attributes. Of a histogram they have the count, and the sum
// under its name with ".sum".
type numbers map[string]float64

func (sc *scene) numbers() numbers {
	sc.t.Helper()
	n := numbers{}
	sc.collect(func(_ instrumentation.Scope, name string, set attribute.Set, value, sum float64) {
		key := func(name string) string {
			return strings.ReplaceAll(name+"{"+set.Encoded(attribute.DefaultEncoder())+"}", "zklock.", "")
		}
		if n[key(name)] = value; sum >= 0 {
			n[key(name+".sum")] = sum
		}
	})
	return n
}

// collect calls f with each number: of a histogram the count and the sum, and of others the value
// and -1.
func (sc *scene) collect(f func(scope instrumentation.Scope, name string, set attribute.Set, value, sum float64)) {
	sc.t.Helper()
	synctest.Wait()
	var all metricdata.ResourceMetrics
	require.NoError(sc.t, sc.reader.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					f(scope.Scope, m.Name, p.Attributes, float64(p.Count), p.Sum)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					f(scope.Scope, m.Name, p.Attributes, float64(p.Value), -1)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					f(scope.Scope, m.Name, p.Attributes, float64(p.Value), -1)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					f(scope.Scope, m.Name, p.Attributes, p.Value, -1)
				}
			default:
				sc.t.Fatalf("%s has %T", m.Name, data)
			}
		}
	}
}

// of returns the numbers of one metric, by attributes.
func (n numbers) of(name string) map[string]float64 {
	of := map[string]float64{}
	for key, value := range n {
		if rest, ok := strings.CutPrefix(key, name+"{"); ok {
			of[strings.TrimSuffix(rest, "}")] = value
		}
	}
	return of
}

// waitsFor starts an acquire, and returns when it waits. The function that it returns waits until
// the acquire has ended.
func (sc *scene) waitsFor(ctx context.Context, l zklock.Lock) (end func() (*zklock.Hold, error)) {
	var h *zklock.Hold
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		h, err = l.Acquire(ctx)
	}()
	synctest.Wait()
	return func() (*zklock.Hold, error) {
		<-done
		return h, err
	}
}

var errOwn = errors.New("the work's own")
