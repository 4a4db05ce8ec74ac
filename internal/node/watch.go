package node

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// One watch, its states, and the events that it can miss. watches.go has the watches of a session.

// Watch is one watch on one node, shared by all its users. The last user that leaves removes it
// (Leave), so that nothing is watched unless a caller waits for it (I7).
//
//	arming ──▶ armed ──▶ fired
//	   └─────▶ failed ─▶ fired, if the node does not exist
type Watch struct {
	WatchKey
	armed chan struct{} // closed when the response to the request that sets the watch has arrived; the fields below are then set
	Err   error         // why the watch could not be set
	none  bool          // the node did not exist, and the watch waits for its creation
	Stat  wire.Stat     // of the node
	Data  []byte        // the beginning of the node's data; all of the data if the node is observed
	Conn  uint64        // the connection over which the response arrived. On a later connection the watch is restored, and is only a hint.

	Fired chan struct{} // closed when the event has arrived; the field below is then set
	Event zk.EventType

	// Guarded by Watches.
	users int // callers that have started the watch and have not left
}

// WatchKey identifies a watch. The operation that sets the watch determines its events: getData,
// the node's deletion and changes of its data; exists, its creation too; getChildren2, its deletion
// and changes of its children.
type WatchKey struct {
	Path     string
	Op       wire.Op
	Observed bool // its users are observers, which get all of the data; waiters have a watch of their own
}

func (k WatchKey) isOfChildren() bool { return k.Op == wire.OpGetChildren2 }

// MaxShown limits the bytes of a node's data that logs and errors show.
const MaxShown = 64

// WaitArmed waits until the watch is set or has failed: the error is that of the read that sets it,
// zk.ErrNoNode if the node does not exist.
func (w *Watch) WaitArmed(ctx context.Context, z *link.ZKSession) error {
	if _, err := link.Await(ctx, z, w.armed); err != nil {
		return err
	}
	return w.Err
}

// IsActive reports whether the watch has that key and will fire.
func (w *Watch) IsActive(key WatchKey) bool {
	return w != nil && w.WatchKey == key && !w.HasFired() && !w.HasFailed()
}

// decode decodes the response to the operation that sets the watch. Only exists sets a watch on a
// node that does not exist.
func (k WatchKey) decode(a mux.Reply) (data wire.DataResponse, none bool, err error) {
	if err = reply.ErrOf(a); err != nil {
		if k.Op == wire.OpExists && errors.Is(err, zk.ErrNoNode) {
			return data, true, nil
		}
		return data, false, err
	}
	switch k.Op {
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

// IsArmed reports whether the response to the watch's request has arrived.
func (w *Watch) IsArmed() bool { return link.IsClosed(w.armed) }

// HasFailed reports whether the watch was requested and could not be set.
func (w *Watch) HasFailed() bool { return w.IsArmed() && w.Err != nil }

// HasFired reports whether the watch's event has arrived.
func (w *Watch) HasFired() bool { return link.IsClosed(w.Fired) }

// hasMissed reports whether the node's present Stat, or zk.ErrNoNode, shows that the watch should
// have fired.
func (w *Watch) hasMissed(now *wire.Stat, err error) bool {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return !w.none
	case err != nil:
		return false
	}
	if w.isOfChildren() {
		return now.Cversion != w.Stat.Cversion
	}
	return w.none || now.Mzxid != w.Stat.Mzxid
}
