package main

// A replica of the service: it campaigns in an election, works under a lock, and serves its
// metrics. Its spans are written to a file.

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
	"github.com/zklock/zklock/contrib/zklockprom"
)

func replica(servers, listen, spans string) error {
	file, err := os.Create(spans)
	if err != nil {
		return err
	}
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(file))
	if err != nil {
		return err
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	telemetry, err := zklockotel.New(zklockotel.WithTracerProvider(tracers))
	if err != nil {
		return err
	}
	metrics, registry := zklockprom.New(), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	var deaf atomic.Int64 // how long the work continues after the loss of its lock, as a time.Duration
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/deaf", func(_ http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err == nil {
			deaf.Store(int64(d))
		}
	})
	go func() {
		log.Fatal((&http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: time.Second}).ListenAndServe())
	}()

	ctx := context.Background()
	s, err := zklock.Connect(ctx, servers, metrics.Option(), telemetry.Option(), zklock.WithSessionTimeout(timeout),
		zklock.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return err
	}
	metrics.Watch(s)
	if err := telemetry.Watch(s); err != nil {
		return err
	}
	m, err := zklock.NewMutex(s, "/locks/job", zklock.WithName("job"))
	if err != nil {
		return err
	}
	go func() { // the load
		for {
			err := m.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error { return sleep(ctx, 50*time.Millisecond) })
			if err != nil {
				_ = sleep(ctx, 100*time.Millisecond)
			}
		}
	}()
	e, err := zklock.NewElection(s, "/leader", zklock.WithName("leader"))
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		<-ctx.Done()
		time.Sleep(time.Duration(deaf.Swap(0))) // a function that ignores its context
		return nil
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
