package zklock

import (
	"errors"
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
// Semaphores create their roots as before (lockRoot.make).

// canBeNew reports whether the transaction may create the lock root. A semaphore has further roots.
// If the lock's ACL gives no client READ, a list has to reject the acquire. After a lost reply the
// call does not send the transaction again, because some servers close the connection at a
// container.
func (a *acquisition) canBeNew() bool {
	r := a.d.root
	return r.container && !r.isFresh && !a.newLost && slices.ContainsFunc(r.acl, func(e wire.ACL) bool { return e.Perms&zk.PermRead != 0 })
}

// mostFound: if this many lock roots in succession existed when the Session first used them, the
// next one is also expected to exist.
const mostFound = 2

// beginCreate notes that a call takes the lock, and reports whether the lock root is expected to be
// missing: our last release deleted it, or the last new names were missing. learns reports whether
// the Session learns from the result what to expect of the next name: from the first call for a
// name.
func (a *acquisition) beginCreate() (withRoot, learns bool) {
	r := a.d.root
	if !a.canBeNew() {
		return false, false
	}
	switch before := note(r, func(n *newRootNotes) { *n = newRootNotes{isUsed: true} }); {
	case before.deletion != nil:
		return isClosed(before.deletion.Done) && before.deletion.RootDeleted, false
	case before.isUsed: // another call has found the lock root, or is creating it
		return false, false
	}
	return r.roots.found.Load() < mostFound, true
}

// learn notes whether the lock root of a new name was missing.
func (r *lockRoot) learn(wasMissing bool) {
	if r.roots.found.Add(1); wasMissing {
		r.roots.found.Store(0)
	}
}

// withNode returns the transaction that creates the lock root and a node.
func (r *lockRoot) withNode(node wire.CreateRequest) wire.MultiRequest {
	root := wire.CreateRequest{Path: r.path, ACL: node.ACL, Flags: wire.FlagContainer}
	return wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCreateContainer, Path: root.Path, Create: root}, {Op: wire.OpCreate, Path: node.Path, Create: node},
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

// afterRejection returns the next step after a create that failed. tries is the number
// of transactions that the attempt has sent.
func (a *attempt) afterRejection(c *nodeCreate, tries int) queue.CreateStep {
	noNode := errors.Is(c.denied, zk.ErrNoNode)
	if c.denied == nil || !c.withRoot && !noNode {
		return queue.CreateDenied
	}
	return queue.Rejection{
		WithRoot: c.withRoot, OfNode: c.part == 1, NoNode: noNode, Exists: errors.Is(c.denied, zk.ErrNodeExists),
		CanBeNew: a.canBeNew(), Tries: tries, Roots: a.roots != nil,
	}.Next()
}

// createRoots sends the creates of a step. It reports whether the next create is the transaction.
func (a *attempt) createRoots(step queue.CreateStep) (withRoot bool, err error) {
	root := a.d.root
	if a.ctx.Err() != nil { // no call waits any more, so no further create is sent (I2)
		return false, link.ErrCtxEnded
	}
	switch step {
	case queue.CreateAlone, queue.CreateWithRoot:
		return step == queue.CreateWithRoot, nil
	case queue.CreateParents:
		parents := *root
		parents.path = parentOf(root.path)
		a.roots, err = parents.make(a.ctx, a.e.ZKSession, nil, "", &a.last)
		return true, err
	}
	roots, err := root.make(a.ctx, a.e.ZKSession, a.roots, root.shownPath(), &a.last)
	if err == nil {
		a.roots = roots
	}
	return false, err
}
