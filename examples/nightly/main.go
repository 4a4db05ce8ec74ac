// Command nightly writes a report a day into its working directory, which all hosts share. Cron
// starts it on every host at once: one of them does the work, and if that host crashes, another
// does it.
//
//	cd /srv/reports && ZKLOCK_SERVERS=zk1:2181,zk2:2181,zk3:2181 nightly
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zklock/zklock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report := time.Now().UTC().Format("2006-01-02.txt")
	if err := nightly(ctx, os.Getenv("ZKLOCK_SERVERS"), report, measure); err != nil {
		log.Fatal(err)
	}
}

// nightly writes the result of measure to the report, unless the report exists.
func nightly(ctx context.Context, servers, report string, measure func(context.Context) ([]byte, error)) error {
	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := zklock.Connect(connecting, servers)
	if err != nil {
		return err
	}
	defer s.Close() // after Do has released
	m, err := zklock.NewMutex(s, "/locks/nightly")
	if err != nil {
		return err
	}
	// All hosts wait, and then find the work done. If the first one crashes, the second one does
	// it. After six hours: ErrNotAcquired.
	return m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error { // ctx ends when the lock is lost
		if _, err := os.Stat(report); err == nil {
			return nil
		}
		body, err := measure(ctx)
		if err != nil {
			return err
		}
		draft := fmt.Sprintf("%s.%d", report, hold.Token()) // a file for this hold alone
		defer os.Remove(draft)
		if err := os.WriteFile(draft, body, 0o644); err != nil {
			return err
		}
		// Link never replaces a file. So a host that pauses here and loses the lock cannot
		// overwrite the next host's report.
		if err := os.Link(draft, report); !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	}, zklock.WaitAtMost(6*time.Hour))
}

// measure is a placeholder for your job. It takes a while, and checks ctx.
func measure(ctx context.Context) ([]byte, error) {
	select {
	case <-time.After(3 * time.Second):
		return []byte("all is well\n"), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
