//go:build !linux && !darwin

package main

import "time"

var start = time.Now()

// now is Go's monotonic clock: there is no second process here to share it with.
func now() moment { return moment(time.Since(start)) }
