// Command errgroup is an HTTP service with several replicas. One of them leads and works. Its parts
// are in an errgroup, so they end together and in order.
//
//	cd examples/schedulers && ZKLOCK_SERVERS=127.0.0.1:2181 LISTEN=127.0.0.1:8080 go run ./errgroup
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

	"golang.org/x/sync/errgroup"

	"github.com/zklock/zklock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		log.Fatal(err)
	}
	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	s, err := zklock.Connect(connecting, os.Getenv("ZKLOCK_SERVERS"))
	if cancel(); err != nil {
		log.Fatal(err)
	}
	err = run(ctx, s, listener, func(ctx context.Context, _ *zklock.Hold) error {
		log.Print("leading")
		<-ctx.Done() // your work, until then
		return context.Cause(ctx)
	})
	if log.Print("stopped: ", err); ctx.Err() == nil {
		os.Exit(1) // the end was not requested: start it again
	}
}

// run serves, and leads when elected, until ctx ends or one of the two fails, which ends the other.
func run(ctx context.Context, s *zklock.Session, listener net.Listener, lead func(context.Context, *zklock.Hold) error) error {
	election, err := zklock.NewElection(s, "/elections/sweep")
	if err != nil {
		return err
	}
	web := &http.Server{ReadHeaderTimeout: 10 * time.Second} // Handler: yours
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return election.Campaign(ctx, lead) })
	g.Go(func() error {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil // Shutdown, below
	})
	g.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return web.Shutdown(grace)
	})
	return errors.Join(g.Wait(), s.Close()) // in this order: lead has returned by now, and the leadership is released
}
