package zklock_test

// The examples of several locks that need more than a line, which are also the documentation's.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// metered is a lock with a metric around it: how long its callers waited.
type metered struct {
	zklock.Lock
	waited func(path string, d time.Duration, err error)
}

// Unwrap lets NewMulti find the lock. Without it, NewMulti would refuse the type.
func (l metered) Unwrap() zklock.Lock { return l.Lock }

func (l metered) Acquire(ctx context.Context) (*zklock.Hold, error) {
	began := time.Now()
	hold, err := l.Lock.Acquire(ctx)
	l.waited(l.Path(), time.Since(began), err)
	return hold, err
}

// A Multi takes locks that a type of yours wraps, and calls its methods.
func ExampleNewMulti() {
	ctx, s, stop := exampleSession()
	defer stop()
	from, _ := zklock.NewMutex(s, "/locks/accounts/7")
	to, _ := zklock.NewMutex(s, "/locks/accounts/3")
	observe := func(path string, d time.Duration, err error) { fmt.Println("waited for", path, d < time.Minute, err) }
	both, err := zklock.NewMulti(metered{from, observe}, metered{to, observe})
	if err != nil {
		log.Fatal(err)
	}
	err = both.Do(ctx, func(context.Context, *zklock.MultiHold) error { return nil })
	fmt.Println(err)
	// Output:
	// waited for /locks/accounts/3 true <nil>
	// waited for /locks/accounts/7 true <nil>
	// <nil>
}

// A write that ZooKeeper does only while both locks are held.
func ExampleMultiHold() {
	ctx, s, stop := exampleSession()
	defer stop()
	if _, err := s.Conn().Create("/report", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	a, _ := zklock.NewMutex(s, "/locks/a")
	b, _ := zklock.NewMutex(s, "/locks/b")
	both, err := zklock.NewMulti(a, b)
	if err != nil {
		log.Fatal(err)
	}
	hold, err := both.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	ops := []any{&zk.SetDataRequest{Path: "/report", Data: []byte("done"), Version: -1}}
	for _, h := range hold.Holds() {
		ops = append(ops, h.Checks()[0])
	}
	_, err = s.Conn().Multi(ops...)
	fmt.Println(err)
	_ = hold.Holds()[1].Release(ctx) // one of them is enough
	_, err = s.Conn().Multi(ops...)
	fmt.Println(err, errors.Is(context.Cause(hold.Context()), zklock.ErrNotHeld))
	_ = hold.Release(ctx)
	// Output:
	// <nil>
	// zk: node does not exist true
}
