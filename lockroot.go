package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// lockRoot is the node above a queue. It knows how to make it, and how to start its sequence counter again.
type lockRoot struct {
	path      string // absolute
	chroot    string // "" for none; it is not made
	given     string // as given to NewMutex
	acl       []zk.ACL
	container bool
	delay     time.Duration // the lock-delay, 0 for none
	rule      queue.Rule
	roots     *roots
	permits   *permits // of a semaphore: what the front of its queue is for; nil for other locks
}

// permits is what the front of a semaphore's queue is for: it makes leases, and waits until the limit has room for all of them.
// Then it leaves the queue, and the next is in front.
type permits struct {
	leases lockRoot // above the leases; its markers are those of leases
	k      int      // how many are wanted
	n      int      // the limit, or what it starts with if it is shared
	limit  string   // the node that has the shared limit, absolute; "" if there is none
}

// mode names the kind of lock in lockKey: locks of different kinds on one path have owners of their own.
func (r *lockRoot) mode() string {
	if r.permits != nil {
		return queue.LeaseName
	}
	return r.rule.Name
}

// roots is what a Session remembers of lock roots.
type roots struct {
	mu     sync.Mutex
	byPath map[string]rootNotes
}

type rootNotes struct {
	there, warned bool

	gone  string        // with a lock-delay: the node of the last holder, if it disappeared
	since clock.Instant // when this Session first knew that
}

// maxKnownRoots bounds what a Session remembers, also if each order has a lock path of its own (I7).
const maxKnownRoots = 4096

// noted changes what is remembered of a lock root, and returns what was.
func (r *roots) noted(path string, change func(rootNotes) rootNotes) (before rootNotes) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.byPath[path]
	now := change(before)
	switch {
	case now == (rootNotes{}):
		delete(r.byPath, path)
		return before
	case r.byPath == nil, before == (rootNotes{}) && len(r.byPath) >= maxKnownRoots:
		// Full: forget all notes, which only save round trips and warnings; but for those that a delay counts from, while they are few.
		maps.DeleteFunc(r.byPath, func(_ string, n rootNotes) bool { return n.gone == "" })
		if r.byPath == nil || len(r.byPath) >= maxKnownRoots/2 {
			r.byPath = make(map[string]rootNotes)
		}
	}
	r.byPath[path] = now
	return before
}

// wasThere says whether the lock root was there when this Session last saw it.
func (r *lockRoot) wasThere() bool {
	return r.roots.noted(r.path, func(n rootNotes) rootNotes { return n }).there
}

func (r *lockRoot) note(there bool) {
	r.roots.noted(r.path, func(n rootNotes) rootNotes {
		n.there = there
		return n
	})
}

// delayEnd returns until when nobody is granted because the holder with that node disappeared, and whether this Session knew that
// before. With note, it counts from now if not. It says when the node was known to be gone, whatever becomes of the call that looked: so
// calls with short deadlines come to the end of the delay, too.
func (r *lockRoot) delayEnd(node string, now clock.Instant, note bool) (end clock.Instant, isKnown bool) {
	before := r.roots.noted(r.path, func(n rootNotes) rootNotes {
		if note && n.gone != node {
			n.gone, n.since = node, now
		}
		return n
	})
	if before.gone != node {
		return now.Add(r.delay), false
	}
	return before.since.Add(r.delay), true
}

// ensure makes the lock root and the parents it lacks, from the lowest that is there, below the chroot. It does not matter if
// somebody else makes one first, or deletes one in between.
func (r *lockRoot) ensure(ctx context.Context, z *link.Era) error {
	if r.permits != nil {
		if err := r.permits.checkPath(ctx, z, r); err != nil {
			return err
		}
	}
	path, backoff := r.path, link.NewBackoff()
	for {
		err := r.makeNode(ctx, z, path)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			if path == r.path {
				return nil
			}
			path = r.path[:len(path)+1+strings.IndexByte(r.path[len(path)+1:]+"/", '/')]
			continue
		case errors.Is(err, zk.ErrNoNode):
			if path = path[:strings.LastIndexByte(path, '/')]; path != r.chroot {
				continue
			}
			return errNoChroot(path)
		case ctx.Err() != nil:
			return link.ErrCtxEnded
		case z.IsOver():
			return z.OverErr()
		case errors.Is(err, ErrClosed):
			return err
		case answer.IsRefusal(err):
			return fmt.Errorf("making %s: %w", path, err)
		}
		if err := z.PauseUnder(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

func (r *lockRoot) makeNode(ctx context.Context, z *link.Era, path string) error {
	if path == r.path && r.container {
		_, err := z.Ask(ctx, wire.OpCreateContainer, wire.CreateRequest{Path: path, ACL: wireACL(r.acl), Flags: wire.FlagContainer})
		if answer.ServerCode(err) != wire.Unimplemented {
			return answer.Denied(err, "create", "CREATE", parentOf(path))
		}
	}
	_, err := z.Ask(ctx, wire.OpCreate, wire.CreateRequest{Path: path, ACL: wireACL(r.acl), Flags: wire.FlagPersistent})
	return answer.Denied(err, "create", "CREATE", parentOf(path))
}

// checkPath refuses the path of another recipe, as far as its nodes tell: before anything is made. queued is the root of our own queue.
func (p *permits) checkPath(ctx context.Context, z *link.Era, queued *lockRoot) error {
	path := parentOf(queued.path)
	for backoff := link.NewBackoff(); ; {
		var children wire.ChildrenStatResponse
		_, err := z.Read(ctx, wire.OpGetChildren2, wire.PathWatchRequest{Path: path}, &children)
		switch {
		case err == nil:
			others := queue.Members(children.Children, append(slices.Clone(queued.rule.Markers), queue.LatchName, queue.LeaseName))
			if len(others) == 0 {
				return nil
			}
			return badArgument{fmt.Errorf("%s is in use by a lock of another kind, which has %s: give the semaphore a path of its own", path, shown(others[0].Name))}
		case answer.IsRefusal(err): // it is not there, or we may not look
			return nil
		case err == link.ErrCtxEnded, z.IsOver(), errors.Is(err, ErrClosed):
			return err
		}
		if err := z.PauseUnder(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

// nearTheEnd says whether a node's suffix is near the end of the lock root's counter. Then zklock starts the counter again
// when the queue is empty, by making the root anew.
func (r *lockRoot) nearTheEnd(node string) bool {
	mem, ok := queue.Parse(node[len(r.path)+1:], r.rule.Markers)
	return ok && (mem.PastTheEnd() || mem.Seq >= queue.CounterNearEnd)
}

// warnOfTheEnd logs that the counter is near its end: once, or at most a few times, for each lock path and Session.
func (r *lockRoot) warnOfTheEnd(e *era, node string) {
	if !r.nearTheEnd(node) {
		return
	}
	before := r.roots.noted(r.path, func(n rootNotes) rootNotes {
		n.warned = true
		return n
	})
	if !before.warned {
		e.Log.Warn("zklock: the lock root's sequence counter is near its end; zklock starts it again when the queue is empty",
			"path", r.path, "node", node)
	}
}

// erase has a lock node deleted, and its leases with it. If the node was near the end of the counter, it then starts the counter
// again: restarted has what came of that (startAgain), otherwise it is nil. The same goes for the leases and their counter. A mark is
// taken back with the node.
func (r *lockRoot) erase(e *era, mark *nodes.Mark, node string, leases ...string) (x *nodes.Deletion, restarted <-chan error) {
	if mark != nil {
		x = e.reaper.EraseMarked(node, mark)
	} else {
		x = e.reaper.EraseAll(append([]string{node}, leases...))
	}
	restarted = r.restarting(e, node, x)
	if len(leases) > 0 && restarted == nil {
		restarted = r.permits.leases.restarting(e, leases[0], x)
	}
	return x, restarted
}

// release is erase for a hold. It also passes the turn to the next in line, if that is a node of this ZooKeeper session. Permits
// pass none: the next in line looks at the leases.
func (r *lockRoot) release(e *era, held []string, downgraded bool, mark *nodes.Mark) *nodes.Deletion {
	if r.permits != nil {
		x := e.reaper.EraseAll(held)
		r.permits.leases.restarting(e, held[0], x)
		return x
	}
	return r.handOver(e, held[0], downgraded, mark)
}

func (r *lockRoot) handOver(e *era, node string, downgraded bool, mark *nodes.Mark) *nodes.Deletion {
	x := e.reaper.HandOver(node, r.rule, downgraded, mark)
	r.restarting(e, node, x)
	return x
}

func (r *lockRoot) restarting(e *era, node string, x *nodes.Deletion) <-chan error {
	if !r.nearTheEnd(node) {
		return nil
	}
	restarted := make(chan error, 1)
	e.Carrier.Spawn(func() {
		select {
		case <-x.Done:
			err := r.startAgain(e)
			if err != nil {
				e.Log.Warn("zklock: could not remove the empty lock root to start its sequence counter again", "path", r.path, "err", err)
			}
			restarted <- err
		case <-e.Over():
		}
	})
	return restarted
}

// startAgain removes the lock root if it is empty, and if we would make it again just as it is. (A Stat does not tell a
// container from a persistent node.) A root with a record of ours is made again with it in one transaction: it may say that a holder
// disappeared. The deletion fails if somebody has queued meanwhile. The error says why the
// empty root stays. If somebody else makes the root anew between the look and the deletion, it is that root that
// goes, as empty as it is.
func (r *lockRoot) startAgain(e *era) error {
	ctx := context.Background()
	var root wire.DataResponse
	if _, err := e.Read(ctx, wire.OpGetData, wire.PathWatchRequest{Path: r.path}, &root); err != nil {
		return ignoring(answer.Denied(err, "get", "READ", r.path), zk.ErrNoNode)
	}
	record, isOurs := queue.ParseRecord(root.Data)
	created := (uint32(root.Stat.Cversion) + uint32(root.Stat.NumChildren)) / 2 // children ever: Cversion counts deletions too
	switch {
	case created < queue.CounterNearEnd, root.Stat.NumChildren > 0:
		return nil
	case !isOurs:
		return fmt.Errorf("%s has data of somebody else", r.path)
	}
	var acl wire.ACLResponse
	if _, err := e.Read(ctx, wire.OpGetACL, wire.PathRequest{Path: r.path}, &acl); err != nil {
		return ignoring(answer.Denied(err, "getACL", "READ", r.path), zk.ErrNoNode)
	}
	same := func(is, ours wire.ACL) bool { // servers put the user in the place of the scheme auth
		return is.Perms == ours.Perms && (is.ID == ours.ID || ours.ID.Scheme == "auth")
	}
	if !slices.EqualFunc(acl.ACL, wireACL(r.acl), same) {
		return fmt.Errorf("%s has another ACL than the Mutex gives it (WithACL)", r.path)
	}
	ops := []wire.MultiOp{{Op: wire.OpCheck, Path: r.path, Version: root.Stat.Version}, {Op: wire.OpDelete, Path: r.path, Version: -1}}
	if record != "" {
		ops = append(ops, wire.MultiOp{Op: wire.OpCreate, Create: wire.CreateRequest{Path: r.path, Data: []byte(record), ACL: wireACL(r.acl), Flags: wire.FlagPersistent}})
	}
	i, err := e.Multi(ctx, wire.MultiRequest{Ops: ops}, false)
	if i == 2 {
		err = answer.Denied(err, "create", "CREATE", parentOf(r.path))
	}
	if err == nil {
		e.Log.Info("zklock: removed the empty lock root to start its sequence counter again", "path", r.path)
	}
	return ignoring(answer.Denied(err, "delete", "DELETE", parentOf(r.path)), zk.ErrNotEmpty, zk.ErrNoNode, zk.ErrBadVersion)
}
