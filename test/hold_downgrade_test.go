package zklock_test

// These tests delete a node, end the session or stop the servers of a writer that reads (I4, I5,
// I6).

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// F24, I5: the writer's node is deleted while the owner reads. The writer is notified. The read
// lock rests on its own node, and blocks the queue.
func TestVirtual_Downgrade_WritersNodeDeleted_ReadsOn(t *testing.T) {
	forEachQueue(t, func(t *testing.T, d *writerAndReader) {
		require.NoError(t, d.somebody.Delete(d.w.Node(), -1))
		time.Sleep(20 * time.Second)
		require.True(t, isLost(d.w))
		require.NoError(t, d.r.Err())
		require.Equal(t, "000", grantedOf(d.queue...), "I1")
		again, err := d.m.ReadLock().TryAcquire(reentering(d.r))
		require.NoError(t, err)
		_, err = d.m.WriteLock().TryAcquire(reentering(d.r))
		require.ErrorIs(t, err, zklock.ErrLost, "until it has released what it lost")
		release(t, again)
		release(t, d.r)
		d.goesOn(t)
		require.ErrorIs(t, d.w.Release(t.Context()), zklock.ErrLost)
	})
}

// F24, I4: the writer's node is deleted, and the owner does not read any more. The lost hold blocks
// no client, even if its handle is not released.
func TestVirtual_Downgrade_WritersNodeDeleted_NobodyReads(t *testing.T) {
	forEachQueue(t, func(t *testing.T, d *writerAndReader) {
		release(t, d.r)
		require.NoError(t, d.somebody.Delete(d.w.Node(), -1))
		if grantedOf(d.queue...) != "000" { // a waiter of its Session saw it
			require.True(t, isLost(d.w), "I5: its reader's node stands until it knows")
		}
		time.Sleep(3 * time.Second) // a heartbeat finds the writer's node gone
		require.True(t, isLost(d.w))
		_, err := d.m.ReadLock().TryAcquire(zklock.WithOwner(t.Context(), d.w.Owner()))
		require.ErrorIs(t, err, zklock.ErrLost)
		d.goesOn(t)
		require.ErrorIs(t, d.w.Release(t.Context()), zklock.ErrLost)
	})
}

// F24, I5: the writer's node is deleted, and the owner's next read lock detects it.
func TestVirtual_Downgrade_WritersNodeGone_IsReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRWMutex(t, v.connect(), "/job")
		w := acquire(t, m.WriteLock())
		next := v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock())
		require.NoError(t, v.srv.Delete(w.Node()))
		h := next.granted2(t, time.Second)
		_, err := m.ReadLock().Acquire(zklock.WithOwner(t.Context(), w.Owner()))
		require.ErrorIs(t, err, zklock.ErrLost, "I1")
		require.True(t, isLost(w), "I5")
		require.Len(t, v.srv.Children("/job"), 1)
		require.ErrorIs(t, w.Release(t.Context()), zklock.ErrLost)
		release(t, h)
	})
}

// F24: the reader's node is deleted, or READ is taken from it. That hold is lost, the write lock
// remains valid, and reads under it report the loss until it is released.
func TestVirtual_Downgrade_ReadersNodeTakenAway(t *testing.T) {
	for _, unreadable := range []bool{false, true} {
		forEachQueue(t, func(t *testing.T, d *writerAndReader) {
			if unreadable {
				_, err := d.somebody.SetACL(d.r.Node(), zk.WorldACL(zk.PermAdmin), -1)
				require.NoError(t, err)
			} else {
				require.NoError(t, d.somebody.Delete(d.r.Node(), -1))
			}
			time.Sleep(20 * time.Second) // servers send no event of a node that may not be read: waiters recheck after 10 s
			require.True(t, isLost(d.r))
			require.NoError(t, d.w.Err())
			require.Equal(t, "000", grantedOf(d.queue...), "I1")
			_, err := d.m.ReadLock().Acquire(d.w.Context())
			require.ErrorIs(t, err, zklock.ErrLost)
			require.ErrorIs(t, d.r.Release(t.Context()), zklock.ErrLost)
			_, err = d.m.ReadLock().Acquire(d.w.Context())
			require.ErrorIs(t, err, zklock.ErrLost)
			release(t, d.w)
			d.goesOn(t)
		})
	}
}

// I5: the ZooKeeper session ends: both holds are lost, and no node is left of either.
func TestVirtual_Downgrade_SessionOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		d := v.downgraded(t, false, true)
		v.srv.ExpireSession(d.session(t))
		d.goesOn(t)
		for _, h := range []*zklock.Hold{d.w, d.r} {
			lostWithin(t, h, 20*time.Second)
			require.ErrorIs(t, h.Release(t.Context()), zklock.ErrLost)
		}
	})
}

// session returns the session that owns the writer's node.
func (d *writerAndReader) session(t *testing.T) int64 {
	stat, there := d.srv.Stat(d.w.Node())
	require.True(t, there)
	return stat.EphemeralOwner
}

// I6: no server responds. The release of both nodes ends within the grace of one call, not of one
// call for each node.
func TestVirtual_Downgrade_ReleaseIsBounded(t *testing.T) {
	for name, f := range map[string]zktest.Fault{
		"nothing is answered":           zktest.Before(zktest.Delete).Hold(),
		"the second is not":             zktest.Before(zktest.Delete).Nth(2).Hold(),
		"the second late, after a late": zktest.Before(zktest.Delete).Delay(400 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				d := v.downgraded(t, false, true)
				release(t, d.r)
				held := v.srv.Inject(f)
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				start := time.Now()
				err := d.w.Release(ended)
				require.ErrorIs(t, err, zklock.ErrNotConfirmed)
				require.LessOrEqual(t, time.Since(start), 510*time.Millisecond, "I6")
				if name == "the second late, after a late" {
					time.Sleep(time.Second)
				}
				held.Remove()
				d.goesOn(t)
			})
		})
	}
}

// I1: the next read under a write hold arrives just as the last one is released or gives up. The
// reader's node then belongs to the next one, and is not deleted.
func TestVirtual_Downgrade_TheNextReadComesAsTheLastLeaves(t *testing.T) {
	for name, last := range map[string]func(t *testing.T, m *zklock.RWMutex, w *zklock.Hold) (leave func()){
		"it is released": func(t *testing.T, m *zklock.RWMutex, w *zklock.Hold) func() {
			r := acquireIn(t, w.Context(), m.ReadLock())
			return func() { _ = r.Release(context.Background()) }
		},
		"it gives up": func(_ *testing.T, m *zklock.RWMutex, w *zklock.Hold) func() {
			ctx, cancel := context.WithCancel(w.Context())
			go func() {
				if r, err := m.ReadLock().Acquire(ctx); err == nil {
					_ = r.Release(context.Background())
				}
			}()
			return cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				m, other := newRWMutex(t, v.connect(), "/job"), newRWMutex(t, v.connect(), "/job")
				for i := range 500 {
					w := acquire(t, m.WriteLock())
					leave := last(t, m, w)
					var both sync.WaitGroup
					both.Go(func() {
						for range i % 50 {
							_ = w.Err()
						}
						leave()
					})
					var next *zklock.Hold
					both.Go(func() {
						for range i % 60 {
							_ = w.Err()
						}
						next, _ = m.ReadLock().Acquire(w.Context())
					})
					both.Wait()
					require.NotNil(t, next)
					release(t, w)
					_, err := other.WriteLock().TryAcquire(context.Background())
					require.ErrorIs(t, err, zklock.ErrNotAcquired, "round %d", i)
					release(t, next)
				}
			})
		})
	}
}

// A context carries the write hold through a read hold that has been released: no call waits for
// its own caller.
func TestVirtual_Downgrade_ReentryPastAReleasedRead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		m := newRWMutex(t, s, "/job")
		w := acquire(t, m.WriteLock())
		r := acquireIn(t, w.Context(), m.ReadLock())
		x := acquireIn(t, r.Context(), newMutex(t, s, "/x"))
		release(t, r)
		ctx, cancel := context.WithTimeout(x.Context(), time.Minute)
		defer cancel()
		_, err := m.WriteLock().Acquire(ctx)
		require.ErrorContains(t, err, "give zklock.WithOwner")
		release(t, acquireIn(t, ctx, m.ReadLock()))
		release(t, x)
		release(t, w)
	})
}

// I6: the servers reject the deletion of the writer's node, for which the reader's node waits. The
// reader's release reports it at once. When the servers allow the deletion, both nodes are deleted.
func TestVirtual_Downgrade_WritersDeletionRefused_ReadersReleaseReportsIt(t *testing.T) {
	for _, ownSession := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			d := v.downgraded(t, ownSession, true)
			refuses := v.srv.Inject(zktest.Before(zktest.Delete).Fail(zktest.NoAuth))
			for _, h := range []*zklock.Hold{d.w, d.r} {
				start := time.Now()
				err := h.Release(within(t, time.Hour))
				require.ErrorIs(t, err, zklock.ErrNotConfirmed)
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, "DELETE")
				require.Less(t, time.Since(start), time.Second, "at once")
			}
			refuses.Remove()
			d.goesOn(t)
		})
	}
}

// endingContext ends just after the call has looked at it.
type endingContext struct {
	context.Context
	looks int
}

func (*endingContext) Done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (c *endingContext) Err() error {
	if c.looks++; c.looks == 1 {
		return nil
	}
	return context.Canceled
}

// I4: a writer that has read reads again, and that call leaves before it has begun. The node of the
// reads is deleted with the writer's.
func TestVirtual_Downgrade_ReadLeavesBeforeItBegins_LeavesNoNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRWMutex(t, v.connect(), "/job")
		write := acquire(t, m.WriteLock())
		read, err := m.ReadLock().Acquire(write.Context())
		require.NoError(t, err)
		release(t, read)
		_, err = m.ReadLock().Acquire(&endingContext{Context: write.Context()})
		require.ErrorIs(t, err, context.Canceled)
		release(t, write)
		time.Sleep(time.Minute)
		require.Empty(t, v.srv.Children("/job"))
	})
}
