package zklockotel_test

// The example on the package's page and in the README.

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
	"github.com/zklock/zklock/zktest"
)

func Example() {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	spans := tracetest.NewSpanRecorder()
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans)) // in a program: with an exporter

	tel, err := zklockotel.New(zklockotel.WithTracerProvider(tracers))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	s, err := zklock.Connect(ctx, srv.Addr(), tel.Option(), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := tel.Watch(s); err != nil {
		log.Fatal(err)
	}

	m, err := zklock.NewMutex(s, "/orders/4711", zklock.WithName("orders"))
	if err != nil {
		log.Fatal(err)
	}
	err = m.Do(ctx, func(context.Context, *zklock.Hold) error { return nil })
	for _, span := range spans.Ended() {
		fmt.Println(span.Name())
	}
	fmt.Println(err)
	// Output:
	// wait
	// mutex orders
	// <nil>
}
