package main

// The benchmark times an uncontended acquire with its release on a real server: with no trace, with
// Prometheus' metrics, and with spans.

import (
	"context"
	"log/slog"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
	"github.com/zklock/zklock/contrib/zklockprom"
	"github.com/zklock/zklock/internal/zkserver"
)

// BenchmarkCycle alternates, so that any other load on the machine affects all alike. It reports
// the ratios to the first.
func BenchmarkCycle(b *testing.B) {
	const turn = 20
	srv, err := zkserver.Start(zkserver.NewConfig())
	if err != nil {
		b.Fatalf("scripts/setup zookeeper: %v", err)
	}
	b.Cleanup(func() { _ = srv.Close() })
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter())) // the cost of the export is not ours
	b.Cleanup(func() { _ = tracers.Shutdown(context.Background()) })
	spans, err := zklockotel.New(zklockotel.WithTracerProvider(tracers))
	if err != nil {
		b.Fatal(err)
	}
	kinds := []struct {
		name string
		opts []zklock.Option
		m    *zklock.Mutex
		took time.Duration
	}{{name: "none"}, {name: "metrics", opts: []zklock.Option{zklockprom.New().Option()}}, {name: "spans", opts: []zklock.Option{spans.Option()}}, {name: "none-again"}}
	for i := range kinds {
		s, err := zklock.Connect(b.Context(), srv.Addr(), append(kinds[i].opts, zklock.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		if kinds[i].m, err = zklock.NewMutex(s, "/"+kinds[i].name); err != nil {
			b.Fatal(err)
		}
	}
	cycle := func(m *zklock.Mutex) {
		h, err := m.Acquire(context.Background())
		if err == nil {
			err = h.Release(context.Background())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for range 500 { // the server's first requests are slow
		for _, k := range kinds {
			cycle(k.m)
		}
	}
	b.ResetTimer()
	for i := range b.N {
		for j := range kinds {
			k := &kinds[(i+j)%len(kinds)]
			start := time.Now()
			for range turn {
				cycle(k.m)
			}
			k.took += time.Since(start)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(kinds[0].took.Microseconds())/float64(b.N*turn), "µs/cycle")
	for _, k := range kinds[1:] {
		b.ReportMetric(float64(k.took)/float64(kinds[0].took), k.name+"/none")
	}
}
