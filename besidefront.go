package zklock

import (
	"errors"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// Permits for several at a time. A client that is not in front of the queue takes some too, if there is room for all that come first and
// for itself (queue.HaveRoom). If its leases turn out to be behind others all the same, it withdraws them: only the client in front of
// the queue waits with leases. A client that counts leases, as Curator's does, could otherwise wait for one that waits for it.

// before tries to take permits without a place in the queue, if there was room for that at the last acquire.
func (p *permits) before(a *acquisition) error {
	root := a.d.root
	if !root.notes().roomy {
		return errRequeue
	}
	e, err := attachedEra(a.ctx, a.link)
	if err != nil {
		return err
	}
	e.attempts.Add(1)
	defer e.attempts.Add(-1)
	at := &attempt{acquisition: a, footing: footing{e: e}, recipe: p, retry: link.NewBackoff()}
	now, err := at.makeLeases(p.k)
	isRoom := false
	if err == nil {
		isRoom, err = at.mayStay(now, false)
	}
	if err == nil && isRoom {
		a.d.leaves = nil
		if err = at.grant(); err == nil {
			return nil
		}
	}
	root.note(func(n *rootNotes) { n.roomy = false })
	err = at.withdraw(err)
	if err == link.ErrCtxEnded || errors.Is(err, link.ErrOver) || errors.Is(err, ErrClosed) || len(at.held) > 0 {
		return err
	}
	return errRequeue // whatever it was, the way through the queue says it
}

// listing looks for room, for behind and front. If the last look found some, it makes the leases at once, and looks whether they may stay. The
// first list mostly shows us in front, and needs neither.
func (p *permits) listing(a *attempt) error {
	if a.walk.Early || !p.mayFit(1) {
		return nil
	}
	if len(a.held) == 0 && a.d.root.notes().spare {
		now, err := a.makeLeases(p.k)
		switch {
		case err == nil:
			a.beside = now
			return nil
		case !errors.Is(err, ErrTooManyWaiters): // then it made none
			return a.withdraw(err)
		}
	}
	a.beside = a.look()
	return nil
}

// mayFit says whether there can be room behind so many.
func (p *permits) mayFit(ahead int) bool { return p.limit != "" || queue.HaveRoom(0, ahead, p.k, p.n) }

// behind takes permits further back in the queue if there is room. A try fails if no permit is free. If one is, whoever is ahead is just
// taking it, and the try stays in the queue, for as long as tries wait for answers.
func (p *permits) behind(a *attempt, at position) error {
	at.holds = false // who is in front of the queue waits; who holds has left it
	waits := a.d.table.behind(a.acquisition, at)
	withdrew := len(a.held) > 0
	if withdrew {
		if err := a.stayFurther(a.beside, false); err != nil {
			return err
		}
		a.beside = nil
	}
	if waits && (withdrew || !p.mayFit(at.place-1)) {
		a.d.root.note(func(n *rootNotes) { n.spare = false })
		a.beside = nil
		return nil
	}
	for {
		now := a.beside
		if a.beside = nil; now == nil {
			now = a.look()
		}
		n, known, err := a.limitOf(now.limit)
		if err != nil {
			return err
		}
		r, err := a.findingOf(now.list.Wait(a.ctx, a.e.Era))
		if err != nil {
			return err
		}
		isLater := now.list.Conn == a.list.Conn && now.list.At >= a.list.At
		leases := len(queue.Members(now.list.Names, p.leases.rule.Markers))
		ahead := queue.Without(nameOf(a.node), a.list.Names, now.list.Names, a.d.root.rule.Markers)
		isRoom := queue.HaveRoom(leases, ahead, p.k, n)
		switch {
		case !known, r == queue.NotTold:
			continue
		case !withdrew && isLater && isRoom:
			a.d.root.note(func(n *rootNotes) { n.spare = true })
			if err := a.takeFurther(); err != nil {
				return err
			}
			withdrew = true
			continue
		case !waits && !queue.HaveRoom(leases, 0, p.k, n):
			at.why = p.overLimit(n)
			a.d.table.behind(a.acquisition, at)
			return ErrNotAcquired
		}
		a.d.root.note(func(n *rootNotes) { n.spare = n.spare && isRoom })
		return nil
	}
}

// takeFurther takes permits after a look that found room. It returns nil if there was none in the end.
func (a *attempt) takeFurther() error {
	now, err := a.makeLeases(a.permits().k)
	switch {
	case errors.Is(err, ErrTooManyWaiters): // it made none
		return nil
	case err != nil:
		return a.withdraw(err)
	}
	return a.stayFurther(now, true)
}

// stayFurther grants if the leases may stay, as mayStay says, and otherwise withdraws them.
func (a *attempt) stayFurther(now *look, looked bool) error {
	isRoom, err := a.mayStay(now, looked)
	if err == nil && isRoom {
		return a.grantFurther()
	}
	return a.withdraw(err)
}

// grantFurther grants, and passes no turn: others are ahead in the queue.
func (a *attempt) grantFurther() error {
	leaves := make(chan *nodes.Deletion, 1)
	a.d.leaves = leaves
	if err := a.grant(); err != nil {
		return err
	}
	x, _ := a.d.root.erase(a.e, nil, a.node)
	leaves <- x
	return errGranted
}

// mayStay says whether leases that were just made are in front; and, if no look before had found room, whether there is room for all who come
// first, too. Otherwise, and after an error, they are to be withdrawn. now is a look that followed them, or nil.
func (a *attempt) mayStay(now *look, looked bool) (bool, error) {
	k := a.permits().k
	for {
		if now == nil {
			now = a.look()
		}
		at, n, known, err := a.roomIn(now)
		ahead, isFirst := 0, true
		if err == nil && known && !looked {
			ahead, isFirst, known, err = a.queuedIn(now)
		}
		switch {
		case err != nil:
			return false, err
		case !known:
			now = a.look()
			now.queue = a.e.lists.List(a.d.root.path)
		case !isFirst:
			now = &look{queue: now.queue, list: a.e.lists.List(a.permits().leases.path), limit: a.permits().askLimit(a.e)}
		default:
			return at.Kind == queue.Front && (looked || queue.HaveRoom(a.leases-k, ahead, k, n)), nil
		}
	}
}

// queuedIn returns how many in the queue that come first have no leases: in the list of the look, or in that by which we stand there. isFirst
// is false if the leases were listed first: who took some in between would be in neither list.
func (a *attempt) queuedIn(now *look) (ahead int, isFirst, known bool, err error) {
	queued := now.queue
	if queued == nil {
		queued = a.list
	}
	r, err := a.findingOf(queued.Wait(a.ctx, a.e.Era))
	if err != nil || r == queue.NotTold { // then the list may be on its way still
		return 0, false, false, err
	}
	ahead = queue.Without(nameOf(a.node), queued.Names, now.list.Names, a.d.root.rule.Markers)
	return ahead, queued.At <= now.list.At, queued.Conn == now.list.Conn, nil
}

// withdraw deletes the leases, and waits until they are gone and stand in nobody's way, ours included. It returns why, and an error of its own if
// the attempt must not go on. Who gives a place in the queue up does not wait.
func (a *attempt) withdraw(why error) error {
	if len(a.held) == 0 {
		return why
	}
	var left <-chan struct{}
	if a.node != "" {
		left = a.ctx.Done()
	}
	x := a.e.reaper.EraseAll(a.held)
	a.permits().leases.restarting(a.e, a.held[0], x)
	select {
	case <-x.Done:
	case <-x.Refused:
		return x.Refusal
	case <-a.e.Over():
		return a.e.OverErr()
	case <-left:
		return link.ErrCtxEnded
	}
	if a.e.IsOver() { // it ended with the session
		return a.e.OverErr()
	}
	if a.held = nil; errors.Is(x.Err, ErrClosed) {
		return x.Err
	}
	return why
}
