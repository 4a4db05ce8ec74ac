package node

import (
	"context"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Locks WithContainer whose lock root is missing: one transaction creates the root and the node,
// and one deletes both. The success of the first one proves that the node is first in the queue,
// because the root did not exist before. So without contention a cycle takes two requests and leaves
// nothing.
//
//	request               reply                          next (queue.Rejection)
//	───────────────────── ────────────────────────────── ─────────────────────────────────────────
//	create, list          NoNode                         create both
//	create both           success                        granted, without a list
//	                      the root exists                create, list
//	                      a parent of it is missing      creates of the parents, create both
//	                      other rejection of the root    creates of root and parents, create, list
//	                      rejection of the node          error
//	                      none                           search: a node that is found is granted;
//	                                                     otherwise it is an orphan, and the call
//	                                                     creates the root by itself
//	delete both           success, or no node            the end, as for the node alone
//	                      the root is not empty, or may  delete the node alone
//	                      not be deleted
//	                      none                           delete both: a late copy names the node
//
// The hold whose own transaction created the root deletes it, always. All other roots are left to
// the servers: after a crash, and after contention.
//
// Semaphores create their roots as before (Root.make).

// canBeNew reports whether the transaction may create the lock root. If the lock's ACL gives no
// client READ, a list has to reject the acquire.
func (r *Root) canBeNew() bool {
	return r.o.Container && slices.ContainsFunc(r.o.ACL, func(e wire.ACL) bool { return e.Perms&zk.PermRead != 0 })
}

// mostFound: if this many lock roots in succession existed when the Session first used them, the
// next one is also expected to exist.
const mostFound = 2

// BeginUse notes that a call takes the lock, and reports whether the lock root is expected to be
// missing: our last release deleted it, or the last new names were missing. learns reports whether
// the Session learns from the result what to expect of the next name: from the first call for a
// name.
func (r *Root) BeginUse() (withRoot, learns bool) {
	if !r.canBeNew() {
		return false, false
	}
	switch before := Note(r, func(n *newRootNotes) { *n = newRootNotes{isUsed: true} }); {
	case before.deletion != nil:
		return link.IsClosed(before.deletion.Done) && before.deletion.RootDeleted, false
	case before.isUsed: // another call has found the lock root, or is creating it
		return false, false
	}
	return r.o.Notes.found.Load() < mostFound, true
}

// Learn notes whether the lock root of a new name was missing.
func (r *Root) Learn(wasMissing bool) {
	if r.o.Notes.found.Add(1); wasMissing {
		r.o.Notes.found.Store(0)
	}
}

// withNode returns the transaction that creates the lock root and a node.
func (r *Root) withNode(node wire.CreateRequest) wire.MultiRequest {
	root := wire.CreateRequest{Path: r.path, ACL: node.ACL, Flags: wire.FlagContainer}
	return wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCreateContainer, Path: r.path, Create: root}, {Op: wire.OpCreate, Path: node.Path, Create: node},
	}}
}

// madeWithRoot returns the node that the transaction created in a ZooKeeper session, or the
// operation that was rejected, −1 if that is not known. The node's czxid is the zxid of the
// response, because a server responds to a write before it executes the next one. (Servers add a
// Stat only from 3.9 on.) Its owner is the session of the connection.
func madeWithRoot(a mux.Reply, session int64) (made wire.PathStatResponse, part int, err error) {
	results, part, err := reply.ResultsOf(a, 2)
	if err == nil {
		made.Path, made.Stat = results[1].Path, wire.Stat{Czxid: a.Zxid, EphemeralOwner: session}
	}
	return made, part, err
}

// SendCreates sends the creates of a step. It reports whether the next create is the transaction.
// before and the result are the creation of the lock root; nil for none.
func (r *Root) SendCreates(ctx context.Context, z *link.ZKSession, step queue.CreateStep, before *RootCreate, last *link.LastError) (withRoot bool, m *RootCreate, err error) {
	if ctx.Err() != nil { // no call waits any more, so no further create is sent (I2)
		return false, before, link.ErrCtxEnded
	}
	switch step {
	case queue.CreateAlone, queue.CreateWithRoot:
		return step == queue.CreateWithRoot, before, nil
	case queue.CreateParents:
		m, err = r.At(path.Dir(r.path)).make(ctx, z, nil, "", last)
		return true, m, err
	}
	if m, err = r.make(ctx, z, before, r.ShownPath(), last); err != nil {
		return false, before, err
	}
	return false, m, nil
}
