package node

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// Listing is one list of the queue, shared by all callers that requested it before it was sent.
type Listing struct {
	done  chan struct{} // closed when the fields below are set
	Names []string
	Root  wire.Stat // of the root
	Conn  uint64    // the connection over which the response arrived
	At    int64     // the server's last zxid at that time
	err   error

	shared bool // more than one caller requested it; guarded by Lists.mu until the list is sent
	sort   sync.Once
	sorted *queue.Sorted
}

// PositionOf returns queue.PositionOf for the list. For callers that share the list, the names are
// sorted once.
func (l *Listing) PositionOf(rule queue.Rule, self string) queue.Position {
	if !l.shared {
		return queue.PositionOf(rule, self, l.Names)
	}
	l.sort.Do(func() { l.sorted = queue.Sort(l.Names, rule.Markers) })
	return l.sorted.PositionOf(rule, self)
}

// listKind is the root to list, and whether to sync first. A synced list shows every write that the
// servers had committed at the time of the call: a server that lags behind catches up first.
type listKind struct {
	root   string
	synced bool
}

// Lists lists the children of lock roots: one list of a kind at a time, shared by all callers that
// requested it before it was sent.
type Lists struct {
	z    *link.ZKSession
	seen func(root string, names []string) // called with each list

	mu struct {
		sync.Mutex
		// By kind, while a list of it is in flight: the next list, which callers that request one now
		// share; nil for none.
		next map[listKind]*Listing
	}
}

// newLists returns the lists of a session.
func newLists(z *link.ZKSession) *Lists {
	l := &Lists{z: z, seen: func(string, []string) {}}
	l.mu.next = make(map[listKind]*Listing)
	return l
}

// List requests the children of a root, as of some time after the call.
func (l *Lists) List(root string) *Listing { return l.list(listKind{root: root}) }

// ListSynced is List, and shows every write that the servers had committed at the time of the call.
func (l *Lists) ListSynced(root string) *Listing { return l.list(listKind{root, true}) }

func (l *Lists) list(kind listKind) *Listing {
	l.mu.Lock()
	next, running := l.mu.next[kind]
	if next == nil {
		next = &Listing{done: make(chan struct{})}
		l.mu.next[kind] = next
	} else {
		next.shared = true
	}
	l.mu.Unlock()
	if !running {
		l.goOn(kind)
	}
	return next
}

// Wait waits for the response until ctx or the ZooKeeper session ends.
func (l *Listing) Wait(ctx context.Context, z *link.ZKSession) error {
	if _, err := link.Await(ctx, z, l.done); err != nil {
		return err
	}
	return l.err
}

// goOn sends the requested lists one after the other, until none is left.
func (l *Lists) goOn(kind listKind) {
	l.mu.Lock()
	next := l.mu.next[kind]
	if next == nil {
		delete(l.mu.next, kind)
		l.mu.Unlock()
		return
	}
	if !kind.synced { // the usual case: one request, nothing to wait for
		r := mux.NewRequest(wire.OpGetChildren2, wire.PathWatchRequest{Path: kind.root}, func(a mux.Reply) {
			if a.Fate == mux.NeverSent {
				l.askSlowly(kind, next)
				return
			}
			var children wire.ChildrenStatResponse
			err := l.z.ErrOf(a)
			if err == nil {
				err = a.Decode(&children)
			}
			next.Names, next.Root, next.Conn, next.At, next.err = children.Children, children.Stat, a.Conn, a.Zxid, reply.Denied(err, "list", "READ", kind.root)
			l.answered(kind, next)
		})
		l.mu.next[kind] = nil // sent from here on: later callers need a later list
		l.mu.Unlock()
		if !l.z.Carrier.Send(l.z, r) {
			l.askSlowly(kind, next)
		}
		return
	}
	l.mu.Unlock()
	l.askSlowly(kind, nil)
}

// askSlowly sends a list from a goroutine that may block: next, which could not be sent at once, or
// the list that is next when it is sent, if next is nil.
func (l *Lists) askSlowly(kind listKind, next *Listing) {
	l.mu.Lock()
	if next != nil && l.mu.next[kind] == nil { // all callers that arrive while there is no connection share one list
		l.mu.next[kind], next = next, nil
	}
	l.mu.Unlock()
	take := func() *Listing {
		if next == nil {
			l.mu.Lock()
			next, l.mu.next[kind] = l.mu.next[kind], nil // sent from here on: later callers need a later list
			l.mu.Unlock()
		}
		return next
	}
	if !l.z.Carrier.Spawn(func() {
		_, _ = l.z.WaitAttached(context.Background()) // if no connection will follow, the list returns the error
		next := take()
		children, a, err := l.children(kind)
		next.Names, next.Root, next.Conn, next.At, next.err = children.Children, children.Stat, a.Conn, a.Zxid, err
		l.answered(kind, next)
	}) {
		next := take()
		next.err = l.z.Carrier.ClosedErr()
		l.answered(kind, next)
	}
}

// answered wakes the callers that share a list, and sends the next list.
func (l *Lists) answered(kind listKind, on *Listing) {
	l.seen(kind.root, on.Names)
	close(on.done)
	l.goOn(kind)
}

// errMoved: sync and list used two connections. Such a list proves nothing, because the server that
// caught up is not the server that answered the list, which may lag behind.
var errMoved = errors.New("the connection changed between sync and list")

func (l *Lists) children(kind listKind) (children wire.ChildrenStatResponse, a mux.Reply, err error) {
	synced := make(chan mux.Reply, 1)
	if kind.synced { // sent back to back: servers answer a session in order
		if !l.z.Carrier.Send(l.z, mux.NewRequest(wire.OpSync, wire.PathRequest{Path: kind.root}, func(a mux.Reply) { synced <- a })) {
			return children, a, zk.ErrConnectionClosed
		}
	}
	a, err = l.z.Read(context.Background(), wire.OpGetChildren2, wire.PathWatchRequest{Path: kind.root}, &children)
	if kind.synced && (err == nil || errors.Is(err, zk.ErrNoNode)) {
		s := <-synced // this response arrived first
		if err := l.z.ErrOf(s); err != nil {
			return wire.ChildrenStatResponse{}, a, err
		}
		if a.Conn != s.Conn {
			return wire.ChildrenStatResponse{}, a, errMoved
		}
	}
	return children, a, reply.Denied(err, "list", "READ", kind.root)
}
