package zklock_test

// The lock in one file: its behaviour for a user, step by step. Each test starts a ZooKeeper server
// in its own process and connects to it as any client would. The tests of failures are in test/.

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// When all tests of this package have run, no goroutine may be left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// join is one process from the servers' point of view: a Session of its own, and the lock /job in
// it.
func join(t *testing.T, srv *zktest.Server) (*zklock.Session, *zklock.Mutex) {
	t.Helper()
	s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	m, err := zklock.NewMutex(s, "/job")
	require.NoError(t, err)
	return s, m
}

// A hold is one node below the lock's path. The node is ephemeral, so it is deleted when its
// process dies. The hold's token is the number of the write that created the node. A release
// deletes the node.
func TestMutex_Acquire_IsOneNode(t *testing.T) {
	srv := zktest.Start(t)
	s, m := join(t, srv)

	hold, err := m.Acquire(t.Context())
	require.NoError(t, err)
	node, there := srv.Stat(hold.Node())
	require.True(t, there)
	require.Equal(t, s.Stats().SessionID, node.EphemeralOwner)
	require.Equal(t, hold.Token(), node.Czxid)
	require.NoError(t, hold.Err(), "it is held")

	require.NoError(t, hold.Release(t.Context()))
	require.ErrorIs(t, hold.Err(), zklock.ErrNotHeld)
	require.Empty(t, srv.Children("/job"))
}

// One caller holds at a time: the counter has no other lock, and twelve goroutines of three
// processes increment it. The token of each hold is greater than the tokens before it.
func TestMutex_Exclusion(t *testing.T) {
	srv := zktest.Start(t)
	var inside, counted int // by the race detector's rules, too
	var last int64
	var all sync.WaitGroup
	for range 3 {
		_, m := join(t, srv)
		for range 4 {
			all.Go(func() {
				for range 5 {
					err := m.Do(context.Background(), func(_ context.Context, hold *zklock.Hold) error {
						if inside++; inside != 1 {
							t.Errorf("%d are inside", inside)
						}
						if hold.Token() <= last {
							t.Errorf("token %d comes after %d", hold.Token(), last)
						}
						last = hold.Token()
						counted++
						inside--
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, 3*4*5, counted)
}

// A try does not wait, and leaves no node when another node is ahead.
func TestMutex_Try(t *testing.T) {
	srv := zktest.Start(t)
	_, mine := join(t, srv)
	_, theirs := join(t, srv)

	hold, err := mine.Acquire(t.Context())
	require.NoError(t, err)
	_, err = theirs.TryAcquire(t.Context())
	require.ErrorIs(t, err, zklock.ErrNotAcquired)
	require.Len(t, srv.Children("/job"), 1)

	require.NoError(t, hold.Release(t.Context()))
	hold, err = theirs.TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Release(t.Context()))
}

// A goroutine has no name in Go, so the context identifies the caller. A call with a hold's context
// re-enters that hold, which ends when each handle has been released.
func TestMutex_Reentry(t *testing.T) {
	srv := zktest.Start(t)
	_, m := join(t, srv)

	outer, err := m.Acquire(t.Context())
	require.NoError(t, err)
	inner, err := m.Acquire(zklock.WithOwner(outer.Context(), outer.Owner()))
	require.NoError(t, err)
	require.Equal(t, outer.Node(), inner.Node())
	_, err = m.TryAcquire(t.Context()) // somebody else
	require.ErrorIs(t, err, zklock.ErrNotAcquired)

	require.NoError(t, inner.Release(t.Context()))
	require.NoError(t, outer.Err(), "one is left")
	require.NoError(t, outer.Release(t.Context()))
	require.Empty(t, srv.Children("/job"))
}

// Every waiter can leave: the call returns with its context, and its node is deleted. That grants
// no waiter behind it.
func TestMutex_Cancel(t *testing.T) {
	srv := zktest.Start(t)
	_, mine := join(t, srv)
	_, theirs := join(t, srv)
	hold, err := mine.Acquire(t.Context())
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := theirs.Acquire(ctx)
		left <- err
	}()
	require.Eventually(t, func() bool { return len(srv.Children("/job")) == 2 }, 15*time.Second, time.Millisecond, "it waits")
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	require.Len(t, srv.Children("/job"), 1)
	require.NoError(t, hold.Err())
	require.NoError(t, hold.Release(t.Context()))
}

// A hold can end without its holder: here the servers expire the session. The holder is notified,
// the contexts of its work end, and Release returns that the lock did not cover the work to its
// end. The Session continues in a new ZooKeeper session.
func TestMutex_Loss(t *testing.T) {
	srv := zktest.Start(t)
	s, m := join(t, srv)
	hold, err := m.Acquire(t.Context())
	require.NoError(t, err)

	require.True(t, srv.ExpireSession(s.Stats().SessionID))
	<-hold.Lost()
	require.ErrorIs(t, hold.Err(), zklock.ErrLost)
	<-hold.Context().Done()
	require.ErrorIs(t, context.Cause(hold.Context()), zklock.ErrLost)
	require.ErrorIs(t, hold.Release(t.Context()), zklock.ErrLost)

	again, err := m.Acquire(t.Context())
	require.NoError(t, err)
	require.Greater(t, again.Token(), hold.Token())
	require.NoError(t, again.Release(t.Context()))
}

// The resource uses the token for a protection that the lock cannot give: it rejects a write whose
// token is older than one that it has seen. So the write of a holder that was paused for too long
// has no effect.
func TestMutex_Token_FencesOffTheLate(t *testing.T) {
	srv := zktest.Start(t)
	s, m := join(t, srv)
	_, theirs := join(t, srv)
	var newest int64
	write := func(hold *zklock.Hold) bool {
		if hold.Token() < newest {
			return false
		}
		newest = hold.Token()
		return true
	}

	late, err := m.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, srv.ExpireSession(s.Stats().SessionID))
	next, err := theirs.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, write(next))
	require.False(t, write(late), "whether it has heard or not")
	<-late.Lost()
	require.ErrorIs(t, late.Release(t.Context()), zklock.ErrLost)
	require.NoError(t, next.Release(t.Context()))
}
