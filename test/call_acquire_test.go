package zklock_test

// These tests acquire, try and do when nothing fails (I1, I2).

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
)

// I2, I3: one node, ephemeral, of the current session, under Curator's name. I1: its czxid is the
// token.
func TestAcquire_Free_HoldsOneNode(t *testing.T) {
	srv := target(t)
	s, a, p := connect(t, srv), admin(t, srv), lockPath(t, srv)

	for range 2 { // the first of a session verifies the token, the second takes it from the reply
		h := acquire(t, newMutex(t, s, p))
		require.Equal(t, []string{base(h.Node())}, children(t, a, p))
		require.Regexp(t, `^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-lock-[0-9]{10}$`, base(h.Node()))
		data, stat, err := a.Get(h.Node())
		require.NoError(t, err)
		require.Equal(t, s.Stats().SessionID, stat.EphemeralOwner)
		require.Equal(t, stat.Czxid, h.Token())
		host, err := os.Hostname()
		require.NoError(t, err)
		require.Equal(t, host+":"+strconv.Itoa(os.Getpid()), string(data))
		require.NoError(t, h.Err())
		require.True(t, h.Deadline().After(time.Now()))
		release(t, h)
		require.Empty(t, children(t, a, p))
		require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
	}
}

// I1, I8, R6: many goroutines of several sessions: no two overlap, tokens increase, and all are
// granted.
func TestAcquire_Contended_OneAtATime(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	l := ledger.New(t.Errorf)
	var all sync.WaitGroup
	const sessions, goroutines, rounds = 3, 5, 8
	for range sessions {
		m := newMutex(t, connect(t, srv), p)
		for range goroutines {
			all.Go(func() {
				for range rounds {
					h, err := m.Acquire(within(t, 4*soon))
					if err != nil {
						t.Error(err)
						return
					}
					work(t, l, h, func() {})
					if err := h.Release(within(t, soon)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, sessions*goroutines*rounds, l.Grants())
	require.Empty(t, children(t, admin(t, srv), p))
}

func TestTryAcquire_SomebodyAhead_LeavesNothing(t *testing.T) {
	server := startOwn(t, serverConfig{})
	srv := server.Addr()
	a, p := admin(t, srv), lockPath(t, srv)
	h := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)

	before, err := server.WatchCount()
	require.NoError(t, err)
	for range 50 {
		_, err := m.TryAcquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Len(t, children(t, a, p), 1) // I4
	}
	after, err := server.WatchCount()
	require.NoError(t, err)
	require.Equal(t, before, after, "I7: tries leave no watch")

	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_, err := m.Acquire(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	eventually(t, "R118: waits in vain leave no watch", func() bool {
		after, err = server.WatchCount()
		return err == nil && after == before
	})

	release(t, h)
	h, err = m.TryAcquire(within(t, soon))
	require.NoError(t, err)
	release(t, h)
}

func TestDo(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m := newMutex(t, connect(t, srv), p)

	require.NoError(t, m.Do(within(t, soon), func(ctx context.Context, h *zklock.Hold) error {
		require.True(t, m.OwnedBy(ctx))
		return m.Do(reentering(h), func(context.Context, *zklock.Hold) error { return nil }) // re-enters
	}))
	mine := errors.New("the job failed")
	require.ErrorIs(t, m.Do(within(t, soon), func(context.Context, *zklock.Hold) error { return mine }), mine)

	// The end of the caller's context reaches the function, and the release still happens (R63).
	ctx, cancel := context.WithCancel(context.Background())
	err := m.Do(ctx, func(ctx context.Context, _ *zklock.Hold) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, children(t, a, p))

	// A lost lock is an error even if the function did not notice it.
	err = m.Do(within(t, soon), func(ctx context.Context, _ *zklock.Hold) error {
		require.NoError(t, a.Delete(p+"/"+children(t, a, p)[0], -1))
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), zklock.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, zklock.ErrLost)

	require.Panics(t, func() {
		_ = m.Do(within(t, soon), func(context.Context, *zklock.Hold) error { panic("at the disco") })
	})
	require.Empty(t, children(t, a, p))
}
