package zklock_test

// These tests have many calls meet nodes that servers do not delete, and attack how often the log
// reports it.

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// refusing creates a lock root without some permissions for all clients but the test.
func (v *virtual) refusing(t *testing.T, path string, perms int32) {
	a := v.connect().Conn()
	if _, err := a.SetACL(path, zk.WorldACL(perms), -1); err != nil {
		_, err = a.Create(path, nil, 0, zk.WorldACL(perms))
		require.NoError(t, err)
	}
}

// Each node that the servers refuse to delete is logged once, however often zklock tries again and
// however many calls release at once; several permits of one hold count as one.
func TestVirtual_LogOnce_DeletionRefused(t *testing.T) {
	const line = "zklock: the servers refuse to delete a lock node, which goes on blocking the lock; does the ACL give DELETE on the lock root?"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelError))
		holds, more := v.manyHolds(s)
		require.NotEmpty(t, more)
		var all sync.WaitGroup
		var kept []*zklock.Hold
		for i := range manyOfAKind {
			v.refusing(t, fmt.Sprintf("/job/%d", i), zk.PermAll&^zk.PermDelete)
			v.refusing(t, fmt.Sprintf("/job/%dsem/leases", i), zk.PermAll&^zk.PermDelete)
			kept = append(kept, holds[4*i], holds[4*i+3])
		}
		for _, h := range append(more, holds...) {
			for range 3 {
				all.Go(func() { _ = h.Release(t.Context()) })
			}
		}
		all.Wait()
		for range 5 {
			time.Sleep(20 * time.Second)
			v.srv.Stop()
			require.NoError(t, v.srv.Start())
		}
		log.once(t, line, saidNodes(kept)...)
	})
}

// Each node whose creation remains unknown is logged once, also by calls that look for nodes
// together, and also for permits.
func TestVirtual_LogOnce_CannotFindOut(t *testing.T) {
	const line = "zklock: cannot determine whether a lock node was created; if it was, it blocks the lock until READ is granted again or this ZooKeeper session ends"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 3)))
		var log warnings
		s := v.connect(lines(&log, slog.LevelError))
		v.net.SetLatency(time.Millisecond)
		var want []string
		for i := range 10 {
			path := fmt.Sprintf("/closed%d", i)
			want = append(want, "path="+path)
			v.refusing(t, path, zk.PermAll&^zk.PermRead)
			v.srv.Inject(zktest.After(zktest.Create).Path(path + "/*").DropReply().Close().Once().Optional()) // the end of one connection ends all its responses
		}
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() { _, _ = newMutex(t, s, fmt.Sprintf("/closed%d", i)).Acquire(within(t, time.Minute)) })
		}
		calls.Wait()
		log.once(t, line, want...)

		denied := v.srv.Inject(zktest.Before(zktest.GetChildren).Path(semLeases).Session(s.SessionID()).Fail(zktest.NoAuth))
		v.srv.Inject(zktest.After(zktest.Multi).Session(s.SessionID()).Path(semLeases + "/*").DropReply().Close().Once())
		_, err := newSemaphore(t, s, semPath, 3).Acquire(within(t, soon), 3)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		log.once(t, line, append(want, "path="+semPath)...)
		denied.Remove()
	})
}

// A record that may not be deleted is logged once for each hold.
func TestVirtual_LogOnce_RecordStays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelError))
		var want []string
		var all sync.WaitGroup
		var holds []*zklock.Hold
		for i := range 10 {
			path := fmt.Sprintf("/job/%d", i)
			want = append(want, "path="+path)
			holds = append(holds, acquire(t, newMutex(t, s, path, zklock.WithLockDelay(lockDelay))))
			v.refusing(t, path, zk.PermAll&^zk.PermWrite)
		}
		for _, h := range holds {
			for range 3 {
				all.Go(func() { _ = h.Release(t.Context()) })
			}
		}
		all.Wait()
		time.Sleep(time.Minute)
		log.once(t, "zklock: the servers refuse to take the record of a grant back; the next holder waits for the lock-delay", want...)
	})
}

// The end of a counter is logged once for each counter, and the obstacle to recreating an empty
// root once for each reason, however many calls meet it. The root is recreated once.
func TestVirtual_LogOnce_CounterNearItsEnd(t *testing.T) {
	const near, stays, removed = "zklock: the lock root's sequence counter is near its end; zklock restarts it when the queue is empty",
		"zklock: could not remove the empty lock root to start its sequence counter again", "zklock: removed the empty lock root to start its sequence counter again"
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelInfo))
		release(t, acquire(t, newMutex(t, s, "/job/near")))
		release(t, take(t, v.permits(2, 4)))
		for _, path := range []string{"/job/near", semQueue, semLeases} {
			require.True(t, v.srv.SetCreates(path, counterEnd-1<<19))
		}
		together := func() {
			var calls sync.WaitGroup
			for range 10 {
				calls.Go(func() { release(t, acquire(t, newMutex(t, s, "/job/near"))) })
				calls.Go(func() { release(t, acquire(t, newSemaphore(t, s, semPath, 4).Permits(2))) })
			}
			calls.Wait()
			time.Sleep(time.Second)
		}
		data := func(text string) {
			for _, path := range []string{"/job/near", semQueue, semLeases} {
				require.NoError(t, v.srv.SetData(path, []byte(text)))
			}
		}
		data("mine")
		together()
		together()
		all := []string{"node=/job/near", "node=" + semQueue, "node=" + semLeases}
		log.once(t, stays, all...)
		said := log.of(near)
		require.Len(t, said, 3, "%q", said)
		require.Equal(t, 1, having(said, "path=/job/near"))
		require.Equal(t, 2, having(said, "path="+semPath))
		data("")
		together()
		together()
		log.once(t, stays, all...)
		log.once(t, removed, all...)
	})
}

// A request for too many permits is logged once for each path and Session, however many wait.
func TestVirtual_LogOnce_MorePermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log, other warnings
		s, s2, holder := v.connect(lines(&log, slog.LevelWarn)), v.connect(lines(&other, slog.LevelWarn)), v.connect()
		var want []string
		for i := range 3 {
			path := fmt.Sprintf("/job/%d", i)
			want = append(want, "path="+path)
			take(t, newSemaphore(t, holder, path, 4).Permits(4))
			for range 5 {
				v.lineUp(newSemaphore(t, s, path, 2).Permits(1)).stop()
				w := v.lineUp(newSemaphore(t, s, path, 2).Permits(1))
				time.Sleep(time.Second)
				w.stop()
				<-w.done
				v.lineUp(newSemaphore(t, s2, path, 2).Permits(1))
				v.srv.Stop()
				require.NoError(t, v.srv.Start())
				time.Sleep(2 * time.Second)
			}
		}
		time.Sleep(time.Minute)
		const line = "zklock: more permits are in use than this semaphore has"
		log.once(t, line, want...)
		other.once(t, line, want...)
	})
}

// Each panic of a trace is logged once.
func TestVirtual_LogOnce_TracePanics(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelError), zklock.WithTrace(&zklock.Trace{
			AcquireStart: func(_ context.Context, a zklock.AcquireInfo) context.Context { panic("start " + a.Path) },
			HoldLost:     func(_ context.Context, h zklock.HoldInfo) { panic("lost " + h.Path) },
			HoldEnd:      func(_ context.Context, h zklock.HoldInfo) { panic("end " + h.Path) },
		}))
		var want []string
		var holds []*zklock.Hold
		for i := range 10 {
			path := fmt.Sprintf("/job/%d", i)
			holds = append(holds, acquire(t, newMutex(t, s, path)))
			want = append(want, `panic="start `+path+`"`, `panic="lost `+path+`"`, `panic="end `+path+`"`)
		}
		defer lookAt(s, holds...)()
		v.srv.ExpireSession(s.SessionID())
		for _, h := range holds {
			<-h.Lost()
			for range 3 {
				_ = h.Release(t.Context())
			}
		}
		log.once(t, "zklock: a function of a Trace panicked", want...)
	})
}
