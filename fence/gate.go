package fence

// What the HTTP middleware and the gRPC interceptors share: from the text of a sequencer to an admission.

import (
	"context"
	"fmt"
	"strings"
)

// Gate admits requests by the sequencers that they carry.
type Gate struct {
	// Guard compares and records the tokens. Its resources are the paths of locks.
	Guard *Guard
	// Parse returns what a sequencer says: the lock's path as the resource, the mode, the token. A hold of a semaphore's permits
	// is Shared, and no token of another makes it stale: give a Check. For requests that write, return an error if it is Shared.
	// Package zkfence has this function, and the next, for zklock's sequencers.
	Parse func(text string) (Claim, error)
	// Check, if it is not nil, asks the ensemble whether the hold still stands, before its token is recorded. So no mark rises by a lie,
	// which would refuse the holder from then on. Without a Check, one may: the gate believes each token.
	//
	// It runs for each request that the Guard does not refuse. If known is true, the Guard had a mark to compare with, and the token
	// is not larger: it raises none. Then Check may return nil without asking, if all requests for the resource go through the Guard's
	// Store. Check must return in bounded time, also in an outage: a request's context may have no deadline. An [ErrStale] or
	// [ErrInvalid] in its error refuses the request for that reason; with another error nobody knows whether the request is late, so it
	// is refused, too.
	Check func(ctx context.Context, lock, text string, known bool) error
}

// Admit decides on a request to what the lock guards: a path, spelled as Parse returns it. Sequencers are the values of the request's
// header: exactly one, or it is an [ErrMissing] or an [ErrInvalid], as one of another lock or without sense is. The other errors are
// those of [Guard.Admit] and of Check.
func (g *Gate) Admit(ctx context.Context, lock string, sequencers []string) error {
	switch len(sequencers) {
	case 0:
		return fmt.Errorf("%w: hold %s, and send its sequencer", ErrMissing, lock)
	case 1:
	default:
		return fmt.Errorf("%w: there are %d of them", ErrInvalid, len(sequencers))
	}
	text := sequencers[0]
	c, err := g.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if c.Resource != lock {
		return fmt.Errorf("%w: it is of %s, and %s is the lock to hold", ErrInvalid, c.Resource, lock)
	}
	if g.Check != nil {
		had, known, err := g.Guard.look(ctx, c) // who is stale by the marks costs no request
		if err != nil {
			return err
		}
		if err := g.Check(ctx, lock, text, known && had.raised(c) == had); err != nil {
			return err
		}
	}
	_, err = g.Guard.Admit(ctx, c)
	return err
}

// HeaderValue returns what to send of a text: itself, or an [ErrInvalid] if a header would not carry it as it is: it is empty, has
// a byte that is not printable ASCII, or begins or ends with a space.
func HeaderValue(text string) (string, error) {
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	if text == "" || strings.ContainsFunc(text, unprintable) || strings.TrimSpace(text) != text {
		return "", fmt.Errorf("%w: a header cannot carry %q", ErrInvalid, text)
	}
	return text, nil
}
