package zklock

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/wire"
)

// The watches of one ZooKeeper session: set, shared, removed, and restored after a reconnect.
// watchcheck.go checks them for lost events.

// watcher manages the watches of one ZooKeeper session: at most one of each kind on a path (I7).
type watcher struct {
	z     *link.ZKSession
	nodes *nodes.Own

	mu struct {
		invariants.Mutex
		watches  map[watchKey]*watch // watches that have not fired
		queued   int                 // attempts that have a node and wait
		users    int                 // users of observed watches
		checking bool                // checkWatches is running
		since    int64               // restore the watches as of this zxid, the last one of the last connection on which all of them were set
		missing  int                 // requests without a response that restore watches on the present connection
	}
}

func newWatcher(z *link.ZKSession, nodes *nodes.Own) *watcher {
	w := &watcher{z: z, nodes: nodes}
	w.mu.watches = make(map[watchKey]*watch)
	w.mu.OnUnlock(w.checkInvariants)
	return w
}

// checkInvariants is run when the mutex is unlocked.
func (w *watcher) checkInvariants() {
	if !invariants.Enabled {
		return
	}
	observers := 0
	for key, on := range invariants.Sample(w.mu.watches) {
		invariants.Check(on.watchKey == key, "a watch is kept under its key", "under %v there is the watch %v", key, on.watchKey)
		invariants.Check(on.users > 0, "a watch is not kept without a caller (I7)", "%v has %d callers", key, on.users)
		invariants.Check(!on.hasFired() && !on.hasFailed(), "a watch is kept until it fires or fails", "%v: fired %t, failed %t", key, on.hasFired(), on.hasFailed())
		if on.use == ofObservers {
			observers += on.users
		}
	}
	invariants.Check(w.mu.users >= observers && w.mu.queued >= 0, "each caller that waits or observes is counted once",
		"%d callers observe, %d are counted; %d wait", observers, w.mu.users, w.mu.queued)
	invariants.Check(w.mu.checking || w.mu.queued == 0 && len(w.mu.watches) == 0, "missed events are looked for while anything is watched or waits (F30)",
		"%d watches, %d callers wait", len(w.mu.watches), w.mu.queued)
}

// watch joins the watch on path, or sets one. It waits for the server's response under ctx; the
// watch itself outlives the caller. The error is the error of the read that sets the watch:
// zk.ErrNoNode if the node does not exist.
func (w *watcher) watch(ctx context.Context, path string) (*watch, error) {
	on := w.startWatch(path)
	return on, on.waitArmed(ctx, w.z)
}

// startWatch is watch without the wait.
func (w *watcher) startWatch(path string) *watch {
	return w.start(watchKey{path: path, op: wire.OpGetData})
}

// start is startWatch for any watch. The user must leave the watch, unless the node is our own:
// that watch ends when its node is deleted, and until then it notifies the hold of a loss.
func (w *watcher) start(key watchKey) *watch {
	w.mu.Lock()
	if on := w.mu.watches[key]; on != nil {
		w.useLocked(on, 1)
		w.mu.Unlock()
		return on
	}
	// Registered before the request is sent, because the event can arrive before the response is
	// read here.
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
	if on.use == ofObservers {
		w.mu.users += n
	}
}

// keep returns the watch that a user needs from now on. If the user already has that watch and it
// will fire, keep returns it. Otherwise keep starts that watch, and leaves the user's previous one.
func (w *watcher) keep(has *watch, key watchKey) *watch {
	if has.isActive(key) {
		return has
	}
	next := w.start(key)
	w.leave(has)
	return next
}

// leave ends one use of the watch: each start needs one leave. A nil watch is allowed. The last
// user that leaves removes the watch, unless it has fired. The server's watch remains until it
// fires or the connection ends if another watch of ours needs the event, or if the user may have
// set one over Session.Conn (the mux tracks that), because servers keep one watch for all.
//
// The event may arrive before the removal reaches the server. The server then finds no watch, and
// its response reports that. Or another caller starts the watch while the removal is under way. If
// the response that arms its watch arrives before the removal's, then so did its request, and it was
// removed with ours: that caller is woken to check again. A watch that is not armed by then was
// requested after the removal, and lasts.
func (w *watcher) leave(on *watch) {
	if on == nil {
		return
	}
	w.mu.Lock()
	w.useLocked(on, -1)
	isLast := on.users == 0 && w.mu.watches[on.watchKey] == on
	if isLast {
		w.endLocked(on, zk.EventNotWatching)
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
		since := w.sameLocked(on.watchKey)
		w.mu.Unlock()
		for _, other := range since {
			if other.isArmed() {
				w.wakeUsers(other)
			}
		}
	}))
}

// sameLocked returns our watches that share one watch on the server with that key.
func (w *watcher) sameLocked(key watchKey) (same []*watch) {
	for _, op := range []wire.Op{wire.OpGetData, wire.OpExists, wire.OpGetChildren2} {
		for _, use := range []watchUse{ofWaiters, ofObservers} {
			other := watchKey{key.path, op, use}
			if on := w.mu.watches[other]; on != nil && other.isOfChildren() == key.isOfChildren() {
				same = append(same, on)
			}
		}
	}
	return same
}

// armed handles the response to the read that sets a watch. It runs on the client's reading
// goroutine, in the order of the frames.
func (w *watcher) armed(on *watch, a mux.Reply) {
	data, none, err := on.decode(a)
	w.mu.Lock()
	on.conn, on.none = a.Conn, none
	if err != nil {
		on.err = err
		if w.mu.watches[on.watchKey] == on { // a read that fails sets no watch; without a response, the next caller sets it again
			delete(w.mu.watches, on.watchKey)
			if errors.Is(err, zk.ErrNoNode) { // no further event will arrive
				on.event = zk.EventNodeDeleted
				close(on.fired)
			}
		}
	} else {
		if on.use != ofObservers {
			data.Data = data.Data[:min(len(data.Data), maxShown)]
		}
		on.stat, on.data = data.Stat, slices.Clone(data.Data)
	}
	w.mu.Unlock()
	close(on.armed)
}

// restore returns requests that set the watches of the last connection again on a new one. before
// is the last zxid seen on the last connection: the server sends the events of nodes that have
// changed since.
func (w *watcher) restore(before int64) (rs []*mux.Request) {
	const overhead, each = 28, 4                 // bytes of the request, and of each path in addition to its text
	most := min(128<<10, w.z.Longest) - overhead // 128 KiB, like the Java client
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.missing == 0 { // otherwise, events since the earlier zxid may not have arrived yet
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

// restored handles the response to a request of restore. If the server rejected the request, the
// watches will never fire.
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

// countWaiters counts attempts that wait. While there are any, the Session sends requests often
// enough that a grant can renew the lease immediately.
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

// wakeUsers wakes the users of a watch whose event may be lost. They list, and set another watch.
// The state of this node proves nothing about their own nodes, because the events of those may be
// lost too.
func (w *watcher) wakeUsers(on *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.watches[on.watchKey] == on {
		w.endLocked(on, zk.EventNotWatching)
	}
}

// endLocked ends a watch: its event has arrived, or will not be needed.
func (w *watcher) endLocked(on *watch, event zk.EventType) {
	delete(w.mu.watches, on.watchKey)
	on.event = event
	close(on.fired)
}

// fire passes an event to its watches. It runs on the client's goroutine, in the order in which the
// server sent the events. Events are hints: queue.Machine decides
// whether they prove anything.
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
			w.endLocked(on, event)
		}
	}
}
