package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
)

// Mutex is a lock on a path: one owner at a time holds it, among all clients of the ensemble. It is reusable, safe for
// many goroutines, and costs nothing until it is acquired. Two Mutexes on one path and Session are one lock.
type Mutex struct {
	s      *Session
	root   lockRoot
	opts   lockOptions
	recipe recipe
	kind   string // for people
	traced string // for traces, see AcquireInfo.Kind
	wrong  error  // what its maker was given that it cannot take
}

// Lock is the interface of all recipes but the election: *[Mutex], which the sides of an [RWMutex]
// are, too, and [Semaphore.Permits]. Types of other packages may implement it. For [NewMulti], such
// a type embeds *Mutex, or has a method Unwrap() Lock that returns the lock that it wraps.
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
	m, err := mutexOf(s, path, queue.MutexName, newLockOptions(opts), plain{})
	if err != nil {
		return nil, &Error{Op: "new mutex", Path: path, Err: badArgument{err}}
	}
	return &m, nil
}

// mutexOf returns the lock whose nodes are called so.
func mutexOf(s *Session, path, name string, o lockOptions, by recipe) (Mutex, error) {
	err := checkPath(path)
	if err == nil {
		err = o.check()
	}
	m := Mutex{s: s, opts: o, recipe: o.withDelay(by), kind: "Mutex", traced: KindMutex}
	markers := queue.Markers
	if name == queue.LatchName {
		markers = []string{name}
	}
	m.root = lockRoot{
		path: s.chroot + path, chroot: s.chroot, given: path, acl: o.acl, container: o.container, share: name, noReentry: o.noReentry,
		rule: queue.Rule{Name: name, Markers: markers}, roots: &s.roots,
	}
	return m, err
}

// String returns the path, in one word.
func (m *Mutex) String() string { return m.made().kind + "(" + m.root.given + ")" }

// Path returns the path as given to NewMutex.
func (m *Mutex) Path() string { return m.made().root.given }

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
// re-enters the lock at once and sends nothing. So goroutines that share such a context all hold
// the lock at the same time; if two calls share a hold of a writer or of a Mutex, and not an owner,
// the Session logs a warning. WithoutReentry makes such calls fail instead. An owner is served in
// one call at a time: its other calls wait, each under its own ctx, until the present call has its
// outcome. Then they re-enter the lock; or, if it was not granted, any one of them queues at the
// tail. All other calls contend, even if ctx carries a hold of another lock. A call whose ctx
// carries a hold of this lock through another Session waits for that hold, which may be its own.
//
// When Acquire returns an error, the call holds nothing, and its node is deleted or is being
// deleted. The error is the cause of ctx if ctx ended, with the last error response to its requests
// and the result of each dial; ErrLost while the owner has unreleased handles of a hold that was
// lost; ErrClosed; ErrNoChroot if the servers have lost the chroot; or an error response of the
// servers, such as zk.ErrNoAuth. The *Error around it has the node's position in the queue.
//
// While no server can be reached, Acquire waits for one: only ctx and Close end that wait. It keeps
// its position through an outage of all servers that is no longer than the session timeout. If the
// Session holds a lock meanwhile, the limit is the lease of that hold, which is shorter
// (docs/lease.md): to keep the position, wait through a Session that holds nothing. After a longer
// outage every call that waits in the Session queues again. If servers close the connection three times in a row at a create, Acquire returns an error that
// names the request: servers before ZooKeeper 3.5 do not know it, or it is longer than 4 KiB, and
// perhaps than their jute.maxbuffer.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "acquire", forever)
}

// TryAcquire takes the lock if no client is ahead, and otherwise returns ErrNotAcquired, also if
// another call of the owner in ctx waits behind a client. Re-entry succeeds at once, as with
// Acquire.
//
// TryAcquire does not wait for a server either. It returns ErrNotConnected, which is not ErrNotAcquired: at once if the
// Session is not connected, and otherwise if it has no answers within two heartbeats. A heartbeat is a tenth of the session
// timeout, and at least 250 ms.
//
// When TryAcquire returns an error, the call holds nothing, and its node is deleted or is being deleted.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) { return m.acquire(ctx, "try", 0) }

// Do acquires the lock, runs f under it, and releases. Goroutines that call Do with the context of
// an outer Do of this lock re-enter that hold, so all of them run f at the same time: give them
// another context, or the lock WithoutReentry.
//
// If Do does not get the lock, it does not call f and returns Acquire's error. Nor does it call f
// if ctx ends just as the lock is granted, or the lock is lost then: the error reports that. ctx
// bounds both the wait and the work; WaitAtMost bounds the wait alone.
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
// A function that continues after the loss may run beside the next holder. This is logged after 5,
// 10, 20 s, and so on.
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
	h, err := m.acquire(ctx, op, o.wait)
	if err != nil {
		return err
	}
	_, err = h.runWork(ctx, ctx, f)
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

// OwnedBy reports whether ctx carries a hold of this lock, or an owner that holds it: an Acquire
// with ctx would re-enter.
func (m *Mutex) OwnedBy(ctx context.Context) bool {
	m.made().s.loseIfLate()
	return m.s.locks.heldBy(&m.root, m.caller(ctx))
}

// Participants returns the queue, the holder first. If the lock root is not there, the queue is empty. Nodes that go while
// the queue is read are left out. While no server can be reached, Participants waits for one until ctx ends.
func (m *Mutex) Participants(ctx context.Context) ([]Participant, error) {
	if !m.isMade() {
		return nil, &Error{Op: "participants", Err: errNoMutex}
	}
	var ps []Participant
	err := m.reading(ctx, "participants", func(e *zkSession) (err error) {
		if ps, err = participantsIn(ctx, e, &m.root); err == nil {
			err = m.recipe.describe(ctx, e, &m.root, ps)
		}
		return err
	})
	return ps, err
}

// reading calls read until a connection lasts for as long as it takes. read returns nil, or an error of the requests in it; a bad
// argument, too, is final.
func (m *Mutex) reading(ctx context.Context, op string, read func(e *zkSession) error) error {
	return m.readingIn(ctx, op, attachedSession, read)
}

// readingIn is reading in the ZooKeeper session that attached returns.
func (m *Mutex) readingIn(ctx context.Context, op string, attached func(context.Context, *link.Link) (*zkSession, error), read func(e *zkSession) error) error {
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
		case err == link.ErrCtxEnded, errors.Is(err, ErrClosed), errors.Is(err, link.ErrHungUp), reply.IsRefusal(err), errors.As(err, &bad):
			return fail(err)
		}
		if !e.HasEnded() { // the connection was lost, or the servers are busy: read again
			last.Note(err)
		}
		_ = e.PauseUnder(ctx, backoff.Next())
	}
}

func (m *Mutex) caller(ctx context.Context) caller {
	return callerIn(ctx, &m.s.locks, &m.root, m.recipe.otherShare())
}

// acquire waits for the lock, for no longer than wait; 0 is a try.
func (m *Mutex) acquire(ctx context.Context, op string, wait time.Duration) (*Hold, error) {
	switch {
	case !m.isMade():
		return nil, &Error{Op: op, Err: errNoMutex}
	case ctx == nil:
		return nil, &Error{Op: op, Path: m.root.given, Err: errNilContext}
	}
	return m.enterAs(ctx, m.caller(ctx), op, wait, m.recipe)
}

// enterAs is enter for a caller that has been looked up. Its owner may be one that the context does
// not name, and that other locks do not see (R67). The recipe is the lock's own, or one that wraps it.
// Acquires are traced here.
func (m *Mutex) enterAs(ctx context.Context, by caller, op string, wait time.Duration, recipe recipe) (*Hold, error) {
	wait = min(wait, by.wait.left())
	if len(m.s.trace.all) == 0 {
		h, _, err := m.take(ctx, ctx, by, op, wait, recipe, nil)
		return h, err
	}
	values, c := m.s.trace.beginTrace(ctx, AcquireInfo{Kind: m.traced, Path: m.root.given, Name: m.opts.label, Multi: by.wait.multi, Try: wait == 0})
	h, a, err := m.take(ctx, values, by, op, wait, recipe, c)
	end := AcquireEndInfo{Err: err, Reentered: err == nil && a == nil}
	if a != nil {
		end.Position, end.Requeued = int(a.first.Load()), max(0, int(a.made.Load())-1)
	}
	c.acquired(ctx, h, end)
	return h, err
}

// take gets the lock, by an acquisition unless it re-enters or that is refused. The hold has the values of the second context.
func (m *Mutex) take(ctx, values context.Context, by caller, op string, wait time.Duration, recipe recipe, trace handleTrace) (*Hold, *acquisition, error) {
	switch {
	case m.wrong != nil:
		return nil, nil, &Error{Op: op, Path: m.root.given, Err: m.wrong}
	case ctx.Err() != nil:
		return nil, nil, m.notLetIn(ctx, by, op, nil, ctxError(ctx))
	}
	h := newHold(values, wait == 0, trace)
	var offline error
	if h.try {
		wait, offline = m.s.tryLimit()
	}
	a, err := m.enterTable(h, by, offline)
	for err == errBusy {
		if wait, err = m.awaitOther(ctx, a, wait); err == nil {
			a, err = m.enterTable(h, by, offline)
		}
	}
	switch {
	case err == nil && a == nil:
		reentered(ctx, &m.s.locks, &m.root, by, h)
	case err == nil:
		a.link, a.opts = m.s.link, &m.opts.nodeOptions
		if !a.link.Spawn(func() { a.run(recipe) }) {
			m.s.locks.fail(a, a.link.ClosedErr())
			a.finished()
		}
		err = m.awaitOutcome(ctx, a, h, wait)
	}
	if err != nil {
		return nil, a, m.notLetIn(ctx, by, op, a, err)
	}
	return h, a, nil
}

// enterTable is lockTable.enter, for what stands now: a lost hold is not re-entered.
func (m *Mutex) enterTable(h *Hold, by caller, offline error) (*acquisition, error) {
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

// awaitOutcome waits for the outcome of a call, until its context or its wait ends. If the call leaves then, awaitOutcome waits a little for the
// clean-up.
func (m *Mutex) awaitOutcome(ctx context.Context, a *acquisition, h *Hold, wait time.Duration) error {
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
func (m *Mutex) notLetIn(ctx context.Context, by caller, op string, a *acquisition, err error) error {
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
	return &Error{Op: op, Path: m.root.given, Node: at.node, Err: m.waitsForItself(ctx, by, err), Position: at.place, Predecessor: at.predecessor, Holder: at.holder(), DelayUntil: at.until}
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
func (m *Mutex) waitsForItself(ctx context.Context, by caller, err error) error {
	h := by.inner
	if h == nil || ctx.Err() == nil && !errors.Is(err, ErrNotAcquired) || h.Err() != nil {
		return err
	}
	if m.root.isFresh {
		return fmt.Errorf("%w; this call's own context carries a hold of this path, %s, and a call does not re-enter it", err, h.Node())
	}
	whose := "through another Session"
	switch {
	case h.d.table == &m.s.locks && h.d.key.share == m.recipe.otherShare() && actsFor(ctx, h):
		return err // a read under it needs no turn
	case h.d.table == &m.s.locks && h.d.key.share != m.root.share:
		whose = "for another kind of lock" // a Mutex under a read/write lock, or the other way round
	case h.d.table == &m.s.locks:
		whose = "for another owner"
	}
	return fmt.Errorf("%w; this call's own context carries a hold of this path %s, %s, and the call could not re-enter it", err, whose, h.Node())
}

// First returns the first participant in the queue, which holds the lock or is about to, as a server knows it: by one list and one read, however long
// the queue is. (Participants reads each node.) If nobody is in the queue, the Participant is the zero one, whose Node is empty. With
// WithLockDelay, its DelayUntil is set while it waits for that, which takes one read more. While no server can be reached, First waits
// for one until ctx ends.
func (m *Mutex) First(ctx context.Context) (first Participant, err error) {
	if !m.isMade() {
		return Participant{}, &Error{Op: "first", Err: errNoMutex}
	}
	err = m.reading(ctx, "first", func(e *zkSession) error {
		first, err = m.frontOf(ctx, e, func() (string, error) { return frontIn(ctx, e, &m.root) })
		return err
	})
	return first, err
}

// frontOf reads the node that find finds in front, and finds again if that has gone in between.
func (m *Mutex) frontOf(ctx context.Context, e *zkSession, find func() (node string, err error)) (Participant, error) {
	for {
		node, err := find()
		if err != nil || node == "" {
			return Participant{}, err
		}
		first := make([]Participant, 1)
		if first[0], err = readParticipant(ctx, e, node); err == nil {
			first[0].Holds = m.root.holdsInFront(node)
			err = m.recipe.describe(ctx, e, &m.root, first)
			return first[0], err
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return Participant{}, err
		}
	}
}

func (m *Mutex) mutex() *Mutex { return m }
