package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
)

// Passing on: the callers of one Session take turns under one node. This recipe wraps the recipe of
// a mutex. Only the first caller of the localQueue queues on the servers.

// WithPassOn lets the callers of a Session take turns under one lock node. A release passes the
// lock on to the next caller without a request. After k turns, or when d has passed since the first
// grant, the release deletes the node, and the remaining callers queue again behind the other
// Sessions. So another Session waits for at most k turns, and at most d and one turn, for each
// Session ahead of it. By default each caller has a node.
//
// The turns have the same Token, so the resource must accept a token that is equal to the last one;
// [Hold.Turn] orders the turns. The callers have their turns in the order of their calls, and
// TryAcquire does not overtake them. A revocation ([WithRevocation]), and a caller without the
// option whose node is next in the queue, end the sharing with the turn that runs. After a loss
// the waiting callers queue again.
//
// Mutexes of the same path share the turns, with the k and d of the first turn. [Mutex.Once] and
// [NewMulti] reject a Mutex with this option.
func WithPassOn(k int, d time.Duration) MutexOption {
	return lockOption(func(o *lockOptions) {
		if o.turns, o.turnsFor = k, d; k < 2 || d <= 0 {
			o.wrong = fmt.Errorf("WithPassOn(%d, %v): give at least 2 turns and a time above 0, or leave the option out", k, d)
		}
	})
}

// localQueue is a Session's queue for one lock, of callers with the option:
//
//	empty ─▶ a leader queues on the servers ─▶ a round of turns ─▶ another leader, or empty
//	          └─▶ leaves or fails: the next caller leads, with the node if the leader had one
//
// One mutex guards it, so arriving, leaving, passing on and losing have an order. It is locked
// before the lockTable. It is never held across a call that can end the ZooKeeper session, because
// the loss of the hold needs it.
type localQueue struct {
	mu      sync.Mutex
	waiting []*localWaiter // empty if there is neither a leader nor a round
	leader  *acquisition   // has a node on the servers, or creates it; nil during a round
	round   *round         // from the grant of its first turn to the end of its last; nil without one
}

// localWaiter is a call in a localQueue.
type localWaiter struct {
	a        *acquisition
	notified chan localNotice // buffered: holds one, from the removal of the waiter on
}

// localNotice is what a waiter is notified of.
type localNotice struct {
	leads   bool
	node    *grantBasis // the node of the previous leader; nil if it has none
	granted bool        // it has its turn; false if it does not lead, because the call has left
}

// round is a node that the callers of a localQueue hold in turn. It has the node under the lease,
// so the node stays there between two turns.
type round struct {
	q     *localQueue
	basis grantBasis
	most  int // turns
	until clock.Instant

	// guarded by the mutex of the localQueue
	turns int       // so far
	turn  *lockData // the last one
	lost  bool
}

// localNotes are a Session's notes on a lock root. If they are evicted, a Mutex that is created
// later gets another localQueue, with a node of its own.
type localNotes struct{ q *localQueue }

// passOn is the recipe. It is the outermost one.
type passOn struct {
	recipe
	q     *localQueue
	turns int
	d     time.Duration
}

// passingOn wraps the recipe of a lock with WithPassOn.
func (o *lockOptions) passingOn(root *lockRoot, by recipe) recipe {
	if o.turns == 0 {
		return by
	}
	p := passOn{recipe: by, turns: o.turns, d: o.turnsFor}
	note(root, func(n *localNotes) {
		n.q = cmp.Or(n.q, &localQueue{})
		p.q = n.q
	})
	return p
}

// turnState is the state of an attempt, and then of a turn.
type turnState struct {
	recipeState // of the wrapped recipe: the turns of a round share it

	q       *localQueue
	a       *acquisition
	turn    int
	revoked *atomic.Bool // a client has requested the lock; the turns of a round share it
}

func (s *turnState) inner() recipeState { return s.recipeState }

func (p passOn) newState(a *attempt, before recipeState) recipeState {
	if s, ok := before.(*turnState); ok {
		before = s.recipeState
	}
	return &turnState{recipeState: p.recipe.newState(a, before), q: p.q, a: a.acquisition, revoked: new(atomic.Bool)}
}

// beforeQueue waits until the call leads the localQueue, or has had its outcome.
func (p passOn) beforeQueue(a *acquisition) error {
	w, err := p.q.join(a)
	if err != nil {
		return err
	}
	if w == nil {
		return p.recipe.beforeQueue(a)
	}
	var now localNotice
	select {
	case now = <-w.notified:
	case <-a.ctx.Done():
		if p.q.remove(w) {
			return link.ErrCtxEnded
		}
		now = <-w.notified
	}
	switch {
	case now.leads && now.node != nil:
		e := now.node.e
		e.attempts.Add(1)
		defer e.attempts.Add(-1)
		return a.attemptIn(e, p, false).adopt(&nodeCreate{node: now.node.node, token: now.node.token, madeRoot: now.node.madeRoot, isFound: true}).carryOut()
	case now.leads:
		return p.recipe.beforeQueue(a)
	case now.granted && a.opts.revoke != nil:
		listenForRevocation(a.d, a.d.e, a.d.node, a.opts.revoke)
	}
	return nil
}

// join makes the call the leader, and then w is nil, or adds it to the callers that wait. A try
// does not wait.
func (q *localQueue) join(a *acquisition) (w *localWaiter, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.leader == a: // its ZooKeeper session has ended
		return nil, nil
	case q.leader == nil && q.round == nil:
		q.leadLocked(a)
		return nil, nil
	}
	at := position{rank: len(q.waiting) + 2, blockerText: ourselves}
	if q.round != nil {
		at.predecessor, at.holds = q.round.basis.node, len(q.waiting) == 0
	}
	if !a.d.table.noteBehind(a, at) {
		return nil, ErrNotAcquired
	}
	w = &localWaiter{a, make(chan localNotice, 1)}
	q.waiting = append(q.waiting, w)
	return w, nil
}

// remove removes a waiter whose call has left. It returns false if the waiter was removed before,
// and is notified.
func (q *localQueue) remove(w *localWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

func (q *localQueue) nextLocked() (w *localWaiter) {
	if len(q.waiting) > 0 {
		w = q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	return w
}

// leadLocked makes the call the leader, until its first turn begins or its acquisition ends.
func (q *localQueue) leadLocked(a *acquisition) {
	q.leader = a
	context.AfterFunc(a.ctx, func() {
		<-a.done // until then it may still bequeath its node
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.leader == a {
			q.leadNextLocked(nil)
		}
	})
}

// leadNextLocked makes the next caller the leader, with that node unless it is nil. It reports
// whether a caller waits.
func (q *localQueue) leadNextLocked(node *grantBasis) bool {
	w := q.nextLeaderLocked()
	if w != nil {
		w.notified <- localNotice{leads: true, node: node}
	}
	return w != nil
}

// nextLeaderLocked is leadNextLocked, but leaves it to its caller to notify the leader that it
// returns; nil if no caller waits.
func (q *localQueue) nextLeaderLocked() *localWaiter {
	q.leader = nil
	w := q.nextLocked()
	if w != nil {
		q.leadLocked(w.a)
		w.a.d.table.noteBehind(w.a, position{}) // until its node has been listed
	}
	return w
}

// deleteNodes keeps the node of a leader whose call has left, if another caller waits: that caller
// would otherwise queue again behind the other Sessions. It deletes a node whose record was
// written, because the record belongs to the state.
func (s *turnState) deleteNodes(root *lockRoot, of *grantBasis) (*nodes.Deletion, <-chan error) {
	if s.a.ctx.Err() != nil && s.record() == nil && s.q.bequeath(s.a, *of) {
		return noDeletion(), nil
	}
	return s.recipeState.deleteNodes(root, of)
}

func (q *localQueue) bequeath(a *acquisition, node grantBasis) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leader == a && q.leadNextLocked(&node)
}

// noDeletion returns the deletion for a node that another call of this Session uses from now on.
func noDeletion() *nodes.Deletion {
	x := &nodes.Deletion{Done: make(chan struct{}), OK: true}
	close(x.Done)
	return x
}

// whenFirst grants the first turn, and then begins the round. The round cannot begin earlier,
// because the grant puts the node under the lease in the name of the turn.
func (p passOn) whenFirst(a *attempt) error {
	if err := p.recipe.whenFirst(a); err != nil {
		return err
	}
	r := &round{q: p.q, basis: a.grantBasis, most: p.turns, until: a.e.Clock.Now().Add(p.d), turns: 1, turn: a.d}
	isHeld := a.e.Transfer(a.node, a.d, r)
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	switch {
	case p.q.leader != a.acquisition: // the first turn was released before
	case isHeld && !r.lost:
		p.q.leader, p.q.round = nil, r
		return nil
	default:
		p.q.leadNextLocked(nil)
	}
	a.e.LetGo(r, a.node)
	return nil
}

// giveBack passes the lock on when a turn is released. If the round ends instead, giveBack begins
// the deletion of the node.
func (s *turnState) giveBack(d *lockData) [2]*nodes.Deletion {
	if s.q.passOn(s.a, d) {
		return [2]*nodes.Deletion{noDeletion()}
	}
	return s.recipeState.giveBack(d)
}

func (q *localQueue) passOn(a *acquisition, d *lockData) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.round
	switch {
	case q.leader == a: // before whenFirst could begin the round
		q.leadNextLocked(nil)
		return false
	case r == nil || r.turn != d:
		return false
	}
	for r.continuesLocked() {
		w := q.nextLocked()
		if w == nil {
			break
		}
		granted := r.grantLocked(w.a)
		w.notified <- localNotice{granted: granted}
		if granted {
			return true
		}
	}
	q.round = nil
	r.basis.e.LetGo(r, r.basis.node)
	q.leadNextLocked(nil)
	return false
}

// continuesLocked reports whether another turn may begin.
func (r *round) continuesLocked() bool {
	e := r.basis.e
	return r.turns < r.most && e.Clock.Now() < r.until && !r.basis.state.(*turnState).revoked.Load() && !e.nodes.IsAwaited(r.basis.node)
}

// grantLocked grants the next turn to a call, unless the call has left. The lease needs no check:
// the release of the last turn has checked it, and the node is under it all the time.
func (r *round) grantLocked(a *acquisition) bool {
	basis, first := r.basis, r.basis.state.(*turnState)
	basis.state = &turnState{recipeState: first.recipeState, q: r.q, a: a, turn: r.turns, revoked: first.revoked}
	a.d.table.prepare(a.d, basis, []string{basis.node})
	if !a.d.table.grant(a, 0) {
		return false
	}
	r.turn, r.turns = a.d, r.turns+1
	return true
}

// Lose ends the round and the turn that runs. The callers that wait queue again. The first of them
// is notified at the end, because it may need the capacity that the lost node took.
func (r *round) Lose(node string, cause error, end clock.Instant) (hadHandles bool) {
	var next *localWaiter
	r.q.mu.Lock()
	if r.lost = true; r.q.round == r {
		r.q.round = nil
		next = r.q.nextLeaderLocked()
	}
	turn := r.turn
	r.q.mu.Unlock()
	hadHandles = turn.Lose(node, cause, end)
	if errors.Is(cause, link.ErrNodeGone) { // a turn that is being released has not done this
		r.basis.e.nodes.Gone(node)
	}
	if next != nil {
		next.notified <- localNotice{leads: true}
	}
	return hadHandles
}

// isNewsLocked notes the revocation: the round ends with the turn that runs.
func (s *turnState) isNewsLocked(d *lockData, written int64) bool {
	s.revoked.Store(true)
	return s.recipeState.isNewsLocked(d, written)
}
