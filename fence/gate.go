package fence

// Gate: the path from the text of a sequencer to an admission, which the HTTP middleware and the
// gRPC interceptors share.

import (
	"context"
	"fmt"
	"strings"
)

// Gate admits requests by the sequencers that they carry.
type Gate struct {
	// Guard compares and records the tokens. Its resources are the paths of locks.
	Guard *Guard
	// Parse returns the contents of a sequencer: the lock's path as the resource, the mode and the
	// token. A hold of a semaphore's permits is Shared, and no token of another hold makes it
	// stale, so a semaphore needs a Check. For requests that write, return an error if the claim is
	// Shared. Package zkfence provides Parse and Check functions for zklock's sequencers.
	Parse func(text string) (Claim, error)
	// Check, if it is not nil, asks the ensemble whether the hold is still valid, before the Guard
	// records its token. A forged token then raises no mark. Without a Check the gate trusts each
	// token, and a forged one that raises a mark locks the holder out from then on.
	//
	// Check runs for each request that the Guard does not reject. If known is true, the Guard had a
	// mark to compare with and the token is not larger, so it raises no mark. In that case Check
	// may return nil without asking, if all requests for the resource pass through the Guard's
	// Store. Check must return in bounded time, also during an outage, because a request's context
	// may have no deadline. An error that wraps [ErrStale] or [ErrInvalid] rejects the request for
	// that reason. Any other error means that the state of the hold is unknown, and the request is
	// rejected as well.
	Check func(ctx context.Context, lock, text string, known bool) error
}

// Admit decides on a request to the resource that the lock guards. The lock is its path, spelled as
// Parse returns it. Sequencers are the values of the request's header, and there must be exactly
// one: none is an [ErrMissing]. Several, one of another lock, or one that does not parse is an
// [ErrInvalid]. All other errors come from [Guard.Admit] and from Check.
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
		had, known, err := g.Guard.look(ctx, c) // a claim that is stale by the marks costs no request
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

// HeaderValue returns the value to send for a text: the text itself, or an [ErrInvalid] if a header
// would not carry it unchanged, because it is empty, has a byte that is not printable ASCII, or
// begins or ends with a space.
func HeaderValue(text string) (string, error) {
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	if text == "" || strings.ContainsFunc(text, unprintable) || strings.TrimSpace(text) != text {
		return "", fmt.Errorf("%w: a header cannot carry %q", ErrInvalid, text)
	}
	return text, nil
}
