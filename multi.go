package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Multi is several locks that are acquired together: all or none. It is safe for concurrent use. It
// acquires its locks in the order of their absolute paths, with the chroot, so two callers with the
// same locks cannot deadlock. A caller that acquires them in another order, without a Multi, can
// cause a deadlock.
type Multi struct {
	locks []member // in the order in which they are acquired
	name  string   // for traces
}

// member is one of a Multi's locks: the Lock as it was given, whose methods are called, and the
// Mutex in whose queue they wait.
type member struct {
	Lock
	in *Mutex
}

// mutexUnder returns the Mutex in whose queue a lock waits. It returns false if the type has no
// method that returns the Mutex.
func mutexUnder(l Lock) (m *Mutex, ok bool) {
	for {
		switch w := l.(type) {
		case interface{ Unwrap() Lock }:
			l = w.Unwrap()
		case interface{ mutex() *Mutex }: // ours, or a type that embeds it
			return w.mutex(), true
		default:
			return nil, false
		}
	}
}

// NewMulti returns a Multi of these locks, which may be of different recipes, Sessions and
// ensembles. It sends nothing.
//
// No two may have the same absolute path, even through different Sessions: the caller could wait
// for itself or, on two ensembles, deadlock with another caller.
//
// A type that wraps a Lock needs a method Unwrap() Lock that returns the wrapped lock. The Multi
// calls the wrapper's Acquire and TryAcquire, which must return a hold of the wrapped lock. A type
// that embeds *Mutex needs no Unwrap. Every other type is rejected.
func NewMulti(locks ...Lock) (*Multi, error) {
	m := &Multi{}
	fail := func(path string, why error) (*Multi, error) {
		return nil, &Error{Op: "new multi", Path: path, Err: badArgument{why}}
	}
	for i, l := range locks {
		in, ok := mutexUnder(l)
		switch {
		case l == nil, ok && !in.isMade():
			return fail("", fmt.Errorf("lock %d of %d is nil or zero: use the one that its New function returns with a nil error", i+1, len(locks)))
		case !ok:
			return fail("", fmt.Errorf("lock %d of %d is a %T: give locks of this package, or give that type a method Unwrap() zklock.Lock that returns the lock which it wraps", i+1, len(locks), l))
		}
		m.locks = append(m.locks, member{Lock: l, in: in})
	}
	slices.SortFunc(m.locks, func(a, b member) int { return cmp.Compare(a.in.root.ShownPath(), b.in.root.ShownPath()) })
	taken := map[string]bool{} // a semaphore takes two paths: its own and its queue's
	for _, l := range m.locks {
		shown, queued := l.in.root.ShownPath(), l.in.root.Path()
		if taken[shown] || taken[queued] {
			return fail(shown, errors.New("two locks have this absolute path: give each lock once; on two ensembles give each a path of its own"))
		}
		taken[shown], taken[queued] = true, true
	}
	if len(locks) == 0 {
		return fail("", errors.New("no locks: give at least one"))
	}
	m.name = "Multi(" + m.paths() + ")"
	return m, nil
}

// paths returns the paths, in the order in which the locks are acquired.
func (m *Multi) paths() string {
	var paths []string
	for _, l := range m.locks {
		paths = append(paths, l.in.Path())
	}
	return strings.Join(paths, ", ")
}

// Acquire acquires all the locks in their order, and waits for or re-enters each as the lock's own
// Acquire does. To re-enter them together, set one owner for both calls ([WithOwner]). ctx bounds
// the waits together. If Acquire loses a lock while it waits for another, it fails at once.
//
// It does not deadlock with a caller that acquires them one by one in the same order, such as
// Curator's multi-lock. Each lock takes the requests and the round trip of its own Acquire.
//
// Acquire returns an error, and sends nothing, if ctx carries a hold that could make the caller
// wait for itself: a hold of one of the locks, if ctx sets no owner; a hold of a lock that sorts
// after a lock that Acquire would wait for; a hold of the same path through another Session; or
// permits of a semaphore among the locks. Acquire cannot check the holds of an owner that ctx only
// names.
//
// On failure the call holds nothing, and its nodes are deleted or are being deleted. The error
// names the lock that was not granted or was lost, and is joined with the errors of the releases.
func (m *Multi) Acquire(ctx context.Context) (*MultiHold, error) {
	return m.acquireAll(ctx, "acquire", forever)
}

// TryAcquire acquires all the locks if no client is before it at any of them. Otherwise it holds
// nothing, and returns the TryAcquire error of the first lock that it did not get, such as
// [ErrNotAcquired]. It waits at most two heartbeats for each lock.
func (m *Multi) TryAcquire(ctx context.Context) (*MultiHold, error) {
	return m.acquireAll(ctx, "try", 0)
}

// Do acquires all the locks, runs f under them, and releases them as [MultiHold.Release] does, also
// if f panics. If it does not get all locks, it returns Acquire's error and does not call f. ctx
// bounds the waits and the work; [WaitAtMost] bounds all waits together.
//
// The context of f is derived from ctx, carries all the holds, and also ends as soon as one lock is
// lost, with that hold's Err as its cause. f must return soon after. The error is f's, joined with
// each release's, as with [Mutex.Do].
func (m *Multi) Do(ctx context.Context, f func(ctx context.Context, hold *MultiHold) error, opts ...DoOption) (err error) {
	o, err := newDoOptions(opts, f != nil)
	if err != nil && m != nil {
		return &Error{Op: "do", Path: m.paths(), Err: badArgument{err}}
	}
	op := "acquire"
	if o.wait == 0 {
		op = "try"
	}
	h, err := m.acquireAll(ctx, op, o.wait)
	if err != nil {
		return err
	}
	work := under(ctx, h.holds)
	returned := watchWork(h.holds...)
	defer func() {
		returned()
		work.end(nil)
		ends := make([]error, len(h.holds))
		for i, hold := range h.holds {
			ends[i] = hold.Err() // f, or a call that shares the hold, may have released it
		}
		p := &graceTime{ctx: ctx}
		if o.async {
			p = nil
		}
		for i, end := range h.release(p) {
			ends[i] = cmp.Or(end, ends[i])
		}
		err = outcomeOf(h.holds, work, err, ends)
	}()
	if work.Err() != nil { // ctx ended, or a lock was lost, as the last one was granted
		cancelMinHold(h.holds...)
		return cmp.Or(h.Err(), error(&Error{Op: "do", Path: m.paths(), Err: ctxError(work)}))
	}
	return f(work, h)
}

// TryDo is Do with TryAcquire.
func (m *Multi) TryDo(ctx context.Context, f func(ctx context.Context, hold *MultiHold) error) error {
	return m.Do(ctx, f, WaitAtMost(0))
}

// acquireAll acquires all the locks in their order, within the wait for all; 0 is a try.
func (m *Multi) acquireAll(ctx context.Context, op string, wait time.Duration) (*MultiHold, error) {
	fail := func(path string, err error) (*MultiHold, error) { return nil, &Error{Op: op, Path: path, Err: err} }
	switch {
	case m == nil, m.locks == nil:
		return fail("", errNoMulti)
	case ctx == nil:
		return fail(m.paths(), errNilContext)
	case ctx.Err() != nil:
		return fail(m.paths(), ctxError(ctx))
	}
	if wait > 0 { // a try does not wait
		if l, err := m.outOfOrder(ctx); err != nil {
			return fail(l.Path(), err)
		}
	}
	a := &multiAcquire{grace: &graceTime{ctx: ctx}, work: newHoldsContext(ctx)}
	defer context.AfterFunc(ctx, func() { a.grace.remaining() })()
	defer a.work.end(nil)
	for began, left := time.Now(), wait; len(a.holds) < len(m.locks); {
		err := a.acquireNext(m.locks[len(a.holds)], m.name, left)
		if err != nil || len(a.holds) == len(m.locks) || a.work.Err() != nil {
			err = a.firstEnd(err)
		}
		if wait > 0 && wait < forever {
			if left = wait - time.Since(began); left <= 0 && err == nil && len(a.holds) < len(m.locks) {
				_, err = fail(m.locks[len(a.holds)].in.Path(), fmt.Errorf("%w, or no time was left: the locks before it took all of the %v", ErrNotAcquired, wait))
			}
		}
		if err != nil { // do not wait for the deletions longer than the wait's own clean-up may take
			a.grace.beginGrace(time.Now().Add(grace + min(left, 0)))
			return nil, a.giveBack(ctx, err)
		}
	}
	return &MultiHold{a.holds, under(context.WithoutCancel(ctx), a.holds)}, nil
}

// multiAcquire is one call that acquires the locks of a Multi.
type multiAcquire struct {
	grace *graceTime
	holds []*Hold
	// work is the context of the next wait. It carries the holds so far, so the last hold's context
	// carries all. It ends with the first of them to end: then the rest are useless, and another
	// client may hold that lock.
	work *holdsContext
}

// acquireNext acquires the next lock. If that does not return, it releases the holds.
func (a *multiAcquire) acquireNext(l member, of string, wait time.Duration) error {
	hasReturned := false
	defer func() {
		if !hasReturned { // a wrapper's method panics, or a trace ends the goroutine
			cancelMinHold(a.holds...)
			releaseAll(a.grace, a.holds)
		}
	}()
	hold, err := l.acquireMember(a.work, of, wait)
	hasReturned = true
	if hold != nil {
		a.holds, a.work = append(a.holds, hold), a.work.with(hold)
	}
	return err
}

// firstEnd returns the error of the first hold that has ended, because the wait's error may only
// follow from that; failed if none has.
func (a *multiAcquire) firstEnd(failed error) error {
	for _, hold := range slices.Backward(a.holds) {
		failed = cmp.Or(hold.Err(), failed)
	}
	return failed
}

// giveBack releases the locks of a call that has failed, and returns its error.
func (a *multiAcquire) giveBack(ctx context.Context, failed error) error {
	a.work.end(nil)
	over, end := context.WithCancelCause(ctx)
	end(errTooLate)
	a.grace.ctx = over
	cancelMinHold(a.holds...)
	return outcomeOf(a.holds, a.work, failed, releaseAll(a.grace, a.holds))
}

// acquireMember calls the lock's own methods, which bound a wait by the context alone. of is the
// Multi's name.
func (l member) acquireMember(ctx context.Context, of string, wait time.Duration) (*Hold, error) {
	op, enter := "acquire", l.Acquire
	var w multiWait
	switch {
	case wait == 0:
		op, enter = "try", l.TryAcquire
	case wait < forever:
		w.until = time.Now().Add(wait)
	}
	if len(l.in.s.opts.traces) > 0 {
		w.multi = of
	}
	if w != (multiWait{}) {
		w.path = l.in.root.Path()
		ctx = context.WithValue(ctx, multiWait{}, w)
	}
	h, err := enter(ctx)
	if h == nil || h.d == nil {
		h = nil
	}
	if err == nil && (h == nil || h.d.key.path != l.in.root.Path() || h.d.key.share != l.in.root.share) {
		err = &Error{Op: op, Path: l.in.Path(), Err: badArgument{fmt.Errorf("%T returned no hold of the lock that its Unwrap returns", l.Lock)}}
	}
	return h, err
}

// outOfOrder returns an error if ctx carries a hold that violates the order, and the lock that must
// be acquired before that hold: the first one that this call would have to wait for.
func (m *Multi) outOfOrder(ctx context.Context) (*Mutex, error) {
	for _, member := range m.locks {
		l := member.in
		by := l.caller(ctx, "acquire", forever)
		isUnder := by.under != nil && by.actsFor(by.under) && by.under.Err() == nil
		switch isHeld := l.OwnedBy(ctx); {
		case isHeld && by.owner == (Owner{}) && !by.reads(&l.root):
			return l, errReentry
		case isHeld, isUnder && by.reads(&l.root):
			continue
		case isUnder:
			return l, ErrUpgrade
		}
		h := heldIn(ctx, holdKey{root: l.root.ShownPath(), after: true})
		switch {
		case h == nil:
			return nil, nil
		case l.root.isFresh && h.d.key.path == l.root.Path():
			return l, badArgument{errors.New("the context carries permits of this semaphore, and two callers that have some and wait for more can wait for each other: " +
				"take all of them at once, or release those first")}
		}
		return l, badArgument{fmt.Errorf("the context carries a hold of %s, and %s must be taken before it, or through the same Session: "+
			"take both in one Multi, or give Acquire another context", h.d.root.ShownPath(), l.root.ShownPath())}
	}
	return nil, nil
}
