package main

// Redis as documented: SET NX PX with a random value, and a script that compares and deletes; by
// bsm/redislock. With a watchdog, which that library leaves to its users, the lock is refreshed
// while the holder lives.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

type pxLock struct {
	client *redis.Client
	key    string
	ttl    time.Duration
	renew  bool
	ctx    context.Context // ends with Close
	close  context.CancelFunc
	dogs   sync.WaitGroup
}

func (l *pxLock) Acquire(ctx context.Context) (Hold, error) {
	var lock *redislock.Lock
	err := poll(ctx, func(ctx context.Context) (ok bool, err error) {
		lock, err = redislock.Obtain(ctx, l.client, l.key, l.ttl, nil)
		return err == nil, ignore(err, redislock.ErrNotObtained)
	})
	if err != nil {
		return nil, err
	}
	h := &pxHold{Lock: lock}
	if l.renew {
		h.lost = make(chan struct{})
		h.ctx, h.stop = context.WithCancel(l.ctx)
		l.dogs.Go(func() { h.watch(l.ttl) })
	}
	return h, nil
}

func (l *pxLock) Close() error {
	l.close()
	err := l.client.Close()
	l.dogs.Wait()
	return err
}

type pxHold struct {
	*redislock.Lock
	ctx  context.Context
	stop context.CancelFunc
	lost chan struct{} // nil without a watchdog
}

// watch refreshes the lock each third of its time. It ends when the lock is lost: Redis reports the
// loss, or no refresh has succeeded for the lock's time by this process's clock.
func (h *pxHold) watch(ttl time.Duration) {
	every := time.NewTicker(ttl / 3)
	defer every.Stop()
	for last := time.Now(); ; {
		select {
		case <-h.ctx.Done():
			return
		case <-every.C:
		}
		asked := time.Now()
		ctx, cancel := context.WithDeadline(h.ctx, last.Add(ttl))
		err := h.Refresh(ctx, ttl, nil)
		cancel()
		switch {
		case err == nil:
			last = asked
		case h.ctx.Err() != nil:
			return
		case errors.Is(err, redislock.ErrNotObtained) || time.Since(last) >= ttl:
			close(h.lost)
			return
		}
	}
}

func (h *pxHold) Token() (int64, bool)  { return 0, false }
func (h *pxHold) Lost() <-chan struct{} { return h.lost }

func (h *pxHold) Release(ctx context.Context) error {
	if h.stop != nil {
		h.stop()
	}
	return h.Lock.Release(ctx)
}

func init() {
	px := func(name, title, promises string, kind *ServerKind, size int, renew bool) {
		register(System{
			Name: name, Title: title, Client: library("github.com/bsm/redislock"), Promises: promises,
			Server: kind, Sizes: []int{size}, Expires: true, Renews: renew,
			Open: func(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
				l := &pxLock{client: redisClient(addrs[0]), key: lock, ttl: o.TTL, renew: renew}
				l.ctx, l.close = context.WithCancel(context.Background())
				return l, nil
			},
			Left: leftInRedis(""), // no Break: the library has no release for a client that did not obtain
		})
	}
	px("redis-px", "Redis, SET NX PX and a script", "One holder while its time lasts. The holder must be done by then: nobody tells it.",
		redisServers, 1, false)
	px("redis-px-watchdog", "Redis, SET NX PX with a watchdog", "One holder while it refreshes. Not if a server forgets or the holder pauses.",
		redisServers, 1, true)
	px("redis-px-replica", "Redis with a replica, SET NX PX with a watchdog", "The same. The replica may lack what was written last.",
		redisWithReplica, 2, true)
}
