package zklock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// watch is one data watch on one node, shared by all who wait for it. It cannot be taken back without a request, so a watch
// that is set is used by whoever comes, until it fires (I7).
//
//	arming ──▶ armed ──▶ fired
//	   └─────▶ failed ─▶ fired, if there is no node
type watch struct {
	path  string
	armed chan struct{} // closed when the request that sets it was answered; then the fields below are set
	err   error         // why it could not be set
	owner int64         // session of the node, from its Stat; 0 if it is not ephemeral
	conn  uint64        // the connection over which that was answered. Over a later one it is restored, and only wakes.

	fired chan struct{} // closed when its event came; then the field below is set
	event zk.EventType
}

// watcher keeps the watches of one ZooKeeper session: at most one a path (I7).
type watcher struct {
	z     *zkSession
	nodes *ownNodes

	mu struct {
		sync.Mutex
		watches map[string]*watch // not fired, by path
		queued  int               // attempts that have a node and wait
		looking bool              // somebody looks after the watches
		since   int64             // the zxid as of which they were restored, on the last connection where they all were
		missing int               // requests that restore them, on the present one, and are not answered
	}
}

func newWatcher(z *zkSession, nodes *ownNodes) *watcher {
	w := &watcher{z: z, nodes: nodes}
	w.mu.watches = make(map[string]*watch)
	return w
}

// watch joins the watch on path, or sets one. It waits for the servers' answer under ctx; the watch itself outlives
// the caller. An error is that of the read that sets it, zk.ErrNoNode among them.
func (w *watcher) watch(ctx context.Context, path string) (*watch, error) {
	on := w.startWatch(path)
	return on, on.waitArmed(ctx, w.z)
}

// waitArmed waits until the watch is set, or cannot be.
func (w *watch) waitArmed(ctx context.Context, z *zkSession) error {
	select {
	case <-w.armed:
		return w.err
	case <-ctx.Done():
		return causeOf(ctx)
	case <-z.over:
		return z.overErr()
	}
}

// startWatch is watch without the wait.
func (w *watcher) startWatch(path string) *watch {
	w.mu.Lock()
	if on := w.mu.watches[path]; on != nil {
		w.mu.Unlock()
		return on
	}
	// Registered before the request is sent: the event can come before the answer is seen here.
	on := &watch{path: path, armed: make(chan struct{}), fired: make(chan struct{})}
	w.mu.watches[path] = on
	w.mu.Unlock()
	r := tap.NewRequest(wire.OpGetData, wire.PathWatchRequest{Path: path, Watch: true}, func(a tap.Answer) { w.armed(on, a) })
	if !w.z.carrier.send(w.z, r) {
		w.armed(on, tap.Answer{Fate: tap.NeverSent})
	}
	return on
}

// armed notes what came of the read that sets a watch. It runs on the client's reading goroutine, in the order of the frames.
func (w *watcher) armed(on *watch, a tap.Answer) {
	var data wire.DataResponse
	err := answerErr(a)
	if err == nil {
		err = a.Decode(&data)
	}
	w.mu.Lock()
	on.conn = a.Conn
	if err != nil {
		on.err = err
		if w.mu.watches[on.path] == on { // a read that fails sets no watch; without an answer, the next comer sets it again
			delete(w.mu.watches, on.path)
			if errors.Is(err, zk.ErrNoNode) { // there is nothing more to come
				on.event = zk.EventNodeDeleted
				close(on.fired)
			}
		}
	} else {
		on.owner = data.Stat.EphemeralOwner
	}
	w.mu.Unlock()
	close(on.armed)
}

// restore returns the requests that set, on a new connection, the watches that stood on the one before. The server tells at
// once of nodes that changed since before, the last zxid seen there.
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
			ask.Data, size = append(ask.Data, stood[n].path), size+len(stood[n].path)+4
		}
		batch := stood[:n]
		stood = stood[n:]
		rs = append(rs, tap.NewRequest(wire.OpSetWatches, ask, func(a tap.Answer) { w.restored(batch, a) }))
	}
	w.mu.missing = len(rs)
	return rs
}

// restored looks whether watches stand on a connection again. Of those that do not, nobody will ever hear.
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

// An event can get lost at a server (F30). So while anybody waits, each watched node is looked at once every session timeout: a
// read of a few bytes, however long the queue is and however many wait for the node. So is the node of each who waits for its turn
// and watches nothing.
//
// That a node is there says as much as a list would. A waiter's place changes only when its own node or its predecessor
// goes: nobody can get in between, as suffixes grow, and past the counter's end the czxids that take their place.
func (w *watcher) lookAfterWatches() {
	const atATime = 16
	few := make(chan struct{}, atATime)
	for w.z.pause(w.z.timeout()) {
		conn, _, _ := w.z.attachedConn()
		w.mu.Lock()
		if w.mu.queued == 0 {
			w.mu.looking = false // the next waiter begins again
			w.mu.Unlock()
			return
		}
		if conn == 0 {
			w.mu.Unlock()
			continue
		}
		type look struct {
			node   string
			isGone func()
		}
		var looks []look
		for _, on := range w.mu.watches {
			if on.isArmed() {
				looks = append(looks, look{on.path, func() { w.unheard(on) }}) // events come before the answers that show what they tell
			}
		}
		w.mu.Unlock()
		for _, on := range w.nodes.waiting() {
			looks = append(looks, look{on.node, func() { on.tell(nodeIsGone) }})
		}
		for _, l := range looks {
			few <- struct{}{}
			if !w.z.carrier.spawn(func() {
				defer func() { <-few }()
				if _, err := w.z.stat(l.node); errors.Is(err, zk.ErrNoNode) {
					l.isGone()
				}
			}) {
				return
			}
		}
	}
}

// countWaiters counts attempts that wait: while there are any, frames are answered often enough to renew the lease at once.
func (w *watcher) countWaiters(n int) {
	w.mu.Lock()
	w.mu.queued += n
	first := n > 0 && w.mu.queued == n
	neglected := n > 0 && !w.mu.looking
	w.mu.looking = w.mu.looking || neglected
	w.mu.Unlock()
	if first {
		w.z.carrier.nudge()
	}
	if neglected {
		w.z.carrier.spawn(w.lookAfterWatches)
	}
}

func (w *watcher) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.queued
}

// unheard wakes those who wait for a watch whose event nobody may ever hear. They list, and set another: what is known of
// this node says nothing about their own, whose event may be lost too.
func (w *watcher) unheard(on *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.watches[on.path] == on {
		delete(w.mu.watches, on.path)
		on.event = zk.EventNotWatching
		close(on.fired)
	}
}

// fire hands an event to the watch it is for. It runs on the client's goroutine, in the order in which the server
// sent the events. Events are hints: what they mean is decided by the waiters' rule (inFrontNow).
func (w *watcher) fire(ev wire.WatcherEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	on := w.mu.watches[ev.Path]
	delete(w.mu.watches, ev.Path)
	if on != nil {
		on.event = zk.EventType(ev.Type)
		close(on.fired)
	}
}

// isArmed says whether the watch was asked for and answered.
func (w *watch) isArmed() bool { return isClosed(w.armed) }

// hasFailed says whether the watch was asked for and could not be set.
func (w *watch) hasFailed() bool { return w.isArmed() && w.err != nil }

// hasFired says whether the watch's event has come.
func (w *watch) hasFired() bool { return isClosed(w.fired) }
