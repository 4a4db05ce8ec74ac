package node

import (
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/wire"
)

// The watches of one ZooKeeper session: set, shared, removed, and restored after a reconnect.
// check.go checks them for lost events.

// Watches manages the watches of one ZooKeeper session: at most one of each kind on a path (I7).
type Watches struct {
	z     *link.ZKSession
	nodes *Own

	mu struct {
		invariants.Mutex
		watches  map[WatchKey]*Watch // watches that have not fired
		queued   int                 // attempts that have a node and wait
		checking bool                // checkWatches is running
		since    int64               // restore the watches as of this zxid, the last one of the last connection on which all of them were set
		missing  int                 // requests without a response that restore watches on the present connection
	}
}

func newWatches(z *link.ZKSession, nodes *Own) *Watches {
	w := &Watches{z: z, nodes: nodes}
	w.mu.watches = make(map[WatchKey]*Watch)
	w.mu.OnUnlock(w.checkInvariants)
	return w
}

// checkInvariants is run when the mutex is unlocked.
func (w *Watches) checkInvariants() {
	if !invariants.Enabled {
		return
	}
	for key, on := range invariants.Sample(w.mu.watches) {
		invariants.Check(on.WatchKey == key, "a watch is kept under its key", "under %v there is the watch %v", key, on.WatchKey)
		invariants.Check(on.users > 0, "a watch is not kept without a caller (I7)", "%v has %d callers", key, on.users)
		invariants.Check(!on.HasFired() && !on.HasFailed(), "a watch is kept until it fires or fails", "%v: fired %t, failed %t", key, on.HasFired(), on.HasFailed())
	}
	invariants.Check(w.mu.queued >= 0, "each caller that waits is counted once", "%d wait", w.mu.queued)
	invariants.Check(w.mu.checking || w.mu.queued == 0 && len(w.mu.watches) == 0, "missed events are looked for while anything is watched or waits (F30)",
		"%d watches, %d callers wait", len(w.mu.watches), w.mu.queued)
}

// StartWatch joins the watch on path, or sets one, which outlives the caller.
func (w *Watches) StartWatch(path string) *Watch {
	return w.start(WatchKey{Path: path, Op: wire.OpGetData})
}

// start is startWatch for any watch. The user must leave the watch, unless the node is our own:
// that watch ends when its node is deleted, and until then it notifies the hold of a loss.
func (w *Watches) start(key WatchKey) *Watch {
	w.mu.Lock()
	if on := w.mu.watches[key]; on != nil {
		on.users++
		w.mu.Unlock()
		return on
	}
	// Registered before the request is sent, because the event can arrive before the response is
	// read here.
	on := &Watch{WatchKey: key, armed: make(chan struct{}), Fired: make(chan struct{}), users: 1}
	w.mu.watches[key] = on
	mustStart := !w.mu.checking
	w.mu.checking = true
	w.mu.Unlock()
	if mustStart {
		w.z.Carrier.Spawn(w.checkWatches)
	}
	r := mux.NewRequest(key.Op, wire.PathWatchRequest{Path: key.Path, Watch: true}, func(a mux.Reply) { w.armed(on, a) })
	if !w.z.Carrier.Send(w.z, r) {
		w.armed(on, mux.Reply{Fate: mux.NeverSent})
	}
	return on
}

// Keep returns the watch that a user needs from now on. If the user already has that watch and it
// will fire, keep returns it. Otherwise keep starts that watch, and leaves the user's previous one.
func (w *Watches) Keep(has *Watch, key WatchKey) *Watch {
	if has.IsActive(key) {
		return has
	}
	next := w.start(key)
	w.Leave(has)
	return next
}

// Leave ends one use of the watch: each start needs one leave. A nil watch is allowed. The last
// user that leaves removes the watch, unless it has fired. The server's watch remains until it
// fires or the connection ends if another watch of ours needs the event, or if the user may have
// set one over Session.Conn (the mux tracks that), because servers keep one watch for all.
//
// The event may arrive before the removal reaches the server. The server then finds no watch, and
// its response reports that. Or another caller starts the watch while the removal is under way. If
// the response that arms its watch arrives before the removal's, then so did its request, and it
// was removed with ours: that caller is woken to check again. A watch that is not armed by then was
// requested after the removal, and lasts.
func (w *Watches) Leave(on *Watch) {
	if on == nil {
		return
	}
	w.mu.Lock()
	on.users--
	isLast := on.users == 0 && w.mu.watches[on.WatchKey] == on
	if isLast {
		w.endLocked(on, zk.EventNotWatching)
	}
	isLast = isLast && len(w.sameLocked(on.Path, on.isOfChildren())) == 0
	w.mu.Unlock()
	if !isLast {
		return
	}
	ask := wire.WatchesRequest{Path: on.Path, Type: wire.WatcherData}
	if on.isOfChildren() {
		ask.Type = wire.WatcherChildren
	}
	w.z.Carrier.Send(w.z, mux.NewRequest(wire.OpRemoveWatches, ask, func(a mux.Reply) {
		if a.Fate != mux.WasAnswered || a.Code != wire.OK {
			return
		}
		w.mu.Lock()
		since := w.sameLocked(on.Path, on.isOfChildren())
		w.mu.Unlock()
		for _, other := range since {
			if other.IsArmed() {
				w.wakeUsers(other)
			}
		}
	}))
}

// sameLocked returns our watches that share one watch on the server: the watch on a node or, if
// ofChildren is true, on its children.
func (w *Watches) sameLocked(path string, ofChildren bool) (same []*Watch) {
	for _, op := range []wire.Op{wire.OpGetData, wire.OpExists, wire.OpGetChildren2} {
		for _, observed := range []bool{false, true} {
			on := w.mu.watches[WatchKey{path, op, observed}]
			if on != nil && on.isOfChildren() == ofChildren {
				same = append(same, on)
			}
		}
	}
	return same
}

// armed handles the response to the read that sets a watch. It runs on the client's reading
// goroutine, in the order of the frames.
func (w *Watches) armed(on *Watch, a mux.Reply) {
	data, none, err := on.decode(a)
	w.mu.Lock()
	on.Conn, on.none = a.Conn, none
	if err != nil {
		on.Err = err
		if w.mu.watches[on.WatchKey] == on { // a read that fails sets no watch; without a response, the next caller sets it again
			delete(w.mu.watches, on.WatchKey)
			if errors.Is(err, zk.ErrNoNode) { // no further event will arrive
				on.Event = zk.EventNodeDeleted
				close(on.Fired)
			}
		}
	} else {
		if !on.Observed {
			data.Data = data.Data[:min(len(data.Data), MaxShown)]
		}
		on.Stat, on.Data = data.Stat, slices.Clone(data.Data)
	}
	w.mu.Unlock()
	close(on.armed)
}

// restore returns requests that set the watches of the last connection again on a new one. before
// is the last zxid seen on the last connection: the server sends the events of nodes that have
// changed since.
func (w *Watches) restore(before int64) (rs []*mux.Request) {
	const overhead, each = 28, 4                 // bytes of the request, and of each path in addition to its text
	most := min(128<<10, w.z.Longest) - overhead // 128 KiB, like the Java client
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.missing == 0 { // otherwise, events since the earlier zxid may not have arrived yet
		w.mu.since = before
	}
	var active []*Watch
	for _, on := range w.mu.watches {
		if on.IsArmed() {
			active = append(active, on)
		}
	}
	for len(active) > 0 {
		ask, n := wire.SetWatchesRequest{RelativeZxid: w.mu.since}, 0
		for size := 0; n < len(active) && (n == 0 || size+len(active[n].Path)+each <= most); n++ {
			paths := &ask.Data
			switch on := active[n]; {
			case on.isOfChildren():
				paths = &ask.Child
			case on.none:
				paths = &ask.Exist
			}
			*paths, size = append(*paths, active[n].Path), size+len(active[n].Path)+each
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
func (w *Watches) restored(them []*Watch, a mux.Reply) {
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

// CountWaiters counts attempts that wait. While there are any, the Session sends requests often
// enough that a grant can renew the lease immediately.
func (w *Watches) CountWaiters(n int) {
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

func (w *Watches) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.queued
}

// wakeUsers wakes the users of a watch whose event may be lost. They list, and set another watch.
// The state of this node proves nothing about their own nodes, because the events of those may be
// lost too.
func (w *Watches) wakeUsers(on *Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.watches[on.WatchKey] == on {
		w.endLocked(on, zk.EventNotWatching)
	}
}

// endLocked ends a watch: its event has arrived, or will not be needed.
func (w *Watches) endLocked(on *Watch, event zk.EventType) {
	delete(w.mu.watches, on.WatchKey)
	on.Event = event
	close(on.Fired)
}

// fire passes an event to its watches. It runs on the client's goroutine, in the order in which the
// server sent the events. Events are hints: queue.Machine decides
// whether they prove anything.
func (w *Watches) fire(ev wire.WatcherEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	event := zk.EventType(ev.Type)
	fired := w.sameLocked(ev.Path, event == zk.EventNodeChildrenChanged)
	if event == zk.EventNodeDeleted { // otherwise the server keeps the watches of the other kind
		fired = append(fired, w.sameLocked(ev.Path, true)...)
	}
	for _, on := range fired {
		w.endLocked(on, event)
	}
}
