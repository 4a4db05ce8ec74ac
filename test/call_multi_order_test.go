package zklock_test

// This test attacks the order in which a Multi takes locks of different recipes.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// R106, I6: a semaphore's queue is below its path, and a Multi still takes the semaphore in the
// order of the paths as given. It does not deadlock with a caller that takes the locks one after
// the other in that order.
func TestVirtual_Multi_SemaphoreAmongMutexes_OrderOfThePaths(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, o := v.connect(), v.connect()
		sem, after := newSemaphore(t, s, "/job/import", 1).Permits(1), newMutex(t, s, "/job/import-lock")
		m := newMulti(t, after, sem)
		require.Equal(t, "Multi(/job/import, /job/import-lock)", m.String())

		permit := take(t, newSemaphore(t, o, "/job/import", 1).Permits(1))
		c := startMulti(within(t, time.Hour), m)
		require.Empty(t, v.srv.Children("/job/import-lock"), "it waits for the first, and holds nothing")
		release(t, acquire(t, newMutex(t, o, "/job/import-lock")))
		release(t, permit)
		h := c.granted(t)
		require.Equal(t, []string{"/job/import", "/job/import-lock"}, holdPaths(h.Holds()))
		require.NoError(t, h.Release(within(t, soon)))
	})
}

// R106: the holds of a context are compared by the same paths: a hold of a mutex that sorts after
// the semaphore blocks it, and permits of the semaphore do not block the mutex.
func TestVirtual_Multi_SemaphoreAmongMutexes_ContextOutOfOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		sem, after := newSemaphore(t, s, "/job/import", 1).Permits(1), newMutex(t, s, "/job/import-lock")
		last := newMutex(t, s, "/job/z")
		h := acquire(t, after)
		_, err := newMulti(t, sem, last).Acquire(h.Context())
		require.ErrorContains(t, err, "acquire /job/import: the context carries a hold of /job/import-lock, and /job/import must be taken before it")
		release(t, h)

		h = take(t, sem)
		both, err := newMulti(t, last, after).Acquire(h.Context())
		require.NoError(t, err)
		require.NoError(t, both.Release(context.Background()))
		release(t, h)
	})
}

// A semaphore takes the path of its queue, too.
func TestMulti_MutexOnASemaphoresQueue_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		sem := newSemaphore(t, s, "/job/import", 1).Permits(1)
		_, err := zklock.NewMulti(newMutex(t, s, "/job/import/locks"), newMutex(t, s, "/job/import-lock"), sem)
		require.ErrorContains(t, err, "new multi /job/import/locks: two locks have this absolute path")
	})
}
