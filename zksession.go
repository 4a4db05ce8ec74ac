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

// zkSession is one ZooKeeper session with everything that the locks have in it. The link created
// the embedded part; the remaining fields belong to the locks.
type zkSession struct {
	*link.ZKSession
	lists    *nodes.Lists
	nodes    *nodes.Own
	reaper   *nodes.Reaper
	watches  *watcher
	attempts atomic.Int32 // attempts that are under way in this session
}

func newZKSession(z *link.ZKSession, maxLockNodes int) *zkSession {
	e := &zkSession{ZKSession: z, lists: nodes.NewLists(z), nodes: nodes.NewOwn(maxLockNodes)}
	e.reaper = nodes.NewReaper(z, e.lists, e.nodes)
	e.watches = newWatcher(z, e.nodes)
	return e
}

// attachedSession waits until requests can be sent, and returns the ZooKeeper session in which they
// will be sent.
func attachedSession(ctx context.Context, l *link.Link) (*zkSession, error) {
	z, err := l.Attached(ctx)
	if err != nil {
		return nil, err
	}
	return z.Inside.(*zkSession), nil // created by linkOptions
}

// Event implements link.Inside, like the methods below.
func (e *zkSession) Event(ev wire.WatcherEvent) { e.watches.fire(ev) }

func (e *zkSession) Restore(before int64) []*mux.Request { return e.watches.restore(before) }

// Waiting returns the number of queued attempts. busy reports that an attempt is under way, which
// may wait for a reply before it has a node, or that a node is being deleted.
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

// dataRead is the result of a read of a node's data.
type dataRead struct {
	data []byte
	stat wire.Stat
	conn uint64
	err  error
}

// startRead sends a read of a node's data. The channel gets the result.
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
