package zklock_test

// This test injects random faults into clients that take several locks at once, of all recipes.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// multiWorld has callers that take some of three locks together, or all: a mutex, a read/write lock
// and the one permit of a semaphore.
type multiWorld struct {
	*virtual
	*random
	t      *testing.T
	l      *ledger.Ledger
	over   context.Context
	admin  *zk.Conn
	grants [3]atomic.Int64 // of one lock, of two, of three
}

// multiRoots are the nodes whose children may be deleted, and whose permissions may be taken.
var multiRoots = []string{"/job/m", "/job/rw", "/job/sem/locks", "/job/sem/leases"}

// some returns random locks, in any order.
func (w *multiWorld) some(s *zklock.Session) (locks []zklock.Lock) {
	rw := newRWMutex(w.t, s, "/job/rw")
	all := []zklock.Lock{newMutex(w.t, s, "/job/m"), rw.WriteLock(), newSemaphore(w.t, s, "/job/sem", 1).Permits(1)}
	if w.intN(2) == 0 {
		all[1] = rw.ReadLock()
	}
	for len(all) > 0 && (len(locks) == 0 || w.intN(3) > 0) {
		i := w.intN(len(all))
		locks, all = append(locks, all[i]), append(all[:i], all[i+1:]...)
	}
	return locks
}

func (w *multiWorld) work(s *zklock.Session) {
	for w.over.Err() == nil {
		time.Sleep(w.atPace(500 * time.Millisecond))
		locks := w.some(s)
		m, err := zklock.NewMulti(locks...)
		if err != nil {
			w.t.Error(err)
			return
		}
		h := w.take(m)
		if h == nil {
			continue
		}
		if len(h.Holds()) != len(locks) {
			w.t.Errorf("%d holds of %d locks", len(h.Holds()), len(locks))
		}
		w.grants[len(locks)-1].Add(1)
		for _, one := range h.Holds() {
			w.l.Granted(one.Path(), fmt.Sprint(s.SessionID()), one)
		}
		select {
		case <-time.After(w.atPace(3 * time.Second)):
		case <-h.Context().Done():
		}
		w.give(h)
	}
}

// take returns nil if it gets no hold, for an expected reason.
func (w *multiWorld) take(m *zklock.Multi) (h *zklock.MultiHold) {
	if !w.takes(w.t, m, context.Background(),
		func(ctx context.Context) (err error) { h, err = m.Acquire(ctx); return err },
		func(ctx context.Context) (err error) { h, err = m.TryAcquire(ctx); return err }, zk.ErrNoAuth) {
		return nil
	}
	return h
}

func (w *multiWorld) give(h *zklock.MultiHold) {
	for _, one := range h.Holds() {
		w.l.Ended(one.Path(), one)
	}
	w.gives(w.t, h.Release)
	for _, one := range h.Holds() {
		if one.Err() == nil {
			w.t.Errorf("%s is held after its release", one.Path())
		}
	}
}

func (w *multiWorld) strike(s *zklock.Session) {
	if w.intN(2) == 0 {
		w.allows(w.admin)
	}
	op := []zktest.Op{zktest.Create, zktest.Multi, zktest.Delete, zktest.GetChildren2, zktest.GetData}[w.intN(5)]
	inject := func(f zktest.Fault) { w.injects(w.srv, f.Session(s.SessionID()).Once().Optional()) }
	switch w.intN(12) {
	case 0, 1:
		inject(zktest.Before(op).Close())
	case 2, 3:
		inject(zktest.After(op).DropReply().Close())
	case 4:
		inject(zktest.Before(op).Fail(zktest.OperationTimeout))
	case 5:
		inject(zktest.After(op).Delay(w.upTo(3 * time.Second)))
	case 6:
		root := multiRoots[w.intN(len(multiRoots))]
		if nodes := w.srv.Children(root); len(nodes) > 0 && w.intN(2) == 0 {
			node := root + "/" + nodes[w.intN(len(nodes))]
			w.l.Deleting(node)
			_ = w.srv.Delete(node)
			w.strikes()
		}
	case 7:
		if w.intN(5) == 0 {
			id := s.SessionID()
			w.l.Killing(fmt.Sprint(id))
			w.srv.ExpireSession(id)
			w.strikes()
		}
	case 8, 9:
		w.deniesSome(w.admin, w.virtual, multiRoots)
	default: // a response is lost, and then requests are denied
		inject(zktest.After(op).Call(w.meanwhile(func() { w.deniesSome(w.admin, w.virtual, multiRoots) })).DropReply().Close())
	}
}

// I1, I4, I5, I6, F60: whatever responses are lost, requests denied, nodes deleted and sessions
// ended: a client that has several locks has all of them, no other client has any of them, no two
// clients wait for each other indefinitely, and in the end no node is left.
func TestVirtual_Multi_RandomFaults(t *testing.T) {
	randomWorlds(t, rand.Uint64N(1<<63), 3, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(time.Millisecond)
		over, end := context.WithTimeout(context.Background(), 10*time.Minute*r.pace)
		defer end()
		w := &multiWorld{virtual: v, random: r, t: t, l: ledger.New(t.Errorf), over: over, admin: v.connect().Conn()}
		var all sync.WaitGroup
		var ss []*zklock.Session
		for range 3 {
			s := v.connect()
			ss = append(ss, s)
			for range 2 {
				all.Go(func() { w.work(s) })
			}
		}
		for over.Err() == nil {
			time.Sleep(w.atPace(2 * time.Second))
			w.strike(ss[w.intN(len(ss))])
		}
		w.settles(w.admin)
		all.Wait()
		time.Sleep(time.Minute)
		for _, root := range multiRoots {
			require.Empty(t, v.srv.Children(root), "I4: %s", root)
		}
		require.Zero(t, v.srv.WatchCount(), "I7")
		if *randomHours == 0 {
			t.Logf("seed %d: %d grants of one lock, %d of two, %d of three", r.seed, w.grants[0].Load(), w.grants[1].Load(), w.grants[2].Load())
		}
		for n := range w.grants {
			require.Greater(t, w.grants[n].Load(), int64(10), "seed %d: of %d", r.seed, n+1)
		}
	})
}
