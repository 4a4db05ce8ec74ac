// Command otel does a job under a lock, and prints the spans: the job, the lock from the acquire to
// the release, and the wait for it. Start two at once, and the second one waits.
//
//	cd examples/otel && ZKLOCK_SERVERS=127.0.0.1:2181 go run .
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockotel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("ZKLOCK_SERVERS"), os.Stdout, work); err != nil {
		log.Fatal(err)
	}
}

// run does the work under the lock, and writes the spans to out.
func run(ctx context.Context, servers string, out io.Writer, work func(context.Context) error) (err error) {
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(out), stdouttrace.WithPrettyPrint())
	if err != nil {
		return err
	}
	tracers := trace.NewTracerProvider(trace.WithBatcher(exporter))
	defer func() { // last: the release ends a span
		flushing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, tracers.Shutdown(flushing))
	}()
	tel, err := zklockotel.New(zklockotel.WithTracerProvider(tracers))
	if err != nil {
		return err
	}

	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := zklock.Connect(connecting, servers, tel.Option())
	if err != nil {
		return err
	}
	defer s.Close() // after Do has released
	if err := tel.Watch(s); err != nil {
		return err
	}
	m, err := zklock.NewMutex(s, "/locks/nightly")
	if err != nil {
		return err
	}
	ctx, job := tracers.Tracer("nightly").Start(ctx, "nightly job") // the caller of the lock; in your program perhaps a request
	defer job.End()
	return m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error { return work(ctx) })
}

// work is a placeholder for your job. It takes a while, and checks ctx.
func work(ctx context.Context) error {
	select {
	case <-time.After(3 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
