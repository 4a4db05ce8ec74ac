package zklock_test

// These tests use a semaphore from many sides, on the in-process server and on a real ZooKeeper.

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// I1, I4, I8: many callers of several Sessions want one to four of five permits. There are never
// more in use, all callers get theirs, and no node is left.
func TestSemaphore_Contended_NeverMoreThanThereAre(t *testing.T) {
	const limit, sessions, callers, cycles = 5, 3, 4, 8
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	var used atomic.Int32
	var all sync.WaitGroup
	for range sessions {
		sem := newSemaphore(t, connect(t, srv), p, limit)
		for range callers {
			all.Go(func() {
				for range cycles {
					k := 1 + rand.IntN(4)
					err := sem.Do(within(t, time.Minute), k, func(_ context.Context, hold *zklock.Hold) error {
						if n := used.Add(int32(k)); n > limit {
							t.Errorf("I1: %d permits in use", n)
						}
						time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
						used.Add(int32(-k))
						return hold.Err()
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	eventually(t, "I4: nothing is left", func() bool { return len(children(t, a, p+"/leases"))+len(children(t, a, p+"/locks")) == 0 })
}

// The names and data are the same as Curator's, as other clients see them.
func TestSemaphore_NodesAreCurators(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	sem := newSemaphore(t, connect(t, srv), p, 3, zklock.WithData([]byte("me")), zklock.WithSharedLimit(p+"/limit"))
	hold, err := sem.Acquire(within(t, soon), 2)
	require.NoError(t, err)
	names := children(t, a, p+"/leases")
	require.Len(t, names, 2)
	for _, name := range names {
		require.Regexp(t, `^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lease-[0-9]{10}$`, name)
		data, stat, err := a.Get(p + "/leases/" + name)
		require.NoError(t, err)
		require.Equal(t, "me", string(data))
		require.NotZero(t, stat.EphemeralOwner)
	}
	limit, _, err := a.Get(p + "/limit")
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0, 3}, limit)
	release(t, hold)
	require.Empty(t, children(t, a, p+"/leases"))
}
