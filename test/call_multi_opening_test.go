package zklock_test

// These tests attack a Multi's batch acquire, which creates its nodes in one transaction: its cost,
// the positions that it keeps, and its nodes if responses are lost.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// fourPaths are the locks of a Multi, in their order.
var fourPaths = []string{"/job/a", "/job/b", "/job/c", "/job/d"}

// fourReady returns a Session's Multi of four mutexes whose roots exist.
func (v *virtual) fourReady(opts ...zklock.Option) (*zklock.Session, *zklock.Multi) {
	v.t.Helper()
	s := v.connect(opts...)
	m := newMulti(v.t, mutexes(v.t, s, fourPaths...)...)
	h, err := m.Acquire(within(v.t, time.Hour))
	require.NoError(v.t, err)
	require.NoError(v.t, h.Release(within(v.t, soon)))
	v.srv.ResetRequests()
	return s, m
}

// nodes returns the number of nodes in each of the four queues.
func (v *virtual) nodes() (n [4]int) {
	for i, p := range fourPaths {
		n[i] = len(v.srv.Children(p))
	}
	return n
}

// nodeOf returns a Session's node of a queue.
func (v *virtual) nodeOf(root string, s *zklock.Session) string {
	v.t.Helper()
	for _, n := range v.srv.Children(root) {
		if st, _ := v.srv.Stat(root + "/" + n); st.EphemeralOwner == s.SessionID() {
			return root + "/" + n
		}
	}
	v.t.Fatalf("no node in %s", root)
	return ""
}

// writes returns the lock roots in which a Session has created or deleted nodes since then, by
// transaction.
func (v *virtual) writes(since int, s *zklock.Session, kind zktest.Kind) (by [][]string) {
	zxid := int64(0)
	for _, a := range v.srv.History()[since:] {
		if a.Kind != kind || a.Session != s.SessionID() || !strings.Contains(a.Path, "-lock-") {
			continue
		}
		if a.Zxid != zxid {
			by = append(by, nil)
		}
		zxid, by[len(by)-1] = a.Zxid, append(by[len(by)-1], path.Dir(a.Path))
	}
	return by
}

func (v *virtual) areHeld(h *zklock.MultiHold) {
	v.t.Helper()
	for _, one := range h.Holds() {
		st, ok := v.srv.Stat(one.Node())
		require.True(v.t, ok)
		require.Equal(v.t, st.Czxid, one.Token(), "I1")
	}
}

// I1: the tokens are the nodes' czxids, also on real servers, whose responses to transactions have
// no Stat, and while other clients write.
func TestMulti_TokensAreTheNodesCzxids(t *testing.T) {
	srv := target(t)
	p := lockPath(t, srv)
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			s := connect(t, srv)
			m := newMulti(t, mutexes(t, s, fmt.Sprintf("%s/%d-a", p, i), fmt.Sprintf("%s/%d-b", p, i), fmt.Sprintf("%s/%d-c", p, i))...)
			for range 50 {
				h, err := m.Acquire(within(t, time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				for _, one := range h.Holds() {
					_, st, err := s.Conn().Exists(one.Node())
					if err != nil || st.Czxid != one.Token() {
						t.Errorf("%v: %v, %+v", one, err, st)
					}
				}
				if err := h.Release(within(t, soon)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
}

// I2, I8: without contention, the locks take one transaction and a list of each. A member of
// another kind is taken at its position in the order.
func TestVirtual_Multi_OneTransaction(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, m := v.fourReady()
		h, err := m.Acquire(within(t, time.Hour))
		require.NoError(t, err)
		got := v.srv.Requests()
		require.Equal(t, [3]int{1, 4, 0}, [3]int{got.Total(zktest.Multi), got.Total(zktest.GetChildren), got.Total(zktest.Create)})
		v.areHeld(h)
		require.NoError(t, h.Release(within(t, soon)))
		require.Equal(t, [4]int{}, v.nodes(), "I4")

		rw := newRWMutex(t, s, "/job/e")
		mixed := newMulti(t, append(mutexes(t, s, "/job/a", "/job/b", "/job/f"), newSemaphore(t, s, "/job/bb", 1).Permits(1), rw.WriteLock())...)
		for range 2 {
			v.srv.ResetRequests()
			h, err = mixed.Acquire(within(t, time.Hour))
			require.NoError(t, err)
			require.Equal(t, []string{"/job/a", "/job/b", "/job/bb", "/job/e", "/job/f"}, holdPaths(h.Holds()))
			require.NoError(t, h.Release(within(t, soon)))
		}
		got = v.srv.Requests()
		require.Equal(t, [2]int{3, 0}, [2]int{got.Total(zktest.Multi), got.Total(zktest.Create)}, "two openings, and the leases")

		// Another call may use a context that names an owner, so the locks are taken one after the
		// other.
		v.srv.ResetRequests()
		h, err = m.Acquire(zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("me")))
		require.NoError(t, err)
		require.Zero(t, v.srv.Requests().Total(zktest.Multi))
		require.NoError(t, h.Release(within(t, soon)))
	})
}

// R86, I6, I8: one lock is held, at each position in the order. The Multi waits for it with only
// the locks before it: a client that holds that lock and takes the other locks one by one gets them
// all. Then the rest is taken in one batch.
func TestVirtual_Multi_OneIsTaken_WaitsInOneQueue(t *testing.T) {
	for k := range fourPaths {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			s, m := v.fourReady()
			other := v.connect()
			ahead := acquire(t, newMutex(t, other, fourPaths[k]))
			since := len(v.srv.History())
			c := startMulti(within(t, time.Hour), m)
			time.Sleep(100 * time.Millisecond)
			want := [4]int{}
			for i := range k + 1 {
				want[i] = 1
			}
			want[k]++
			require.Equal(t, want, v.nodes())
			require.Equal(t, [][]string{fourPaths}, v.writes(since, s, zktest.Created))
			if k < 3 {
				require.Equal(t, [][]string{fourPaths[k+1:]}, v.writes(since, s, zktest.Deleted), "at once")
			}
			var later []*zklock.Hold
			for _, p := range fourPaths[k+1:] {
				later = append(later, acquire(t, newMutex(t, other, p)))
			}
			for _, h := range later {
				release(t, h)
			}

			since = len(v.srv.History())
			began := time.Now()
			go release(t, ahead)
			h := c.granted(t)
			ways := 2 // the release's, and its event's
			if k < 3 {
				ways += 2
				require.Equal(t, [][]string{fourPaths[k+1:]}, v.writes(since, s, zktest.Created), "the rest in one flight")
			}
			require.Equal(t, time.Duration(ways)*time.Millisecond, time.Since(began))
			v.areHeld(h)
			require.NoError(t, h.Release(within(t, soon)))
			require.Equal(t, [4]int{}, v.nodes(), "I4")
		})
	}
}

// I8: a lock for which the previous call had to wait is taken by itself, so the later queues get no
// nodes that are deleted again. When it was free once, also for a try, all locks are taken in one
// batch again.
func TestVirtual_Multi_HadToWait_MakesNoNodesInVain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, m := v.fourReady()
		b := newMutex(t, v.connect(), fourPaths[1])
		take := func(isTaken bool) [][]string {
			t.Helper()
			since := len(v.srv.History())
			var ahead *zklock.Hold
			if isTaken {
				ahead = acquire(t, b)
			}
			c := startMulti(within(t, time.Hour), m)
			if isTaken {
				release(t, ahead)
			}
			require.NoError(t, c.granted(t).Release(within(t, soon)))
			return v.writes(since, s, zktest.Created)
		}
		one, other, rest := fourPaths[:1], fourPaths[1:2], fourPaths[2:]
		require.Equal(t, [][]string{fourPaths, rest}, take(true))
		require.Equal(t, [][]string{one, other, rest}, take(true))
		require.Equal(t, [][]string{one, other, rest}, take(false))
		require.Equal(t, [][]string{fourPaths, rest}, take(true))
		h, err := m.TryAcquire(within(t, soon))
		require.NoError(t, err)
		require.NoError(t, h.Release(within(t, soon)))
		require.Equal(t, [][]string{fourPaths}, take(false))
		require.Equal(t, [4]int{}, v.nodes(), "I4")
	})
}

// I8: a wait that ends without the lock counts, too: the next call creates no nodes behind that
// lock, which would be deleted again. When the lock was free once, all locks are taken in one batch
// again.
func TestVirtual_Multi_WaitedInVain_MakesNoNodesInVain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, m := v.fourReady()
		ahead := acquire(t, newMutex(t, v.connect(), fourPaths[1]))
		created := func(wait time.Duration) [][]string {
			t.Helper()
			since := len(v.srv.History())
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			h, err := m.Acquire(ctx)
			if err == nil {
				require.NoError(t, h.Release(context.Background()))
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			return v.writes(since, s, zktest.Created)
		}
		require.Equal(t, [][]string{fourPaths}, created(time.Second))
		for range 3 {
			require.Equal(t, [][]string{fourPaths[:1], fourPaths[1:2]}, created(time.Second))
		}
		release(t, ahead)
		require.Equal(t, [][]string{fourPaths[:1], fourPaths[1:2], fourPaths[2:]}, created(time.Hour))
		require.Equal(t, [][]string{fourPaths}, created(time.Hour))
	})
}

// The response to the create arrives when the call has returned. Its view of the queue is then not
// read without a lock, which the race detector checks. It depends on chance that there is anything
// to read, so there are several rounds.
func TestVirtual_Multi_ResponseAfterTheWait_NoRace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newMulti(t, newMutex(t, v.connect(), "/job/a"))
		ahead := acquire(t, newMutex(t, v.connect(), "/job/a"))
		for range 20 {
			v.srv.Inject(zktest.After(zktest.Create).Delay(2 * time.Second).Once())
			err := m.Do(context.Background(), func(context.Context, *zklock.MultiHold) error { return nil }, zklock.WaitAtMost(time.Second))
			require.ErrorIs(t, err, zklock.ErrNotConnected)
			time.Sleep(5 * time.Second)
		}
		release(t, ahead)
	})
}

// I4, I8: a try takes all locks or none, in one batch and one deletion, and names the lock that is
// held. It blocks no client: the waiter for that lock is granted next. The next try checks first.
func TestVirtual_Multi_Try_OneIsTaken_LeavesNothing(t *testing.T) {
	for k := range fourPaths {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			v.net.SetLatency(time.Millisecond)
			s, m := v.fourReady()
			ahead := acquire(t, newMutex(t, v.connect(), fourPaths[k]))
			since, began := len(v.srv.History()), time.Now()
			_, err := m.TryAcquire(within(t, time.Hour))
			require.Equal(t, 4*time.Millisecond, time.Since(began), "two round trips")
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			var e *zklock.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, []any{"try", fourPaths[k], 2, ahead.Node()}, []any{e.Op, e.Path, e.Position, e.Predecessor})
			require.Equal(t, fourPaths[k], path.Dir(e.Node))
			require.Equal(t, 1, strings.Count(err.Error(), "zklock: "), "%v", err)
			require.Equal(t, [][]string{fourPaths}, v.writes(since, s, zktest.Created))
			require.Len(t, v.writes(since, s, zktest.Deleted), 1)
			want := [4]int{}
			want[k] = 1
			require.Equal(t, want, v.nodes(), "I4")

			next := v.queueUp(newMutex(t, v.connect(), fourPaths[k]))
			since = len(v.srv.History())
			_, err = m.TryAcquire(within(t, time.Hour))
			require.ErrorIs(t, err, zklock.ErrNotAcquired)
			for _, created := range v.writes(since, s, zktest.Created) {
				require.NotContains(t, created, fourPaths[k], "it looks first")
			}
			release(t, ahead)
			release(t, next.granted(t))
			for range 2 {
				h, err := m.TryAcquire(within(t, time.Hour))
				require.NoError(t, err)
				v.areHeld(h)
				require.NoError(t, h.Release(within(t, soon)))
			}
			require.Equal(t, [4]int{}, v.nodes(), "I4")
		})
	}
}

// Two tries at the same time, without other clients: one of them gets all locks.
func TestVirtual_Multi_TwoTriesAtOnce_OneHasAll(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		v.net.SetLatency(time.Millisecond)
		_, one := v.fourReady()
		_, other := v.fourReady()
		for range 20 {
			type outcome struct {
				h   *zklock.MultiHold
				err error
			}
			got := make(chan outcome)
			for _, m := range []*zklock.Multi{one, other} {
				go func() {
					h, err := m.TryAcquire(context.Background())
					got <- outcome{h, err}
				}()
			}
			a, b := <-got, <-got
			if a.err == nil {
				a, b = b, a
			}
			require.ErrorIs(t, a.err, zklock.ErrNotAcquired)
			require.NoError(t, b.err)
			require.NoError(t, b.h.Release(within(t, soon)))
			for range 2 { // the result of the first try is not remembered
				for _, m := range []*zklock.Multi{one, other} {
					h, err := m.TryAcquire(context.Background())
					require.NoError(t, err)
					require.NoError(t, h.Release(within(t, soon)))
				}
			}
		}
	})
}

// F3, I2, I4: the transaction was executed and its response lost. Its nodes are found by their ids
// and adopted, and none is created again. A try may find itself without a connection first: then it
// leaves nothing.
func TestVirtual_Multi_AnswerLost_NodesAreAdopted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, m := v.fourReady()
		for _, try := range []bool{false, true} {
			since := len(v.srv.History())
			lost := v.srv.Inject(zktest.After(zktest.Multi).Session(s.SessionID()).DropReply().Close().Once())
			enter := m.Acquire
			if try {
				enter = m.TryAcquire
			}
			h, err := enter(within(t, time.Hour))
			require.Equal(t, 1, lost.Fired())
			if try && errors.Is(err, zklock.ErrNotConnected) { // a try does not wait for the next connection
				time.Sleep(s.Timeout())
				require.Equal(t, [4]int{}, v.nodes(), "I4")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, [][]string{fourPaths}, v.writes(since, s, zktest.Created), "I2")
			v.areHeld(h)
			require.NoError(t, h.Release(within(t, soon)))
			require.Equal(t, [4]int{}, v.nodes(), "I4")
		}
	})
}

// F2, I2, I4: the transaction did not arrive, and the locks are taken one after the other. A copy
// of it that arrives late is found and deleted.
func TestVirtual_Multi_RequestLost_LateCopyGoes(t *testing.T) {
	for _, late := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			var asked []byte
			dials := 0
			dial := func(network, addr string, d time.Duration) (net.Conn, error) {
				c, err := v.net.Dial(network, addr, d)
				dials++
				return losesTransaction{c, &asked}, err
			}
			s := v.connect(zklock.WithDialer(dial))
			m := newMulti(t, mutexes(t, s, fourPaths...)...)
			for _, p := range fourPaths {
				_, err := v.srv.Create(p, nil, 0)
				require.NoError(t, err)
			}
			h, err := m.Acquire(within(t, time.Hour))
			require.NoError(t, err)
			require.NotEmpty(t, asked)
			require.Equal(t, 2, dials)
			require.Len(t, v.writes(0, s, zktest.Created), 4, "one after the other")
			if late {
				for _, p := range fourPaths {
					at := bytes.Index(asked, []byte(p+"/_c_"))
					_, err := v.srv.CreateAs(s.SessionID(), string(asked[at:][:len(p+"/_c_")+36+len("-lock-")]), nil, zk.FlagEphemeral|zk.FlagSequence)
					require.NoError(t, err)
				}
				require.Equal(t, [4]int{2, 2, 2, 2}, v.nodes())
				time.Sleep(time.Minute)
			}
			require.Equal(t, [4]int{1, 1, 1, 1}, v.nodes(), "I4")
			v.areHeld(h)
			require.NoError(t, h.Release(within(t, soon)))
			require.Equal(t, [4]int{}, v.nodes(), "I4")
		})
	}
}

// losesTransaction is a client's connection that loses the first transaction that creates nodes,
// and then ends.
type losesTransaction struct {
	net.Conn
	asked *[]byte
}

func (l losesTransaction) Write(p []byte) (int, error) {
	if *l.asked != nil || !bytes.Contains(p, []byte(fourPaths[0]+"/_c_")) || !bytes.Contains(p, []byte(fourPaths[1]+"/_c_")) {
		return l.Conn.Write(p)
	}
	*l.asked = bytes.Clone(p)
	l.Conn.Close()
	return 0, net.ErrClosed
}

// F24, I6: a lock is not granted because its first node was deleted. The nodes of the later locks
// are deleted at once: the next holder of that lock would wait for them in vain, and the Multi for
// that holder.
func TestVirtual_Multi_NodeGoneBeforeTheGrant_TheLaterOnesGoToo(t *testing.T) {
	for k := range 3 {
		inVirtualTime(t, func(t *testing.T, v *virtual) { nodeGoneBeforeTheGrant(t, v, k) })
	}
}

func nodeGoneBeforeTheGrant(t *testing.T, v *virtual, k int) {
	s, m := v.fourReady(zklock.WithSessionTimeout(30*time.Second), zklock.WithLease(zklock.QuorumLease(14*time.Second)))
	time.Sleep(time.Minute)
	// The response is so late that the lease has no margin, and the Session reads the node before
	// the grant.
	held := v.srv.Inject(zktest.After(zktest.GetChildren).Session(s.SessionID()).Path(fourPaths[3]).Delay(10 * time.Second).Once())
	c := startMulti(within(t, time.Hour), m)
	require.Equal(t, [4]int{1, 1, 1, 1}, v.nodes())
	other := v.connect()
	next := v.queueUp(newMutex(t, other, fourPaths[k]))
	require.NoError(t, v.srv.Delete(v.nodeOf(fourPaths[k], s)))
	first := next.granted(t)
	require.NoError(t, held.Wait(t.Context()))
	time.Sleep(12 * time.Second)
	want := [4]int{}
	for i := range k {
		want[i] = 1
	}
	want[k] = 2
	require.Equal(t, want, v.nodes())
	last := acquire(t, newMutex(t, other, fourPaths[3]))
	release(t, last)
	release(t, first)
	require.NoError(t, c.granted(t).Release(within(t, soon)))
	require.Equal(t, [4]int{}, v.nodes(), "I4")
}

// F27, I4: one lock root rejects deletions. The unwanted nodes in the other roots are still
// deleted.
func TestVirtual_Multi_OneRootRefusesDeletion_TheOthersGo(t *testing.T) {
	for k := range 3 {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			_, m := v.fourReady()
			a := v.connect().Conn()
			ahead := acquire(t, newMutex(t, v.connect(), fourPaths[0]))
			_, err := a.SetACL(fourPaths[k+1], zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
			require.NoError(t, err)
			c := startMulti(within(t, time.Hour), m)
			time.Sleep(time.Second)
			want := [4]int{2}
			want[k+1] = 1
			require.Equal(t, want, v.nodes())
			release(t, ahead)
			time.Sleep(time.Second)
			_, err = a.SetACL(fourPaths[k+1], zk.WorldACL(zk.PermAll), -1)
			require.NoError(t, err)
			require.NoError(t, c.granted(t).Release(within(t, soon)))
			time.Sleep(time.Minute)
			require.Equal(t, [4]int{}, v.nodes(), "I4")
		})
	}
}

// One lock root rejects creates. The error names its lock, and no node is left in the other roots.
func TestVirtual_Multi_OneRootRefusesCreation_SaysWhich(t *testing.T) {
	for k := range fourPaths {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			_, m := v.fourReady()
			_, err := v.connect().Conn().SetACL(fourPaths[k], zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
			require.NoError(t, err)
			for _, enter := range []func(context.Context) (*zklock.MultiHold, error){m.Acquire, m.TryAcquire} {
				_, err = enter(within(t, time.Hour))
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, "no CREATE permission on "+fourPaths[k])
				require.Equal(t, [4]int{}, v.nodes(), "I4")
			}
		})
	}
}

// F29: the nodes of a batch count against the cap of the Session. If the cap does not allow all of
// them, none is left.
func TestVirtual_Multi_MaxLockNodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		_, m := v.fourReady(zklock.WithMaxLockNodes(4))
		h, err := m.Acquire(within(t, time.Hour))
		require.NoError(t, err)
		_, err = m.Acquire(within(t, time.Hour))
		require.ErrorIs(t, err, zklock.ErrTooManyWaiters)
		require.NoError(t, h.Release(within(t, soon)))
		s := v.connect(zklock.WithMaxLockNodes(3))
		_, err = newMulti(t, mutexes(t, s, fourPaths...)...).Acquire(within(t, time.Hour))
		require.ErrorIs(t, err, zklock.ErrTooManyWaiters)
		require.ErrorContains(t, err, fourPaths[3])
		require.Equal(t, [4]int{}, v.nodes(), "I4")
	})
}

// I4, I6: the call's context ends before the response to the transaction. Its nodes are deleted as
// soon as a server reports them, and a try in the meantime does not take them for another client's.
func TestVirtual_Multi_LeftBeforeTheAnswer_NodesGo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s, m := v.fourReady()
		held := v.srv.Inject(zktest.After(zktest.Multi).Session(s.SessionID()).Delay(time.Second).Once())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := m.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 100*time.Millisecond+grace, "I6")
		require.Equal(t, 1, held.Fired())
		require.Equal(t, [4]int{1, 1, 1, 1}, v.nodes())
		for _, p := range fourPaths[1:3] {
			h, err := newMutex(t, s, p).TryAcquire(within(t, soon))
			require.NoError(t, err)
			release(t, h)
		}
		h, err := m.TryAcquire(within(t, soon))
		require.NoError(t, err)
		require.NoError(t, h.Release(within(t, soon)))
		synctest.Wait()
		require.Equal(t, [4]int{}, v.nodes(), "I4")
	})
}
