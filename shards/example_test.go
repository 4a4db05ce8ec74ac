package shards_test

// The examples of the package.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/shards"
	"github.com/zklock/zklock/zktest"
)

// quiet logs nothing.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// exampleSession returns a Session on a server of its own.
func exampleSession() (context.Context, *zklock.Session, func()) {
	slog.SetDefault(quiet)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	s, err := zklock.Connect(ctx, srv.Addr(), zklock.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	return ctx, s, func() {
		s.Close()
		srv.Close()
		cancel()
	}
}

// consume processes a partition until ctx ends. It passes the token to the database, which rejects
// a smaller one than it has seen.
func consume(ctx context.Context, shard int, token int64) error {
	<-ctx.Done()
	return nil
}

// worker works on this process's part of 256 partitions until ctx ends.
func worker(ctx context.Context, s *zklock.Session) error {
	g, err := shards.New(s, "/orders/workers", 256, shards.WithMember("orders-3", []byte("10.0.0.7:8080")))
	if err != nil {
		return err
	}
	return g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
		return consume(ctx, shard, hold.Token()) // until ctx ends
	})
}

// A worker owns its part of the partitions, here all of them, until it gets SIGTERM.
func Example() {
	ctx, s, stop := exampleSession()
	defer stop()
	ctx, sigterm := context.WithTimeoutCause(ctx, 2*time.Second, errors.New("SIGTERM")) // in the field: signal.NotifyContext
	defer sigterm()
	fmt.Println(worker(ctx, s))
	// Output: SIGTERM
}

// A router learns from the plan where to send the requests of a shard.
func ExampleGroup_Observe() {
	ctx, s, stop := exampleSession()
	defer stop()
	g, err := shards.New(s, "/orders/workers", 4, shards.WithMember("orders-1", []byte("10.0.0.7:8080")), shards.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		done <- g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
			<-ctx.Done()
			return nil
		})
	}()
	for a, err := range g.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := a.Owner(3); ok {
			fmt.Printf("shard 3 is at %s, %s\n", m.Name, m.Data)
			break
		}
	}
	leave()
	<-done
	// Output: shard 3 is at orders-1, 10.0.0.7:8080
}

// Holder returns the client that holds a shard, whatever the plan says.
func ExampleGroup_Holder() {
	ctx, s, stop := exampleSession()
	defer stop()
	g, err := shards.New(s, "/orders/workers", 1, shards.WithMember("orders-1", nil), shards.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := context.WithCancel(ctx)
	_ = g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
		p, err := g.Holder(ctx, shard)
		fmt.Println(string(p.Data), p.Token == hold.Token(), err)
		leave()
		<-ctx.Done()
		return nil
	})
	// Output: orders-1 true <nil>
}

// The number of shards changes while no member is present.
func ExampleGroup_SetShards() {
	ctx, s, stop := exampleSession()
	defer stop()
	g, err := shards.New(s, "/orders/workers", 256, shards.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := g.SetShards(ctx, 256); err != nil { // creates the group
		log.Fatal(err)
	}
	was, err := g.SetShards(ctx, 512)
	fmt.Println(was, err)

	other, err := shards.New(s, "/orders/workers", 256, shards.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	err = other.Run(ctx, func(context.Context, int, *zklock.Hold) error { return nil })
	fmt.Println(errors.Is(err, shards.ErrShardCount))
	// Output:
	// 256 <nil>
	// true
}

// Stats shows what a member works on.
func ExampleGroup_Stats() {
	ctx, s, stop := exampleSession()
	defer stop()
	g, err := shards.New(s, "/orders/workers", 1, shards.WithMember("orders-1", nil), shards.WithWeight(2), shards.WithQuiet(5*time.Second), shards.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := context.WithCancel(ctx)
	_ = g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
		for g.Stats().Working < 1 {
			time.Sleep(time.Millisecond)
		}
		st := g.Stats()
		fmt.Println(g.Path(), st.Name, st.Planner, st.Wanted, st.Working)
		leave()
		<-ctx.Done()
		return nil
	})
	// Output: /orders/workers orders-1 true 1 1
}

// Inspect shows an operator the group without being a member of it.
func ExampleInspect() {
	ctx, s, stop := exampleSession()
	defer stop()
	g, err := shards.New(s, "/orders/workers", 1, shards.WithMember("orders-1", nil), shards.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := context.WithCancel(ctx)
	_ = g.Run(ctx, func(ctx context.Context, shard int, hold *zklock.Hold) error {
		sn, err := shards.Inspect(ctx, s, "/orders/workers")
		if err != nil {
			log.Fatal(err)
		}
		owner, _ := sn.Plan.Owner(0)
		fmt.Println(len(sn.Members), owner.Name, string(sn.Queues[0][0].Data), sn.Queues[0][0].Token == hold.Token())
		leave()
		<-ctx.Done()
		return nil
	})
	// Output: 1 orders-1 orders-1 true
}
