package zklock

// This test attacks the words for metrics: the outcome of an acquire, and the reason of a loss.

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
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

// The reason is that of the loss itself, whatever is joined with it.
func TestLossReason(t *testing.T) {
	require.Empty(t, lossReason(nil))
	require.Empty(t, lossReason(ErrNotHeld))
	require.Equal(t, LossOther, lossReason(ErrLost))
	// Do joins the error of the work, which may be another Session's.
	lost := fmt.Errorf("%w: %w", ErrLost, errors.New("why"))
	require.Equal(t, LossOther, lossReason(errors.Join(ErrClosed, fmt.Errorf("release: %w", lost))))
}
