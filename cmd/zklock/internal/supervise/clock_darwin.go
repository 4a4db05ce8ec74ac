package supervise

import "golang.org/x/sys/unix"

// Now reads the time since boot, which is the same in all processes of the host. On macOS
// CLOCK_MONOTONIC counts the time asleep.
func Now() Moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("zklock: no CLOCK_MONOTONIC: " + err.Error()) // macOS has it since 10.12
	}
	return Moment(ts.Nano())
}
