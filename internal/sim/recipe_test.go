package sim

// The recipes of the simulation: how a worker takes a lock, and in which nodes the lock is.

import (
	"context"
	"encoding/binary"
	"path"
	"sync"
	"time"

	"github.com/zklock/zklock"
)

// recipe is one kind of lock, as the workers of a world use it. Faults and checks are common to all
// recipes.
type recipe struct {
	name  string
	roots []string // the nodes below the locks' paths whose children are lock nodes: "" if it is the path
	take  func(k *worker, s *zklock.Session, g *op) (entry, error)
	run   func(k *worker, bound time.Duration) // instead of take; what is taken in the end, take takes
}

// entry is a lock that a worker is about to take. The attempt's op has its share.
type entry struct {
	zklock.Lock
	leave func(ctx context.Context) error // instead of the hold's Release
	reads zklock.Lock                     // that the holder may take, too
	alone bool                            // it cannot be re-entered
}

// The recipes.
var (
	mutexes    = &recipe{name: "mutex", roots: []string{""}, take: takeMutex}
	containers = &recipe{name: "container", roots: []string{""}, take: takeContainer}
	delayed    = &recipe{name: "lock-delay", roots: []string{""}, take: takeDelayed}
	election   = &recipe{name: "election", roots: []string{""}, take: campaign}
	readers    = &recipe{name: "read/write", roots: []string{""}, take: takeShare}
	permits    = &recipe{name: "semaphore", roots: []string{"locks", "leases"}, take: takePermits}
	several    = &recipe{name: "multi", roots: []string{""}, take: takeAny, run: (*worker).several}
	works      = &recipe{name: "once", roots: []string{""}, take: takeMutex, run: (*worker).once}
)

// roots returns the nodes whose children are the lock nodes of all locks.
func (w *world) roots() (all []string) {
	for i, lock := range w.locks {
		roots := w.kind.recipe.roots
		if w.isSemaphore(i) {
			roots = permits.roots
		}
		for _, root := range roots {
			all = append(all, path.Join(lock, root))
		}
	}
	return all
}

// isSemaphore reports whether a lock of Multis is a semaphore of one permit: the third.
func (w *world) isSemaphore(lock int) bool { return w.kind.locks == 3 && lock == 2 }

// takeContainer takes a mutex whose root is created and deleted with its nodes.
func takeContainer(k *worker, s *zklock.Session, g *op) (entry, error) {
	m, err := zklock.NewMutex(s, k.w.locks[g.lock], zklock.WithData([]byte(g.owner)), zklock.WithContainer())
	return entry{Lock: m}, err
}

// takeAny takes a lock of a Multi.
func takeAny(k *worker, s *zklock.Session, g *op) (entry, error) {
	if !k.w.isSemaphore(g.lock) {
		return takeShare(k, s, g)
	}
	sem, err := zklock.NewSemaphore(s, k.w.locks[g.lock], 1)
	if err != nil {
		return entry{}, err
	}
	g.permits = 1
	return entry{Lock: sem.Permits(1), alone: true}, nil
}

// delay is the lock-delay of its worlds.
const delay = 3 * time.Second

func takeMutex(k *worker, s *zklock.Session, g *op) (entry, error) {
	m, err := zklock.NewMutex(s, k.w.locks[g.lock], zklock.WithData([]byte(g.owner)))
	return entry{Lock: m}, err
}

func takeDelayed(k *worker, s *zklock.Session, g *op) (entry, error) {
	m, err := zklock.NewMutex(s, k.w.locks[g.lock], zklock.WithData([]byte(g.owner)), zklock.WithLockDelay(delay))
	return entry{Lock: m}, err
}

// takeShare takes the read lock, the write lock or a mutex on the same path.
func takeShare(k *worker, s *zklock.Session, g *op) (entry, error) {
	which := k.rnd.IntN(5)
	if which == 0 {
		return takeMutex(k, s, g)
	}
	rw, err := zklock.NewRWMutex(s, k.w.locks[g.lock], zklock.WithData([]byte(g.owner)))
	if err != nil {
		return entry{}, err
	}
	if g.shared = which < 3; g.shared {
		return entry{Lock: rw.ReadLock()}, nil
	}
	return entry{Lock: rw.WriteLock(), reads: rw.ReadLock()}, nil
}

// usualLimit and mostLimit are the permits of a semaphore without and with faults.
const (
	usualLimit = 3
	mostLimit  = 4
)

func limitNode(lock string) string { return lock + "-limit" }

// makeLimits creates the nodes of the limits, if the world has semaphores.
func (w *world) makeLimits() error {
	for i := range w.locks {
		if w.isSemaphore(i) {
			w.rec.limits = append(w.rec.limits, limit{lock: i, n: 1, to: w.order()})
		}
	}
	if w.kind.recipe != permits {
		return nil
	}
	for i, lock := range w.locks {
		if _, err := w.ens.Create(limitNode(lock), nil, 0); err != nil {
			return err
		}
		if err := w.setLimit(i, usualLimit); err != nil {
			return err
		}
	}
	return nil
}

// setLimit changes the limit of a semaphore. Calls that are being decided may use either.
func (w *world) setLimit(lock, n int) error {
	c := limit{lock: lock, n: n, from: w.order()}
	err := w.ens.SetData(limitNode(w.locks[lock]), binary.BigEndian.AppendUint32(nil, uint32(n)))
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.to = w.orderLocked(); err == nil {
		w.rec.limits = append(w.rec.limits, c)
	}
	return err
}

// takePermits takes one to three permits.
func takePermits(k *worker, s *zklock.Session, g *op) (entry, error) {
	lock := k.w.locks[g.lock]
	sem, err := zklock.NewSemaphore(s, lock, usualLimit, zklock.WithSharedLimit(limitNode(lock)))
	if err != nil {
		return entry{}, err
	}
	g.permits = 1 + k.rnd.IntN(usualLimit)
	return entry{Lock: sem.Permits(g.permits), alone: true}, nil
}

// campaign is a candidate that leads until it resigns, or until its campaign's context ends.
func campaign(k *worker, s *zklock.Session, g *op) (entry, error) {
	e, err := zklock.NewElection(s, k.w.locks[g.lock], zklock.WithData([]byte(g.owner)))
	t := &term{e: e, resigns: k.rnd.IntN(2) == 0, leads: make(chan *zklock.Hold), over: make(chan struct{}), returned: make(chan struct{})}
	return entry{Lock: t, leave: t.leave, alone: true}, err
}

// term is one Campaign in the form of an acquire and a release.
type term struct {
	zklock.Lock // none of its methods is called, except those below
	e           *zklock.Election
	resigns     bool

	end      context.CancelCauseFunc
	leads    chan *zklock.Hold
	over     chan struct{} // closed when lead is to return
	returned chan struct{} // closed when Campaign has
	err      error         // of Campaign
}

// Acquire returns when the candidate leads, or its campaign is over.
func (t *term) Acquire(ctx context.Context) (*zklock.Hold, error) {
	standing, end := context.WithCancelCause(context.WithoutCancel(ctx))
	t.end = end
	go func() {
		defer close(t.returned)
		t.err = t.e.Campaign(standing, func(ctx context.Context, h *zklock.Hold) error {
			t.leads <- h
			<-t.over
			return nil
		})
	}()
	select {
	case h := <-t.leads:
		return h, nil
	case <-t.returned:
	case <-ctx.Done():
		end(ctx.Err())
		select {
		case h := <-t.leads: // elected in the same instant
			return h, nil
		case <-t.returned:
		}
	}
	return nil, t.err
}

// TryAcquire does not exist for candidates.
func (t *term) TryAcquire(ctx context.Context) (*zklock.Hold, error) { return t.Acquire(ctx) }

func (t *term) leave(ctx context.Context) error {
	var resigning sync.WaitGroup
	if t.resigns {
		resigning.Go(func() { _ = t.e.Resign(ctx) }) // Campaign returns the same error
		time.Sleep(time.Millisecond)
	}
	t.end(context.Canceled) // a leader that has lost the lock does not campaign again
	close(t.over)
	<-t.returned
	resigning.Wait()
	return t.err
}
