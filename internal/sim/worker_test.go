package sim

// The actions of each worker of the simulation.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

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
	e    entry

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
		if k.w.kind.recipe.run != nil {
			k.w.kind.recipe.run(k, bound)
		} else if h, g := k.acquire(k.rnd.IntN(3) == 0, bound); h != nil {
			k.hold(h, g)
		}
	}
}

// attempt returns the op of the next attempt, whose name identifies its node. All attempts of a
// worker in one Session have one owner.
func (k *worker) attempt(lock int, bound time.Duration) (*zklock.Session, *op) {
	k.n++
	s := k.c.session()
	if s != k.s {
		k.s, k.lives = s, k.lives+1
		k.who = zklock.NewOwner("")
	}
	return s, &op{did: acquired, client: k.c.id, owner: fmt.Sprintf("%s.%d/%d", k.name, k.lives, k.n), lock: lock, bound: bound}
}

// acquire takes the worker's lock.
func (k *worker) acquire(try bool, bound time.Duration) (*zklock.Hold, *op) {
	w := k.w
	s, g := k.attempt(k.lock, bound)
	e, err := w.kind.recipe.take(k, s, g)
	if err != nil {
		w.failf("%v", err)
		return nil, g
	}
	k.e = e
	ctx, cancel := context.WithTimeout(zklock.WithOwner(context.Background(), k.who), bound)
	defer cancel()
	return k.enter(ctx, s, e, try && e.leave == nil, g), g
}

// enter calls Acquire or TryAcquire, and records the result. It returns nil if the call got no
// hold.
func (k *worker) enter(ctx context.Context, s *zklock.Session, l zklock.Lock, try bool, g *op) (h *zklock.Hold) {
	w := k.w
	var err error
	listed := w.lists(s.Stats().SessionID)
	if try {
		k.c.tries(s, g, 1)
		w.begun(g)
		h, err = l.TryAcquire(ctx)
	} else {
		w.begun(g)
		h, err = l.Acquire(ctx)
	}
	k.c.got(s, g, h, err)
	if err != nil {
		k.c.expects(s, err, try)
		return nil
	}
	if w.kind.roots > 0 && w.lists(s.Stats().SessionID) == listed {
		w.count("grants in a new root")
	}
	return h
}

// tries makes an op a try of some locks, whose bound is two heartbeats for each. Of several, the
// one that is not granted deletes its node, then the others are released: each takes the grace.
func (c *client) tries(s *zklock.Session, g *op, locks int) {
	limit := time.Duration(2*locks)*max(s.Stats().SessionTimeout/10, 250*time.Millisecond) + time.Duration(min(locks, 2)-1)*simGrace
	g.did, g.bound = tried, min(g.bound, limit)
}

// got records the result of an attempt.
func (c *client) got(s *zklock.Session, g *op, h *zklock.Hold, err error) {
	session := s.Stats().SessionID
	stands := err == nil && h.Err() == nil
	c.w.ended(g, func() {
		if g.err = err; err == nil {
			g.node, g.token = h.Node(), h.Token()
			for _, check := range h.Checks() {
				g.nodes = append(g.nodes, check.Path)
			}
		}
		if stands { // otherwise the session may be the next already
			g.session = session
		}
	})
	if err == nil {
		c.noteGrant(g, h)
		c.w.count("grants")
	}
}

// expects fails the world if a call that got no hold has failed for an unexpected reason.
func (c *client) expects(s *zklock.Session, err error, try bool) {
	w := c.w
	switch {
	case errors.Is(err, zklock.ErrNotAcquired) && try:
		w.count("tries in vain")
	case errors.Is(err, zklock.ErrNotConnected) && try:
		w.count("tries without an answer")
	case errors.Is(err, context.DeadlineExceeded):
		w.count("given up")
	case errors.Is(err, zklock.ErrClosed) && c.hasClosed(s):
		w.count("ended by Close")
	case errors.Is(err, link.ErrHungUp): // three connections in a row were cut at creates
		w.count("cut off at creates")
	case errors.Is(err, zk.ErrNoAuth) && w.kind.denies:
		w.count("denied")
	case errors.Is(err, zklock.ErrLost) && w.kind.recipe.run != nil:
		w.count("lost before all was done")
	case errors.Is(err, zklock.ErrNotConfirmed) && w.kind.recipe.run != nil:
		w.count("releases unconfirmed")
	default:
		w.failf("acquire: %v", err)
	}
}

// hold is a critical section.
func (k *worker) hold(h *zklock.Hold, g *op) {
	kind, e := k.w.kind, k.e
	defer k.listen(h, g)()
	var again, reads *zklock.Hold
	var shared *op // of reads
	if k.rnd.IntN(3) == 0 && !e.alone {
		again = k.reenter(h, e, g)
	}
	if e.reads != nil && k.rnd.IntN(2) == 0 {
		if reads, shared = k.alsoRead(h, e, g); reads != nil {
			defer k.listen(reads, shared)()
		}
	}
	for range k.rnd.IntN(3) {
		if g.shared || g.permits > 0 {
			break // several may hold, so no token protects the resource
		}
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
	if reads == nil {
		k.release(h, g, k.upTo(20*time.Second))
		return
	}
	other, its := reads, shared
	if k.rnd.IntN(2) == 0 {
		h, g, other, its = reads, shared, h, g
	}
	k.release(h, g, k.upTo(20*time.Second))
	pause(other.Context(), k.upTo(kind.hold))
	k.c.awake()
	k.release(other, its, k.upTo(20*time.Second))
}

// listen records when the holder is notified of a loss, until the returned function is called.
func (k *worker) listen(h *zklock.Hold, g *op) (end func()) {
	released := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case <-h.Lost():
			k.w.told(g)
		case <-released:
		}
	})
	return func() {
		close(released)
		listening.Wait()
	}
}

// alsoRead takes the read lock beside the write lock.
func (k *worker) alsoRead(h *zklock.Hold, e entry, g *op) (*zklock.Hold, *op) {
	bound := time.Second + k.upTo(k.w.kind.wait)
	o := &op{did: acquired, client: k.c.id, owner: g.owner, lock: g.lock, bound: bound, shared: true, beside: g}
	ctx, cancel := context.WithTimeout(h.Context(), bound)
	defer cancel()
	k.w.begun(o)
	reads, err := e.reads.Acquire(ctx)
	k.c.got(k.s, o, reads, err)
	if err != nil && h.Err() == nil {
		k.c.expects(k.s, err, false)
	}
	return reads, o
}

func (k *worker) reenter(h *zklock.Hold, e entry, g *op) *zklock.Hold {
	w := k.w
	o := w.begun(&op{did: reentered, client: k.c.id, owner: g.owner, lock: g.lock, shared: g.shared, bound: time.Second, grant: g})
	ctx, cancel := context.WithTimeout(zklock.WithOwner(h.Context(), h.Owner()), time.Second)
	defer cancel()
	again, err := e.Acquire(ctx)
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

// release releases one handle.
func (k *worker) release(h *zklock.Hold, g *op, bound time.Duration) {
	release := h.Release
	if k.e.leave != nil {
		release, bound = k.e.leave, time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	o := k.releases(h, g, bound)
	if k.e.leave == nil && k.rnd.IntN(3) == 0 {
		k.releasedAsync(o, h.ReleaseAsync())
		return
	}
	k.released(o, release(ctx))
}

// releases records that a handle is about to be released. From the call that releases the owner's
// last handle on, the owner does not believe in the hold.
func (k *worker) releases(h *zklock.Hold, g *op, bound time.Duration) *op {
	w := k.w
	o := &op{did: released, client: k.c.id, owner: g.owner, lock: g.lock, bound: bound, shared: g.shared, grant: g}
	select {
	case <-h.Lost():
		o.lost = true
		w.told(g) // the context may have ended before the listener ran
	default:
	}
	w.begun(o)
	if h == k.c.holdOf(g) {
		k.c.forgetGrant(g)
		w.believedUntil(g, o)
	}
	return o
}

// released records the result of a release.
func (k *worker) released(o *op, err error) {
	w := k.w
	w.ended(o, func() { o.err = err })
	switch {
	case err == nil:
		if o.lost {
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

// releasedAsync records the result of ReleaseAsync, whose deletion may take effect at any time.
func (k *worker) releasedAsync(o *op, err error) {
	if err == nil && !o.lost {
		k.w.count("releases without waiting")
		err = zklock.ErrNotConfirmed
	}
	k.released(o, err)
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
	o := w.begun(&op{did: wrote, client: k.c.id, owner: g.owner, lock: g.lock, token: h.Token(), grant: g})
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
