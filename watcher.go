package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// watch is one data watch on one node, shared by all who wait for it. It cannot be taken back without a request, so a watch
// that is set is used by whoever comes, until it fires (I7).
//
//	arming ──▶ armed ──▶ fired
//	   └─────▶ failed
type watch struct {
	path  string
	armed chan struct{} // closed when the request that sets it was answered; then the fields below are set
	err   error         // why it could not be set
	owner int64         // session of the node, from its Stat; 0 if it is not ephemeral
	conn  uint64        // the connection over which it was set. Over a later one it is restored, and only wakes.

	fired   chan struct{} // closed when its event came; then the fields below are set
	event   zk.EventType
	erasure *erasure // our own deletion of the node, if that was under way when the event came
}

// watch joins the watch on path, or sets one. It waits for the servers' answer under ctx; the watch itself outlives
// the caller. An error is that of the read that sets it, zk.ErrNoNode among them.
func (e *era) watch(ctx context.Context, path string) (*watch, error) {
	e.mu.Lock()
	w := e.mu.watches[path]
	if w == nil {
		// Registered before the request is sent: the event can come before the answer is seen here.
		w = &watch{path: path, armed: make(chan struct{}), fired: make(chan struct{})}
		e.mu.watches[path] = w
		e.mu.Unlock()
		r := newRequest(wire.OpGetData, wire.PathWatchRequest{Path: path, Watch: true}, func(a answer) { e.armed(w, a) })
		if !e.s.send(e, r) {
			e.armed(w, answer{fate: neverSent})
		}
	} else {
		e.mu.Unlock()
	}
	select {
	case <-w.armed:
		return w, w.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-e.over:
		return nil, e.overErr()
	}
}

// armed notes what came of the read that sets a watch. It runs on the client's reading goroutine, in the order of the frames.
func (e *era) armed(w *watch, a answer) {
	var data wire.DataResponse
	err := a.err()
	if err == nil {
		err = a.decode(&data)
	}
	e.mu.Lock()
	if err != nil {
		w.err = err
		if e.mu.watches[w.path] == w { // a read that fails sets no watch; without an answer, the next comer sets it again
			delete(e.mu.watches, w.path)
		}
	} else {
		w.owner, w.conn = data.Stat.EphemeralOwner, a.conn
	}
	e.mu.Unlock()
	close(w.armed)
}

// restore returns the requests that set, on a new connection, the watches that stood on the one before. The server tells at
// once of nodes that changed meanwhile.
func (e *era) restore(t *tap) (rs []*request) {
	const maxBytes = 128 << 10 // as the Java client
	e.mu.Lock()
	defer e.mu.Unlock()
	var stood []*watch
	for _, w := range e.mu.watches {
		if w.isArmed() {
			stood = append(stood, w)
		}
	}
	for len(stood) > 0 {
		ask, n := wire.SetWatchesRequest{RelativeZxid: t.zxids.Before()}, 0
		for size := 0; n < len(stood) && size < maxBytes; n++ {
			ask.Data, size = append(ask.Data, stood[n].path), size+len(stood[n].path)+4
		}
		batch := stood[:n]
		stood = stood[n:]
		rs = append(rs, newRequest(wire.OpSetWatches, ask, func(a answer) { e.restored(batch, a) }))
	}
	return rs
}

// restored looks whether watches stand on a connection again. Of those that do not, nobody will ever hear.
func (e *era) restored(ws []*watch, a answer) {
	if a.fate == wasAnswered && a.code != wire.OK {
		for _, w := range ws {
			e.unheard(w)
		}
	}
}

// An event can get lost at a server (F30). So while anybody waits, each watched node is looked at once every session timeout: a read of a few bytes, however
// long the queue is and however many wait for the node.
//
// That a node is there says as much as a list would. A waiter's place changes only when its own node or its predecessor
// goes: nobody can get in between, as suffixes grow, and past the counter's end the czxids that take their place.
func (e *era) lookAfterWatches() {
	const atATime = 16
	few := make(chan struct{}, atATime)
	for e.pause(e.sessionTimeout()) {
		conn, _, _ := e.s.attachedConn(e)
		e.mu.Lock()
		if e.mu.queued == 0 {
			e.mu.looking = false // the next waiter begins again
			e.mu.Unlock()
			return
		}
		if conn == 0 {
			e.mu.Unlock()
			continue
		}
		var armed []*watch
		for _, w := range e.mu.watches {
			if w.isArmed() {
				armed = append(armed, w)
			}
		}
		e.mu.Unlock()
		for _, w := range armed {
			few <- struct{}{}
			if !e.s.spawn(func() {
				defer func() { <-few }()
				if _, err := e.stat(w.path); errors.Is(err, zk.ErrNoNode) {
					e.unheard(w) // events come before the answers that show what they tell
				}
			}) {
				return
			}
		}
	}
}

// unheard wakes those who wait for a watch whose event nobody may ever hear. They list, and set another: what is known of
// this node says nothing about their own, whose event may be lost too.
func (e *era) unheard(w *watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.watches[w.path] == w {
		delete(e.mu.watches, w.path)
		w.event = zk.EventNotWatching
		close(w.fired)
	}
}

// nodeEvent hands an event to the watch it is for. It runs on the client's goroutine, in the order in which the server
// sent the events. Events are hints: what they mean is decided by the waiters' rule (inFrontNow).
func (e *era) nodeEvent(ev wire.WatcherEvent) {
	e.mu.Lock()
	w := e.mu.watches[ev.Path]
	delete(e.mu.watches, ev.Path)
	if w != nil {
		w.event = zk.EventType(ev.Type)
		w.erasure = e.mu.erasing[ev.Path]
		close(w.fired)
	}
	e.mu.Unlock()
	if ev.Type == wire.EventDeleted {
		e.loseNode(ev.Path, errNodeGone) // if it is held: somebody else deleted it (F24)
	}
}

// isArmed says whether the watch was asked for and answered.
func (w *watch) isArmed() bool {
	select {
	case <-w.armed:
		return true
	default:
		return false
	}
}

// hasFired says whether the watch's event has come.
func (w *watch) hasFired() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// listing is one answer to "who is in the queue", shared by all who asked before it was sent.
type listing struct {
	done  chan struct{}
	names []string
	conn  uint64 // the connection over which it was answered, 0 if that is not sure
	err   error
}

// listKind is what is listed. A synced list shows all that the servers had done when it was asked for: a server that lags
// behind catches up first.
type listKind struct {
	root   string
	synced bool
}

// listQueue keeps the lists of one kind to one at a time.
type listQueue struct {
	running bool
	next    *listing // not sent yet: whoever asks now may share it
}

// list returns the children of a root, as they were at some time after the call.
func (e *era) list(ctx context.Context, kind listKind) (*listing, error) {
	e.mu.Lock()
	q := e.mu.lists[kind]
	if q == nil {
		q = &listQueue{}
		e.mu.lists[kind] = q
	}
	l := q.next
	if l == nil {
		l = &listing{done: make(chan struct{})}
		q.next = l
	}
	start := !q.running
	q.running = true
	e.mu.Unlock()
	if start && !e.s.spawn(func() { e.runLists(kind, q) }) {
		return nil, e.s.closedErr()
	}
	select {
	case <-l.done:
		if l.err != nil {
			return nil, l.err
		}
		return l, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-e.over:
		return nil, e.overErr()
	}
}

// runLists sends the lists that were asked for, one after the other, until nobody asks.
func (e *era) runLists(kind listKind, q *listQueue) {
	for {
		// Those who ask while there is no connection share one list. If there will be none, the list says so.
		_, _ = e.waitAttached(context.Background())
		e.mu.Lock()
		l := q.next
		q.next = nil // sent from here on: later askers need a later list
		if l == nil {
			q.running = false
			delete(e.mu.lists, kind)
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		l.names, l.conn, l.err = e.children(kind)
		e.eraseStrays(kind.root, l.names)
		close(l.done)
	}
}

// errMoved says that two requests did not go over one connection, and the second answer is worth nothing: another server
// may lag behind what the first had caught up with.
var errMoved = errors.New("the connection changed between sync and list")

func (e *era) children(kind listKind) (names []string, conn uint64, err error) {
	var synced uint64
	if kind.synced {
		a, err := e.ask(context.Background(), wire.OpSync, wire.PathRequest{Path: kind.root})
		if err != nil {
			return nil, 0, err
		}
		synced = a.conn
	}
	var children wire.ChildrenStatResponse
	a, err := e.read(context.Background(), wire.OpGetChildren2, wire.PathWatchRequest{Path: kind.root}, &children)
	if kind.synced && a.conn != synced && (err == nil || errors.Is(err, zk.ErrNoNode)) {
		return nil, 0, errMoved
	}
	return children.Children, a.conn, denied(err, "list", "READ", kind.root)
}
