package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// suspendedTime is CLOCK_BOOTTIME − CLOCK_MONOTONIC: the first counts suspend, the second, which is Go's, does not.
// Monotonic is read first, so that a pause between the two reads can only take the place of time the caller has not
// counted yet.
func suspendedTime() time.Duration {
	const clockMonotonic, clockBoottime = 1, 7
	m, ok1 := clockGettime(clockMonotonic)
	b, ok2 := clockGettime(clockBoottime)
	if !ok1 || !ok2 {
		return 0
	}
	return b - m
}

func clockGettime(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
