package zklock

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
)

// One attempt: the recipe that it calls, the results of its requests, the grant, and its blockers.
// watcher.go runs its state machine.

// A new recipe embeds plain, and has the methods of recipe that differ; its New… calls mutexOf.
// recipe_test.go adds two. Data of one attempt, and then of its hold, is in the type that newState
// returns, which embeds noState. If the hold rests on further nodes, its giveBack deletes them.
// Data of a lock root is a type for node.Note and node.NotesOn. Send requests through a.e, and pass
// their errors to findingOf. A wait ends with a.ctx, with the session, and with the deletion of our
// node. If the response to a create is lost, find out what became of it. Decisions on the names in
// the queue are in internal/queue, whose explorers check them. internal/frames gets a scene.

// recipe is the part that one kind of lock adds to the engine. The engine creates a node, waits
// until it is first in the queue and grants the lock. The engine calls the recipe and names none. A
// recipe embeds plain, and has the methods that differ. One recipe serves all calls of a lock, so
// it does not change: the data that it needs for one node is in a recipeState (attempt.state).
type recipe interface {
	// admitLocked is called under the table's lock for an owner's new share. It returns the
	// acquisition that has to end first, or the reason why the owner cannot have both shares. It may
	// give the share a state: then beforeQueue creates the node, or takes the state back.
	admitLocked(t *lockTable, d *lockData) (busy *acquisition, err error)
	// beforeQueue is called first. It returns nil if it granted the lock, and errRequeue if a has
	// to queue.
	beforeQueue(a *acquisition) error
	// newState returns the state of an attempt that begins. before is the state of the previous
	// attempt of the call, nil if this is the first. Its requests precede the create of the node.
	newState(a *attempt, before recipeState) recipeState
	// created is called after the create, even without a lock root. Its error ends the call.
	created(a *attempt) error
	// listing is called after each further list of the queue was requested, behind another node. Its
	// requests join the same batch.
	listing(a *attempt)
	// listed is called with each list that contains our node. Its error ends the call.
	listed(a *attempt) error
	// whenBehind is called when another node blocks ours. It returns ErrNotAcquired if the call
	// does not wait, and errGranted if it granted the lock anyway.
	whenBehind(a *attempt, at position) error
	// whenFirst is called when no node blocks ours. It grants the lock, perhaps after it has
	// created other nodes.
	whenFirst(a *attempt) error
}

// plain is the recipe of a mutex: the client whose node is first in the queue has the lock.
type plain struct{}

// recipeNotes are the notes of recipes on the lock root of their queue.
type recipeNotes struct {
	blocked bool // the last try of a mutex found a node that blocked it

	// Of a semaphore:
	fits    bool // no other recipe uses the path
	roomy   bool // the last acquire left capacity for itself and for all waiters
	crowded bool // the warning was logged that more permits are in use than the limit allows
}

func (plain) admitLocked(*lockTable, *lockData) (*acquisition, error) { return nil, nil }

// beforeQueue returns ErrNotAcquired for a try that is still blocked, if the last try was blocked.
func (p plain) beforeQueue(a *acquisition) error {
	if len(a.earlier) > 0 || !a.d.table.isTry(a) || !node.NotesOn[recipeNotes](a.d.root.Root).blocked {
		return errRequeue
	}
	e, err := node.AttachedSession(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.Attempting(1)
	defer e.Attempting(-1)
	return p.probe(a, e)
}

func (plain) newState(*attempt, recipeState) recipeState { return noState{} }

func (plain) created(*attempt) error { return nil }

func (plain) listing(*attempt) {}

func (plain) listed(*attempt) error { return nil }

func (plain) whenBehind(a *attempt, at position) error {
	if !a.d.table.noteBehind(a.acquisition, at) {
		node.Note(a.d.root.Root, func(n *recipeNotes) { n.blocked = true })
		return ErrNotAcquired
	}
	return nil
}

func (plain) whenFirst(a *attempt) error { return a.grant() }

// attempt is the wait of one node until it is first in its queue. Each of its steps is chosen by
// the state machine (queue.Machine).
type attempt struct {
	*acquisition
	grantBasis
	recipe recipe
	use    node.RootUse // of the lock root

	machine  queue.Machine
	list     *node.Listing
	pos      queue.Position // in the last list that arrived
	onOwn    *node.Watch
	blockers []blocker    // the predecessor, and the other nodes that are watched
	handoff  *node.Waiter // set if the predecessor belongs to the same session
	queued   bool         // counted among the attempts that wait
	delay    delayWait    // zero without a lock-delay

	retry link.Backoff // between requests whose errors leave the result unknown
}

// leaveQueue unregisters the attempt as a waiter: it gets no further handoff and no notification.
func (a *attempt) leaveQueue() {
	a.leaveHandoff()
	for _, m := range a.blockers {
		m.stopWatching(a.e)
	}
	a.blockers = nil
}

// leaveHandoff unregisters the attempt for a handoff, if it is registered.
func (a *attempt) leaveHandoff() {
	if a.handoff != nil {
		a.e.Own.Leave(a.handoff)
		a.handoff = nil
	}
}

// findingOf returns the finding that a request's error implies, or an error if the attempt cannot
// continue. If the request leaves the result unknown, findingOf pauses and returns queue.Unknown.
func (a *attempt) findingOf(err error) (queue.Finding, error) {
	switch {
	case err == nil:
		a.last.Note(nil)
		return queue.Exists, nil
	case a.ctx.Err() != nil:
		return queue.Unknown, link.ErrCtxEnded
	case a.e.HasEnded():
		return queue.Unknown, a.e.EndErr()
	case errors.Is(err, zk.ErrNoNode):
		return queue.Absent, nil
	case errors.Is(err, ErrClosed), errors.Is(err, link.ErrHungUp), reply.IsRefusal(err):
		return queue.Unknown, err
	}
	a.last.Note(err)
	return queue.Unknown, a.e.PauseUnder(a.ctx, a.retry.Next())
}

// grant gives the lock to the call, if the ZooKeeper session that created the node is the current
// one (I3) and its lease has enough margin.
//
// From the moment the lock is under the lease, the deletion of its node is a loss. The watch on our
// own node, if there is one, shows whether the node was deleted before that moment.
func (a *attempt) grant() error {
	e, d := a.e, a.d
	held := []string{a.node}
	if len(a.held) > 0 {
		held = a.held
	}
	d.table.prepare(d, a.grantBasis, held)
	if err := a.putUnderLease(held); err != nil {
		return err
	}
	if own := a.onOwn; own != nil && own.HasFired() && own.Event == zk.EventNodeDeleted {
		e.LetGo(d, held...)
		return errRequeue
	}
	var minHoldUntil clock.Instant // the earliest time to delete the node; 0 for no minimum
	if a.opts.minHold > 0 {
		minHoldUntil = e.Clock.Now().Add(a.opts.minHold)
	}
	if !d.table.grant(a.acquisition, minHoldUntil) { // the grant: from here on the lock is ours
		e.LetGo(d, held...)
		if a.ctx.Err() != nil {
			return link.ErrCtxEnded
		}
		return errRequeue // lost between the two, before any call had it
	}
	if a.opts.revoke != nil {
		var once sync.Once
		for _, node := range held { // each of them represents the hold
			listenForRevocation(d, e, node, func(h *Hold) { once.Do(func() { a.opts.revoke(h) }) })
		}
	}
	return nil
}

// putUnderLease puts the nodes of the hold under the lease. If the lease became stale during the
// wait, putUnderLease renews it first.
func (a *attempt) putUnderLease(held []string) error {
	e := a.e
	for renewed := false; ; renewed = true {
		ok, err := e.Hold(held[0], a.d, held[1:]...)
		switch {
		case errors.Is(err, ErrSessionTimeoutTooShort):
			return err
		case err != nil:
			return e.EndErr()
		case ok:
			return nil
		}
		if renewed {
			if err := e.PauseUnder(a.ctx, lease.Heartbeat(e.Timeout())/2); err != nil {
				return err
			}
		}
		failed, err := e.Check(a.ctx, held...)
		if errors.Is(err, zk.ErrNoAuth) {
			return fmt.Errorf("%w: %w", link.ErrUnreadable, reply.Denied(err, "check", "READ", failed))
		}
		switch r, err := a.findingOf(err); {
		case err != nil:
			return err
		case r == queue.Absent:
			return errRequeue
		}
	}
}

// beginWait counts the attempt among the attempts that wait, once, and logs its position.
func (a *attempt) beginWait(at position) {
	if a.queued {
		return
	}
	a.queued = true
	a.e.Watches.CountWaiters(1)
	a.e.Log.Debug("zklock: queued", func() []any {
		return []any{"path", a.d.root.ShownPath(), "node", at.node, "position", at.rank, "predecessor", at.predecessor}
	})
	a.logNow = time.After(a.nextLog - time.Since(a.since))
}

// logIfLong logs a long wait: our position, the client that created the predecessor (which is the
// holder if we are second), and a reason for the wait other than the blockers. The log takes no
// request. A waiter whose predecessor is a waiter of its own session does not log, because the
// predecessor does, unless the predecessor holds the lock.
func (a *attempt) logIfLong() {
	waited := time.Since(a.since)
	if !a.queued || waited < a.nextLog {
		return
	}
	a.nextLog = 2 * waited.Truncate(firstWaitLog)
	a.logNow = time.After(a.nextLog - waited)
	at := a.d.table.position(a.acquisition)
	blocker := at.blocker()
	if blocker == "" && a.e.IsHeld(at.predecessor) { // granted since the last list
		blocker = ourselves
	}
	i, _ := a.machine.Awaited()
	if blocker == "" && (a.handoff != nil || i < len(a.blockers) && a.blockers[i].waiter != nil) {
		return
	}
	who := "behind"
	if at.holds {
		who = "holder"
	}
	attrs := []any{"path", a.d.root.ShownPath(), "node", a.node, "waited", waited.Round(time.Second), "position", at.rank, who, blocker}
	if at.why != "" {
		attrs = append(attrs, "why", at.why)
	}
	a.e.Log.Info("zklock: still waiting for the lock", attrs...)
}

// awaitEarlier waits for the end of the acquisitions whose calls had left before this one began.
func (a *attempt) awaitEarlier() error {
	for ; len(a.earlier) > 0; a.earlier = a.earlier[1:] {
		if _, err := link.Await(a.ctx, a.e.ZKSession, a.earlier[0].done); err != nil {
			return err
		}
	}
	return nil
}

// exhausted returns the error at the end of the counter, where no node is granted. It names the
// node that must be deleted first.
func (a *attempt) exhausted() error {
	way := a.pos.Predecessor
	for _, child := range a.list.Names { // a child that takes no part in the queue also prevents a new lock root
		if way == "" && child != nameOf(a.node) {
			way = strings.Clone(child)
		}
	}
	if way == "" {
		return fmt.Errorf("%w: %s is past the last number that zklock uses; try again after a pause", ErrSequenceExhausted, nameOf(a.node))
	}
	return fmt.Errorf("%w: try again when %s and all other children are deleted", ErrSequenceExhausted, shown(way))
}

// probe lists the queue before the node is created, so that tries which fail again and again cost
// one read each, and write nothing. The list is synced, because no create precedes it: a server
// that lags behind could show a holder that has released.
func (plain) probe(a *acquisition, e *node.ZKSession) error {
	root := a.d.root
	now := e.Lists.ListSynced(root.Path())
	switch err := now.Wait(a.ctx, e.ZKSession); {
	case a.ctx.Err() != nil:
		return link.ErrCtxEnded
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return errRequeue // the create returns the cause
	}
	p := queue.PositionOfNext(root.Rule(), now.Names) // without a lock root there are no names
	if p.Kind != queue.Behind {
		node.Note(root.Root, func(n *recipeNotes) { n.blocked = false })
		return errRequeue
	}
	a.d.table.noteBehind(a, positionOf(e, root, "", p))
	return ErrNotAcquired
}

// blocker is a node whose deletion an attempt waits for. Exactly one of its fields is set, until
// the notification has been received.
type blocker struct {
	on     *node.Watch
	waiter *node.Waiter // set if the node belongs to the same session, so that it needs no watch
}

// path returns the node's path; "" if the notification has been received.
func (m blocker) path() string {
	switch {
	case m.waiter != nil:
		return m.waiter.Blocker
	case m.on != nil:
		return m.on.Path
	}
	return ""
}

// hasEnded reports whether the notification has arrived, or never will.
func (m blocker) hasEnded() bool {
	switch {
	case m.waiter != nil:
		return len(m.waiter.Notified) > 0
	case m.on != nil:
		return m.on.HasFired() || m.on.HasFailed()
	}
	return true
}

// ends returns the two channels that can report the node's deletion. One of them is nil.
func (m blocker) ends() (fired <-chan struct{}, notified <-chan queue.Handoff) {
	if m.waiter != nil {
		return nil, m.waiter.Notified
	}
	return m.on.Fired, nil
}

// stopWatching ends the wait for the node's deletion.
func (m blocker) stopWatching(e *node.ZKSession) {
	if m.waiter != nil {
		e.Own.Leave(m.waiter)
	}
	e.Watches.Leave(m.on)
}
