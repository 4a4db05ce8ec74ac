package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// created rejects the path of another recipe, before the Session creates a lock root or a lease
// there: it awaits the list of the path, and lists again if there was no answer.
func (p *permits) created(a *attempt) error {
	s, e, root := a.state.(*permitState), a.e, a.d.root
	for backoff := (link.Backoff{}); s.fits != nil; {
		err := s.fits.Wait(a.ctx, e.ZKSession)
		switch {
		case err == nil:
			if other := queue.OtherThanSemaphore(s.fits.Names, root.Rule().Markers); other != "" {
				return badArgument{fmt.Errorf("%s is in use by a lock of another kind, which has %s: give the semaphore a path of its own", root.ShownPath(), shown(other))}
			}
		case reply.IsRefusal(err): // the path does not exist, or we may not list it
		case err == link.ErrCtxEnded, e.HasEnded(), errors.Is(err, ErrClosed):
			return err
		default:
			if err := e.PauseUnder(a.ctx, backoff.Next()); err != nil {
				return err
			}
			s.fits = e.Lists.List(root.ShownPath())
			continue
		}
		s.fits = nil
		node.Note(root.Root, func(n *recipeNotes) { n.fits = true })
	}
	return nil
}

// whenFirst creates leases, waits for capacity and grants. Exclusion does not depend on the
// position in the queue (queue.PositionOfLeases).
func (p *permits) whenFirst(at *attempt) error {
	a := permitAttempt{at, at.state.(*permitState)}
	a.listed = leaseSnapshot{}
	a.leaveHandoff()
	a.onOwn = nil
	early, err := a.makeLeases(0)
	n := 0
	if err == nil {
		n, err = a.awaitCapacity(early)
	}
	if err != nil {
		return err
	}
	room := n - a.leases // capacity for waiters
	if !a.queued {       // then the list of the queue is recent
		others := len(queue.Members(a.list.Names, a.d.root.Rule().Markers)) - 1
		isRoomy := queue.HaveCapacity(a.leases-p.k, others, p.k, n)
		node.Note(a.d.root.Root, func(now *recipeNotes) { now.roomy = isRoomy })
		room = min(room, others)
	}
	a.leaves = make(chan *node.Deletion, 1)
	if err = a.grant(); err == nil {
		x := a.d.root.HandOff(a.e, a.node, false, false, nil)
		a.e.Reaper.Begin(x)
		a.leaves <- x
		a.hintWaiters(room)
	}
	return err
}

// makeLeases creates the leases in one transaction. If we have a node in the queue, the transaction
// checks it. makeLeases continues until the outcome is certain, even if the call has ended: after
// an error, no leases exist but those in a.held. It returns a snapshot that was requested after the
// transaction over the same connection, or an empty one.
//
// It creates leases only if the Session has capacity for this many lock nodes of other calls as
// well. So early permits cannot prevent the first client in the queue from creating its leases.
func (a permitAttempt) makeLeases(others int) (_ leaseSnapshot, err error) {
	e := a.e
	reserved, err := e.Own.Reserve(a.p.k, others)
	if err != nil {
		return leaseSnapshot{}, err
	}
	defer reserved.Free()
	var root *node.RootCreate // of the leases' root, if it was missing
	defer func() {
		if err != nil {
			a.p.leases.UndoCreate(e.ZKSession, root, false)
		}
	}()
	for {
		id, _ := queue.ProtectionID(nameOf(a.node)) // every request of this node gets a response, except perhaps the last
		if a.node == "" {
			id = uuid.NewString()
		}
		answered, err := a.sendLeases(id)
		if err != nil {
			return leaseSnapshot{}, err
		}
		early := a.askLeases()
		got, err := link.Await(context.Background(), e.ZKSession, answered)
		if err != nil {
			return leaseSnapshot{}, err
		}
		made, failed, err := a.leasesMade(got)
		a.last.Note(err)
		switch reply.FateOf(got.Fate, reply.OutcomeOf(err), e.HasEnded()) {
		case reply.NodeMade:
			a.hungUp, a.token = 0, got.Zxid
			a.took(made, &reserved)
			if early.list.Wait(a.ctx, e.ZKSession) != nil || early.list.Conn != got.Conn {
				return leaseSnapshot{}, nil
			}
			return early, nil
		case reply.NothingMade:
			if got.Fate == mux.WasAnswered && !e.Pause(200*time.Millisecond) { // the servers are busy
				return leaseSnapshot{}, e.EndErr()
			}
			continue
		case reply.NodeDenied:
			made, err := a.notMade(failed, err)
			if root = cmp.Or(made, root); err != nil {
				return leaseSnapshot{}, err
			}
			continue
		case reply.GoneIfMade:
			return leaseSnapshot{}, e.EndErr()
		case reply.NodeUnclear:
		}
		made, err = a.resolveLeases(id)
		a.took(made, &reserved)
		if refused := a.hungUp.Count(got); err == errRequeue && refused != nil {
			err = refused
		}
		return leaseSnapshot{}, err
	}
}

// sendLeases sends the transaction once the session is attached, unless the call has ended.
func (a permitAttempt) sendLeases(id string) (answered <-chan mux.Reply, err error) {
	p := a.p
	for {
		ch := make(chan mux.Reply, 1)
		r := mux.NewRequest(wire.OpMulti, p.request(a.node, id, a.opts.data), func(got mux.Reply) {
			got.Body = slices.Clone(got.Body)
			ch <- got
		})
		if _, err := a.e.WaitAttached(a.ctx); err != nil {
			return nil, err
		}
		if a.ctx.Err() != nil {
			return nil, link.ErrCtxEnded
		}
		if a.e.Carrier.Send(a.e.ZKSession, r) {
			return ch, nil
		}
	}
}

// request returns the transaction that creates k leases. If there is a node in the queue, it checks
// that first, so that nothing is created once the node was deleted. All leases of a request have
// the same protection id.
func (p *permits) request(queued, id string, data []byte) (ask wire.MultiRequest) {
	if queued != "" {
		ask.Ops = append(ask.Ops, wire.MultiOp{Op: wire.OpCheck, Path: queued, Version: -1})
	}
	for range p.k {
		create := wire.CreateRequest{Path: queue.ProtectedPath(p.leases.Path(), id, queue.LeaseName), Data: data, ACL: p.leases.ACL(), Flags: wire.FlagEphemeralSequential}
		ask.Ops = append(ask.Ops, wire.MultiOp{Op: wire.OpCreate, Path: create.Path, Create: create})
	}
	return ask
}

// lengths returns the length in bytes of the request that creates leases, without a lease, and the
// share of each lease. All later requests and responses about the leases are shorter.
func (p *permits) lengths(queued *node.Root, data []byte) (base, each int64) {
	length := func(k int) int64 {
		one := permits{leases: p.leases, k: k}
		id := uuid.Nil.String()
		return int64(mux.NewRequest(wire.OpMulti, one.request(queue.ProtectedPath(queued.Path(), id, queued.Rule().Name)+"0000000000", id, nil), nil).Length())
	}
	return length(0), length(1) - length(0) + int64(len(data))
}

// leasesMade returns the leases that the response reports as created, or the index of the operation
// that failed, −1 if not known.
func (a permitAttempt) leasesMade(got mux.Reply) (made []string, failed int, err error) {
	if err := reply.ErrOf(got); err != nil {
		return nil, -1, err
	}
	checks := 1
	if a.node == "" {
		checks = 0
	}
	results, failed, err := reply.ResultsOf(got, checks+a.p.k)
	if err != nil {
		return nil, failed, err
	}
	for _, r := range results[checks:] {
		if r.Path == "" {
			return nil, -1, wire.ErrMalformed // counts as no response
		}
		made = append(made, r.Path)
	}
	return made, -1, nil
}

func (a permitAttempt) took(made []string, reserved *node.Reservation) {
	a.held = made
	for _, lease := range made {
		reserved.Taken(lease)
	}
	if len(made) > 0 {
		a.p.leases.WarnOfTheEnd(a.e, made[0])
	}
}

// notMade handles a rejected transaction. It returns no error if another attempt may succeed. root
// is the root that it created for that.
func (a permitAttempt) notMade(failed int, err error) (root *node.RootCreate, _ error) {
	leases := a.p.leases
	switch noNode := errors.Is(err, zk.ErrNoNode); {
	case noNode && (failed == 0 || a.node == ""):
		return nil, errRequeue
	case noNode:
		if root, err = leases.Ensure(a.ctx, a.e.ZKSession); err != nil || failed > 0 {
			return root, err
		}
		return root, errRequeue // no response shows that our node exists
	case failed == 0 && a.node != "":
		return nil, reply.Denied(err, "check", "READ", a.node)
	}
	return nil, reply.Denied(err, "create", "CREATE", leases.Path())
}

// resolveLeases handles a transaction whose response was lost, and returns the leases that exist.
// Its error means that the attempt must end.
//
// If it finds no leases, the transaction can still arrive, from a socket that the old server has
// not read. If we sent it again, both copies could create leases. But it checks our node in the
// queue, so resolveLeases deletes that node first: leases that it then finds are all that will ever
// exist. A transaction without such a check may arrive later; its leases are then found and deleted
// (node.Reaper.NoteOrphan).
func (a permitAttempt) resolveLeases(id string) (found []string, err error) {
	e, leases := a.e, a.p.leases
	if found, err = e.FindMade(leases, id, false); err != nil {
		return nil, err
	}
	switch {
	case len(found) > 0 && len(found) != a.p.k: // another client has deleted some, or created others with our id
		return found, errRequeue
	case len(found) > 0:
		return found, a.areOurs(found)
	case a.node == "":
		e.Reaper.NoteOrphan(leases.Path(), id, false)
		return nil, errRequeue
	}
	x := e.Reaper.Delete(a.node)
	select {
	case <-x.Done:
	case <-x.Refused:
		e.Reaper.NoteOrphan(leases.Path(), id, false)
		return nil, x.Refusal
	case <-e.Ended():
		return nil, e.EndErr()
	}
	if found, err = e.FindMade(leases, id, false); err == nil {
		err = errRequeue
	}
	return found, err
}

// areOurs reports by its error whether this ZooKeeper session created the leases. Leases of another
// session belong to one that is about to expire: never grant on them (R30).
func (a permitAttempt) areOurs(found []string) error {
	stat, err := a.e.StatOf(found[0])
	switch {
	case err == nil && stat.EphemeralOwner == a.e.ID:
		a.token = stat.Czxid
		return nil
	case err == nil, errors.Is(err, zk.ErrNoNode):
		return errRequeue
	}
	return err
}
