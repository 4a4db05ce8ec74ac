// Package zkfence has what a [fence.Gate] needs to know of the holds of package zklock: what a sequencer says, and whether its hold
// stands. An importer downloads what zklock needs, and no more.
package zkfence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/fence"
)

// Parse is for Gate.Parse. It takes the text of any hold, and the claim's resource is the lock's path with the chroot: so that is what
// [fence.Gate.Admit] is to be given, too. Holds of readers and of permits are Shared: others hold beside them. The tokens of permits have
// no order, so a gate for a semaphore needs Check. An error is [zklock.ErrBadSequencer].
func Parse(text string) (fence.Claim, error) {
	q, err := zklock.ParseSequencer(text)
	return fence.Claim{Resource: q.Path, Shared: q.Mode != "exclusive", Token: q.Token}, err
}

// ParseExclusive is Parse for requests that need the lock alone, as most that write do: the text of a reader's hold or of permits is an
// error, too.
func ParseExclusive(text string) (fence.Claim, error) {
	c, err := Parse(text)
	if err == nil && c.Shared {
		err = errors.New("others may hold beside it, and this needs the lock alone")
	}
	return c, err
}

// Check is for Gate.Check. The function that it returns asks the ensemble by [zklock.CheckSequencer], over s, and returns within bound
// whatever happens: a request's context may have no deadline, and an outage may last. A second is enough for an ensemble that is well.
//
// Its error is a [fence.ErrStale] if the hold is over: it was released or lost, or its lock root was removed. It is a [fence.ErrInvalid]
// if no hold has given the text. With any other, nobody knows: no answer came in time, s is closed, or it may not read the lock.
//
// Where known is true, it returns nil at once: it asks about a hold when that is new to the Guard, and then no more. So a hold that is over
// passes until a later one has been at the Guard that excludes it. To have the ensemble asked about each request, call it with false; the
// price is a transaction for each. Requests with permits pay that price anyway: permits have no order, so the Guard knows nothing of them.
// So do readers until a writer has been at the Guard. Later, who comes with a smaller token than another reader is not asked about: no
// writer has been there since.
func Check(s *zklock.Session, bound time.Duration) func(ctx context.Context, lock, text string, known bool) error {
	return func(ctx context.Context, lock, text string, known bool) error {
		if known {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		path, below := strings.CutPrefix(lock, s.Chroot()+"/")
		if !below {
			return fmt.Errorf("%w: %s is not below %s", fence.ErrInvalid, lock, s.Chroot())
		}
		err := zklock.CheckSequencer(ctx, s, "/"+path, text)
		switch {
		case errors.Is(err, zklock.ErrNotHeld):
			return fmt.Errorf("%w: %w", fence.ErrStale, err)
		case errors.Is(err, zklock.ErrBadSequencer):
			return fmt.Errorf("%w: %w", fence.ErrInvalid, err)
		}
		return err
	}
}
