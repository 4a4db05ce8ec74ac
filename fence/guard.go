// Package fence refuses requests of former lock holders at the resource that a lock guards.
//
// No lock can prevent that a request arrives late: its sender may stand still after it has looked at its lock. Only the
// resource can refuse such a request, by the fencing token that came with it. A [Guard] compares tokens in memory or over a
// [Store], a [Gate] puts it in front of an HTTP or gRPC service, and a [Table] compares within a transaction of a database.
//
// The package needs no ZooKeeper and no lock: it takes functions where it has to know a hold or to ask an ensemble. Those for package
// zklock are in zkfence. A [Guard] believes the tokens: it stops who is late, and not who lies.
package fence

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrStale is the error, or in the tree of the error, of a claim that comes too late: see [StaleError].
	ErrStale = errors.New("fence: stale")
	// ErrMissing is that of a request that carries no sequencer.
	ErrMissing = errors.New("fence: no sequencer")
	// ErrInvalid is that of a request whose sequencer is rubbish or another lock's.
	ErrInvalid = errors.New("fence: no such sequencer")
	// ErrFull is that of the first claim to a resource for which [Memory] has no room.
	ErrFull = errors.New("fence: no room for the marks of another resource")
)

// Claim is what a request says of the hold under which it was sent.
type Claim struct {
	Resource string // what the tokens are compared for: the lock's path, if it is a lock that guards it
	Shared   bool   // the hold is one of several at a time: a reader's
	Token    int64  // the hold's fencing token, larger than 0
}

// StaleError says why a claim was refused. It is an [ErrStale].
type StaleError struct {
	Claim Claim
	Seen  int64 // the token, larger than the claim's, of a hold that was granted later and was here before
}

// Error has the token, the resource and the token seen before.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: token %d of %s comes after token %d", ErrStale, e.Claim.Token, e.Claim.Resource, e.Seen)
}

// Is says that the error is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Marks are the largest tokens that were admitted to a resource, 0 for none. A [Store] keeps them and compares them with ==.
type Marks struct {
	Exclusive, Shared int64
}

// judge says whether the marks admit a claim. Readers are not ordered among each other, so a shared token is compared with the
// largest exclusive one only; an exclusive token must exceed, or be, the largest of both. It also says whether there was a mark
// to compare with.
func (m Marks) judge(c Claim) (known bool, err error) {
	seen := m.Exclusive
	if !c.Shared {
		seen = max(m.Exclusive, m.Shared)
	}
	if c.Token < seen { // an equal one is the same hold's, which may come again
		return true, &StaleError{Claim: c, Seen: seen}
	}
	return seen > 0, nil
}

// raised returns the marks after the claim was admitted.
func (m Marks) raised(c Claim) Marks {
	if c.Shared {
		m.Shared = max(m.Shared, c.Token)
	} else {
		m.Exclusive = max(m.Exclusive, c.Token)
	}
	return m
}

// Store keeps marks where they outlive the process, or where several processes find them. Its methods are called by many
// goroutines at a time.
type Store interface {
	// Load returns the marks of a resource, the zero Marks if there are none. It sees each Swap that has ended.
	Load(ctx context.Context, resource string) (Marks, error)
	// Swap puts next in the place of had in one step, and returns true; or it returns false and changes nothing, because the
	// marks are not had any more. After an error they may be either. The zero Marks as had are those of a new resource.
	Swap(ctx context.Context, resource string, had, next Marks) (bool, error)
}

// Guard admits a claim unless it has admitted one of a later hold. It is safe for many goroutines, and keeps nothing itself.
type Guard struct {
	store Store
}

// NewGuard returns a Guard with its marks in the store: a [Memory], or one of yours.
func NewGuard(store Store) *Guard { return &Guard{store: store} }

// Admit admits a claim and records its token, or returns a [StaleError]: for a shared token, if an exclusive one that is larger was
// admitted before; for an exclusive token, if any was. Equal ones pass. An [ErrInvalid] is a claim without a token. Another
// error is ctx's or the store's: whether the claim is stale cannot be told then, and it is not admitted.
//
// The token is recorded before Admit returns, so what is admitted later is compared with it. What is admitted earlier and still
// at work is the caller's matter: where that is possible, admit and work under one mutex of the resource, or in one transaction.
//
// Known is false if there was no mark to compare with. Then a later hold may have been here all the same, before the marks were
// lost: those of a Memory are when the process ends. If that matters, ask the ensemble first, as [Gate] does, or keep the marks in
// a Store that lasts.
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
		// Between the look and the swap another claim may have raised a mark. Then nothing is written, or the mark would be lowered
		// and the other one's predecessors admitted.
		if swapped, err := g.store.Swap(ctx, c.Resource, had, next); err != nil {
			return known, fmt.Errorf("fence: the marks of %s: %w", c.Resource, err)
		} else if swapped {
			return known, nil
		}
	}
}

// look compares and records nothing.
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
