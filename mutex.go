package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
)

// Mutex is a lock on a path: one owner at a time holds it, among all clients of the ensemble. It is reusable, safe for
// many goroutines, and costs nothing until it is acquired. Two Mutexes on one path and Session are one lock.
type Mutex struct {
	s      *Session
	root   lockRoot
	opts   mutexOptions
	recipe recipe
	kind   string // for people
	traced string // for traces, see AcquireInfo.Kind

	wrong error // what its maker was given that it cannot take
}

// Lock is what the recipes have in common. *Mutex is one; so are the two sides of a read/write lock. Code that takes a Lock works
// with each of them. Types of other packages may be Locks too. One that wraps a Lock says which by a method Unwrap() Lock, for [NewMulti].
type Lock interface {
	Acquire(ctx context.Context) (*Hold, error)
	TryAcquire(ctx context.Context) (*Hold, error)
	Do(ctx context.Context, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) error
	TryDo(ctx context.Context, f func(ctx context.Context, hold *Hold) error) error
	Path() string
}

// NewMutex returns the lock on path. The path must be absolute, must not end in a slash and must not be at or below /zookeeper; it is
// below the Session's chroot. NewMutex sends nothing: the first acquire makes the lock root and its parents, up to the chroot.
func NewMutex(s *Session, path string, opts ...MutexOption) (*Mutex, error) {
	if !s.isConnected() {
		return nil, &Error{Op: "new mutex", Path: path, Err: errNoSession}
	}
	m, err := mutexOf(s, path, queue.MutexName, newMutexOptions(opts), plain{})
	if err != nil {
		return nil, &Error{Op: "new mutex", Path: path, Err: badArgument{err}}
	}
	return &m, nil
}

// mutexOf returns the lock whose nodes are called so.
func mutexOf(s *Session, path, name string, o mutexOptions, by recipe) (Mutex, error) {
	err := checkPath(path)
	if err == nil {
		err = o.checkFor(name)
	}
	m := Mutex{s: s, opts: o, recipe: o.withDelay(by), kind: "Mutex", traced: "mutex"}
	markers := queue.Markers
	if name == queue.LatchName {
		markers = []string{name}
	}
	m.root = lockRoot{
		path: s.chroot + path, chroot: s.chroot, given: path, acl: o.acl, container: o.container, share: name, recorded: o.delay > 0,
		rule: queue.Rule{Name: name, Markers: markers}, roots: &s.roots,
	}
	return m, err
}

// String returns the path, in one word.
func (m *Mutex) String() string { return m.made().kind + "(" + m.root.given + ")" }

// Path returns the path as given to NewMutex.
func (m *Mutex) Path() string { return m.made().root.given }

// isMade says whether NewMutex has made the Mutex.
func (m *Mutex) isMade() bool { return m != nil && m.s != nil }

// made is for methods that return no error.
func (m *Mutex) made() *Mutex {
	if !m.isMade() {
		panic(fmt.Errorf("zklock: %w", errNoMutex))
	}
	return m
}

// Acquire waits for the lock until ctx ends. ctx bounds the wait only: the hold lasts as long as
// Hold.Context. Every hold must be released.
//
// If ctx carries a hold of this lock and Session, or an owner (WithOwner) that holds it, Acquire
// re-enters the lock at once and sends nothing. An owner is served in one call at a time: its other
// calls wait, each under its own ctx, until that one has its outcome. Then they re-enter the lock;
// or, if it was not granted, one of them queues, no particular one, and at the end. Everybody else
// contends, also with a hold of another lock in ctx. A call whose ctx carries a hold of this lock
// through another Session waits for that hold, which may be its own.
//
// When Acquire returns an error, the call holds nothing, and its node is deleted or is being
// deleted. The error is the cause of ctx if ctx ended, with the last error response to its requests
// and what came of each dial; ErrLost while the owner has unreleased handles of a hold that was
// lost; ErrClosed; ErrNoChroot if the servers have lost the chroot; or what the servers said, such
// as zk.ErrNoAuth. The *Error around it says where the node stood in the queue. While no server can be reached, Acquire waits for one: only ctx and Close end that
// wait. It keeps its position through an outage of all servers that is no longer than the session
// timeout, and queues again after a longer one. If the Session holds a lock meanwhile, the lease of
// that hold is the limit, and it is shorter (docs/lease.md): when the lease ends, the hold is lost,
// the ZooKeeper session is given up, and every call that waits in the Session queues again. A call
// whose position matters more than one connection waits in a Session that holds nothing. If servers
// close the connection three times in a row at a create, Acquire returns an error that names the
// request: servers before ZooKeeper 3.5 do not know it, or, if it has more than 4 KiB, it is perhaps
// longer than their jute.maxbuffer.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "acquire", forever) }

// TryAcquire takes the lock if nobody is ahead, and otherwise returns ErrNotAcquired. It also returns that if another call of the owner
// in ctx stands behind somebody. Re-entry succeeds at once, as with Acquire.
//
// TryAcquire does not wait for a server either. It returns ErrNotConnected, which is not ErrNotAcquired: at once if the
// Session is not connected, and otherwise if it has no answers within two heartbeats. A heartbeat is a tenth of the session
// timeout, and at least 250 ms.
//
// When TryAcquire returns an error, the call holds nothing, and its node is deleted or is being deleted.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) { return m.enter(ctx, "try", 0) }

// Do acquires the lock, runs f under it, and releases. If it does not get the lock, f is not called and the error is
// Acquire's. Nor is f called if ctx ends just as the lock is granted, or the lock is lost then: the error says so. ctx bounds both the
// wait and the work; WaitAtMost bounds the wait alone.
//
// f gets the hold, and a context that carries it. That context is derived from ctx: it has its deadline and values, and ends
// with it, by its Err and cause. It also ends when the lock is lost; then its cause is the hold's Err. f must return soon after.
//
// The error is f's, joined with the release's. So Do can return an error although f succeeded: ErrLost if the lock was lost
// before the release, ErrNotConfirmed if no server confirmed the release in time, ErrNotHeld if the hold was released before f
// returned, by f or by whatever f shares the hold with. After a loss errors.Is(err, ErrLost) is true whatever f returned, and the
// loss is in the error once: if f returned the plain error or the cause of its context, nothing is joined to it. The same is true of
// ErrNotHeld. The release ends by itself, as Release does.
//
// A function that goes on after the loss may run beside the next holder. It is logged after 5 s, and again each time that this has
// lasted twice as long.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) error {
	if !m.isMade() {
		return &Error{Op: "do", Err: errNoMutex}
	}
	o, err := newDoOptions(opts)
	if err == nil && f == nil {
		err = errors.New("nil function: give Do the work")
	}
	if err != nil {
		return &Error{Op: "do", Path: m.root.given, Err: badArgument{err}}
	}
	op := "acquire"
	if o.wait == 0 {
		op = "try"
	}
	h, err := m.enter(ctx, op, o.wait)
	if err != nil {
		return err
	}
	_, err = h.run(ctx, ctx, f)
	return err
}

// TryDo is Do with TryAcquire: if somebody is ahead it returns ErrNotAcquired, and if no server can say so ErrNotConnected,
// after two heartbeats at most. Then f is not called.
func (m *Mutex) TryDo(ctx context.Context, f func(ctx context.Context, hold *Hold) error) error {
	return m.Do(ctx, f, WaitAtMost(0))
}

// Held says whether any owner holds the lock through this Session.
func (m *Mutex) Held() bool {
	m.made().s.loseIfLate()
	return m.s.locks.held(&m.root)
}

// OwnedBy says whether an Acquire with ctx would re-enter: ctx carries a hold of this lock, or an owner that holds it.
func (m *Mutex) OwnedBy(ctx context.Context) bool {
	m.made().s.loseIfLate()
	return m.s.locks.heldBy(&m.root, m.asker(ctx))
}

// Participants returns the queue, the holder first. If the lock root is not there, the queue is empty. Nodes that go while
// the queue is read are left out. While no server can be reached, Participants waits for one until ctx ends.
func (m *Mutex) Participants(ctx context.Context) ([]Participant, error) {
	if !m.isMade() {
		return nil, &Error{Op: "participants", Err: errNoMutex}
	}
	var ps []Participant
	err := m.reading(ctx, "participants", func(e *era) (err error) {
		if ps, err = participantsIn(ctx, e, &m.root); err == nil {
			err = m.recipe.describe(ctx, e, &m.root, ps)
		}
		return err
	})
	return ps, err
}

// reading calls read until a connection lasts for as long as it takes. read returns nil, or an error of the requests in it; a bad
// argument, too, is final.
func (m *Mutex) reading(ctx context.Context, op string, read func(e *era) error) error {
	return m.readingIn(ctx, op, attachedEra, read)
}

// readingIn is reading in the ZooKeeper session that attached returns.
func (m *Mutex) readingIn(ctx context.Context, op string, attached func(context.Context, *link.Link) (*era, error), read func(e *era) error) error {
	var last link.LastError
	fail := func(err error) error { return &Error{Op: op, Path: m.root.given, Err: m.s.forCaller(ctx, err, &last)} }
	if ctx == nil {
		return fail(errNilContext)
	}
	for backoff := (link.Backoff{}); ; {
		e, err := attached(ctx, m.s.link)
		if err != nil {
			return fail(err)
		}
		err = read(e)
		var bad badArgument
		switch {
		case err == nil:
			return nil
		case err == link.ErrCtxEnded, errors.Is(err, ErrClosed), errors.Is(err, link.ErrHungUp), answer.IsRefusal(err), errors.As(err, &bad):
			return fail(err)
		}
		if !e.IsOver() { // the connection was lost, or the servers are busy: read again
			last.Note(err)
		}
		_ = e.PauseUnder(ctx, backoff.Next())
	}
}

func (m *Mutex) asker(ctx context.Context) asker { return askerIn(ctx, &m.s.locks, &m.root) }

// enter waits for the lock, for no longer than wait; 0 is a try.
func (m *Mutex) enter(ctx context.Context, op string, wait time.Duration) (*Hold, error) {
	if !m.isMade() || ctx == nil {
		return m.enterAs(ctx, asker{}, op, wait, nil)
	}
	return m.enterAs(ctx, m.asker(ctx), op, min(wait, waitIn(ctx, m.root.path).left()), m.recipe)
}

// enterAs is enter for an owner that the context need not name: what it carries then applies to no other lock (R67). The recipe is the
// lock's own, or one that wraps it. Here acquires are traced.
func (m *Mutex) enterAs(ctx context.Context, by asker, op string, wait time.Duration, recipe recipe) (*Hold, error) {
	switch {
	case !m.isMade():
		return nil, &Error{Op: op, Err: errNoMutex}
	case ctx == nil:
		return nil, &Error{Op: op, Path: m.root.given, Err: errNilContext}
	}
	if len(m.s.trace.all) == 0 {
		h, _, err := m.take(ctx, ctx, by, op, wait, recipe, nil)
		return h, err
	}
	values, c := m.s.trace.begin(ctx, AcquireInfo{Kind: m.traced, Path: m.root.given, Name: m.opts.label, Multi: waitIn(ctx, m.root.path).multi, Try: wait == 0})
	h, a, err := m.take(ctx, values, by, op, wait, recipe, c)
	end := AcquireEndInfo{Err: err, Reentered: err == nil && a == nil}
	if a != nil {
		end.Place, end.Requeued = int(a.first.Load()), max(0, int(a.made.Load())-1)
	}
	c.acquired(ctx, h, end)
	return h, err
}

// take gets the lock, by an acquisition unless it re-enters or that is refused. The hold has the values of the second context.
func (m *Mutex) take(ctx, values context.Context, by asker, op string, wait time.Duration, recipe recipe, trace handleTrace) (*Hold, *acquisition, error) {
	switch {
	case m.wrong != nil:
		return nil, nil, &Error{Op: op, Path: m.root.given, Err: m.wrong}
	case ctx.Err() != nil:
		return nil, nil, m.notLetIn(ctx, op, nil, ctxError(ctx))
	}
	h := newHold(values, wait == 0, trace)
	var offline error
	if h.try {
		wait, offline = m.s.tryLimit()
	}
	a, err := m.look(h, by, offline)
	for err == errBusy {
		if wait, err = m.awaitOther(ctx, a, wait); err == nil {
			a, err = m.look(h, by, offline)
		}
	}
	if err == nil && a != nil {
		a.link, a.opts = m.s.link, &m.opts.nodeOptions
		if !a.link.Spawn(func() { a.run(recipe) }) {
			m.s.locks.fail(a, a.link.ClosedErr())
			a.finished()
		}
		err = m.await(ctx, a, h, wait)
	}
	if err != nil {
		return nil, a, m.notLetIn(ctx, op, a, err)
	}
	return h, a, nil
}

// look is lockTable.enter, for what stands now: a lost hold is not re-entered.
func (m *Mutex) look(h *Hold, by asker, offline error) (*acquisition, error) {
	m.s.loseIfLate()
	return m.s.locks.enter(h, &m.root, by, offline, m.recipe.besideLocked)
}

// awaitOther waits for the outcome of another call that the owner is served in, or until that has left, and returns what is left of the
// wait.
func (m *Mutex) awaitOther(ctx context.Context, busy *acquisition, wait time.Duration) (left time.Duration, err error) {
	began, limit := time.Now(), time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-busy.ctx.Done():
		return wait - time.Since(began), nil
	case <-ctx.Done():
		return 0, ctxError(ctx)
	case <-limit.C:
		return 0, m.notInTime(busy, wait)
	}
}

// await waits for the outcome of a call, until its context or its wait ends. If the call leaves then, await waits a little for the
// clean-up.
func (m *Mutex) await(ctx context.Context, a *acquisition, h *Hold, wait time.Duration) error {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	var why error
	select {
	case err := <-h.outcome:
		return err
	case <-ctx.Done():
		why = ctxError(ctx)
	case <-limit.C:
		why = m.notInTime(a, wait)
	}
	if !m.s.locks.leave(a) {
		return <-h.outcome
	}
	if !errors.Is(why, ErrNotConnected) {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-a.done:
		case <-t.C:
		}
	}
	return why
}

// notLetIn returns the error of a call that got no lock: with where it stood in the queue, if there was an acquisition.
func (m *Mutex) notLetIn(ctx context.Context, op string, a *acquisition, err error) error {
	if e, ok := err.(*Error); ok {
		err = e.Err // keep only the caller's Op and Path
	}
	if a == nil {
		return &Error{Op: op, Path: m.root.given, Err: err}
	}
	at := m.s.locks.position(a)
	if at.why != "" {
		err = fmt.Errorf("%w; %s", err, at.why)
	}
	if ctx.Err() != nil || errors.Is(err, ErrNotConnected) {
		err = m.s.link.Unreached(a.last.AddTo(err))
	}
	return &Error{Op: op, Path: m.root.given, Node: at.node, Err: m.waitsForItself(ctx, err), Place: at.place, Predecessor: at.predecessor, Holder: at.holder(), DelayUntil: at.until}
}

// notInTime returns the error of a call whose wait is over. Somebody was ahead only if a server has said so.
func (m *Mutex) notInTime(a *acquisition, wait time.Duration) error {
	switch z, _, err := m.s.link.AttachedNow(); {
	case err != nil:
		return err
	case z != nil:
		if m.s.locks.position(a).waits() {
			return ErrNotAcquired
		}
	}
	return fmt.Errorf("%w: no answer yet, after %v", ErrNotConnected, wait)
}

// waitsForItself extends the error of a call that was not let in. If the call's own context carries a hold of this path that
// the call could not re-enter, the error says so: the hold is of another Session, or of another owner than the one set.
func (m *Mutex) waitsForItself(ctx context.Context, err error) error {
	h := heldIn(ctx, holdKey{root: m.root.path})
	if h == nil || ctx.Err() == nil && !errors.Is(err, ErrNotAcquired) || h.Err() != nil {
		return err
	}
	if m.root.isFresh {
		return fmt.Errorf("%w; this call's own context carries a hold of this path, %s, and a call does not re-enter it", err, h.Node())
	}
	whose := "through another Session"
	switch {
	case h.d.table == &m.s.locks && h.d.key.share == m.root.other && actsFor(ctx, h):
		return err // a read under it needs no turn
	case h.d.table == &m.s.locks && h.d.key.share != m.root.share:
		whose = "for another kind of lock" // a Mutex under a read/write lock, or the other way round
	case h.d.table == &m.s.locks:
		whose = "for another owner"
	}
	return fmt.Errorf("%w; this call's own context carries a hold of this path %s, %s, and the call could not re-enter it", err, whose, h.Node())
}
