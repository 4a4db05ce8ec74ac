package zklock_test

// These tests bring the lock root's sequence counter to its end (I1).

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// F34, F35, I1, I4: past the end of the counter there stands a node of a client that does not order nodes as we do. Nobody is
// let in, and told why; nothing is left. Without that node, zklock's clients go on among themselves.
func TestVirtual_SequenceEnd_ForeignNode_IsExhausted(t *testing.T) {
	for _, foreign := range []string{
		"_c_0e4ef0ac8eb94d628b7fcb2a3ab6ad72-lock-", // go-zookeeper's
		"0e4ef0ac8eb94d628b7fcb2a3ab6ad72__lock__",  // kazoo's
	} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			m := newMutex(t, v.connect(), "/job")
			theirs, err := v.srv.Create("/job/"+foreign, nil, zktest.FlagSequence)
			require.NoError(t, err)
			require.Equal(t, "2147483647", suffixOf(theirs), "or this shows nothing")
			for _, enter := range []func(context.Context) (*zklock.Hold, error){m.Acquire, m.TryAcquire} {
				start := time.Now()
				_, err = enter(within(t, time.Hour))
				require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
				require.ErrorContains(t, err, base(theirs))
				require.Less(t, time.Since(start), time.Second)
				synctest.Wait()
				require.Equal(t, []string{base(theirs)}, v.srv.Children("/job"), "I4")
			}
			require.NoError(t, v.srv.Delete(theirs))
			_, err = v.srv.Create("/job/config", nil, 0) // the counter does not start again: somebody else uses the root
			require.NoError(t, err)
			h := acquire(t, m)
			require.Equal(t, "2147483647", suffixOf(h.Path()))
			w := v.queueUp(newMutex(t, v.connect(), "/job"))
			time.Sleep(time.Second)
			require.False(t, w.isGranted(), "I1")
			release(t, h)
			release(t, w.granted2(t, time.Second))
		}, zktest.WithCreates("/job", 1<<31-1))
	}
}

// F34: from 2^31 − 2^27 on a Session says that the counter is near its end: once for a lock root, and not before.
func TestVirtual_SequenceNearItsEnd_IsSaidOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const near, nearEnd = 1<<31 - 1<<27, "near its end"
		keep := acquire(t, newMutex(t, v.connect(), "/job")) // or the emptied root would be made again
		acquire(t, newMutex(t, v.connect(), "/other"))
		var w warnings
		s := v.connect(w.option())
		try := func(path string) {
			_, err := newMutex(t, s, path).TryAcquire(within(t, soon))
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			synctest.Wait()
		}
		require.True(t, v.srv.SetCreates("/job", near-1))
		try("/job")
		require.Zero(t, w.about(nearEnd, ""), "too early: %v", w.lines)
		for range 3 {
			try("/job")
			require.Equal(t, 1, w.about(nearEnd, "path=/job "), "%v", w.lines)
		}
		require.True(t, v.srv.SetCreates("/other", 1<<31-1))
		try("/other")
		try("/other")
		require.Equal(t, 1, w.about(nearEnd, "path=/other "), "%v", w.lines)
		require.Equal(t, 2, w.about(nearEnd, ""), "%v", w.lines)

		var again warnings
		s = v.connect(again.option())
		try("/job")
		require.Equal(t, 1, again.about(nearEnd, "path=/job "), "another Session says so, too")
		release(t, keep)
	})
}

// F34: what an earlier version of zklock left in the root's data does not keep the empty root from being removed; the data of
// somebody else does.
func TestVirtual_SequenceNearItsEnd_EmptyRootIsRemoved(t *testing.T) {
	for data, removed := range map[string]bool{"": true, "zklock/1 released=x token=7\n": true, "zklock/1x": false, "mine": false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			m := newMutex(t, v.connect(), "/job")
			release(t, acquire(t, m))
			require.True(t, v.srv.SetCreates("/job", 1<<31-1<<26))
			require.NoError(t, v.srv.SetData("/job", []byte(data)))
			release(t, acquire(t, m))
			synctest.Wait()
			_, ok := v.srv.Get("/job")
			require.Equal(t, !removed, ok, "%q", data)
		})
	}
}

// F34, I1: the lock lives through the end of the counter: contended before, through and after it.
func TestVirtual_SequenceEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		l := ledger.New(t.Errorf)
		var all sync.WaitGroup
		const sessions, goroutines, rounds = 4, 3, 12
		for range sessions {
			m := newMutex(t, v.connect(), "/job")
			for range goroutines {
				all.Go(func() {
					for range rounds {
						h, err := m.Acquire(within(t, time.Hour))
						if err != nil {
							t.Error(err)
							return
						}
						work(t, l, h, func() { time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond)))) })
						if err := h.Release(within(t, soon)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		require.Equal(t, sessions*goroutines*rounds, l.Grants())
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job"))
		// Empty at last, the root was removed, to be made again with a fresh counter.
		time.Sleep(time.Minute)
		h := acquire(t, newMutex(t, v.connect(), "/job"))
		require.Equal(t, "0000000000", suffixOf(h.Path()))
		require.Greater(t, h.Token(), l.LargestToken("/job"))
		release(t, h)
	}, zktest.WithCreates("/job", 1<<31-1-40))
}
