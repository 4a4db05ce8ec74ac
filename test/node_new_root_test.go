package zklock_test

// These tests attack the first node in a new lock root: one transaction creates both, and one
// deletes both.

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// neverReaped: the servers do not delete empty containers while a test runs.
var neverReaped = zktest.WithConfig("znode.container.checkIntervalMs=86400000")

// I4, I8: a lock for a new name takes two requests and two round trips, and nothing is left of it:
// of a mutex, of both sides of a read/write lock and of an election.
func TestVirtual_NewRoot_TwoRequests_NothingIsLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		const way, names = time.Millisecond, 1000
		v.net.SetLatency(way)
		s := v.connect()
		beats := 0
		for i := range names {
			p := fmt.Sprintf("/job/%d", i)
			var l zklock.Lock = newMutex(t, s, p, zklock.WithContainer())
			switch i % 3 {
			case 1:
				l = newRWMutex(t, s, p, zklock.WithContainer()).ReadLock()
			case 2:
				l = newRWMutex(t, s, p, zklock.WithContainer()).WriteLock()
			}
			var took time.Duration
			got := v.cost(func() {
				began := time.Now()
				h := acquire(t, l)
				st, _ := v.srv.Stat(h.Node())
				require.Equal(t, st.Czxid, h.Token())
				release(t, h)
				took = time.Since(began)
			})
			require.Equal(t, got.Total(zktest.Multi), got.Total(zktest.AnyOp), "%s: %v", p, got)
			require.Equal(t, 2*2*way, took)
			beats += got.Total(zktest.Multi) - 2
		}
		require.Less(t, beats, 10, "heartbeats of the holds")
		require.Empty(t, v.srv.Children("/job"))
	}, neverReaped)
}
