package main

// Chubby's two remedies against a late write, on zklock: the lock has no holder for a while after a
// holder has failed, or the resource asks about each write. Neither system shows its token, so the
// results show the effect of the remedy alone.

import (
	"context"
	"errors"
	"time"

	"github.com/zklock/zklock"
)

const lockDelay = 2 * time.Second

func init() {
	open := func(hold func(zklockPermit) Hold, opts ...zklock.MutexOption) func(context.Context, []string, string, Options) (Lock, error) {
		return func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			s, err := zklockSession(ctx, addrs, o)
			if err != nil {
				return nil, err
			}
			m, err := zklock.NewMutex(s, "/"+lock, opts...)
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return zklockTokenless{zklockLock{s, m}, hold}, nil
		}
	}
	register(System{
		Name: "zklock-sequencer", Title: "**zklock**, the resource calls `CheckSequencer`", Client: "this repository",
		Promises: "As zklock, and the resource asks the ensemble whether the hold of each write stands.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true, Only: []string{"crash", "cut", "stop", "delay", "flight"}, Left: zkLeft, Open: open(func(h zklockPermit) Hold { return zklockSequenced{h} }),
		Resource: func(ctx context.Context, addrs []string, lock string, o Options) (func(string) (bool, error), func() error, error) {
			s, err := zklockSession(ctx, addrs, o)
			if err != nil {
				return nil, nil, err
			}
			return func(sequencer string) (bool, error) {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				err := s.CheckSequencer(ctx, "/"+lock, sequencer)
				return err == nil, ignore(err, zklock.ErrNotHeld)
			}, s.Close, nil
		},
	})
	register(System{
		Name: "zklock-delay", Title: "**zklock** `WithLockDelay(2s)`", Client: "this repository",
		Promises: "As zklock, and nobody is granted for 2 s after a holder has gone without a release.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true, Delay: lockDelay + time.Second,
		Only: []string{"crash", "cut", "stop", "delay", "flight", "restart"}, Left: zkLeft,
		Open: open(func(h zklockPermit) Hold { return h }, zklock.WithLockDelay(lockDelay)),
	})
}

type zklockTokenless struct {
	zklockLock
	hold func(zklockPermit) Hold
}

func (l zklockTokenless) Acquire(ctx context.Context) (Hold, error) {
	h, err := l.m.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return l.hold(zklockPermit{zklockHold{h}}), nil
}

type zklockSequenced struct{ zklockPermit }

func (h zklockSequenced) Sequenced() string { return h.Hold.Sequencer().String() }
