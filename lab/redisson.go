package main

// Redisson's recipe, from its documented behaviour, with scripts written here: a hash with a count
// for each owner, a watchdog that extends it each third of its time, and a channel that notifies
// waiters of a release. A lost message costs the rest of the lock's time. A watchdog that finds the
// lock deleted stops without notifying its client.

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// redissonScripts are run with the lock's keys, the owner, its time and, for a lock for readers and
// writers, the mode.
type redissonScripts struct {
	take   *redis.Script // returns how long to wait, in ms, or -1 if the caller has it now
	free   *redis.Script // returns -1 if the caller did not have it
	extend *redis.Script // returns 1, or 0 if the caller does not have it; nil without a watchdog
}

var (
	// Returns how long the holder still has, in ms, or -1 if the caller has the lock now.
	redissonTake = redis.NewScript(`
		local mine = redis.call("HEXISTS", KEYS[1], ARGV[1]) == 1
		if not mine and redis.call("EXISTS", KEYS[1]) == 1 then return math.max(redis.call("PTTL", KEYS[1]), 0) end
		redis.call("HINCRBY", KEYS[1], ARGV[1], 1)
		redis.call("PEXPIRE", KEYS[1], ARGV[2])
		return -1`)
	// Returns how often the caller still holds, or -1 if it did not hold.
	redissonFree = redis.NewScript(`
		if redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 then return -1 end
		local left = redis.call("HINCRBY", KEYS[1], ARGV[1], -1)
		if left > 0 then redis.call("PEXPIRE", KEYS[1], ARGV[2]) return left end
		redis.call("DEL", KEYS[1])
		redis.call("PUBLISH", KEYS[2], "free")
		return 0`)
	// Returns 1, or 0 if the caller does not hold.
	redissonExtend = redis.NewScript(`
		if redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 then return 0 end
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])`)
)

type redissonLock struct {
	client  *redis.Client
	scripts redissonScripts
	mode    string   // "w", or "r" for a reader
	keys    []string // the hash, the channel
	owner   string   // random: a client that is started again is another owner
	ttl     time.Duration
	holds   int
	ctx     context.Context // ends with Close
	close   context.CancelFunc
	stopDog context.CancelFunc // while holds > 0
	dogs    sync.WaitGroup
}

func (l *redissonLock) Acquire(ctx context.Context) (Hold, error) {
	left, err := l.take(ctx)
	if err == nil && left >= 0 {
		err = l.wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	if l.holds++; l.holds == 1 && l.scripts.extend != nil {
		var dog context.Context
		dog, l.stopDog = context.WithCancel(l.ctx)
		l.dogs.Go(func() { l.extend(dog) })
	}
	return &redissonHold{l, l.mode}, nil
}

func (l *redissonLock) take(ctx context.Context) (time.Duration, error) {
	ms, err := l.scripts.take.Run(ctx, l.client, l.keys, l.owner, l.ttl.Milliseconds(), l.mode).Int64()
	return time.Duration(ms) * time.Millisecond, err
}

// wait subscribes and tries, and then tries again at each message and when the holder's time should
// have expired.
func (l *redissonLock) wait(ctx context.Context) error {
	sub := l.client.Subscribe(ctx, l.keys[1])
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return err
	}
	for busy := false; ; busy = true {
		left, err := l.take(ctx)
		switch {
		case err != nil && busy && ctx.Err() != nil:
			return errBusy
		case err != nil:
			return err
		case left < 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return errBusy
		case <-sub.Channel():
		case <-time.After(left + time.Millisecond):
		}
	}
}

// extend is the watchdog.
func (l *redissonLock) extend(ctx context.Context) {
	every := time.NewTicker(l.ttl / 3)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		n, err := l.scripts.extend.Run(ctx, l.client, l.keys[:1], l.owner, l.ttl.Milliseconds()).Int()
		if err == nil && n == 0 {
			return
		}
	}
}

func (l *redissonLock) Close() error {
	l.close()
	err := l.client.Close()
	l.dogs.Wait()
	return err
}

type redissonHold struct {
	*redissonLock
	mode string
}

func (h *redissonHold) Token() (int64, bool)  { return 0, false }
func (h *redissonHold) Lost() <-chan struct{} { return nil }

func (h *redissonHold) Release(ctx context.Context) error {
	if h.holds--; h.holds == 0 && h.stopDog != nil {
		h.stopDog()
	}
	return h.free(ctx, h.mode)
}

func (l *redissonLock) free(ctx context.Context, mode string) error {
	n, err := l.scripts.free.Run(ctx, l.client, l.keys, l.owner, l.ttl.Milliseconds(), mode).Int()
	if err == nil && n < 0 {
		return errNotOurs
	}
	return err
}

func openRedisson(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
	return redissonScripts{redissonTake, redissonFree, redissonExtend}.open(ctx, addrs, lock, o)
}

func (s redissonScripts) open(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
	l := &redissonLock{client: redisClient(addrs[0]), scripts: s, mode: "w", keys: []string{lock, lock + "-channel"}, owner: rand.Text(), ttl: o.TTL}
	l.ctx, l.close = context.WithCancel(context.Background())
	return l, nil
}

func init() {
	register(System{
		Name: "redisson", Title: "Redis, Redisson's way", Client: "written here, on " + library("github.com/redis/go-redis/v9"),
		Promises: "One holder while its watchdog extends; re-entry is counted. A server that forgets frees the lock.",
		Server:   redisServers, Sizes: []int{1}, Expires: true, Renews: true, Open: openRedisson, Left: leftInRedis(""),
		Break: func(ctx context.Context, addrs []string, lock string) (bool, error) {
			l, err := openRedisson(ctx, addrs, lock, Options{TTL: time.Second})
			if err != nil {
				return false, err
			}
			defer l.Close()
			err = l.(*redissonLock).free(ctx, "w")
			return err == nil, ignore(err, errNotOurs)
		},
	})
}
