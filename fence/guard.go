// Package fence rejects requests of former lock holders at the resource that a lock guards.
//
// No lock can prevent a request from arriving late, because its sender may be paused after it has
// checked its lock. Only the resource can reject such a request, by the fencing token that the
// request carries. A [Guard] compares tokens in memory or in a [Store], a [Gate] puts a Guard
// before an HTTP or gRPC service, and a [Table] compares tokens within a database transaction.
//
// The package needs neither ZooKeeper nor a lock: functions supply the hold's data and the check
// with the ensemble. Package zkfence has these functions for package zklock. A [Guard] trusts the
// tokens: it stops late requests, not forged ones.
package fence

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrStale is the error, or is in the tree of the error, for a claim that arrives too late: see
	// [StaleError].
	ErrStale = errors.New("fence: stale")
	// ErrMissing is the error for a request that carries no sequencer.
	ErrMissing = errors.New("fence: no sequencer")
	// ErrInvalid is the error for a request whose sequencer does not parse or belongs to another
	// lock.
	ErrInvalid = errors.New("fence: no such sequencer")
	// ErrFull is the error for the first claim to a resource for which [Memory] has no capacity.
	ErrFull = errors.New("fence: no room for the marks of another resource")
)

// Claim describes the hold under which a request was sent.
type Claim struct {
	Resource string // the resource whose tokens are compared: the path of the lock, if a lock guards it
	Shared   bool   // the hold is one of several at a time, such as a reader's
	Token    int64  // the hold's fencing token, larger than 0
}

// StaleError gives the reason for which a claim was rejected. It is an [ErrStale].
type StaleError struct {
	Claim Claim
	Seen  int64 // the token, larger than the claim's, of a later hold that was admitted before
}

// Error returns a text with the token, the resource and the token seen before.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: token %d of %s comes after token %d", ErrStale, e.Claim.Token, e.Claim.Resource, e.Seen)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Marks are the largest tokens that were admitted to a resource, 0 for none. A [Store] keeps them
// and compares them with ==.
type Marks struct {
	Exclusive, Shared int64
}

// judge reports whether the marks admit a claim. Readers have no order among each other, so a
// shared token is compared only with the largest exclusive one. An exclusive token must not be
// smaller than the largest token of both kinds. Known reports whether there was a mark to compare
// with.
func (m Marks) judge(c Claim) (known bool, err error) {
	seen := m.Exclusive
	if !c.Shared {
		seen = max(m.Exclusive, m.Shared)
	}
	if c.Token < seen { // an equal token belongs to the same hold, which may send again
		return true, &StaleError{Claim: c, Seen: seen}
	}
	return seen > 0, nil
}

// raised returns the marks after the claim is admitted.
func (m Marks) raised(c Claim) Marks {
	if c.Shared {
		m.Shared = max(m.Shared, c.Token)
	} else {
		m.Exclusive = max(m.Exclusive, c.Token)
	}
	return m
}

// Store keeps marks where they outlive the process, or where several processes share them. Many
// goroutines may call its methods at the same time.
type Store interface {
	// Load returns the marks of a resource, or the zero Marks if it has none. It sees each Swap
	// that has ended.
	Load(ctx context.Context, resource string) (Marks, error)
	// Swap replaces had by next in one step and returns true. If the marks are no longer had, it
	// returns false and changes nothing. After an error, the marks may be either. A new resource
	// has the zero Marks.
	Swap(ctx context.Context, resource string, had, next Marks) (bool, error)
}

// Guard admits a claim unless it has already admitted one of a later hold. It is safe for use by
// many goroutines, and keeps no state itself.
type Guard struct {
	store Store
}

// NewGuard returns a Guard that keeps its marks in the store: a [Memory], or your own.
func NewGuard(store Store) *Guard { return &Guard{store: store} }

// Admit admits a claim and records its token, or returns a [StaleError] if a larger token was
// admitted before: for a shared token, a larger exclusive one; for an exclusive token, any larger
// one. Equal tokens are admitted. A claim without a token is an [ErrInvalid]. Any other error is
// from ctx or the store. It leaves open whether the claim is stale, and the claim is not admitted.
//
// The token is recorded before Admit returns, so all later claims are compared with it. A request
// that was admitted earlier may still be at work. If that matters, admit and work under one mutex
// of the resource, or in one transaction.
//
// Known is false if there was no mark to compare with. A later hold may have been admitted even
// then, if its marks were lost since: a Memory loses them when the process ends. If that matters,
// ask the ensemble first, as [Gate] does, or keep the marks in a persistent Store.
func (g *Guard) Admit(ctx context.Context, c Claim) (known bool, err error) {
	for {
		had, known, err := g.look(ctx, c)
		if err != nil {
			return known, err
		}
		next := had.raised(c)
		if next == had {
			return known, nil
		}
		// Between look and Swap another claim may have raised a mark. Swap then writes nothing: it
		// would lower that mark, and claims older than the other one would be admitted.
		if swapped, err := g.store.Swap(ctx, c.Resource, had, next); err != nil {
			return known, fmt.Errorf("fence: the marks of %s: %w", c.Resource, err)
		} else if swapped {
			return known, nil
		}
	}
}

// look compares a claim with the marks and records nothing.
func (g *Guard) look(ctx context.Context, c Claim) (had Marks, known bool, err error) {
	if c.Token <= 0 {
		return had, false, fmt.Errorf("%w: token %d of %s", ErrInvalid, c.Token, c.Resource)
	}
	if ctx.Err() != nil {
		return had, false, fmt.Errorf("fence: the marks of %s: %w", c.Resource, context.Cause(ctx))
	}
	if had, err = g.store.Load(ctx, c.Resource); err != nil {
		return had, false, fmt.Errorf("fence: the marks of %s: %w", c.Resource, err)
	}
	known, err = had.judge(c)
	return had, known, err
}
