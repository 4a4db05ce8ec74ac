package zklock_test

// These tests attack the first node in a new lock root: one transaction creates both, and one
// deletes both.

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// neverReaped: the servers do not delete empty containers while a test runs.
var neverReaped = zktest.WithConfig("znode.container.checkIntervalMs=86400000")

// I4, I8: a lock for a new name takes two requests and two round trips, and nothing is left of it:
// of a mutex, of both sides of a read/write lock and of an election.
func TestVirtual_NewRoot_TwoRequests_NothingIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way, names = time.Millisecond, 1000
		v.net.SetLatency(way)
		s := v.connect()
		beats := 0
		for i := range names {
			p := fmt.Sprintf("/job/%d", i)
			var l zklock.Lock = newMutex(t, s, p, zklock.WithContainer())
			switch i % 3 {
			case 1:
				l = newRWMutex(t, s, p, zklock.WithContainer()).ReadLock()
			case 2:
				l = newRWMutex(t, s, p, zklock.WithContainer()).WriteLock()
			}
			var took time.Duration
			got := v.cost(func() {
				began := time.Now()
				h := acquire(t, l)
				st, _ := v.srv.Stat(h.Node())
				require.Equal(t, st.Czxid, h.Token())
				release(t, h)
				took = time.Since(began)
			})
			require.Equal(t, got.Total(zktest.Multi)+got.Total(zktest.Exists), got.Total(zktest.AnyOp), "%s: %v", p, got)
			require.Equal(t, 2*2*way, took)
			beats += got.Total(zktest.AnyOp) - 2
		}
		require.Less(t, beats, 10, "heartbeats")
		require.Empty(t, v.srv.Children("/job"))
	}, neverReaped)
}

var newNames = flag.Int("names", 1000, "how many names TestNewRoot_ManyNames takes")

// I4, I8: the same on any server, in real time: two requests for each name, counted on the
// connection, nothing is left, and the heap does not grow: make nightly PART=servers takes 100,000
// names.
func TestNewRoot_ManyNames(t *testing.T) {
	srv := startOwn(t, serverConfig{containerCheck: time.Hour}).Addr()
	if isBefore(t, srv, "3.5") {
		t.Skip("not on ZooKeeper before 3.5, which has no containers")
	}
	w := &wire{}
	a, s := admin(t, srv), connect(t, srv, w.dialer())
	_, err := a.Create("/names", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	use := func(from, to int) {
		for i := from; i < to; i++ {
			h, err := newRoot(t, s, fmt.Sprint("/names/", i)).Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Release(t.Context()))
		}
	}
	use(0, *newNames/10)
	before, began := heap(), time.Now()
	w.reset()
	use(*newNames/10, *newNames)
	took := time.Since(began)
	sent, by := w.sent()
	names := *newNames - *newNames/10
	t.Logf("%d names in %v, %d requests (%s), the heap grew by %d bytes", names, took, sent, spell(by), heap()-before)
	require.Equal(t, sent, by[opMulti], "%v", by)
	require.LessOrEqual(t, sent, 2*names+1+int(took/(250*time.Millisecond)), "heartbeats included")
	require.Empty(t, children(t, a, "/names"))
	require.Less(t, heap()-before, int64(8<<20), "4,096 notes, and the test server's own memory")
}

// I1: the token is the node's czxid, also on real servers, whose responses to transactions have no
// Stat, and while other clients write.
func TestNewRoot_TokenIsTheNodesCzxid(t *testing.T) {
	srv := target(t)
	if isBefore(t, srv, "3.5") {
		t.Skip("not on ZooKeeper before 3.5, which has no containers")
	}
	p := lockPath(t, srv)
	var all sync.WaitGroup
	for i := range 4 {
		s := connect(t, srv)
		all.Go(func() {
			for j := range 50 {
				h, err := newRoot(t, s, fmt.Sprintf("%s/%d-%d", p, i, j)).Acquire(within(t, time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				if _, st, err := s.Conn().Exists(h.Node()); err != nil || st.Czxid != h.Token() {
					t.Errorf("%v: %v, %+v", h, err, st)
				}
				if err := h.Release(within(t, soon)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// newRoot is a lock WithContainer for which one transaction creates the root and the node.
func newRoot(t testing.TB, s *zklock.Session, p string) *zklock.Mutex {
	t.Helper()
	return newMutex(t, s, p, zklock.WithContainer())
}

// costOf returns the requests of an acquire and of its release, and the round trips of the acquire.
func (v *virtual) costOf(m zklock.Lock, way time.Duration) (got zktest.Counts, trips float64) {
	v.t.Helper()
	got = v.cost(func() {
		began := time.Now()
		h := acquire(v.t, m)
		trips = float64(time.Since(began)) / float64(2*way)
		release(v.t, h)
	})
	return got, trips
}

// I8: the cost of each case: the requests of acquire and release, and the round trips of the
// acquire.
func TestVirtual_NewRoot_Cost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way = time.Millisecond
		v.net.SetLatency(way)
		s, other := v.connect(), v.connect()
		row := func(what string, m zklock.Lock, requests int, trips float64) zktest.Counts {
			t.Helper()
			got, took := v.costOf(m, way)
			t.Logf("%-60s %d requests, %g round trips: %v", what, got.Total(zktest.AnyOp), took, got)
			require.Equal(t, requests, got.Total(zktest.AnyOp), what)
			require.Equal(t, trips, took, what) //nolint:testifylint // whole numbers
			return got
		}
		row("a new name", newRoot(t, s, "/job/a"), 2, 1)
		for range 3 {
			row("the same again", newRoot(t, s, "/job/a"), 2, 1)
			require.Empty(t, v.srv.Children("/job"))
		}
		row("another client, for which the name is new", newRoot(t, other, "/job/a"), 2, 1)
		row("the first one again", newRoot(t, s, "/job/a"), 2, 1)
		require.Empty(t, v.srv.Children("/job"))
		row("a parent is missing", newRoot(t, s, "/job/x/b"), 5, 2)
		row("two parents are missing", newRoot(t, s, "/job/y/z/b"), 6, 2)

		for i := range 4 {
			cycles(t, newMutex(t, other, fmt.Sprint("/job/there", i)), 1)
		}
		row("the root exists", newRoot(t, s, "/job/there0"), 4, 2)
		row("it was there before", newRoot(t, s, "/job/there0"), 3, 1)
		require.NoError(t, v.srv.Delete("/job/there0"))
		row("the servers have removed it", newRoot(t, s, "/job/there0"), 4, 2)
		row("so it is new again", newRoot(t, s, "/job/there0"), 2, 1)
		row("the root of the next name exists", newRoot(t, s, "/job/there1"), 4, 2)
		row("the third is expected to exist", newRoot(t, s, "/job/there2"), 3, 1)
		row("and is missing", newRoot(t, s, "/job/b"), 4, 2)
		row("so the next is expected to be missing", newRoot(t, s, "/job/c"), 2, 1)
		row("and exists", newRoot(t, s, "/job/there3"), 4, 2)
	}, neverReaped)
}

// I4: the lock is taken by another client while it is held. The release deletes the node alone, and
// the root remains; so does a root in which an administrator or a user has created or written
// something. A waiter of the same Session gets the handoff.
func TestVirtual_NewRoot_IsInUse_Stays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		s := v.connect()
		h := acquire(t, newRoot(t, s, "/job/a"))
		w := v.queueUp(newRoot(t, v.connect(), "/job/a"))
		time.Sleep(time.Second)
		require.Equal(t, 2, v.cost(func() { release(t, h) }).Of(s.Stats().SessionID, zktest.AnyOp), "both, and then the node alone")
		release(t, w.granted2(t, time.Second))

		h = acquire(t, newRoot(t, s, "/job/b"))
		_, err := v.srv.Create("/job/b/other", nil, 0)
		require.NoError(t, err)
		release(t, h)

		h = acquire(t, newRoot(t, s, "/job/c"))
		require.NoError(t, v.srv.SetData("/job/c", []byte("a user's")))
		release(t, h)

		h = acquire(t, newRoot(t, s, "/job/d"))
		w = v.queueUp(newRoot(t, s, "/job/d"))
		time.Sleep(time.Second)
		require.Equal(t, 1, v.cost(func() { release(t, h) }).Of(s.Stats().SessionID, zktest.AnyOp), "the handoff")
		release(t, w.granted2(t, time.Second))

		require.ElementsMatch(t, []string{"a", "b", "c", "d"}, v.srv.Children("/job"))
		require.Empty(t, v.srv.Children("/job/a"))
		require.Equal(t, []string{"other"}, v.srv.Children("/job/b"))
		require.Empty(t, v.srv.Children("/job/c"))
	}, neverReaped)
}

// I4: what a crash leaves is a used container, which the servers remove.
func TestVirtual_NewRoot_SessionExpires_ServersRemoveIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		h := acquire(t, newRoot(t, s, "/job/a"))
		v.srv.ExpireSession(s.Stats().SessionID)
		require.Equal(t, []string{"a"}, v.srv.Children("/job"))
		require.Empty(t, v.srv.Children("/job/a"))
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, h.Err(), zklock.ErrLost)
		require.Empty(t, v.srv.Children("/job"))
	}, zktest.WithConfig("znode.container.checkIntervalMs=1000"))
}

// I5: the node is deleted, and perhaps the root, and another client holds in a new root. The
// release reports the loss, and deletes nothing of the other client.
func TestVirtual_NewRoot_NodeDeleted_ReleaseIsLost(t *testing.T) {
	for _, isNew := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			h := acquire(t, newRoot(t, v.connect(), "/job/a"))
			require.NoError(t, v.srv.Delete(h.Node()))
			if isNew {
				require.NoError(t, v.srv.Delete("/job/a"))
			}
			other := acquire(t, newRoot(t, v.connect(), "/job/a"))
			require.Greater(t, other.Token(), h.Token())
			require.ErrorIs(t, h.Release(within(t, soon)), zklock.ErrLost)
			require.Equal(t, []string{base(other.Node())}, v.srv.Children("/job/a"))
			release(t, other)
			if !isNew {
				require.Equal(t, []string{"a"}, v.srv.Children("/job"), "its creator has lost it")
			}
		}, neverReaped)
	}
}

// I2, F3, F61: the reply to the transaction is lost, and it was executed: the node is found and
// granted without a list of its own, and its release deletes the root. If it was not executed, the
// call creates the root by itself.
func TestVirtual_NewRoot_ReplyLost(t *testing.T) {
	for _, executed := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			lost := zktest.Before(zktest.Multi).Path("/job/a/*").Close()
			if executed {
				lost = zktest.After(zktest.Multi).Path("/job/a/*").DropReply().Close()
			}
			v.srv.Inject(lost.Once())
			v.srv.ResetRequests()
			h := acquire(t, newRoot(t, s, "/job/a"))
			if executed {
				require.Equal(t, 1, v.srv.Requests().Total(zktest.GetChildren), "the search")
			}
			require.Equal(t, []string{base(h.Node())}, v.srv.Children("/job/a"), "I2")
			st, _ := v.srv.Stat(h.Node())
			require.Equal(t, st.Czxid, h.Token())
			release(t, h)
			left := v.srv.Children("/job")
			if executed {
				require.Empty(t, left)
			} else {
				require.Equal(t, []string{"a"}, left, "the servers remove it")
			}
		}, neverReaped)
	}
}

// I4, F2, F61: the transaction was looked for and not found, and is executed late: while the root
// exists, and after it was deleted. Then the orphan is found although the root was missing, and is
// deleted with the root.
func TestVirtual_NewRoot_ExecutedLate_IsDeleted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		late, m := "", newRoot(t, s, "/job/a")
		v.srv.Inject(zktest.After(zktest.Multi).Path("/job/a/*").Call(func() {
			late = "/job/a/" + lastOf(v.srv.Children("/job/a"))
			_ = v.srv.Delete(late)
			_ = v.srv.Delete("/job/a") // not executed yet
		}).DropReply().Close().Once())
		release(t, acquire(t, m))
		require.NoError(t, v.srv.Delete("/job/a")) // by the servers
		_, err := v.srv.Create("/job/a", nil, zktest.Container)
		require.NoError(t, err)
		_, err = v.srv.CreateAs(s.Stats().SessionID, late, nil, zk.FlagEphemeral)
		require.NoError(t, err)
		time.Sleep(s.Stats().SessionTimeout/3 + time.Second)
		require.Empty(t, v.srv.Children("/job"), "I4")
	}, neverReaped)
}

// I4, F3, F61: the reply to the release is lost. It is sent again, and reports success; the lock
// root of another client, which was created meanwhile, remains.
func TestVirtual_NewRoot_ReleaseLost(t *testing.T) {
	for _, executed := range []bool{true, false} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			s := v.connect()
			h := acquire(t, newRoot(t, s, "/job/a"))
			var other *waiting
			lost := zktest.Before(zktest.Multi).Path(h.Node()).Close()
			if executed {
				other = startAcquire(t, newRoot(t, v.connect(), "/job/b"))
				lost = zktest.After(zktest.Multi).Path(h.Node()).DropReply().Close()
			}
			v.srv.Inject(lost.Once())
			release(t, h)
			require.NotContains(t, v.srv.Children("/job"), "a")
			if other != nil {
				release(t, other.granted2(t, time.Second))
			}
		}, neverReaped)
	}
}

// R34: permissions. Without CREATE on the parent the lock root may exist; without DELETE on it the
// root remains, and later releases there do not try; an ACL of the lock without CREATE is an error,
// and nothing is left.
func TestVirtual_NewRoot_Permissions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		parent := func(name string, perms int32) string {
			_, err := s.Conn().Create("/"+name, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			for i := range 3 {
				_, err := v.srv.Create(fmt.Sprintf("/%s/%d", name, i), nil, 0)
				require.NoError(t, err)
			}
			_, err = s.Conn().SetACL("/"+name, zk.WorldACL(perms), -1)
			require.NoError(t, err)
			return "/" + name
		}
		p := parent("create", zk.PermAll&^zk.PermCreate)
		for i := range 3 {
			cycles(t, newRoot(t, s, fmt.Sprint(p, "/", i)), 2)
		}
		_, err := newRoot(t, s, p+"/new").Acquire(within(t, soon))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "no CREATE permission on /create")
		require.Len(t, v.srv.Children(p), 3)

		p = parent("delete", zk.PermAll&^zk.PermDelete)
		for i, want := range []int{3, 2, 2} {
			got := v.cost(func() { cycles(t, newRoot(t, s, fmt.Sprint(p, "/new", i)), 1) })
			require.Equal(t, want, got.Total(zktest.AnyOp), got)
		}
		require.Len(t, v.srv.Children(p), 6)

		_, err = newMutex(t, s, "/job/a", zklock.WithContainer(), zklock.WithACL(zk.WorldACL(zk.PermAll&^zk.PermCreate))).Acquire(within(t, soon))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "no CREATE permission on /job/a")
		synctest.Wait()
		require.Empty(t, v.srv.Children("/job"))
	}, neverReaped)
}

// I4: a call leaves while the transaction is under way: nothing is left.
func TestVirtual_NewRoot_CallLeaves_NothingIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way = time.Millisecond
		v.net.SetLatency(way)
		for after := time.Duration(0); after < 5*way; after += way / 2 {
			ctx, cancel := context.WithTimeout(context.Background(), after)
			h, err := newRoot(t, v.connect(), "/job/x/a").Acquire(ctx)
			cancel()
			if err == nil {
				release(t, h)
			}
			time.Sleep(10 * time.Second)
			require.NotContains(t, v.srv.Children("/job/x"), "a")
			_ = v.srv.Delete("/job/x")
		}
	}, neverReaped)
}

// I2: a call leaves while the transaction is under way, which finds that the root exists: it
// creates no node any more, behind which the owner's next call would wait.
func TestVirtual_NewRoot_CallLeaves_CreatesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(10 * time.Millisecond)
		s := v.connect()
		_, err := v.srv.Create("/job/a", nil, zktest.Container)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err = newRoot(t, s, "/job/a").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.Empty(t, nodesOf(v.srv.History(), s.Stats().SessionID))
	}, neverReaped)
}

// I8: clients that take a new name at the same time, again and again: each is granted, one at a
// time, with a larger token.
func TestVirtual_NewRoot_Contention(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		var locks []*zklock.Mutex
		for range 4 {
			locks = append(locks, newRoot(t, v.connect(), "/job/a"))
		}
		var last int64
		for range 20 {
			var all []*waiting
			for _, m := range locks {
				all = append(all, startAcquire(t, m))
			}
			granted := make(chan *zklock.Hold)
			for _, w := range all {
				go func() { granted <- w.granted2(t, time.Minute) }()
			}
			for range all {
				h := <-granted
				require.Greater(t, h.Token(), last, "I1")
				last = h.Token()
				time.Sleep(10 * time.Millisecond)
				require.Empty(t, granted)
				release(t, h)
			}
			_ = v.srv.Delete("/job/a") // by the servers
		}
	}, neverReaped)
}

// I8: a client waits in the new root, so the release of its creator is rejected, and the hand-over
// takes one more round trip: once for each root that was created.
func TestVirtual_NewRoot_HandOver_OneRoundTripMoreOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way, clients = time.Millisecond, 4
		v.net.SetLatency(way)
		var locks []*zklock.Mutex
		for range clients {
			locks = append(locks, newRoot(t, v.connect(), "/job/a"))
		}
		for round := range 2 {
			h := acquire(t, locks[0])
			var next []*waiting
			for _, m := range locks[1:] {
				next = append(next, v.queueUp(m))
				time.Sleep(time.Second)
			}
			for i, w := range next {
				began := time.Now()
				go func() { _ = h.Release(context.Background()) }()
				h = w.granted2(t, time.Minute)
				want := 2 * way
				if round == 0 && i == 0 {
					want += 2 * way
				}
				require.Equal(t, want, time.Since(began), "round %d, hand-over %d", round, i)
			}
			release(t, h)
			require.Equal(t, []string{"a"}, v.srv.Children("/job"))
		}
	}, neverReaped)
}

// I8: a client acquires and releases the lock as fast as it can, and each time creates and deletes
// the root. Another client, which finds the root and then creates its node, still gets in after a
// few requests, also if it always finds the opposite of what it expects.
func TestVirtual_NewRoot_BusyClient_KeepsNoneOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way = time.Millisecond
		v.net.SetLatency(way)
		busy, stop := newRoot(t, v.connect(), "/job/a"), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					cycles(t, busy, 1)
				}
			}
		})
		most := 0
		for i := range 40 {
			time.Sleep(time.Duration(i) * way / 10)
			other := v.connect()
			v.srv.ResetRequests()
			h := acquire(t, newRoot(t, other, "/job/a"))
			most = max(most, v.srv.Requests().Of(other.Stats().SessionID, zktest.Create)+v.srv.Requests().Of(other.Stats().SessionID, zktest.Multi))
			release(t, h)
			for isThere := true; isThere; _, isThere = v.srv.Stat("/job/a") {
				_ = v.srv.Delete("/job/a") // by the servers, when it is empty
				time.Sleep(way / 10)
			}
		}
		close(stop)
		all.Wait()
		t.Logf("at most %d creates", most)
		require.LessOrEqual(t, most, 9)
	}, neverReaped)
}

// I7: names that are used once leave no memory, because the notes of a Session have a limit.
func TestVirtual_NewRoot_ManyNames_GrowNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const notes = 4096
		s, n := v.connect(), 0
		use := func(names int) map[string]int {
			for range names {
				cycles(t, newRoot(t, s, fmt.Sprint("/job/", n)), 1)
				n++
			}
			return footprint(s)
		}
		before := use(notes + 10)
		require.Equal(t, before, use(notes))
		require.Empty(t, v.srv.Children("/job"))
	}, neverReaped)
}
