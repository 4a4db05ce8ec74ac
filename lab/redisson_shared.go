package main

// Redisson's locks that several clients hold, from their documented behaviour
// (https://redisson.pro/docs/data-and-services/locks-and-synchronizers/), with scripts written
// here. RReadWriteLock: a field for each reader and for the writer, with the time until which it
// holds; the watchdog extends its own field. RSemaphore: a number of free permits, without names:
// the permit of a crashed holder is lost. RPermitExpirableSemaphore: a permit is a lease that is
// not extended.

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

const redisNow = `local t = redis.call("TIME") local now = t[1] * 1000 + math.floor(t[2] / 1000) `

var (
	redissonReaders = redissonScripts{
		take: redis.NewScript(redisNow + `
			local wait, all = -1, redis.call("HGETALL", KEYS[1])
			for i = 1, #all, 2 do
				local left, mine = all[i + 1] - now, string.sub(all[i], 2) == ARGV[1]
				local writes = string.sub(all[i], 1, 1) == "w"
				if left <= 0 then redis.call("HDEL", KEYS[1], all[i])
				elseif (ARGV[3] == "w" or writes) and not (mine and writes) then wait = math.max(wait, left) end
			end
			if wait >= 0 then return wait end
			redis.call("HSET", KEYS[1], ARGV[3] .. ARGV[1], now + ARGV[2])
			redis.call("PEXPIRE", KEYS[1], ARGV[2])
			return -1`),
		free: redis.NewScript(`
			local was = redis.call("HDEL", KEYS[1], ARGV[3] .. ARGV[1])
			redis.call("PUBLISH", KEYS[2], "free")
			return was - 1`),
		extend: redis.NewScript(redisNow + `
			local held = 0
			for _, mode in ipairs({"r", "w"}) do
				if redis.call("HEXISTS", KEYS[1], mode .. ARGV[1]) == 1 then
					redis.call("HSET", KEYS[1], mode .. ARGV[1], now + ARGV[2])
					held = redis.call("PEXPIRE", KEYS[1], ARGV[2])
				end
			end
			return held`),
	}
	redissonPermits = redissonScripts{
		take: redis.NewScript(fmt.Sprintf(`
			redis.call("SET", KEYS[1], %d, "NX")
			if tonumber(redis.call("GET", KEYS[1])) < 1 then return 3600000 end
			redis.call("DECR", KEYS[1])
			return -1`, permits.room())),
		free: redis.NewScript(`
			redis.call("INCR", KEYS[1])
			return redis.call("PUBLISH", KEYS[2], "free")`),
	}
	redissonExpiring = redissonScripts{
		take: redis.NewScript(redisNow + fmt.Sprintf(`
			redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
			if redis.call("ZCARD", KEYS[1]) >= %d then return math.max(redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")[2] - now, 0) end
			redis.call("ZADD", KEYS[1], now + ARGV[2], ARGV[1])
			return -1`, permits.room())),
		free: redis.NewScript(`
			local was = redis.call("ZREM", KEYS[1], ARGV[1])
			redis.call("PUBLISH", KEYS[2], "free")
			return was - 1`),
	}
)

type redissonReadersLock struct{ *redissonLock }

func (l redissonReadersLock) Acquire(ctx context.Context) (Hold, error) { return l.take(ctx, "w") }
func (l redissonReadersLock) AcquireShared(ctx context.Context) (Hold, error) {
	return l.take(ctx, "r")
}

func (l redissonReadersLock) take(ctx context.Context, mode string) (Hold, error) {
	l.mode = mode
	h, err := l.redissonLock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return redissonReadersHold{h.(*redissonHold), l}, nil
}

type redissonReadersHold struct {
	*redissonHold
	lock redissonReadersLock
}

func (h redissonReadersHold) Share(ctx context.Context) (Hold, error) {
	return h.lock.AcquireShared(ctx)
}

func init() {
	client := "written here, on " + library("github.com/redis/go-redis/v9")
	register(System{
		Name: "redisson-readers", Title: "Redis, Redisson's way: `RReadWriteLock`", Client: client, Kind: readers,
		Promises: "Readers together, or a writer alone, while their watchdogs extend. A writer can become a reader.",
		Server:   redisServers, Sizes: []int{1}, Expires: true, Renews: true, Downgrades: true,
		Open: func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error) {
			l, err := redissonReaders.open(ctx, addrs, lock, o)
			if err != nil {
				return nil, err
			}
			return redissonReadersLock{l.(*redissonLock)}, nil
		},
	})
	register(System{
		Name: "redisson-permits", Title: "Redis, Redisson's way: `RSemaphore`", Client: client, Kind: permits,
		Promises: "A count. A permit whose holder dies does not come back.",
		Server:   redisServers, Sizes: []int{1}, Renews: true, Open: redissonPermits.open,
	})
	register(System{
		Name: "redisson-expiring", Title: "Redis, Redisson's way: `RPermitExpirableSemaphore`", Client: client, Kind: permits,
		Promises: "A permit for a time, which its holder may extend itself.",
		Server:   redisServers, Sizes: []int{1}, Expires: true, Open: redissonExpiring.open,
	})
}
