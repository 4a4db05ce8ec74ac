package zklock

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// zkSession is one ZooKeeper session with all that locks have in it. What it embeds, the link made; the rest is the locks' own.
type zkSession struct {
	*link.ZKSession
	lists    *nodes.Lists
	nodes    *nodes.Own
	reaper   *nodes.Reaper
	watches  *watcher
	attempts atomic.Int32 // under way in this session
}

func newZKSession(z *link.ZKSession, maxLockNodes int) *zkSession {
	e := &zkSession{ZKSession: z, lists: nodes.NewLists(z), nodes: nodes.NewOwn(maxLockNodes)}
	e.reaper = nodes.NewReaper(z, e.lists, e.nodes)
	e.watches = newWatcher(z, e.nodes)
	return e
}

// attachedSession waits until requests can be sent, and returns the ZooKeeper session they will go out in.
func attachedSession(ctx context.Context, l *link.Link) (*zkSession, error) {
	z, err := l.Attached(ctx)
	if err != nil {
		return nil, err
	}
	return z.Inside.(*zkSession), nil // which linkOptions opens
}

// Event is for link.Inside, as are the methods below.
func (e *zkSession) Event(ev wire.WatcherEvent) { e.watches.fire(ev) }

func (e *zkSession) Restore(before int64) []*mux.Request { return e.watches.restore(before) }

// Waiting counts attempts, which may wait for an answer before they have a node, and nodes that are being deleted.
func (e *zkSession) Waiting() (queued int, busy bool) {
	return e.watches.queued(), e.attempts.Load() > 0 || e.reaper.Deleting() > 0
}

func (e *zkSession) NodeEnded(node string, gone bool) {
	if gone {
		e.nodes.Gone(node)
	} else {
		e.reaper.Delete(node)
	}
}

// dataRead is the answer to a read of a node's data.
type dataRead struct {
	data []byte
	stat wire.Stat
	conn uint64
	err  error
}

// startRead asks for a node's data.
func (e *zkSession) startRead(path string) <-chan dataRead {
	ch := make(chan dataRead, 1)
	r := mux.NewRequest(wire.OpGetData, wire.PathWatchRequest{Path: path}, func(got mux.Reply) {
		var node wire.DataResponse
		err := reply.ErrOf(got)
		if err == nil {
			err = got.Decode(&node)
		}
		ch <- dataRead{slices.Clone(node.Data), node.Stat, got.Conn, err}
	})
	if !e.Carrier.Send(e.ZKSession, r) {
		ch <- dataRead{err: zk.ErrConnectionClosed}
	}
	return ch
}
