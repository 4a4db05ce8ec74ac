package zklock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// watch is one watch on one node, shared by all who wait for it. To take a watch back costs a request, so a watch stays
// until it fires, and all who come use it (I7).
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

	users int // who observe it and have not left; guarded by the watcher
}

// watchKey says what is watched. The operation that sets a watch says which events it has: getData, the node's deletion and
// changes of its data; exists, its creation too; getChildren2, its deletion and changes of its children.
type watchKey struct {
	path     string
	op       wire.Op
	observed bool // by those who only look on: they get the whole data, and the last to leave takes the watch back
}

func (k watchKey) isOfChildren() bool { return k.op == wire.OpGetChildren2 }

// maxShown is how many bytes of a node's data are shown to people, at most.
const maxShown = 64

// watcher keeps the watches of one ZooKeeper session: at most one of a kind on a path (I7).
type watcher struct {
	z     *link.Era
	nodes *nodes.Own

	mu struct {
		sync.Mutex
		watches map[watchKey]*watch // not fired
		queued  int                 // attempts that have a node and wait
		users   int                 // of observed watches
		looking bool                // lookAfterWatches runs
		since   int64               // restore the watches as of this zxid: of the last connection on which all of them stood
		missing int                 // unanswered requests that restore watches on the present connection
	}
}

func newWatcher(z *link.Era, nodes *nodes.Own) *watcher {
	w := &watcher{z: z, nodes: nodes}
	w.mu.watches = make(map[watchKey]*watch)
	return w
}

// watch joins the watch on path, or sets one. It waits for the server's answer under ctx; the watch itself outlives the
// caller. The error is that of the read that sets the watch: zk.ErrNoNode if there is no node.
func (w *watcher) watch(ctx context.Context, path string) (*watch, error) {
	on := w.startWatch(path)
	return on, on.waitArmed(ctx, w.z)
}

// waitArmed waits until the watch is set, or cannot be.
func (w *watch) waitArmed(ctx context.Context, z *link.Era) error {
	if _, err := link.Await(ctx, z, w.armed); err != nil {
		return err
	}
	return w.err
}

// startWatch is watch without the wait.
func (w *watcher) startWatch(path string) *watch {
	return w.start(watchKey{path: path, op: wire.OpGetData})
}

// start is startWatch for any watch. Who starts an observed one must leave it.
func (w *watcher) start(key watchKey) *watch {
	w.mu.Lock()
	if on := w.mu.watches[key]; on != nil {
		w.useLocked(on, 1)
		w.mu.Unlock()
		return on
	}
	// Registered before the request is sent: the event can come before the answer is seen here.
	on := &watch{watchKey: key, armed: make(chan struct{}), fired: make(chan struct{})}
	w.mu.watches[key] = on
	w.useLocked(on, 1)
	neglected := !w.mu.looking
	w.mu.looking = true
	w.mu.Unlock()
	if neglected {
		w.z.Carrier.Spawn(w.lookAfterWatches)
	}
	r := tap.NewRequest(key.op, wire.PathWatchRequest{Path: key.path, Watch: true}, func(a tap.Answer) { w.armed(on, a) })
	if !w.z.Carrier.Send(w.z, r) {
		w.armed(on, tap.Answer{Fate: tap.NeverSent})
	}
	return on
}

func (w *watcher) useLocked(on *watch, n int) {
	if on.observed {
		on.users += n
		w.mu.users += n
	}
}

// sameLocked returns our watches that are one with that at the server.
func (w *watcher) sameLocked(key watchKey) (same []*watch) {
	for _, op := range []wire.Op{wire.OpGetData, wire.OpExists, wire.OpGetChildren2} {
		for _, observed := range []bool{false, true} {
			other := watchKey{key.path, op, observed}
			if on := w.mu.watches[other]; on != nil && other.isOfChildren() == key.isOfChildren() {
				same = append(same, on)
			}
		}
	}
	return same
}

// armed takes the answer to the read that sets a watch. It runs on the client's reading goroutine, in the order of the frames.
func (w *watcher) armed(on *watch, a tap.Answer) {
	data, none, err := on.decode(a)
	w.mu.Lock()
	on.conn, on.none = a.Conn, none
	if err != nil {
		on.err = err
		if w.mu.watches[on.watchKey] == on { // a read that fails sets no watch; without an answer, the next comer sets it again
			delete(w.mu.watches, on.watchKey)
			if errors.Is(err, zk.ErrNoNode) { // there is nothing more to come
				on.event = zk.EventNodeDeleted
				close(on.fired)
			}
		}
	} else {
		if !on.observed {
			data.Data = data.Data[:min(len(data.Data), maxShown)]
		}
		on.stat, on.data = data.Stat, slices.Clone(data.Data)
	}
	w.mu.Unlock()
	close(on.armed)
}

// decode reads the answer to the operation that sets the watch. Only exists sets one where there is no node.
func (k watchKey) decode(a tap.Answer) (data wire.DataResponse, none bool, err error) {
	if err = answer.ErrOf(a); err != nil {
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

// restore returns requests that set the watches of the last connection again, on a new one. before is the last zxid seen on
// the last connection: the server sends the events of nodes that have changed since.
func (w *watcher) restore(before int64) (rs []*tap.Request) {
	const maxBytes = 128 << 10 // as the Java client
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.missing == 0 { // or nobody has heard yet what happened since
		w.mu.since = before
	}
	var stood []*watch
	for _, on := range w.mu.watches {
		if on.isArmed() {
			stood = append(stood, on)
		}
	}
	for len(stood) > 0 {
		ask, n := wire.SetWatchesRequest{RelativeZxid: w.mu.since}, 0
		for size := 0; n < len(stood) && size < maxBytes; n++ {
			paths := &ask.Data
			switch on := stood[n]; {
			case on.isOfChildren():
				paths = &ask.Child
			case on.none:
				paths = &ask.Exist
			}
			*paths, size = append(*paths, stood[n].path), size+len(stood[n].path)+4
		}
		batch := stood[:n]
		stood = stood[n:]
		rs = append(rs, tap.NewRequest(wire.OpSetWatches, ask, func(a tap.Answer) { w.restored(batch, a) }))
	}
	w.mu.missing = len(rs)
	return rs
}

// restored takes the answer to a request of restore. If the server refused it, the watches will never fire.
func (w *watcher) restored(them []*watch, a tap.Answer) {
	if a.Fate != tap.WasAnswered {
		return
	}
	w.mu.Lock()
	w.mu.missing--
	w.mu.Unlock()
	if a.Code != wire.OK {
		for _, on := range them {
			w.unheard(on)
		}
	}
}

// countWaiters counts attempts that wait. While there are any, the Session asks often enough that a grant can renew the lease
// at once.
func (w *watcher) countWaiters(n int) {
	w.mu.Lock()
	w.mu.queued += n
	first := n > 0 && w.mu.queued == n
	neglected := n > 0 && !w.mu.looking
	w.mu.looking = w.mu.looking || neglected
	w.mu.Unlock()
	if first {
		w.z.Carrier.Nudge()
	}
	if neglected {
		w.z.Carrier.Spawn(w.lookAfterWatches)
	}
}

func (w *watcher) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.queued
}

// unheard wakes those who wait for a watch whose event may be lost. They list, and set another watch. What is known of this
// node says nothing about their own nodes: those events may be lost too.
func (w *watcher) unheard(on *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.watches[on.watchKey] == on {
		delete(w.mu.watches, on.watchKey)
		on.event = zk.EventNotWatching
		close(on.fired)
	}
}

// fire hands an event to its watches. It runs on the client's goroutine, in the order in which the server sent the events.
// Events are hints: the walk decides what they mean (queue.Walk).
func (w *watcher) fire(ev wire.WatcherEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	event := zk.EventType(ev.Type)
	for _, ofChildren := range []bool{false, true} {
		if event != zk.EventNodeDeleted && ofChildren != (event == zk.EventNodeChildrenChanged) {
			continue // the server keeps those watches
		}
		op := wire.OpGetData
		if ofChildren {
			op = wire.OpGetChildren2
		}
		for _, on := range w.sameLocked(watchKey{path: ev.Path, op: op}) {
			delete(w.mu.watches, on.watchKey)
			on.event = event
			close(on.fired)
		}
	}
}

// isArmed says whether the watch was asked for and answered.
func (w *watch) isArmed() bool { return isClosed(w.armed) }

// hasFailed says whether the watch was asked for and could not be set.
func (w *watch) hasFailed() bool { return w.isArmed() && w.err != nil }

// hasFired says whether the watch's event has come.
func (w *watch) hasFired() bool { return isClosed(w.fired) }

// lookAfterWatches asks about each watched node once every session timeout while anybody waits or observes, and every tenth of them
// while watches are left: an event can get lost at a server (F30). It reads a few bytes, for a queue of any length and any number of
// waiters. It also asks about the nodes of waiters that watch nothing and wait for their turn.
//
// If the node is there, that says as much as a list would. A waiter's place changes only when its own node or one of those ahead
// goes that it watches. Nobody can get in between, because numbers grow.
func (w *watcher) lookAfterWatches() {
	const (
		atATime = 16
		seldom  = 10
	)
	few := make(chan struct{}, atATime)
	for unawaited := 1; w.z.Pause(w.z.Timeout()); unawaited++ {
		conn, _, _ := w.z.AttachedConn()
		w.mu.Lock()
		if w.mu.queued == 0 && len(w.mu.watches) == 0 {
			w.mu.looking = false // the next watch or waiter begins again
			w.mu.Unlock()
			return
		}
		if w.mu.queued > 0 || w.mu.users > 0 {
			unawaited = 0
		}
		if conn == 0 || unawaited%seldom != 0 {
			w.mu.Unlock()
			continue
		}
		type look struct {
			node string
			told func(now *wire.Stat, err error)
		}
		var looks []look
		for _, on := range w.mu.watches {
			if on.isArmed() {
				looks = append(looks, look{on.path, func(now *wire.Stat, err error) {
					if on.hasMissed(now, err) { // an event would have come before an answer that shows its change
						w.unheard(on)
					}
				}})
			}
		}
		w.mu.Unlock()
		for _, on := range w.nodes.Waiting() {
			looks = append(looks, look{on.Node, func(_ *wire.Stat, err error) {
				if errors.Is(err, zk.ErrNoNode) {
					on.Tell(queue.NodeIsGone)
				}
			}})
		}
		for _, l := range looks {
			few <- struct{}{}
			if !w.z.Carrier.Spawn(func() {
				defer func() { <-few }()
				l.told(w.z.Stat(l.node))
			}) {
				return
			}
		}
	}
}

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
