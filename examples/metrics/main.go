// Command metrics is a service that sweeps under one lock, and exports the lock's metrics to
// Prometheus at /metrics.
//
//	cd examples/metrics && ZKLOCK_SERVERS=127.0.0.1:2181 LISTEN=127.0.0.1:8080 go run .
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockprom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	web, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		log.Fatal(err)
	}
	sweep := func(context.Context, *zklock.Hold) error { log.Print("sweeping"); return nil } // yours; end it when its context ends
	if err := run(ctx, os.Getenv("ZKLOCK_SERVERS"), web, sweep); !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// run serves the metrics, and sweeps under the lock, until ctx ends.
func run(ctx context.Context, servers string, web net.Listener, sweep func(context.Context, *zklock.Hold) error) error {
	registry, metrics := prometheus.NewRegistry(), zklockprom.New()
	registry.MustRegister(metrics)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(web) }()
	defer srv.Close()

	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := zklock.Connect(connecting, servers, metrics.Option())
	if err != nil {
		return err
	}
	defer s.Close() // after Do has released
	metrics.Watch(s)
	m, err := zklock.NewMutex(s, "/locks/sweep", zklock.WithName("sweep"))
	if err != nil {
		return err
	}
	for {
		err := m.Do(ctx, sweep)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case zklock.IsFinal(err):
			return err
		case err != nil:
			log.Print("sweep: ", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
