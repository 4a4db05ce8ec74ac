package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
)

// Mutex is a lock on a path that one owner at a time holds, among all clients of the ensemble. It
// is safe for concurrent use. Mutexes with the same path and Session are the same lock.
type Mutex struct {
	s      *Session
	root   lockRoot
	opts   lockOptions
	recipe recipe
	kind   string // for the user
	traced Kind   // for traces
	wrong  error  // the error of arguments that the constructor could not accept
}

// Lock is the interface of all recipes except the election: *[Mutex] and [Semaphore.Permits]. For
// other types, see [NewMulti].
type Lock interface {
	Acquire(ctx context.Context) (*Hold, error)
	TryAcquire(ctx context.Context) (*Hold, error)
	Do(ctx context.Context, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) error
	TryDo(ctx context.Context, f func(ctx context.Context, hold *Hold) error) error
	Path() string
}

// NewMutex returns the lock on path, and sends nothing. The path is absolute, below the Session's
// chroot, and not /zookeeper or below it. The first acquire creates the lock root and its parents.
func NewMutex(s *Session, path string, opts ...MutexOption) (*Mutex, error) {
	return mutexOf(s, "new mutex", path, queue.MutexName, newLockOptions(opts), plain{})
}

// mutexOf returns the lock whose nodes have this name, or the error of the New function, which is
// op.
func mutexOf(s *Session, op, path, name string, o lockOptions, by recipe) (*Mutex, error) {
	if !s.isConnected() {
		return nil, &Error{Op: op, Path: path, Err: errNoSession}
	}
	err := checkPath(path)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return nil, &Error{Op: op, Path: path, Err: badArgument{err}}
	}
	m := &Mutex{s: s, opts: o, recipe: by, kind: "Mutex", traced: KindMutex}
	markers := queue.Markers
	if name == queue.LatchName {
		markers = []string{name}
	}
	m.root = lockRoot{Root: node.NewRoot(s.chroot+path, s.rootOptions(path, queue.Rule{Name: name, Markers: markers}, &o)), share: name}
	return m, nil
}

// rootOptions returns the options of a lock root of this Session.
func (s *Session) rootOptions(path string, rule queue.Rule, o *lockOptions) node.RootOptions {
	return node.RootOptions{Chroot: s.chroot, Given: path, ACL: o.acl, Container: o.container, Rule: rule, Notes: &s.roots}
}

// String returns the kind of lock and the path.
func (m *Mutex) String() string { return m.made().kind + "(" + m.root.Given() + ")" }

// Path returns the path as given to the New function.
func (m *Mutex) Path() string { return m.made().root.Given() }

func (m *Mutex) isMade() bool { return m != nil && m.s != nil }

func (m *Mutex) made() *Mutex { return usable(m, m.isMade(), errNoMutex) }

// Acquire waits for the lock until ctx ends. ctx does not bound the hold.
//
// If ctx sets an owner ([WithOwner]) that holds this lock, Acquire re-enters the lock at once. If
// ctx carries a hold of this lock and Session, but no owner, Acquire fails at once with a final
// error, because it would wait for itself: give it WithOwner(ctx, hold.Owner()) to re-enter, or a
// context without the hold. An owner's calls run one at a time: each waits until the previous one
// is granted or fails. A call does not re-enter through another Session: it waits, also for its own
// hold.
//
// On failure the call holds nothing, and its node is deleted or is being deleted. The error is the
// cause of ctx; [ErrLost] while the owner has unreleased handles of a lost hold; [ErrClosed];
// [ErrNoChroot]; or an error of the servers, such as zk.ErrNoAuth. The [*Error] around it has the
// node's position in the queue.
//
// While no server can be reached, Acquire waits for one. It keeps its position through an outage
// that is shorter than the session timeout and, if the Session holds a lock, than its lease. If
// servers close the connection at a create three times in a row, Acquire returns an error: the
// servers are older than ZooKeeper 3.5, or their jute.maxbuffer is too small.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "acquire", forever)
}

// TryAcquire takes the lock if no client is before it in the queue, and otherwise returns
// [ErrNotAcquired]. Re-entry succeeds at once. On failure the call holds nothing.
//
// Without a connection, TryAcquire returns [ErrNotConnected] at once. Without a reply, it returns
// ErrNotConnected after two heartbeats, each a tenth of the session timeout and at least 250 ms.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) { return m.acquire(ctx, "try", 0) }

// Do acquires the lock, runs f under it, and releases it. A call with the context of an outer Do of
// this lock fails, as that of [Mutex.Acquire] does, unless the context sets an owner.
//
// If Do does not get the lock, or if ctx ends or the lock is lost just as it is granted, Do returns
// the error and does not call f. ctx bounds the wait and the work; [WaitAtMost] bounds the wait
// alone.
//
// The context of f carries the hold. It is derived from ctx, and also ends when the lock is lost,
// with the hold's Err as its cause: f must return soon, because the next holder may run. If f
// continues, Do logs a warning after 5, 10, 20 s, and so on.
//
// Do returns f's error, joined with the release's, so it can fail although f succeeded: [ErrLost]
// if the lock was lost before the release, whatever f returned; [ErrNotConfirmed] if no server
// confirmed the release in time; [ErrNotHeld] if the hold was released before f returned.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, hold *Hold) error, opts ...DoOption) error {
	return m.do(&graceTime{ctx: ctx}, f, opts)
}

// do is Do with the context and the time that the release has after the context's end.
func (m *Mutex) do(p *graceTime, f func(ctx context.Context, hold *Hold) error, opts []DoOption) error {
	if !m.isMade() {
		return &Error{Op: "do", Err: errNoMutex}
	}
	ctx := p.ctx
	o, err := newDoOptions(opts, f != nil)
	if err != nil {
		return &Error{Op: "do", Path: m.root.Given(), Err: badArgument{err}}
	}
	op := "acquire"
	if o.wait == 0 {
		op = "try"
	}
	h, err := m.acquire(ctx, op, o.wait)
	if err != nil {
		return err
	}
	if o.async {
		p = nil
	}
	_, err = h.runWork(ctx, p, f)
	return err
}

// TryDo is Do with TryAcquire.
func (m *Mutex) TryDo(ctx context.Context, f func(ctx context.Context, hold *Hold) error) error {
	return m.Do(ctx, f, WaitAtMost(0))
}

// Held reports whether an owner holds the lock through this Session.
func (m *Mutex) Held() bool {
	m.made().s.loseIfLate()
	return m.s.locks.held(&m.root)
}

// OwnedBy reports whether ctx carries a hold of this lock, or sets an owner that holds it.
func (m *Mutex) OwnedBy(ctx context.Context) bool {
	m.made().s.loseIfLate()
	return m.s.locks.heldBy(&m.root, m.caller(ctx, "", 0))
}

// Participants returns the queue, the holder first. Without a lock root the queue is empty.
// Participants waits for a connection until ctx ends.
func (m *Mutex) Participants(ctx context.Context) ([]Participant, error) {
	if !m.isMade() {
		return nil, &Error{Op: "participants", Err: errNoMutex}
	}
	var ps []Participant
	err := m.reading(ctx, "participants", func(e *node.ZKSession) (err error) {
		if ps, err = participantsIn(ctx, e, m.root.Root); err == nil && len(ps) > 0 {
			err = m.opts.describe(ctx, e, &m.root, &ps[0])
		}
		return err
	})
	return ps, err
}

// reading is Session.reading for this lock.
func (m *Mutex) reading(ctx context.Context, op string, read func(e *node.ZKSession) error) error {
	return m.s.reading(ctx, op, m.root.Given(), node.AttachedSession, read)
}

func (m *Mutex) caller(ctx context.Context, op string, wait time.Duration) caller {
	return callerIn(ctx, &m.s.locks, &m.root, op, wait)
}

// acquire waits for the lock, for no longer than wait; 0 is a try.
func (m *Mutex) acquire(ctx context.Context, op string, wait time.Duration) (*Hold, error) {
	switch {
	case !m.isMade():
		return nil, &Error{Op: op, Err: errNoMutex}
	case ctx == nil:
		return nil, &Error{Op: op, Path: m.root.Given(), Err: errNilContext}
	}
	return m.enterAs(m.caller(ctx, op, wait))
}

// enterAs acquires the lock for a caller that has been looked up, and traces the acquire. The owner
// may differ from the owner in ctx, and other locks may not see it (R67).
func (m *Mutex) enterAs(by caller) (*Hold, error) {
	if len(m.s.trace.all) == 0 {
		h, _, err := m.take(by, by.ctx, nil)
		return h, err
	}
	values, c := m.s.trace.beginTrace(by.ctx, AcquireInfo{Kind: m.traced, Path: m.root.Given(), Name: m.opts.label, Multi: by.multi, Try: by.wait == 0})
	h, a, err := m.take(by, values, c)
	end := AcquireEndInfo{Err: err, Reentered: err == nil && a == nil}
	if a != nil {
		end.Position, end.Requeued = int(a.first.Load()), max(0, int(a.made.Load())-1)
	}
	c.acquired(by.ctx, h, end)
	return h, err
}

// take gets the lock by an acquisition, unless it re-enters or may not begin. The hold has the
// values of the second context.
func (m *Mutex) take(by caller, values context.Context, trace handleTrace) (*Hold, *acquisition, error) {
	switch {
	case m.wrong != nil:
		return nil, nil, &Error{Op: by.op, Path: m.root.Given(), Err: m.wrong}
	case by.ctx.Err() != nil:
		return nil, nil, m.notLetIn(by, nil, ctxError(by.ctx))
	}
	h := newHold(values, by.wait == 0, trace)
	var offline error
	if h.try {
		by.wait, offline = m.s.tryLimit()
	}
	if by.wait != forever {
		by.late = time.After(by.wait)
	}
	var a *acquisition
	err := errBusy
	for err == errBusy {
		m.s.loseIfLate() // a lost hold is not re-entered
		a, err = m.s.locks.enter(h, &m.root, by, offline, m.recipe.admitLocked)
		if err == errBusy {
			err = cmp.Or(m.awaitOther(by, a), errBusy)
		}
	}
	if err == nil && a != nil {
		a.link, a.opts = m.s.link, &m.opts
		if !a.link.Spawn(func() { a.run(m.recipe) }) {
			m.s.locks.fail(a, a.link.ClosedErr())
			a.finished()
		}
		err = m.awaitOutcome(by, a, h)
	}
	if err != nil {
		return nil, a, m.notLetIn(by, a, err)
	}
	return h, a, nil
}

// awaitOther waits until the owner's other call has its outcome or has left.
func (m *Mutex) awaitOther(by caller, busy *acquisition) error {
	select {
	case <-busy.ctx.Done():
		return nil
	case <-by.ctx.Done():
		return ctxError(by.ctx)
	case <-by.late:
		return m.notInTime(by, busy)
	}
}

// awaitOutcome waits for the outcome of a call, until its context or its wait ends. If the call
// leaves then, awaitOutcome waits briefly for the clean-up.
func (m *Mutex) awaitOutcome(by caller, a *acquisition, h *Hold) error {
	var why error
	select {
	case err := <-h.outcome:
		return err
	case <-by.ctx.Done():
		why = ctxError(by.ctx)
	case <-by.late:
		why = m.notInTime(by, a)
	}
	if !m.s.locks.leave(a) {
		return <-h.outcome
	}
	if !errors.Is(why, ErrNotConnected) {
		select {
		case <-a.done:
		case <-time.After(grace):
		}
	}
	return why
}

// notLetIn returns the error of a call that got no lock, with the position of its node if there was
// an acquisition.
func (m *Mutex) notLetIn(by caller, a *acquisition, err error) error {
	if e, ok := err.(*Error); ok {
		err = e.Err // keep only the caller's Op and Path
	}
	if a == nil {
		return &Error{Op: by.op, Path: m.root.Given(), Err: err}
	}
	at := m.s.locks.position(a)
	if at.why != "" {
		err = fmt.Errorf("%w; %s", err, at.why)
	}
	if by.ctx.Err() != nil || errors.Is(err, ErrNotConnected) {
		err = m.s.link.Unreached(a.last.AddTo(err))
	}
	return &Error{Op: by.op, Path: m.root.Given(), Node: at.node, Err: by.waitsForItself(&m.s.locks, &m.root, err), Position: at.rank, Predecessor: at.predecessor, Holder: at.holder(), DelayUntil: at.until}
}

// notInTime returns the error of a call whose wait has ended.
func (m *Mutex) notInTime(by caller, a *acquisition) error {
	switch z, _, err := m.s.link.AttachedNow(); {
	case err != nil:
		return err
	case z != nil && m.s.locks.position(a).waits():
		return ErrNotAcquired
	}
	return fmt.Errorf("%w: no answer yet, after %v", ErrNotConnected, by.wait)
}

func (m *Mutex) mutex() *Mutex { return m }
