// Command cron runs jobs with github.com/robfig/cron, each on one of the hosts that run this
// program.
//
//	cd examples/schedulers && ZKLOCK_SERVERS=127.0.0.1:2181 go run ./cron
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/robfig/cron/v3"

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
	defer s.Close() // after the jobs have ended
	err = run(ctx, s, func(context.Context) error {
		log.Print("reporting")
		return nil // your work; end it when its context ends
	})
	if err != nil {
		log.Print(err)
	}
}

// run has the job done each hour until ctx ends, and returns when the last run of the job has
// ended.
func run(ctx context.Context, s *zklock.Session, report func(context.Context) error) error {
	// A minute is more than the difference between the hosts' clocks. Without it, a short job runs
	// on one host after the other.
	m, err := zklock.NewMutex(s, "/jobs/report", zklock.WithMinHold(time.Minute))
	if err != nil {
		return err
	}
	c := cron.New()
	if _, err := c.AddFunc("@hourly", locked(ctx, m, report)); err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

// locked returns the job under the lock. The job is skipped if another host runs it or has just run
// it. Its context ends when the lock is lost, and with ctx.
func locked(ctx context.Context, m *zklock.Mutex, job func(context.Context) error) func() {
	return func() {
		err := m.TryDo(ctx, func(ctx context.Context, _ *zklock.Hold) error { return job(ctx) })
		if err != nil && !errors.Is(err, zklock.ErrNotAcquired) {
			log.Printf("%v: %v", m, err) // ErrNotConnected: perhaps no host has run it
		}
	}
}
