//go:build !linux && !darwin

package supervise

import "time"

var start = time.Now()

// Now is Go's monotonic clock: there is no second process here to share it with.
func Now() Moment { return Moment(time.Since(start)) }
