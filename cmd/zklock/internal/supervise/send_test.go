//go:build linux || darwin

package supervise

// A signal that the program itself sends to its command: it ends that as one from outside does, and
// the hold is released after it.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSend_EndsTheCommandAsASignalFromOutside(t *testing.T) {
	l := newLocker(t)
	p := l.run(t, nil, "--asks", "--", "sleep", "600")
	require.Equal(t, 143, p.Wait())
	require.Zero(t, l.queued(), "released")

	// What the command leaves running ends with it, also if it is waited for.
	p = l.run(t, nil, "--asks", "--leftovers", "wait", "--", "sh", "-c", `trap "exit 4" TERM; sleep 600 & wait`)
	require.Contains(t, []int{4, 143}, p.Wait()) // the shell may have had no time for its trap
	require.Zero(t, l.queued(), "released")
}
