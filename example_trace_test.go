package zklock_test

// Examples of the data that a Session gives to monitoring: its traces and its numbers.

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zklock/zklock"
)

// A trace is called for each acquire and at the end of each hold. The traces of contrib/zklockprom
// and contrib/zklockotel turn these calls into metrics and spans.
func ExampleTrace() {
	ctx, servers, stop := exampleServer()
	defer stop()
	called := func(a zklock.AcquireInfo) string { return string(a.Kind) + " " + a.Name }
	s, err := zklock.Connect(ctx, servers, zklock.WithTrace(&zklock.Trace{
		AcquireStart: func(ctx context.Context, a zklock.AcquireInfo) context.Context {
			fmt.Println(called(a), "wanted")
			return ctx
		},
		AcquireEnd: func(ctx context.Context, a zklock.AcquireEndInfo) {
			if a.Err != nil {
				fmt.Println(called(a.AcquireInfo), "not acquired, place", a.Position)
				return
			}
			fmt.Println(called(a.AcquireInfo), "acquired")
		},
		HoldEnd: func(ctx context.Context, h zklock.HoldInfo) { fmt.Println(called(h.AcquireInfo), "released") },
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	order, err := zklock.NewMutex(s, "/orders/4711", zklock.WithName("order"))
	if err != nil {
		log.Fatal(err)
	}
	_ = order.Do(ctx, func(context.Context, *zklock.Hold) error {
		_, err := order.TryAcquire(ctx) // without the hold's context: it is somebody else's
		return err
	})
	// Output:
	// mutex order wanted
	// mutex order acquired
	// mutex order wanted
	// mutex order not acquired, place 2
	// mutex order released
}

// Metrics count acquires by their outcome, and losses by their reason. Here another client deletes
// the lock's node.
func ExampleAcquireEndInfo() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	lost := make(chan zklock.Loss)
	s, err := zklock.Connect(ctx, srv.Addr(), zklock.WithTrace(&zklock.Trace{
		AcquireEnd: func(_ context.Context, a zklock.AcquireEndInfo) { fmt.Println(a.Outcome) },
		HoldLost:   func(_ context.Context, h zklock.HoldInfo) { lost <- h.Reason },
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, "/locks/nightly")
	if err != nil {
		log.Fatal(err)
	}
	hold, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = m.TryAcquire(ctx) // without the hold's context: it is another caller's
	if err := srv.Delete(hold.Node()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-lost, errors.Is(err, zklock.ErrNotAcquired))
	// Output:
	// acquired
	// not_acquired
	// node_deleted true
}

func ExampleSession_Stats() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, err := zklock.NewMutex(s, "/locks/nightly")
	if err != nil {
		log.Fatal(err)
	}
	err = m.Do(ctx, func(context.Context, *zklock.Hold) error {
		now := s.Stats()
		fmt.Println(now.State, "held:", now.Held, "waiting:", now.Waiting, "the lease has time left:", now.LeaseLeft > 0)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", s.Stats().Held)
	// Output:
	// Connected held: 1 waiting: 0 the lease has time left: true
	// held: 0
}
