package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
)

// newHold returns the Hold that a call waits with, and that it gets when the lock is granted. It has the values of ctx, which is the
// call's or, with a trace, one that does not end (tracer.beginTrace).
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

// holdKey asks a context for the innermost hold that it carries. root names the lock's path, "" any; share what was taken there, "" any; table
// the Session, nil any. With after, it asks for one that stands and that may be waited for in vain if this lock is waited for now.
type holdKey struct {
	table *lockTable
	root  string // absolute
	share string
	after bool // of root or of a path that sorts after it; root is what Multi sorts by: shownPath
}

func heldIn(ctx context.Context, k holdKey) *Hold {
	h, _ := ctx.Value(k).(*Hold)
	return h
}

// Value returns the hold for a holdKey that fits, and for a lock root of the hold's path. It passes all
// other keys to the context that Acquire was given, which also has the outer holds.
func (c *holdContext) Value(key any) any {
	switch k := key.(type) {
	case holdKey:
		if k.fits(c.h) {
			return c.h
		}
	case *lockRoot:
		if k.path == c.h.d.key.path {
			return c.h
		}
	case waitKey:
		return nil // it was for the wait, which is over
	}
	if c.outer != nil && c.h.values != nil { // the caller's does not have those of AcquireStart's
		if v := c.h.values.Value(key); v != nil {
			return v
		}
	}
	return c.Context.Value(key)
}

func (k holdKey) fits(h *Hold) bool {
	held := h.d.key.path
	if k.after {
		return h.d.root.shownPath() >= k.root && h.Err() == nil
	}
	return (k.table == nil || k.table == h.d.table) && (k.root == "" || k.root == held) && (k.share == "" || k.share == h.d.key.share)
}

func (c *holdContext) Err() error {
	if c.outer != nil {
		_ = c.outer.Err() // if that carries a hold that is past its lease, it ends now, and c with it
	}
	if err := c.h.Err(); err != nil {
		c.cancel(err) // lockData.loseNode cancels the handles one by one, and may not have reached this one
	}
	return c.Context.Err()
}

// granted is for methods that return no error.
func (h *Hold) granted() *lockData {
	if h == nil || h.d == nil {
		panic(fmt.Errorf("zklock: %w", errNoHold))
	}
	return h.d
}

// String returns the lock node and the token, in one line. A handler of log/slog that writes JSON does not call it: log the
// String itself.
func (h *Hold) String() string {
	d := h.granted()
	return fmt.Sprintf("Hold(%s, token %d)", d.node, d.token)
}

// Context returns a context to work under. It ends when the lock is lost, when this handle is released, and when the
// Session is closed. context.Cause tells which, as Hold.Err does: ErrLost, ErrNotHeld, ErrClosed. The context's own Err
// compares the clock with the lease first. The Err of a derived context does not: right after a pause of the process it may
// still be nil.
//
// The context has the values of the context given to Acquire, but not its cancellation or deadline: the usual cancel of a
// wait must not end the hold. If the work must end with the caller's context too, use Do, or do what the example does.
//
// The context carries the hold. Acquire of the same lock re-enters with it and with contexts derived from it, also through
// the contexts of other locks that are taken inside. Goroutines that share the context do not exclude each other in this
// lock; in other locks they do. So do not start several goroutines with it that take this lock again.
func (h *Hold) Context() context.Context {
	h.granted()
	return h.ctx
}

// Lost returns a channel that is closed when the lock is lost or the Session is closed. Release does not close it.
func (h *Hold) Lost() <-chan struct{} {
	d := h.granted()
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	return d.lostCh
}

// Err returns nil while the lock is held. It compares the clock with the lease first. Otherwise the error is ErrLost with
// the reason (ErrClosed if the Session was closed), or ErrNotHeld after Release. A hold that was lost before its release
// stays lost.
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

// Token returns the fencing token: the czxid of the lock node, which is larger than that of every earlier hold of this
// lock, across sessions, re-created lock roots and the end of the sequence (I1). Pass it to the resource with each
// write, and have the resource refuse a smaller one than it has seen.
//
// A reader's token is larger than that of every earlier writer, and readers are not ordered: compare a read with the largest
// writer's token only. A writer's is larger than that of every earlier holder. A writer that reads, too, has one token. Of permits
// see Semaphore.Permits.
func (h *Hold) Token() int64 { return h.granted().token }

// Deadline returns the time up to which this hold may be relied on if no further answer comes. It moves ahead with each
// heartbeat.
func (h *Hold) Deadline() time.Time {
	e := h.granted().e
	return e.Clock.Wall(e.LeaseEnd())
}

// Node returns the lock node, absolute: with the chroot.
func (h *Hold) Node() string { return h.granted().node }

// Path returns the lock path as given to NewMutex, as Mutex.Path does.
func (h *Hold) Path() string { return h.granted().root.given }

// Owner returns the owner that holds.
func (h *Hold) Owner() Owner { return h.granted().key.owner }

// Checks returns Check for each node that the hold rests on: one for each permit of a semaphore,
// and otherwise one.
func (h *Hold) Checks() (ops []*zk.CheckVersionRequest) {
	for _, node := range h.granted().held {
		ops = append(ops, checkOf(node))
	}
	return ops
}

func checkOf(node string) *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: node, Version: -1} // any version: revocation and admins change it
}

// Check returns a version check of the lock node. Put it first in a Multi on Session.Conn: ZooKeeper then does the other
// operations only if the lock node is there, and so fences writes to ZooKeeper itself. If the lock node is not there, the
// Multi returns zk.ErrNoNode for this operation. Of several permits it checks the first; Checks has them all.
func (h *Hold) Check() *zk.CheckVersionRequest {
	return checkOf(h.granted().node)
}

// Release gives the lock back: it ends this handle's context and then, if it is the owner's last handle, deletes the
// node. It may be called from any goroutine. A second call does nothing and returns nil, whatever the first returns, so that a deferred
// Release may stand behind another one: only the first call says whether the lock was held to the end.
//
// Release waits for the servers until ctx ends, and at the latest until the Deadline that the hold has at the call: it ends
// by itself, even if ctx never does. If ctx has already ended, or the Deadline is near, Release still tries for almost half a second.
//
// A nil error means that the lock was held until now, and is free if this was the last handle, or later (WithMinHold). ErrLost means that the lock
// was lost before: what ran under it may have overlapped with the next holder. ErrNotConfirmed comes with the reason: the
// cause of ctx, the end of the lease, zk.ErrNoAuth without DELETE (of permits, on either node below the path), or ErrClosed. Then the lock was held until now and is
// given up here, but the node may still be there. It is being deleted in the background, until it is gone or its session
// is.
//
// The node of a read hold that was taken under a write hold stays until that is released, too.
func (h *Hold) Release(ctx context.Context) error {
	if h == nil || h.d == nil {
		return &Error{Op: "release", Err: errNoHold}
	}
	if ctx == nil {
		return h.d.errorf("release", errNilContext)
	}
	return h.beginRelease().wait(&graceTime{ctx: ctx})
}

// releasing is a Release whose request is on its way.
type releasing struct {
	h    *Hold
	xs   [2]*nodes.Deletion // those to wait for; the second may be nil
	end  clock.Instant      // until when to wait at most
	lost error

	first bool          // it was not released before
	last  bool          // it was the owner's last handle, and not lost: the hold ends here
	began clock.Instant // when the release began
}

// beginRelease is Release up to the request that deletes the node.
func (h *Hold) beginRelease() releasing {
	d := h.d
	d.loseIfLate()
	r := releasing{h: h, began: d.e.Clock.Now()}
	r.end = max(d.e.LeaseEnd(), r.began.Add(grace))
	first, last, lost := d.table.release(h)
	if r.first = first; !first {
		return r
	}
	h.ctx.cancel(h.end) // nobody changes it any more
	if r.lost, r.last = lost, last && lost == nil; r.last {
		r.xs = d.letGo()
	}
	return r
}

// wait is the rest of Release.
func (r releasing) wait(p *graceTime) (err error) {
	h, d := r.h, r.h.d
	switch {
	case r.lost != nil:
		err = d.errorf("release", errors.Unwrap(r.lost))
		d.traceLoss(r.lost, d.lostAt) // who marked it may not have come to that
	case r.last:
		switch why := r.confirm(p); {
		case why == nil:
			d.e.Log.Debug("zklock: released", d.attrs)
		case errors.Is(why, ErrLost) && !errors.Is(why, ErrNotConfirmed): // which may have another's loss for a reason
			err = d.errorf("release", why)
			d.logLost(link.ErrNodeGone, d.e.LeaseEnd())
			r.lost = err
			d.traceLoss(err, r.began)
		default:
			err = d.errorf("release", why)
			d.e.Log.Debug("zklock: released", func() []any { return append(d.attrs(), "err", why) })
		}
	}
	if h.trace != nil && r.first {
		h.trace.ended(r.began, err, r.lost != nil)
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

func (p *graceTime) left() time.Duration {
	p.beginGrace(time.Now().Add(grace))
	return time.Until(p.until)
}

// confirm waits for the deletions, one after the other, as long as Release may, and says what is known then. The first is that of the
// hold's nodes. The other is of a pair's second node, which may never have been made, or of the node with which permits stood in the queue:
// while that is there, nobody else gets any.
//
// If the session ends from here on, that is no loss: the hold stood when its Release began. Another hold may end the session
// meanwhile, because both have the same lease.
func (r releasing) confirm(p *graceTime) error {
	notConfirmed := func(why error) error {
		what := "the node is still being deleted in the background"
		if r.h.d.stays > r.began {
			what = "if the node is there, it stays for its minimum hold"
		}
		return fmt.Errorf("%w: %w; %s", ErrNotConfirmed, why, what)
	}
	e := r.h.d.e
	ctxEnded := p.ctx.Done()
	var lastTry <-chan struct{} // when the context has ended
	for i := 0; i < len(r.xs) && r.xs[i] != nil; {
		x := r.xs[i]
		if isClosed(x.Done) { // also when the time is over: the wait for another may have taken it
			if err := howItEnded(i, x.OK, x.Err); err != nil {
				return err
			}
			i++
			continue
		}
		left := r.end.Sub(e.Clock.Now()).Truncate(time.Millisecond)
		if left <= 0 {
			return notConfirmed(x.Last.AddTo(errNoAnswer))
		}
		t := time.NewTimer(min(left, lease.ClockCheck))
		select {
		case <-x.Done:
			t.Stop()
		case <-e.Ended():
			t.Stop()
			if isClosed(x.Done) {
				continue
			}
			return howItEnded(i, false, e.EndErr())
		case <-x.Refused:
			t.Stop()
			return notConfirmed(x.Refusal)
		case <-ctxEnded:
			t.Stop()
			late := make(chan struct{}) // stays closed: if the first deletion ends in that moment, the wait for the second is over, too
			last := time.AfterFunc(p.left(), func() { close(late) })
			defer last.Stop()
			lastTry, ctxEnded = late, nil
		case <-lastTry:
			t.Stop()
			if isClosed(x.Done) {
				continue
			}
			return notConfirmed(x.Last.AddTo(ctxError(p.ctx)))
		case <-t.C:
		}
	}
	return nil
}

// howItEnded returns what the end of the i-th deletion of a release says of the hold: nil if its node was there until then.
func howItEnded(i int, ok bool, err error) error {
	switch {
	case ok, errors.Is(err, link.ErrExpired), errors.Is(err, zk.ErrNoNode) && i > 0: // it went by our delete, or with its session
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return lostBecause(link.ErrNodeGone)
	}
	return fmt.Errorf("%w: %w; the node goes with its session", ErrNotConfirmed, err)
}

// actsFor says whether a call with ctx, which carries the hold, acts for the hold's owner: ctx sets no other.
func actsFor(ctx context.Context, h *Hold) bool {
	o := ownerSet(ctx)
	return o == (Owner{}) || o == h.Owner()
}

// Hold is one successful acquire. It is released once, from any goroutine. All its methods are safe for use from many
// goroutines. All except Release answer from memory.
type Hold struct {
	try     bool       // a call of TryAcquire
	outer   *Hold      // the handle under which reentered saw this one; guarded by the lockTable
	outcome chan error // holds one: nil with the grant. The call gets it when it is taken from the acquisition, unless it leaves
	ctx     *holdContext
	d       *lockData       // from the grant on
	end     error           // after the release: what Err says from then on; guarded by the lockTable, as is the next
	stays   clock.Instant   // of the handle that was granted: until when the node stays at least (WithMinHold); otherwise 0
	trace   handleTrace     // nil if nobody traces; and
	values  context.Context // of the context that its AcquireStart returned
}

// handleTrace is notified of what becomes of a handle and of its hold, if the Session has traces.
type handleTrace interface {
	joins(h *Hold, granted handleTrace)
	lost(err error, at clock.Instant) // the hold, whatever handles it has
	ended(at clock.Instant, err error, isLost bool)
}

// holdContext carries the hold. Its Err compares the clock with the lease: after a pause the first look shows the loss, even
// if no timer has run yet (F18).
type holdContext struct {
	context.Context
	outer  context.Context // the caller's, for work; nil for the hold's own
	h      *Hold
	cancel context.CancelCauseFunc // ends it
}

// busyLocked is what a call gets when its owner is being served in another. A try does not wait for one that stands behind somebody.
func (h *Hold) busyLocked(a *acquisition) error {
	if h.try && a.at.waits() {
		return ErrNotAcquired
	}
	return errBusy
}
