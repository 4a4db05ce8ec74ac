package command

// The --watch flag of ls: queues as they change.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/queue"
)

// watchUntil prints the queues of the paths and their changes, until ctx ends.
func (l *listing) watchUntil(ctx context.Context, paths []string) error {
	if err := l.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer l.s.Close()
	return l.watchAll(ctx, paths)
}

// watchEndsWithin is how long watchAll waits for a reader that does not read, when ctx has ended.
const watchEndsWithin = time.Second

func (l *listing) watchAll(ctx context.Context, paths []string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	var mu sync.Mutex // one line at a time
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			continue
		}
		f := follower{l: &l.lister, progress: progress{path: path}, picture: picture{root: chrootOf(l.servers) + path}}
		f.print = func(cs []change) error {
			mu.Lock()
			defer mu.Unlock()
			return l.printChanges(cs)
		}
		all.Go(func() {
			if err := f.follow(ctx); err != nil {
				stop(err)
			}
		})
	}
	all.Go(func() { l.sayConnection(ctx) })
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	<-ctx.Done() // the followers end with it, and end it if they fail
	select {
	case <-ended:
	case <-time.After(watchEndsWithin): // one of them is still writing
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return classify(err)
	}
	return nil
}

func (p printer) printChanges(cs []change) error {
	for _, c := range cs {
		if !p.asJSON {
			if _, err := fmt.Fprintln(p.out, c.line(p.wide)); err != nil {
				return err
			}
			continue
		}
		if err := json.NewEncoder(p.out).Encode(c); err != nil {
			return err
		}
	}
	return nil
}

// sayConnection reports on stderr when no server can be reached, and when one can again.
func (l *lister) sayConnection(ctx context.Context) {
	isDark := false
	for c := range l.s.Changes(ctx) {
		switch {
		case c.State == zklock.Suspended && !isDark:
			isDark = true
			fmt.Fprintln(l.stderr, "zklock: the connection is lost: changes are printed when a server can be reached")
		case c.State.Attached() && isDark:
			isDark = false
			fmt.Fprintln(l.stderr, "zklock: connected again")
		}
	}
}

// watched is the value that was read last, with the watch that the read set.
type watched[T any] struct {
	value T
	fired <-chan zk.Event // nil: to be read
}

// renew reads again if the watch has fired, and reports whether it did.
func (w *watched[T]) renew(ctx context.Context, s *zklock.Session, read func(c *zk.Conn) (T, <-chan zk.Event, error)) (isNew bool, err error) {
	select {
	case <-w.fired:
		w.fired = nil
	default:
	}
	if w.fired != nil {
		return false, nil
	}
	got, err := ask(ctx, s, func(c *zk.Conn) (got watched[T], err error) {
		got.value, got.fired, err = read(c)
		return got, err
	})
	if err != nil {
		return false, readable(err)
	}
	*w = got
	return true, nil
}

// listWatched lists the children of a node, none if it does not exist.
func listWatched(node string) func(c *zk.Conn) ([]string, <-chan zk.Event, error) {
	return func(c *zk.Conn) ([]string, <-chan zk.Event, error) {
		return orComing(c, node, func() ([]string, <-chan zk.Event, error) {
			names, _, fired, err := c.ChildrenW(node)
			return names, fired, err
		})
	}
}

// dataWatched reads the data of a node, none if it does not exist.
func dataWatched(node string) func(c *zk.Conn) ([]byte, <-chan zk.Event, error) {
	return func(c *zk.Conn) ([]byte, <-chan zk.Event, error) {
		return orComing(c, node, func() ([]byte, <-chan zk.Event, error) {
			data, _, fired, err := c.GetW(node)
			return data, fired, err
		})
	}
}

// orComing reads a node, or sets a watch for its creation.
func orComing[T any](c *zk.Conn, node string, read func() (T, <-chan zk.Event, error)) (T, <-chan zk.Event, error) {
	for {
		value, fired, err := read()
		if !errors.Is(err, zk.ErrNoNode) {
			return value, fired, err
		}
		isThere, _, fired, err := c.ExistsW(node)
		if err != nil || !isThere {
			return value, fired, err
		}
	}
}

// follower follows the queue of one lock. It lists after an event, and reads a node once, when it
// is new. So a change costs an event and a list, and a read for a new node, however many clients
// wait.
type follower struct {
	l        *lister
	picture  picture
	progress progress
	print    func([]change) error

	rootList, queueList, leaseList watched[[]string] // of the lock root; of a semaphore, of its queue and its leases, too
	rootData, limitData            watched[[]byte]   // of the lock root; of the node with a semaphore's limit
}

func (f *follower) follow(ctx context.Context) error {
	steps := f.l.s.Changes(ctx)
	isBack := false // connected, and has not read since
	for {
		err := f.look(ctx)
		var again <-chan time.Time // when a first node that may wait for a lock-delay counts as holding
		if err == nil {
			now := time.Now()
			if at := f.picture.notes(now, !f.progress.isBegun); !at.IsZero() {
				again = time.After(at.Sub(now))
			}
			err = f.show(ctx, now)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.progress.path, err)
		}
		if isBack {
			isBack, f.progress.isDark = false, false
		}
		select {
		case <-f.rootList.fired:
			f.rootList.fired = nil // also if its node is no longer read
		case <-f.queueList.fired:
			f.queueList.fired = nil
		case <-f.leaseList.fired:
			f.leaseList.fired = nil
		case <-f.rootData.fired:
			f.rootData.fired = nil
		case <-f.limitData.fired:
			f.limitData.fired = nil
		case <-again:
		case step, isOpen := <-steps:
			switch {
			case ctx.Err() != nil:
				return nil
			case !isOpen || step.State == zklock.Closed:
				return fmt.Errorf("%s: %w", f.progress.path, cmp.Or(step.Err, zklock.ErrClosed))
			case step.State.Attached(): // whether or not the watches survived
				f.rootList.fired, f.queueList.fired, f.leaseList.fired, f.rootData.fired, f.limitData.fired = nil, nil, nil, nil, nil
				isBack = true
			default:
				f.progress.isDark = true
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// show prints the changes since its last call, and at first the whole queue.
func (f *follower) show(ctx context.Context, now time.Time) error {
	isFirst := !f.progress.isBegun
	changes := f.progress.next(&f.picture, now)
	if isFirst && len(changes) == 0 {
		isMissing, err := f.l.noteMissing(ctx, f.progress.path)
		if err != nil {
			return err
		}
		if !isMissing {
			fmt.Fprintf(f.l.stderr, "zklock: %s: the queue is empty\n", f.progress.path)
		}
	}
	return f.print(changes)
}

// look reads everything that may have changed since the last time.
func (f *follower) look(ctx context.Context) error {
	s, p := f.l.s, &f.picture
	isNew, err := f.rootList.renew(ctx, s, listWatched(p.root))
	if err != nil {
		return err
	}
	if p.isSemaphore = mayBeSemaphore(f.rootList.value); p.isSemaphore {
		// The queue first: a client that is granted creates a lease, and then leaves the queue. In
		// the other order we could see it nowhere.
		if _, err := f.queueList.renew(ctx, s, listWatched(p.root+"/locks")); err != nil {
			return err
		}
		if _, err := f.leaseList.renew(ctx, s, listWatched(p.root+"/leases")); err != nil {
			return err
		}
		p.isSemaphore = areLeases(f.leaseList.value)
	}
	if p.isSemaphore {
		return f.lookAtSemaphore(ctx)
	}
	p.queued, p.leases = f.rootList.value, nil
	isReadNew, err := f.rootData.renew(ctx, s, dataWatched(p.root))
	if err == nil && isNew && !isReadNew && len(f.rootData.value) > 0 {
		// The record of a lock-delay. It must not be older than the list: a holder that is still in
		// the record, but not in the list, disappeared.
		f.rootData.value, err = ask(ctx, s, func(c *zk.Conn) ([]byte, error) {
			data, _, err := c.Get(p.root)
			return data, err
		})
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	p.record, _ = queue.ParseRecord(f.rootData.value)
	return f.readNew(ctx, nodesIn(p.root, p.queued, append([]string{queue.LatchName}, queue.Markers...)))
}

func (f *follower) lookAtSemaphore(ctx context.Context) error {
	p := &f.picture
	p.queued, p.leases, p.limit, p.record = f.queueList.value, f.leaseList.value, nil, ""
	if node := f.l.limitNode(f.progress.path, f.rootList.value); node != "" {
		node = chrootOf(f.l.servers) + node
		if _, err := f.limitData.renew(ctx, f.l.s, dataWatched(node)); err != nil {
			return err
		}
		p.limit, _ = limitIn(node, f.limitData.value)
		if p.limit == nil && f.l.limit != "" && !f.progress.isBegun { // a typing error: the error shows which
			if _, err := f.l.semaphore(ctx, f.progress.path, f.rootList.value); err != nil {
				return err
			}
		}
	}
	return f.readNew(ctx, slices.Concat(nodesIn(p.root+"/leases", p.leases, []string{queue.LeaseName}), nodesIn(p.root+"/locks", p.queued, queue.Markers)))
}

func nodesIn(root string, names, markers []string) (nodes []string) {
	for _, m := range queue.Members(names, markers) {
		nodes = append(nodes, root+"/"+m.Name)
	}
	return nodes
}

// readNew reads the nodes that are not known yet, and forgets those that no longer exist. A node
// that was deleted meanwhile is left out.
func (f *follower) readNew(ctx context.Context, nodes []string) error {
	ps, errs := make([]zklock.Participant, len(nodes)), make([]error, len(nodes))
	var all sync.WaitGroup
	few := make(chan struct{}, 16) // in flight at a time
	for i, node := range nodes {
		var isKnown bool
		if ps[i], isKnown = f.picture.nodes[node]; isKnown {
			continue
		}
		few <- struct{}{}
		all.Go(func() {
			defer func() { <-few }()
			ps[i], errs[i] = f.l.participant(ctx, node)
		})
	}
	all.Wait()
	f.picture.nodes = make(map[string]zklock.Participant, len(nodes))
	for i, node := range nodes {
		switch {
		case errs[i] == nil:
			f.picture.nodes[node] = ps[i]
		case !errors.Is(errs[i], zk.ErrNoNode):
			return errs[i]
		}
	}
	return nil
}

func (l *lister) participant(ctx context.Context, node string) (zklock.Participant, error) {
	return ask(ctx, l.s, func(c *zk.Conn) (zklock.Participant, error) {
		data, stat, err := c.Get(node)
		if err != nil {
			return zklock.Participant{}, readable(err)
		}
		return zklock.Participant{Node: node, Data: data, SessionID: stat.EphemeralOwner, Token: stat.Czxid, Shared: queue.IsReader(nameOf(node)),
			Created: time.UnixMilli(stat.Ctime)}, nil
	})
}

func readable(err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("no READ permission: %w", err)
	}
	return err
}
