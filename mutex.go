package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
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

// Format prints the path, in a word for every verb.
func (m *Mutex) Format(f fmt.State, verb rune) { printAs(f, verb, m.words()) }

// LogValue is what Format prints, for log/slog.
func (m *Mutex) LogValue() slog.Value { return slog.StringValue(m.words()) }

func (m *Mutex) words() string { return "Mutex(" + m.path + ")" }

// Path returns the path as given to NewMutex.
func (m *Mutex) Path() string { return m.path }

// Acquire waits for the lock until ctx ends, which bounds the wait only: the hold's life is that of Hold.Context. If ctx
// carries a hold of this lock and Session, or an owner (WithOwner) that holds it, the lock is re-entered at once and
// nothing is sent. Everybody else contends, also with a hold of another lock in ctx, or of this one through another
// Session, for which such a call waits although it may be its own. Every hold must be released.
//
// When it returns an error nothing is held, and the node it may have made is deleted or being deleted. The error is
// ctx's cause if ctx ended; ErrLost if the owner has handles of a hold that was lost, until it has released them;
// ErrClosed; or what the servers said, such as zk.ErrNoAuth. The *Error around it says where we stood in the queue. A
// server that is away is waited for: only ctx, and Close, end that.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "acquire", false) }

// TryAcquire takes the lock if nobody is ahead, and otherwise returns ErrNotAcquired. Either way it leaves at most one
// node, and none when it returns an error. A server that is away is waited for, until ctx ends. If the owner in ctx is
// waiting for the lock in another call, that is ErrNotAcquired too.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "try", true) }

// Do acquires the lock, runs f under the hold's context, and releases. f's context also ends when ctx does; it carries the
// hold, which HoldFrom gives to f for its token. The error is f's, with that of the release attached; a release that finds
// the lock lost gives ErrLost although f succeeded, and one that no server confirmed in time ErrNotConfirmed. Only ctx
// bounds the wait for the lock; the release also ends by itself, as Release does.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if rerr := h.Release(ctx); rerr != nil {
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
	return m.s.locks.held(m.root)
}

// OwnedBy says whether an Acquire with ctx would re-enter: ctx carries a hold of this lock, or an owner that holds it.
func (m *Mutex) OwnedBy(ctx context.Context) bool {
	m.s.look()
	return m.s.locks.heldBy(m.root, askerIn(ctx, m.s, m.root))
}

// HoldFrom returns the hold of this lock that ctx carries, the innermost if it was re-entered: ctx is what Do gave to its
// function, a hold's Context, or derived from either, also through holds of other locks. It may have been lost or released
// since, as its Err says. It returns false if ctx carries none of this lock and Session.
func (m *Mutex) HoldFrom(ctx context.Context) (*Hold, bool) {
	h := heldIn(ctx, holdKey{m.s, m.root})
	return h, h != nil
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

func (m *Mutex) enter(ctx context.Context, op string, try bool) (*Hold, error) {
	var a *attempt // once there is one
	fail := func(err error) (*Hold, error) {
		if e, ok := err.(*Error); ok {
			err = e.Err // one layer of "where" is enough; this one is the caller's
		}
		if a == nil {
			return nil, &Error{Op: op, Path: m.path, Err: err}
		}
		at := m.s.locks.standing(a)
		return nil, &Error{Op: op, Path: m.path, Node: at.node, Err: m.waitsForItself(ctx, err), Place: at.place, Predecessor: at.predecessor}
	}
	if ctx == nil {
		return fail(errors.New("nil context"))
	}
	if ctx.Err() != nil {
		return fail(ctxError(ctx))
	}
	m.s.look() // a lost hold is not re-entered
	hold, a, j, isNew, err := m.s.locks.enter(ctx, m, askerIn(ctx, m.s, m.root), try)
	if err != nil {
		return fail(err)
	}
	if hold != nil {
		return hold, nil
	}
	if isNew && !m.s.spawn(a.run) {
		m.s.locks.fail(a, m.s.closedErr())
		a.cancel(nil)
		close(a.done)
	}
	outcome := func(r joined) (*Hold, error) {
		if r.err != nil {
			return fail(r.err)
		}
		return r.hold, nil
	}
	select {
	case r := <-j.result:
		return outcome(r)
	case <-ctx.Done():
	}
	left, last := m.s.locks.leave(a, j)
	if !left {
		return outcome(<-j.result)
	}
	if last {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-a.done:
		case <-t.C:
		}
	}
	return fail(ctxError(ctx))
}

// waitsForItself adds to the error of a call that was not let in that its own context carries a hold of this path, if one
// stands there that could not let it in: of another Session, or of another owner than the one that was set.
func (m *Mutex) waitsForItself(ctx context.Context, err error) error {
	h := heldIn(ctx, holdKey{root: m.root})
	if h == nil || ctx.Err() == nil && !errors.Is(err, ErrNotAcquired) || h.Err() != nil {
		return err
	}
	whose := "through another Session"
	if h.m.s == m.s {
		whose = "for another owner"
	}
	return fmt.Errorf("%w; this call's own context carries a hold of this path %s, %s, which it could not re-enter", err, whose, h.Path())
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

	joiners map[*joiner]struct{} // guarded, as at, by the lock table
	at      standing
}

func newAttempt(m *Mutex, d *lockData) *attempt {
	a := &attempt{m: m, d: d, done: make(chan struct{}), retry: newBackoff(), joiners: make(map[*joiner]struct{})}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	return a
}

// errRequeue says that our node is gone through no fault of ours: begin again at the tail.
var errRequeue = errors.New("queue again")

func (a *attempt) run() {
	defer close(a.done)
	defer a.cancel(nil)
	s := a.m.s
	for a.ctx.Err() == nil { // once it has ended, nobody waits
		e, err := s.attachedEra(a.ctx)
		if err == nil {
			err = a.acquireIn(e)
		}
		switch {
		case err == nil:
			return // granted
		case a.ctx.Err() != nil:
			return // nobody waits
		case errors.Is(err, errEraOver):
			if !a.m.opts.failOnLoss {
				continue
			}
			err = fmt.Errorf("%w: %w", ErrSessionExpired, err)
		}
		s.locks.fail(a, err)
		return
	}
}

// acquireIn queues in this era, again each time our node is gone through no fault of ours, until the lock is granted. The
// end of the era is an error, also where it is seen by the loss of the node first.
func (a *attempt) acquireIn(e *era) error {
	backoff := newBackoff()
	for {
		start := time.Now()
		err := a.queueIn(e)
		if !errors.Is(err, errRequeue) {
			return err
		}
		// Somebody deletes our nodes. Do not race with them.
		if time.Since(start) > 5*time.Second {
			backoff = newBackoff()
		}
		if err := a.pause(e, backoff.next()); err != nil {
			return err
		}
		if _, err := e.waitAttached(a.ctx); err != nil {
			return err
		}
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
		case <-c.sent:
			l, _ = e.list(a.ctx, listKind{root: m.root})
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
			l, err = e.list(a.ctx, listKind{root: m.root})
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
			if !m.s.locks.behind(a, standing{c.node, p.ahead + 1, m.root + "/" + p.predecessor}) {
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
	for {
		select {
		case <-ahead.fired:
			if ok, err := a.mayGrant(e, l, p, own, ahead); !ok {
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
		case <-e.over:
			return nil, e.overErr()
		case <-a.ctx.Done():
			return nil, context.Cause(a.ctx)
		}
	}
}

// mayGrant asks the rule (inFrontNow) whether the predecessor's event grants, and waits for what it wants to know first.
func (a *attempt) mayGrant(e *era, l *listing, p place, own, ahead *watch) (bool, error) {
	for {
		known, err := a.evidence(e, l, p, own, ahead)
		if err != nil {
			return false, err
		}
		switch inFrontNow(known) {
		case grantNow:
			return true, nil
		case listAgain:
			return false, nil
		}
		select { // awaitDelete
		case <-ahead.erasure.done:
		case <-e.over:
			return false, e.overErr()
		case <-a.ctx.Done():
			return false, context.Cause(a.ctx)
		}
	}
}

// evidence gathers what is known now. Our own node's event is asked for last: what comes after it finds the lock granted,
// and ends the hold.
func (a *attempt) evidence(e *era, l *listing, p place, own, ahead *watch) (evidence, error) {
	k := evidence{
		ahead: p.ahead, wrapped: p.wrapped, deleted: ahead.event == zk.EventNodeDeleted,
		session: e.id, owner: ahead.owner, ourDelete: ahead.erasure.fate(),
		listConn: l.conn, ownConn: own.conn, aheadConn: ahead.conn,
	}
	var err error
	if k.conn, _, err = a.m.s.attachedConn(e); err != nil {
		return k, err
	}
	k.ownFired = own.hasFired()
	return k, nil
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
		_, err = e.check(a.ctx, c.node)
		switch {
		case err == nil:
		case errors.Is(err, zk.ErrNoNode):
			return errRequeue
		case errors.Is(err, zk.ErrNoAuth):
			return fmt.Errorf("%w: %w", errUnreadable, denied(err, "check", "READ", c.node))
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
		_, err := e.ask(ctx, wire.OpCreateContainer, wire.CreateRequest{Path: path, ACL: wireACL(m.opts.acl), Flags: wire.FlagContainer})
		if serverCode(err) != wire.Unimplemented {
			return denied(err, "create", "CREATE", parentOf(path))
		}
	}
	_, err := e.ask(ctx, wire.OpCreate, wire.CreateRequest{Path: path, ACL: wireACL(m.opts.acl), Flags: wire.FlagPersistent})
	return denied(err, "create", "CREATE", parentOf(path))
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
