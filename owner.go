package zklock

import (
	"context"

	"github.com/google/uuid"
)

// Owner is who may re-enter a lock. Goroutines have no identity, so the context says who asks: it carries a hold of that
// lock, or an owner set with WithOwner. Owners are comparable, and equal only if they come from the same call of NewOwner.
type Owner struct {
	id   uuid.UUID
	name string
}

// NewOwner returns a new owner, equal to no other. The name is for logs.
func NewOwner(name string) Owner { return Owner{uuid.New(), name} }

// String returns the name, and a part of the id: it tells owners of one name apart.
func (o Owner) String() string {
	if o == (Owner{}) {
		return "nobody"
	}
	short := o.id.String()[:8]
	if o.name == "" {
		return short
	}
	return o.name + "/" + short
}

type ownerKey struct{}

// WithOwner returns a context in which Acquire acts for the owner: it re-enters what the owner holds. That goes for every
// lock, and for any holds that the context carries. Goroutines that share an owner do not exclude each other. The zero Owner
// sets none.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

func ownerSet(ctx context.Context) Owner {
	o, _ := ctx.Value(ownerKey{}).(Owner)
	return o
}

// actsFor says whether a call with ctx, which carries the hold, acts for the hold's owner: ctx sets no other.
func actsFor(ctx context.Context, h *Hold) bool {
	o := ownerSet(ctx)
	return o == (Owner{}) || o == h.Owner()
}

// asker is who calls, as the context says.
type asker struct {
	owner Owner        // set with WithOwner; the zero Owner if none was
	under [2]*lockData // whose hold of this lock and Session the context carries, and whose of its other side; nil if it carries none
}

func askerIn(ctx context.Context, t *lockTable, root *lockRoot) asker {
	by := asker{owner: ownerSet(ctx)}
	for i, mode := range [2]string{root.mode(), otherSide(root.mode())} {
		if mode == "" {
			break
		}
		if h := heldIn(ctx, holdKey{table: t, root: root.path, mode: mode}); h != nil {
			by.under[i] = h.d
		}
	}
	return by
}

// OwnerFrom returns the owner that WithOwner set. If none is set, it returns the owner of the innermost hold that the
// context carries, of any lock. It returns false if the context has neither.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	if o := ownerSet(ctx); o != (Owner{}) {
		return o, true
	}
	if h := heldIn(ctx, holdKey{}); h != nil {
		return h.Owner(), true
	}
	return Owner{}, false
}
