// Package zkfence provides the functions that a [fence.Gate] needs for the holds of package zklock:
// one parses a sequencer, one checks whether its hold is still valid. An importer downloads only
// the modules that zklock itself needs.
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

// Parse is for Gate.Parse. It accepts the text of any hold. The claim's resource is the lock's path
// with the chroot, so pass the same spelling to [fence.Gate.Admit]. Holds of readers and of permits
// are Shared, because several are valid at a time. The tokens of permits have no order, so a gate
// for a semaphore needs Check. The error is [zklock.ErrBadSequencer].
func Parse(text string) (fence.Claim, error) {
	q, err := zklock.ParseSequencer(text)
	return fence.Claim{Resource: q.Path, Shared: q.Shared, Token: q.Token}, err
}

// ParseExclusive is Parse for requests that need the lock alone, as most writes do. It returns an
// error for the hold of a reader or of permits.
func ParseExclusive(text string) (fence.Claim, error) {
	c, err := Parse(text)
	if err == nil && c.Shared {
		err = errors.New("others may hold beside it, and this needs the lock alone")
	}
	return c, err
}

// Check is for Gate.Check. The function that it returns asks the ensemble with
// [zklock.Session.CheckSequencer] of s. It returns within bound, because a request's context may
// have no deadline and an outage may last. One second is enough for a healthy ensemble.
//
// Its error is a [fence.ErrStale] if the hold has ended: it was released or lost, or its lock root
// was removed. It is a [fence.ErrInvalid] if the text is not from any hold. With any other error
// the state of the hold is unknown: no response arrived in time, s is closed, or s may not read the
// lock.
//
// If known is true, the function returns nil at once: it asks about a hold once, when the hold is
// new to the Guard. So a hold that has ended is admitted until the Guard sees a later hold that
// excludes it. To have each request checked with the ensemble, call the function with false; each
// request then costs a transaction.
//
// Requests with permits cost that anyway: permits have no order, so the Guard has no mark for them.
// The same applies to readers until the Guard has seen a writer. After that, a reader whose token
// is smaller than another reader's is not checked: no writer has been admitted since.
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
		err := s.CheckSequencer(ctx, "/"+path, text)
		switch {
		case errors.Is(err, zklock.ErrNotHeld):
			return fmt.Errorf("%w: %w", fence.ErrStale, err)
		case errors.Is(err, zklock.ErrBadSequencer):
			return fmt.Errorf("%w: %w", fence.ErrInvalid, err)
		}
		return err
	}
}
