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

// Orders, which a worker reads in the responses to its events.
const (
	orderRelease = "release" // end this turn and queue again
	orderDawdle  = "dawdle"  // before the next write, take long between checking the lock and writing
	orderFinish  = "finish"  // release, and end
)

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

	responses chan string
	order     string // the last one that it has not obeyed
}

// RunWorker runs a worker until it is ordered to finish, or the demo has ended.
func RunWorker() error {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the demo, which ends its workers
	w := &worker{responses: make(chan string)}
	if err := json.Unmarshal([]byte(os.Getenv(EnvWorker)), w); err != nil {
		return fmt.Errorf("%s: %w", EnvWorker, err)
	}
	go func() { // ends with the process
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			w.responses <- lines.Text()
		}
		os.Exit(1) // the demo has ended
	}()

	ctx := context.Background()
	s, err := zklock.Connect(ctx, w.Server,
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
	for w.order != orderFinish {
		w.report(queues, 0)
		hold, err := m.Acquire(ctx)
		if err != nil {
			return err
		}
		if err := w.turn(ctx, hold); err != nil {
			return err
		}
	}
	return nil
}

// report sends an event to the demo, and reads the order in its response.
func (w *worker) report(kind string, token int64) {
	// An error means that the demo no longer reads: then stdin has ended, too, and so does the
	// worker.
	_ = json.NewEncoder(os.Stdout).Encode(event{At: time.Now(), Who: w.Name, Kind: kind, Token: token})
	if order := <-w.responses; order != "" {
		w.order = order
	}
}

func (w *worker) turn(ctx context.Context, hold *zklock.Hold) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	why := releases
	w.report(holds, hold.Token())
	for w.order == "" || w.order == orderDawdle {
		select {
		case <-hold.Lost():
		case <-tick.C:
		}
		if hold.Err() != nil {
			why = notified
			break
		}
		if w.order == orderDawdle {
			// The gap that no client can close: it has checked the lock, and its next step takes
			// time. Whatever happens to the process here, the write is sent after it, with the
			// token of the hold that it had.
			w.order = ""
			until := time.Now().Add(dawdling)
			w.report(looks, hold.Token())
			time.Sleep(time.Until(until))
		}
		w.report(writes, hold.Token())
	}
	if w.order != orderFinish {
		w.order = ""
	}
	w.report(why, hold.Token()) // from here on it does not hold
	if err := hold.Release(ctx); why == releases {
		return err
	}
	return nil
}
