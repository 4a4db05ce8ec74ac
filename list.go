package zklock

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// listing is one answer to "who is in the queue", shared by all who asked before it was sent.
type listing struct {
	done  chan struct{}
	names []string
	conn  uint64 // the connection over which it was answered
	err   error
}

// listKind is what is listed. A synced list shows all that the servers had done when it was asked for: a server that lags
// behind catches up first.
type listKind struct {
	root   string
	synced bool
	own    bool // only nodes of this ZooKeeper session, which takes no permission, and a server of 3.6 or later
}

// listQueue keeps the lists of one kind to one at a time.
type listQueue struct {
	running bool
	next    *listing // not sent yet: whoever asks now may share it
}

// lister lists the children of lock roots: one list of a kind at a time, shared by all who asked before it was sent.
type lister struct {
	z    *zkSession
	seen func(root string, names []string) // is shown each list

	mu struct {
		sync.Mutex
		queues map[listKind]*listQueue // under way
	}
}

func newLister(z *zkSession) *lister {
	l := &lister{z: z, seen: func(string, []string) {}}
	l.mu.queues = make(map[listKind]*listQueue)
	return l
}

// list returns the children of a root, as they were at some time after the call.
func (l *lister) list(ctx context.Context, kind listKind) (*listing, error) {
	l.mu.Lock()
	q := l.mu.queues[kind]
	if q == nil {
		q = &listQueue{}
		l.mu.queues[kind] = q
	}
	next := q.next
	if next == nil {
		next = &listing{done: make(chan struct{})}
		q.next = next
	}
	start := !q.running
	q.running = true
	l.mu.Unlock()
	if start && !l.z.carrier.spawn(func() { l.run(kind, q) }) {
		return nil, l.z.carrier.closedErr()
	}
	select {
	case <-next.done:
		if next.err != nil {
			return nil, next.err
		}
		return next, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.z.over:
		return nil, l.z.overErr()
	}
}

// run sends the lists that were asked for, one after the other, until nobody asks.
func (l *lister) run(kind listKind, q *listQueue) {
	for {
		// Those who ask while there is no connection share one list. If there will be none, the list says so.
		_, _ = l.z.waitAttached(context.Background())
		l.mu.Lock()
		next := q.next
		q.next = nil // sent from here on: later askers need a later list
		if next == nil {
			q.running = false
			delete(l.mu.queues, kind)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		next.names, next.conn, next.err = l.children(kind)
		l.seen(kind.root, next.names)
		close(next.done)
	}
}

// mostOwnListsFailed is how often in a row the list of a ZooKeeper session's own nodes may fail before it is not asked for again.
const mostOwnListsFailed = 3

// errMoved says that two requests did not go over one connection, and the second answer is worth nothing: another server
// may lag behind what the first had caught up with.
var errMoved = errors.New("the connection changed between sync and list")

func (l *lister) children(kind listKind) (names []string, conn uint64, err error) {
	var synced uint64
	if kind.synced {
		a, err := l.z.ask(context.Background(), wire.OpSync, wire.PathRequest{Path: kind.root})
		if err != nil {
			return nil, 0, err
		}
		synced = a.Conn
	}
	var children wire.ChildrenStatResponse
	var a tap.Answer
	if kind.own {
		var own wire.StringsResponse
		a, err = l.z.read(context.Background(), wire.OpGetEphemerals, wire.GetEphemeralsRequest{Prefix: kind.root + "/"}, &own)
		switch {
		case err == nil:
			l.z.ownListsFailed.Store(0)
		case serverCode(err) == wire.Unimplemented: // and the server closes the connection
			l.z.ownListsFailed.Store(mostOwnListsFailed)
		case !l.z.isOver():
			l.z.ownListsFailed.Add(1)
		}
		for _, path := range own.Strings {
			children.Children = append(children.Children, strings.TrimPrefix(path, kind.root+"/"))
		}
	} else {
		a, err = l.z.read(context.Background(), wire.OpGetChildren2, wire.PathWatchRequest{Path: kind.root}, &children)
	}
	if kind.synced && a.Conn != synced && (err == nil || errors.Is(err, zk.ErrNoNode)) {
		return nil, 0, errMoved
	}
	return children.Children, a.Conn, denied(err, "list", "READ", kind.root)
}
