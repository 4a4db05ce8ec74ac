package zklockgocron_test

// The examples are programs of one host; start them on several.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/contrib/zklockgocron"
	"github.com/zklock/zklock/zktest"
)

func exampleSession() (s *zklock.Session, stop func()) {
	srv, err := zktest.NewServer() // for the example; in the field your ensemble
	if err != nil {
		log.Fatal(err)
	}
	s, err = zklock.Connect(context.Background(), srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	return s, func() { _ = s.Close(); srv.Close() }
}

// A job that must notice the loss of its lock takes the lock itself, without a Locker. Its context
// also ends with the lock.
func Example() {
	s, stop := exampleSession()
	defer stop()
	m, err := zklock.NewMutex(s, "/jobs/report", zklock.WithMinHold(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	reported := make(chan bool)
	report := func(ctx context.Context, hold *zklock.Hold) error { // ctx ends when the lock is lost, or the scheduler is shut down
		fmt.Println("reporting, with token:", hold.Token() > 0)
		close(reported)
		return ctx.Err()
	}
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func(ctx context.Context) error {
		err := m.TryDo(ctx, report)
		if errors.Is(err, zklock.ErrNotAcquired) {
			return nil // it has run, or runs, elsewhere
		}
		return err // for AfterJobRunsWithError
	}))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-reported
	fmt.Println(scheduler.Shutdown())
	// Output:
	// reporting, with token: true
	// <nil>
}

func ExampleNewLocker() {
	s, stop := exampleSession()
	defer stop()
	// The hosts are due within this time, and it is less than the time between two runs of a job.
	locker, err := zklockgocron.NewLocker(s, "/jobs", 30*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	reported := make(chan bool)
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(func() { fmt.Println("reporting"); close(reported) }), gocron.WithName("report")) // /jobs/report
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-reported
	_ = scheduler.Shutdown() // first of all: it waits for the jobs
	// Output: reporting
}

func ExampleNewElector() {
	s, stop := exampleSession()
	defer stop()
	election, err := zklock.NewElection(s, "/jobs/leader")
	if err != nil {
		log.Fatal(err)
	}
	elector := zklockgocron.NewElector(election)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	reported := make(chan bool)
	_, err = scheduler.NewJob(gocron.DurationJob(100*time.Millisecond),
		gocron.NewTask(func() { fmt.Println("reporting"); close(reported) }), gocron.WithLimitedRuns(1))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- elector.Run(ctx) }() // in the field, end the program if it returns too early
	scheduler.Start()
	<-reported
	_ = scheduler.Shutdown() // first of all: it waits for the jobs
	cancel()                 // now another may lead
	fmt.Println(errors.Is(<-ended, context.Canceled))
	// Output:
	// reporting
	// true
}
