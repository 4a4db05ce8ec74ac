package zklock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// batchAcquire is the first attempt of a Multi at several of its locks: one transaction creates
// their nodes, and the lists of their queues follow it. It keeps the nodes that one acquire after
// another would have led to: the nodes that are first in their queues, and the next one, which
// waits (queue.InFront). A try keeps all nodes or none.
//
//	batch ──▶ looked ──▶ each item, in the order of the locks: taken by its acquisition, or dropped
//
// A batchAcquire is tried once. If it fails, for example because the servers reject it, each
// acquisition creates its node itself.
//
// An item is taken when all items before it are granted. If one of those has to wait after all,
// because another client has deleted its node, the items after it are dropped: a node that waits in
// a queue must have no node later in the order.
type batchAcquire struct {
	batch
	from  int // index of its first lock in the Multi
	try   bool
	parts []*batchItem
	leave context.CancelFunc // called when the call has left

	done   chan struct{} // closed when the dropped nodes are being deleted and the next fields are set
	kept   int           // how many items are kept
	behind *batchItem    // of a try: the item that is not first in its queue; nil if all are first, or if not known

	mu struct {
		sync.Mutex
		looked  bool            // done is closed, or about to be closed
		dropped *nodes.Deletion // the last deletion; nil if there was none
	}
}

// batchItem is a lock of a batchAcquire, with its node.
type batchItem struct {
	*batchResult
	o       *batchAcquire
	m       *Mutex
	left    *acquisition // represents the node until it is taken or deleted
	inFront bool         // the list shows it first in its queue; set before done is closed
	isOff   bool         // taken or dropped; guarded by batchAcquire.mu
	spent   bool         // its acquisition has requested it; only that acquisition uses this field
}

// beginBatchAcquire begins with the locks of a Multi from one on, in their order. It returns nil if
// the session does not have capacity for so many nodes.
func beginBatchAcquire(e *zkSession, from int, locks []*Mutex, try bool) *batchAcquire {
	if 2*len(locks) > e.nodes.Room() { // most of them may be deleted again: leave capacity for other calls of the Session
		return nil
	}
	o := &batchAcquire{from: from, try: try, done: make(chan struct{})}
	o.e = e
	o.wanted, o.leave = context.WithCancel(context.Background())
	for _, m := range locks {
		n, err := o.add(&m.root, m.opts.data)
		if err != nil {
			o.freeSeats()
			return nil
		}
		o.parts = append(o.parts, &batchItem{batchResult: n, o: o, m: m})
	}
	for _, p := range o.parts {
		p.left = p.m.s.locks.leftover(p.root)
	}
	if !e.Carrier.Spawn(o.run) {
		o.run() // the Session is closed: run sends nothing
	}
	return o
}

// part returns the item of one lock of the Multi, nil if it has none.
func (o *batchAcquire) part(lock int) *batchItem {
	if o == nil || lock-o.from >= len(o.parts) {
		return nil
	}
	return o.parts[lock-o.from]
}

// nextAfter returns the index of the lock with which the next batchAcquire may begin: the next one,
// if the granted lock had to wait and the items after it were dropped for that; otherwise next.
func (o *batchAcquire) nextAfter(lock, next int) int {
	if o != nil && isClosed(o.done) && o.kept > 0 && lock+1 == o.from+o.kept {
		return lock + 1
	}
	return next
}

// run determines which nodes the transaction has created, even if the call has left, and drops the
// items that are not kept.
func (o *batchAcquire) run() {
	o.e.attempts.Add(1)
	defer o.e.attempts.Add(-1)
	kept, behind := 0, (*batchItem)(nil)
	if o.make() {
		places := o.places()
		kept = queue.InFront(places)
		if kept < len(places) {
			if places[kept].Kind == queue.Behind {
				behind = o.parts[kept]
			}
			kept++
		}
		if behind == nil || !o.try {
			o.hold(places[:kept])
		}
	} else {
		o.takeBack()
	}
	o.freeSeats() // before done is closed: the acquisitions then need the capacity for nodes of their own
	o.mu.Lock()
	switch {
	case o.wanted.Err() != nil:
		kept = 0
	case o.try && behind != nil:
		kept, o.behind = 0, behind
		note(behind.root, func(n *mutexNotes) { n.blocked = true })
	}
	o.kept, o.mu.looked = kept, true
	off := takeOff(o.parts[kept:])
	o.mu.Unlock()
	o.erase(off)
	close(o.done)
}

// hold puts the first nodes of their queues under the lease before the call or its trace function
// can spend time. So no later grant depends on an outdated list: if such a node is deleted, it
// counts as lost, like the node of a hold. If the lease ends too soon for that, the grant of each
// lock checks its node (attempt.grant).
func (o *batchAcquire) hold(places []queue.Position) {
	for i, at := range places {
		if p := o.parts[i]; at.Kind == queue.Front {
			p.inFront = true
			_, _ = o.e.Hold(p.c.node, p)
		}
	}
}

// Lose implements link.Holder. No caller has the item yet: its grant will find that the node was
// deleted.
func (p *batchItem) Lose(string, error, clock.Instant) (told bool) { return false }

// refused returns the error of the call. If a try failed because one lock was not first in its
// queue, that is the error of that lock; otherwise it is err.
func (o *batchAcquire) refused(ctx context.Context, err error) error {
	if o == nil || !isClosed(o.done) || o.behind == nil || !errors.Is(err, ErrNotAcquired) {
		return err
	}
	at := positionOf(o.e, o.behind.root, o.behind.c.node, o.behind.place())
	return o.behind.m.notLetIn(ctx, o.behind.m.caller(ctx), "try", &acquisition{at: at}, ErrNotAcquired)
}

// dropLater drops the items after one that has to wait.
func (p *batchItem) dropLater() { p.o.drop(p.o.parts[slices.Index(p.o.parts, p)+1:]) }

// drop drops the items that have not been taken. It drops nothing until run has determined which
// nodes exist.
func (o *batchAcquire) drop(parts []*batchItem) {
	o.mu.Lock()
	var off []*batchItem
	if o.mu.looked {
		off = takeOff(parts)
	}
	o.mu.Unlock()
	o.erase(off)
}

// takeOff returns the items that have not been taken or dropped, and marks them. The caller has
// locked batchAcquire.mu.
func takeOff(parts []*batchItem) (off []*batchItem) {
	for _, p := range parts {
		if !p.isOff {
			p.isOff = true
			off = append(off, p)
		}
	}
	return off
}

// erase deletes the nodes of the items in one transaction.
func (o *batchAcquire) erase(off []*batchItem) {
	finished := func() {
		for _, p := range off {
			p.left.finished()
		}
	}
	var made []string
	for _, p := range off {
		if p.c.node != "" {
			o.e.LetGo(p, p.c.node) // no heartbeat may find a node missing
			made = append(made, p.c.node)
		}
	}
	if len(made) == 0 {
		finished()
		return
	}
	x := o.e.reaper.DeleteAll(made)
	for _, p := range off {
		if p.c.node != "" {
			p.root.restarting(o.e, p.c.node, x)
		}
	}
	o.mu.Lock()
	o.mu.dropped = x
	o.mu.Unlock()
	await := func() {
		defer finished()
		select {
		case <-x.Done:
		case <-x.Refused: // the next call does not create them in vain
			for _, p := range off {
				note(p.root, func(n *mutexNotes) { n.blocked, n.waits = true, true })
			}
		case <-o.e.Ended():
		}
	}
	if !o.e.Carrier.Spawn(await) {
		finished()
	}
}

// end is called when the call has an error. It drops the items that have not been taken; if it is
// not yet known which nodes exist, run drops them.
func (o *batchAcquire) end() {
	if o != nil {
		o.leave()
		o.drop(o.parts)
	}
}

// awaitGone waits until the dropped nodes are deleted, so that the caller does not find them.
func (o *batchAcquire) awaitGone(most time.Duration) {
	if o == nil {
		return
	}
	o.mu.Lock()
	x := o.mu.dropped
	o.mu.Unlock()
	if x == nil || isClosed(x.Done) {
		return
	}
	late := make(chan struct{})
	t := time.AfterFunc(most, func() { close(late) })
	defer t.Stop()
	awaitGone(o.e, x, late)
}

// opened is the recipe of a lock that may be in a batchAcquire. Otherwise it acts as the lock's own
// recipe.
type opened struct {
	recipe
	part   *batchItem   // nil if the lock is taken by itself
	waited *atomic.Bool // set when another node is ahead, possibly after the call has left
}

// beforeQueue continues with the node that the batch has created. It returns errRequeue if there is
// no such node, or if the lock's own recipe has to queue again at the tail.
func (r opened) beforeQueue(a *acquisition) error {
	if err := r.recipe.beforeQueue(a); err != errRequeue || r.part == nil || r.part.spent {
		return err
	}
	at, err := r.take(a)
	if err == nil {
		at.e.attempts.Add(1)
		err = at.carryOut()
		at.e.attempts.Add(-1)
	}
	return err
}

// whenBehind drops the items later in the order, and then acts as the lock's own recipe.
func (r opened) whenBehind(a *attempt, at position) error {
	r.waited.Store(true)
	if r.part != nil {
		r.part.dropLater()
	}
	return r.recipe.whenBehind(a, at)
}

// take takes the node, once it is known which nodes exist.
func (r opened) take(a *acquisition) (*attempt, error) {
	p, o := r.part, r.part.o
	p.spent = true
	select {
	case <-o.done:
	case <-a.ctx.Done():
		o.leave()
		<-o.done // at the latest, run ends with the session
	}
	o.mu.Lock()
	isOff := p.isOff
	p.isOff = true
	o.mu.Unlock()
	if !isOff {
		a.left = slices.DeleteFunc(a.left, func(other *acquisition) bool { return other == p.left })
		p.left.finished()
		at := a.attemptIn(o.e, r, p.list != nil)
		if p.inFront {
			at.batchHolder = p
		}
		at.list = p.list
		return at.adopt(p.c), nil
	}
	if o.behind != nil || a.ctx.Err() != nil {
		o.awaitGone(grace)
	}
	switch {
	case a.ctx.Err() != nil:
		return nil, link.ErrCtxEnded
	case o.behind != nil:
		return nil, ErrNotAcquired
	case o.e.HasEnded():
		return nil, o.e.EndErr()
	}
	return nil, errRequeue
}
