package command

// Reading the queues of locks, and finding locks.

import (
	"context"
	bigendian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

type lister struct {
	connection
	s      *zklock.Session
	limit  string // the node that has a semaphore's limit, if it is not the usual one
	stderr io.Writer
}

// open connects. Nothing is held here, so the lease does not matter; this mode has a margin with
// any session timeout.
func (l *lister) open(ctx context.Context) error {
	opts, err := l.options(l.stderr)
	if err != nil {
		return err
	}
	l.s, err = l.connect(ctx, append(opts, zklock.WithLease(zklock.SingleServerLease())))
	return err
}

// connected connects, calls f, and closes the Session.
func (l *lister) connected(ctx context.Context, f func(context.Context) error) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	defer l.s.Close()
	return f(ctx)
}

// queue reads the queue of the lock on path. If that is empty, it reports on stderr that the node
// is missing, or that there may be locks further down.
func (l *lister) queue(ctx context.Context, path string) (lockQueue, error) {
	names, _, listed := l.children(ctx, l.at(path))
	q, err := l.read(ctx, path, names)
	switch over := q.overLimit(); {
	case err != nil:
	case len(q.holders) == 0 && len(q.waiters) > 0 && !q.waiters[0].DelayUntil.IsZero():
		fmt.Fprintf(l.stderr, "zklock: %s: %s\n", path, delayedUntil(q.waiters[0].DelayUntil))
	case q.noLimit != "":
		fmt.Fprintf(l.stderr, "zklock: %s: %s\n", path, q.noLimit)
	case q.limit == nil:
	case over > 0:
		fmt.Fprintf(l.stderr, "zklock: %s: %d permits are in use, %d over the limit of %d\n", path, len(q.holders), over, *q.limit)
	default:
		fmt.Fprintf(l.stderr, "zklock: %s: the limit is %d\n", path, *q.limit)
	}
	if err == nil {
		l.noteNotEphemeral(path, q)
	}
	if err != nil || q.isSemaphore || len(q.all()) > 0 {
		return q, err
	}
	switch {
	case errors.Is(listed, zk.ErrNoNode):
		return q, l.noteMissing(ctx, path)
	case listed != nil:
		return q, classify(listed)
	case len(names) > 0:
		fmt.Fprintf(l.stderr, "zklock: %s: the queue is empty; there are nodes below: zklock ls -r %s lists the locks among them\n", path, path)
	}
	return q, nil
}

// read reads the queue of the lock on path, whatever its recipe. names are the children of the
// path.
func (l *lister) read(ctx context.Context, path string, names []string) (lockQueue, error) {
	if mayBeSemaphore(names) {
		leases, _, err := l.children(ctx, l.at(path+"/leases"))
		if err == nil && areLeases(leases) {
			return l.semaphore(ctx, path, names)
		}
	} else if l.isLimited(ctx, path, names) {
		return l.semaphore(ctx, path, names)
	}
	// With any lock-delay, however short, Candidates reports one that is in progress. Latch nodes
	// and nodes of other kinds do not see each other.
	kinds := [][]zklock.ElectionOption{{zklock.WithLockDelay(time.Nanosecond)}}
	if slices.ContainsFunc(names, func(name string) bool { return modeOf(name) == modeLatch }) {
		kinds = append(kinds, append(kinds[0], zklock.WithLatchNodes()))
	}
	ctx, cancel := l.within(ctx)
	defer cancel()
	var ps []zklock.Participant
	for _, opts := range kinds {
		e, err := zklock.NewElection(l.s, path, opts...)
		if err != nil {
			return lockQueue{}, classify(err)
		}
		some, err := e.Candidates(ctx)
		if err != nil {
			return lockQueue{}, classify(err)
		}
		ps = append(ps, some...)
	}
	return queueOf(ps), nil
}

// isLimited reports whether the children of a path belong to a semaphore that has a limit and has
// not been used yet.
func (l *lister) isLimited(ctx context.Context, path string, names []string) bool {
	isOther := func(name string) bool { return name != "limit" && name != "locks" && name != "leases" }
	if !slices.Contains(names, "limit") || slices.ContainsFunc(names, isOther) {
		return false
	}
	node := path + "/limit"
	data, err := l.data(ctx, node)
	limit, _ := limitIn(node, data)
	return err == nil && limit != nil
}

// semaphore reads a semaphore's leases and queue. Its limit is known only if it is in the node
// called limit, or in the node that was given.
func (l *lister) semaphore(ctx context.Context, path string, names []string) (q lockQueue, err error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	node := l.limit
	if node == "" && slices.Contains(names, "limit") {
		node = path + "/limit"
	}
	var opts []zklock.SemaphoreOption
	if node != "" {
		data, err := l.data(ctx, node)
		switch q.limit, q.noLimit = limitIn(node, data); {
		case err != nil && l.limit != "":
			return q, classify(fmt.Errorf("--semaphore-limit %s: %w", node, err))
		case err != nil:
			q.limit, q.noLimit = nil, fmt.Sprintf("%s is not known: %v", node, err)
		case q.limit != nil:
			opts = []zklock.SemaphoreOption{zklock.WithSharedLimit(node)}
		case l.limit != "":
			return q, exitf(exitUsage, "--semaphore-limit %s: give the node that zklock run --semaphore-limit names", q.noLimit)
		}
	}
	sem, err := zklock.NewSemaphore(l.s, path, 1, opts...) // without a limit, the first in the queue still waits
	if err == nil {
		q.holders, q.waiters, err = sem.Participants(ctx)
	}
	if err != nil {
		return lockQueue{}, classify(err)
	}
	q.isSemaphore = true
	return q, nil
}

// limitIn reads a semaphore's limit from the data of its node. If no semaphore accepts the data,
// limitIn returns nil and describes the data.
func limitIn(node string, data []byte) (limit *int, noLimit string) {
	if len(data) != 4 || bigendian.BigEndian.Uint32(data) > maxSharedLimit {
		return nil, fmt.Sprintf("%s has %q, which is not a limit", node, data[:min(len(data), 40)])
	}
	is := int(bigendian.BigEndian.Uint32(data))
	return &is, ""
}

// noteMissing prints on stderr if there is no node at path: an empty list alone could mean an
// unused lock or a typing error.
func (l *lister) noteMissing(ctx context.Context, path string) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	node := strings.TrimSuffix(l.at(path), "/")
	if node == "" {
		return nil
	}
	stat, err := statOf(ctx, l.s, node)
	if err != nil {
		return classify(err)
	}
	if stat == nil {
		fmt.Fprintf(l.stderr, "zklock: %s: there is no node %s: no lock was ever taken there, or an unused one was removed\n", path, node)
	}
	return nil
}

// noteNotEphemeral names on stderr a lock node that is not ephemeral, and so survives the end of
// every session.
func (l *lister) noteNotEphemeral(path string, q lockQueue) {
	var nodes []string
	for _, p := range q.all() {
		if p.SessionID == 0 {
			nodes = append(nodes, shortName(p.Node))
		}
	}
	more := ""
	switch {
	case len(nodes) == 0:
		return
	case len(nodes) > 1:
		more = fmt.Sprintf(" (nor are %d more)", len(nodes)-1)
	}
	fmt.Fprintf(l.stderr, "zklock: %s: %s is not ephemeral%s: it stays until it is deleted. If no client uses it, give zklock delete --yes %s %s\n",
		path, nodes[0], more, path, nodes[0])
}

// within limits the time of one read from the servers. Its cause includes the last error of each
// server.
func (l *lister) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(l.connectTimeout, func() { cancel(l.unreached(errNoServer{l.connectTimeout})) })
	return ctx, func() { late.Stop(); cancel(nil) }
}

// locks returns the locks on path and below, in the order of their paths. Paths that it may not
// read are left out and reported on stderr; then the error has only the exit code.
func (l *lister) locks(ctx context.Context, path string) (locks []lockEntry, err error) {
	root, denied := chrootOf(l.servers), false
	var walk func(path string) error
	walk = func(path string) error {
		below := strings.TrimSuffix(path, "/")
		names, stat, err := l.children(ctx, root+below)
		if errors.Is(err, zk.ErrNoNode) {
			return nil // deleted meanwhile
		}
		skip := map[string]bool{}
		if err == nil && below != "" && len(names) > 0 {
			var q lockQueue
			q, err = l.read(ctx, path, names)
			l.noteNotEphemeral(path, q)
			if len(q.all()) > 0 || q.isSemaphore {
				locks = append(locks, lockEntry{Path: path, Queue: entriesOf(q), Limit: q.limit, isSemaphore: q.isSemaphore})
			}
			for _, p := range q.all() {
				skip[nameOf(p.Node)] = true
			}
			skip["locks"], skip["leases"] = q.isSemaphore, q.isSemaphore
		}
		if errors.Is(err, zk.ErrNoAuth) {
			denied = true
			fmt.Fprintf(l.stderr, "zklock: %s: left out: %v\n", path, cause(err))
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if below != "" && len(names) == 0 && stat.Cversion > 0 && stat.EphemeralOwner == 0 {
			locks = append(locks, lockEntry{Path: path, Queue: []entry{}})
		}
		slices.Sort(names)
		for _, name := range names {
			if skip[name] || root == "" && below == "" && name == "zookeeper" { // the servers' own
				continue
			}
			if err := walk(below + "/" + name); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(path); err != nil {
		return locks, classify(err)
	}
	if denied {
		return locks, &exitError{code: exitRefused}
	}
	if len(locks) == 0 {
		err = l.noteMissing(ctx, path)
	}
	return locks, err
}

func (l *lister) data(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	return ask(ctx, l.s, func(c *zk.Conn) ([]byte, error) {
		data, _, err := c.Get(l.at(path))
		return data, err
	})
}

func (l *lister) children(ctx context.Context, node string) (names []string, stat *zk.Stat, err error) {
	if node == "" {
		node = "/"
	}
	ctx, cancel := l.within(ctx)
	defer cancel()
	type children struct {
		names []string
		stat  *zk.Stat
	}
	c, err := ask(ctx, l.s, func(conn *zk.Conn) (c children, err error) {
		c.names, c.stat, err = conn.Children(node)
		return c, err
	})
	return c.names, c.stat, readable(err)
}

func readable(err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("no READ permission: %w", err)
	}
	return err
}
