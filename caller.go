package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
)

// Who calls, and how long the call may wait. Each call looks both up once, in its context.

// Owner identifies a caller that may re-enter a lock. A context sets an owner by WithOwner. Owners
// are comparable.
type Owner struct {
	id   uuid.UUID
	name string
}

// NewOwner returns a new owner, unequal to all others. The name is for logs.
func NewOwner(name string) Owner { return Owner{uuid.New(), name} }

// String returns the name and the beginning of the id.
func (o Owner) String() string {
	if o == (Owner{}) {
		return "none"
	}
	short := o.id.String()[:8]
	if o.name == "" {
		return short
	}
	return o.name + "/" + short
}

type ownerKey struct{}

// WithOwner returns a context with which Acquire acts for o, unless o is zero: Acquire re-enters
// locks that o holds, except permits, and ignores other owners' holds in the context. Goroutines
// with one owner do not exclude each other.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// caller is a call that acquires a lock, or asks for the caller's hold of it.
type caller struct {
	ctx   context.Context // it bounds the wait
	op    string          // for errors
	owner Owner           // set with WithOwner; zero if none is set
	under *Hold           // the innermost hold of this lock or its other share, through this Session; nil for none
	inner *Hold           // the innermost hold of the lock's path, through any Session; nil for none
	multi string          // the name in traces of the Multi that makes the call; "" for none

	wait time.Duration    // how long it may wait; forever if only ctx bounds that, 0 for a try
	late <-chan time.Time // delivers when the wait has ended; nil until it begins, and if it is forever
}

// callerIn looks up the caller in its context, and the wait for which a Multi calls. Most contexts
// carry no hold of the path: one look-up, which allocates nothing, shows that.
func callerIn(ctx context.Context, t *lockTable, root *lockRoot, op string, wait time.Duration) caller {
	by := caller{ctx: ctx, op: op, wait: wait}
	by.owner, _ = ctx.Value(ownerKey{}).(Owner)
	if w, _ := ctx.Value(multiWait{}).(multiWait); w.path == root.Path() {
		if by.multi = w.multi; !w.until.IsZero() {
			by.wait = min(wait, max(time.Until(w.until), 1)) // 0 would mean a try
		}
	}
	if by.inner, _ = ctx.Value(root).(*Hold); by.inner == nil || root.isFresh {
		return by
	}
	h := by.inner
	if h.d.table != t {
		h = heldIn(ctx, holdKey{table: t, root: root.Path()})
	}
	if h != nil && (h.d.key.share == root.share || h.d.key.share == root.other) {
		by.under = h
	}
	return by
}

// reads reports whether the call is for the read lock, under a write hold in its context.
func (by caller) reads(root *lockRoot) bool {
	return by.under != nil && by.under.d.key.share != root.share && root.Rule().IsShared()
}

// actsFor reports whether the call acts for the owner of a hold in its context: it sets no other.
func (by caller) actsFor(h *Hold) bool {
	return by.owner == (Owner{}) || by.owner == h.Owner()
}

// waitsForItself extends the error of a call that was not granted, if the call's own context
// carries a hold of this path that it could not re-enter: of another Session or owner, or of
// permits.
func (by caller) waitsForItself(t *lockTable, root *lockRoot, err error) error {
	h := by.inner
	if h == nil || by.ctx.Err() == nil && !errors.Is(err, ErrNotAcquired) || h.Err() != nil {
		return err
	}
	if root.isFresh {
		return fmt.Errorf("%w; this call's own context carries a hold of this path, %s, and a call does not re-enter it", err, h.Node())
	}
	whose := "through another Session"
	switch {
	case h.d.table == t && h.d.key.share == root.other && by.actsFor(h):
		return err // a read under it queues behind no client
	case h.d.table == t && h.d.key.share != root.share:
		whose = "for another kind of lock" // a Mutex under a read/write lock, or the reverse
	case h.d.table == t:
		whose = "for another owner"
	}
	return fmt.Errorf("%w; this call's own context carries a hold of this path %s, %s, and the call could not re-enter it", err, whose, h.Node())
}

// forever is the wait of a call that only its context limits.
const forever = time.Duration(math.MaxInt64)

// multiWait is the wait that a Multi passes to one of the locks that it calls, in the context,
// under the zero multiWait as the key. Acquire takes only a context, and an end of that context
// would have another meaning. No context of a hold carries this key.
type multiWait struct {
	path  string    // of the lock, absolute: a wrapper's method may acquire other locks with this context
	until time.Time // the end of the wait; zero for no limit
	multi string    // the Multi's name in traces
}

// holdKey is the key with which a context returns the innermost hold that it carries of a Session's
// locks on a path. With after, it returns a hold that lasts, and that a call which waits for this
// lock now could wait for in vain.
type holdKey struct {
	table *lockTable // nil with after: any
	root  string     // absolute
	after bool       // of root, or of a path that sorts after it; root is then a shownPath, by which a Multi sorts
}

func heldIn(ctx context.Context, k holdKey) *Hold {
	h, _ := ctx.Value(k).(*Hold)
	return h
}

func (k holdKey) fits(h *Hold) bool {
	if k.after {
		return h.d.root.ShownPath() >= k.root && h.Err() == nil
	}
	return k.table == h.d.table && h.isOf(k.root)
}
