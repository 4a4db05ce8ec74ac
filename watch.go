package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// One watch, its states, and the events that it can miss. watcher.go has the watches of a session.

// watch is one watch on one node, shared by all its users. The last user that leaves removes it
// (leave), so that nothing is watched unless a caller waits for it (I7).
//
//	arming ──▶ armed ──▶ fired
//	   └─────▶ failed ─▶ fired, if the node does not exist
type watch struct {
	watchKey
	armed chan struct{} // closed when the response to the request that sets the watch has arrived; the fields below are then set
	err   error         // why the watch could not be set
	none  bool          // the node did not exist, and the watch waits for its creation
	stat  wire.Stat     // of the node
	data  []byte        // the beginning of the node's data; all of the data if the node is observed
	conn  uint64        // the connection over which the response arrived. On a later connection the watch is restored, and is only a hint.

	fired chan struct{} // closed when the event has arrived; the field below is then set
	event zk.EventType

	// Guarded by the watcher.
	users int // callers that have started the watch and have not left
}

// watchKey identifies a watch. The operation that sets the watch determines its events: getData,
// the node's deletion and changes of its data; exists, its creation too; getChildren2, its deletion
// and changes of its children.
type watchKey struct {
	path string
	op   wire.Op
	use  watchUse
}

// watchUse distinguishes the users of a watch. Each use has a watch of its own on a node.
type watchUse uint8

const (
	ofWaiters   watchUse = iota
	ofObservers          // they get all of the data
)

func (k watchKey) isOfChildren() bool { return k.op == wire.OpGetChildren2 }

// maxShown limits the bytes of a node's data that logs and errors show.
const maxShown = 64

// waitArmed waits until the watch is set or has failed.
func (w *watch) waitArmed(ctx context.Context, z *link.ZKSession) error {
	if _, err := link.Await(ctx, z, w.armed); err != nil {
		return err
	}
	return w.err
}

// isActive reports whether the watch has that key and will fire.
func (w *watch) isActive(key watchKey) bool {
	return w != nil && w.watchKey == key && !w.hasFired() && !w.hasFailed()
}

// decode decodes the response to the operation that sets the watch. Only exists sets a watch on a
// node that does not exist.
func (k watchKey) decode(a mux.Reply) (data wire.DataResponse, none bool, err error) {
	if err = reply.ErrOf(a); err != nil {
		if k.op == wire.OpExists && errors.Is(err, zk.ErrNoNode) {
			return data, true, nil
		}
		return data, false, err
	}
	switch k.op {
	case wire.OpGetChildren2:
		var children wire.ChildrenStatResponse
		err = a.Decode(&children)
		data.Stat = children.Stat
	case wire.OpExists:
		err = a.Decode(&data.Stat)
	default:
		err = a.Decode(&data)
	}
	return data, false, err
}

// isArmed reports whether the response to the watch's request has arrived.
func (w *watch) isArmed() bool { return isClosed(w.armed) }

// hasFailed reports whether the watch was requested and could not be set.
func (w *watch) hasFailed() bool { return w.isArmed() && w.err != nil }

// hasFired reports whether the watch's event has arrived.
func (w *watch) hasFired() bool { return isClosed(w.fired) }

// hasMissed reports whether the node's present Stat, or zk.ErrNoNode, shows that the watch should
// have fired.
func (w *watch) hasMissed(now *wire.Stat, err error) bool {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return !w.none
	case err != nil:
		return false
	}
	if w.isOfChildren() {
		return now.Cversion != w.stat.Cversion
	}
	return w.none || now.Mzxid != w.stat.Mzxid
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
