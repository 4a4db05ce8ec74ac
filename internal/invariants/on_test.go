//go:build invariants

// These tests show that a broken invariant stops the program and leaves no mutex locked.

package invariants

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMutex_CheckFails_PanicsAndIsUnlocked(t *testing.T) {
	var m Mutex
	n := 1
	m.OnUnlock(func() { Check(n == 1, "there is one", "there are %d", n) })
	m.Lock()
	m.Unlock()
	m.Lock()
	n = 2
	require.PanicsWithValue(t, `zklock: invariant "there is one" does not hold: there are 2`, m.Unlock)
	require.True(t, m.TryLock())
}
