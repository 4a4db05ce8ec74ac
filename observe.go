package zklock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Leadership is the state of an election, as Observe returns it.
type Leadership struct {
	Participant // the candidate that leads; zero, with an empty Node, if no candidate leads

	// Unknown: another candidate may lead; no server has replied for too long.
	Unknown bool
}

// Observe returns an iterator over the leaders: the present one, and then each next one. A
// Leadership whose Node is empty means that no candidate leads or, with Unknown, that the leader is
// not known. A slow reader may miss leaders in between, but never the last.
//
// While no server can be reached, the iterator waits, although another candidate may lead. It
// returns Unknown 7/6 of the session timeout plus a second after the last reply. With
// [WithLockDelay], a candidate that waits for the delay has DelayUntil set; a second pair follows
// when it leads.
//
// A pair with an error reports that the servers do not permit a read of the first node, or that it
// is of another recipe. Then the iterator continues. The last pair has the cause of ctx,
// [ErrClosed], or an error of the servers on the path.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leadership, error] {
	return func(yield func(Leadership, error) bool) {
		if !e.isMade() {
			yield(Leadership{}, &Error{Op: "observe", Err: errNoElection})
			return
		}
		o := observing{e: e}
		defer func() { o.moveTo(nil) }()
		var last news
		for isFirst := true; ; {
			err := e.m.s.reading(ctx, "observe", e.m.root.Given(), o.attached, func(z *node.ZKSession) error { return o.readLeader(ctx, z, isFirst) })
			isOver := errors.Is(err, link.ErrSessionEnded)
			switch {
			case isOver:
			case err != nil:
				yield(Leadership{}, err)
				return
			default:
				if now := o.news(); (isFirst || now != last) && !yield(Leadership{Participant: o.leader}, o.why) {
					return
				}
				last, isFirst = o.news(), false
				isOver = !o.awaitChange(ctx) && !errors.Is(o.z.Cause(), ErrClosed)
			}
			if !isOver {
				continue
			}
			o.moveTo(nil)
			if unknown := (news{unknown: true}); !isFirst && last != unknown {
				if last = unknown; !yield(Leadership{Unknown: true}, nil) {
					return
				}
			}
		}
	}
}

// observing is one run of Observe's iterator.
type observing struct {
	e      *Election
	leader Participant
	why    error // the reason if the leader is not known

	z        *node.ZKSession // the session of the watches
	on       *node.Watch     // on the leader's node; without a known leader on the root, for the next candidate
	onRecord *node.Watch     // on the root's data, if it has a lock-delay's record
}

// news is the state that an observer has last been given.
type news struct {
	node, why string
	waits     bool // for the lock-delay
	unknown   bool
}

func (o *observing) news() news {
	n := news{node: o.leader.Node, waits: !o.leader.DelayUntil.IsZero()}
	if o.why != nil {
		n.why = o.why.Error()
	}
	return n
}

// moveTo leaves the watches in another ZooKeeper session, or all if z is nil.
func (o *observing) moveTo(z *node.ZKSession) {
	if o.z != nil && o.z != z {
		o.z.Watches.Leave(o.on)
		o.z.Watches.Leave(o.onRecord)
		o.on, o.onRecord = nil, nil
	}
	o.z = z
}

// attached is attachedSession, but it stops waiting when the ZooKeeper session of the last
// observation ends: then the leader is not known any more.
func (o *observing) attached(ctx context.Context, l *link.Link) (*node.ZKSession, error) {
	if o.z == nil {
		return node.AttachedSession(ctx, l)
	}
	_, err := o.z.WaitAttached(ctx)
	return o.z, err
}

// watch replaces the watch before, unless that is the same watch and has not fired.
func (o *observing) watch(ctx context.Context, before **node.Watch, path string, op wire.Op) (*node.Watch, error) {
	*before = o.z.Watches.Keep(*before, node.WatchKey{Path: path, Op: op, Observed: true})
	return *before, (*before).WaitArmed(ctx, o.z.ZKSession)
}

// readLeader reads the leader, and sets the watches that fire when another candidate may lead.
// While there is a leader, the watch is on its node, so that candidates that queue cause no event.
// Otherwise it is on the root, for the next candidate. If a server loses an event, the iterator
// returns the change within a session timeout, because watches are checked (node.Watches).
func (o *observing) readLeader(ctx context.Context, z *node.ZKSession, isFirst bool) error {
	o.moveTo(z)
	if o.onRecord != nil && o.onRecord.HasFired() {
		z.Watches.Leave(o.onRecord)
		o.onRecord = nil
	}
	root := o.e.m.root.Path()
	for denied := ""; ; {
		first, there, err := o.e.firstCandidate(ctx, z, isFirst)
		o.leader = Participant{Node: first}
		var other badArgument
		switch {
		case errors.As(err, &other):
			o.why = o.failure(err)
		case err != nil:
			return err
		case first == "":
			o.why = nil
		case first != denied:
			o.why, denied = nil, ""
			err := o.lookAt(ctx, first)
			switch {
			case errors.Is(err, zk.ErrNoNode): // it was deleted after the list: read the next one
				continue
			case errors.Is(err, zk.ErrNoAuth):
				denied, o.why = first, o.failure(err)
			default:
				return err
			}
		}
		op := wire.OpExists
		if there {
			op = wire.OpGetChildren2
		}
		if o.on.IsActive(node.WatchKey{Path: root, Op: op, Observed: true}) { // it was set before this list
			return nil
		}
		if _, err := o.watch(ctx, &o.on, root, op); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return reply.Denied(err, "watch", "READ", root)
		}
	}
}

// lookAt watches the first node and, where a lock-delay may make its candidate wait, the lock
// root's record.
func (o *observing) lookAt(ctx context.Context, node string) error {
	on, err := o.watch(ctx, &o.on, node, wire.OpGetData)
	if err != nil {
		return reply.Denied(err, "get", "READ", node)
	}
	o.leader = participantOf(node, slices.Clone(on.Data), on.Stat)
	o.leader.Holds = o.e.m.root.HoldsInFront(node)
	if m := o.e.m; m.opts.delay > 0 {
		root := m.root.Path()
		if on, err = o.watch(ctx, &o.onRecord, root, wire.OpGetData); err != nil {
			return reply.Denied(err, "get", "READ", root)
		}
		o.leader.delayedUntil(m.opts.delayUntil(on.Data, node, time.Now())) // it may wait until it writes the record, which fires the watch
	}
	return nil
}

// awaitChange waits until a watch fires or ctx ends. It returns false if the ZooKeeper session has
// ended.
func (o *observing) awaitChange(ctx context.Context) bool {
	var recorded <-chan struct{}
	if o.onRecord != nil {
		recorded = o.onRecord.Fired
	}
	select {
	case <-o.on.Fired:
	case <-recorded:
	case <-ctx.Done():
	case <-o.z.Ended():
		return false
	}
	return true
}

func (o *observing) failure(err error) error {
	return &Error{Op: "observe", Path: o.e.m.root.Given(), Err: err}
}
