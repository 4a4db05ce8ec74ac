package zklock

import (
	"errors"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// Permits for several at a time. A client that is not in front of the queue takes some too, if there is room for all that come first and
// for itself (queue.HaveCapacity). If its leases turn out to be behind others all the same, it withdraws them: only the client in front of
// the queue waits with leases. A client that counts leases, as Curator's does, could otherwise wait for one that waits for it.

// beforeQueue tries to take permits without a place in the queue, if there was room for that at the last acquire.
func (p *permits) beforeQueue(a *acquisition) error {
	root := a.d.root
	if !notesOn[semaphoreNotes](root).roomy {
		return errRequeue
	}
	e, err := attachedSession(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.attempts.Add(1)
	defer e.attempts.Add(-1)
	attempt := a.attemptIn(e, p, false)
	at := permitAttempt{attempt, stateOf[*permitState](attempt)}
	isRoom, err := at.takeIfCapacity()
	if err == nil && isRoom {
		if err = at.grant(); err == nil {
			return nil
		}
	}
	note(root, func(n *semaphoreNotes) { n.roomy = false })
	err = at.withdraw(err)
	if err == link.ErrCtxEnded || errors.Is(err, link.ErrSessionEnded) || errors.Is(err, ErrClosed) || len(at.held) > 0 {
		return err
	}
	return errRequeue // whatever it was, the way through the queue says it
}

// listing looks for room, for behind. The first list mostly shows us in front, and no look is needed.
func (p *permits) listing(a *attempt) {
	if s := stateOf[*permitState](a); !a.machine.Early && p.mayFit(1) {
		s.beside = permitAttempt{a, s}.askLeases()
	}
}

// mayFit says whether there can be room behind so many.
func (p *permits) mayFit(ahead int) bool {
	return p.limit != "" || queue.HaveCapacity(0, ahead, p.k, p.n)
}

// whenBehind takes permits further back in the queue if there is room. A try fails if no permit is free. If one is, whoever is ahead is just
// taking it, and the try stays in the queue, for as long as tries wait for answers.
func (p *permits) whenBehind(attempt *attempt, at position) error {
	a := permitAttempt{attempt, stateOf[*permitState](attempt)}
	at.holds = false // who is in front of the queue waits; who holds has left it
	waits := a.d.table.noteBehind(a.acquisition, at)
	if waits && !p.mayFit(at.rank-1) {
		a.beside = leaseSnapshot{}
		return nil
	}
	for withdrew := false; ; {
		now := a.beside
		if a.beside = (leaseSnapshot{}); now.list == nil {
			now = a.askLeases()
		}
		n, known, err := a.limitOf(now.limit)
		if err != nil {
			return err
		}
		r, err := a.findingOf(now.list.Wait(a.ctx, a.e.ZKSession))
		if err != nil {
			return err
		}
		isLater := now.list.Conn == a.list.Conn && now.list.At >= a.list.At
		leases := len(queue.Members(now.list.Names, p.leases.rule.Markers))
		ahead := queue.Without(nameOf(a.node), a.list.Names, now.list.Names, a.d.root.rule.Markers)
		switch {
		case !known, r == queue.Unknown:
			continue
		case !withdrew && isLater && queue.HaveCapacity(leases, ahead, p.k, n):
			isRoom, err := a.takeIfCapacity()
			if err == nil && isRoom {
				return a.grantFurther()
			}
			if errors.Is(err, ErrTooManyWaiters) { // it made none
				err = nil
			}
			if err = a.withdraw(err); err != nil {
				return err
			}
			withdrew = true
			continue
		case !waits && !queue.HaveCapacity(leases, 0, p.k, n):
			at.why = p.overLimit(n)
			a.d.table.noteBehind(a.acquisition, at)
			return ErrNotAcquired
		}
		return nil
	}
}

// grantFurther grants, and passes no turn: others are ahead in the queue.
func (a permitAttempt) grantFurther() error {
	a.leaves = make(chan *nodes.Deletion, 1)
	if err := a.grant(); err != nil {
		return err
	}
	x, _ := a.d.root.deleteNode(a.e, nil, a.node)
	a.leaves <- x
	return errGranted
}

// takeIfCapacity makes leases, and says whether they are in front; and, if we stand in no queue, whether there is room for all who do, too.
// Otherwise, and after an error, they are to be withdrawn.
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
			now = leaseSnapshot{queue: now.queue, list: a.e.lists.List(a.p.leases.path), limit: a.p.askLimit(a.e)}
		default:
			return at.Kind == queue.Front && (now.queue == nil || queue.HaveCapacity(a.leases-k, ahead, k, n)), nil
		}
	}
	return false, err
}

// queuedIn returns how many the look showed in the queue that have no leases. isFirst is false if the leases were listed first: who took some
// in between would be in neither list.
func (a permitAttempt) queuedIn(now leaseSnapshot) (ahead int, isFirst, known bool, err error) {
	r, err := a.findingOf(now.queue.Wait(a.ctx, a.e.ZKSession))
	if err != nil || r == queue.Unknown { // then the list may be on its way still
		return 0, false, false, err
	}
	ahead = queue.Without("", now.queue.Names, now.list.Names, a.d.root.rule.Markers)
	return ahead, now.queue.At <= now.list.At, now.queue.Conn == now.list.Conn, nil
}

// withdraw deletes the leases, and waits until they are gone and stand in nobody's way, ours included. It returns why, and an error of its own if
// the attempt must not go on. Who gives a place in the queue up does not wait.
func (a permitAttempt) withdraw(why error) error {
	if len(a.held) == 0 {
		return why
	}
	var left <-chan struct{}
	if a.node != "" {
		left = a.ctx.Done()
	}
	x := a.e.reaper.DeleteAll(a.held)
	a.p.leases.restarting(a.e, a.held[0], x)
	select {
	case <-x.Done:
	case <-x.Refused:
		return x.Refusal
	case <-a.e.Ended():
		return a.e.EndErr()
	case <-left:
		return link.ErrCtxEnded
	}
	if a.e.HasEnded() { // it ended with the session
		return a.e.EndErr()
	}
	if a.held = nil; errors.Is(x.Err, ErrClosed) {
		return x.Err
	}
	return why
}
