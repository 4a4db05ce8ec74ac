package zklock_test

// These tests put other clients' nodes under the lock root: some queue with ours, and all other
// nodes are ignored.

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// Bad input: children that are no queue nodes are ignored.
func TestAcquire_ForeignChildren_AreIgnored(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	for _, n := range []string{"config", "0", "_c_x", "lock-abc", "lock-", "lock-99999999999", "lock-9999999999", "0000000000"} {
		_, err := a.Create(p+"/"+n, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	m := newMutex(t, connect(t, srv), p)
	h := acquire(t, m)
	ps, err := m.Participants(within(t, soon))
	require.NoError(t, err)
	require.Len(t, ps, 1)
	release(t, h)
}

// F35: two nodes with one number, created by a foreign client: their order is undefined, so ours
// queues again.
func TestAcquire_ForeignNodeWithOurSuffix_QueuesAgain(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	// Our node will get the suffix 1: this one uses up 0.
	foreign := p + "/_c_00000000-0000-0000-0000-000000000000-lock-0000000001"
	_, err := a.Create(foreign, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	m := newMutex(t, connect(t, srv), p)
	_, err = m.TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrNotAcquired)
	w := queueUp(t, a, m, p)
	require.NoError(t, a.Delete(foreign, -1))
	h := w.granted(t)
	require.Greater(t, suffixOf(h.Node()), "0000000001")
	release(t, h)
}

// F36 in part: go-zookeeper's own lock in one queue with ours.
func TestInterop_GoZookeeperLock(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	var inside, total atomic.Int32
	enter := func() {
		if n := inside.Add(1); n != 1 {
			t.Errorf("I1: %d holders at a time", n)
		}
		total.Add(1)
		inside.Add(-1)
	}
	var all sync.WaitGroup
	for range 3 {
		c := admin(t, srv)
		all.Go(func() {
			l := zk.NewLock(c, p, zk.WorldACL(zk.PermAll))
			for range 10 {
				if err := l.Lock(); err != nil {
					t.Error(err)
					return
				}
				enter()
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
		m := newMutex(t, connect(t, srv), p)
		all.Go(func() {
			for range 10 {
				if err := m.Do(within(t, 4*soon), func(context.Context, *zklock.Hold) error {
					enter()
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 60, total.Load())
}

// R73, I1: a writer of Curator's read/write lock also takes the read lock: it creates a node with
// its own number, not sequential, and deletes the writer's. A client that waits behind the writer
// is not granted together with the reader.
func TestVirtual_WriterTakesTheReadLock_NobodyIsGrantedBesideIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		writer, err := v.srv.Create("/job/_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__WRIT__", nil, zk.FlagSequence)
		require.NoError(t, err)
		w := v.queueUp(newMutex(t, v.connect(), "/job"))
		behind := v.queueUp(newMutex(t, v.connect(), "/job"))
		reader := "/job/_c_1e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__READ__" + suffixOf(writer)
		_, err = v.srv.Create(reader, nil, 0)
		require.NoError(t, err)
		require.NoError(t, v.srv.Delete(writer))
		time.Sleep(time.Minute)
		require.False(t, w.isGranted(), "I1")
		require.NoError(t, v.srv.Delete(reader))
		release(t, w.granted2(t, time.Second))
		release(t, behind.granted2(t, time.Second))
	})
}
