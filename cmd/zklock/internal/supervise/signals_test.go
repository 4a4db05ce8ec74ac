//go:build !windows

package supervise

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRepeats(t *testing.T) {
	const ms = Moment(time.Millisecond)
	came := repeats{}
	for _, step := range []struct {
		sig  syscall.Signal
		at   Moment
		copy bool
		why  string
	}{
		{syscall.SIGTERM, 1000 * ms, false, "the first"},
		{syscall.SIGTERM, 1000 * ms, true, "timeout(1) signals its child, then the group"},
		{syscall.SIGCONT, 1000 * ms, false, "and continues it"},
		{syscall.SIGCONT, 1000 * ms, false, "twice, which does no harm"},
		{syscall.SIGTERM, 1099 * ms, true, "it was held up in between"},
		{syscall.SIGINT, 1099 * ms, false, "another signal"},
		{syscall.SIGTERM, 1100 * ms, false, "somebody is impatient"},
		{syscall.SIGTERM, 1150 * ms, true, ""},
		{syscall.SIGHUP, 2000 * ms, false, ""},
		{syscall.SIGHUP, 2001 * ms, false, "the configuration has changed again"},
		{syscall.SIGUSR1, 2000 * ms, false, ""},
		{syscall.SIGUSR1, 2001 * ms, false, "somebody counts"},
	} {
		require.Equal(t, step.copy, came.is(step.sig, step.at), "%v at %v: %s", step.sig, time.Duration(step.at), step.why)
	}
}
