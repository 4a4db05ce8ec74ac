//go:build unix

package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

type noServer struct{}

func (noServer) ConnectString() string { return "nowhere" }
func (noServer) Close() error          { return nil }

// A zklock that locks nothing: the demo has to notice.
func TestRun_WithoutALock_FindsTheOverlap(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "zklock")
	require.NoError(t, os.WriteFile(broken, []byte(`#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
echo "zklock: /demo/job: waiting" >&2
ZKLOCK_TOKEN=$$ exec "$@"
`), 0o755))
	var out bytes.Buffer
	err := Run(t.Context(), Config{Zklock: broken, Start: func() (Server, error) { return noServer{}, nil }, Out: &out})
	require.Error(t, err)
	require.Regexp(t, "OVERLAP|does not grow", err.Error())
	require.NotContains(t, out.String(), "no overlap")
}
