package zklock

// This test attacks the seam between the engine and the recipes: it adds one, as CONTRIBUTING.md says.

import (
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

// once is a recipe whose lock is granted until a node is there: the holder makes it when the job is done. What one holder did, the next one
// in front sees, for it was in line until the holder's node had gone.
type once struct {
	plain
	done string // absolute
}

var errDone = errors.New("the job is done")

func (o once) front(a *attempt) error {
	for {
		_, err := a.e.Read(a.ctx, wire.OpGetData, wire.PathWatchRequest{Path: o.done}, new(wire.DataResponse))
		switch found, err := a.findingOf(err); {
		case err != nil:
			return err
		case found == queue.IsThere:
			return errDone
		case found == queue.IsGone:
			return a.grant()
		}
	}
}

// Of twelve callers of four processes one does the job. The others get the recipe's error, and leave nothing (I4).
func TestRecipe_OnceIsAddedWithoutAChange(t *testing.T) {
	srv := zktest.Start(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	var granted, done int
	for range 4 {
		s, err := Connect(t.Context(), srv.Addr(), WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		m, err := mutexOf(s, "/job", queue.MutexName, newMutexOptions[LockOption](nil), once{done: "/done"})
		require.NoError(t, err)
		for range 3 {
			all.Go(func() {
				hold, err := m.Acquire(t.Context())
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, errDone) {
					done++
					return
				}
				if assert.NoError(t, err) {
					granted++
					_, err = s.Conn().Create("/done", nil, 0, zk.WorldACL(zk.PermAll))
					assert.NoError(t, err)
					assert.NoError(t, hold.Release(t.Context()))
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, 1, granted)
	require.Equal(t, 11, done)
	require.Empty(t, srv.Children("/job"))
}
