//go:build invariants

package invariants

// This test shows that a broken invariant panics and leaves no mutex locked.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMutex_CheckFails_PanicsAndIsUnlocked(t *testing.T) {
	var m Mutex
	n := 0
	m.OnUnlock(func() { Check(n == 1, "there is one", "there are %d", n) })
	m.Lock()
	n = 1
	m.Unlock()
	m.Lock()
	n = 2
	require.PanicsWithValue(t, `zklock: invariant "there is one" does not hold: there are 2`, m.Unlock)
	require.True(t, m.TryLock())
}
