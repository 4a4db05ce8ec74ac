//go:build !linux && !darwin

package clock

import "time"

// suspendedTime is zero where Go's monotonic clock counts suspend by itself (Windows: interrupt
// time) and where no other clock is known. There the token protects after a suspend.
func suspendedTime() time.Duration { return 0 }
