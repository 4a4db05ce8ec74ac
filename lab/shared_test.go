package main

// These tests check every lock that several clients hold, on its real server: which clients share,
// and the result of a downgrade.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// share takes the lock as a reader, which must be possible soon.
func share(t *testing.T, l Lock) Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	h, err := l.(Sharer).AcquireShared(ctx)
	require.NoError(t, err)
	return h
}

// kept requires that the lock is not granted, whatever the error, for as long as this asks.
func kept(t *testing.T, acquire func(context.Context) (Hold, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := acquire(ctx)
	require.Error(t, err)
	require.Error(t, ctx.Err(), "it waits for as long as it may")
}

func release(t *testing.T, holds ...Hold) {
	t.Helper()
	for _, h := range holds {
		require.NoError(t, h.Release(t.Context()))
	}
}

func TestShared_ReadersTogether_AWriterAlone(t *testing.T) {
	shared(t, readers, func(t *testing.T, s *System, open func(who string) Lock) {
		one, two, writer := open("one"), open("two"), open("writer")
		a, b := share(t, one), share(t, two)
		kept(t, writer.Acquire)
		release(t, a)
		kept(t, open("another writer").Acquire)
		release(t, b)
		if s.Name == "etcd-readers" {
			return // a call for it that was given up waits on, and is granted
		}
		w := acquire(t, writer)
		kept(t, one.(Sharer).AcquireShared)
		if !s.Downgrades {
			release(t, w)
			return
		}
		r, err := w.(Downgrader).Share(t.Context())
		require.NoError(t, err)
		release(t, w)
		b = share(t, two) // shared with it
		kept(t, writer.Acquire)
		release(t, b, r)
		release(t, acquire(t, writer))
	})
}

func TestShared_TwoPermits_ForTwo(t *testing.T) {
	shared(t, permits, func(t *testing.T, _ *System, open func(who string) Lock) {
		one, two, three := open("one"), open("two"), open("three")
		a, b := acquire(t, one), acquire(t, two)
		kept(t, three.Acquire)
		release(t, a)
		c := acquire(t, three)
		kept(t, one.Acquire)
		release(t, b, c)
		release(t, acquire(t, one))
	})
}

// shared runs a test with each system of a kind that is in Go.
func shared(t *testing.T, k kind, test func(t *testing.T, s *System, open func(who string) Lock)) {
	for _, s := range systems {
		if s.Kind != k || s.External != nil || s.Checks {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			c := serve(t, s.Server, Plan{Size: 1, TTL: time.Minute, Tick: zkTick})
			test(t, s, func(who string) Lock {
				return client(t, s.Name, c.Addrs(), Options{Client: who, TTL: 20 * time.Second, Size: 1, Tick: zkTick})
			})
		})
	}
}

// The locks that are not in Go are clients' processes: their output is checked in the same way.
func TestShared_OtherLanguages_ShareAsTheySay(t *testing.T) {
	for _, name := range []string{"curator", "curator-new", "kazoo"} {
		t.Run(name, func(t *testing.T) {
			s := settings{Staged: 1, Raced: 1, Seed: 1, TTL: 2 * time.Second, Jobs: 6, Log: t.Output()}
			require.NoError(t, s.choose(name+"-(readers|permits)/(crash-.*|downgrade)", false))
			for i, e := range s.Experiments {
				twice := *e
				twice.Runs = min(twice.Runs, 2)
				s.Experiments[i] = &twice
			}
			l, err := newLab(s)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.close()) }()
			require.NoError(t, l.run(t.Context()))
			for _, r := range l.sorted() {
				require.Empty(t, r.Failed, r.Experiment)
				if r.Missing {
					t.Skip(r.Skipped)
				}
				if r.Skipped != "" {
					require.Equal(t, "downgrade", r.Experiment)
					continue
				}
				require.NotEmpty(t, r.Outcomes)
				if r.Experiment != "downgrade" {
					require.Equal(t, r.n(), r.in("granted"), r.Experiment)
					require.Zero(t, r.in("doubles"), r.Experiment)
				}
			}
		})
	}
}
