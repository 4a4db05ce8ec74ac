package demo

// A worker is a process of its own: it queues for the lock, and while it holds writes to the resource, until it is told to
// release. It is written as a careful user of the lock would write it.

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/zklock/zklock"
)

// WorkerConfig says what a worker works with.
type WorkerConfig struct {
	Name           string
	Servers        string // connection string
	LockPath       string
	Resource       string // its address
	SessionTimeout time.Duration
	LeaderPing     time.Duration
	Orders         io.Reader // lines: release, dawdle, finish
	Out            io.Writer // its events

	deaf bool // it does not hear that it lost the lock, for the test that this is noticed
}

// The environment that makes a process a worker.
const (
	EnvWorker     = "ZKLOCK_DEMO_WORKER"
	envServers    = "ZKLOCK_DEMO_SERVERS"
	envLock       = "ZKLOCK_DEMO_LOCK"
	envResource   = "ZKLOCK_DEMO_RESOURCE"
	envTimeout    = "ZKLOCK_DEMO_SESSION_TIMEOUT"
	envLeaderPing = "ZKLOCK_DEMO_LEADER_PING"
)

func (c WorkerConfig) environ() []string {
	return []string{
		EnvWorker + "=" + c.Name, envServers + "=" + c.Servers, envLock + "=" + c.LockPath, envResource + "=" + c.Resource,
		envTimeout + "=" + c.SessionTimeout.String(), envLeaderPing + "=" + c.LeaderPing.String(),
	}
}

// WorkerFromEnvironment is what the demo has put there, for a process that reads orders from stdin and tells of itself on stdout.
func WorkerFromEnvironment() (c WorkerConfig, err error) {
	c = WorkerConfig{
		Name: os.Getenv(EnvWorker), Servers: os.Getenv(envServers), LockPath: os.Getenv(envLock), Resource: os.Getenv(envResource),
		Orders: os.Stdin, Out: os.Stdout,
	}
	if c.SessionTimeout, err = time.ParseDuration(os.Getenv(envTimeout)); err == nil {
		c.LeaderPing, err = time.ParseDuration(os.Getenv(envLeaderPing))
	}
	return c, err
}

// Orders to a worker.
const (
	orderRelease = "release" // end this turn and queue again
	orderDawdle  = "dawdle"  // at the next write, take long between looking at the lock and writing
	orderFinish  = "finish"  // end
)

const (
	writeEvery = 150 * time.Millisecond
	dawdling   = time.Second
)

type worker struct {
	WorkerConfig
	*reporter
	resource *resourceClient
	orders   chan string
	refused  bool // the last write
}

// Worker runs a worker until it is told to finish, or nobody is there any more to tell it.
func Worker(c WorkerConfig) error {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the demo, which ends its workers
	w := &worker{WorkerConfig: c, reporter: &reporter{who: c.Name, w: c.Out}, orders: make(chan string, 8)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		lines := bufio.NewScanner(c.Orders)
		for lines.Scan() {
			w.orders <- lines.Text()
			if lines.Text() == orderFinish {
				cancel() // also a wait for the lock
			}
		}
		os.Exit(1) // the demo is gone
	}()
	err := w.run(ctx)
	if err != nil {
		w.report(time.Now(), Failed, 0, err.Error())
	}
	return err
}

func (w *worker) run(ctx context.Context) error {
	var err error
	if w.resource, err = dialResource(w.Resource); err != nil {
		return err
	}
	connecting, cancel := context.WithTimeoutCause(ctx, connectWithin, fmt.Errorf("no server within %v", connectWithin))
	defer cancel()
	s, err := zklock.Connect(connecting, w.Servers,
		zklock.WithSessionTimeout(w.SessionTimeout), zklock.WithLease(zklock.QuorumLease(w.LeaderPing)),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, w.LockPath, zklock.WithData([]byte(w.Name)))
	if err != nil {
		return err
	}
	for {
		w.report(time.Now(), Waiting, 0, "")
		hold, err := m.Acquire(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = hold.Release(context.Background())
			}
			return nil
		}
		if err != nil {
			return err
		}
		w.report(time.Now(), Granted, hold.Token(), "")
		if finish, err := w.turn(hold); finish || err != nil {
			return err
		}
	}
}

// turn works while it holds.
func (w *worker) turn(hold *zklock.Hold) (finish bool, err error) {
	release := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return hold.Release(ctx)
	}
	lost := func(reason error) {
		w.report(time.Now(), Lost, hold.Token(), why(reason))
		_ = release() // so that this worker may queue again
	}
	if err := w.write(hold, started); err != nil {
		return false, err
	}
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	dawdle, lostCh := false, hold.Lost()
	if w.deaf {
		lostCh = nil
	}
	for {
		select {
		case <-lostCh:
			lost(hold.Err())
			return false, nil
		case order := <-w.orders:
			switch order {
			case orderDawdle:
				dawdle = true
				continue
			case orderFinish:
				finish = true
			}
			if err := w.write(hold, ended); err != nil {
				return false, err
			}
			w.report(time.Now(), Released, hold.Token(), "") // from here on it is no holder
			return finish, release()
		case <-tick.C:
		}
		if err := hold.Err(); err != nil && (!w.deaf || w.refused) {
			lost(err)
			return false, nil
		}
		if dawdle {
			// The gap that no client can close: it has looked, and what it does next takes its time. Whatever happens to
			// the process here, the write goes out after it, with the token of the hold that it had.
			dawdle = false
			looked := time.Now()
			w.report(looked, Checked, hold.Token(), "")
			time.Sleep(time.Until(looked.Add(dawdling)))
		}
		if err := w.write(hold, works); err != nil {
			return false, err
		}
	}
}

// write sends one write with the hold's token.
func (w *worker) write(hold *zklock.Hold, what string) error {
	v, err := w.resource.write(write{Who: w.Name, Token: hold.Token(), What: what})
	if err != nil {
		return err
	}
	if w.refused = !v.Accepted; w.refused {
		w.report(time.Now(), Refused, hold.Token(), fmt.Sprintf("token %d, and the resource has seen %d", hold.Token(), v.Seen))
		return nil
	}
	w.report(time.Now(), Wrote, hold.Token(), "")
	return nil
}

// why is the reason of a loss, without the names in front of it.
func why(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, zklock.ErrLost.Error()+": "); i >= 0 {
		s = s[i+len(zklock.ErrLost.Error())+2:]
	}
	return s
}
