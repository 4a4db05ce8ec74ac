package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// lockRoot is the node above a queue. It knows how to make it, and how to start its sequence counter again.
type lockRoot struct {
	path      string // absolute
	chroot    string // "" for none; it is not made
	given     string // as given to NewMutex
	acl       []zk.ACL
	container bool
	markers   []string // the name endings that take part in the queue
	roots     *roots
}

// roots is what a Session remembers of lock roots.
type roots struct {
	mu     sync.Mutex
	byPath map[string]rootNotes
}

type rootNotes struct {
	there, warned bool
}

// maxKnownRoots bounds what a Session remembers, also if each order has a lock path of its own (I7).
const maxKnownRoots = 4096

// noted changes what is remembered of a lock root, and returns what was.
func (r *roots) noted(path string, change func(*rootNotes)) (before rootNotes) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.byPath[path]
	now := before
	switch change(&now); {
	case now == (rootNotes{}):
		delete(r.byPath, path)
		return before
	case r.byPath == nil, before == (rootNotes{}) && len(r.byPath) >= maxKnownRoots:
		r.byPath = make(map[string]rootNotes) // full: forget all notes; they only save round trips and warnings
	}
	r.byPath[path] = now
	return before
}

// wasThere says whether the lock root was there when this Session last saw it.
func (r *lockRoot) wasThere() bool {
	return r.roots.noted(r.path, func(*rootNotes) {}).there
}

func (r *lockRoot) note(there bool) {
	r.roots.noted(r.path, func(n *rootNotes) { n.there = there })
}

// make makes the lock root and the parents it lacks, from the lowest that is there, below the chroot. It does not matter if
// somebody else makes one first, or deletes one in between.
func (r *lockRoot) make(ctx context.Context, e *era) error {
	path, backoff := r.path, newBackoff()
	for {
		err := r.makeNode(ctx, e, path)
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
			return causeOf(ctx)
		case e.isOver():
			return e.overErr()
		case errors.Is(err, ErrClosed):
			return err
		case isRefusal(err):
			return fmt.Errorf("making %s: %w", path, err)
		}
		if !e.pause(backoff.next()) {
			return e.overErr()
		}
	}
}

func errNoChroot(chroot string) error {
	return fmt.Errorf("%w: make %s, or give WithCreateChroot to Connect", ErrNoChroot, chroot)
}

func (r *lockRoot) makeNode(ctx context.Context, e *era, path string) error {
	if path == r.path && r.container {
		_, err := e.ask(ctx, wire.OpCreateContainer, wire.CreateRequest{Path: path, ACL: wireACL(r.acl), Flags: wire.FlagContainer})
		if serverCode(err) != wire.Unimplemented {
			return denied(err, "create", "CREATE", parentOf(path))
		}
	}
	_, err := e.ask(ctx, wire.OpCreate, wire.CreateRequest{Path: path, ACL: wireACL(r.acl), Flags: wire.FlagPersistent})
	return denied(err, "create", "CREATE", parentOf(path))
}

// nearTheEnd says whether a node's suffix is near the end of the lock root's counter. Then zklock starts the counter again
// when the queue is empty, by making the root anew.
func (r *lockRoot) nearTheEnd(node string) bool {
	mem, ok := parseMember(node[len(r.path)+1:], r.markers)
	return ok && (mem.pastTheEnd() || mem.seq >= counterNearEnd)
}

// warnOfTheEnd logs that the counter is near its end: once, or at most a few times, for each lock path and Session.
func (r *lockRoot) warnOfTheEnd(e *era, node string) {
	if r.nearTheEnd(node) && !r.roots.noted(r.path, func(n *rootNotes) { n.warned = true }).warned {
		e.log.warn("zklock: the lock root's sequence counter is near its end; zklock starts it again when the queue is empty",
			"path", r.path, "node", node)
	}
}

// erase has a lock node deleted, and starts the counter again if the node was near its end.
func (r *lockRoot) erase(e *era, node string) *erasure { return r.restarting(e, node, e.erase(node)) }

// release is erase for a hold. It also passes the turn to the next in line, if that is a node of this ZooKeeper session.
func (r *lockRoot) release(e *era, node string) *erasure {
	return r.restarting(e, node, e.handOver(node, r.markers))
}

func (r *lockRoot) restarting(e *era, node string, x *erasure) *erasure {
	if r.nearTheEnd(node) {
		e.carrier.spawn(func() {
			select {
			case <-x.done:
				r.startAgain(e)
			case <-e.over:
			}
		})
	}
	return x
}

// oldRecord begins the data that an earlier version of zklock left in lock roots.
const oldRecord = "zklock/1 "

// startAgain removes the lock root if it is empty, and if we would make it again just as it is. (A Stat does not tell a
// container from a persistent node.) The deletion fails if somebody has queued meanwhile.
func (r *lockRoot) startAgain(e *era) {
	var root wire.DataResponse
	_, err := e.read(context.Background(), wire.OpGetData, wire.PathWatchRequest{Path: r.path}, &root)
	created := (uint32(root.Stat.Cversion) + uint32(root.Stat.NumChildren)) / 2 // children ever: Cversion counts deletions too
	if err != nil || root.Stat.NumChildren > 0 || created < counterNearEnd {
		return
	}
	if len(root.Data) > 0 && !strings.HasPrefix(string(root.Data), oldRecord) {
		return
	}
	var acl wire.ACLResponse
	_, err = e.read(context.Background(), wire.OpGetACL, wire.PathRequest{Path: r.path}, &acl)
	if err != nil || !slices.Equal(acl.ACL, wireACL(r.acl)) {
		return
	}
	_, err = e.multi(context.Background(), wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCheck, Path: r.path, Version: root.Stat.Version}, {Op: wire.OpDelete, Path: r.path, Version: -1},
	}}, false)
	switch {
	case err == nil:
		e.log.info("zklock: removed the empty lock root to start its sequence counter again", "path", r.path)
	case errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
	default:
		e.log.warn("zklock: could not remove the empty lock root to start its sequence counter again", "path", r.path, "err", err)
	}
}
