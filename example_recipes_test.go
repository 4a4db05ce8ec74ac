package zklock_test

// The recipes of docs/recipes.md: each is a function to copy.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock"
)

// report stands for the work of the recipes.
func report(ctx context.Context, what string, token int64) error {
	fmt.Printf("%s; token %t, still held %t\n", what, token > 0, ctx.Err() == nil)
	return nil
}

// One process at a time.
func chargeOrders(ctx context.Context, s *zklock.Session) error {
	m, err := zklock.NewMutex(s, "/locks/orders")
	if err != nil {
		return err
	}
	return m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		return report(ctx, "charge the orders", hold.Token())
	})
}

// A mutex, without a wait.
func chargeUnlessBusy(ctx context.Context, s *zklock.Session) error {
	m, err := zklock.NewMutex(s, "/locks/orders")
	if err != nil {
		return err
	}
	err = m.TryDo(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		return report(ctx, "charge if no other process does", hold.Token())
	})
	if errors.Is(err, zklock.ErrNotAcquired) {
		return nil // another process charges them
	}
	return err
}

// Many goroutines of one process.

// turns lets the goroutines of a process take turns under one hold, up to 100 of them.
type turns struct {
	lock    *zklock.Mutex
	waiting atomic.Int32
	mu      sync.Mutex // locked by the goroutine whose turn it is; it guards the fields below
	hold    *zklock.Hold
	n       int
}

func (t *turns) do(ctx context.Context, f func(ctx context.Context, hold *zklock.Hold) error) (err error) {
	t.waiting.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting.Add(-1)
	if t.hold == nil {
		if t.hold, err = t.lock.Acquire(ctx); err != nil {
			return err
		}
		t.n = 0
	}
	err = f(t.hold.Context(), t.hold)
	if t.n++; t.n == 100 || t.waiting.Load() == 0 || t.hold.Err() != nil {
		err = errors.Join(err, t.hold.Release(ctx))
		t.hold = nil
	}
	return err
}

// Many readers, or one writer.
func updatePrices(ctx context.Context, s *zklock.Session) error {
	prices, err := zklock.NewRWMutex(s, "/locks/prices")
	if err != nil {
		return err
	}
	err = prices.WriteLock().Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		return report(ctx, "write the prices", hold.Token())
	})
	if err != nil {
		return err
	}
	return prices.ReadLock().Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		return report(ctx, "read the prices", hold.Token())
	})
}

// At most three imports at a time.
func importFile(ctx context.Context, s *zklock.Session, large bool) error {
	imports, err := zklock.NewSemaphore(s, "/semaphores/imports", 3)
	if err != nil {
		return err
	}
	permits := 1
	if large {
		permits = 2
	}
	return imports.Do(ctx, permits, func(ctx context.Context, hold *zklock.Hold) error {
		return report(ctx, fmt.Sprint("import with permits: ", permits), hold.Token())
	})
}

// Two accounts, or neither.
func transfer(ctx context.Context, s *zklock.Session, from, to string) error {
	a, err := zklock.NewMutex(s, zklock.PathOf("/locks/accounts", from), zklock.WithContainer())
	if err != nil {
		return err
	}
	b, err := zklock.NewMutex(s, zklock.PathOf("/locks/accounts", to), zklock.WithContainer())
	if err != nil {
		return err
	}
	both, err := zklock.NewMulti(a, b)
	if err != nil {
		return err
	}
	return both.Do(ctx, func(ctx context.Context, hold *zklock.MultiHold) error {
		return report(ctx, "transfer", hold.Holds()[0].Token())
	})
}

// One replica leads, and another takes over.
func leadBilling(ctx context.Context, s *zklock.Session) error {
	e, err := zklock.NewElection(s, "/elections/billing", zklock.WithData([]byte("replica-1")))
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		if err := report(ctx, "lead", hold.Token()); err != nil {
			return err // another replica may lead now
		}
		<-ctx.Done()
		return nil
	})
}

// startLatch makes e a candidate until ctx ends. Receive from terms to wait for the leadership: the
// context of each hold is one term.
func startLatch(ctx context.Context, e *zklock.Election) (terms <-chan *zklock.Hold, ended <-chan error) {
	holds, result := make(chan *zklock.Hold), make(chan error, 1)
	go func() {
		result <- e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
			select {
			case holds <- hold:
			case <-ctx.Done():
			}
			<-ctx.Done() // when this function returns, the next candidate leads
			return nil
		})
	}()
	return holds, result
}

// Once a day, on one of all hosts.
func invoice(ctx context.Context, s *zklock.Session, day string) error {
	m, err := zklock.NewMutex(s, "/locks/invoices")
	if err != nil {
		return err
	}
	ran, err := m.Once(ctx, day, func(ctx context.Context, hold *zklock.Hold) error {
		return report(ctx, "send the invoices of "+day, hold.Token())
	})
	if err == nil && !ran {
		fmt.Println("sent before:", day)
	}
	return err
}

// Once an hour, with clocks that differ by less than a minute.
func hourly(ctx context.Context, s *zklock.Session) error {
	m, err := zklock.NewMutex(s, "/locks/hourly", zklock.WithMinHold(time.Minute))
	if err != nil {
		return err
	}
	err = m.TryDo(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		return report(ctx, "hourly", hold.Token())
	})
	if errors.Is(err, zklock.ErrNotAcquired) {
		return nil // another host runs it, or has just run it
	}
	return err
}

func Example_recipes() {
	ctx, s, stop := exampleSession()
	defer stop()
	err := errors.Join(
		chargeOrders(ctx, s), chargeUnlessBusy(ctx, s), updatePrices(ctx, s),
		importFile(ctx, s, false), importFile(ctx, s, true), transfer(ctx, s, "7", "3"),
		invoice(ctx, s, "2026-07-01"), invoice(ctx, s, "2026-07-01"), hourly(ctx, s), hourly(ctx, s))
	leading, end := context.WithTimeout(ctx, time.Second)
	defer end()
	if err := errors.Join(err, leadBilling(leading, s)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// charge the orders; token true, still held true
	// charge if no other process does; token true, still held true
	// write the prices; token true, still held true
	// read the prices; token true, still held true
	// import with permits: 1; token true, still held true
	// import with permits: 2; token true, still held true
	// transfer; token true, still held true
	// send the invoices of 2026-07-01; token true, still held true
	// sent before: 2026-07-01
	// hourly; token true, still held true
	// lead; token true, still held true
}

func Example_turns() {
	ctx, s, stop := exampleSession()
	defer stop()
	m, err := zklock.NewMutex(s, "/locks/visits")
	if err != nil {
		log.Fatal(err)
	}
	t := &turns{lock: m}
	var all sync.WaitGroup
	done, holds := 0, map[int64]bool{}
	for range 250 {
		all.Go(func() {
			err := t.do(ctx, func(_ context.Context, hold *zklock.Hold) error {
				for done == 0 && t.waiting.Load() < 249 { // the first turn lasts until all others wait
					time.Sleep(time.Millisecond)
				}
				done++
				holds[hold.Token()] = true
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	fmt.Println(done, "turns under", len(holds), "holds; held", m.Held())
	// Output: 250 turns under 3 holds; held false
}

func Example_latch() {
	ctx, s, stop := exampleSession()
	defer stop()
	e, err := zklock.NewElection(s, "/elections/latch", zklock.WithLatchNodes())
	if err != nil {
		log.Fatal(err)
	}
	candidacy, end := context.WithCancel(ctx)
	defer end()
	terms, ended := startLatch(candidacy, e)
	hold := <-terms // LeaderLatch.await
	fmt.Println("leads", e.Hold() != nil, hold.Err())
	end() // LeaderLatch.close
	fmt.Println(<-ended, e.Hold() != nil)
	// Output:
	// leads true <nil>
	// <nil> false
}
