package zklock_test

// These tests bring the lock root's sequence counter to its end (I1).

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// counterEnd is the first number that is never granted.
const counterEnd = 1<<31 - 1<<20

// F34, I1, I4: no client is granted past the end of the counter. The node is deleted, and the error
// names the nodes that must be deleted first. When the queue has drained, the root is deleted, and
// the next try begins with a fresh counter.
func TestVirtual_SequenceEnd_NobodyIsGranted(t *testing.T) {
	for _, creates := range []int32{counterEnd, 1<<31 - 1} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			require.True(t, v.srv.SetCreates("/job", creates))
			m := newMutex(t, v.connect(), "/job")
			theirs, err := v.srv.Create("/job/0e4ef0ac8eb94d628b7fcb2a3ab6ad72__lock__", nil, zk.FlagSequence) // kazoo's
			require.NoError(t, err)
			for _, enter := range []func(context.Context) (*zklock.Hold, error){m.Acquire, m.TryAcquire} {
				start := time.Now()
				_, err = enter(within(t, time.Hour))
				require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
				require.ErrorContains(t, err, base(theirs))
				require.Less(t, time.Since(start), time.Second)
				require.Equal(t, []string{base(theirs)}, v.srv.Children("/job"), "I4")
			}
			require.NoError(t, v.srv.Delete(theirs))
			_, err = m.Acquire(within(t, time.Hour))
			require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
			h := acquire(t, m)
			require.Equal(t, "0000000000", suffixOf(h.Node()), "the root was removed before the error came")
			release(t, h)
		})
	}
}

// F34: the error contains the reason why the empty root cannot be recreated. An ACL of the scheme
// auth, which servers store differently, is not one.
func TestVirtual_SequenceEnd_RootStays_ErrorReportsWhy(t *testing.T) {
	for _, tt := range []struct {
		name  string
		acl   []zk.ACL
		spoil func(v *virtual, c *zk.Conn) error
		says  string // "" if it is recreated
	}{
		{"its data is somebody else's", zk.WorldACL(zk.PermAll), func(v *virtual, _ *zk.Conn) error { return v.srv.SetData("/spoilt", []byte("mine")) }, "has data that zklock did not write"},
		{"its ACL is another", zk.WorldACL(zk.PermAll), func(_ *virtual, c *zk.Conn) error {
			_, err := c.SetACL("/spoilt", zk.WorldACL(zk.PermAll^zk.PermAdmin), -1)
			return err
		}, "has an ACL other than"},
		{"it has a child that takes no part", zk.WorldACL(zk.PermAll), func(v *virtual, _ *zk.Conn) error {
			_, err := v.srv.Create("/spoilt/config", nil, 0)
			return err
		}, "when config and all other children are deleted"},
		{"nothing", zk.AuthACL(zk.PermAll), func(*virtual, *zk.Conn) error { return nil }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				s := v.connect(zklock.WithDigest("u", "p"))
				m := newMutex(t, s, "/spoilt", zklock.WithACL(tt.acl))
				release(t, acquire(t, m))
				require.True(t, v.srv.SetCreates("/spoilt", counterEnd))
				require.NoError(t, tt.spoil(v, s.Conn()))
				_, err := m.Acquire(within(t, time.Hour))
				require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
				require.ErrorContains(t, err, tt.says)
				if tt.says == "" {
					release(t, acquire(t, m))
				}
			})
		})
	}
}

// F34, I6: the server is away when the root is to be recreated. The caller has the error after the
// grace.
func TestVirtual_SequenceEnd_ServerAway_ErrorComes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		require.True(t, v.srv.SetCreates("/job", counterEnd))
		s := v.connect()
		m := newMutex(t, s, "/job")
		away := v.srv.Inject(zktest.Before(zktest.GetData).Path("/job").Hold().Once())
		start := time.Now()
		_, err := m.TryAcquire(context.Background())
		require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
		require.LessOrEqual(t, time.Since(start), time.Second)
		require.Equal(t, 1, away.Fired())
		away.Release()
		synctest.Wait()
		release(t, acquire(t, m))
	})
}

// F34, I1: a holder with the last number that is granted, and a waiter behind it, are not disturbed
// by nodes past the end.
func TestVirtual_SequenceEnd_TheLastAreGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		require.True(t, v.srv.SetCreates("/job", counterEnd-2))
		m, other := newMutex(t, v.connect(), "/job"), newMutex(t, v.connect(), "/job")
		h := acquire(t, m)
		w := v.queueUp(other)
		_, err := newMutex(t, v.connect(), "/job").Acquire(within(t, time.Hour))
		require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
		require.NoError(t, h.Err())
		release(t, h)
		h = w.granted2(t, time.Second)
		require.Equal(t, "2146435071", suffixOf(h.Node()))
		release(t, h)
	})
}

// F34: for some clients a node with a negative number sorts before all other nodes: while it
// exists, no client is granted. If that node is deleted together with ours, the empty root remains:
// its counter is far from the end.
func TestVirtual_SequenceEnd_NegativeNumber_NobodyIsGranted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMutex(t, v.connect(), "/job")
		release(t, acquire(t, m))
		_, err := v.srv.Create("/job/x-lock--2147483648", nil, 0)
		require.NoError(t, err)
		_, err = m.Acquire(within(t, time.Hour))
		require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
		require.ErrorContains(t, err, "x-lock--2147483648")
		require.Len(t, v.srv.Children("/job"), 1, "I4")
		v.srv.Inject(zktest.Before(zktest.Delete).Call(func() { _ = v.srv.Delete("/job/x-lock--2147483648") }).Once())
		_, err = m.Acquire(within(t, time.Hour))
		require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
		require.Empty(t, v.srv.Children("/job"), "I4")
		h := acquire(t, m)
		require.NotEqual(t, "0000000000", suffixOf(h.Node()), "the root was removed")
		release(t, h)
	})
}

// F34: from 2^31 − 2^27 on a Session logs that the counter is near its end: once for a lock root,
// and not before.
func TestVirtual_SequenceNearItsEnd_IsSaidOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const near, nearEnd = 1<<31 - 1<<27, "near its end"
		keep := acquire(t, newMutex(t, v.connect(), "/job")) // or the emptied root would be recreated
		acquire(t, newMutex(t, v.connect(), "/other"))
		var w warnings
		s := v.connect(w.option())
		try := func(path string) {
			_, err := newMutex(t, s, path).Acquire(within(t, time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
		}
		require.True(t, v.srv.SetCreates("/job", near-1))
		try("/job")
		require.Zero(t, w.about(nearEnd, ""), "too early: %v", w.lines)
		for range 3 {
			try("/job")
			require.Equal(t, 1, w.about(nearEnd, "path=/job "), "%v", w.lines)
		}
		require.True(t, v.srv.SetCreates("/other", near))
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

// F34: the release of a node near the end of the counter removes the empty root; the release of a
// permit does the same. Data that an earlier version of zklock left in the root does not prevent
// the removal; another client's data does.
func TestVirtual_SequenceNearItsEnd_EmptyRootIsRemoved(t *testing.T) {
	for data, removed := range map[string]bool{"": true, "zklock/1 released=x token=7\n": true, "zklock/1x": false, "mine": false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			m, permits, roots := newMutex(t, v.connect(), "/near"), v.permits(2, 3), []string{"/near", semLeases}
			release(t, acquire(t, m))
			release(t, take(t, permits))
			for _, root := range roots {
				require.True(t, v.srv.SetCreates(root, 1<<31-1<<26))
				require.NoError(t, v.srv.SetData(root, []byte(data)))
			}
			release(t, acquire(t, m))
			release(t, take(t, permits))
			synctest.Wait()
			for _, root := range roots {
				_, ok := v.srv.Get(root)
				require.Equal(t, !removed, ok, "%s with %q", root, data)
			}
		})
	}
}

// F34, I1: the lock survives the end of the counter: contended before, during and after it, by
// clients that try again when they get its error.
func TestVirtual_SequenceEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		require.True(t, v.srv.SetCreates("/job", counterEnd-40))
		l := ledger.New(t.Errorf)
		var all sync.WaitGroup
		var told atomic.Int32
		const sessions, goroutines, rounds = 4, 3, 12
		for range sessions {
			m := newMutex(t, v.connect(), "/job")
			for range goroutines {
				all.Go(func() {
					for range rounds {
						h, err := m.Acquire(within(t, time.Hour))
						for errors.Is(err, zklock.ErrSequenceExhausted) {
							told.Add(1)
							time.Sleep(100 * time.Millisecond)
							h, err = m.Acquire(within(t, time.Hour))
						}
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
		require.Positive(t, told.Load(), "or this shows nothing")
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job"))
	})
}
