package node

// This test attacks create.go: it decides which node is ours.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

// R31, R32, I3: the node in the server's response must be the requested one, with a number, and
// must belong to the session that requested it.
func TestCreation_IsOurs(t *testing.T) {
	const id = "0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72"
	c := Create{e: aZKSession(), root: NewRoot("/locks/a", RootOptions{}), id: id}
	isOurs := func(node string, owner int64) bool {
		return c.isOurs(wire.PathStatResponse{Path: node, Stat: wire.Stat{EphemeralOwner: owner}})
	}
	require.True(t, isOurs("/locks/a/_c_"+id+"-lock-0000000000", 7))
	require.False(t, isOurs("/locks/a/_c_"+id+"-lock-0000000000", 8))
	for _, node := range []string{
		"", "_c_" + id + "-lock-0000000000", "/locks/b/_c_" + id + "-lock-0000000000", "/locks/a",
		"/locks/a/_c_11111111-8eb9-4d62-8b7f-cb2a3ab6ad72-lock-0000000000", "/locks/a/lock-0000000000",
	} {
		require.False(t, isOurs(node, 7), node)
	}
}
