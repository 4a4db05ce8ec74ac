package conformance

import (
	"bufio"
	"io"
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// F36, what docs/curator.md warns of: Curator's read/write locks wait for each other only. They get in while we hold, and we
// wait for both of them.
func TestInterop_CuratorReadWrite_PassesUsBy(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	addr, lock := startReal(t), "/readwrite"
	s, err := zklock.Connect(t.Context(), addr, zklock.WithSessionTimeout(30*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer s.Close()
	m, err := zklock.NewMutex(s, lock)
	require.NoError(t, err)
	hold, err := m.Acquire(t.Context())
	require.NoError(t, err)

	cmd := exec.CommandContext(t.Context(), "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", classPath, "ReadWrite", addr, lock)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	says := bufio.NewScanner(stdout)
	require.True(t, says.Scan())
	require.Equal(t, "write true", says.Text(), "Curator's write lock waits for us now; docs/curator.md says that it does not")
	require.NoError(t, hold.Err())
	require.NoError(t, hold.Release(t.Context()))

	_, err = m.TryAcquire(t.Context())
	require.ErrorIs(t, err, zklock.ErrNotAcquired, "a writer is ahead")
	_, err = io.WriteString(stdin, "\n")
	require.NoError(t, err)
	require.True(t, says.Scan())
	require.Equal(t, "read true", says.Text())
	_, err = m.TryAcquire(t.Context())
	require.ErrorIs(t, err, zklock.ErrNotAcquired, "a reader is ahead")
	_, err = io.WriteString(stdin, "\n")
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	hold, err = m.TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Release(t.Context()))
}
