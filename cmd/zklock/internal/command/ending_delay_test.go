//go:build linux || darwin

package command

// What the guardian of a killed zklock says of the lock: under a lock-delay it is not free.

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnding_ReportsWhenOthersGetTheLock(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flags []string
		says  string
		next  int // the exit code of a run that does not wait
	}{
		"no delay":   {nil, "the lock is free", 0},
		"lock-delay": {[]string{"--lock-delay", "1h"}, "others get the lock after the lock-delay of 1h0m0s", exitNotAcquired},
	} {
		t.Run(name, func(t *testing.T) {
			srv, path := server(t), lockPath(t)
			p := run(t, srv, path, append(tc.flags, "--", "sleep", "600")...)
			p.prints("acquired")
			p.signal(syscall.SIGKILL)
			p.prints("ended its ZooKeeper session: ")
			p.prints(fmt.Sprintf("ended its ZooKeeper session: %s\n", tc.says))
			require.Regexp(t, fmt.Sprintf(`Z %[1]s \(token \d+, node %[1]s/_c_[^,]+, process %d\): ended its`, path, p.cmd.Process.Pid), p.stderr.String())
			next := run(t, srv, path, append(tc.flags, "-n", "--", "true")...)
			require.Equal(t, tc.next, next.wait(), next.stderr.String())
		})
	}
}
