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

// watch is one watch on one node, shared by all who wait for it. The last of its users to leave takes
// it back (leave), so that nothing is watched unless a caller waits for it (I7).
//
//	arming ──▶ armed ──▶ fired
//	   └─────▶ failed ─▶ fired, if there is no node
type watch struct {
	watchKey
	armed chan struct{} // closed when the request that sets it was answered; then the fields below are set
	err   error         // why it could not be set
	none  bool          // there was no node, and the watch waits for one
	stat  wire.Stat     // of the node
	data  []byte        // of the node, the beginning; the whole if it is observed
	conn  uint64        // the connection over which that was answered. On a later connection the watch is restored, and only wakes.

	fired chan struct{} // closed when its event came; then the field below is set
	event zk.EventType

	users int // callers that have started it and not left; guarded by the watcher
}

// watchKey says what is watched. The operation that sets a watch says which events it has: getData, the node's deletion and
// changes of its data; exists, its creation too; getChildren2, its deletion and changes of its children.
type watchKey struct {
	path     string
	op       wire.Op
	observed bool // by those who only look on: they get the whole data
}

func (k watchKey) isOfChildren() bool { return k.op == wire.OpGetChildren2 }

// maxShown is how many bytes of a node's data are shown to people, at most.
const maxShown = 64

// waitArmed waits until the watch is set, or cannot be.
func (w *watch) waitArmed(ctx context.Context, z *link.ZKSession) error {
	if _, err := link.Await(ctx, z, w.armed); err != nil {
		return err
	}
	return w.err
}

// isActive reports whether the watch is that one, and will fire.
func (w *watch) isActive(key watchKey) bool {
	return w != nil && w.watchKey == key && !w.hasFired() && !w.hasFailed()
}

// decode reads the answer to the operation that sets the watch. Only exists sets one where there is no node.
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

// isArmed says whether the watch was asked for and answered.
func (w *watch) isArmed() bool { return isClosed(w.armed) }

// hasFailed says whether the watch was asked for and could not be set.
func (w *watch) hasFailed() bool { return w.isArmed() && w.err != nil }

// hasFired says whether the watch's event has come.
func (w *watch) hasFired() bool { return isClosed(w.fired) }

// hasMissed says whether the node as it is now, or zk.ErrNoNode, shows that the watch should have fired.
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
