package zklock_test

// These tests attack a semaphore's path as users see it: which other recipes may use it, and the
// names and paths in errors and logs.

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// Nodes of any other recipe on the path cause the first acquire of each Session to be rejected,
// even if the semaphore was used before. No node is left. A program's own nodes do not cause a
// rejection.
func TestVirtual_Semaphore_PathOfAnotherRecipe_IsRefusedInEachSession(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for _, name := range []string{
		"_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007", id + "__lock__0000000007", id + "__rlock__0000000007", "x__READ__0000000007",
		"x__WRIT__0000000007", "x-latch-0000000007", "x-lease-0000000007", id,
	} {
		for _, used := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				old := v.permits(1, 3)
				if used {
					release(t, take(t, old))
				} else {
					_, err := v.srv.Create(semPath, nil, 0)
					require.NoError(t, err)
				}
				for _, harmless := range []string{"limit", "config", id[1:], "x" + id} {
					_, err := v.srv.Create(semPath+"/"+harmless, nil, 0)
					require.NoError(t, err)
				}
				if used {
					release(t, take(t, v.permits(1, 3)))
				}
				_, err := v.srv.Create(semPath+"/"+name, nil, 0)
				require.NoError(t, err)
				s, before := v.connect(), v.srv.Children(semPath)
				for range 2 { // it is also rejected the second time
					p := newSemaphore(t, s, semPath, 3).Permits(1)
					for _, acquire := range []func(context.Context) (*zklock.Hold, error){p.Acquire, p.TryAcquire} {
						_, err = acquire(within(t, time.Minute))
						require.ErrorContains(t, err, semPath+" is in use by a lock of another kind, which has "+name, "used before: %v", used)
						require.True(t, zklock.IsFinal(err))
					}
				}
				require.Equal(t, before, v.srv.Children(semPath), "nothing is made there")
				require.Empty(t, v.srv.Children(semPath+"/locks"), "nothing stays")
				require.NoError(t, v.srv.Delete(semPath+"/"+name))
				release(t, take(t, newSemaphore(t, s, semPath, 3).Permits(1)))
			})
		}
	}
}

// The check of the path costs a list, once for each Session and path.
func TestVirtual_Semaphore_PathIsCheckedOnceInASession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		release(t, take(t, v.permits(1, 3)))
		w := &wire{dial: v.net.Dial}
		p := newSemaphore(t, v.connect(w.dialer()), semPath, 3).Permits(1)
		for _, want := range []map[int32]int{
			{opCreate: 1, opGetChildren2: 3, opMulti: 1, opDelete: 1}, // the path, the queue and the leases
			{opGetChildren2: 2, opMulti: 1},
			{opGetChildren2: 2, opMulti: 1},
		} {
			w.reset()
			h := take(t, p)
			_, by := w.sent()
			require.Equal(t, want, by)
			release(t, h)
		}
	})
}

// Owners: a permit belongs to the owner in the context, in Hold.Owner and in each line of the log.
// It still cannot be re-entered.
func TestVirtual_Semaphore_PermitHasTheContextsOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelDebug))
		sem, o := newSemaphore(t, s, semPath, 2), zklock.NewOwner("job-7")
		h1, err := sem.Acquire(zklock.WithOwner(within(t, soon), o), 1)
		require.NoError(t, err)
		h2, err := sem.Acquire(zklock.WithOwner(h1.Context(), o), 1)
		require.NoError(t, err)
		v.has(2, 0, "not re-entered")
		nobody := take(t, newSemaphore(t, s, "/job/other", 2).Permits(1))
		require.Equal(t, []zklock.Owner{o, o}, []zklock.Owner{h1.Owner(), h2.Owner()})
		require.NotEqual(t, o, nobody.Owner())
		_, err = sem.TryAcquire(h2.Context(), 1)
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		release(t, h1)
		require.NoError(t, h2.Err())
		release(t, h2)
		synctest.Wait()
		for _, message := range []string{"zklock: granted", "zklock: released"} {
			require.Equal(t, 2, log.about(message, "owner="+o.String()), message)
		}
		v.has(0, 0)
	})
}

// The same rejection is final, or not, in whichever call it occurs.
func TestVirtual_Semaphore_IsFinalAgrees(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		sem := newSemaphore(t, v.connect(), semPath, 3, zklock.WithSharedLimit(semLimit))
		release(t, take(t, sem.Permits(1)))
		for name, refuse := range map[string]func() (undo func()){
			"no limit": func() func() {
				require.NoError(t, v.srv.SetData(semLimit, []byte("3")))
				return func() { v.setLimit(3) }
			},
			"limit not readable": func() func() {
				return v.srv.Inject(zktest.Before(zktest.GetData).Path(semLimit).Fail(zktest.NoAuth)).Remove
			},
			"leases not readable": func() func() {
				return v.srv.Inject(zktest.Before(zktest.GetChildren).Path(semLeases).Fail(zktest.NoAuth)).Remove
			},
			"queue not readable": func() func() {
				return v.srv.Inject(zktest.Before(zktest.GetChildren).Path(semQueue).Fail(zktest.NoAuth)).Remove
			},
		} {
			undo := refuse()
			_, acquire := sem.Acquire(within(t, time.Second), 1)
			_, try := sem.TryAcquire(within(t, time.Second), 1)
			_, _, look := sem.Participants(within(t, time.Second))
			for _, err := range []error{acquire, try, look} {
				require.Error(t, err, name)
				require.True(t, zklock.IsFinal(err), "%s: %v", name, err)
			}
			undo()
			synctest.Wait()
		}
		release(t, take(t, sem.Permits(1)))
	})
}

// Errors and log lines call a semaphore by the user's path, and the nodes by their own paths.
func TestVirtual_Semaphore_ErrorsAndLogsHaveTheUsersPath(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		var log warnings
		s := v.connect(lines(&log, slog.LevelDebug))
		sem := newSemaphore(t, s, semPath, 2)
		_, err := zklock.NewMulti(sem.Permits(1), sem.Permits(2))
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, semPath, e.Path)
		h := take(t, sem.Permits(2))
		_, err = newMulti(t, newMutex(t, s, "/job/a")).Acquire(h.Context())
		require.ErrorContains(t, err, "the context carries a hold of "+semPath+", and /job/a must be taken before it")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err = newMulti(t, sem.Permits(1), newMutex(t, s, "/job/z")).Acquire(ctx)
		require.ErrorAs(t, err, &e)
		require.Equal(t, semPath, e.Path)
		release(t, h)

		// The end of a counter, and a missing READ, concern one node, which is named next to the
		// path.
		for _, root := range []string{semQueue, semLeases} {
			require.True(t, v.srv.SetCreates(root, 1<<31-1<<27))
		}
		release(t, take(t, sem.Permits(1)))
		v.srv.Inject(zktest.After(zktest.Create).Session(s.Stats().SessionID).Path(semQueue + "/*").DropReply().Close().Once())
		denied := v.srv.Inject(zktest.Before(zktest.GetChildren).Session(s.Stats().SessionID).Path(semQueue).Fail(zktest.NoAuth))
		_, err = sem.Acquire(within(t, time.Minute), 1)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		denied.Remove()
		synctest.Wait()

		seen := map[string]bool{}
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, line := range log.lines {
			_, rest, _ := strings.Cut(line, "msg=\"zklock: ")
			if text, attrs, ok := strings.Cut(rest, "\" path="); ok {
				path, _, _ := strings.Cut(attrs, " ")
				require.Equal(t, semPath, path, line)
				seen[text] = true
			}
		}
		for _, text := range []string{
			"queued", "still waiting for the lock", "granted", "released",
			"the lock root's sequence counter is near its end; zklock restarts it when the queue is empty",
			"removed the empty lock root to start its sequence counter again",
			"cannot determine whether a lock node was created; if it was, it blocks the lock until READ is granted again or this ZooKeeper session ends",
		} {
			require.True(t, seen[text], text)
		}
	})
}
