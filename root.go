package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// Lock roots: the node under which a queue stands, its parents, and its sequence counter.

// makeRoot makes the lock root and the parents it lacks, from the lowest that is there. Whoever makes one first, or
// takes one away in between, does not matter.
func (m *Mutex) makeRoot(ctx context.Context, e *era) error {
	path, backoff := m.root, newBackoff()
	for {
		err := m.makeNode(ctx, e, path)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			if path == m.root {
				return nil
			}
			path = m.root[:len(path)+1+strings.IndexByte(m.root[len(path)+1:]+"/", '/')]
			continue
		case errors.Is(err, zk.ErrNoNode):
			if i := strings.LastIndexByte(path, '/'); i > 0 {
				path = path[:i]
				continue
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case e.isOver():
			return e.overErr()
		case errors.Is(err, ErrClosed):
			return err
		case refused(err):
			return fmt.Errorf("making %s: %w", path, err)
		}
		if !e.pause(backoff.next()) {
			return e.overErr()
		}
	}
}

func (m *Mutex) makeNode(ctx context.Context, e *era, path string) error {
	if path == m.root && m.opts.container {
		_, err := e.ask(ctx, wire.OpCreateContainer, wire.CreateRequest{Path: path, ACL: wireACL(m.opts.acl), Flags: wire.FlagContainer})
		if serverCode(err) != wire.Unimplemented {
			return denied(err, "create", "CREATE", parentOf(path))
		}
	}
	_, err := e.ask(ctx, wire.OpCreate, wire.CreateRequest{Path: path, ACL: wireACL(m.opts.acl), Flags: wire.FlagPersistent})
	return denied(err, "create", "CREATE", parentOf(path))
}

// maxKnownRoots bounds what a Session that uses one lock path an order remembers (I7).
const maxKnownRoots = 4096

func (e *era) knowsRoot(root string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.roots[root]
}

func (e *era) noteRoot(root string, there bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if there {
		if len(e.mu.roots) >= maxKnownRoots {
			clear(e.mu.roots) // it only saves a round trip; what is not known is found out again
		}
		e.mu.roots[root] = true
	} else {
		delete(e.mu.roots, root)
	}
}

// nearTheEnd says whether a node's suffix is so near the end of the lock root's counter that the counter should be
// started again, by making the root anew, when the queue is empty.
func (m *Mutex) nearTheEnd(node string) bool {
	mem, ok := parseMember(node[len(m.root)+1:], m.opts.markers)
	return ok && (mem.wrapped() || mem.seq >= wrapWarn)
}

// warnOfTheEnd says so once for each lock path and Session.
func (m *Mutex) warnOfTheEnd(node string) {
	if !m.nearTheEnd(node) {
		return
	}
	if _, said := m.s.warned.LoadOrStore(m.root, true); !said {
		m.s.log.warn("zklock: the lock root's sequence counter is near its end; it is started again when the queue is empty, "+
			"and past the end zklock's clients order by czxid. Do not share the lock with other clients there", "path", m.root, "node", node)
	}
}

// afterErasure starts the counter again when a node near its end has been deleted and the root is empty. The root is
// removed only if we would make it again just as it is, as far as that can be told (a Stat does not tell a container
// from a persistent node); the deletion fails if somebody has queued meanwhile.
func (m *Mutex) afterErasure(e *era, node string, x *erasure) {
	if !m.nearTheEnd(node) {
		return
	}
	m.s.spawn(func() {
		select {
		case <-x.done:
		case <-e.over:
			return
		}
		var root wire.DataResponse
		_, err := e.read(context.Background(), wire.OpGetData, wire.PathWatchRequest{Path: m.root}, &root)
		if err != nil || root.Stat.NumChildren > 0 || len(root.Data) > 0 {
			return
		}
		var acl wire.ACLResponse
		_, err = e.read(context.Background(), wire.OpGetACL, wire.PathRequest{Path: m.root}, &acl)
		if err != nil || !slices.Equal(acl.ACL, wireACL(m.opts.acl)) {
			return
		}
		_, err = e.multi(context.Background(), wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCheck, Path: m.root, Version: root.Stat.Version}, {Op: wire.OpDelete, Path: m.root, Version: -1},
		}}, false)
		switch {
		case err == nil:
			m.s.log.info("zklock: removed the empty lock root to start its sequence counter again", "path", m.root)
		case errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		default:
			m.s.log.warn("zklock: the empty lock root could not be removed to start its sequence counter again", "path", m.root, "err", err)
		}
	})
}
