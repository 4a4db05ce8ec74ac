package zklock_test

// The examples of a semaphore, which the documentation shows, too.

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// Three jobs run at a time, on any hosts; a large one takes two permits.
func ExampleSemaphore_Acquire() {
	ctx, s, stop := exampleSession()
	defer stop()
	sem, err := zklock.NewSemaphore(s, "/semaphores/imports", 3)
	if err != nil {
		log.Fatal(err)
	}
	large, err := sem.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer large.Release(ctx)
	small, err := sem.TryAcquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer small.Release(ctx)
	_, err = sem.TryAcquire(ctx, 1)
	fmt.Println("all are in use:", errors.Is(err, zklock.ErrNotAcquired))
	_, err = sem.Acquire(ctx, 4)
	fmt.Println(err)
	// Output:
	// all are in use: true
	// zklock: acquire /semaphores/imports: 4 permits of a semaphore that has 3: ask for 1 to 3
}

// A large job takes two of three permits while it runs. Another one does not wait for them.
func ExampleSemaphore_Do() {
	ctx, s, stop := exampleSession()
	defer stop()
	sem, err := zklock.NewSemaphore(s, "/semaphores/imports", 3)
	if err != nil {
		log.Fatal(err)
	}
	err = sem.Do(ctx, 2, func(ctx context.Context, hold *zklock.Hold) error {
		fmt.Println("permits in use:", len(hold.Checks()))
		err := sem.Do(ctx, 2, func(context.Context, *zklock.Hold) error { return nil }, zklock.WaitAtMost(0))
		fmt.Println("two more are not free:", errors.Is(err, zklock.ErrNotAcquired))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// permits in use: 2
	// two more are not free: true
}

// Permits as a Lock, whose Do releases them.
func ExampleSemaphore_Permits() {
	ctx, s, stop := exampleSession()
	defer stop()
	sem, err := zklock.NewSemaphore(s, "/semaphores/imports", 3)
	if err != nil {
		log.Fatal(err)
	}
	small, large := sem.Permits(1), sem.Permits(2)
	err = large.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		fmt.Println("there are", len(hold.Checks()), "permits in use")
		fmt.Println("one is left:", small.TryDo(ctx, func(context.Context, *zklock.Hold) error { return nil }))
		err := large.TryDo(ctx, func(context.Context, *zklock.Hold) error { return nil })
		fmt.Println("two are not:", errors.Is(err, zklock.ErrNotAcquired))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// there are 2 permits in use
	// one is left: <nil>
	// two are not: true
}

// Participants lists the holders and the waiters.
func ExampleSemaphore_Participants() {
	ctx, s, stop := exampleSession()
	defer stop()
	sem, _ := zklock.NewSemaphore(s, "/semaphores/imports", 3, zklock.WithData([]byte("host-a:4711")))
	hold, err := sem.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)
	holders, _, err := sem.Participants(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range holders { // one for each permit
		fmt.Println(string(p.Data), p.SessionID == s.Stats().SessionID)
	}
	fmt.Println(sem.Permits(1).Path(), holders[0].Node == hold.Node())
	// Output:
	// host-a:4711 true
	// host-a:4711 true
	// /semaphores/imports true
}

// The limit is in a node. An operator raises it, and waiters are granted at once.
func ExampleWithSharedLimit() {
	ctx, s, stop := exampleSession()
	defer stop()
	const limit = "/semaphores/limits/imports"
	sem, err := zklock.NewSemaphore(s, "/semaphores/imports", 1, zklock.WithSharedLimit(limit)) // 1 if nobody has set it
	if err != nil {
		log.Fatal(err)
	}
	first, err := sem.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer first.Release(ctx)
	_, err = sem.TryAcquire(ctx, 1)
	fmt.Println("one permit, in use:", errors.Is(err, zklock.ErrNotAcquired))

	if err = sem.SetLimit(ctx, 2); err != nil {
		log.Fatal(err)
	}
	second, err := sem.Acquire(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)
	fmt.Println("two permits:", first.Err() == nil, second.Err() == nil)
	// Output:
	// one permit, in use: true
	// two permits: true true
}

// A program that computes the next limit from the last one takes a lock for the two calls.
func ExampleSemaphore_SetLimit() {
	ctx, s, stop := exampleSession()
	defer stop()
	sem, err := zklock.NewSemaphore(s, "/semaphores/imports", 3, zklock.WithSharedLimit("/semaphores/imports/limit"))
	if err != nil {
		log.Fatal(err)
	}
	m, err := zklock.NewMutex(s, "/locks/imports-limit")
	if err != nil {
		log.Fatal(err)
	}
	err = m.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
		n, err := sem.Limit(ctx)
		if err != nil {
			return err
		}
		return sem.SetLimit(ctx, n+1)
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sem.Limit(ctx))
	fmt.Println(sem.SetLimit(ctx, -1))
	// Output:
	// 4 <nil>
	// zklock: set limit /semaphores/imports: a limit of -1 permits: give 0 to 16777216
}

// If no client has created the node of the limit yet, Limit returns the number that acquires begin
// with.
func ExampleSemaphore_Limit() {
	ctx, s, stop := exampleSession()
	defer stop()
	sem, err := zklock.NewSemaphore(s, "/semaphores/imports", 3, zklock.WithSharedLimit("/semaphores/imports/limit"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sem.Limit(ctx))
	if err := sem.SetLimit(ctx, 0); err != nil { // a pause: nobody else is granted
		log.Fatal(err)
	}
	fmt.Println(sem.Limit(ctx))
	// Output:
	// 3 <nil>
	// 0 <nil>
}

// A write to ZooKeeper that is executed only while the hold has all its permits.
func ExampleHold_Checks() {
	ctx, s, stop := exampleSession()
	defer stop()
	if _, err := s.Conn().Create("/report", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	sem, _ := zklock.NewSemaphore(s, "/semaphores/imports", 3)
	hold, err := sem.Acquire(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	write := func() error {
		var ops []any
		for _, check := range hold.Checks() {
			ops = append(ops, check)
		}
		ops = append(ops, &zk.SetDataRequest{Path: "/report", Data: []byte("done"), Version: -1})
		_, err := s.Conn().Multi(ops...)
		return err
	}
	fmt.Println(write())
	_ = hold.Release(ctx)
	fmt.Println(write())
	// Output:
	// <nil>
	// zk: node does not exist
}

// A function that takes a Lock works with each recipe.
func ExampleLock() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, _ := zklock.NewMutex(s, "/locks/nightly")
	rw, _ := zklock.NewRWMutex(s, "/locks/prices")
	sem, _ := zklock.NewSemaphore(s, "/semaphores/imports", 3)
	for _, lock := range []zklock.Lock{m, rw.ReadLock(), sem.Permits(1)} {
		err := lock.TryDo(ctx, func(context.Context, *zklock.Hold) error {
			fmt.Println("under", lock.Path())
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// under /locks/nightly
	// under /locks/prices
	// under /semaphores/imports
}
