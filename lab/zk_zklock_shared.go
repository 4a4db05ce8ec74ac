package main

// This repository's locks that several clients hold.

import (
	"context"
	"errors"

	"github.com/zklock/zklock"
)

func init() {
	register(System{
		Name: "zklock-readers", Title: "**zklock** `RWMutex`", Client: "this repository", Kind: readers,
		Promises: "Readers together, or a writer alone. Who holds is told before another is let in. A writer can become a reader, and no writer comes between.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true, Downgrades: true,
		Open: func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			s, err := zklockSession(ctx, addrs, o)
			if err != nil {
				return nil, err
			}
			rw, err := zklock.NewRWMutex(s, "/"+lock)
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return zklockReaders{zklockLock{s, rw.WriteLock()}, rw}, nil
		},
	})
	register(System{
		Name: "zklock-permits", Title: "**zklock** `Semaphore`", Client: "this repository", Kind: permits,
		Promises: "No more permits than there are. Who holds is told before its permit is given away.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true,
		Open: func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			s, err := zklockSession(ctx, addrs, o)
			if err != nil {
				return nil, err
			}
			sem, err := zklock.NewSemaphore(s, "/"+lock, permits.room())
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return zklockPermits{zklockLock{s, sem.Permits(1)}}, nil
		},
	})
}

type zklockReaders struct {
	zklockLock
	rw *zklock.RWMutex
}

func (l zklockReaders) Acquire(ctx context.Context) (Hold, error) {
	return l.take(ctx, l.rw.WriteLock())
}
func (l zklockReaders) AcquireShared(ctx context.Context) (Hold, error) {
	return l.take(ctx, l.rw.ReadLock())
}

func (l zklockReaders) take(ctx context.Context, side zklock.Lock) (Hold, error) {
	h, err := side.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return zklockReadersHold{zklockHold{h}, l}, nil
}

type zklockReadersHold struct {
	zklockHold
	lock zklockReaders
}

// Share acts for the owner of the writer's hold.
func (h zklockReadersHold) Share(ctx context.Context) (Hold, error) {
	return h.lock.AcquireShared(zklock.WithOwner(ctx, h.Owner()))
}

type zklockPermits struct{ zklockLock }

func (l zklockPermits) Acquire(ctx context.Context) (Hold, error) {
	h, err := l.m.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return zklockPermit{zklockHold{h}}, nil
}

// zklockPermit has no token that a resource could compare: an older permit may be as valid as a
// newer one.
type zklockPermit struct{ zklockHold }

func (zklockPermit) Token() (int64, bool) { return 0, false }
