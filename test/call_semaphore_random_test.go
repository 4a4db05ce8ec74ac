package zklock_test

// This test has random faults strike clients of one semaphore.

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

// I1, I4, I6: answers get lost, connections and sessions end, somebody deletes nodes, callers give up, the limit goes up and down. The
// leases of those who hold are never more than the largest limit; when the faults are over, all get permits, and nothing is left.
func TestVirtual_Semaphore_RandomFaults(t *testing.T) {
	randomWorlds(t, 0, 6, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(3 * time.Millisecond)
		(&permitWorld{random: r, t: t, v: v, held: map[*zklock.Hold]bool{}}).run()
	})
}

const mostPermits = 4

// permitWorld is some callers of one semaphore.
type permitWorld struct {
	*random
	t *testing.T
	v *virtual

	mu     sync.Mutex
	held   map[*zklock.Hold]bool
	grants int
}

func (w *permitWorld) run() {
	var all sync.WaitGroup
	over := make(chan struct{})
	var sessions []*zklock.Session
	release(w.t, take(w.t, w.v.sharing(1, 3))) // the limit's node is there from now on
	for range 4 {
		s := w.v.connect()
		sessions = append(sessions, s)
		sem := newSemaphore(w.t, s, semPath, 3, zklock.WithSharedLimit(semLimit))
		for range 2 {
			all.Go(func() { w.caller(sem, over) })
		}
	}
	for range 60 {
		time.Sleep(w.atPace(1500 * time.Millisecond))
		w.strike(sessions[w.intN(len(sessions))])
		w.check()
	}
	w.v.setLimit(3)
	close(over)
	all.Wait()
	time.Sleep(time.Minute)
	w.loses(sessions[0])
	for _, s := range sessions { // all work on
		h, err := newSemaphore(w.t, s, semPath, 3, zklock.WithSharedLimit(semLimit)).Permits(3).Acquire(within(w.t, time.Minute))
		require.NoError(w.t, err)
		require.NoError(w.t, h.Release(context.Background()))
	}
	w.v.has(0, 0, "I4")
	require.Greater(w.t, w.grants, 50)
}

// caller takes permits until it is over.
func (w *permitWorld) caller(sem *zklock.Semaphore, over <-chan struct{}) {
	for !isOver(over) {
		k := 1 + w.intN(3)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second+w.atPace(20*time.Second))
		h, err := sem.Permits(k).Acquire(ctx)
		cancel()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if len(h.Checks()) != k {
			w.t.Errorf("%d leases for %d permits", len(h.Checks()), k)
		}
		w.note(h, true)
		time.Sleep(w.atPace(400 * time.Millisecond))
		w.note(h, false)
		_ = h.Release(context.Background())
		if w.pace > 1 {
			time.Sleep(w.atPace(time.Second))
		}
	}
}

func isOver(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (w *permitWorld) note(h *zklock.Hold, holds bool) {
	w.mu.Lock()
	if holds {
		w.held[h] = true
		w.grants++
	} else {
		delete(w.held, h)
	}
	w.mu.Unlock()
	w.check()
}

// check counts the permits of holds that stand and have all their leases.
func (w *permitWorld) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := 0
	for h := range w.held {
		all := 0
		for _, c := range h.Checks() {
			if _, ok := w.v.srv.Stat(c.(*zk.CheckVersionRequest).Path); ok {
				all++
			}
		}
		if all == len(h.Checks()) && h.Err() == nil {
			used += all
		}
	}
	if used > mostPermits {
		w.t.Errorf("I1: %d permits in use", used)
	}
}

// loses has a hold lose one of its leases. (Of a hold that the faults met, nobody knows what its Release has to say: its answer, too, may
// have been lost.)
func (w *permitWorld) loses(s *zklock.Session) {
	h, err := newSemaphore(w.t, s, semPath, 3, zklock.WithSharedLimit(semLimit)).Permits(2).Acquire(within(w.t, time.Minute))
	require.NoError(w.t, err)
	require.NoError(w.t, w.v.srv.Delete(h.Node()))
	select {
	case <-h.Lost():
	case <-time.After(time.Minute):
	}
	require.ErrorIs(w.t, h.Release(context.Background()), zklock.ErrLost)
}

func (w *permitWorld) strike(s *zklock.Session) {
	onMulti := func(f func(zktest.Op) zktest.Fault) zktest.Fault {
		return f(zktest.Multi).Session(s.SessionID()).Path(semLeases + "/*").Once().Optional()
	}
	someChild := func(p string) {
		if names := w.v.srv.Children(p); len(names) > 0 {
			_ = w.v.srv.Delete(p + "/" + names[w.intN(len(names))])
		}
	}
	w.strikes()
	switch w.intN(9) {
	case 0:
		w.v.srv.DropConnection(s.SessionID())
	case 1:
		w.v.srv.ExpireSession(s.SessionID())
	case 2:
		someChild(semLeases)
	case 3:
		someChild(semQueue)
	case 4, 5:
		w.v.srv.Inject(onMulti(zktest.After).DropReply().Close())
	case 6:
		w.v.srv.Inject(onMulti(zktest.Before).Close())
	case 7:
		w.v.srv.Inject(zktest.After(zktest.Create).Session(s.SessionID()).Path(semQueue + "/*").DropReply().Close().Once().Optional())
	case 8:
		w.v.setLimit(1 + w.intN(mostPermits))
	}
}
