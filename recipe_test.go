package zklock

// These tests attack the seam between the engine and the recipes: they add a recipe without state
// and a recipe with state, as attempt.go describes, and change no file of the engine.

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

// once is a recipe whose lock is granted until a node exists: the holder creates it when the job is
// done. The next holder sees the effects of the previous one, because it was in the queue until the
// previous holder's node was deleted.
type once struct {
	plain
	done string // absolute
}

var errDone = errors.New("the job is done")

func (o once) whenFirst(a *attempt) error {
	for {
		_, err := a.e.Read(a.ctx, wire.OpGetData, wire.PathWatchRequest{Path: o.done}, new(wire.DataResponse))
		switch found, err := a.findingOf(err); {
		case err != nil:
			return err
		case found == queue.Exists:
			return errDone
		case found == queue.Absent:
			return a.grant()
		}
	}
}

// Of twelve callers of four processes one does the job. All other calls return the recipe's error,
// and leave no node (I4).
func TestRecipe_OnceIsAddedWithoutAChange(t *testing.T) {
	srv := zktest.Start(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	var granted, done int
	for range 4 {
		s, err := Connect(t.Context(), srv.Addr(), WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		m, err := mutexOf(s, "new job", "/job", queue.MutexName, newLockOptions[LockOption](nil), once{done: "/done"})
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

// patient is a recipe whose lock is granted from a call's nth attempt on. It counts the attempts in
// its state, and notes on the lock root how many it has sent back. The release reports the count.
type patient struct {
	plain
	nth      int
	released chan int
}

type patientState struct {
	noState
	attempts int // of the call, this one included
	released chan int
}

type patientNotes struct{ sentBack int }

func (p patient) newState(_ *attempt, before recipeState) recipeState {
	s := &patientState{attempts: 1, released: p.released}
	if b, ok := before.(*patientState); ok {
		s.attempts += b.attempts
	}
	return s
}

func (p patient) whenFirst(a *attempt) error {
	if a.state.(*patientState).attempts < p.nth {
		node.Note(a.d.root.Root, func(n *patientNotes) { n.sentBack++ })
		return errRequeue
	}
	return a.grant()
}

func (s *patientState) giveBack(d *lockData) [2]*node.Deletion {
	s.released <- s.attempts
	return s.noState.giveBack(d)
}

// The engine passes a recipe's state to the call's next attempt, to the recipe's methods, and to
// the release of the hold, also with a lock-delay. Calls exclude each other (I1) and leave no node
// (I4).
func TestRecipe_WithStateIsAddedWithoutAChange(t *testing.T) {
	for name, delay := range map[string]time.Duration{"by itself": 0, "with a lock-delay": time.Second} {
		t.Run(name, func(t *testing.T) {
			const sessions, calls = 2, 2
			srv := zktest.Start(t)
			released := make(chan int, sessions*calls)
			o := newLockOptions[LockOption](nil)
			o.delay = delay
			var all sync.WaitGroup
			var holding, overlaps atomic.Int32
			var roots []*lockRoot
			for range sessions {
				s, err := Connect(t.Context(), srv.Addr(), WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				m, err := mutexOf(s, "new job", "/job", queue.MutexName, o, patient{nth: 2, released: released})
				require.NoError(t, err)
				roots = append(roots, &m.root)
				all.Go(func() {
					for range calls {
						hold, err := m.Acquire(t.Context())
						if !assert.NoError(t, err) {
							return
						}
						if holding.Add(1) > 1 {
							overlaps.Add(1)
						}
						_, _, err = s.Conn().Exists("/job")
						assert.NoError(t, err)
						holding.Add(-1)
						assert.NoError(t, hold.Release(t.Context()))
					}
				})
			}
			all.Wait()
			close(released)
			require.Len(t, released, sessions*calls)
			for attempts := range released {
				require.Equal(t, 2, attempts)
			}
			for _, root := range roots {
				require.Equal(t, patientNotes{sentBack: calls}, node.NotesOn[patientNotes](root.Root))
			}
			require.Zero(t, overlaps.Load())
			require.Empty(t, srv.Children("/job"))
		})
	}
}
