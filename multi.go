package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/queue"
)

// Multi is several locks that are taken together: all of them or none. It is reusable, safe for many goroutines, and costs nothing
// until it is acquired.
//
// Two callers with the same locks cannot deadlock, in whatever order NewMulti got them: each takes them in one order, by their
// absolute paths, chroot included. A caller that takes several locks in another order, without a Multi, can.
type Multi struct {
	locks []*Mutex // in the order in which they are taken
}

// ownLock is a Lock of this package: each waits in the queue of a Mutex.
type ownLock interface {
	Lock
	mutex() *Mutex
}

func (m *Mutex) mutex() *Mutex { return m }

// NewMulti returns the lock of all of those, which may be of different recipes, Sessions and ensembles. It sends nothing.
//
// No two of them may have the same absolute path, not even through different Sessions. If these are of one ensemble, it is one
// lock, and the caller would wait for itself. If they are of two, nothing says which of the locks comes first for everybody: give
// each a path of its own.
//
// A Lock that this package has not made is refused. Of a type that embeds one, a Multi takes the embedded lock.
func NewMulti(locks ...Lock) (*Multi, error) {
	m := &Multi{}
	fail := func(path string, why error) (*Multi, error) {
		return nil, &Error{Op: "new multi", Path: path, Err: badArgument{why}}
	}
	for i, l := range locks {
		r, ok := l.(ownLock)
		switch {
		case l == nil, ok && !r.mutex().isMade():
			return fail("", fmt.Errorf("lock %d of %d is nil or zero: use the one that its New function returns with a nil error", i+1, len(locks)))
		case !ok:
			return fail("", fmt.Errorf("lock %d of %d is a %T: give locks of this package", i+1, len(locks), l))
		}
		m.locks = append(m.locks, r.mutex())
	}
	slices.SortFunc(m.locks, func(a, b *Mutex) int { return cmp.Compare(a.root.path, b.root.path) })
	for i, l := range m.locks {
		if i > 0 && l.root.path == m.locks[i-1].root.path {
			return fail(l.root.path, errors.New("two locks have this absolute path: give each lock once; on two ensembles give each a path of its own"))
		}
	}
	if len(locks) == 0 {
		return fail("", errors.New("no locks: give at least one"))
	}
	return m, nil
}

// String returns the paths, in the order in which the locks are taken.
func (m *Multi) String() string {
	if m == nil || m.locks == nil {
		panic(fmt.Errorf("zklock: %w", errNoMulti))
	}
	return "Multi(" + m.paths() + ")"
}

// LogValue returns what String returns, for log/slog.
func (m *Multi) LogValue() slog.Value { return slog.StringValue(m.String()) }

func (m *Multi) paths() string {
	var paths []string
	for _, l := range m.locks {
		paths = append(paths, l.Path())
	}
	return strings.Join(paths, ", ")
}

// Acquire takes all the locks, one after the other, and waits for each as Acquire of the lock itself does. ctx bounds the waits
// together. Locks that ctx lets it re-enter, it re-enters. If one that it has got is lost while it waits for another, it gives up at
// once.
//
// ctx must carry no hold of a lock that sorts after one that Acquire has to wait for, or of that path through another Session: the
// wait could be for the caller itself, or for somebody who waits for the caller. Acquire refuses that before it sends anything.
// Holds of an owner that ctx only names (WithOwner) it cannot see.
//
// When Acquire returns an error, the call holds nothing, and its nodes are deleted or are being deleted. The error is that of the
// lock that it did not get, or of the holds that were lost meanwhile; those of the releases are joined to it. The *Error in it says
// at which path.
func (m *Multi) Acquire(ctx context.Context) (*MultiHold, error) {
	return m.enter(ctx, "acquire", forever)
}

// TryAcquire takes all the locks if nobody is ahead at any of them. Otherwise it returns the error that TryAcquire of the first one
// it did not get returns, such as ErrNotAcquired, and holds nothing, as with Acquire. It waits at most two heartbeats for each
// lock. Because it waits for nobody, it refuses no hold that ctx carries.
func (m *Multi) TryAcquire(ctx context.Context) (*MultiHold, error) { return m.enter(ctx, "try", 0) }

// Do acquires all the locks, runs f under them, and releases them in reverse, also if f panics. If it does not get them, f is not
// called and the error is Acquire's. ctx bounds both the waits and the work; WaitAtMost bounds the waits alone, all together.
//
// f gets the hold, and a context that carries all the locks' holds. That context is derived from ctx, and ends with it; it also
// ends when the first of the locks is lost, and then its cause is that hold's Err. f must return soon after.
//
// The error is f's, joined with each release's, as with Mutex.Do.
func (m *Multi) Do(ctx context.Context, f func(ctx context.Context, hold *MultiHold) error, opts ...DoOption) (err error) {
	o, err := newDoOptions(opts)
	if err == nil && f == nil {
		err = errors.New("nil function: give Do the work")
	}
	if err != nil && m != nil {
		return &Error{Op: "do", Path: m.paths(), Err: badArgument{err}}
	}
	op := "acquire"
	if o.wait == 0 {
		op = "try"
	}
	h, err := m.enter(ctx, op, o.wait)
	if err != nil {
		return err
	}
	work, done := under(ctx, h.holds)
	returned := watchWork(h.holds...)
	defer func() {
		returned()
		done()
		ends := make([]error, len(h.holds))
		for i, hold := range h.holds {
			ends[i] = hold.Err() // somebody may have released it under f
		}
		for i, end := range h.release(ctx) {
			ends[i] = cmp.Or(end, ends[i])
		}
		err = outcomeOf(h.holds, work, err, ends)
	}()
	return f(work, h)
}

// TryDo is Do with TryAcquire.
func (m *Multi) TryDo(ctx context.Context, f func(ctx context.Context, hold *MultiHold) error) error {
	return m.Do(ctx, f, WaitAtMost(0))
}

// enter takes all the locks, in their order, and waits no longer than wait for all together; 0 is a try.
func (m *Multi) enter(ctx context.Context, op string, wait time.Duration) (*MultiHold, error) {
	fail := func(path string, err error) (*MultiHold, error) { return nil, &Error{Op: op, Path: path, Err: err} }
	switch {
	case m == nil, m.locks == nil:
		return fail("", errNoMulti)
	case ctx == nil:
		return fail(m.paths(), errNilContext)
	case ctx.Err() != nil:
		return fail(m.paths(), ctxError(ctx))
	}
	if wait > 0 { // a try waits for nobody
		if l, err := m.outOfOrder(ctx); err != nil {
			return fail(l.Path(), err)
		}
	}
	p := &respite{ctx: ctx}
	defer context.AfterFunc(ctx, func() { p.left() })()
	var holds []*Hold
	for began, left := time.Now(), wait; len(holds) < len(m.locks); {
		// The context of this wait carries the holds that we have, so the last hold's context carries all. It ends with the first of
		// them: then what we have is no use, and somebody else may hold it.
		work, done := under(ctx, holds)
		hold, err := m.locks[len(holds)].enter(work, op, left)
		done()
		if err == nil {
			holds = append(holds, hold)
		}
		for _, hold := range slices.Backward(holds) { // look at all: a hold may have ended after the wait, and the wait's error may only follow from it
			err = cmp.Or(hold.Err(), err)
		}
		if wait > 0 {
			left = wait - time.Since(began)
		}
		if err != nil { // do not wait for the deletions beyond the time that the wait's own clean-up has, too
			p.begin(time.Now().Add(grace + min(left, 0)))
			over, end := context.WithCancelCause(ctx)
			end(errTooLate)
			p.ctx = over
			return nil, outcomeOf(holds, work, err, releaseAll(p, holds))
		}
		left = max(left, min(wait, 1)) // 0 would be a try
	}
	return newMultiHold(ctx, holds), nil
}

// outOfOrder returns an error if ctx carries a hold that is in the way of the order, and the lock that must come before it. That is
// the first one that has to be waited for, if it is any.
func (m *Multi) outOfOrder(ctx context.Context) (*Mutex, error) {
	for _, l := range m.locks {
		if l.OwnedBy(ctx) {
			continue
		}
		if l.root.other != "" {
			h := heldIn(ctx, holdKey{table: &l.s.locks, root: l.root.path, share: l.root.other})
			switch {
			case h == nil || h.Err() != nil || !actsFor(ctx, h):
			case l.root.share == queue.WriteName:
				return l, ErrUpgrade
			default: // who writes may read
				continue
			}
		}
		h := heldIn(ctx, holdKey{&l.s.locks, l.root.path, l.root.share, l.root.isFresh, true})
		if h == nil {
			break
		}
		return l, badArgument{fmt.Errorf("the context carries a hold of %s, and %s must be taken before it, or through the same Session: "+
			"take both in one Multi, or give Acquire another context", h.d.key.path, l.root.path)}
	}
	return nil, nil
}

// MultiHold is one successful acquire of a Multi. It is released once, from any goroutine. All its methods are safe for use from
// many goroutines. All except Release answer from memory.
type MultiHold struct {
	holds []*Hold
	ctx   *holdContext  // ends with the first hold to end; its cause is that hold's Err
	lost  chan struct{} // closed when ctx ends otherwise than by a release
	done  func()        // stops what watches the holds
}

func newMultiHold(ctx context.Context, holds []*Hold) *MultiHold {
	h := &MultiHold{holds: holds, lost: make(chan struct{})}
	work, done := under(context.WithoutCancel(ctx), holds)
	stop := context.AfterFunc(work, func() {
		if !errors.Is(context.Cause(work), ErrNotHeld) {
			close(h.lost)
		}
	})
	h.ctx, h.done = work.(*holdContext), func() {
		stop()
		done()
	}
	return h
}

// under returns a context that carries the holds. It ends with ctx, or with the first hold to end, as the first of these says. done
// ends it too.
func under(ctx context.Context, holds []*Hold) (work context.Context, done func()) {
	var ends []func()
	for _, hold := range holds {
		inner, end := hold.workContext(ctx)
		ctx, ends = inner, append(ends, end)
	}
	return ctx, func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
}

// releaseAll releases the holds, the last first, and then waits for all of the answers together. It returns what Release of each
// would.
func releaseAll(p *respite, holds []*Hold) []error {
	all, ends := make([]releasing, len(holds)), make([]error, len(holds))
	for i, hold := range slices.Backward(holds) {
		all[i] = hold.beginRelease()
	}
	for i, r := range slices.Backward(all) {
		ends[i] = r.wait(p)
	}
	return ends
}

// outcomeOf returns what Do of each lock inside the one before would return.
func outcomeOf(holds []*Hold, work context.Context, worked error, released []error) error {
	for i, hold := range slices.Backward(holds) {
		worked = hold.outcomeOf(work, worked, released[i])
	}
	return worked
}

// granted is for methods that return no error.
func (h *MultiHold) granted() *MultiHold {
	if h == nil || h.holds == nil {
		panic(fmt.Errorf("zklock: %w", errNoMultiHold))
	}
	return h
}

// String returns what String of each hold returns, in one line.
func (h *MultiHold) String() string { return fmt.Sprintf("MultiHold%v", h.granted().holds) }

// LogValue returns what String returns, for log/slog.
func (h *MultiHold) LogValue() slog.Value { return slog.StringValue(h.String()) }

// Holds returns the locks' holds, in the order in which they were taken: by absolute path. Each has its own token: pass a resource
// the token of the lock that guards it.
func (h *MultiHold) Holds() []*Hold { return slices.Clone(h.granted().holds) }

// Context returns a context to work under. It ends when the first of the locks is lost, when one of the holds is released, and when
// one of the Sessions is closed. Then context.Cause is the Err of that hold, and says which it was. Otherwise it is as Hold.Context:
// its Err compares the clock with each lease first, it has the values of the context given to Acquire but not its end, and it
// carries all the holds.
func (h *MultiHold) Context() context.Context { return h.granted().ctx }

// Lost returns a channel that is closed when the first of the holds to end is lost, or its Session closed. A release does not close
// it, of all the holds or of one.
func (h *MultiHold) Lost() <-chan struct{} { return h.granted().lost }

// Err returns nil while all the locks are held. It compares the clock with each lease first. Otherwise it is the Err of the hold
// that ended first, and stays so.
func (h *MultiHold) Err() error {
	if h == nil || h.holds == nil {
		return &Error{Op: "hold", Err: errNoMultiHold}
	}
	if h.ctx.Err() == nil {
		return nil
	}
	return context.Cause(h.ctx)
}

// Release gives all the locks back, the last one taken first. It may be called from any goroutine; a second call does nothing and
// returns nil, as with Hold.Release. It releases each lock whatever became of the others, as Hold.Release does, and is bounded as that is, for all of
// them together. Its error joins theirs; each says at which path.
func (h *MultiHold) Release(ctx context.Context) error {
	switch {
	case h == nil || h.holds == nil:
		return &Error{Op: "release", Err: errNoMultiHold}
	case ctx == nil:
		return &Error{Op: "release", Path: h.holds[0].Path(), Err: errNilContext}
	}
	return errors.Join(h.release(ctx)...)
}

// release returns what Release of each hold returned.
func (h *MultiHold) release(ctx context.Context) []error {
	_ = h.ctx.Err() // a loss that nobody has seen yet came first
	h.ctx.cancel(h.holds[len(h.holds)-1].d.errorf("hold", errReleased))
	h.done()
	return releaseAll(&respite{ctx: ctx}, h.holds)
}
