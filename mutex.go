package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Mutex is a lock on a path: one owner at a time holds it, among all clients of the ensemble. It is reusable, safe for
// many goroutines, and costs nothing until it is acquired. Two Mutexes on one path and Session are one lock.
type Mutex struct {
	s    *Session
	root lockRoot
	opts mutexOptions
}

// NewMutex returns the lock on path. The path must be absolute and must not end in a slash; it is below the Session's
// chroot. NewMutex sends nothing: the first acquire makes the lock root and its parents.
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
	return &Mutex{s: s, opts: o, root: lockRoot{
		path: s.chroot + path, given: path, acl: o.acl, container: o.container, markers: o.markers, roots: &s.roots,
	}}, nil
}

// String returns the path, in one word.
func (m *Mutex) String() string { return "Mutex(" + m.root.given + ")" }

// LogValue returns what String returns, for log/slog.
func (m *Mutex) LogValue() slog.Value { return slog.StringValue(m.String()) }

// Path returns the path as given to NewMutex.
func (m *Mutex) Path() string { return m.root.given }

// Acquire waits for the lock until ctx ends. ctx bounds the wait only: the hold lasts as long as Hold.Context. Every hold
// must be released.
//
// If ctx carries a hold of this lock and Session, or an owner (WithOwner) that holds it, Acquire re-enters the lock at once
// and sends nothing. Everybody else contends, also with a hold of another lock in ctx. A call whose ctx carries a hold of
// this lock through another Session waits for that hold, which may be its own.
//
// When Acquire returns an error, the call holds nothing, and its node is deleted or is being deleted. The error is the cause
// of ctx if ctx ended; ErrLost while the owner has unreleased handles of a hold that was lost; ErrClosed; or what the
// servers said, such as zk.ErrNoAuth. The *Error around it says where the node stood in the queue. While no server can be
// reached, Acquire waits for one: only ctx and Close end that wait.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "acquire", false) }

// TryAcquire takes the lock if nobody is ahead, and otherwise returns ErrNotAcquired. It also returns ErrNotAcquired if
// the owner in ctx waits for the lock in another call.
//
// When TryAcquire returns an error, the call holds nothing, and its node is deleted or is being deleted. While no server
// can be reached, TryAcquire waits for one until ctx ends.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "try", true) }

// Do acquires the lock, runs f under the hold's context, and releases. f's context also ends when ctx does. It carries the
// hold: f gets it from HoldFrom, for its token.
//
// The error is f's, joined with the release's. So Do can return an error although f succeeded: ErrLost if the lock was lost
// before the release, ErrNotConfirmed if no server confirmed the release in time. Only ctx bounds the wait for the lock; the
// release also ends by itself, as Release does.
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
	m.s.loseIfLate()
	return m.s.locks.held(m.root.path)
}

// OwnedBy says whether an Acquire with ctx would re-enter: ctx carries a hold of this lock, or an owner that holds it.
func (m *Mutex) OwnedBy(ctx context.Context) bool {
	m.s.loseIfLate()
	return m.s.locks.heldBy(m.root.path, m.asker(ctx))
}

// HoldFrom returns the hold of this lock that ctx carries, the innermost if it was re-entered. ctx is what Do gave to its
// function, or a hold's Context, or derived from either, also through holds of other locks. The hold may have been lost or
// released since: see its Err. HoldFrom returns false if ctx carries no hold of this lock and Session.
func (m *Mutex) HoldFrom(ctx context.Context) (*Hold, bool) {
	h := heldIn(ctx, holdKey{&m.s.locks, m.root.path})
	return h, h != nil
}

func (m *Mutex) asker(ctx context.Context) asker { return askerIn(ctx, &m.s.locks, m.root.path) }

func (m *Mutex) enter(ctx context.Context, op string, try bool) (*Hold, error) {
	var a *acquisition // once there is one
	fail := func(err error) (*Hold, error) {
		if e, ok := err.(*Error); ok {
			err = e.Err // keep only the caller's Op and Path
		}
		if a == nil {
			return nil, &Error{Op: op, Path: m.root.given, Err: err}
		}
		at := m.s.locks.standing(a)
		return nil, &Error{Op: op, Path: m.root.given, Node: at.node, Err: m.waitsForItself(ctx, err), Place: at.place, Predecessor: at.predecessor, Holder: at.holder}
	}
	if ctx == nil {
		return fail(errors.New("nil context"))
	}
	if ctx.Err() != nil {
		return fail(ctxError(ctx))
	}
	m.s.loseIfLate() // a lost hold is not re-entered
	h := newHold(ctx, try)
	a, isNew, err := m.s.locks.enter(h, &m.root, m.asker(ctx))
	switch {
	case err != nil:
		return fail(err)
	case a == nil:
		return h, nil
	case isNew:
		a.link, a.opts = m.s.link, &m.opts
		if !a.link.spawn(a.run) {
			m.s.locks.fail(a, a.link.closedErr())
			a.finished()
		}
	}
	outcome := func(err error) (*Hold, error) {
		if err != nil {
			return fail(err)
		}
		return h, nil
	}
	select {
	case err := <-h.outcome:
		return outcome(err)
	case <-ctx.Done():
	}
	left, last := m.s.locks.leave(a, h)
	if !left {
		return outcome(<-h.outcome)
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

// waitsForItself extends the error of a call that was not let in. If the call's own context carries a hold of this path that
// the call could not re-enter, the error says so: the hold is of another Session, or of another owner than the one set.
func (m *Mutex) waitsForItself(ctx context.Context, err error) error {
	h := heldIn(ctx, holdKey{root: m.root.path})
	if h == nil || ctx.Err() == nil && !errors.Is(err, ErrNotAcquired) || h.Err() != nil {
		return err
	}
	whose := "through another Session"
	if h.d.table == &m.s.locks {
		whose = "for another owner"
	}
	return fmt.Errorf("%w; this call's own context carries a hold of this path %s, %s, and the call could not re-enter it", err, whose, h.Path())
}
