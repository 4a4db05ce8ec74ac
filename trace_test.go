package zklock

// This test attacks the words for metrics: the outcome of an acquire, and the reason of a loss.

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/link"
)

// The word for metrics matches the caller's result.
func TestOutcome(t *testing.T) {
	other := errors.New("other")
	for want, errs := range map[string][]error{
		"acquired":      {nil},
		"not_acquired":  {ErrNotAcquired},
		"canceled":      {context.Canceled, fmt.Errorf("%w: %w", context.Canceled, ErrClosed)},
		"deadline":      {context.DeadlineExceeded, fmt.Errorf("%w: %w", context.DeadlineExceeded, ErrNotConnected)},
		"not_connected": {ErrNotConnected},
		"closed":        {ErrClosed},
		"error":         {other, ErrAuthFailed, ErrLost},
	} {
		for _, err := range errs {
			if err != nil {
				err = &Error{Op: "acquire", Err: err}
			}
			require.Equal(t, want, outcomeWord(err))
		}
	}
}

// Each reason of a loss has its word. Rejected credentials are the reason why no server replied.
func TestLossReason(t *testing.T) {
	for want, why := range map[Loss]error{
		LossOther:    errors.New("why"),
		LossNode:     link.ErrNodeGone,
		LossAuth:     fmt.Errorf("%w: %w", link.ErrSilence, ErrAuthFailed),
		LossClosed:   ErrClosed,
		LossNoServer: link.ErrSilence,
	} {
		require.Equal(t, want, lossReason(&Error{Op: "hold", Err: lostBecause(why)}))
	}
}
