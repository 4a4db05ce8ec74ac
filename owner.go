package zklock

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"
)

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

func ownerSet(ctx context.Context) Owner {
	o, _ := ctx.Value(ownerKey{}).(Owner)
	return o
}

// forever is the wait of a call that only its context limits.
const forever = time.Duration(math.MaxInt64)

// limit returns a channel that delivers after the wait; nil if the wait is forever.
func limit(wait time.Duration) <-chan time.Time {
	if wait == forever {
		return nil
	}
	return time.After(wait)
}
