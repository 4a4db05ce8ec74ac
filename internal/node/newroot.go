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

// Locks WithContainer whose lock root is missing: one transaction creates the root and the node,
// and one deletes both. The success of the first one proves that the node is first in the queue,
// because the root did not exist before. So without contention a cycle takes two requests and
// leaves nothing.
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
// The hold whose own transaction created the root deletes it, unless the hold was a writer's that
// has read under it. All other roots are left to the servers: after a crash, and after contention.
//
// A semaphore has a second root, so it creates both before the node (Root.make).

// canBeNew reports whether the transaction may create the lock root. If the lock's ACL gives no
// client READ, a list has to reject the acquire.
func (r *Root) canBeNew() bool {
	return r.o.Container && r.o.Second == nil && slices.ContainsFunc(r.o.ACL, func(e wire.ACL) bool { return e.Perms&zk.PermRead != 0 })
}

// mostFound: if this many lock roots in succession existed when the Session first used them, the
// next one is also expected to exist.
const mostFound = 2

// RootUse is one attempt's use of a lock root: the creation of a node in it and, if the root is
// missing, of the root. The zero value is for an attempt that creates no node there.
type RootUse struct {
	r        *Root
	canBeNew bool        // the transaction may be sent
	withRoot bool        // it is sent next
	tries    int         // how often it was sent
	learns   bool        // the result shows what to expect of the next name
	sent     *RootCreate // the creation of the root by itself; nil if it was not sent

	// Lost reports that the transaction cannot be sent again: a reply to it was lost, and some servers
	// close the connection at a container; or it is too long.
	Lost bool
}

// BeginUse notes that a call takes the lock. It expects the lock root to be missing if our last
// release deletes it, or if the last new names were missing; the result for a new name shows what
// to expect of the next one. lost reports that an earlier attempt of the call has Lost the
// transaction.
func (r *Root) BeginUse(lost bool) (u RootUse) {
	u = RootUse{r: r, Lost: lost, canBeNew: !lost && r.canBeNew()}
	if !u.canBeNew {
		return u
	}
	switch before := Note(r, func(n *newRootNotes) { *n = newRootNotes{isUsed: true} }); {
	case before.deletion != nil:
		u.withRoot = before.deletion.withRoot.Load()
	case !before.isUsed: // otherwise another call has found the lock root, or is creating it
		u.withRoot, u.learns = r.o.Notes.found.Load() < mostFound, true
	}
	return u
}

// Create begins the creation of a node, as ZKSession.create does.
func (u *RootUse) Create(wanted context.Context, e *ZKSession, data []byte, last *link.LastError) (*Create, error) {
	c, err := e.create(wanted, u.r, data, u.withRoot, last)
	if err == nil && c.withRoot {
		u.tries++
	}
	return c, err
}

// Finish waits for the outcome of a create, as Create.finish does. After an error, step is the next
// one: CreateDenied if the error is final.
func (u *RootUse) Finish(c *Create) (step queue.CreateStep, err error) {
	err = c.finish()
	if u.withRoot && !c.MadeRoot && (c.denied == nil || !c.withRoot) {
		u.Lost, u.canBeNew = true, false
	}
	if step = queue.CreateDenied; err != nil {
		if step = u.afterRejection(c); step == queue.CreateDenied {
			return step, err
		}
	}
	if u.learns {
		u.learns = false
		if notes := u.r.o.Notes; c.MadeRoot || errors.Is(c.denied, zk.ErrNoNode) {
			notes.found.Store(0)
		} else {
			notes.found.Add(1)
		}
	}
	return step, err
}

// afterRejection returns the next step after a create that failed.
func (u *RootUse) afterRejection(c *Create) queue.CreateStep {
	noNode := errors.Is(c.denied, zk.ErrNoNode)
	if c.denied == nil || !c.withRoot && !noNode {
		return queue.CreateDenied
	}
	return queue.Rejection{
		WithRoot: c.withRoot, OfNode: c.part == 1, NoNode: noNode, Exists: errors.Is(c.denied, zk.ErrNodeExists),
		CanBeNew: u.canBeNew, Tries: u.tries, Roots: u.sent != nil,
	}.Next()
}

// SendCreates sends the creates of a step.
func (u *RootUse) SendCreates(ctx context.Context, z *link.ZKSession, step queue.CreateStep, last *link.LastError) error {
	if ctx.Err() != nil { // no call waits any more, so no further create is sent (I2)
		return link.ErrCtxEnded
	}
	r, highest, before := u.r, u.r.ShownPath(), u.sent
	switch u.withRoot = step == queue.CreateWithRoot || step == queue.CreateParents; step {
	case queue.CreateAlone, queue.CreateWithRoot:
		return nil
	case queue.CreateParents:
		r, highest, before = r.At(path.Dir(r.path)), "", nil
	}
	m, err := r.make(ctx, z, before, highest, last)
	if err == nil {
		u.sent = m
	}
	return err
}

// Undo deletes the roots that this attempt has created in vain (Root.UndoCreate).
func (u *RootUse) Undo(z *link.ZKSession, hadNode bool) {
	if u.sent != nil {
		u.r.UndoCreate(z, u.sent, hadNode)
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
