package main

// These tests check every system in Go except ZooKeeper's on its real server: a held lock is not
// granted to another client, and the promises of Hold and System. The experiments count its
// behaviour under a fault.

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serve starts servers for a test, and ends them after it.
func serve(t *testing.T, kind *ServerKind, p Plan) Cluster {
	t.Helper()
	p.Dir = t.TempDir()
	c, err := kind.Start(t.Context(), p)
	installed(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	t.Log(c.Version())
	return c
}

// installed ends the test if there is an error: it skips if the error is a missing program, unless
// ZKLOCK_REQUIRE=1.
func installed(t *testing.T, err error) {
	t.Helper()
	var missing *Missing
	if errors.As(err, &missing) && os.Getenv("ZKLOCK_REQUIRE") != "1" {
		t.Skip(missing)
	}
	require.NoError(t, err)
}

// client opens a client of a system, with the test's name as the lock's.
func client(t *testing.T, name string, addrs []string, o Options) Lock {
	t.Helper()
	s, err := find(name)
	require.NoError(t, err)
	l, err := s.Open(t.Context(), addrs, t.Name(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() }) // some tests close it before
	return l
}

// acquire takes the lock, which must be possible soon.
func acquire(t *testing.T, l Lock) Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	h, err := l.Acquire(ctx)
	require.NoError(t, err)
	return h
}

// excluded requires that another client holds, for as long as this asks.
func excluded(t *testing.T, l Lock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, err := l.Acquire(ctx)
	require.ErrorIs(t, err, errBusy)
}

func TestSystems_OneHolds(t *testing.T) {
	const ttl = 20 * time.Second // beyond the test
	for _, kind := range []struct {
		kind    *ServerKind
		systems map[string]broken
	}{
		{redisServers, map[string]broken{
			"redis-setnx-expire": no, "redis-setnx-getset": no, "redis-del": yes, "redis-look-del": no,
			"redis-px": none, "redis-px-watchdog": none, "redisson": no, "redlock": no,
			"tair": none, "tair-expiring": none,
		}},
		{redisWithReplica, map[string]broken{"redis-px-replica": none}},
		{postgresServers, map[string]broken{
			"postgres-row": no, "postgres-row-expiry": no, "postgres-version": none, "postgres-for-update": none, "postgres-advisory": no,
		}},
		{mariadbServers, map[string]broken{"mariadb-for-update": none, "mariadb-get-lock": no}},
		{etcdServers, map[string]broken{"etcd": none}},
		{consulServers, map[string]broken{"consul": yes, "consul-delay": yes}},
	} {
		t.Run(kind.kind.Name, func(t *testing.T) {
			size := 1
			for name := range kind.systems {
				s, err := find(name)
				require.NoError(t, err)
				require.Same(t, kind.kind, s.Server)
				size = max(size, s.Sizes[len(s.Sizes)-1])
			}
			c := serve(t, kind.kind, Plan{Size: size, TTL: ttl})
			for name, b := range kind.systems {
				s, err := find(name)
				require.NoError(t, err)
				t.Run(name, func(t *testing.T) { oneHolds(t, s, c.Addrs()[:s.Sizes[0]], ttl, b) })
			}
			t.Run("all are here", func(t *testing.T) {
				for _, s := range systems {
					if s.Server == kind.kind && s.Kind == exclusive {
						require.Contains(t, kind.systems, s.Name)
					}
				}
			})
		})
	}
}

// broken is the expected result of System.Break.
type broken string

const (
	yes  broken = "freed"
	no   broken = "refused"
	none broken = "there is no call for it"
)

func oneHolds(t *testing.T, s *System, addrs []string, ttl time.Duration, b broken) {
	left := func() int {
		n, err := s.Left(t.Context(), addrs, t.Name())
		require.NoError(t, err)
		return n
	}
	first := client(t, s.Name, addrs, Options{Client: "first", TTL: ttl})
	second := client(t, s.Name, addrs, Options{Client: "second", TTL: ttl})

	h := acquire(t, first)
	excluded(t, second)
	copies := 1
	if s.Server == redisServers || s.Server == redisWithReplica {
		copies = len(addrs) // each server has the key
	}
	require.Eventually(t, func() bool { return copies == left() }, 10*time.Second, 10*time.Millisecond) // a replica follows later
	token, hasToken := h.Token()
	select {
	case <-h.Lost():
		t.Fatal("it is not lost")
	default:
	}

	if s.Break == nil {
		require.Equal(t, none, b)
	} else {
		freed, err := s.Break(t.Context(), addrs, t.Name())
		require.NoError(t, err)
		require.Equal(t, b == yes, freed)
		if freed {
			h = acquire(t, first)
		}
		excluded(t, second)
	}

	require.NoError(t, h.Release(t.Context()))
	h = acquire(t, second)
	next, nextToo := h.Token()
	require.Equal(t, hasToken, nextToo)
	if s.Name == "tair-expiring" {
		require.Equal(t, token, next, "the version begins anew")
	} else if hasToken {
		require.Greater(t, next, token)
	}
	excluded(t, first)
	require.NoError(t, h.Release(t.Context()))
	require.Eventually(t, func() bool { return left() == 0 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
}

func TestServers_StopAndCont(t *testing.T) {
	for _, kind := range []*ServerKind{redisServers, postgresServers, mariadbServers, etcdServers} {
		t.Run(kind.Name, func(t *testing.T) {
			c := serve(t, kind, Plan{Size: 1})
			var s *System
			for _, s = range systems {
				if s.Server == kind && s.Sizes[0] == 1 {
					break
				}
			}
			l := client(t, s.Name, c.Addrs(), Options{Client: "one", TTL: time.Minute})
			require.NoError(t, acquire(t, l).Release(t.Context())) // its connection exists
			require.NoError(t, c.Stop(0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx)
			require.Error(t, err)
			require.NoError(t, c.Cont(0))
			again := client(t, s.Name, c.Addrs(), Options{Client: "one again", TTL: time.Minute})
			require.NotNil(t, again)
			require.NoError(t, c.Kill(0))
			_, err = net.Dial("tcp", c.Addrs()[0])
			require.Error(t, err)
			require.NoError(t, c.Restart(0))
			require.NotContains(t, c.Pids(), 0)
		})
	}
}

func TestClocks_Jump(t *testing.T) {
	clocks, err := newClocks(t.Context(), t.TempDir(), 1)
	installed(t, err)
	c := serve(t, redisServers, Plan{Size: 1, Env: clocks.env})
	s := redisClient(c.Addrs()[0])
	defer s.Close()
	for _, d := range []time.Duration{0, 90*time.Minute + 999999*time.Microsecond, -(90*time.Minute + 999999*time.Microsecond), 0} {
		require.NoError(t, clocks.jump(0, d))
		earliest := time.Now().Add(d)
		var now time.Time
		require.Eventually(t, func() bool { // the server keeps the time of its last round for a moment
			var err error
			now, err = s.Time(t.Context()).Result()
			return err == nil && !now.Before(earliest.Truncate(time.Microsecond)) && !now.After(time.Now().Add(d))
		}, 10*time.Second, time.Millisecond, d)
	}
}
