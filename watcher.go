package zklock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// watcher keeps the watches of one ZooKeeper session: at most one of a kind on a path (I7).
type watcher struct {
	z     *link.ZKSession
	nodes *nodes.Own

	mu struct {
		sync.Mutex
		watches  map[watchKey]*watch // not fired
		queued   int                 // attempts that have a node and wait
		users    int                 // of observed watches
		checking bool                // lookAfterWatches runs
		since    int64               // restore the watches as of this zxid: of the last connection on which all of them stood
		missing  int                 // unanswered requests that restore watches on the present connection
	}
}

func newWatcher(z *link.ZKSession, nodes *nodes.Own) *watcher {
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

// startWatch is watch without the wait.
func (w *watcher) startWatch(path string) *watch {
	return w.start(watchKey{path: path, op: wire.OpGetData})
}

// start is startWatch for any watch. Its user leaves it, unless it is on a node of our own: that
// watch ends with the node, and until then tells the hold of a loss.
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
	mustStart := !w.mu.checking
	w.mu.checking = true
	w.mu.Unlock()
	if mustStart {
		w.z.Carrier.Spawn(w.checkWatches)
	}
	r := mux.NewRequest(key.op, wire.PathWatchRequest{Path: key.path, Watch: true}, func(a mux.Reply) { w.armed(on, a) })
	if !w.z.Carrier.Send(w.z, r) {
		w.armed(on, mux.Reply{Fate: mux.NeverSent})
	}
	return on
}

func (w *watcher) useLocked(on *watch, n int) {
	on.users += n
	if on.observed {
		w.mu.users += n
	}
}

// keep returns the watch of a user that needs that one from now on: the one that it has, if that is
// it and will fire. Otherwise keep starts it, and leaves the one that the user has.
func (w *watcher) keep(has *watch, key watchKey) *watch {
	if has.isActive(key) {
		return has
	}
	next := w.start(key)
	w.leave(has)
	return next
}

// leave is for a user of the watch, once for each start; nil is no watch. The last to leave takes
// the watch back, unless it has fired. If another watch of ours needs the event, or the user may
// have set one over Session.Conn (the tap knows), the server's stays, until it fires or the
// connection ends: servers keep one for all.
//
// The event may come before the removal reaches the server: then it finds no watch, and the
// server's answer says so. Or another caller starts the watch while the removal is under way: then
// it may be removed with ours, so that caller looks again.
func (w *watcher) leave(on *watch) {
	if on == nil {
		return
	}
	w.mu.Lock()
	w.useLocked(on, -1)
	isLast := on.users == 0 && w.mu.watches[on.watchKey] == on
	if isLast {
		delete(w.mu.watches, on.watchKey)
	}
	isLast = isLast && len(w.sameLocked(on.watchKey)) == 0
	w.mu.Unlock()
	if !isLast {
		return
	}
	ask := wire.WatchesRequest{Path: on.path, Type: wire.WatcherData}
	if on.isOfChildren() {
		ask.Type = wire.WatcherChildren
	}
	w.z.Carrier.Send(w.z, mux.NewRequest(wire.OpRemoveWatches, ask, func(a mux.Reply) {
		if a.Fate != mux.WasAnswered || a.Code != wire.OK {
			return
		}
		w.mu.Lock()
		since := w.sameLocked(on.watchKey) // that may have been taken back with it
		w.mu.Unlock()
		for _, other := range since {
			w.wakeUsers(other)
		}
	}))
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
func (w *watcher) armed(on *watch, a mux.Reply) {
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

// restore returns requests that set the watches of the last connection again, on a new one. before is the last zxid seen on
// the last connection: the server sends the events of nodes that have changed since.
func (w *watcher) restore(before int64) (rs []*mux.Request) {
	const overhead, each = 28, 4                 // bytes of the request, and of a path beside itself
	most := min(128<<10, w.z.Longest) - overhead // 128 KiB as the Java client
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.missing == 0 { // or nobody has heard yet what happened since
		w.mu.since = before
	}
	var active []*watch
	for _, on := range w.mu.watches {
		if on.isArmed() {
			active = append(active, on)
		}
	}
	for len(active) > 0 {
		ask, n := wire.SetWatchesRequest{RelativeZxid: w.mu.since}, 0
		for size := 0; n < len(active) && (n == 0 || size+len(active[n].path)+each <= most); n++ {
			paths := &ask.Data
			switch on := active[n]; {
			case on.isOfChildren():
				paths = &ask.Child
			case on.none:
				paths = &ask.Exist
			}
			*paths, size = append(*paths, active[n].path), size+len(active[n].path)+each
		}
		batch := active[:n]
		active = active[n:]
		rs = append(rs, mux.NewRequest(wire.OpSetWatches, ask, func(a mux.Reply) { w.restored(batch, a) }))
	}
	w.mu.missing = len(rs)
	return rs
}

// restored takes the answer to a request of restore. If the server refused it, the watches will never fire.
func (w *watcher) restored(them []*watch, a mux.Reply) {
	if a.Fate != mux.WasAnswered {
		return
	}
	w.mu.Lock()
	w.mu.missing--
	w.mu.Unlock()
	if a.Code != wire.OK {
		for _, on := range them {
			w.wakeUsers(on)
		}
	}
}

// countWaiters counts attempts that wait. While there are any, the Session asks often enough that a grant can renew the lease
// at once.
func (w *watcher) countWaiters(n int) {
	w.mu.Lock()
	w.mu.queued += n
	first := n > 0 && w.mu.queued == n
	mustStart := n > 0 && !w.mu.checking
	w.mu.checking = w.mu.checking || mustStart
	w.mu.Unlock()
	if first {
		w.z.Carrier.Nudge()
	}
	if mustStart {
		w.z.Carrier.Spawn(w.checkWatches)
	}
}

func (w *watcher) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.queued
}

// wakeUsers wakes those who wait for a watch whose event may be lost. They list, and set another watch. What is known of this
// node says nothing about their own nodes: those events may be lost too.
func (w *watcher) wakeUsers(on *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.watches[on.watchKey] == on {
		delete(w.mu.watches, on.watchKey)
		on.event = zk.EventNotWatching
		close(on.fired)
	}
}

// fire hands an event to its watches. It runs on the client's goroutine, in the order in which the server sent the events.
// Events are hints: the walk decides what they mean (queue.Machine).
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

// checkWatches asks about each watched node once every session timeout while anybody waits or
// observes, and every tenth of them while there are only watches on the nodes of our holds: an
// event can get lost at a server (F30). It reads a few bytes, for a queue of any length and any
// number of waiters. It also asks about the nodes of waiters that watch nothing and wait for their
// turn.
//
// If the node is there, that says as much as a list would. A waiter's place changes only when its own node or one of those ahead
// goes that it watches. Nobody can get in between, because numbers grow.
func (w *watcher) checkWatches() {
	const (
		atATime = 16
		seldom  = 10
	)
	slots := make(chan struct{}, atATime)
	for unawaited := 1; w.z.Pause(w.z.Timeout()); unawaited++ {
		conn, _, _ := w.z.AttachedConn()
		w.mu.Lock()
		if w.mu.queued == 0 && len(w.mu.watches) == 0 {
			w.mu.checking = false // the next watch or waiter begins again
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
		type check struct {
			node string
			done func(now *wire.Stat, err error)
		}
		var checks []check
		for _, on := range w.mu.watches {
			if on.isArmed() {
				checks = append(checks, check{on.path, func(now *wire.Stat, err error) {
					if on.hasMissed(now, err) { // an event would have come before an answer that shows its change
						w.wakeUsers(on)
					}
				}})
			}
		}
		w.mu.Unlock()
		for _, on := range w.nodes.Waiting() {
			checks = append(checks, check{on.Node, func(_ *wire.Stat, err error) {
				if errors.Is(err, zk.ErrNoNode) {
					on.Notify(queue.NodeIsGone)
				}
			}})
		}
		for _, l := range checks {
			slots <- struct{}{}
			if !w.z.Carrier.Spawn(func() {
				defer func() { <-slots }()
				l.done(w.z.Stat(l.node))
			}) {
				return
			}
		}
	}
}
