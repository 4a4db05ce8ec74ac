package zklock

// This test attacks batchacquire.go: the capacity that a batch reserves.

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/nodes"
)

// F29: a batch creates no nodes. Its acquisitions, which then create their own, find the capacity
// free that the batch had reserved. The batch is large because freeing its capacity then takes long.
func TestBatchAcquire_Failed_FreesItsCapacityFirst(t *testing.T) {
	const most, size = 2_000, 500
	tt := newTableTest(t)
	var locks []*Mutex
	for i := range size {
		m, err := NewMutex(tt.m.s, fmt.Sprintf("/locks/%d", i))
		require.NoError(t, err)
		locks = append(locks, m)
	}
	for range 20 {
		e := aZKSession() // it can send nothing
		e.nodes = nodes.NewOwn(most)
		o := beginBatchAcquire(e, 0, locks, false)
		require.NotNil(t, o)
		for !isClosed(o.done) { // it is awake when done is closed, as if on another processor
			runtime.Gosched()
		}
		require.Equal(t, most, e.nodes.Room())
		require.Zero(t, o.kept)
	}
}
