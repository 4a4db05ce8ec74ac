package zklock

import (
	"encoding/binary"
	"syscall"
	"time"
)

// processStart anchors Go's monotonic clock against the time since boot.
var processStart = time.Now()

// suspendedTime on macOS: Go's clock there is mach_absolute_time, which stands still in sleep. The kernel keeps the
// wall time of the boot and moves it when the wall clock is set, so wall − boot counts sleep and ignores such steps.
func suspendedTime() time.Duration {
	raw, err := syscall.Sysctl("kern.boottime") // struct timeval; Sysctl cuts one trailing zero byte
	if err != nil || len(raw) < 12 {
		return 0
	}
	awake := time.Since(processStart)
	sec := int64(binary.LittleEndian.Uint64([]byte(raw[:8])))
	usec := int64(binary.LittleEndian.Uint32([]byte(raw[8:12])))
	sinceBoot := time.Duration(time.Now().UnixMicro()-sec*1e6-usec) * time.Microsecond
	return sinceBoot - awake
}
