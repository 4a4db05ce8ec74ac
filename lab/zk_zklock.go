package main

// The library of this repository.

import (
	"context"
	"errors"
	"strings"

	"github.com/zklock/zklock"
)

func init() {
	register(System{
		Name: "zklock", Title: "**zklock**", Client: "this repository",
		Promises: "The holder is told before the servers give the lock away, each grant has a larger token, and grants follow the queue.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true,
		Left: zkLeft, Break: zkBreak,
		Open: func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			s, err := zklockSession(ctx, addrs, o)
			if err != nil {
				return nil, err
			}
			m, err := zklock.NewMutex(s, "/"+lock)
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return zklockLock{s, m}, nil
		},
	})
}

func zklockSession(ctx context.Context, addrs []string, o Options) (*zklock.Session, error) {
	lease := zklock.SingleServerLease()
	if o.Size > 1 {
		lease = zklock.QuorumLease(2 * o.Tick)
	}
	return zklock.Connect(ctx, strings.Join(addrs, ","), zklock.WithSessionTimeout(o.TTL), zklock.WithLease(lease), zklock.WithLogger(noLog))
}

type zklockLock struct {
	s *zklock.Session
	m zklock.Lock
}

func (l zklockLock) Acquire(ctx context.Context) (Hold, error) {
	h, err := l.m.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return zklockHold{h}, nil
}

func (l zklockLock) Close() error { return l.s.Close() }

type zklockHold struct{ *zklock.Hold }

func (h zklockHold) Token() (int64, bool) { return h.Hold.Token(), true }
func (h zklockHold) Look() error          { return h.Err() }
