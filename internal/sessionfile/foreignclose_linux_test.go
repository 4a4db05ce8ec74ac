package sessionfile

// This test attacks a process whose own code closes descriptors that are not its own.

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Session lives, and other code of its process has closed the descriptor of its file, and with it
// the lock. A second Session of the process finds the pid of the owner, which is its own, and must
// not end the session of the first.
func TestOpen_DescriptorIsClosedByOtherCode_SecondSessionIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zk.session")
	first, _ := mustOpen(t, path, servers...)
	require.NoError(t, first.Add(key(-1)))
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	closed := 0
	for _, d := range all {
		if to, _ := os.Readlink("/proc/self/fd/" + d.Name()); to == path {
			fd, err := strconv.Atoi(d.Name())
			require.NoError(t, err)
			require.NoError(t, syscall.Close(fd))
			closed++
		}
	}
	require.Equal(t, 1, closed)
	_, found, err := Open(t.Context(), path, servers)
	require.ErrorIs(t, err, ErrInUse)
	require.Empty(t, found.Sessions)
	_ = first.Close() // its descriptor is bad
	second, found := mustOpen(t, path, servers...)
	require.Len(t, found.Sessions, 1, "the first is closed")
	require.NoError(t, second.Close())
}
