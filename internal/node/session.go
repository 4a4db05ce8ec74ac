package node

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// ZKSession is one ZooKeeper session with everything that the locks have in it. The link created
// the embedded part; the remaining fields belong to the locks.
type ZKSession struct {
	*link.ZKSession
	Lists    *Lists
	Own      *Own
	Reaper   *Reaper
	Watches  *Watches
	attempts atomic.Int32 // attempts that are under way in this session
}

// NewZKSession returns the locks' part of a session, which may have up to maxLockNodes nodes.
func NewZKSession(z *link.ZKSession, maxLockNodes int) *ZKSession {
	e := &ZKSession{ZKSession: z, Lists: newLists(z), Own: newOwn(maxLockNodes)}
	e.Reaper = newReaper(z, e.Lists, e.Own)
	e.Watches = newWatches(z, e.Own)
	return e
}

// AttachedSession waits until requests can be sent, and returns the ZooKeeper session in which they
// will be sent.
func AttachedSession(ctx context.Context, l *link.Link) (*ZKSession, error) {
	z, err := l.Attached(ctx)
	if err != nil {
		return nil, err
	}
	return z.Inside.(*ZKSession), nil // created by linkOptions
}

// Event passes an event to its watches. The methods up to NodeEnded implement link.Inside.
func (e *ZKSession) Event(ev wire.WatcherEvent) { e.Watches.fire(ev) }

// Restore returns the requests that set the watches again on a new connection.
func (e *ZKSession) Restore(before int64) []*mux.Request { return e.Watches.restore(before) }

// Waiting returns the number of queued attempts. busy reports that an attempt is under way, which
// may wait for a reply before it has a node, or that a node is being deleted.
func (e *ZKSession) Waiting() (queued int, busy bool) {
	return e.Watches.queued(), e.attempts.Load() > 0 || e.Reaper.Deleting() > 0
}

// NodeEnded notes that a held node was deleted or, if gone is false, deletes it.
func (e *ZKSession) NodeEnded(node string, gone bool) {
	if gone {
		e.Own.Gone(node)
	} else {
		e.Reaper.Delete(node)
	}
}

// Attempting counts the attempts that are under way in this session.
func (e *ZKSession) Attempting(n int32) { e.attempts.Add(n) }

// DataRead is the result of a read of a node's data.
type DataRead struct {
	Data []byte
	Stat wire.Stat
	Conn uint64
	Err  error
}

// StartRead sends a read of a node's data. The channel gets the result.
func (e *ZKSession) StartRead(path string) <-chan DataRead {
	ch := make(chan DataRead, 1)
	r := mux.NewRequest(wire.OpGetData, wire.PathWatchRequest{Path: path}, func(got mux.Reply) {
		var node wire.DataResponse
		err := reply.ErrOf(got)
		if err == nil {
			err = got.Decode(&node)
		}
		ch <- DataRead{slices.Clone(node.Data), node.Stat, got.Conn, err}
	})
	if !e.Carrier.Send(e.ZKSession, r) {
		ch <- DataRead{Err: zk.ErrConnectionClosed}
	}
	return ch
}
