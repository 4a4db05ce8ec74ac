package sim

// The actions of each worker of the simulation.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/link"
)

// worker is a goroutine of a client that acquires, tries, gives up, re-enters, writes, and releases
// at random.
type worker struct {
	w    *world
	c    *client
	name string
	rnd  *rand.Rand
	lock int
	n    int // attempts so far

	s     *zklock.Session // the present one
	lives int             // Sessions so far
	who   zklock.Owner    // in this one
}

func (k *worker) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(k.rnd.Int64N(int64(d)))
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (k *worker) run(ctx context.Context) {
	kind := k.w.kind
	for pause(ctx, k.upTo(kind.think)) {
		k.c.awake()
		bound := time.Millisecond + k.upTo(kind.wait)
		if k.rnd.IntN(4) == 0 {
			bound /= 100
		}
		if k.rnd.IntN(8) == 0 {
			k.read()
		}
		if h, g := k.acquire(ctx, k.rnd.IntN(3) == 0, bound); h != nil {
			k.hold(h, g)
		}
	}
}

// acquire records an attempt, whose name identifies its node. All attempts of a worker in one
// Session have one owner.
func (k *worker) acquire(ctx context.Context, try bool, bound time.Duration) (*zklock.Hold, *op) {
	w := k.w
	k.n++
	s := k.c.session()
	if s != k.s {
		k.s, k.lives = s, k.lives+1
		k.who = zklock.NewOwner("")
	}
	g := &op{did: acquired, client: k.c.id, owner: fmt.Sprintf("%s.%d/%d", k.name, k.lives, k.n), lock: k.lock, bound: bound}
	m, err := zklock.NewMutex(s, w.locks[k.lock], zklock.WithData([]byte(g.owner)))
	if err != nil {
		w.failf("%v", err)
		return nil, g
	}
	listed := w.lists(s.SessionID())
	actx, cancel := context.WithTimeout(zklock.WithOwner(context.Background(), k.who), bound)
	defer cancel()
	var h *zklock.Hold
	if try {
		g.did, g.bound = tried, min(bound, 2*max(s.Timeout()/10, 250*time.Millisecond)) // two heartbeats
		w.begun(g)
		h, err = m.TryAcquire(actx)
	} else {
		w.begun(g)
		h, err = m.Acquire(actx)
	}
	session := s.SessionID()
	if now := w.lists(session); err == nil && w.kind.roots > 0 && now == listed {
		w.count("grants in a row")
	}
	stands := err == nil && h.Err() == nil
	w.ended(g, func() {
		if g.err = err; err == nil {
			g.node, g.token = h.Node(), h.Token()
		}
		if stands { // otherwise the session may be the next already
			g.session = session
		}
	})
	switch {
	case err == nil:
		k.c.noteGrant(g, h)
		w.count("grants")
		return h, g
	case errors.Is(err, zklock.ErrNotAcquired) && try:
		w.count("tries in vain")
	case errors.Is(err, zklock.ErrNotConnected) && try:
		w.count("tries without an answer")
	case errors.Is(err, context.DeadlineExceeded):
		w.count("given up")
	case errors.Is(err, zklock.ErrClosed) && k.c.hasClosed(s):
		w.count("ended by Close")
	case errors.Is(err, link.ErrHungUp): // three connections in a row were cut at creates
		w.count("cut off at creates")
	default:
		w.failf("acquire: %v", err)
	}
	return nil, g
}

// hold is a critical section.
func (k *worker) hold(h *zklock.Hold, g *op) {
	w, kind := k.w, k.w.kind
	released := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case <-h.Lost():
			w.told(g)
		case <-released:
		}
	})
	var again *zklock.Hold
	if k.rnd.IntN(3) == 0 {
		again = k.reenter(h, g)
	}
	for range k.rnd.IntN(3) {
		pause(h.Context(), k.upTo(kind.hold/3))
		k.c.awake()
		late := k.upTo(50 * time.Millisecond)
		if k.rnd.IntN(8) == 0 { // written without a check of the hold: the case for the token (F19)
			late = k.upTo(2 * kind.hold)
		} else if h.Err() != nil {
			break
		}
		k.write(h, g, late)
	}
	work := k.upTo(kind.hold)
	if k.rnd.IntN(4) == 0 {
		work *= 6 // longer than a session timeout: a belief that lasts too long is visible to another client
	}
	pause(h.Context(), work)
	k.c.awake()
	if again != nil {
		k.release(again, g, time.Minute)
	}
	k.release(h, g, k.upTo(20*time.Second))
	close(released)
	listening.Wait()
}

func (k *worker) reenter(h *zklock.Hold, g *op) *zklock.Hold {
	w := k.w
	m, err := zklock.NewMutex(k.c.session(), w.locks[k.lock])
	if err != nil {
		w.failf("%v", err)
		return nil
	}
	o := w.begun(&op{did: reentered, client: k.c.id, owner: g.owner, lock: k.lock, bound: time.Second, grant: g})
	ctx, cancel := context.WithTimeout(h.Context(), time.Second)
	defer cancel()
	again, err := m.Acquire(ctx)
	w.ended(o, func() {
		if o.err = err; err == nil {
			o.node, o.token = again.Node(), again.Token()
		}
	})
	if err != nil {
		if h.Err() == nil {
			w.failf("I2: a hold cannot be re-entered: %v", err)
		}
		return nil
	}
	w.count("re-entries")
	return again
}

// release releases one handle. From the call that releases the owner's last handle on, the owner
// does not believe in the hold.
func (k *worker) release(h *zklock.Hold, g *op, bound time.Duration) {
	w := k.w
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	lost := false
	select {
	case <-h.Lost():
		lost = true
		w.told(g) // the context may have ended before the listener ran
	default:
	}
	last := h == k.c.holdOf(g)
	o := w.begun(&op{did: released, client: k.c.id, owner: g.owner, lock: k.lock, bound: bound, grant: g})
	if last {
		k.c.forgetGrant(g)
		w.believedUntil(g, o)
	}
	err := h.Release(ctx)
	w.ended(o, func() { o.err = err })
	switch {
	case err == nil:
		if lost {
			w.failf("I5: the release of a lost hold says that all was well")
		}
	case errors.Is(err, zklock.ErrLost):
		w.count("releases of lost holds")
	case errors.Is(err, zklock.ErrClosed):
		w.count("ended by Close")
	case errors.Is(err, zklock.ErrNotConfirmed):
		w.count("releases unconfirmed")
	default:
		w.failf("release: %v", err)
	}
}

// told records that a holder was notified of its loss.
func (w *world) told(g *op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.until == 0 {
		g.until, g.untilAt, g.lost = w.orderLocked(), time.Now(), true
		w.sum.counts["told losses"]++
	}
}

func (w *world) believedUntil(g, release *op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.until == 0 {
		g.until, g.untilAt = release.call, release.at
	}
}

// register is a resource that compares tokens, as in docs/fencing.md.
type register struct {
	token int64
	value int
}

// write takes late to reach the resource, and as long again to respond.
func (k *worker) write(h *zklock.Hold, g *op, late time.Duration) {
	w := k.w
	o := w.begun(&op{did: wrote, client: k.c.id, owner: g.owner, lock: k.lock, token: h.Token(), grant: g})
	time.Sleep(late)
	w.mu.Lock()
	r := w.reg[k.lock]
	o.value = len(w.rec.ops)
	o.believed = g.until == 0 // when it mattered
	o.point = w.orderLocked()
	if o.accepted = o.token >= r.token; o.accepted {
		r.token, r.value = o.token, o.value
		w.sum.counts["writes"]++
	} else {
		w.sum.counts["stale writes refused"]++
	}
	w.mu.Unlock()
	time.Sleep(k.upTo(50 * time.Millisecond))
	w.ended(o, func() {})
}

func (k *worker) read() {
	w := k.w
	o := w.begun(&op{did: readBack, client: k.c.id, lock: k.lock})
	time.Sleep(k.upTo(50 * time.Millisecond))
	w.mu.Lock()
	o.token, o.value = w.reg[k.lock].token, w.reg[k.lock].value
	w.mu.Unlock()
	time.Sleep(k.upTo(50 * time.Millisecond))
	w.ended(o, func() {})
}

func (c *client) noteGrant(g *op, h *zklock.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.grants[g] = h
}

func (c *client) holdOf(g *op) *zklock.Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.grants[g]
}

func (c *client) forgetGrant(g *op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.grants, g)
}
