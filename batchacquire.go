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

// batchAcquire is how a Multi begins with several of its locks: one flight makes their nodes and lists their queues. What is kept is what one lock
// after the other would have come to: the nodes in front, and the first that is not (queue.InFront). A try keeps all or none.
//
//	flight ──▶ looked ──▶ each part in its order: taken by its acquisition, or dropped
//
// An opening is tried once. If it comes to nothing, because the servers refuse it, say, then each acquisition makes its node itself.
//
// A part is taken when the parts before it are granted. If one of those has to wait after all, because somebody has deleted its node, the parts
// after it are dropped: what waits in a queue must have nothing that comes later in the order.
type batchAcquire struct {
	batch
	from  int // the Multi's lock that is the first
	try   bool
	parts []*batchItem
	leave context.CancelFunc // the call has left

	done   chan struct{} // closed when the nodes that are not kept are being deleted, and the next fields are set
	kept   int           // how many parts
	behind *batchItem    // of a try: the one that is not in front; nil if all are, or nobody knows

	mu struct {
		sync.Mutex
		looked  bool            // done is closed, or is about to be
		dropped *nodes.Deletion // the last one; nil if there was none
	}
}

// batchItem is a lock of an opening, and its node.
type batchItem struct {
	*batchResult
	o       *batchAcquire
	m       *Mutex
	left    *acquisition // stands for the node until that is taken or gone
	inFront bool         // by its list; set before done is closed
	isOff   bool         // taken or dropped; guarded by the opening
	spent   bool         // its acquisition has asked for it; that one's alone
}

// beginBatchAcquire begins the opening of a Multi's locks from one on, in their order. It returns nil if the session has no room for so many nodes.
func beginBatchAcquire(e *zkSession, from int, locks []*Mutex, try bool) *batchAcquire {
	if 2*len(locks) > e.nodes.Room() { // most of them may go again: they are not to keep others of the Session out
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
		o.run() // the Session is closed: nothing is sent
	}
	return o
}

// part returns that of a Multi's lock, nil if it has none.
func (o *batchAcquire) part(lock int) *batchItem {
	if o == nil || lock-o.from >= len(o.parts) {
		return nil
	}
	return o.parts[lock-o.from]
}

// nextAfter returns where the next opening may begin when a lock has been granted: right after the one that had to wait, if the nodes after that
// were dropped for it.
func (o *batchAcquire) nextAfter(lock, next int) int {
	if o != nil && isClosed(o.done) && o.kept > 0 && lock+1 == o.from+o.kept {
		return lock + 1
	}
	return next
}

// run finds out what the transaction has made, even if nobody waits any more, and drops what is not kept.
func (o *batchAcquire) run() {
	o.e.attempts.Add(1)
	defer o.e.attempts.Add(-1)
	defer o.freeSeats()
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

// hold puts the nodes that are in front under the lease, before the call or a trace of it can take
// its time. So no later grant rests on an old list: a node that is deleted meanwhile is lost, as
// that of a hold is. If the lease has no room, the grant of each checks its node (attempt.grant).
func (o *batchAcquire) hold(places []queue.Position) {
	for i, at := range places {
		if p := o.parts[i]; at.Kind == queue.Front {
			p.inFront = true
			_, _ = o.e.Hold(p.c.node, p)
		}
	}
}

// Lose is for link.Holder. No caller has the part yet: its grant finds the node gone.
func (p *batchItem) Lose(string, error, clock.Instant) (told bool) { return false }

// refused returns the error of a call that got another one: for a try that failed because one lock was not in front, that lock's.
func (o *batchAcquire) refused(ctx context.Context, err error) error {
	if o == nil || !isClosed(o.done) || o.behind == nil || !errors.Is(err, ErrNotAcquired) {
		return err
	}
	at := positionOf(o.e, o.behind.root, o.behind.c.node, o.behind.place())
	return o.behind.m.notLetIn(ctx, o.behind.m.caller(ctx), "try", &acquisition{at: at}, ErrNotAcquired)
}

// dropLater drops the parts after one that has to wait.
func (p *batchItem) dropLater() { p.o.drop(p.o.parts[slices.Index(p.o.parts, p)+1:]) }

// drop drops what has not been taken of those parts. If nobody knows yet what there is, nothing is dropped.
func (o *batchAcquire) drop(parts []*batchItem) {
	o.mu.Lock()
	var off []*batchItem
	if o.mu.looked {
		off = takeOff(parts)
	}
	o.mu.Unlock()
	o.erase(off)
}

// takeOff returns those of the parts that have not been taken or dropped, and now are. The opening is locked.
func takeOff(parts []*batchItem) (off []*batchItem) {
	for _, p := range parts {
		if !p.isOff {
			p.isOff = true
			off = append(off, p)
		}
	}
	return off
}

// erase has the nodes of the parts deleted, in one transaction.
func (o *batchAcquire) erase(off []*batchItem) {
	finished := func() {
		for _, p := range off {
			p.left.finished()
		}
	}
	var made []string
	for _, p := range off {
		if p.c.node != "" {
			o.e.LetGo(p, p.c.node) // no heartbeat may miss a node
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
		case <-x.Refused: // the next call does not make them in vain
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

// end is called when the call has an error. It drops what has not been taken; if nobody knows yet what there is, run will.
func (o *batchAcquire) end() {
	if o != nil {
		o.leave()
		o.drop(o.parts)
	}
}

// awaitGone waits for what was dropped, so that the caller finds it gone.
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

// opened is the recipe of a lock that may be in an opening, and is otherwise the lock's own.
type opened struct {
	recipe
	part   *batchItem   // nil if the lock is taken by itself
	waited *atomic.Bool // is set when somebody is ahead, perhaps after the call has left
}

// beforeQueue goes to the front with the node that is made. It returns errRequeue if there is none, and after what sends the lock's own recipe
// to the end of the queue.
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

// whenBehind is the lock's own, and first drops what comes later in the order.
func (r opened) whenBehind(a *attempt, at position) error {
	r.waited.Store(true)
	if r.part != nil {
		r.part.dropLater()
	}
	return r.recipe.whenBehind(a, at)
}

// take takes the node once it is known which there are.
func (r opened) take(a *acquisition) (*attempt, error) {
	p, o := r.part, r.part.o
	p.spent = true
	select {
	case <-o.done:
	case <-a.ctx.Done():
		o.leave()
		<-o.done // at the latest with the session
	}
	o.mu.Lock()
	isOff := p.isOff
	p.isOff = true
	o.mu.Unlock()
	if !isOff {
		a.left = slices.DeleteFunc(a.left, func(other *acquisition) bool { return other == p.left })
		p.left.finished()
		at := a.attemptIn(o.e, r, true)
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
