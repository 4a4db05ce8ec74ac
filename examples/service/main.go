// Command service is an HTTP service. Every replica answers requests; one of them, the leader, also sweeps.
//
//	ZKLOCK_SERVERS=127.0.0.1:2181 LISTEN=127.0.0.1:8080 go run ./examples/service
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zklock/zklock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	s, err := zklock.Connect(connecting, os.Getenv("ZKLOCK_SERVERS"))
	if cancel(); err != nil {
		log.Fatal(err)
	}
	sweep := func(context.Context) error { log.Print("sweeping"); return nil } // your work
	err = run(ctx, s, &http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"), Handler: health(s)}, sweep)
	if log.Print("stopped: ", err); ctx.Err() == nil {
		os.Exit(1) // nobody has asked for it: start it again
	}
}

// run serves until ctx ends, or until the Session or the HTTP server cannot go on. Then it stops all in order.
func run(ctx context.Context, s *zklock.Session, web *http.Server, sweep func(context.Context) error) error {
	m, err := zklock.NewMutex(s, "/locks/sweep")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	go func() { stop(web.ListenAndServe()) }()
	led := lead(ctx, m, func(ctx context.Context, hold *zklock.Hold) error {
		for ; ctx.Err() == nil; pause(ctx, time.Second) { // until the service stops, or the lock is lost;
			if err := sweep(hold.Context()); err != nil { // until the lock is lost: what has begun is finished
				return err
			}
		}
		return context.Cause(ctx)
	}) // Do has returned: nothing works under the lock, and it is released.
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(led, web.Shutdown(grace), s.Close()) // in this order
}

// lead works while this replica is the leader, and queues again when it is no longer.
func lead(ctx context.Context, m *zklock.Mutex, work func(context.Context, *zklock.Hold) error) error {
	for {
		err := m.Do(ctx, work)
		if ctx.Err() != nil || zklock.IsFinal(err) {
			return err
		}
		log.Print("not the leader any more: ", err)
		pause(ctx, time.Second+rand.N(9*time.Second))
	}
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// health answers /healthz and, for a service whose requests need ZooKeeper, /readyz.
func health(s *zklock.Session) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		state := s.State()
		if state == zklock.Closed || r.URL.Path == "/readyz" && !state.Attached() {
			http.Error(w, state.String(), http.StatusServiceUnavailable)
		}
	}
}
