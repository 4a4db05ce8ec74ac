package zklock

// This test attacks row.go: which notes are evidence for a number in a row.

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// F56: the notes of another ZooKeeper session prove nothing: its node may still exist when its
// deletion is given up. Nor do those of another kind of lock, whose nodes have another rule.
func TestRowNotes_OfAnotherSessionOrKind_ProveNothing(t *testing.T) {
	e, other := aZKSession(), aZKSession()
	other.ID++
	r := &lockRoot{path: "/locks/a", kind: "mutex", rule: queue.Rule{Markers: []string{queue.MutexName}}, roots: &roots{}}
	r.noteRow(e, "/locks/a/_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-lock-0000000007", rootView{alone: true}, &nodes.Deletion{})
	_, row, ok := r.rowIn(e)
	require.True(t, ok, "or this shows nothing")
	require.Equal(t, int64(7), row.Number)
	_, _, ok = r.rowIn(other)
	require.False(t, ok)
	r.kind = "writer"
	_, _, ok = r.rowIn(e)
	require.False(t, ok)
}
