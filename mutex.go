package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// Mutex is a lock on a path: one owner at a time holds it, among all clients of the ensemble. It is reusable, safe for
// many goroutines, and costs nothing until it is acquired. Two Mutexes on one path and Session are one lock.
type Mutex struct {
	s    *Session
	path string // as given
	root string // absolute
	opts mutexOptions
}

// NewMutex returns the lock on path, which must be absolute and must not end in a slash; it is below the Session's
// chroot. It does no I/O: the lock root and its parents are made when the lock is first acquired.
func NewMutex(s *Session, path string, opts ...MutexOption) (*Mutex, error) {
	if s == nil {
		return nil, &Error{Op: "new mutex", Path: path, Err: errors.New("nil Session: Connect returns one")}
	}
	o := newMutexOptions(opts)
	err := checkPath(path)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return nil, &Error{Op: "new mutex", Path: path, Err: err}
	}
	return &Mutex{s: s, path: path, root: s.absolute(path), opts: o}, nil
}

// Path returns the path as given to NewMutex.
func (m *Mutex) Path() string { return m.path }

// Acquire waits for the lock until ctx ends, which bounds the wait only: the hold's life is that of Hold.Context. If
// the owner in ctx holds the lock already, it is re-entered at once and nothing is sent; a context without an owner
// gets a fresh one, so that two plain calls contend. Every hold must be released.
//
// When it returns an error nothing is held, and the node it may have made is deleted or being deleted. The error is
// ctx's cause if ctx ended; ErrLost if the owner has handles of a hold that was lost, until it has released them;
// ErrClosed; or what the servers said, such as zk.ErrNoAuth. A server that is away is waited for.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "acquire", false) }

// TryAcquire takes the lock if nobody is ahead, and otherwise returns ErrNotAcquired. Either way it leaves at most one
// node, and none when it returns an error; ctx bounds the requests. If the owner in ctx is waiting for the lock in
// another call, that is ErrNotAcquired too.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "try", true) }

// Do acquires the lock, runs f under the hold's context, and releases. f's context also ends when ctx does. The error
// is f's, with that of the release attached; a release that finds the lock lost gives ErrLost although f succeeded.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	// An ended ctx gets the short try that Release gives it.
	defer func() {
		rctx, cancel := context.WithTimeout(ctx, max(grace, m.s.Timeout()/3))
		defer cancel()
		if rerr := h.Release(rctx); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}()
	inner, cancel := context.WithCancelCause(h.Context())
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(ctxError(ctx)) })
	defer stop()
	return f(&holdContext{inner, h})
}

// Held says whether any owner holds the lock through this Session.
func (m *Mutex) Held() bool {
	m.s.look()
	return m.s.locks.held(m.root, Owner{})
}

// OwnedBy says whether the owner that ctx carries holds the lock.
func (m *Mutex) OwnedBy(ctx context.Context) bool {
	o, ok := OwnerFrom(ctx)
	if !ok {
		return false
	}
	m.s.look()
	return m.s.locks.held(m.root, o)
}

// look ends the current era if a hold is past its lease.
func (s *Session) look() {
	s.link.Lock()
	e := s.link.era
	s.link.Unlock()
	if e != nil {
		e.look(s.clock.now())
	}
}

// grace is how long a call whose context has ended waits for its clean-up to be confirmed (I6).
const grace = 500 * time.Millisecond

func (m *Mutex) enter(ctx context.Context, op string, try bool) (*Hold, error) {
	fail := func(err error) (*Hold, error) {
		if e, ok := err.(*Error); ok {
			err = e.Err // one layer of "where" is enough; this one is the caller's
		}
		return nil, &Error{Op: op, Path: m.path, Err: err}
	}
	if ctx == nil {
		return fail(errors.New("nil context"))
	}
	ended := func() (*Hold, error) { return nil, &Error{Op: op, Path: m.path, Err: ctxError(ctx)} }
	if ctx.Err() != nil {
		return ended()
	}
	owner, ok := OwnerFrom(ctx)
	if !ok {
		owner = NewOwner("")
	}
	m.s.look() // a lost hold is not re-entered
	hold, a, j, isNew, err := m.s.locks.enter(ctx, m, lockKey{m.root, owner}, try)
	if err != nil || hold != nil {
		if err != nil {
			return fail(err)
		}
		return hold, nil
	}
	if isNew && !m.s.spawn(a.run) {
		m.s.locks.fail(a, m.s.closedErr())
		a.cancel(nil)
		close(a.done)
	}
	select {
	case r := <-j.result:
		if r.err != nil {
			return fail(r.err)
		}
		return r.hold, nil
	case <-ctx.Done():
	}
	left, last := m.s.locks.leave(a, j)
	if !left {
		r := <-j.result
		if r.err != nil {
			return fail(r.err)
		}
		return r.hold, nil
	}
	if last {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-a.done:
		case <-t.C:
		}
	}
	return ended()
}

// attempt walks the recipe for one owner. It belongs to the owner, not to a call: calls join and leave, and it ends
// with the grant, with an error, or when the last has left.
type attempt struct {
	m      *Mutex
	d      *lockData
	ctx    context.Context // ends when the last joiner has left
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing is left to be done, the deletion of a node aside that the reaper has
	retry  *backoff      // run's: between requests that fail in a way that says nothing

	joiners map[*joiner]struct{} // guarded, as waiting, by the lock table
	waiting bool                 // somebody is ahead
}

func newAttempt(m *Mutex, d *lockData) *attempt {
	a := &attempt{m: m, d: d, done: make(chan struct{}), retry: newBackoff(), joiners: make(map[*joiner]struct{})}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	return a
}

// errRequeue says that our node, or its session, is gone through no fault of ours: begin again at the tail.
var errRequeue = errors.New("queue again")

func (a *attempt) run() {
	defer close(a.done)
	defer a.cancel(nil)
	s, backoff := a.m.s, newBackoff()
	for a.ctx.Err() == nil { // once it has ended, nobody waits
		start := time.Now()
		e, err := s.attachedEra(a.ctx)
		if err == nil {
			err = a.queueIn(e)
		}
		switch {
		case err == nil:
			return // granted
		case a.ctx.Err() != nil:
			return // nobody waits
		case errors.Is(err, ErrClosed), errors.Is(err, ErrAuthFailed):
		case errors.Is(err, errEraOver):
			if a.m.opts.failOnLoss {
				err = fmt.Errorf("%w: %w", ErrSessionExpired, err)
				break
			}
			continue
		case errors.Is(err, errRequeue):
			// Somebody deletes our nodes. Do not race with them.
			if time.Since(start) > 5*time.Second {
				backoff = newBackoff()
			}
			_ = a.pause(e, backoff.next())
			continue
		}
		s.locks.fail(a, err)
		return
	}
}

// queueIn makes a node in this era and follows it to the front. It returns nil when the lock was granted; otherwise
// the node is deleted, or the reaper has it, or it died with its session.
func (a *attempt) queueIn(e *era) error {
	m := a.m
	c := e.create(a.ctx, m.root, m.opts.data, m.opts.acl)
	var l *listing
	if e.knowsRoot(m.root) {
		// The list goes out in the flight of the create, after it: an uncontended acquire is one round trip.
		select {
		case <-c.left:
			l, _ = e.list(a.ctx, m.root)
		case <-c.done:
		}
	}
	<-c.done // at the latest with the era
	if c.err != nil {
		if !errors.Is(c.err, zk.ErrNoNode) {
			return c.err
		}
		e.noteRoot(m.root, false)
		if err := m.makeRoot(a.ctx, e); err != nil {
			return err
		}
		return a.queueIn(e)
	}
	e.noteRoot(m.root, true)
	m.warnOfTheEnd(c.node)

	err := a.follow(e, c, l)
	if err != nil {
		a.giveUp(e, c.node, err)
	}
	return err
}

// giveUp deletes the node and waits for that a little, so that a caller who is told finds it gone (I4).
func (a *attempt) giveUp(e *era, node string, why error) {
	if errors.Is(why, ErrClosed) || e.isOver() {
		return // it goes with its session
	}
	x := e.erase(node)
	a.m.afterErasure(e, node, x)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-x.done:
	case <-x.refused:
	case <-t.C:
	}
}

// follow lists, decides, and waits, until the node is in front. l is a list that was sent after the node was made, or
// nil.
func (a *attempt) follow(e *era, c *creation, l *listing) error {
	m, name := a.m, c.node[len(a.m.root)+1:]
	czxid := map[string]int64{name: c.token}
	queued := false
	defer func() {
		if queued {
			e.queue(-1)
		}
	}()
	backoff := newBackoff()
	early := l != nil
	for {
		if l == nil {
			var err error
			early = false
			l, err = e.list(a.ctx, m.root)
			switch {
			case err == nil:
				backoff = newBackoff()
			case errors.Is(err, zk.ErrNoNode):
				return errRequeue // the lock root is gone, and our node with it (R5, R58)
			case a.ctx.Err() != nil, e.isOver(), errors.Is(err, ErrClosed):
				return err
			case refused(err):
				return err
			default: // the connection was lost: ask again when there is one
				l = nil
				if err := a.pause(e, backoff.next()); err != nil {
					return err
				}
				continue
			}
		}
		p := placeOf(name, l.names, m.opts.markers, czxid)
		switch p.kind {
		case missing:
			if early { // sent in the flight of a create that was lost; ours came later
				l = nil
				continue
			}
			return errRequeue
		case exhausted:
			return fmt.Errorf("%w: the node %s of another client stands past the end", ErrSequenceExhausted, p.foreign)
		case needOrder:
			if err := a.readOrder(e, p.unordered, czxid); err != nil {
				return err
			}
		case front:
			return a.grant(e, c, nil)
		case behind:
			if !m.s.locks.behind(a) {
				return ErrNotAcquired
			}
			if !queued {
				queued = true
				e.queue(1)
			}
			own, err := a.wait(e, c, l, p)
			if err != nil {
				return err
			}
			if own != nil {
				return a.grant(e, c, own)
			}
			l = nil
		}
	}
}

// readOrder reads the czxids of nodes whose suffixes do not order them.
func (a *attempt) readOrder(e *era, names []string, czxid map[string]int64) error {
	for _, n := range names {
		stat, err := e.stat(a.m.root + "/" + n)
		switch {
		case err == nil:
			czxid[n] = stat.Czxid
		case errors.Is(err, zk.ErrNoNode):
			czxid[n] = -1
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case refused(err), e.isOver(), errors.Is(err, ErrClosed):
			return err
		default: // the connection was lost; what is still missing is asked for again
			return a.pause(e, a.retry.next())
		}
	}
	return nil
}

// wait waits behind the predecessor. It returns the watch on our own node if the lock may be granted without asking, nil
// if the queue must be listed again. Events are hints; see inFrontNow for when one is enough.
func (a *attempt) wait(e *era, c *creation, l *listing, p place) (inFront *watch, err error) {
	s := a.m.s
	conn, changed, err := s.attachedConn(e)
	if err != nil {
		return nil, err
	}

	// Our own node first: if both are deleted, ours must not be the one we do not hear of.
	own, err := e.watch(a.ctx, c.node)
	switch {
	case err == nil:
	case errors.Is(err, zk.ErrNoNode):
		return nil, errRequeue
	case errors.Is(err, zk.ErrNoAuth):
		return nil, a.pause(e, heartbeat(e.sessionTimeout())) // our own ACL forbids reading: poll
	default:
		return nil, a.again(e, err)
	}
	ahead, err := e.watch(a.ctx, a.m.root+"/"+p.predecessor)
	switch {
	case err == nil:
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil // gone in between: list again, and keep our node (R55)
	case errors.Is(err, zk.ErrNoAuth):
		return nil, a.pause(e, heartbeat(e.sessionTimeout()))
	default:
		return nil, a.again(e, err)
	}

	a.retry = newBackoff()
	// An event can get lost, at a server or when watches are set again after a reconnect (F30).
	recheck := time.NewTimer(e.sessionTimeout())
	defer recheck.Stop()
	for {
		select {
		case <-ahead.fired:
			if ok, err := a.inFrontNow(e, l, p, own, ahead); !ok {
				return nil, err
			}
			return own, nil
		case <-own.fired:
			if own.event == zk.EventNodeDeleted {
				return nil, errRequeue
			}
			return nil, nil
		case <-changed:
			var now uint64
			if now, changed, err = s.attachedConn(e); err != nil {
				return nil, err
			}
			if now != 0 && now != conn {
				return nil, nil
			}
		case <-recheck.C:
			// If the client could not restore them after a reconnect, nobody will ever hear of these.
			for _, w := range []*watch{own, ahead} {
				if w.conn != conn {
					e.dropWatch(w)
				}
			}
			return nil, nil
		case <-e.over:
			return nil, e.overErr()
		case <-a.ctx.Done():
			return nil, context.Cause(a.ctx)
		}
	}
}

// inFrontNow is the rule by which the predecessor's deletion grants without another request. Everything else lists.
func (a *attempt) inFrontNow(e *era, l *listing, p place, own, ahead *watch) (bool, error) {
	// Nobody else was ahead when we listed, and nobody can get in between: but past the counter's end, where
	// suffixes order nothing.
	if !p.second || p.wrapped || ahead.event != zk.EventNodeDeleted {
		return false, nil
	}
	// A predecessor of our own ZooKeeper session may have gone with the session, and our node too. Its deletion
	// grants only if it was ours to do and was answered with success, which the session must have lived for.
	if ahead.owner == e.id {
		if ahead.erasure == nil {
			return false, nil
		}
		select {
		case <-ahead.erasure.done:
		case <-e.over:
			return false, e.overErr()
		case <-a.ctx.Done():
			return false, context.Cause(a.ctx)
		}
		if !ahead.erasure.ok {
			return false, nil
		}
	}
	// All that we know must come from one connection, the present one. Watches restored after a reconnect are replayed
	// in the order the client happens to ask in: the predecessor's deletion can come before our own.
	conn, _, err := a.m.s.attachedConn(e)
	if err != nil {
		return false, err
	}
	if conn == 0 || l.conn != conn || own.conn != conn || ahead.conn != conn {
		return false, nil
	}
	// If one transaction deletes the predecessor and then ours, our event may be yet to be read. Such a hold is lost as soon
	// as it is, like any whose node somebody deletes (F24); only another request could tell it before.
	return !own.hasFired(), nil
}

// again decides what a failed watch means: an error to end with, or nil to list again.
func (a *attempt) again(e *era, err error) error {
	switch {
	case a.ctx.Err() != nil:
		return context.Cause(a.ctx)
	case e.isOver():
		return e.overErr()
	case errors.Is(err, ErrClosed):
		return err
	case refused(err):
		return err
	}
	return a.pause(e, a.retry.next())
}

// pause waits, and returns why there is nothing to go on with.
func (a *attempt) pause(e *era, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-e.over:
		return e.overErr()
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

// grant gives the lock to everybody who waits in this attempt, if the ZooKeeper session that made the node is the
// current one (I3) and its lease has room. A lease that went stale while we waited is renewed first.
//
// own is the watch on our own node if the grant rests on an event. From the moment the lock is under the lease, the
// deletion of its node is a loss; own says whether it was deleted before.
func (a *attempt) grant(e *era, c *creation, own *watch) error {
	s := a.m.s
	s.locks.prepare(a, e, c.node, c.token)
	for renewed := false; ; renewed = true {
		ok, err := e.hold(a.d)
		switch {
		case errors.Is(err, ErrNoRoom):
			return err
		case err != nil:
			return e.overErr()
		}
		if ok && s.opts.endOnSuspend {
			// A hold that is made while the connection is suspended would outlive the suspension.
			if conn, _, _ := s.attachedConn(e); conn == 0 {
				e.unhold(c.node)
				if _, err := e.waitAttached(a.ctx); err != nil {
					return err
				}
				continue
			}
		}
		if ok {
			break
		}
		if renewed {
			if err := a.pause(e, heartbeat(e.sessionTimeout())/2); err != nil {
				return err
			}
		}
		gone, err := e.check(a.ctx, c.node)
		switch {
		case err == nil:
		case gone != "":
			return errRequeue
		case errors.Is(err, zk.ErrNoAuth):
			return fmt.Errorf("the lease cannot be renewed without READ on the lock node: %w", err)
		default:
			if err := a.again(e, err); err != nil {
				return err
			}
		}
	}
	if own != nil && own.hasFired() && own.event == zk.EventNodeDeleted {
		e.unhold(c.node)
		return errRequeue
	}
	if !s.locks.grant(a) {
		e.unhold(c.node)
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		return errRequeue // lost between the two: nobody had it
	}
	a.m.startRevocation(a.d)
	return nil
}

// makeRoot makes the lock root and the parents it lacks, from the lowest that is there. Whoever makes one first, or
// takes one away in between, does not matter.
func (m *Mutex) makeRoot(ctx context.Context, e *era) error {
	path, backoff := m.root, newBackoff()
	for {
		err := m.makeNode(ctx, e, path)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			if path == m.root {
				return nil
			}
			path = m.root[:len(path)+1+strings.IndexByte(m.root[len(path)+1:]+"/", '/')]
			continue
		case errors.Is(err, zk.ErrNoNode):
			if i := strings.LastIndexByte(path, '/'); i > 0 {
				path = path[:i]
				continue
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case e.isOver():
			return e.overErr()
		case errors.Is(err, ErrClosed):
			return err
		case refused(err):
			return fmt.Errorf("making %s: %w", path, err)
		}
		if !e.pause(backoff.next()) {
			return e.overErr()
		}
	}
}

func (m *Mutex) makeNode(ctx context.Context, e *era, path string) error {
	if path == m.root && m.opts.container {
		_, _, err := call(ctx, e, func(c *zk.Conn) (string, error) {
			return c.CreateContainer(path, nil, zk.FlagContainer, m.opts.acl)
		})
		if serverCode(err) != codeUnimplemented {
			return err
		}
	}
	_, _, err := call(ctx, e, func(c *zk.Conn) (string, error) { return c.Create(path, nil, zk.FlagPersistent, m.opts.acl) })
	return err
}

// maxKnownRoots bounds what a Session that uses one lock path an order remembers (I7).
const maxKnownRoots = 4096

func (e *era) knowsRoot(root string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.roots[root]
}

func (e *era) noteRoot(root string, there bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if there {
		if len(e.mu.roots) >= maxKnownRoots {
			clear(e.mu.roots) // it only saves a round trip; what is not known is found out again
		}
		e.mu.roots[root] = true
	} else {
		delete(e.mu.roots, root)
	}
}
