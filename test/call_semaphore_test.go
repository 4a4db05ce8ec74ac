package zklock_test

// These tests take and give permits of a semaphore: how many hold at a time, in which order, and what is left behind.

import (
	"context"
	"encoding/binary"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

const semPath, semQueue, semLeases = "/job/sem", "/job/sem/locks", "/job/sem/leases"

func newSemaphore(t testing.TB, s *zklock.Session, p string, n int, opts ...zklock.MutexOption) *zklock.Semaphore {
	t.Helper()
	sem, err := zklock.NewSemaphore(s, p, n, opts...)
	require.NoError(t, err)
	return sem
}

func take(t testing.TB, l zklock.Lock) *zklock.Hold {
	t.Helper()
	h, err := l.Acquire(within(t, soon))
	require.NoError(t, err)
	return h
}

// lineUp starts an Acquire and returns when everybody waits.
func (v *virtual) lineUp(l zklock.Lock) *waiting {
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	w := &waiting{done: make(chan struct{}), stop: cancel}
	go func() {
		defer close(w.done)
		w.hold, w.err = l.Acquire(ctx)
		w.at = time.Now()
	}()
	v.t.Cleanup(func() { cancel(); <-w.done })
	synctest.Wait()
	return w
}

// nodesBelow returns the children of a node at the server, in order.
func (v *virtual) nodesBelow(p string) []string {
	v.t.Helper()
	names := v.srv.Children(p)
	slices.Sort(names)
	return names
}

// Three permits are three holds, and not four. A permit that is freed goes to the first in line.
func TestVirtual_Semaphore_AsManyHoldAsThereArePermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var holds []*zklock.Hold
		for range 3 {
			holds = append(holds, take(t, newSemaphore(t, v.connect(), semPath, 3).Permits(1)))
		}
		synctest.Wait()
		require.Len(t, v.nodesBelow(semLeases), 3)
		require.Empty(t, v.nodesBelow(semQueue), "nobody stands in line")
		fourth := v.lineUp(newSemaphore(t, v.connect(), semPath, 3).Permits(1))
		fifth := v.lineUp(newSemaphore(t, v.connect(), semPath, 3).Permits(1))
		time.Sleep(time.Minute)
		require.False(t, fourth.isGranted())
		release(t, holds[1])
		synctest.Wait()
		require.True(t, fourth.isGranted())
		require.False(t, fifth.isGranted())
		release(t, fourth.granted(t))
		require.Greater(t, fifth.granted(t).Token(), fourth.hold.Token(), "I1: tokens grow in the order of the grants")
		release(t, fifth.hold)
		release(t, holds[0])
		release(t, holds[2])
		synctest.Wait()
		require.Empty(t, v.nodesBelow(semLeases), "I4")
		require.Empty(t, v.nodesBelow(semQueue), "I4")
	})
}

var _ = path.Base
var _ = binary.BigEndian
var _ zk.Event
var _ zktest.Op
