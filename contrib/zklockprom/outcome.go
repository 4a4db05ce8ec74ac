package zklockprom

import (
	"context"
	"errors"

	"github.com/zklock/zklock"
)

// Of the outcomes, those that have series from the first acquire on.
const (
	acquired = "acquired"
	failed   = "error"
)

var outcomes = []struct {
	err     error
	outcome string
}{ // the first that fits: the cause of a context can be any error
	{context.Canceled, "canceled"}, {context.DeadlineExceeded, "deadline"}, {zklock.ErrNotAcquired, "not_acquired"},
	{zklock.ErrNotConnected, "not_connected"}, {zklock.ErrSessionExpired, "session_lost"}, {zklock.ErrClosed, "closed"},
}

// outcomeOf says in one word how an acquire ended.
func outcomeOf(err error) string {
	if err == nil {
		return acquired
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.outcome
		}
	}
	return failed
}
