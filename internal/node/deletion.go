package node

import (
	"context"
	"errors"
	"path"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Deletion is the deletion of one node, or of several nodes of one lock root in one transaction. It
// is retried until the nodes are deleted or their session has ended, so it outlives the call that
// requested it: a leftover node would block the lock as long as the session lives (I4).
//
//	await ──▶ readRecord ──▶ request ──▶ tried ─┬─▶ end: Done is closed
//	              ▲                             ├─▶ at once, with a different request ─┐
//	              │                             └─▶ after a pause ─────────────────────┤
//	              └────────────────────────────────────────────────────────────────────┘
//
// Only DeleteAfter awaits another deletion, and only a record that is not known is read. So the
// first request is mostly sent by the caller's goroutine (Begin), and is the only one. All later
// requests are sent by a goroutine of the Session (run).
type Deletion struct {
	r        *Reaper
	node     string
	rest     []string     // nodes that are deleted with it
	handsOff bool         // the next waiter gets the lock
	record   *GrantRecord // removed in the same transaction; nil if there is no record, or nothing left to remove
	root     bool         // the lock root is deleted in the same transaction, unless a waiter of ours is behind the node
	after    *Deletion    // ends before this one begins; nil for none
	toBegin  bool         // Begin has not been called; guarded by the Reaper

	Last       link.LastError // of its requests
	unanswered bool           // one of its requests got no response, so it may have been executed
	singly     bool           // one of the nodes was missing: delete one after the other
	gone       int            // how many of them are deleted
	missing    bool           // one was deleted before our first try

	// Refused is closed when the servers reject this deletion, or the one that it waits for (no
	// DELETE permission); Refusal is then set. The tries continue.
	Refused chan struct{}
	Refusal error

	withRoot atomic.Bool // the last request deletes the lock root, too; false if the deletion was given up

	Done chan struct{} // closed when the field below is set
	// Nil: our own delete succeeded, or may have done so although its response was lost.
	// ErrNoNode: the node was deleted before our first try. Otherwise why the deletion was given up.
	Err error
}

// goOn continues the tries on a separate goroutine.
func (x *Deletion) goOn(wait bool) {
	if !x.r.z.Carrier.Spawn(func() { x.run(wait) }) {
		x.end(x.r.z.Carrier.ClosedErr())
	}
}

// awaitFirst waits until the deletion before this one has ended, if there is one. If the servers
// reject that one, this one counts as rejected too: it cannot begin.
func (x *Deletion) awaitFirst() {
	if x.after == nil {
		return
	}
	for refused := x.after.Refused; ; {
		select {
		case <-x.after.Done:
			return
		case <-x.r.z.Ended():
			return
		case <-refused:
			refused = nil
			x.refuse(x.after.Refusal)
		}
	}
}

// run backs off between tries. It ends when the node is deleted, or when the session ends, which
// deletes the node (R25, R27).
func (x *Deletion) run(wait bool) {
	x.awaitFirst()
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
		ops := x.operations(w)
		op, body := requestOf(ops)
		a, err := x.r.z.Ask(context.Background(), op, body)
		failed, err := resultOf(a, err, len(ops))
		var ended bool
		if ended, wait = x.tried(w, failed, err); ended {
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

// operations returns what the next request does: it deletes the node and, with a waiter w, only if
// w's node exists. The check of w's node is the first operation, so every response shows whether
// that check passed.
func (x *Deletion) operations(w *Waiter) (ops []wire.MultiOp) {
	if w != nil {
		ops = append(ops, wire.MultiOp{Op: wire.OpCheck, Path: w.Node, Version: -1})
	}
	for _, n := range x.batch() {
		ops = append(ops, wire.MultiOp{Op: wire.OpDelete, Path: n, Version: -1})
	}
	if x.record != nil {
		ops = append(ops, x.takesBack())
	}
	x.withRoot.Store(x.root && w == nil)
	if x.withRoot.Load() { // unless a client has written its data
		ops = append(ops, wire.MultiOp{Op: wire.OpDelete, Path: x.rootPath(), Version: 0})
	}
	return ops
}

// requestOf returns the request for these operations, the first of which deletes if it is alone.
func requestOf(ops []wire.MultiOp) (wire.Op, wire.Record) {
	if len(ops) == 1 {
		return wire.OpDelete, wire.PathVersionRequest{Path: ops[0].Path, Version: -1}
	}
	return wire.OpMulti, wire.MultiRequest{Ops: ops}
}

// resultOf returns the error of a request with n operations, and which of them was rejected: −1 if
// that is not known.
func resultOf(a mux.Reply, err error, n int) (failed int, _ error) {
	if n > 1 && err == nil {
		return reply.ErrOfMulti(a, n)
	}
	return -1, err
}

// mostOps is the most operations in a transaction for several deletions. (One deletion may have
// more: as many leases as one transaction has created.)
const mostOps = 1000

// Begin sends the first requests of deletions, such as those of a Multi's locks, as one
// transaction. If it succeeds, each deletion has succeeded, and so has each handoff, whose check is
// in the same transaction (queue.HandoffAfter). If it is rejected, nothing was deleted: the
// deletion whose operation failed has its result, and each of the rest continues by itself. All
// continue by themselves after a lost response, and then their request may have been executed.
// Deletions that are begun or nil are skipped.
func (r *Reaper) Begin(xs ...*Deletion) {
	var together []*Deletion
	for _, x := range xs {
		if !r.begins(x) {
			continue
		}
		if x.after != nil || x.record != nil && !x.record.IsKnown {
			x.goOn(false)
			continue
		}
		together = append(together, x)
	}
	if len(together) > 0 {
		r.send(together)
	}
}

// begins reports whether the caller has to send the first request.
func (r *Reaper) begins(x *Deletion) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x == nil || !x.toBegin {
		return false
	}
	x.toBegin = false
	return true
}

// send sends the requests of several deletions as one, or halves them if that is too long.
func (r *Reaper) send(xs []*Deletion) {
	var ops []wire.MultiOp
	waiters, from := make([]*Waiter, len(xs)), make([]int, len(xs))
	for i, x := range xs {
		waiters[i], from[i] = x.nextWaiter(), len(ops)
		ops = append(ops, x.operations(waiters[i])...)
	}
	op, body := requestOf(ops)
	first := mux.NewRequest(op, body, func(a mux.Reply) { // mostly the only one
		failed, err := resultOf(a, reply.ErrOf(a), len(ops))
		if err != nil && r.z.HasEnded() { // a success counts, although Close has begun
			err = r.z.EndErr()
		}
		for i, x := range xs {
			to := len(ops)
			if i+1 < len(xs) {
				to = from[i+1]
			}
			isItsOwn := failed >= from[i] && failed < to
			if a.Fate == mux.NeverSent || len(xs) > 1 && reply.IsRefusal(err) && !isItsOwn {
				x.goOn(false)
			} else if ended, wait := x.tried(waiters[i], max(-1, failed-from[i]), err); !ended {
				x.goOn(wait)
			}
		}
	})
	switch n := len(xs) / 2; {
	case n > 0 && (len(ops) > mostOps || link.TooLong(first, r.z.Longest) != nil):
		r.send(xs[:n])
		r.send(xs[n:])
	case !r.z.Carrier.Send(r.z, first):
		for _, x := range xs {
			x.goOn(false)
		}
	}
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
//	5 success, or NoNode for our node   these are deleted; some are left           at once
//	6   … and none is left              success, or ErrNoNode if one was missing   end
//	7 the session or Session has ended  the session deletes its nodes              end
//	8 no response, throttled, rejected  no response: unanswered; reject: Refused   pause
//
// After a success with a waiter, w is notified (HandoffIsOurs), and case 5 or 6 follows.
//
// An outcome "at once" changes the next request: it has another w or none, the record's new version
// or no record, no root, or fewer nodes. Only case 8 repeats the same request.
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
// the same time. So case 6 follows, end reports HandoffUnknown, and w lists the queue.
func (x *Deletion) tried(w *Waiter, failed int, err error) (ended, wait bool) {
	z, n := x.r.z, len(x.batch())
	if x.withRoot.Load() && reply.IsRefusal(err) && queue.KeepsRoot(failed, errors.Is(err, zk.ErrNoNode)) {
		x.keepRoot(failed == 1 && errors.Is(err, zk.ErrNoAuth))
		return false, false
	}
	if x.record != nil && failed == len(x.operations(w))-1 && x.recordFailed(err) {
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
	case err == nil, noNode:
		if err == nil {
			x.r.nodes.deleted(x.batch())
		}
		// In a live session, an earlier delete of ours without a response has deleted the node.
		x.missing = x.missing || noNode && !x.unanswered
		if x.gone += n; x.gone <= len(x.rest) {
			return false, false
		}
		if err = nil; x.missing {
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

func (x *Deletion) refuse(why error) {
	x.Refusal = why
	close(x.Refused)
	for _, n := range x.nodes() {
		x.r.nodes.noteRejected(n)
	}
}

func (x *Deletion) end(err error) {
	if err != nil {
		x.withRoot.Store(false)
	}
	x.r.mu.Lock()
	delete(x.r.mu.deletions, x.node)
	x.r.mu.Unlock()
	for _, n := range x.nodes() {
		x.r.nodes.Gone(n)
	}
	x.r, x.Err = nil, err // the notes on a lock root refer to a Deletion for longer than its session lasts
	close(x.Done)
}
