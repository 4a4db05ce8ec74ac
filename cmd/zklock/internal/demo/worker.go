package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/zklock/zklock"
)

// EnvWorker is in the environment of a process that should call RunWorker.
const EnvWorker = "ZKLOCK_DEMO_WORKER"

// Lines that a worker reads: orders, and replies of the resource.
const (
	orderRelease = "release" // end this turn and queue again
	orderDawdle  = "dawdle"  // at the next write, take long between checking the lock and writing
	orderFinish  = "finish"  // end
)

var answers = map[bool]string{true: "accepted", false: "rejected"}

const (
	writeEvery = 150 * time.Millisecond
	dawdling   = time.Second
)

// worker is a process of its own, written as a careful user of the lock would write it: it queues
// for the lock, and while it holds writes to the resource, until it is ordered to release. It
// prints its events and writes on stdout.
type worker struct {
	Name, Server               string
	SessionTimeout, LeaderPing time.Duration
	Deaf                       bool // it ignores the loss of the lock

	orders, answers chan string
	refused         bool // the last write
}

// RunWorker runs a worker until it is ordered to finish, or the demo has ended.
func RunWorker() error {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the demo, which ends its workers
	w := &worker{orders: make(chan string, 8), answers: make(chan string, 1)}
	if err := json.Unmarshal([]byte(os.Getenv(EnvWorker)), w); err != nil {
		return fmt.Errorf("%s: %w", EnvWorker, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			switch line := lines.Text(); line {
			case answers[true], answers[false]:
				w.answers <- line
			case orderFinish:
				cancel() // also a wait for the lock
			default:
				w.orders <- line
			}
		}
		os.Exit(1) // the demo has ended
	}()

	connecting, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	s, err := zklock.Connect(connecting, w.Server,
		zklock.WithSessionTimeout(w.SessionTimeout), zklock.WithLease(zklock.QuorumLease(w.LeaderPing)),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, lockPath)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		w.report(queues, 0)
		hold, err := m.Acquire(ctx)
		switch {
		case err == nil:
			w.report(holds, hold.Token())
			err = w.turn(ctx, hold)
		case ctx.Err() != nil:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) report(kind string, token int64) {
	// An error means that the demo no longer reads: then stdin has ended, too, and so does the
	// worker.
	_ = json.NewEncoder(os.Stdout).Encode(event{At: time.Now(), Who: w.Name, Kind: kind, Token: token})
}

func (w *worker) turn(ctx context.Context, hold *zklock.Hold) error {
	release := func(why string) error {
		w.report(why, hold.Token()) // from here on it does not hold
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := hold.Release(ctx); why == releases {
			return err
		}
		return nil
	}
	dawdle, lost := false, hold.Lost()
	if w.Deaf {
		lost = nil
	}
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		if err := hold.Err(); err != nil && (!w.Deaf || w.refused) {
			return release(notified)
		}
		if dawdle {
			// The gap that no client can close: it has checked the lock, and its next step takes
			// time. Whatever happens to the process here, the write is sent after it, with the
			// token of the hold that it had.
			dawdle = false
			until := time.Now().Add(dawdling)
			w.report(looks, hold.Token())
			time.Sleep(time.Until(until))
		}
		w.report(writes, hold.Token())
		w.refused = <-w.answers == answers[false]
		select {
		case <-lost:
			return release(notified)
		case <-ctx.Done():
			return release(releases)
		case order := <-w.orders:
			if order == orderRelease {
				return release(releases)
			}
			dawdle = true
		case <-tick.C:
		}
	}
}
