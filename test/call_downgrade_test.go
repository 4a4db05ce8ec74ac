package zklock_test

// These tests attack the downgrade: a writer reads, and blocks the queue until it has released both
// locks (I1, I4, I5).

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// writerAndReader is an owner that has both locks, with a queue behind it and an admin client.
type writerAndReader struct {
	*virtual
	m        *zklock.RWMutex
	w, r     *zklock.Hold
	queue    []*waiting // a writer, a mutex, a reader: of another Session, or of the same
	somebody *zk.Conn
}

// downgraded has the owner take the write lock, then the read lock, with a queue that forms in
// between or, if queueFirst is false, afterwards.
func (v *virtual) downgraded(t *testing.T, ownSession, queueFirst bool) *writerAndReader {
	t.Helper()
	d := &writerAndReader{virtual: v, somebody: v.connect().Conn()}
	s := v.connect()
	d.m = newRWMutex(t, s, "/job")
	d.w = acquire(t, d.m.WriteLock())
	client := func() *zklock.Session {
		if ownSession {
			return s
		}
		return v.connect()
	}
	stand := func() {
		d.queue = append(d.queue, v.queueUp(newRWMutex(t, client(), "/job").WriteLock()))
		d.queue = append(d.queue, v.queueUp(newMutex(t, client(), "/job")))
		d.queue = append(d.queue, v.queueUp(newRWMutex(t, client(), "/job").ReadLock()))
	}
	if queueFirst {
		stand()
	}
	v.srv.ResetRequests()
	var err error
	d.r, err = d.m.ReadLock().Acquire(d.w.Context())
	require.NoError(t, err)
	require.Equal(t, 1, v.srv.Requests().Total(), "one request")
	if !queueFirst {
		stand()
	}
	return d
}

// goesOn lets the queue proceed, and checks that no node is left.
func (d *writerAndReader) goesOn(t *testing.T) {
	t.Helper()
	token := d.w.Token()
	for i, w := range d.queue {
		h := w.granted2(t, 5*time.Second)
		require.Greater(t, h.Token(), token, "I1")
		token = h.Token()
		require.Equal(t, strings.Repeat("1", i+1)+strings.Repeat("0", len(d.queue)-i-1), grantedOf(d.queue...), "I1")
		release(t, h)
	}
	synctest.Wait()
	require.Empty(t, d.srv.Children("/job"), "I4")
}

func forEachQueue(t *testing.T, f func(t *testing.T, d *writerAndReader)) {
	for _, ownSession := range []bool{false, true} {
		for _, queueFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("of one Session=%t, queue first=%t", ownSession, queueFirst), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, v *virtual) { f(t, v.downgraded(t, ownSession, queueFirst)) })
			})
		}
	}
}

// R73, I1: the read node has the writer's number, the read hold the writer's token. Whichever lock
// is released first, no other client is granted while the other one is held; then the queue
// proceeds. The writer's node is deleted before the reader's.
func TestVirtual_Downgrade_KeepsTheQueueOut(t *testing.T) {
	for _, writerFirst := range []bool{true, false} {
		forEachQueue(t, func(t *testing.T, d *writerAndReader) {
			require.Equal(t, suffixOf(d.w.Node()), suffixOf(d.r.Node()))
			require.Regexp(t, `^/job/_c_[-0-9a-f]{36}-__READ__\d{10}$`, d.r.Node())
			require.Equal(t, d.w.Token(), d.r.Token())
			require.Equal(t, d.w.Owner(), d.r.Owner())
			first, second := d.w, d.r
			if !writerFirst {
				first, second = d.r, d.w
			}
			release(t, first)
			time.Sleep(20 * time.Second) // longer than every recheck interval
			require.Equal(t, "000", grantedOf(d.queue...), "I1")
			require.NoError(t, second.Err())
			release(t, second)
			d.goesOn(t)
			var gone []string
			for _, a := range d.srv.History() {
				if a.Kind == zktest.Deleted && (a.Path == d.w.Node() || a.Path == d.r.Node()) {
					gone = append(gone, a.Path)
				}
			}
			require.Equal(t, []string{d.w.Node(), d.r.Node()}, gone)
		})
	}
}

// I4: both locks are released, and the servers delay the first deletion. The reader's node waits
// for the writer's deletion: until then, a late copy of a lost transaction could recreate it.
func TestVirtual_Downgrade_WritersNodeGoesFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		d := v.downgraded(t, false, true)
		release(t, d.r)
		refused := v.srv.Inject(zktest.Before(zktest.Delete).Path(d.w.Node()).Fail(zktest.OperationTimeout).Once())
		release(t, d.w)
		require.Equal(t, 1, refused.Fired())
		var gone []string
		for _, a := range v.srv.History() {
			if a.Kind == zktest.Deleted {
				gone = append(gone, a.Path)
			}
		}
		require.Equal(t, []string{d.w.Node(), d.r.Node()}, gone[:2])
		d.goesOn(t)
	})
}

// I8: readers directly behind a writer that reads are granted when it releases the write lock; the
// writer behind them is not.
func TestVirtual_Downgrade_OtherReadersComeIn(t *testing.T) {
	forEachHouse(t, func(t *testing.T, v *virtual, client func() *zklock.Session) {
		m := newRWMutex(t, client(), "/job")
		w := acquire(t, m.WriteLock())
		r1 := v.queueUp(newRWMutex(t, client(), "/job").ReadLock())
		r2 := v.queueUp(newRWMutex(t, client(), "/job").ReadLock())
		next := v.queueUp(newRWMutex(t, client(), "/job").WriteLock())
		mine, err := m.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		require.Equal(t, "000", grantedOf(r1, r2, next), "I1")
		release(t, w)
		require.Equal(t, "110", grantedOf(r1, r2, next))
		for _, h := range []*zklock.Hold{r1.hold, mine, r2.hold} {
			require.Equal(t, "110", grantedOf(r1, r2, next), "I1")
			release(t, h)
		}
		release(t, next.granted2(t, time.Second))
	})
}

// I2: the owner reads several times: there is one read node, which is deleted with the writer's.
// The read hold's own context continues when the write lock is released. The writer's context ends,
// and from then on a reader may not write.
func TestVirtual_Downgrade_ReadsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		m := newRWMutex(t, v.connect(), "/job")
		w := acquire(t, m.WriteLock())
		for range 3 {
			require.NoError(t, m.ReadLock().Do(w.Context(), func(ctx context.Context, h *zklock.Hold) error {
				again, err := m.ReadLock().TryAcquire(reentering(h))
				require.NoError(t, err)
				require.Equal(t, h.Node(), again.Node())
				writes, err := m.WriteLock().Acquire(reentering(h))
				require.NoError(t, err, "it has the write lock still")
				release(t, writes)
				release(t, again)
				return nil
			}))
			require.Len(t, v.srv.Children("/job"), 2, "I2")
		}
		r, err := m.ReadLock().Acquire(w.Context())
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			ended <- m.ReadLock().Do(w.Context(), func(ctx context.Context, _ *zklock.Hold) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		release(t, w)
		require.ErrorIs(t, <-ended, zklock.ErrNotHeld, "Do's context was derived from the writer's")
		require.NoError(t, r.Context().Err())
		for _, ctx := range []context.Context{r.Context(), reentering(r)} {
			_, err = m.WriteLock().Acquire(ctx)
			require.ErrorIs(t, err, zklock.ErrUpgrade)
		}
		again, err := m.ReadLock().Acquire(reentering(r))
		require.NoError(t, err)
		release(t, r)
		release(t, again)
		require.Empty(t, v.srv.Children("/job"))
	})
}

// F3, F5, I2, I4: the transaction is lost before or after the servers execute it, or its response
// is unclear. The owner gets the lock on the one node, and the queue stays blocked.
func TestVirtual_Downgrade_AnswerLost(t *testing.T) {
	faults := map[string]zktest.Fault{
		"cut before":         zktest.Before(zktest.Multi).Close(),
		"done, and cut":      zktest.After(zktest.Multi).DropReply().Close(),
		"says nothing":       zktest.Before(zktest.Multi).Fail(zktest.OperationTimeout),
		"done, says nothing": zktest.After(zktest.Multi).Fail(zktest.OperationTimeout),
		"throttled":          zktest.Before(zktest.Multi).Fail(zktest.Throttled),
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				m := newRWMutex(t, v.connect(), "/job")
				w := acquire(t, m.WriteLock())
				next := v.queueUp(newRWMutex(t, v.connect(), "/job").WriteLock())
				struck := v.srv.Inject(f.Path("/job/*__READ__*").Once())
				r, err := m.ReadLock().Acquire(w.Context())
				require.NoError(t, err)
				require.Equal(t, 1, struck.Fired())
				require.Len(t, v.srv.Children("/job"), 3, "I2")
				release(t, w)
				time.Sleep(20 * time.Second)
				require.False(t, next.isGranted(), "I1")
				release(t, r)
				release(t, next.granted2(t, time.Second))
				require.Empty(t, v.srv.Children("/job"), "I4")
			})
		})
	}
}

// I4, I6: the call gives up while the transaction is in flight, executed or not. Its node is
// deleted when the write lock is released, and not before: the owner's next read lock rests on it.
func TestVirtual_Downgrade_GivenUp(t *testing.T) {
	for _, done := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, v *virtual) {
			m := newRWMutex(t, v.connect(), "/job")
			w := acquire(t, m.WriteLock())
			f := zktest.Before(zktest.Multi)
			if done {
				f = zktest.After(zktest.Multi)
			}
			held := v.srv.Inject(f.Path("/job/*__READ__*").Hold().Once())
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, err := m.ReadLock().Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.LessOrEqual(t, time.Since(start), 1500*time.Millisecond, "I6")
			held.Release()
			r, err := m.ReadLock().Acquire(w.Context())
			require.NoError(t, err)
			time.Sleep(20 * time.Second)
			require.NoError(t, r.Err(), "nobody deletes the node under it")
			require.Len(t, v.srv.Children("/job"), 2)
			release(t, r)
			release(t, w)
			require.Empty(t, v.srv.Children("/job"), "I4")
		})
	}
}

// I1, I4: the write lock is released while the transaction is in flight, before or after the
// servers execute it, with a response or without. The owner gets the read lock, on a node that the
// queue respects, and no node is left.
func TestVirtual_Downgrade_WriterReleasesMeanwhile(t *testing.T) {
	for _, ownSession := range []bool{false, true} {
		for _, c := range []struct {
			name  string
			fault func(zktest.Fault) zktest.Fault
		}{
			{"answered", func(f zktest.Fault) zktest.Fault { return f }},
			{"lost", func(f zktest.Fault) zktest.Fault { return f.DropReply().Close() }},
		} {
			for _, done := range []bool{false, true} {
				if !done && c.name == "lost" {
					c.fault = zktest.Fault.Close
				}
				t.Run(fmt.Sprintf("%s, done=%t, of one Session=%t", c.name, done, ownSession), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, v *virtual) {
						s := v.connect()
						m := newRWMutex(t, s, "/job")
						other := s
						if !ownSession {
							other = v.connect()
						}
						ctx := zklock.WithOwner(within(t, time.Hour), zklock.NewOwner("both"))
						w, err := m.WriteLock().Acquire(ctx)
						require.NoError(t, err)
						next := v.queueUp(newRWMutex(t, other, "/job").WriteLock())
						f := zktest.Before(zktest.Multi)
						if done {
							f = zktest.After(zktest.Multi)
						}
						held := v.srv.Inject(c.fault(f.Path("/job/*__READ__*").Session(s.Stats().SessionID).Hold()).Once())
						mine := startAcquireIn(t, ctx, func() {}, m.ReadLock())
						require.NoError(t, held.Wait(t.Context()))
						released := make(chan error, 1)
						go func() { released <- w.Release(ctx) }()
						synctest.Wait()
						held.Release()
						require.NoError(t, <-released)
						time.Sleep(20 * time.Second)
						first, second := mine, next
						if next.isGranted() { // the writer's node went before the transaction came, and the owner queued as any reader
							require.False(t, done)
							first, second = next, mine
						}
						h := first.granted2(t, time.Second)
						require.False(t, second.isGranted(), "I1")
						require.Equal(t, first == mine, suffixOf(h.Node()) == suffixOf(w.Node()))
						release(t, h)
						last := second.granted2(t, 5*time.Second)
						require.Greater(t, last.Token(), h.Token(), "I1")
						release(t, last)
						time.Sleep(time.Second)
						require.Empty(t, v.srv.Children("/job"), "I4")
					})
				})
			}
		}
	}
}

// F34: near the end of the counter, a reader's node would prevent the lock root from being
// recreated.
func TestVirtual_Downgrade_NearTheCountersEnd_IsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		require.True(t, v.srv.SetCreates("/job", 1<<31-1<<27))
		m := newRWMutex(t, v.connect(), "/job")
		w := acquire(t, m.WriteLock())
		_, err := m.ReadLock().Acquire(w.Context())
		require.ErrorIs(t, err, zklock.ErrSequenceExhausted)
		require.Len(t, v.srv.Children("/job"), 1)
		release(t, w)
		time.Sleep(time.Second)
		r := acquire(t, m.ReadLock())
		require.Equal(t, "0000000000", suffixOf(r.Node()))
		release(t, r)
	})
}

// R73: Curator's waiter behind the writer finds the reader's node at the writer's position, as
// after Curator's own downgrade.
func TestVirtual_Downgrade_OthersSeeTheReader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		d := v.downgraded(t, false, false)
		release(t, d.w)
		names := v.srv.Children("/job")
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(suffixOf(a), suffixOf(b)) })
		require.Equal(t, base(d.r.Node()), names[0])
		release(t, d.r)
		d.goesOn(t)
	})
}
