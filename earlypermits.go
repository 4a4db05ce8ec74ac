package zklock

import (
	"errors"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
)

// Early permits let several clients take permits at a time. A client that is not first in the queue
// creates leases, too, if the limit has capacity for all clients that precede it and for itself
// (queue.HaveCapacity). In the queue it lists before it creates any: a lease too many, even for a
// moment, lets a try fail while a permit is free.
//
// If its leases are not within the limit after all, it withdraws them, because only the first
// client in the queue waits with leases. Curator's clients count leases: one of them could
// otherwise wait for a client that waits for it.
//
// It does not leave the queue in the transaction that creates the leases. That would save a write,
// but a client that then withdraws would have lost its position.

// beforeQueue tries early permits without a node in the queue, if the last acquire left capacity
// for them.
func (p *permits) beforeQueue(a *acquisition) error {
	root := a.d.root
	if !node.NotesOn[recipeNotes](root.Root).roomy {
		return errRequeue
	}
	e, err := node.AttachedSession(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.Attempting(1)
	defer e.Attempting(-1)
	of := a.attemptIn(e, p)
	at := permitAttempt{of, of.state.(*permitState)}
	isRoom, err := at.takeIfCapacity()
	if err == nil && isRoom {
		if err = at.grant(); err == nil {
			return nil
		}
	}
	node.Note(root.Root, func(n *recipeNotes) { n.roomy = false })
	err = at.withdraw(err)
	if err == link.ErrCtxEnded || errors.Is(err, link.ErrSessionEnded) || errors.Is(err, ErrClosed) || len(at.held) > 0 {
		return err
	}
	return errRequeue // the queue reports the cause, if it persists
}

// listing requests a snapshot for whenBehind.
func (p *permits) listing(a *attempt) {
	if s := a.state.(*permitState); p.mayFit(1) {
		s.listed = permitAttempt{a, s}.askLeases()
	}
}

// mayFit reports whether there can be capacity behind this many clients.
func (p *permits) mayFit(ahead int) bool {
	return p.limit != "" || queue.HaveCapacity(0, ahead, p.k, p.n)
}

// whenBehind takes early permits if there is capacity for them. A try fails if no permit is free.
// If one is free, a client ahead of us is about to take it, so the try stays in the queue, for as
// long as tries wait for responses.
func (p *permits) whenBehind(at *attempt, pos position) error {
	a := permitAttempt{at, at.state.(*permitState)}
	pos.holds = false // the first in the queue waits; a holder has left the queue
	waits := a.d.table.noteBehind(a.acquisition, pos)
	if waits && !p.mayFit(pos.rank-1) {
		a.listed = leaseSnapshot{}
		return nil
	}
	for withdrew := false; ; {
		now := a.listed
		if a.listed = (leaseSnapshot{}); now.list == nil {
			now = a.askLeases()
		}
		n, known, err := a.limitOf(now.limit)
		if err != nil {
			return err
		}
		if waits && known && !queue.HaveCapacity(0, pos.rank-1, p.k, n) { // each client ahead has leases, or needs them
			return nil
		}
		r, err := a.findingOf(now.list.Wait(a.ctx, a.e.ZKSession))
		if err != nil {
			return err
		}
		isLater := now.list.Conn == a.list.Conn && now.list.At >= a.list.At
		leases := len(queue.Members(now.list.Names, p.leases.Rule().Markers))
		ahead := queue.Without(nameOf(a.node), a.list.Names, now.list.Names, a.d.root.Rule().Markers)
		switch {
		case !known, r == queue.Unknown:
			continue
		case !withdrew && isLater && queue.HaveCapacity(leases, ahead, p.k, n):
			isRoom, err := a.takeIfCapacity()
			if err == nil && isRoom {
				return a.grantFurther()
			}
			if errors.Is(err, ErrTooManyLockNodes) { // it created no leases
				err = nil
			}
			if err = a.withdraw(err); err != nil {
				return err
			}
			withdrew = true
			continue
		case !waits && !queue.HaveCapacity(leases, 0, p.k, n):
			pos.why = p.overLimit(n)
			a.d.table.noteBehind(a.acquisition, pos)
			return ErrNotAcquired
		}
		return nil
	}
}

// grantFurther grants without a handoff, because other nodes precede ours in the queue.
func (a permitAttempt) grantFurther() error {
	a.leaves = make(chan *node.Deletion, 1)
	if err := a.grant(); err != nil {
		return err
	}
	xs, _ := a.d.root.DeleteNode(a.e, false, nil, a.node)
	a.leaves <- xs[0]
	return errGranted
}

// takeIfCapacity creates leases and reports whether they are within the limit. If we have no node
// in the queue, there must also be capacity for all clients in it. If takeIfCapacity returns false
// or an error, the caller withdraws the leases.
func (a permitAttempt) takeIfCapacity() (bool, error) {
	k := a.p.k
	now, err := a.makeLeases(k)
	for err == nil {
		if now.list == nil {
			now = a.askLeases()
		}
		at, n, known, failed := a.capacityIn(now)
		ahead, isFirst := 0, true
		if failed == nil && known && now.queue != nil {
			ahead, isFirst, known, failed = a.queuedIn(now)
		}
		switch {
		case failed != nil:
			err = failed
		case !known:
			now = leaseSnapshot{}
		case !isFirst:
			now = leaseSnapshot{queue: now.queue, list: a.e.Lists.List(a.p.leases.Path()), limit: a.p.askLimit(a.e)}
		default:
			return at.Kind == queue.Front && (now.queue == nil || queue.HaveCapacity(a.leases-k, ahead, k, n)), nil
		}
	}
	return false, err
}

// queuedIn returns how many clients in the queue have no leases. isFirst reports whether the queue
// was listed before the leases. Otherwise a client that took permits between the two lists would be
// in neither.
func (a permitAttempt) queuedIn(now leaseSnapshot) (ahead int, isFirst, known bool, err error) {
	r, err := a.findingOf(now.queue.Wait(a.ctx, a.e.ZKSession))
	if err != nil || r == queue.Unknown { // the list may not have arrived yet
		return 0, false, false, err
	}
	ahead = queue.Without("", now.queue.Names, now.list.Names, a.d.root.Rule().Markers)
	return ahead, now.queue.At <= now.list.At, now.queue.Conn == now.list.Conn, nil
}

// withdraw deletes the leases and waits until they no longer exist, so that they block no client,
// ours included. It returns why, or another error if the attempt must end. If we have a node in the
// queue, the wait ends with the call.
func (a permitAttempt) withdraw(why error) error {
	if len(a.held) == 0 {
		return why
	}
	var left <-chan struct{}
	if a.node != "" {
		left = a.ctx.Done()
	}
	x := a.e.Reaper.ToDelete(a.held...)
	a.p.leases.RestartAfter(a.e, a.held[0], x)
	a.e.Reaper.Begin(x)
	select {
	case <-x.Done:
	case <-x.Refused:
		return x.Refusal
	case <-a.e.Ended():
		return a.e.EndErr()
	case <-left:
		return link.ErrCtxEnded
	}
	if a.e.HasEnded() { // the session's end has deleted them
		return a.e.EndErr()
	}
	if a.held = nil; errors.Is(x.Err, ErrClosed) {
		return x.Err
	}
	return why
}
