package zklock_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// I2, I3: one node, ephemeral, of the current session, under Curator's name. I1: its czxid is the token.
func TestAcquire_Free_HoldsOneNode(t *testing.T) {
	srv := target(t)
	s, a, p := connect(t, srv), admin(t, srv), lockPath(t, srv)

	for range 2 { // the first of a session verifies the token, the second takes it from the reply
		h := acquire(t, newMutex(t, s, p))
		require.Equal(t, []string{base(h.Path())}, children(t, a, p))
		require.Regexp(t, `^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-lock-[0-9]{10}$`, base(h.Path()))
		data, stat, err := a.Get(h.Path())
		require.NoError(t, err)
		require.Equal(t, s.SessionID(), stat.EphemeralOwner)
		require.Equal(t, stat.Czxid, h.Token())
		host, err := os.Hostname()
		require.NoError(t, err)
		require.Equal(t, host+":"+strconv.Itoa(os.Getpid()), string(data))
		require.NoError(t, h.Err())
		require.True(t, h.Deadline().After(time.Now()))
		release(t, h)
		require.Empty(t, children(t, a, p))
		require.ErrorIs(t, h.Err(), zklock.ErrNotHeld)
	}
}

// I1, I8, R6: many goroutines of several sessions; nobody overlaps, tokens increase, everybody gets in.
func TestAcquire_Contended_OneAtATime(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	o := &overlap{t: t}
	var all sync.WaitGroup
	const sessions, goroutines, rounds = 3, 5, 8
	for range sessions {
		m := newMutex(t, connect(t, srv), p)
		for range goroutines {
			all.Go(func() {
				for range rounds {
					h, err := m.Acquire(within(t, 4*soon))
					if err != nil {
						t.Error(err)
						return
					}
					o.work(h, func() {})
					if err := h.Release(within(t, soon)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, sessions*goroutines*rounds, o.entries)
	require.Empty(t, children(t, admin(t, srv), p))
}

// I8: grants follow the queue.
func TestAcquire_Queue_GrantsInOrder(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m1, m2 := newMutex(t, connect(t, srv), p), newMutex(t, connect(t, srv), p)
	h := acquire(t, m1)
	var queue []*waiting
	for i := range 6 {
		queue = append(queue, queueUp(t, a, []*zklock.Mutex{m1, m2}[i%2], p))
	}
	for i, w := range queue {
		release(t, h)
		h = w.granted(t)
		for _, later := range queue[i+1:] {
			select {
			case <-later.done:
				t.Fatalf("I8: a later waiter was granted before its turn: %v", later.err)
			default:
			}
		}
	}
	release(t, h)
	require.Empty(t, children(t, a, p))
}

func TestTryAcquire_SomebodyAhead_LeavesNothing(t *testing.T) {
	server := startOwn(t, serverConfig{})
	srv := server.Addr()
	a, p := admin(t, srv), lockPath(t, srv)
	h := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)

	before, err := server.WatchCount()
	require.NoError(t, err)
	for range 50 {
		_, err := m.TryAcquire(within(t, soon))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		require.Len(t, children(t, a, p), 1) // I4
	}
	after, err := server.WatchCount()
	require.NoError(t, err)
	require.Equal(t, before, after, "I7: tries leave no watch")

	release(t, h)
	h, err = m.TryAcquire(within(t, soon))
	require.NoError(t, err)
	release(t, h)
}

// I4, I6, R44: a wait that ends leaves nothing, and says why it ended.
func TestAcquire_ContextEnds_LeavesNothing(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	h := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, children(t, a, p), 1)

	why := errors.New("the shop is closing")
	cctx, ccancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { _, err := m.Acquire(cctx); done <- err }()
	eventually(t, "it waits", func() bool { return len(children(t, a, p)) == 2 })
	ccancel(why)
	err = <-done
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, context.Canceled)
	var e *zklock.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "acquire", e.Op)
	require.Equal(t, p, e.Path)
	require.Len(t, children(t, a, p), 1)

	_, err = m.Acquire(cctx) // already over: not even begun
	require.ErrorIs(t, err, why)
	release(t, h)
}

// I2, R21: re-entry adds no node and sends nothing; handles are released in any order, the node goes with the last.
func TestAcquire_SameOwner_ReEnters(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	w := &wire{}
	s := connect(t, srv, w.dialer())
	m, other := newMutex(t, s, p), newMutex(t, s, p)

	h1 := acquire(t, m)
	w.reset(nil)
	h2, err := m.Acquire(h1.Context())
	require.NoError(t, err)
	derived, cancel := context.WithTimeout(h2.Context(), soon)
	defer cancel()
	h3, err := other.TryAcquire(derived) // another Mutex on the path is the same lock
	require.NoError(t, err)
	n, by := w.sent()
	require.Zero(t, n, "re-entry sent %v", by)
	require.Equal(t, []int64{h1.Token(), h1.Token()}, []int64{h2.Token(), h3.Token()})
	require.Equal(t, h1.Path(), h3.Path())
	require.True(t, m.Held())
	require.True(t, m.OwnedBy(h3.Context()))
	require.False(t, m.OwnedBy(context.Background()))
	require.False(t, m.OwnedBy(zklock.WithOwner(context.Background(), zklock.NewOwner("x"))))

	release(t, h1)
	require.ErrorIs(t, h1.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(h1.Context()), zklock.ErrNotHeld)
	require.NoError(t, h2.Context().Err(), "another handle's release does not end this one")
	done := make(chan error)
	go func() { done <- h3.Release(context.Background()) }() // from any goroutine
	require.NoError(t, <-done)
	require.Len(t, children(t, a, p), 1)
	release(t, h2)
	require.Empty(t, children(t, a, p))
	require.False(t, m.Held())
	release(t, h2) // idempotent
}

func TestAcquire_ExplicitOwner_ReEnters(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	m := newMutex(t, connect(t, srv), p)
	ctx := zklock.WithOwner(within(t, soon), zklock.NewOwner("orders"))
	h1, err := m.Acquire(ctx)
	require.NoError(t, err)
	h2, err := m.TryAcquire(ctx)
	require.NoError(t, err)
	_, err = m.TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrNotAcquired, "a context without an owner is somebody else")
	release(t, h1)
	release(t, h2)
}

// An attempt belongs to its owner: calls join it, and it ends when the last has left.
func TestAcquire_SameOwnerWaiting_Joins(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)
	owner := zklock.NewOwner("joint")

	type outcome struct {
		h   *zklock.Hold
		err error
	}
	join := func() (chan outcome, context.CancelFunc) {
		ctx, cancel := context.WithCancel(zklock.WithOwner(context.Background(), owner))
		ch := make(chan outcome, 1)
		go func() { h, err := m.Acquire(ctx); ch <- outcome{h, err} }()
		return ch, cancel
	}
	first, cancelFirst := join()
	eventually(t, "the attempt waits", func() bool {
		_, err := m.TryAcquire(zklock.WithOwner(within(t, soon), owner))
		require.ErrorIs(t, err, zklock.ErrNotAcquired)
		return len(children(t, a, p)) == 2
	})
	second, cancelSecond := join()
	third, cancelThird := join()
	defer cancelSecond()
	defer cancelThird()
	eventually(t, "all have joined", func() bool { return m.Joiners(owner) == 3 })
	cancelFirst()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	require.Len(t, children(t, a, p), 2, "the attempt goes on for the others")
	release(t, holder)
	o2, o3 := <-second, <-third
	require.NoError(t, o2.err)
	require.NoError(t, o3.err)
	require.Equal(t, o2.h.Path(), o3.h.Path())
	require.Len(t, children(t, a, p), 1)
	release(t, o2.h)
	require.Len(t, children(t, a, p), 1)
	release(t, o3.h)
	require.Empty(t, children(t, a, p))
}

func TestAcquire_LastJoinerLeaves_EndsTheAttempt(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)
	w := queueUp(t, a, m, p)
	w.stop()
	_, err := w.get(t)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, children(t, a, p), 1)
	release(t, holder)
}

func TestHold_Context_HasValuesButNotTheWaitsEnd(t *testing.T) {
	srv := target(t)
	m := newMutex(t, connect(t, srv), lockPath(t, srv))
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "v"), soon)
	h, err := m.Acquire(ctx)
	require.NoError(t, err)
	cancel()
	require.NoError(t, h.Context().Err())
	require.Equal(t, "v", h.Context().Value(key{}))
	_, has := h.Context().Deadline()
	require.False(t, has)
	owner, ok := zklock.OwnerFrom(h.Context())
	require.True(t, ok)
	require.Equal(t, h.Owner(), owner)
	release(t, h)
}

func TestDo(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m := newMutex(t, connect(t, srv), p)

	require.NoError(t, m.Do(within(t, soon), func(ctx context.Context) error {
		require.True(t, m.OwnedBy(ctx))
		return m.Do(ctx, func(context.Context) error { return nil }) // re-enters
	}))
	mine := errors.New("the job failed")
	require.ErrorIs(t, m.Do(within(t, soon), func(context.Context) error { return mine }), mine)

	// The end of the caller's context reaches the function, and the release happens all the same (R63).
	ctx, cancel := context.WithCancel(context.Background())
	err := m.Do(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, children(t, a, p))

	// A lost lock is an error although the function saw none.
	err = m.Do(within(t, soon), func(ctx context.Context) error {
		require.NoError(t, a.Delete(p+"/"+children(t, a, p)[0], -1))
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), zklock.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, zklock.ErrLost)

	require.Panics(t, func() {
		_ = m.Do(within(t, soon), func(context.Context) error { panic("at the disco") })
	})
	require.Empty(t, children(t, a, p))
}

// R28, R63: a release in a context that has ended still releases.
func TestRelease_ContextEnded_DeletesAllTheSame(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	h := acquire(t, newMutex(t, connect(t, srv), p))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, h.Release(ctx))
	require.Empty(t, children(t, a, p))
}

// F24: somebody deletes the holder's node. The holder is told, and Release says so (R4).
func TestHold_NodeDeleted_IsLost(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	m := newMutex(t, s, p)
	h, kept := acquire(t, m), acquire(t, newMutex(t, s, p+"-other"))
	require.NoError(t, a.Delete(h.Path(), -1))
	select {
	case <-h.Lost():
	case <-time.After(soon):
		t.Fatal("F24: the loss was not told")
	}
	require.ErrorIs(t, h.Err(), zklock.ErrLost)
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrLost)
	require.False(t, m.Held())
	_, err := m.Acquire(zklock.WithOwner(within(t, soon), h.Owner()))
	require.ErrorIs(t, err, zklock.ErrLost, "a lost hold is never re-entered")
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	require.NoError(t, h.Release(within(t, soon)))
	require.NoError(t, kept.Err(), "a hold of the same session on another lock stands")
	release(t, kept)

	again, err := m.Acquire(zklock.WithOwner(within(t, soon), h.Owner()))
	require.NoError(t, err, "after its release the owner starts afresh")
	release(t, again)
}

// R4: the node is gone, and the holder asks for its release before it was told.
func TestRelease_NodeDeleted_SaysLost(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	h := acquire(t, newMutex(t, connect(t, srv, zklock.WithSessionTimeout(30*time.Second)), p))
	require.NoError(t, a.Delete(h.Path(), -1))
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
}

// F8, R40, R41, R57: the session expires while holding. Lost is told once; afterwards everything works again.
func TestHold_SessionExpires_IsLost(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	changes := s.Changes(within(t, 2*soon))
	m := newMutex(t, s, p)
	h := acquire(t, m)
	old := s.SessionID()
	expire(t, srv, s)
	select {
	case <-h.Lost():
	case <-time.After(soon):
		t.Fatal("F8: the loss was not told")
	}
	require.ErrorIs(t, h.Err(), zklock.ErrLost)
	again := acquire(t, m)
	require.Greater(t, again.Token(), h.Token())
	require.NotEqual(t, old, s.SessionID())
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	require.Len(t, children(t, a, p), 1, "the release of a lost hold touches nobody else's node (F9)")
	release(t, again)

	var states []zklock.State
	for c := range changes {
		states = append(states, c.State)
		if c.State == zklock.Connected {
			break
		}
		if c.State == zklock.Lost {
			require.Equal(t, old, c.SessionID)
		}
	}
	require.Equal(t, []zklock.State{zklock.Suspended, zklock.Lost, zklock.Connected}, states)
}

// F7, R12, R30: the session expires while waiting: queue again at the tail, never granted on the old node.
func TestAcquire_SessionExpires_QueuesAgain(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := acquire(t, newMutex(t, connect(t, srv), p))
	s := connect(t, srv)
	w := queueUp(t, a, newMutex(t, s, p), p)
	old := s.SessionID()
	expire(t, srv, s)
	eventually(t, "a node of the new session is in the queue", func() bool {
		for _, n := range children(t, a, p) {
			ok, stat, err := a.Exists(p + "/" + n)
			require.NoError(t, err)
			if ok && stat.EphemeralOwner != old && n != base(holder.Path()) {
				return true
			}
		}
		return false
	})
	release(t, holder)
	h := w.granted(t)
	_, stat, err := a.Exists(h.Path())
	require.NoError(t, err)
	require.Equal(t, s.SessionID(), stat.EphemeralOwner)
	release(t, h)
}

func TestAcquire_SessionExpires_FailsIfToldTo(t *testing.T) {
	t.Parallel()
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := acquire(t, newMutex(t, connect(t, srv), p))
	s := connect(t, srv)
	w := queueUp(t, a, newMutex(t, s, p, zklock.WithFailOnSessionLoss()), p)
	expire(t, srv, s)
	_, err := w.get(t)
	require.ErrorIs(t, err, zklock.ErrSessionExpired)
	release(t, holder)
}

// F25, R55: a waiter's node is deleted: it queues again, and nobody behind it is granted early.
func TestAcquire_WaitersNodeDeleted_QueuesAgain(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	holder := acquire(t, newMutex(t, connect(t, srv), p))
	m := newMutex(t, connect(t, srv), p)
	w1 := queueUp(t, a, m, p)
	w1Node := lastOf(children(t, a, p))
	w2 := queueUp(t, a, newMutex(t, connect(t, srv), p), p)
	require.NoError(t, a.Delete(p+"/"+w1Node, -1))
	eventually(t, "it queues again", func() bool { return len(children(t, a, p)) == 3 })
	require.NoError(t, holder.Err())
	select {
	case <-w2.done:
		t.Fatal("F25: granted early")
	default:
	}
	release(t, holder)
	release(t, w2.granted(t))
	release(t, w1.granted(t))
}

func lastOf(names []string) string {
	last := ""
	for _, n := range names {
		if last == "" || n[len(n)-10:] > last[len(last)-10:] {
			last = n
		}
	}
	return last
}

// F26, R5, R58: the lock root goes away, under waiters, under a holder, between acquires.
func TestAcquire_LockRootVanishes_IsMadeAgain(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	m := newMutex(t, connect(t, srv), p+"/a/b/c")
	var token int64
	for range 3 {
		h := acquire(t, m)
		require.Greater(t, h.Token(), token, "I1: tokens increase although the counter of the root restarts")
		require.True(t, strings.HasSuffix(h.Path(), "-lock-0000000000"))
		token = h.Token()
		release(t, h)
		for _, d := range []string{"/a/b/c", "/a/b", "/a"} {
			require.NoError(t, a.Delete(p+d, -1))
		}
	}

	h := acquire(t, m)
	w := queueUp(t, a, m, p+"/a/b/c")
	_, err := a.Multi(
		&zk.DeleteRequest{Path: p + "/a/b/c/" + lastOf(children(t, a, p+"/a/b/c")), Version: -1},
		&zk.DeleteRequest{Path: h.Path(), Version: -1},
		&zk.DeleteRequest{Path: p + "/a/b/c", Version: -1})
	require.NoError(t, err)
	again := w.granted(t)
	require.Greater(t, again.Token(), h.Token())
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
	release(t, again)
}

// What bad input gets: children that are no queue nodes take no part.
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

// F35: two nodes with one suffix, made by a foreign client: the older one is ahead.
func TestAcquire_ForeignNodeWithOurSuffix_IsOrderedByCzxid(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	// Our node will get the suffix 1: this one uses up 0.
	_, err := a.Create(p+"/_c_00000000-0000-0000-0000-000000000000-lock-0000000001", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	m := newMutex(t, connect(t, srv), p)
	_, err = m.TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zklock.ErrNotAcquired)

	w := queueUp(t, a, m, p)
	_, err = a.Create(p+"/_c_00000000-0000-0000-0000-000000000001-lock-"+suffixOf(lastOf(children(t, a, p))), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, a.Delete(p+"/_c_00000000-0000-0000-0000-000000000000-lock-0000000001", -1))
	release(t, w.granted(t)) // the younger node with our suffix is behind us
}

func suffixOf(name string) string { return name[len(name)-10:] }

// R11, R15, R19, R60.
func TestParticipants(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s1, s2 := connect(t, srv), connect(t, srv)
	m := newMutex(t, s1, p, zklock.WithData([]byte("first")))
	ps, err := newMutex(t, s1, p+"/not/there").Participants(within(t, soon))
	require.NoError(t, err)
	require.Empty(t, ps)

	h := acquire(t, m)
	w := queueUp(t, a, newMutex(t, s2, p, zklock.WithData([]byte("second"))), p)
	ps, err = m.Participants(within(t, soon))
	require.NoError(t, err)
	require.Len(t, ps, 2)
	require.Equal(t, h.Path(), ps[0].Node)
	require.Equal(t, h.Token(), ps[0].Token)
	require.Equal(t, []string{"first", "second"}, []string{string(ps[0].Data), string(ps[1].Data)})
	require.Equal(t, []int64{s1.SessionID(), s2.SessionID()}, []int64{ps[0].SessionID, ps[1].SessionID})
	require.Greater(t, ps[1].Token, ps[0].Token)
	require.WithinDuration(t, time.Now(), ps[0].Created, time.Minute)
	release(t, h)
	release(t, w.granted(t))
}

// R15: a write to ZooKeeper fenced by ZooKeeper itself.
func TestHold_Check_FencesAMulti(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv)
	h := acquire(t, newMutex(t, s, p+"/lock"))
	_, err := a.Create(p+"/value", []byte("old"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = a.Set(h.Path(), []byte("somebody changed the data"), -1) // no matter: any version will do
	require.NoError(t, err)
	write := func(v string) error {
		_, err := s.Conn().Multi(h.Check(), &zk.SetDataRequest{Path: p + "/value", Data: []byte(v), Version: -1})
		return err
	}
	require.NoError(t, write("held"))
	require.NoError(t, a.Delete(h.Path(), -1))
	require.ErrorIs(t, write("lost"), zk.ErrNoNode)
	data, _, err := a.Get(p + "/value")
	require.NoError(t, err)
	require.Equal(t, "held", string(data))
	require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
}

// R26: with a chroot, paths are below it and a missing chroot is made with the lock root; Path is absolute.
func TestConnect_Chroot(t *testing.T) {
	srv := target(t)
	a, p := admin(t, srv), lockPath(t, srv)
	s := connect(t, srv+p+"/team/app")
	m := newMutex(t, s, "/locks/orders")
	h := acquire(t, m)
	require.True(t, strings.HasPrefix(h.Path(), p+"/team/app/locks/orders/_c_"), h.Path())
	require.Len(t, children(t, a, p+"/team/app/locks/orders"), 1)
	w := queueUp(t, a, m, p+"/team/app/locks/orders")
	ps, err := m.Participants(within(t, soon))
	require.NoError(t, err)
	require.Len(t, ps, 2)
	_, err = s.Conn().Multi(h.Check())
	require.NoError(t, err)
	release(t, h)
	release(t, w.granted(t))
	require.Empty(t, children(t, a, p+"/team/app/locks/orders"))
}

// R34, F27: who lacks a permission is told for which request, which one, and on which node, and errors.Is still finds the
// client's error.
func TestPermissions_ErrorNamesRequestPermissionAndNode(t *testing.T) {
	t.Parallel()
	srv := target(t)
	p := lockPath(t, srv)
	a := admin(t, srv)
	require.NoError(t, a.AddAuth("digest", []byte("ann:secret")))
	stranger := connect(t, srv)
	root := func(name string, perms int32) string {
		path := p + "/" + name
		_, err := a.Create(path, nil, 0, append(zk.DigestACL(zk.PermAll, "ann", "secret"), zk.WorldACL(perms)...))
		require.NoError(t, err)
		return path
	}
	denied := func(err error, says string) {
		t.Helper()
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, ": "+says+": ")
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
	}

	full := root("full", zk.PermAll&^zk.PermCreate)
	_, err := newMutex(t, stranger, full).Acquire(within(t, soon))
	denied(err, "create: no CREATE permission on "+full)
	_, err = newMutex(t, stranger, full+"/x/y").Acquire(within(t, soon))
	denied(err, "making "+full+"/x: create: no CREATE permission on "+full)
	_, err = newMutex(t, stranger, full+"/x", zklock.WithContainer()).TryAcquire(within(t, soon))
	denied(err, "making "+full+"/x: create: no CREATE permission on "+full)

	hidden := root("hidden", zk.PermAll&^zk.PermRead)
	_, err = newMutex(t, stranger, hidden).Acquire(within(t, soon))
	denied(err, "list: no READ permission on "+hidden)
	_, err = newMutex(t, stranger, hidden).Participants(within(t, soon))
	denied(err, "list: no READ permission on "+hidden)

	ann := connect(t, srv, zklock.WithAuth("digest", []byte("ann:secret")))
	open := root("open", zk.PermAll)
	h := acquire(t, newMutex(t, ann, open, zklock.WithACL(zk.DigestACL(zk.PermAll, "ann", "secret"))))
	_, err = newMutex(t, stranger, open).Participants(within(t, soon))
	denied(err, "get: no READ permission on "+h.Path())
	denied(zklock.Revoke(within(t, soon), stranger, h.Path()), "set: no WRITE permission on "+h.Path())
	release(t, h)

	kept := root("kept", zk.PermAll&^zk.PermDelete)
	h = acquire(t, newMutex(t, stranger, kept))
	err = h.Release(within(t, soon))
	denied(err, "delete: no DELETE permission on "+kept)
}

// R34, R35, F27.
func TestACL(t *testing.T) {
	t.Parallel()
	srv := target(t)
	p := lockPath(t, srv)
	a := admin(t, srv)
	require.NoError(t, a.AddAuth("digest", []byte("ann:secret")))
	acl := zk.DigestACL(zk.PermAll, "ann", "secret")
	ann := connect(t, srv, zklock.WithAuth("digest", []byte("ann:secret")))
	h := acquire(t, newMutex(t, ann, p+"/a/b", zklock.WithACL(acl)))
	for _, n := range []string{p + "/a", p + "/a/b", h.Path()} {
		got, _, err := a.GetACL(n)
		require.NoError(t, err)
		require.Equal(t, acl, got, n)
	}

	start := time.Now()
	stranger := connect(t, srv)
	_, err := newMutex(t, stranger, p+"/a/b").Acquire(within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	_, err = newMutex(t, stranger, p+"/a/x/y").Acquire(within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth, "no CREATE for a parent")
	wrong := connect(t, srv, zklock.WithAuth("digest", []byte("ann:guess")))
	_, err = newMutex(t, wrong, p+"/a/b").TryAcquire(within(t, soon))
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.Less(t, time.Since(start), soon/2, "fails fast, not at the end of ctx")

	// No READ on the predecessor: its end is found by polling.
	bob := connect(t, srv, zklock.WithAuth("digest", []byte("bob:b")))
	open := p + "/open"
	_, err = a.Create(open, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	hidden := acquire(t, newMutex(t, ann, open, zklock.WithACL(acl)))
	w := queueUp(t, a, newMutex(t, bob, open), open)
	release(t, hidden)
	release(t, w.granted(t))
	release(t, h)

	// The credentials are sent first on every connection: they survive a reconnect.
	wi := &wire{}
	ann2 := connect(t, srv, zklock.WithAuth("digest", []byte("ann:secret")), wi.dialer())
	m := newMutex(t, ann2, p+"/a/b", zklock.WithACL(acl))
	release(t, acquire(t, m))
	wi.cut()
	release(t, acquire(t, m))
}

func TestContainerRoot(t *testing.T) {
	server := startOwn(t, serverConfig{containerCheck: 50 * time.Millisecond})
	srv := server.Addr()
	a := admin(t, srv)
	m := newMutex(t, connect(t, srv), "/job", zklock.WithContainer())
	if isBefore(t, srv, "3.5") {
		// There are no containers yet. The lock root is a persistent node.
		release(t, acquire(t, m))
		release(t, acquire(t, m))
		there, _, err := a.Exists("/job")
		require.NoError(t, err)
		require.True(t, there)
		return
	}
	var token int64
	for range 3 { // F26: reaped in between
		h := acquire(t, m)
		require.Greater(t, h.Token(), token)
		token = h.Token()
		release(t, h)
		eventually(t, "the container is reaped", func() bool { ok, _, err := a.Exists("/job"); return err == nil && !ok })
	}
}

// R20: bad paths are refused by the constructor.
func TestNewMutex_BadPaths(t *testing.T) {
	srv := target(t)
	s := connect(t, srv)
	for _, p := range []string{"", "locks", "/", "/locks/", "//locks", "/a//b", "/a/../b", "/a/./b", "/a\x00b"} {
		_, err := zklock.NewMutex(s, p)
		require.Error(t, err, "%q", p)
		var e *zklock.Error
		require.ErrorAs(t, err, &e)
	}
	_, err := zklock.NewMutex(nil, "/locks")
	require.Error(t, err)
}

func TestNilContexts(t *testing.T) {
	srv := target(t)
	s := connect(t, srv)
	m := newMutex(t, s, lockPath(t, srv))
	var none context.Context
	_, err := m.Acquire(none)
	require.ErrorContains(t, err, "nil context")
	_, err = m.Participants(none)
	require.ErrorContains(t, err, "nil context")
	_, err = zklock.Connect(none, srv)
	require.ErrorContains(t, err, "nil context")
	h := acquire(t, m)
	require.ErrorContains(t, h.Release(none), "nil context")
	require.NoError(t, h.Err(), "a refused call changes nothing")
	release(t, h)
}

// WithRevocation and Revoke: what Curator calls makeRevocable.
func TestRevocation(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	asked := make(chan *zklock.Hold, 2)
	s := connect(t, srv)
	m := newMutex(t, s, p, zklock.WithRevocation(func(h *zklock.Hold) { asked <- h }))
	plain := newMutex(t, s, p)
	other := connect(t, srv)
	for range 2 {
		h := acquire(t, m)
		require.NoError(t, zklock.Revoke(within(t, soon), other, h.Path()))
		select {
		case got := <-asked:
			require.Same(t, h, got)
		case <-time.After(soon):
			t.Fatal("the holder was not asked")
		}
		require.NoError(t, h.Err(), "asking takes nothing away")
		release(t, h)

		// The first handle's release does not end the listening: the hold goes on, also through a Mutex that was not told of it.
		h = acquire(t, m)
		again, err := plain.Acquire(h.Context())
		require.NoError(t, err)
		release(t, h)
		require.NoError(t, zklock.Revoke(within(t, soon), other, again.Path()))
		select {
		case got := <-asked:
			require.Same(t, again, got)
		case <-time.After(soon):
			t.Fatal("the holder was not asked")
		}
		release(t, again)
		require.NoError(t, zklock.Revoke(within(t, soon), other, h.Path()), "a node that is gone is no error")
	}
}

// F36 in part: go-zookeeper's own lock in one queue with ours.
func TestInterop_GoZookeeperLock(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	var inside overlapCounter
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
				inside.enter(t)
				inside.leave()
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
		m := newMutex(t, connect(t, srv), p)
		all.Go(func() {
			for range 10 {
				if err := m.Do(within(t, 4*soon), func(context.Context) error {
					inside.enter(t)
					inside.leave()
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, 60, inside.total)
}

type overlapCounter struct {
	mu            sync.Mutex
	inside, total int
}

func (o *overlapCounter) enter(t testing.TB) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside++
	o.total++
	if o.inside != 1 {
		t.Errorf("I1: %d holders at a time", o.inside)
	}
}

func (o *overlapCounter) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside--
}
