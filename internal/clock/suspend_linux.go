package clock

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// lastSuspended is the last reading. A reading takes three system calls, and an acquisition needs
// the time about ten times.
var lastSuspended atomic.Pointer[reading]

// suspendedTime is CLOCK_BOOTTIME − CLOCK_MONOTONIC: the first counts suspend, the second, which is
// Go's, does not. Monotonic is read first, so that a pause between the two reads can only replace
// time that the caller has not counted yet. For other callers it would be time that has not passed:
// a reading that took long is not kept.
func suspendedTime() time.Duration {
	now := time.Now()
	if last := lastSuspended.Load(); last != nil && last.holds(now) {
		return last.suspended
	}
	const clockMonotonic, clockBoottime = 1, 7
	before, ok1 := clockGettime(clockMonotonic)
	boot, ok2 := clockGettime(clockBoottime)
	after, ok3 := clockGettime(clockMonotonic)
	if !ok1 || !ok2 || !ok3 {
		return 0
	}
	if after-before < longReading {
		lastSuspended.Store(&reading{at: now, suspended: boot - before})
	}
	return boot - before
}

func clockGettime(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
