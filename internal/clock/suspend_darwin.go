package clock

import (
	"encoding/binary"
	"syscall"
	"time"
)

// processStart anchors Go's monotonic clock against the time since boot.
var processStart = time.Now()

// suspendedTime on macOS: Go's clock there is mach_absolute_time, which stops in suspend, while the
// time since boot continues. Go's clock is read first, so that a pause between the two reads can
// only replace time that the caller has not counted yet.
func suspendedTime() time.Duration {
	awake := time.Since(processStart)
	up, ok := sinceBoot(bootTime, func() time.Duration { return time.Duration(time.Now().UnixMicro()) * time.Microsecond })
	if !ok {
		return 0
	}
	return up - awake
}

// bootTime returns when the machine was started, by the wall clock.
func bootTime() (at time.Duration, ok bool) {
	raw, err := syscall.Sysctl("kern.boottime") // struct timeval; Sysctl cuts one trailing zero byte
	if err != nil || len(raw) < 12 {
		return 0, false
	}
	sec := int64(binary.LittleEndian.Uint64([]byte(raw[:8])))
	usec := int64(binary.LittleEndian.Uint32([]byte(raw[8:12])))
	return time.Duration(sec*1e6+usec) * time.Microsecond, true
}
