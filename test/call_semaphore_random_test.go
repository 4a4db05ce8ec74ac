package zklock_test

// This test injects random faults into clients of one semaphore.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/zktest"
)

// I1, I4, I6, F48, F60: responses are lost, requests are denied, connections and sessions end,
// nodes are deleted, callers give up or only try, and the limit rises and falls, also to 0. At each
// grant, no more permits are held than the largest limit since the call began; no call sleeps while
// a permit is free. After the faults, all callers get permits, and no node is left.
func TestVirtual_Semaphore_RandomFaults(t *testing.T) {
	randomWorlds(t, 0, 6, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(3 * time.Millisecond)
		(&permitWorld{random: r, t: t, v: v, admin: v.connect().Conn(), calls: map[*permitCall]bool{}, held: map[*zklock.Hold]int{}}).run()
	})
}

const mostPermits = 4

// permitWorld has some callers of one semaphore.
type permitWorld struct {
	*random
	t     *testing.T
	v     *virtual
	admin *zk.Conn

	mu     sync.Mutex
	limit  int
	calls  map[*permitCall]bool // that have not returned
	held   map[*zklock.Hold]int // the largest limit from when its call began until it was granted
	grants int
}

// permitCall is an acquire or a try.
type permitCall struct {
	most  int  // the largest limit since it began
	waits bool // for an hour, if it has to
}

func (w *permitWorld) run() {
	var all sync.WaitGroup
	over := make(chan struct{})
	var sessions []*zklock.Session
	release(w.t, take(w.t, w.v.sharing(1, 3))) // the limit's node exists from now on
	w.sets(3)
	for range 4 {
		s := w.v.connect()
		sessions = append(sessions, s)
		sem := newSemaphore(w.t, s, semPath, 3, zklock.WithSharedLimit(semLimit))
		for range 2 {
			all.Go(func() { w.caller(sem, over) })
		}
	}
	for i := range 60 {
		time.Sleep(w.atPace(1500 * time.Millisecond))
		w.strike(sessions[w.intN(len(sessions))])
		w.check()
		if i%20 == 19 {
			w.calm()
		}
	}
	close(over)
	w.settles(w.admin)
	all.Wait()
	time.Sleep(time.Minute)
	w.loses(sessions[0])
	for _, s := range sessions { // all work on
		h, err := newSemaphore(w.t, s, semPath, 3, zklock.WithSharedLimit(semLimit)).Acquire(within(w.t, time.Minute), 3)
		require.NoError(w.t, err)
		require.NoError(w.t, h.Release(context.Background()))
	}
	w.v.has(0, 0, "I4")
	require.Greater(w.t, w.grants, 50)
}

// sets sets the limit. A call that is being decided may use it from then on.
func (w *permitWorld) sets(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.calls {
		c.most = max(c.most, n)
	}
	w.v.setLimit(n)
	w.limit = n
}

// calm ends the faults and any pause of the work, and gives each call a permit: every waiter gets
// its permits in the end.
func (w *permitWorld) calm() {
	w.settles(w.admin)
	w.sets(w.intN(2))
	time.Sleep(w.atPace(10 * time.Second))
	w.sets(3 + w.intN(2))
	w.mu.Lock()
	before := maps.Clone(w.calls)
	w.mu.Unlock()
	const long = 20 * time.Second
	time.Sleep(long * w.pace)
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range before {
		if c.waits && w.calls[c] {
			w.t.Errorf("F48: a call waits for %v, with room for it", long*w.pace)
		}
	}
}

// caller takes permits until over is closed.
func (w *permitWorld) caller(sem *zklock.Semaphore, over <-chan struct{}) {
	for !isOver(over) {
		k := 1 + w.intN(3)
		h, err := w.enters(sem.Permits(k))
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if len(h.Checks()) != k {
			w.t.Errorf("%d leases for %d permits", len(h.Checks()), k)
		}
		time.Sleep(w.atPace(400 * time.Millisecond))
		w.mu.Lock()
		delete(w.held, h)
		w.mu.Unlock()
		_ = h.Release(context.Background())
		if w.pace > 1 {
			time.Sleep(w.atPace(time.Second))
		}
	}
}

// enters tries, waits for a while, or waits without a limit.
func (w *permitWorld) enters(l zklock.Lock) (h *zklock.Hold, err error) {
	how := w.intN(4)
	c := &permitCall{waits: how > 1}
	w.mu.Lock()
	c.most = w.limit
	w.calls[c] = true
	w.mu.Unlock()
	if how == 0 {
		h, err = l.TryAcquire(context.Background())
	} else {
		wait := time.Hour * w.pace
		if !c.waits {
			wait = time.Second + w.atPace(20*time.Second)
		}
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		h, err = l.Acquire(ctx)
		cancel()
	}
	w.mu.Lock()
	delete(w.calls, c)
	if err == nil {
		w.held[h] = c.most
		w.grants++
	}
	w.mu.Unlock()
	w.check()
	switch {
	case err == nil:
	case how == 0 && (errors.Is(err, zklock.ErrNotAcquired) || errors.Is(err, zklock.ErrNotConnected)):
	case how == 1 && errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, link.ErrHungUp): // the latter by chance, see bounded
	default:
		w.t.Errorf("I6: %v", err)
	}
	return h, err
}

func isOver(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// check counts the permits of valid holds that have all their leases. The leases up to the last
// lease of a hold may be as many as a limit has allowed during its call: those behind came later,
// and those ahead are only deleted.
func (w *permitWorld) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	leases := map[*zklock.Hold][]string{}
	for h := range w.held {
		var all []string
		for _, c := range h.Checks() {
			if _, ok := w.v.srv.Stat(c.Path); ok {
				all = append(all, numberOf(c.Path))
			}
		}
		if len(all) == len(h.Checks()) && h.Err() == nil {
			leases[h] = all
		}
	}
	for h, mine := range leases {
		used, last := 0, slices.Max(mine)
		for _, all := range leases {
			for _, number := range all {
				if number <= last {
					used++
				}
			}
		}
		if used > w.held[h] {
			w.t.Errorf("I1: %d permits in use, and a limit of at most %d when the last was granted", used, w.held[h])
		}
	}
}

// numberOf returns the ten digits at the end of a node's name.
func numberOf(node string) string { return node[len(node)-10:] }

// loses has a hold lose one of its leases. (The result of Release is unknown for a hold that met a
// fault: its response may also have been lost.)
func (w *permitWorld) loses(s *zklock.Session) {
	h, err := newSemaphore(w.t, s, semPath, 3, zklock.WithSharedLimit(semLimit)).Acquire(within(w.t, time.Minute), 2)
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
	if w.intN(2) == 0 {
		w.allows(w.admin)
	}
	w.strikes()
	switch w.intN(17) {
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
	case 8:
		op := []zktest.Op{zktest.Create, zktest.Multi, zktest.Delete, zktest.GetChildren2, zktest.GetData, zktest.Sync}[w.intN(6)]
		w.v.srv.Inject(zktest.After(op).Session(s.SessionID()).DropReply().Close().Once().Optional())
	case 9, 10:
		w.deniesSome(w.admin, w.v, []string{semQueue, semLeases, semLeases, semPath, semLimit})
	case 11, 12: // a response is lost, and then requests are denied
		w.injects(w.v.srv, onMulti(zktest.After).Call(w.meanwhile(func() {
			w.denies(w.admin, semLeases, zk.PermRead)
			if w.intN(2) == 0 {
				w.denies(w.admin, semQueue, zk.PermDelete)
			}
		})).DropReply().Close())
	case 7:
		w.v.srv.Inject(zktest.After(zktest.Create).Session(s.SessionID()).Path(semQueue + "/*").DropReply().Close().Once().Optional())
	default:
		w.sets(w.intN(mostPermits + 1))
	}
}
