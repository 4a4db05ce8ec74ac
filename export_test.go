package zklock

import "time"

// WithSuspendedTime replaces what the clock takes as the time the machine was suspended.
func WithSuspendedTime(f func() time.Duration) Option {
	return func(o *sessionOptions) { o.suspendedTime = f }
}
