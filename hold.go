package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
)

// newHold returns the Hold with which a call waits; the call returns it when the lock is granted.
// It has the values of ctx: the call's context or, with a trace, one that does not end
// (tracer.beginTrace).
func newHold(ctx context.Context, try bool, trace handleTrace) *Hold {
	h := &Hold{try: try, outcome: make(chan error, 1), trace: trace}
	if trace != nil {
		h.values = ctx
	} else {
		ctx = context.WithoutCancel(ctx)
	}
	inner, cancel := context.WithCancelCause(ctx)
	h.ctx = &holdContext{inner, nil, h, cancel}
	return h
}

// Value returns the hold for a holdKey that fits, and for a lock root of the hold's path. It passes
// all other keys to the context that Acquire was given, which also has the outer holds. The context
// of work first has the values of AcquireStart's context. If that derives from the caller's, it
// decides alone: if the caller's were asked again, the look-ups would double with each nested call.
func (c *holdContext) Value(key any) any {
	switch k := key.(type) {
	case holdKey:
		if k.fits(c.h) {
			return c.h
		}
	case *lockRoot:
		if c.h.isOf(k.Path()) {
			return c.h
		}
	case multiWait:
		return nil // it was for the wait, which has ended
	}
	if c.outer != nil && c.h.values != nil && bare.Value(key) == nil {
		if v := c.h.values.Value(key); v != nil || c.h.values.Value(c.h.trace) != nil {
			return v
		}
	}
	return c.Context.Value(key)
}

// bare has only the value with which package context finds the innermost context that can end.
var bare, _ = context.WithCancel(context.Background())

// isOf reports whether this is a hold of the lock root. A context passes over a hold whose last
// handle was released: an outer one may last, such as that of a writer that has read.
func (h *Hold) isOf(root string) bool { return h.d.key.path == root && h.d.table.has(h.d) }

func (c *holdContext) Err() error {
	if c.outer != nil {
		_ = c.outer.Err() // if it carries a hold past its lease, that hold ends now, and c with it
	}
	if err := c.h.Err(); err != nil {
		c.cancel(err) // lockData.loseNode cancels the handles one after another, and may not have reached this one
	}
	return c.Context.Err()
}

// granted is for methods that return no error.
func (h *Hold) granted() *lockData { return usable(h, h != nil && h.d != nil, errNoHold).d }

// String returns the lock node and the token. A JSON handler of log/slog does not call it.
func (h *Hold) String() string {
	d := h.granted()
	return fmt.Sprintf("Hold(%s, token %d)", d.node, d.token)
}

// Context returns a context to work under. It ends when the lock is lost, when this handle is
// released, and when the Session is closed, with the hold's Err as its cause. The Err of this
// context compares the clock with the lease first; the Err of a derived context does not.
//
// The context has the values of Acquire's context, but not its cancellation or deadline: if the
// work must end with Acquire's context, use Do. It carries the hold, so Acquire of the same lock
// rejects it, unless it sets an owner ([WithOwner]).
func (h *Hold) Context() context.Context {
	h.granted()
	return h.ctx
}

// Lost returns a channel that is closed when the lock is lost or the Session is closed. Release
// does not close it.
func (h *Hold) Lost() <-chan struct{} {
	d := h.granted()
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	return d.lostCh
}

// Err returns nil while the lock is held; it compares the clock with the lease first. Otherwise it
// returns [ErrLost] with the reason ([ErrClosed] after Close), or [ErrNotHeld] after Release. A
// hold that was lost before its release remains lost.
func (h *Hold) Err() error {
	if h == nil || h.d == nil {
		return &Error{Op: "hold", Err: errNoHold}
	}
	h.d.loseIfLate()
	h.d.table.mu.Lock()
	defer h.d.table.mu.Unlock()
	if h.end != nil {
		return h.end
	}
	return h.d.lost
}

// Token returns the fencing token: the czxid of the lock node, which is larger than the tokens of
// all earlier holds of this lock. Pass it to the resource with each write, and let the resource
// reject a token that is smaller than the largest it has seen. Compare a reader's token only with
// the largest writer's. For permits, see [Semaphore.Acquire].
func (h *Hold) Token() int64 { return h.granted().token }

// Deadline returns the time until which the hold is guaranteed without a further reply. Each
// renewal moves it.
func (h *Hold) Deadline() time.Time {
	e := h.granted().e
	return e.Clock.Wall(e.LeaseEnd())
}

// Node returns the lock node's absolute path, with the chroot.
func (h *Hold) Node() string { return h.granted().node }

// Path returns the lock path, as Mutex.Path does.
func (h *Hold) Path() string { return h.granted().root.Given() }

// Owner returns the owner of the hold.
func (h *Hold) Owner() Owner { return h.granted().key.owner }

// Checks returns a version check of each node of the hold: one for each permit, and otherwise one.
// Put all of them first in a zk.Conn.Multi on [Session.Conn]: if a node does not exist, ZooKeeper
// rejects the transaction, with zk.ErrNoNode for its check.
func (h *Hold) Checks() (ops []*zk.CheckVersionRequest) {
	for _, node := range h.granted().held {
		ops = append(ops, &zk.CheckVersionRequest{Path: node, Version: -1}) // any version: revocation and administrators change it
	}
	return ops
}

// Release ends this handle's context and, if it is the owner's last handle, deletes the node. A
// second call returns nil.
//
// Release waits until ctx ends, but at most until the Deadline that the hold had at the call. If
// ctx has ended, or the Deadline is near, Release still tries for almost half a second.
//
// A nil error means that the lock was held until Release began. If this was the last handle, the
// lock is free, or will be after the time of [WithMinHold]. [ErrLost] means that the lock was lost
// before: the work may have overlapped with the next holder. [ErrNotConfirmed] means that the lock
// was held until Release began, but the node may still exist and is being deleted in the
// background. The error has the reason, such as the cause of ctx, the end of the lease, or
// zk.ErrNoAuth without DELETE.
//
// A read hold's node remains until the owner's write hold is released, too.
func (h *Hold) Release(ctx context.Context) error {
	if h == nil || h.d == nil {
		return &Error{Op: "release", Err: errNoHold}
	}
	if ctx == nil {
		return h.d.errorf("release", errNilContext)
	}
	return beginReleases(h)[0].finish(&graceTime{ctx: ctx})
}

// ReleaseAsync is Release without the wait: it sends the delete, and returns nil, or [ErrLost] if
// the lock was lost before. The next acquire on the same connection is sent behind the delete, so
// without contention a cycle takes one round trip.
//
// The Session awaits the confirmation, until the Deadline, and so does Close. A release that is not
// confirmed is logged, traced and counted in Stats.Unconfirmed; one that finds the node deleted is
// logged and traced as a loss. Until then the node counts for [WithMaxLockNodes].
func (h *Hold) ReleaseAsync() error {
	if h == nil || h.d == nil {
		return &Error{Op: "release", Err: errNoHold}
	}
	return beginReleases(h)[0].finish(nil)
}

// releasing is a Release whose request has been sent.
type releasing struct {
	h     *Hold
	async bool              // no call waits
	xs    [2]*node.Deletion // the deletions to wait for; the second may be nil
	end   clock.Instant     // the latest time to wait until
	lost  error

	first bool          // it was not released before
	last  bool          // it was the owner's last handle, and not lost: the hold ends here
	began clock.Instant // when the release began
}

// beginReleases is Release up to the request that deletes the nodes. Holds of one ZooKeeper session
// share the request.
func beginReleases(holds ...*Hold) []releasing {
	all, in := make([]releasing, len(holds)), make([]*node.ZKSession, 0, 1)
	for i, h := range slices.Backward(holds) {
		if all[i] = h.endHold(); !slices.Contains(in, h.d.e) {
			in = append(in, h.d.e)
		}
	}
	for _, e := range in {
		xs := make([]*node.Deletion, 0, 2)
		for _, r := range slices.Backward(all) {
			if r.h.d.e == e {
				xs = append(xs, r.xs[:]...)
			}
		}
		e.Reaper.Begin(xs...)
	}
	return all
}

// endHold ends the handle and, if it is the last, the hold. The caller begins the deletions.
func (h *Hold) endHold() releasing {
	d := h.d
	d.loseIfLate()
	r := releasing{h: h, began: d.e.Clock.Now()}
	r.end = max(d.e.LeaseEnd(), r.began.Add(grace))
	first, last, lost := d.table.release(h)
	if r.first = first; !first {
		return r
	}
	h.ctx.cancel(h.end) // its error does not change any more
	if r.lost, r.last = lost, last && lost == nil; r.last {
		r.xs = d.letGo()
	}
	return r
}

// finish is the rest of Release. If p is nil, only a goroutine of the Session waits.
func (r releasing) finish(p *graceTime) error {
	if p != nil || !r.last {
		return r.wait(p)
	}
	p = &graceTime{ctx: context.Background()}
	async := r
	async.async = true
	if !r.h.d.e.Carrier.Spawn(func() { _ = async.wait(p) }) {
		_ = r.wait(p) // returns at once, because the Session is closed
	}
	return nil
}

// wait waits for the deletions, and reports the end of the handle.
func (r releasing) wait(p *graceTime) (err error) {
	h, d := r.h, r.h.d
	switch {
	case r.lost != nil:
		err = d.errorf("release", errors.Unwrap(r.lost))
		d.traceLoss(r.lost, d.lostAt) // the call that marked the loss may not have traced it yet
	case r.last:
		switch why := r.confirm(p); {
		case why == nil:
			d.e.Log.Debug("zklock: released", d.attrs)
		case errors.Is(why, ErrLost) && !errors.Is(why, ErrNotConfirmed): // an ErrNotConfirmed may wrap another hold's loss
			err = d.errorf("release", why)
			d.logLost(link.ErrNodeGone, d.e.LeaseEnd())
			r.lost = err
			d.traceLoss(err, r.began)
		default:
			err = d.errorf("release", why)
			d.e.Log.Debug("zklock: released", func() []any { return append(d.attrs(), "err", why) })
			if !errors.Is(why, ErrClosed) {
				d.table.unconfirmed.Add(1)
				if r.async {
					d.e.Log.Warn("zklock: release not confirmed", append(d.attrs(), "reason", why)...)
				}
			}
		}
	}
	if h.trace != nil && r.first {
		h.trace.ended(r.began, err, r.lost != nil, r.async)
	}
	return err
}

// graceTime is the time that a release still has when its context has ended. Several can share one.
type graceTime struct {
	ctx   context.Context
	mu    sync.Mutex
	until time.Time // zero until it begins
}

// beginGrace begins it, unless it has begun.
func (p *graceTime) beginGrace(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.IsZero() {
		p.until = until
	}
}

func (p *graceTime) remaining() time.Duration {
	p.beginGrace(time.Now().Add(grace))
	return time.Until(p.until)
}

// confirm waits for the deletions, one after the other, for as long as Release may, and returns the
// result. The first deletion is of the hold's nodes. The second is of a pair's second node, which
// may never have been created, or of the permits' node in the queue, which blocks all other
// callers.
//
// If the session ends from here on, that is no loss: the hold existed when its Release began.
// Another hold may end the session meanwhile, because both have the same lease.
func (r releasing) confirm(p *graceTime) error {
	notConfirmed := func(why error) error {
		what := "the node is still being deleted in the background"
		if r.h.d.minHoldUntil > r.began {
			what = "if the node is there, it stays for its minimum hold"
		}
		return fmt.Errorf("%w: %w; %s", ErrNotConfirmed, why, what)
	}
	e := r.h.d.e
	ctxEnded, sessionEnded := p.ctx.Done(), e.Ended()
	if r.async { // Close lets the deletions end
		sessionEnded = nil
	}
	var lastTry <-chan struct{} // when the context has ended
	for i := 0; i < len(r.xs) && r.xs[i] != nil; {
		x := r.xs[i]
		if link.IsClosed(x.Done) { // also after the time limit: the wait for another deletion may have used it up
			if err := howItEnded(i, x.Err); err != nil {
				return err
			}
			i++
			continue
		}
		left := r.end.Sub(e.Clock.Now()).Truncate(time.Millisecond)
		if left <= 0 {
			return notConfirmed(x.Last.AddTo(errNoAnswer))
		}
		select {
		case <-x.Done:
		case <-time.After(min(left, lease.ClockCheck)):
		case <-sessionEnded:
			if link.IsClosed(x.Done) {
				continue
			}
			return howItEnded(i, e.EndErr())
		case <-x.Refused:
			return notConfirmed(x.Refusal)
		case <-ctxEnded:
			late := make(chan struct{}) // remains closed: if the first deletion ends at that moment, the wait for the second ends, too
			last := time.AfterFunc(p.remaining(), func() { close(late) })
			defer last.Stop()
			lastTry, ctxEnded = late, nil
		case <-lastTry:
			if link.IsClosed(x.Done) {
				continue
			}
			return notConfirmed(x.Last.AddTo(ctxError(p.ctx)))
		}
	}
	return nil
}

// howItEnded returns the error of a hold after the end of the i-th deletion of its release: nil if
// its node existed until then.
func howItEnded(i int, err error) error {
	switch {
	case err == nil, errors.Is(err, link.ErrExpired), errors.Is(err, zk.ErrNoNode) && i > 0: // our delete removed it, or the end of its session
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return lostBecause(link.ErrNodeGone)
	}
	return fmt.Errorf("%w: %w; the node goes with its session", ErrNotConfirmed, err)
}

// Hold is one successful acquire. It is safe for concurrent use, and only Release sends requests.
type Hold struct {
	try          bool       // a call of TryAcquire
	outcome      chan error // holds one: nil with the grant. The call gets it when it is removed from the acquisition, unless it leaves
	ctx          *holdContext
	d            *lockData       // from the grant on
	end          error           // after the release, the error that Err returns; guarded by the lockTable, as is the next
	minHoldUntil clock.Instant   // in the handle that was granted: the node remains until then (WithMinHold); otherwise 0
	trace        handleTrace     // nil without a trace
	values       context.Context // of the context that AcquireStart returned
}

// handleTrace is notified of the events of a handle and of its hold, if the Session has traces.
type handleTrace interface {
	joins(h *Hold, granted handleTrace)
	lost(err error, at clock.Instant) // the hold, with all of its handles
	ended(at clock.Instant, err error, isLost, async bool)
}

// holdContext carries the hold. Its Err compares the clock with the lease: after a pause the first
// call reports the loss, even if no timer has run yet (F18).
type holdContext struct {
	context.Context
	outer  context.Context // the caller's, for work; nil for the hold's own
	h      *Hold
	cancel context.CancelCauseFunc // ends it
}

// busyLocked returns the error for a call whose owner is being served in another call. A try does
// not wait for a call that waits behind another client.
func (h *Hold) busyLocked(a *acquisition) error {
	if h.try && a.at.waits() {
		return ErrNotAcquired
	}
	return errBusy
}
