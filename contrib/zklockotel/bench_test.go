package zklockotel_test

// The benchmark times an acquire and a release without a trace, with an empty one, with spans, with
// metrics and with both. The rest is the library's own work and the test server's, without a
// network: on real servers the shares are smaller.

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
	"github.com/zklock/zklock/zktest"
)

// dropped is an exporter that costs nothing.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                             { return nil }

func BenchmarkCycle(b *testing.B) {
	spans := zklockotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(dropped{}), sdktrace.WithSampler(sdktrace.AlwaysSample())))
	noSpans := zklockotel.WithTracerProvider(tracenoop.NewTracerProvider())
	meters := zklockotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())))
	noMeters := zklockotel.WithMeterProvider(metricnoop.NewMeterProvider())
	for _, row := range []struct {
		name string
		opts []zklockotel.Option
	}{
		{"trace=none", nil}, {"trace=empty", nil}, {"trace=no-op", []zklockotel.Option{noSpans, noMeters}}, {"trace=metrics", []zklockotel.Option{noSpans, meters}},
		{"trace=spans", []zklockotel.Option{spans, noMeters}}, {"trace=both", []zklockotel.Option{spans, meters}},
	} {
		b.Run(row.name, func(b *testing.B) {
			n := zktest.NewNetwork()
			srv := zktest.Start(b, zktest.WithNetwork(n))
			opts := []zklock.Option{zklock.WithDialer(n.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler))}
			switch {
			case row.name == "trace=empty":
				opts = append(opts, zklock.WithTrace(&zklock.Trace{}))
			case row.opts != nil:
				tel, err := zklockotel.New(row.opts...)
				require.NoError(b, err)
				opts = append(opts, tel.Option())
			}
			s, err := zklock.Connect(b.Context(), srv.Addr(), opts...)
			require.NoError(b, err)
			b.Cleanup(func() { _ = s.Close() })
			m, err := zklock.NewMutex(s, "/bench")
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				hold, err := m.Acquire(b.Context())
				if err == nil {
					err = hold.Release(b.Context())
				}
				require.NoError(b, err)
			}
		})
	}
}
