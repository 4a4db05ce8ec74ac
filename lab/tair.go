package main

// Tair's put with a version. Tair cannot be installed, so this is a stand-in: scripts on Redis with
// the rules of TairString's EXSET, EXGET and EXCAD
// (https://www.alibabacloud.com/help/en/tair/developer-reference/exstring,
// https://github.com/tair-opensource/TairString). A put names the version that it replaces, and is
// rejected if that is not the present one. The version counts up. A key expires with its version,
// and the next key begins at 1.

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// Returns the new version, or -1 if the present one differs. Version 0 means no key. A time of
	// 0 means none.
	tairPut = redis.NewScript(`
		local version = tonumber(redis.call("HGET", KEYS[1], "version") or 0)
		if version ~= tonumber(ARGV[1]) then return -1 end
		redis.call("HSET", KEYS[1], "version", version + 1, "value", ARGV[2])
		if tonumber(ARGV[3]) > 0 then redis.call("PEXPIRE", KEYS[1], ARGV[3]) end
		return version + 1`)
	// Returns 1, or -1 if the present version differs.
	tairDelete = redis.NewScript(`
		if redis.call("HGET", KEYS[1], "version") ~= ARGV[1] then return -1 end
		return redis.call("DEL", KEYS[1])`)
)

// tairLock has two recipes: the key expires, or it remains and its value has the end of the lock's
// time, by the clients' clocks.
type tairLock struct {
	client    *redis.Client
	key, name string
	ttl       time.Duration
	stays     bool
}

func (l *tairLock) Acquire(ctx context.Context) (Hold, error) {
	var got int64
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		version, free, err := l.read(ctx)
		if err != nil || !free {
			return false, err
		}
		value, px := l.name, l.ttl.Milliseconds()
		if l.stays {
			value, px = fmt.Sprintf("%d %s", time.Now().Add(l.ttl).UnixMilli(), l.name), 0
		}
		got, err = l.put(ctx, version, value, px)
		return got > 0, err
	})
	if err != nil {
		return nil, err
	}
	return &tairHold{l, got}, nil
}

func (l *tairLock) read(ctx context.Context) (version int64, free bool, err error) {
	has, err := l.client.HMGet(ctx, l.key, "version", "value").Result()
	if err != nil || has[0] == nil {
		return 0, true, err
	}
	version, err = strconv.ParseInt(has[0].(string), 10, 64)
	until, _, timed := strings.Cut(has[1].(string), " ")
	if ms, err := strconv.ParseInt(until, 10, 64); l.stays && err == nil && timed {
		return version, time.Now().UnixMilli() > ms, nil
	}
	return version, has[1] == "", err
}

func (l *tairLock) put(ctx context.Context, version int64, value string, px int64) (int64, error) {
	return tairPut.Run(ctx, l.client, []string{l.key}, version, value, px).Int64()
}

func (l *tairLock) Close() error { return l.client.Close() }

type tairHold struct {
	*tairLock
	version int64
}

func (h *tairHold) Token() (int64, bool)  { return h.version, true }
func (h *tairHold) Lost() <-chan struct{} { return nil }

func (h *tairHold) Release(ctx context.Context) error {
	var n int64
	var err error
	if h.stays {
		n, err = h.put(ctx, h.version, "", 0)
	} else {
		n, err = tairDelete.Run(ctx, h.client, []string{h.key}, h.version).Int64()
	}
	if err == nil && n < 0 {
		return errNotOurs
	}
	return err
}

func init() {
	for _, stays := range []bool{false, true} {
		s := System{
			Name: "tair-expiring", Title: "Tair's put with a version (a stand-in on Redis), the key expires", Client: "written here, on " + library("github.com/redis/go-redis/v9"),
			Promises: "One holder while its time lasts. The version goes with the key, so that it tells two holders apart only if both put on one key.",
			Server:   redisServers, Sizes: []int{1}, Expires: true,
			Only: []string{"crash", "cut", "stop", "delay", "flight", "server-crash", "clock-1", "client-clock", "late", "late-step", "long"},
			Left: func(ctx context.Context, addrs []string, lock string) (int, error) {
				client := redisClient(addrs[0])
				defer client.Close()
				value, err := client.HGet(ctx, lock, "value").Result()
				if err == redis.Nil || err == nil && value == "" {
					return 0, nil
				}
				return 1, err
			},
			Open: func(_ context.Context, addrs []string, lock string, o Options) (Lock, error) {
				return &tairLock{redisClient(addrs[0]), lock, o.Client, o.TTL, stays}, nil
			},
		}
		if stays {
			s.Name, s.Title = "tair", "Tair's put with a version (a stand-in on Redis), the time is in the value"
			s.Promises = "One holder while its time lasts by the clients' clocks, with a version that counts up and that a put at the resource can name."
		}
		register(s)
	}
}
