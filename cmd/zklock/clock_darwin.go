package main

import "golang.org/x/sys/unix"

// now reads the time since boot, which is the same in all processes of the host. On macOS CLOCK_MONOTONIC counts the
// time asleep.
func now() moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("zklock: no CLOCK_MONOTONIC: " + err.Error()) // macOS has it since 10.12
	}
	return moment(ts.Nano())
}
