package main

// Redis as in many tutorials: four locks, each with one mistake, on purpose. The comment at the
// line describes the result of the mistake.

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

type naiveLock struct {
	client     *redis.Client
	key, value string
	ttl        time.Duration
	take       func(context.Context, *naiveLock) (bool, error)
	free       func(context.Context, *naiveLock) error
}

// setnxExpire sets the key, then its time. A client that crashes between the two leaves a key that
// never expires.
func setnxExpire(ctx context.Context, l *naiveLock) (bool, error) {
	l.value = rand.Text()
	ok, err := l.client.SetNX(ctx, l.key, l.value, 0).Result()
	if err != nil || !ok {
		return false, err
	}
	return true, l.client.PExpire(ctx, l.key, l.ttl).Err()
}

// setnxTime stores the end of the lock's time as the value, by the client's own clock. All clients
// that find it expired set their own end: the first one wins, and the other ones have moved the
// winner's end. A client whose clock is ahead takes a lock that is held.
func setnxTime(ctx context.Context, l *naiveLock) (bool, error) {
	l.value = strconv.FormatInt(time.Now().Add(l.ttl).UnixMilli(), 10)
	ok, err := l.client.SetNX(ctx, l.key, l.value, 0).Result()
	if err != nil || ok {
		return ok, err
	}
	seen, err := l.client.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil // released just now
	}
	if err != nil || !over(seen) {
		return false, err
	}
	old, err := l.client.Do(ctx, "GETSET", l.key, l.value).Text()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	return over(old), nil
}

// over reports whether a time has passed by this client's clock. A value that is not a time has
// passed.
func over(ms string) bool {
	t, err := strconv.ParseInt(ms, 10, 64)
	return err != nil || time.Now().UnixMilli() > t
}

// setPX is the correct step: the key, its value and its time at once.
func setPX(ctx context.Context, l *naiveLock) (bool, error) {
	l.value = rand.Text()
	return l.client.SetNX(ctx, l.key, l.value, l.ttl).Result()
}

// del does not check the key: after its own time it deletes the key of the next holder.
func del(ctx context.Context, l *naiveLock) error { return l.client.Del(ctx, l.key).Err() }

// delInTime checks its own clock instead of the key: after a pause before the DEL it behaves like
// del.
func delInTime(ctx context.Context, l *naiveLock) error {
	if over(l.value) {
		return errNotOurs
	}
	return del(ctx, l)
}

// lookThenDel checks the key first, in a separate step: the lock's time may end between the two.
func lookThenDel(ctx context.Context, l *naiveLock) error {
	value, err := l.client.Get(ctx, l.key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if value != l.value {
		return errNotOurs
	}
	return del(ctx, l)
}

// compareAndDel is the correct step: the server compares and deletes at once.
func compareAndDel(ctx context.Context, l *naiveLock) error {
	n, err := compareAndDelScript.Run(ctx, l.client, []string{l.key}, l.value).Int()
	if err == nil && n == 0 {
		return errNotOurs
	}
	return err
}

var (
	compareAndDelScript = redis.NewScript(`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end return redis.call("DEL", KEYS[1])`)
	errNotOurs          = errors.New("the lock is not ours any more")
)

func (l *naiveLock) Acquire(ctx context.Context) (Hold, error) {
	if err := poll(ctx, func(ctx context.Context) (bool, error) { return l.take(ctx, l) }); err != nil {
		return nil, err
	}
	held := *l
	return naiveHold{&held}, nil
}

func (l *naiveLock) Close() error { return l.client.Close() }

type naiveHold struct{ *naiveLock }

func (naiveHold) Token() (int64, bool)                { return 0, false }
func (naiveHold) Lost() <-chan struct{}               { return nil }
func (h naiveHold) Release(ctx context.Context) error { return h.free(ctx, h.naiveLock) }

func init() {
	naive := func(name, title, promises string, take func(context.Context, *naiveLock) (bool, error), free func(context.Context, *naiveLock) error) {
		open := func(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
			return &naiveLock{client: redisClient(addrs[0]), key: lock, ttl: o.TTL, take: take, free: free}, nil
		}
		register(System{
			Name: name, Title: title, Client: "written here, on " + library("github.com/redis/go-redis/v9"), Promises: promises,
			Server: redisServers, Sizes: []int{1}, Expires: true, Open: open, Left: leftInRedis(""),
			Break: func(ctx context.Context, addrs []string, lock string) (bool, error) {
				stranger := &naiveLock{client: redisClient(addrs[0]), key: lock}
				defer stranger.Close()
				err := free(ctx, stranger)
				return err == nil, ignore(err, errNotOurs)
			},
		})
	}
	naive("redis-setnx-expire", "Redis, SETNX then EXPIRE", "Who crashes is freed by the key's time. Not so between the two steps.", setnxExpire, compareAndDel)
	naive("redis-setnx-getset", "Redis, SETNX of a time and GETSET", "A lock whose time is over is taken by one. It takes all clients' clocks to agree.", setnxTime, delInTime)
	naive("redis-del", "Redis, SET NX PX and DEL", "Who crashes is freed by the key's time. It does not say whose key the DEL deletes.", setPX, del)
	naive("redis-look-del", "Redis, SET NX PX, look and DEL", "A release deletes one's own key only. Not so if the time ends between the steps.", setPX, lookThenDel)
}

// ignore returns nil if err is answer, and err otherwise.
func ignore(err, answer error) error {
	if errors.Is(err, answer) {
		return nil
	}
	return err
}
