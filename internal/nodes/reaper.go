package nodes

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// Reaper deletes lock nodes of one ZooKeeper session, even if requests fail in between. Own knows which nodes there are.
type Reaper struct {
	z     *link.Era
	lists *Lists
	nodes *Own

	mu struct {
		sync.Mutex
		erasing   map[string]*Deletion  // deletions under way, by node
		orphans   map[queue.Orphan]bool // creates whose nodes no list has shown
		searching bool                  // searchForOrphans runs
	}
}

// NewReaper returns the reaper of a session. It is shown each list.
func NewReaper(z *link.Era, lists *Lists, nodes *Own) *Reaper {
	r := &Reaper{z: z, lists: lists, nodes: nodes}
	r.mu.erasing = make(map[string]*Deletion)
	r.mu.orphans = make(map[queue.Orphan]bool)
	lists.seen = r.deleteOrphans
	return r
}

// Erasing says how many nodes are being deleted; several that are deleted together count once.
func (r *Reaper) Erasing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.erasing)
}

// Deletion is the deletion of a node, or of several in one transaction: the reaper's unit of work. It is tried until they are gone
// or their session is, and outlives the call that asked for it.
type Deletion struct {
	r      *Reaper
	node   string
	rest   []string       // those that go with it
	next   func() *Waiter // returns the waiter that gets the turn, nil if there is none
	record *GrantRecord   // is taken back with the node; nil if there is none, or nothing to take back any more

	Last       link.LastError // of its requests
	unanswered bool           // one of its requests has had no answer
	singly     bool           // one of the nodes was missing: delete one after the other
	gone       int            // how many of them are gone
	missing    bool           // one was gone before our first try

	Refused chan struct{} // closed when the servers refused this one, or that which it waits for (no DELETE): then Refusal is set. The tries go on
	Refusal error

	Done chan struct{} // closed when the fields below are set
	OK   bool          // our own delete was answered with success, or surely did it
	Err  error         // ErrNoNode: it was gone before our first try; otherwise why nothing can be done
}

// Erase deletes a node of ours. If the node is being deleted already, it returns the deletion under way.
func (r *Reaper) Erase(node string) *Deletion {
	return r.begin(node, nil, func() *Waiter { return nil })
}

// EraseAll deletes nodes of ours in one transaction; those that are there, if one of them is not. If the first is being deleted
// already, it returns the deletion under way. Of nodes in several lock roots it deletes each by itself if a root refuses, and the deletion is
// then one of them.
func (r *Reaper) EraseAll(nodes []string) *Deletion {
	return r.begin(nodes[0], nil, func() *Waiter { return nil }, nodes[1:]...)
}

// EraseAfter is Erase, and begins when the first deletion has ended: until then, a transaction whose answer was lost could make the
// node again. first may be nil.
func (r *Reaper) EraseAfter(first *Deletion, node string) *Deletion {
	return r.begin(node, first, func() *Waiter { return nil })
}

// HandOver deletes the node of a hold that is released. If the hold may pass the turn (queue.Rule.PassesTurn), HandOver passes it
// to a waiter of this ZooKeeper session that stands directly behind the node. A record is taken back with it.
func (r *Reaper) HandOver(node string, rule queue.Rule, downgraded bool, record *GrantRecord) *Deletion {
	if !rule.PassesTurn(downgraded) {
		return r.Erase(node)
	}
	return r.beginRecorded(record, node, nil, func() *Waiter { return r.nodes.next(node) })
}

// EraseRecorded is Erase for a node whose grant may be recorded.
func (r *Reaper) EraseRecorded(node string, record *GrantRecord) *Deletion {
	return r.beginRecorded(record, node, nil, func() *Waiter { return nil })
}

func (r *Reaper) begin(node string, after *Deletion, next func() *Waiter, rest ...string) *Deletion {
	return r.beginRecorded(nil, node, after, next, rest...)
}

func (r *Reaper) beginRecorded(record *GrantRecord, node string, after *Deletion, next func() *Waiter, rest ...string) *Deletion {
	r.mu.Lock()
	x := r.mu.erasing[node]
	if x != nil {
		r.mu.Unlock()
		return x
	}
	x = &Deletion{r: r, node: node, rest: rest, next: next, record: record, Done: make(chan struct{}), Refused: make(chan struct{})}
	r.mu.erasing[node] = x
	r.mu.Unlock()
	for _, n := range x.nodes() {
		r.nodes.add(n)
	}
	if after != nil {
		x.goOnAfter(after)
		return x
	}
	if record != nil && !record.IsKnown {
		x.goOn(false)
		return x
	}
	w := next()
	op, body := x.request(w)
	first := tap.NewRequest(op, body, func(a tap.Answer) { // mostly the only one
		if a.Fate == tap.NeverSent {
			x.goOn(false)
		} else if ended, wait := x.tried(w, a, r.z.ErrOf(a)); !ended {
			x.goOn(wait)
		}
	})
	if !r.z.Carrier.Send(r.z, first) {
		x.goOn(false)
	}
	return x
}

// goOn goes on with the tries on a goroutine of its own.
func (x *Deletion) goOn(wait bool) {
	if !x.r.z.Carrier.Spawn(func() { x.run(wait) }) {
		x.end(x.r.z.Carrier.ClosedErr())
	}
}

// goOnAfter goes on when another deletion has ended.
func (x *Deletion) goOnAfter(first *Deletion) {
	if !x.r.z.Carrier.Spawn(func() {
		x.await(first)
		x.run(false)
	}) {
		x.end(x.r.z.Carrier.ClosedErr())
	}
}

// await waits until another deletion has ended. What the servers refuse to that, they refuse to this one: it does not get its turn.
func (x *Deletion) await(first *Deletion) {
	for refused := first.Refused; ; {
		select {
		case <-first.Done:
			return
		case <-x.r.z.Over():
			return
		case <-refused:
			refused = nil
			x.refuse(first.Refusal)
		}
	}
}

// run backs off between tries, and ends with the node or with the session it would die with (R25, R27).
func (x *Deletion) run(wait bool) {
	var backoff link.Backoff
	for {
		if wait && !x.r.z.Pause(backoff.Next()) {
			x.end(x.r.z.OverErr())
			return
		}
		if wait = !x.readRecord(); wait {
			continue
		}
		w := x.next()
		op, body := x.request(w)
		a, err := x.r.z.Ask(context.Background(), op, body)
		var ended bool
		if ended, wait = x.tried(w, a, err); ended {
			return
		}
	}
}

func (x *Deletion) nodes() []string { return append([]string{x.node}, x.rest...) }

// batch returns what the next request deletes.
func (x *Deletion) batch() []string {
	left := x.nodes()[x.gone:]
	if x.singly {
		left = left[:1]
	}
	return left
}

// request returns the request that deletes the node. With a waiter w, it deletes the node only if w's node is there. The check
// of w's node comes first, so that each answer tells of it.
func (x *Deletion) request(w *Waiter) (wire.Op, wire.Record) {
	batch := x.batch()
	if x.record != nil {
		return wire.OpMulti, x.markedRequest(w)
	}
	if w == nil && len(batch) == 1 {
		return wire.OpDelete, wire.PathVersionRequest{Path: batch[0], Version: -1}
	}
	if w == nil {
		var ops wire.MultiRequest
		for _, n := range batch {
			ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpDelete, Path: n, Version: -1})
		}
		return wire.OpMulti, ops
	}
	return wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: w.Node, Version: -1}, {Op: wire.OpDelete, Path: x.node, Version: -1},
	}}
}

// tried takes the answer to a request, which was to pass the turn to w, or to nobody if w is nil. It returns whether the
// deletion has ended, and otherwise whether to wait before the next try.
func (x *Deletion) tried(w *Waiter, a tap.Answer, err error) (ended, wait bool) {
	z := x.r.z
	n, ops, failed := len(x.batch()), len(x.batch()), -1
	if w != nil {
		ops++
	}
	if x.record != nil {
		ops++
	}
	if ops > 1 && err == nil {
		failed, err = answer.ErrOfMulti(a, ops)
	}
	if x.record != nil && failed == ops-1 && x.recordFailed(err) {
		return false, false
	}
	if w != nil {
		switch queue.TurnAfter(err == nil, failed, errors.Is(err, zk.ErrNoNode)) {
		case queue.TurnIsYours:
			w.Tell(queue.TurnIsYours)
		case queue.NodeIsGone:
			x.r.nodes.StepOut(w)
			w.Tell(queue.NodeIsGone)
			return false, false
		case queue.TurnUnknown:
			x.r.nodes.skip(w)
			return false, false
		}
	}
	switch noNode := errors.Is(err, zk.ErrNoNode); {
	case noNode && n > 1: // nothing was deleted
		x.singly = true
		return false, false
	case answer.IsRefusal(err) && !noNode && x.split(): // what one lock root refuses, others may not
		return false, false
	case err == nil, noNode:
		if err == nil {
			x.r.nodes.deleted(x.batch())
		}
		// Within one live session, a delete that was not answered did this.
		x.missing = x.missing || noNode && !x.unanswered
		if x.gone += n; x.gone <= len(x.rest) {
			return false, false
		}
		if x.OK, err = !x.missing, nil; x.missing {
			err = zk.ErrNoNode
		}
		x.end(err)
		return true, false
	case z.IsOver(), errors.Is(err, link.ErrClosed):
		x.end(err)
		return true, false
	case answer.OutcomeOf(err) == answer.Unknown:
		x.unanswered = true
	}
	x.Last.Note(err)
	if answer.IsRefusal(err) && x.Refusal == nil {
		z.Log.Error("zklock: the servers refuse to delete a lock node, which goes on blocking the lock; does the ACL give DELETE on the lock root?", "node", x.node, "err", err)
		x.refuse(answer.Denied(err, "delete", "DELETE", path.Dir(x.node)))
	}
	return false, true
}

// split has the nodes that are left deleted apart, all but the first of them, if they have not one lock root. It says whether it did.
func (x *Deletion) split() bool {
	all := x.nodes()
	left := all[x.gone+1:]
	if !slices.ContainsFunc(left, func(n string) bool { return path.Dir(n) != path.Dir(all[x.gone]) }) {
		return false
	}
	x.rest = all[1 : x.gone+1]
	for _, n := range left {
		x.r.Erase(n)
	}
	return true
}

func (x *Deletion) refuse(why error) {
	x.Refusal = why
	close(x.Refused)
	for _, n := range x.nodes() {
		x.r.nodes.stays(n)
	}
}

func (x *Deletion) end(err error) {
	x.r.mu.Lock()
	delete(x.r.mu.erasing, x.node)
	x.r.mu.Unlock()
	for _, n := range x.nodes() {
		x.r.nodes.Gone(n)
	}
	x.Err = err
	close(x.Done)
}
