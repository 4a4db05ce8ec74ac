package crash

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// awaitState waits until the kernel reports a state of the service.
func (s *service) awaitState(t *testing.T, state byte) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		require.NoError(t, err)
		return b[bytes.LastIndexByte(b, ')')+2] == state
	}, patience, time.Millisecond)
}
