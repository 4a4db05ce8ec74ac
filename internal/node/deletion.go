package node

import (
	"context"
	"errors"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Deletion is the deletion of one node, or of several in one transaction. It is retried until the
// nodes are deleted or their session has ended, so it outlives the call that requested it: a
// leftover node would block the lock as long as the session lives (I4).
//
//	await ──▶ readRecord ──▶ request ──▶ tried ─┬─▶ end: Done is closed
//	              ▲                             ├─▶ at once, with a different request ─┐
//	              │                             └─▶ after a pause ─────────────────────┤
//	              └────────────────────────────────────────────────────────────────────┘
//
// Only DeleteAfter awaits another deletion, and only a record that is not known is read. So the
// first request is mostly sent by the caller's goroutine, and is the only one. All later requests
// are sent by a goroutine of the Session (run).
type Deletion struct {
	r        *Reaper
	node     string
	rest     []string     // nodes that are deleted with it
	handsOff bool         // the next waiter gets the lock
	record   *GrantRecord // removed in the same transaction; nil if there is no record, or nothing left to remove
	root     bool         // the lock root is deleted in the same transaction, unless a waiter of ours is behind the node

	Last       link.LastError // of its requests
	unanswered bool           // one of its requests got no response, so it may have been executed
	singly     bool           // one of the nodes was missing: delete one after the other
	gone       int            // how many of them are deleted
	missing    bool           // one was deleted before our first try

	// Refused is closed when the servers reject this deletion, or the one that it waits for (no
	// DELETE permission); Refusal is then set. The tries continue.
	Refused chan struct{}
	Refusal error

	Done        chan struct{} // closed when the fields below are set
	OK          bool          // our own delete succeeded, or may have done so although its response was lost
	RootDeleted bool          // the lock root was probably deleted with the node
	Err         error         // ErrNoNode: it was deleted before our first try; otherwise why the deletion was given up
}

// goOn continues the tries on a separate goroutine.
func (x *Deletion) goOn(wait bool) {
	if !x.r.z.Carrier.Spawn(func() { x.run(wait) }) {
		x.end(x.r.z.Carrier.ClosedErr())
	}
}

// goOnAfter continues when another deletion has ended.
func (x *Deletion) goOnAfter(first *Deletion) {
	if !x.r.z.Carrier.Spawn(func() {
		x.awaitFirst(first)
		x.run(false)
	}) {
		x.end(x.r.z.Carrier.ClosedErr())
	}
}

// awaitFirst waits until another deletion has ended. If the servers reject that one, this one
// counts as rejected too: it cannot begin.
func (x *Deletion) awaitFirst(first *Deletion) {
	for refused := first.Refused; ; {
		select {
		case <-first.Done:
			return
		case <-x.r.z.Ended():
			return
		case <-refused:
			refused = nil
			x.refuse(first.Refusal)
		}
	}
}

// run backs off between tries. It ends when the node is deleted, or when the session ends, which
// deletes the node (R25, R27).
func (x *Deletion) run(wait bool) {
	var backoff link.Backoff
	for {
		if wait && !x.r.z.Pause(backoff.Next()) {
			x.end(x.r.z.EndErr())
			return
		}
		if wait = !x.readRecord(); wait {
			continue
		}
		w := x.nextWaiter()
		op, body := x.request(w)
		a, err := x.r.z.Ask(context.Background(), op, body)
		var ended bool
		if ended, wait = x.tried(w, a, err); ended {
			return
		}
	}
}

// nextWaiter returns the waiter that gets the handoff, nil if there is none.
func (x *Deletion) nextWaiter() *Waiter {
	if !x.handsOff {
		return nil
	}
	return x.r.nodes.next(x.node)
}

func (x *Deletion) nodes() []string { return append([]string{x.node}, x.rest...) }

func (x *Deletion) rootPath() string { return path.Dir(x.node) }

// batch returns the nodes that the next request deletes.
func (x *Deletion) batch() []string {
	left := x.nodes()[x.gone:]
	if x.singly {
		left = left[:1]
	}
	return left
}

// request returns the request that deletes the node. With a waiter w, it deletes the node only if
// w's node exists. The check of w's node is the first operation, so every response shows whether
// that check passed.
func (x *Deletion) request(w *Waiter) (wire.Op, wire.Record) {
	batch := x.batch()
	if x.record != nil {
		return wire.OpMulti, x.markedRequest(w)
	}
	if w == nil && len(batch) == 1 && !x.root {
		return wire.OpDelete, wire.PathVersionRequest{Path: batch[0], Version: -1}
	}
	if w == nil {
		var ops wire.MultiRequest
		for _, n := range batch {
			ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpDelete, Path: n, Version: -1})
		}
		if x.root { // unless a client has written its data
			ops.Ops = append(ops.Ops, wire.MultiOp{Op: wire.OpDelete, Path: x.rootPath(), Version: 0})
		}
		return wire.OpMulti, ops
	}
	return wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: w.Node, Version: -1}, {Op: wire.OpDelete, Path: x.node, Version: -1},
	}}
}

// tried handles the response to a request, which was to hand off the lock to w, or to no waiter if
// w is nil. It returns whether the deletion has ended, and otherwise whether to pause before the
// next try. The first case that matches decides:
//
//	response                            effect                                     next
//	─────────────────────────────────── ────────────────────────────────────────── ────────
//	1 record: version changed           readRecord will read it again              at once
//	  record: write rejected            delete without the record                  at once
//	  lock root: not empty, or rejected delete without the root                    at once
//	2 w's node is missing               w queues again; next may have another one  at once
//	3 w's node may not be checked, or   skip(w): delete without a handoff          at once
//	  NoNode for one of two nodes
//	4 NoNode for one of several nodes   nothing was deleted: delete singly         at once
//	5 rejected, nodes in several roots  split: other deletions for the rest        at once
//	6 success, or NoNode for our node   these are deleted; some are left           at once
//	7   … and none is left              OK, or ErrNoNode if one was missing        end
//	8 the session or Session has ended  the session deletes its nodes              end
//	9 no response, throttled, rejected  no response: unanswered; reject: Refused   pause
//
// After a success with a waiter, w is notified (HandoffIsOurs), and case 6 or 7 follows.
//
// An outcome "at once" changes the next request: it has another w or none, the record's new version
// or no record, no root, or fewer nodes. Only case 9 repeats the same request.
//
// Why NoNode counts as success after a lost response: the delete is sent, the server executes it,
// and the connection breaks. The session lives on at the next server, and the second delete gets
// NoNode. The node is ephemeral, so while the session lives only a delete can have removed it, and
// ours may have done so: the release reports success. Without a lost response it was a delete of
// another client, before our first try. The lock was lost then, and Release returns that.
//
// Why a handoff is not repeated after a lost response: check and delete are executed, and the
// response is lost. In the second try the check of w's node passes and the delete fails with
// NoNode. HandoffAfter concludes nothing from that, because its proof needs both nodes to exist at
// the same time. So case 7 follows, end reports HandoffUnknown, and w lists the queue.
func (x *Deletion) tried(w *Waiter, a mux.Reply, err error) (ended, wait bool) {
	z := x.r.z
	n, ops, failed := len(x.batch()), len(x.batch()), -1
	if w != nil {
		ops++
	}
	if x.record != nil {
		ops++
	}
	withRoot := x.root && w == nil
	if withRoot {
		ops++
	}
	if ops > 1 && err == nil {
		failed, err = reply.ErrOfMulti(a, ops)
	}
	if withRoot && reply.IsRefusal(err) && queue.KeepsRoot(failed, errors.Is(err, zk.ErrNoNode)) {
		x.keepRoot(failed == 1 && errors.Is(err, zk.ErrNoAuth))
		return false, false
	}
	if x.record != nil && failed == ops-1 && x.recordFailed(err) {
		return false, false
	}
	if w != nil {
		switch queue.HandoffAfter(err == nil, failed, errors.Is(err, zk.ErrNoNode)) {
		case queue.HandoffIsOurs:
			x.r.nodes.handedOff(w)
		case queue.NodeDeleted:
			x.r.nodes.Leave(w)
			w.Notify(queue.NodeDeleted)
			return false, false
		case queue.HandoffUnknown:
			x.r.nodes.skip(w)
			return false, false
		}
	}
	switch noNode := errors.Is(err, zk.ErrNoNode); {
	case noNode && n > 1: // the transaction failed: nothing was deleted
		x.singly = true
		return false, false
	case reply.IsRefusal(err) && !noNode && x.split(): // one lock root may permit what another rejects
		return false, false
	case err == nil, noNode:
		if err == nil {
			x.r.nodes.deleted(x.batch())
		}
		// In a live session, an earlier delete of ours without a response has deleted the node.
		x.missing = x.missing || noNode && !x.unanswered
		if x.gone += n; x.gone <= len(x.rest) {
			return false, false
		}
		x.RootDeleted = withRoot
		if x.OK, err = !x.missing, nil; x.missing {
			err = zk.ErrNoNode
		}
		x.end(err)
		return true, false
	case z.HasEnded(), errors.Is(err, link.ErrClosed):
		x.end(err)
		return true, false
	case reply.OutcomeOf(err) == reply.Unknown:
		x.unanswered = true
	}
	x.Last.Note(err)
	if reply.IsRefusal(err) && x.Refusal == nil {
		z.Log.Error("zklock: the servers reject the deletion of a lock node, which still blocks the lock; does the ACL give DELETE on the lock root?", "node", x.node, "err", err)
		x.refuse(reply.Denied(err, "delete", "DELETE", path.Dir(x.node)))
	}
	return false, true
}

// keepRoot has the node deleted without its lock root. If DELETE on the parent is denied, later
// deletions there do not try.
func (x *Deletion) keepRoot(denied bool) {
	x.root = false
	if denied {
		x.r.mu.Lock()
		x.r.mu.keeps = path.Dir(x.rootPath())
		x.r.mu.Unlock()
	}
}

// split leaves the first of the remaining nodes to this deletion, and deletes every other one by
// itself, unless all have the same lock root. It reports whether it did.
func (x *Deletion) split() bool {
	all := x.nodes()
	left := all[x.gone+1:]
	if !slices.ContainsFunc(left, func(n string) bool { return path.Dir(n) != path.Dir(all[x.gone]) }) {
		return false
	}
	x.rest = all[1 : x.gone+1]
	for _, n := range left {
		x.r.Delete(n)
	}
	return true
}

func (x *Deletion) refuse(why error) {
	x.Refusal = why
	close(x.Refused)
	for _, n := range x.nodes() {
		x.r.nodes.noteRejected(n)
	}
}

func (x *Deletion) end(err error) {
	x.r.mu.Lock()
	delete(x.r.mu.deletions, x.node)
	x.r.mu.Unlock()
	for _, n := range x.nodes() {
		x.r.nodes.Gone(n)
	}
	x.r, x.Err = nil, err // the notes on a lock root refer to a Deletion for longer than its session lasts
	close(x.Done)
}
