package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// permits is what the front of a semaphore's queue is for: it makes leases, and waits until the limit has room for all of them.
// Then it leaves the queue, and the next is in front.
type permits struct {
	leases lockRoot // above the leases; its markers are those of leases
	k      int      // how many are wanted
	n      int      // the limit, or what it starts with if it is shared
	limit  string   // the node that has the shared limit, absolute; "" if there is none
}

// takePermits is what follows the queue. No exclusion rests on the place in the queue (queue.PlaceOfLeases).
func (a *attempt) takePermits() error {
	if a.turn != nil {
		a.e.nodes.StepOut(a.turn)
		a.turn = nil
	}
	a.onOwn = nil
	early, err := a.makeLeases()
	if err == nil {
		err = a.awaitRoom(early)
	}
	if err == nil {
		err = a.grant()
	}
	if err == nil {
		a.d.root.handOver(a.e, a.node)
	}
	return err
}

// look is a look at the leases and the limit, in one flight.
type look struct {
	list  *nodes.Listing
	limit <-chan limitRead
}

type limitRead struct {
	data []byte
	err  error
}

func (p *permits) look(e *era) look { return look{e.lists.List(p.leases.path), p.askLimit(e)} }

// makeLeases makes the leases in one transaction, which checks that our node in the queue is there. It goes on until the outcome is
// known, even if nobody waits any more: after an error there are none but those in a.leases. It returns a look that went out after it,
// over the same connection, or nil.
func (a *attempt) makeLeases() (*look, error) {
	e, p := a.e, a.d.root.permits
	var seats []*nodes.Seat
	defer func() {
		for _, s := range seats {
			s.Free()
		}
	}()
	for range p.k {
		s, err := e.nodes.Reserve()
		if err != nil {
			return nil, err
		}
		seats = append(seats, s)
	}
	for {
		if _, err := e.WaitAttached(a.ctx); err != nil {
			return nil, err
		}
		if a.ctx.Err() != nil {
			return nil, link.ErrCtxEnded
		}
		id, answered := uuid.NewString(), make(chan tap.Answer, 1)
		r := tap.NewRequest(wire.OpMulti, a.leasesRequest(id), func(got tap.Answer) {
			got.Body = slices.Clone(got.Body)
			answered <- got
		})
		if err := link.TooLong(r); err != nil {
			return nil, err
		}
		if !e.Carrier.Send(e.Era, r) {
			continue
		}
		early := p.look(e)
		var got tap.Answer
		select {
		case got = <-answered:
		case <-e.Over():
			return nil, e.OverErr()
		}
		made, failed, err := a.leasesMade(got)
		switch answer.FateOf(got.Fate, answer.OutcomeOf(err), e.IsOver()) {
		case answer.NodeMade:
			a.took(made, seats)
			if early.list.Wait(a.ctx, e.Era) != nil || early.list.Conn != got.Conn {
				return nil, nil
			}
			return &early, nil
		case answer.NothingMade:
			if got.Fate == tap.WasAnswered && !e.Pause(200*time.Millisecond) { // the servers are busy
				return nil, e.OverErr()
			}
			continue
		case answer.NodeDenied:
			if err := a.notMade(failed, err); err != nil {
				return nil, err
			}
			continue
		case answer.GoneIfMade:
			return nil, e.OverErr()
		case answer.NodeUnclear:
		}
		made, err = a.resolveLeases(id)
		a.took(made, seats)
		return nil, err
	}
}

// leasesRequest checks first, so that nothing is made when our turn is over. All leases of a request have one protection id.
func (a *attempt) leasesRequest(id string) wire.MultiRequest {
	p := a.d.root.permits
	ask := wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCheck, Path: a.node, Version: -1}}}
	for range p.k {
		create := wire.CreateRequest{Path: queue.LeasePath(p.leases.path, id), Data: a.opts.data, ACL: wireACL(p.leases.acl), Flags: wire.FlagEphemeralSequential}
		ask.Ops = append(ask.Ops, wire.MultiOp{Op: wire.OpCreate, Path: create.Path, Create: create})
	}
	return ask
}

// leasesMade returns the leases that the answer says were made, or which operation failed, −1 if that is not known.
func (a *attempt) leasesMade(got tap.Answer) (made []string, failed int, err error) {
	if err := answer.ErrOf(got); err != nil {
		return nil, -1, err
	}
	k := a.d.root.permits.k
	if failed, err = answer.ErrOfMulti(got, 1+k); err != nil {
		return nil, failed, err
	}
	var all wire.MultiResponse
	if err := got.Decode(&all); err != nil {
		return nil, -1, err
	}
	for _, r := range all.Results[1:] {
		if r.Path == "" {
			return nil, -1, wire.ErrMalformed // as good as no answer
		}
		made = append(made, r.Path)
	}
	return made, -1, nil
}

func (a *attempt) took(made []string, seats []*nodes.Seat) {
	a.leases = made
	for i, lease := range made {
		seats[i].Taken(lease)
	}
	if len(made) > 0 {
		a.d.root.permits.leases.warnOfTheEnd(a.e, made[0])
	}
}

// notMade takes a refusal. It returns nil if another try may succeed.
func (a *attempt) notMade(failed int, err error) error {
	leases := &a.d.root.permits.leases
	switch noNode := errors.Is(err, zk.ErrNoNode); {
	case noNode && failed == 0:
		return errRequeue
	case noNode:
		if err := leases.ensure(a.ctx, a.e.Era); err != nil || failed > 0 {
			return err
		}
		return errRequeue // nobody says that our node is there
	case failed == 0:
		return answer.Denied(err, "check", "READ", a.node)
	}
	return answer.Denied(err, "create", "CREATE", leases.path)
}

// resolveLeases finds out what became of leases whose answer was lost, and returns those that are there. It also returns an error if
// the attempt must not go on.
//
// If there are none, the transaction may still come: the old server may read it yet. Sent again, it could so make twice the permits.
// But it checks our node in the queue. So that is deleted first. What is found after that is all there will ever be.
func (a *attempt) resolveLeases(id string) (found []string, err error) {
	e, leases := a.e, a.d.root.permits.leases.path
	if found, err = a.findLeases(id); err != nil {
		return nil, err
	}
	switch {
	case len(found) > 0 && len(found) < a.d.root.permits.k: // somebody deletes them
		return found, errRequeue
	case len(found) > 0:
		return found, a.areOurs(found)
	}
	x := e.reaper.Erase(a.node)
	select {
	case <-x.Done:
	case <-x.Refused:
		e.reaper.NoteStray(leases, id)
		return nil, x.Refusal
	case <-e.Over():
		return nil, e.OverErr()
	}
	if found, err = a.findLeases(id); err == nil {
		err = errRequeue
	}
	return found, err
}

func (a *attempt) findLeases(id string) ([]string, error) {
	e, leases := a.e, a.d.root.permits.leases.path
	for backoff := link.NewBackoff(); ; {
		found, err := e.reaper.FindAll(leases, id)
		switch {
		case err == nil:
			return found, nil
		case answer.IsRefusal(err): // no READ: they stay until it comes back (R74)
			e.reaper.NoteStray(leases, id)
			return nil, err
		}
		if !e.Pause(backoff.Next()) {
			return nil, e.OverErr()
		}
	}
}

// areOurs says whether this ZooKeeper session made the leases. Others are of a session that is dying: never grant on them (R30).
func (a *attempt) areOurs(found []string) error {
	for backoff := link.NewBackoff(); ; {
		stat, err := a.e.Stat(found[0])
		switch {
		case err == nil && stat.EphemeralOwner == a.e.ID:
			return nil
		case err == nil, errors.Is(err, zk.ErrNoNode):
			return errRequeue
		case answer.IsRefusal(err):
			return answer.Denied(err, "exists", "READ", found[0])
		}
		if !a.e.Pause(backoff.Next()) {
			return a.e.OverErr()
		}
	}
}

// awaitRoom waits until the limit has room for the leases. Only who is in front of the queue does that: so a permit that is freed
// wakes one waiter. Tries end here.
//
// The first look takes no watch. Most calls need no other, and a watch costs an event after all is over.
func (a *attempt) awaitRoom(early *look) error {
	e, p := a.e, a.d.root.permits
	for watching := false; ; {
		var on, onLimit *watch
		if watching {
			on = e.watches.start(watchKey{p.leases.path, wire.OpGetChildren2})
			if p.limit != "" {
				onLimit = e.watches.startWatch(p.limit)
			}
		}
		now := early
		if early = nil; now == nil {
			l := p.look(e)
			now = &l
		}
		at, n, known, err := a.roomIn(now)
		switch {
		case err != nil:
			return err
		case !known:
			continue
		case at.Kind == queue.Front:
			return nil
		case at.Kind == queue.Exhausted:
			return fmt.Errorf("%w: the leases are past the last number that zklock uses; try again when all of them are gone", ErrSequenceExhausted)
		case at.Kind != queue.Behind: // a lease is gone, or has no place of its own
			return errRequeue
		case len(a.left) > 0: // those leases ahead may be our own, which are being deleted
			if err := a.awaitLeft(); err != nil {
				return err
			}
			continue
		}
		if err := a.notRoomYet(at); err != nil {
			return err
		}
		if !watching {
			watching = true
			continue
		}
		if r, err := a.findingOf(armedAll(a.ctx, e.Era, on, onLimit)); err != nil {
			return err
		} else if r != queue.IsThere {
			continue
		}
		again, err := a.awaitChange(on, onLimit, now.list.Conn)
		if err != nil {
			return err
		}
		// The event of one lease frees one permit. If that is all we lack, the next look grants, and needs no watch.
		watching = !again && at.Ahead+p.k > n+1
	}
}

// roomIn says where the leases stand by a look, and under which limit. known is false if the look has to be repeated.
func (a *attempt) roomIn(now *look) (at queue.Place, n int, known bool, err error) {
	p := a.d.root.permits
	n, known, err = a.limitOf(now.limit)
	if err != nil || !known {
		return at, n, false, err
	}
	r, err := a.findingOf(now.list.Wait(a.ctx, a.e.Era))
	switch {
	case err != nil:
		return at, n, false, err
	case r == queue.IsGone:
		return queue.Place{Kind: queue.Missing}, n, true, nil
	case r != queue.IsThere:
		return at, n, false, nil
	}
	at = queue.PlaceOfLeases(namesOf(a.leases), now.list.Names, n)
	if at.Kind == queue.Behind {
		err = p.wantsTooMany(n)
	}
	return at, n, true, err
}

// notRoomYet notes where the leases stand, and what the call waits for. A try does not wait.
func (a *attempt) notRoomYet(p queue.Place) error {
	at := position{node: a.leases[0], place: p.Ahead + 1, predecessor: a.d.root.permits.leases.path + "/" + p.Predecessor}
	if a.e.IsHeld(at.predecessor) {
		at.who = ourselves
	}
	if !a.d.table.behind(a.acquisition, at) {
		return ErrNotAcquired
	}
	a.waits(at)
	return nil
}

// awaitChange waits until the leases or the limit change, or the connection does. moved says that what was seen is of another
// connection. Events are hints: a look follows.
func (a *attempt) awaitChange(on, onLimit *watch, seen uint64) (moved bool, err error) {
	a.retry = link.NewBackoff()
	var limitFired <-chan struct{}
	if onLimit != nil {
		limitFired = onLimit.fired
	}
	for {
		a.sayIfLong()
		conn, changed, err := a.e.AttachedConn()
		if err != nil || conn != 0 && conn != seen {
			return true, err
		}
		select {
		case <-on.fired:
			return false, nil
		case <-limitFired:
			return false, nil
		case <-a.sayNow:
		case <-changed:
		case <-a.e.Over():
			return true, a.e.OverErr()
		case <-a.ctx.Done():
			return true, link.ErrCtxEnded
		}
	}
}

func armedAll(ctx context.Context, z *link.Era, all ...*watch) (err error) {
	for _, on := range all {
		if on != nil && err == nil {
			err = on.waitArmed(ctx, z)
		}
	}
	return err
}

// lookAhead looks past the queue: to stand in it may be in vain. A shared limit may be too small. And a try fails if no permit is
// free. If there is one, whoever is ahead is just taking it, and the try stays in the queue, for as long as tries wait for answers.
func (a *attempt) lookAhead(at position) error {
	p := a.d.root.permits
	wait := a.d.table.behind(a.acquisition, at)
	if wait && p.limit == "" {
		return nil
	}
	for {
		now := p.look(a.e)
		n, known, err := a.limitOf(now.limit)
		if err == nil && known {
			err = p.wantsTooMany(n)
		}
		if err != nil || wait && known {
			return err
		}
		r, err := a.findingOf(now.list.Wait(a.ctx, a.e.Era))
		switch {
		case err != nil:
			return err
		case !known, r == queue.NotTold:
			continue
		case len(queue.Members(now.list.Names, p.leases.markers))+p.k > n:
			return ErrNotAcquired
		}
		return nil
	}
}

// askLimit asks for the limit. If it is fixed, no request is made.
func (p *permits) askLimit(e *era) <-chan limitRead {
	ch := make(chan limitRead, 1)
	if p.limit == "" {
		ch <- limitRead{data: limitData(p.n)}
		return ch
	}
	r := tap.NewRequest(wire.OpGetData, wire.PathWatchRequest{Path: p.limit}, func(got tap.Answer) {
		var node wire.DataResponse
		err := answer.ErrOf(got)
		if err == nil {
			err = got.Decode(&node)
		}
		ch <- limitRead{slices.Clone(node.Data), err}
	})
	if !e.Carrier.Send(e.Era, r) {
		ch <- limitRead{err: zk.ErrConnectionClosed}
	}
	return ch
}

// limitNow waits for the limit, for those who only look on: to them, a limit that nobody has made yet is what it would start with.
func (p *permits) limitNow(asked <-chan limitRead) (int, error) {
	got := <-asked
	switch {
	case errors.Is(got.err, zk.ErrNoNode):
		return p.n, nil
	case got.err != nil:
		return 0, answer.Denied(got.err, "get", "READ", p.limit)
	}
	n, err := parseLimit(p.limit, got.data)
	if err != nil {
		err = badArgument{err}
	}
	return n, err
}

// limitOf waits for the limit. If its node is not there, limitOf makes it. known is false if it has to be asked for again.
func (a *attempt) limitOf(asked <-chan limitRead) (n int, known bool, err error) {
	var got limitRead
	select {
	case got = <-asked:
	case <-a.e.Over():
		return 0, false, a.e.OverErr()
	case <-a.ctx.Done():
		return 0, false, link.ErrCtxEnded
	}
	p := a.d.root.permits
	if errors.Is(got.err, zk.ErrNoNode) {
		got.err = p.makeLimit(a.ctx, a.e.Era)
		_, err = a.findingOf(got.err)
		return 0, false, err
	}
	if r, err := a.findingOf(answer.Denied(got.err, "get", "READ", p.limit)); err != nil || r != queue.IsThere {
		return 0, false, err
	}
	n, err = parseLimit(p.limit, got.data)
	return n, err == nil, err
}

func (p *permits) makeLimit(ctx context.Context, z *link.Era) error {
	above := lockRoot{path: parentOf(p.limit), chroot: p.leases.chroot, acl: p.leases.acl}
	for {
		_, err := z.Ask(ctx, wire.OpCreate, wire.CreateRequest{Path: p.limit, Data: limitData(p.n), ACL: wireACL(p.leases.acl), Flags: wire.FlagPersistent})
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return answer.Denied(err, "create", "CREATE", above.path)
		case above.path == above.chroot:
			return errNoChroot(above.chroot)
		}
		if err := above.ensure(ctx, z); err != nil {
			return err
		}
	}
}

// limitData is the limit as Curator's SharedCount writes it.
func limitData(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

func parseLimit(node string, data []byte) (int, error) {
	if len(data) == 4 {
		if n := int32(binary.BigEndian.Uint32(data)); n >= 0 {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("%w: %s has %q: write 4 bytes, big endian, not negative, as Curator's SharedCount does", errBadLimit, node, data[:min(len(data), maxShown)])
}

// errBadLimit says that the node of a shared limit has something else in it.
var errBadLimit = errors.New("no limit")

// wantsTooMany returns an error if the limit is smaller than what is wanted: such a call would block the queue.
func (p *permits) wantsTooMany(n int) error {
	switch {
	case p.k <= n:
		return nil
	case p.limit == "":
		return badPermits(p.k, n)
	}
	return fmt.Errorf("%d permits were asked for, and the limit in %s is now %d: ask for fewer, or raise it", p.k, p.limit, n)
}

func badPermits(k, n int) error {
	return badArgument{fmt.Errorf("%d permits of a semaphore that has %d: ask for 1 to %d", k, n, n)}
}

// checkPath refuses the path of another recipe, as far as its nodes tell: before anything is made. queue is the root of our own queue.
func (p *permits) checkPath(ctx context.Context, z *link.Era, queued *lockRoot) error {
	path := parentOf(queued.path)
	for backoff := link.NewBackoff(); ; {
		var children wire.ChildrenStatResponse
		_, err := z.Read(ctx, wire.OpGetChildren2, wire.PathWatchRequest{Path: path}, &children)
		switch {
		case err == nil:
			others := queue.Members(children.Children, append(slices.Clone(queued.markers), "latch-", queue.LeaseName))
			if len(others) == 0 {
				return nil
			}
			return badArgument{fmt.Errorf("%s is in use by a lock of another kind, which has %s: give the semaphore a path of its own", path, shown(others[0].Name))}
		case answer.IsRefusal(err): // it is not there, or we may not look
			return nil
		case err == link.ErrCtxEnded, z.IsOver(), errors.Is(err, ErrClosed):
			return err
		}
		if !z.Pause(backoff.Next()) {
			return z.OverErr()
		}
	}
}

func namesOf(paths []string) (names []string) {
	for _, p := range paths {
		names = append(names, nameOf(p))
	}
	return names
}
