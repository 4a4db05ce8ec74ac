package zklock

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"
)

// Owner identifies a caller that may re-enter a lock. Goroutines have no identity, so the context says who asks: it carries a hold of that
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

// WithOwner returns a context in which Acquire acts for the owner: it re-enters what the owner holds. That applies to every
// lock except permits, which are not re-entered, and to any holds that the context carries. Goroutines that share an owner do not exclude each other. The zero Owner
// sets none.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

func ownerSet(ctx context.Context) Owner {
	o, _ := ctx.Value(ownerKey{}).(Owner)
	return o
}

// forever is the wait of a call that only its context bounds.
const forever = time.Duration(math.MaxInt64)
