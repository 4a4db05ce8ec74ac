package zklock

import (
	"context"
	"errors"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// Permits for several at a time. Who is not in front of the queue takes some too, if there is room for all who come first and for
// itself (queue.HaveRoom). If its leases turn out to be behind others all the same, it withdraws them: only who is in front of the queue
// waits with leases. A client that counts leases, as Curator's does, could otherwise wait for one that waits for it.

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
	at := &attempt{acquisition: a, recipe: p, e: e, retry: link.NewBackoff()}
	isRoom, err := at.takeIfRoom()
	if err == nil && isRoom {
		a.d.leaves = nil
		if err = at.grant(); err == nil {
			return nil
		}
	}
	root.noteRoomy(false)
	if err = at.withdraw(err); err == link.ErrCtxEnded || e.IsOver() || errors.Is(err, ErrClosed) {
		return err
	}
	return errRequeue // whatever it was, the way through the queue says it
}

// listing looks for room, for behind. The first list mostly shows us in front, and no look is needed.
func (p *permits) listing(a *attempt) {
	if !a.walk.Early {
		a.beside = a.look()
	}
}

// behind takes permits further back in the queue if there is room. A try fails if no permit is free. If one is, whoever is ahead is just
// taking it, and the try stays in the queue, for as long as tries wait for answers.
func (p *permits) behind(a *attempt, at position) error {
	at.holds = false // who is in front of the queue waits; who holds has left it
	waits := a.d.table.behind(a.acquisition, at)
	for withdrew := false; ; {
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
		switch {
		case !known, r == queue.NotTold:
			continue
		case !withdrew && isLater && queue.HaveRoom(leases, ahead, p.k, n):
			isRoom, err := a.takeIfRoom()
			if err == nil && isRoom {
				return a.grantFurther()
			}
			if err = a.withdraw(err); err != nil {
				return err
			}
			withdrew = true
			continue
		case !waits && !queue.HaveRoom(leases, 0, p.k, n):
			at.why = p.overLimit(n)
			a.d.table.behind(a.acquisition, at)
			return ErrNotAcquired
		}
		return nil
	}
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

// takeIfRoom makes leases, and says whether they are in front; and, if we stand in no queue, whether there is room for all who do, too.
// Otherwise, and after an error, they are to be withdrawn.
func (a *attempt) takeIfRoom() (bool, error) {
	k := a.permits().k
	now, err := a.makeLeases()
	for err == nil {
		if now == nil {
			now = a.look()
		}
		at, n, known, failed := a.roomIn(now)
		ahead := 0
		if failed == nil && known && now.queue != nil {
			ahead, known, failed = a.queuedIn(now)
		}
		switch {
		case failed != nil:
			err = failed
		case !known:
			now = nil
		default:
			return at.Kind == queue.Front && (now.queue == nil || queue.HaveRoom(a.leases-k, ahead, k, n)), nil
		}
	}
	return false, err
}

// queuedIn returns how many the look showed in the queue that have no leases. known is false if the leases were listed first: who took some in between would be
// in neither list.
func (a *attempt) queuedIn(now *look) (ahead int, known bool, err error) {
	r, err := a.findingOf(now.queue.Wait(a.ctx, a.e.Era))
	if err != nil || r == queue.NotTold {
		return 0, false, err
	}
	isFirst := now.queue.Conn == now.list.Conn && now.queue.At <= now.list.At
	return queue.Without("", now.queue.Names, now.list.Names, a.d.root.rule.Markers), isFirst, nil
}

// withdraw deletes the leases, waits until they are gone, and returns why if that is not nil: after that, they stand in nobody's way, and not
// in ours.
func (a *attempt) withdraw(why error) error {
	if len(a.held) == 0 || a.e.IsOver() {
		return why
	}
	x := a.e.reaper.EraseAll(a.held)
	a.permits().leases.restarting(a.e, a.held[0], x)
	select {
	case <-x.Done:
		a.held = nil
	case <-x.Refused:
		return x.Refusal
	case <-a.e.Over():
		return a.e.OverErr()
	}
	return why
}

// mostWoken is how many are told at a time that there is room.
const mostWoken = 64

// wake has those who wait look for room, if there is some. The end of our node wakes the next in line. Of the others twice as many look as
// there is room for: by then, more permits may be free, and who looks in vain has read two lists. It is a hint: nothing rests on it.
func (a *attempt) wake(room int) {
	if room < 1 {
		return
	}
	e, root, self := a.e, a.d.root, nameOf(a.node)
	e.Carrier.Spawn(func() {
		now := e.lists.List(root.path)
		if now.Wait(context.Background(), e.Era) != nil {
			return
		}
		names := queue.NamesBehind(self, now.Names, root.rule.Markers)
		names = names[min(1, len(names)):]
		e.wakeAll(root.path, names[:min(2*room-1, mostWoken, len(names))])
	})
}

// wakeAll tells waiters to list. One that stands behind a node of our own session hears it here. The others watch their nodes, which are
// written as they are.
func (e *era) wakeAll(root string, names []string) {
	own := make(map[string]*nodes.Waiter)
	for _, w := range e.nodes.Waiting() {
		own[w.Node] = w
	}
	asked := make(map[string]<-chan dataRead)
	for _, name := range names {
		node := root + "/" + name
		if w := own[node]; w != nil {
			w.Tell(queue.TurnUnknown)
			continue
		}
		asked[node] = e.askData(node)
	}
	for node, ch := range asked {
		if got := <-ch; got.err == nil {
			write := wire.SetDataRequest{Path: node, Data: got.data, Version: got.stat.Version}
			e.Carrier.Send(e.Era, tap.NewRequest(wire.OpSetData, write, func(tap.Answer) {}))
		}
	}
}
