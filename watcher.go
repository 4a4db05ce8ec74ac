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

// watch is one data watch on one node, shared by all who wait for it. To take a watch back costs a request, so a watch stays
// until it fires, and all who come use it (I7).
//
//	arming ──▶ armed ──▶ fired
//	   └─────▶ failed ─▶ fired, if there is no node
type watch struct {
	path  string
	armed chan struct{} // closed when the request that sets it was answered; then the fields below are set
	err   error         // why it could not be set
	stat  wire.Stat     // of the node
	data  []byte        // of the node, the beginning
	conn  uint64        // the connection over which that was answered. On a later connection the watch is restored, and only wakes.

	fired chan struct{} // closed when its event came; then the field below is set
	event zk.EventType
}

// maxShown is how many bytes of a node's data are shown to people, at most.
const maxShown = 64

// watcher keeps the watches of one ZooKeeper session: at most one a path (I7).
type watcher struct {
	z     *link.Era
	nodes *nodes.Own

	mu struct {
		sync.Mutex
		watches map[string]*watch // not fired, by path
		queued  int               // attempts that have a node and wait
		looking bool              // lookAfterWatches runs
		since   int64             // restore the watches as of this zxid: of the last connection on which all of them stood
		missing int               // unanswered requests that restore watches on the present connection
	}
}

func newWatcher(z *link.Era, nodes *nodes.Own) *watcher {
	w := &watcher{z: z, nodes: nodes}
	w.mu.watches = make(map[string]*watch)
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
	select {
	case <-w.armed:
		return w.err
	case <-ctx.Done():
		return link.ErrCtxEnded
	case <-z.Over():
		return z.OverErr()
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
	neglected := !w.mu.looking
	w.mu.looking = true
	w.mu.Unlock()
	if neglected {
		w.z.Carrier.Spawn(w.lookAfterWatches)
	}
	r := tap.NewRequest(wire.OpGetData, wire.PathWatchRequest{Path: path, Watch: true}, func(a tap.Answer) { w.armed(on, a) })
	if !w.z.Carrier.Send(w.z, r) {
		w.armed(on, tap.Answer{Fate: tap.NeverSent})
	}
	return on
}

// armed takes the answer to the read that sets a watch. It runs on the client's reading goroutine, in the order of the frames.
func (w *watcher) armed(on *watch, a tap.Answer) {
	var data wire.DataResponse
	err := answer.ErrOf(a)
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
		on.stat, on.data = data.Stat, slices.Clone(data.Data[:min(len(data.Data), maxShown)])
	}
	w.mu.Unlock()
	close(on.armed)
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
			ask.Data, size = append(ask.Data, stood[n].path), size+len(stood[n].path)+4
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

// lookAfterWatches asks about each watched node once every session timeout while anybody waits, and every tenth of them while
// watches are left: an event can get lost at a server (F30). It reads a few bytes, for a queue of any length and any number of
// waiters. It also asks about the nodes of waiters that watch nothing and wait for their turn.
//
// If the node is there, that says as much as a list would. A waiter's place changes only when its own node or its
// predecessor goes. Nobody can get in between, because numbers grow.
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
		if w.mu.queued > 0 {
			unawaited = 0
		}
		if conn == 0 || unawaited%seldom != 0 {
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
				looks = append(looks, look{on.path, func() { w.unheard(on) }}) // an event would have come before an answer that shows its change
			}
		}
		w.mu.Unlock()
		for _, on := range w.nodes.Waiting() {
			looks = append(looks, look{on.Node, func() { on.Tell(queue.NodeIsGone) }})
		}
		for _, l := range looks {
			few <- struct{}{}
			if !w.z.Carrier.Spawn(func() {
				defer func() { <-few }()
				if _, err := w.z.Stat(l.node); errors.Is(err, zk.ErrNoNode) {
					l.isGone()
				}
			}) {
				return
			}
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
	if w.mu.watches[on.path] == on {
		delete(w.mu.watches, on.path)
		on.event = zk.EventNotWatching
		close(on.fired)
	}
}

// fire hands an event to its watch. It runs on the client's goroutine, in the order in which the server sent the events.
// Events are hints: the walk decides what they mean (queue.Walk).
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

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
