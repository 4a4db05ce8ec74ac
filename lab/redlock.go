package main

// Redlock: a majority of independent Redis servers, by go-redsync/redsync.

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redlock struct {
	clients []*redis.Client
	sync    *redsync.Redsync
	name    string
	ttl     time.Duration
}

func openRedlock(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
	l := &redlock{name: lock, ttl: o.TTL}
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		// redsync limits each request by a context, but the client observes it only with this
		// setting. Without it, an unresponsive server delays each call by the client's own
		// timeouts.
		client := redisClient(addr)
		l.clients, pools = append(l.clients, client), append(pools, goredis.NewPool(client))
	}
	l.sync = redsync.New(pools...)
	return l, nil
}

func (l *redlock) mutex() *redsync.Mutex {
	return l.sync.NewMutex(l.name, redsync.WithExpiry(l.ttl))
}

// Acquire tries as the library's Lock does, with the library's pauses, but until ctx ends and not
// 32 times.
func (l *redlock) Acquire(ctx context.Context) (Hold, error) {
	m := l.mutex()
	for busy := false; ; {
		err := m.TryLockContext(ctx)
		if err == nil {
			return redlockHold{m}, nil
		}
		if ctx.Err() == nil {
			busy = taken(err)
		} else if busy {
			return nil, errBusy // the response before this one was that another client holds
		} else {
			return nil, err
		}
		select {
		case <-ctx.Done():
			if busy {
				return nil, errBusy
			}
			return nil, err
		case <-time.After(time.Duration(50+rand.IntN(200)) * time.Millisecond):
		}
	}
}

// taken reports whether a server responded that another client holds: one client does, or several
// share the servers and none has a majority.
func taken(err error) bool {
	var all *redsync.ErrTaken
	var one *redsync.ErrNodeTaken
	return errors.As(err, &all) || errors.As(err, &one)
}

func (l *redlock) Close() error {
	var errs []error
	for _, c := range l.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

type redlockHold struct{ m *redsync.Mutex }

func (redlockHold) Token() (int64, bool)  { return 0, false }
func (redlockHold) Lost() <-chan struct{} { return nil }

// Look compares the clock with the end of the lock's time, as the library computes it.
func (h redlockHold) Look() error {
	if time.Now().Before(h.m.Until()) {
		return nil
	}
	return errNotOurs
}

func (h redlockHold) Release(ctx context.Context) error {
	ok, err := h.m.UnlockContext(ctx)
	if ok {
		return nil
	}
	return errors.Join(errNotOurs, err)
}

func init() {
	register(System{
		Name: "redlock", Title: "Redlock", Client: library("github.com/go-redsync/redsync/v4"),
		Promises: "One holder while its time lasts, if all clocks run alike and no server forgets. No token.",
		Server:   redisServers, Sizes: []int{5}, Expires: true, Open: openRedlock, Left: leftInRedis(""),
		Break: func(ctx context.Context, addrs []string, lock string) (bool, error) {
			l, err := openRedlock(ctx, addrs, lock, Options{TTL: time.Second})
			if err != nil {
				return false, err
			}
			defer l.Close()
			ok, err := l.(*redlock).sync.NewMutex(lock, redsync.WithValue("a stranger")).UnlockContext(ctx)
			if taken(err) {
				err = nil // the release was rejected
			}
			return ok, err
		},
	})
}
