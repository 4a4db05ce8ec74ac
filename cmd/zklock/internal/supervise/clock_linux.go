package supervise

import "golang.org/x/sys/unix"

// Now reads the time since boot, suspend included, which is the same in all processes of the host.
func Now() Moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("zklock: no CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39, and Go wants 3.2
	}
	return Moment(ts.Nano())
}
