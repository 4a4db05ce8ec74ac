package command

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the demo shows and verifies is tested in internal/demo. Ctrl-C ends it and its workers at
// once.
func TestDemo_Interrupted(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "demo")
	p.prints("HOLDS, token")
	p.signal(syscall.SIGINT)
	require.Equal(t, exitSignal+int(syscall.SIGINT), p.wait())
	require.NotContains(t, p.stdout.String(), "FAILED")
}
