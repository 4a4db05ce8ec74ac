package sim

// Worlds in which a client mostly has its lock to itself, so that its nodes are the first in a new
// root, and in which lock roots are deleted and written.

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// contained has short holds with little contention, and faults as busy has, with containers, which
// only the clients create again.
var contained = worldKind{
	name: "contained", long: 8 * time.Minute, locks: 2, clients: 3, workers: 1,
	timeouts: []time.Duration{8 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second},
	think:    300 * time.Millisecond, wait: time.Minute, hold: 200 * time.Millisecond, calm: 30 * time.Second, roots: time.Second, recipe: containers,
}

// atRoots deletes lock roots that are empty, writes their data, and creates other children.
func (f *simFaults) atRoots(ctx context.Context, r *rand.Rand) {
	for pause(ctx, upTo(r, f.w.kind.roots)) {
		root, what := f.w.locks[r.IntN(len(f.w.locks))], r.IntN(8)
		switch {
		case what < 6:
			if f.w.ens.Delete(root) == nil { // it was empty
				f.did("lock root deleted")
			}
		case what == 6:
			if f.w.ens.SetData(root, []byte{byte(r.IntN(256))}) == nil {
				f.did("lock root written")
			}
		default:
			if _, err := f.w.ens.Create(root+"/other", nil, zktest.Persistent); err == nil {
				f.did("other child created")
				_ = f.w.ens.Delete(root + "/other")
			}
		}
	}
}

// lists returns how many lists a session has sent.
func (w *world) lists(session int64) int { return w.ens.Requests().Of(session, zktest.GetChildren) }

// I1, I4, I8, F61: grants without a list in roots that the clients create and delete, while others
// delete and write them.
func TestVirtual_SimulationOfNewRoots(t *testing.T) {
	sum := newTally()
	for _, seed := range seedsOf(max(2, *simSeeds/5)) {
		sum.add(simulate(t, seed, contained).sum)
	}
	t.Log(sum)
	if *simSeed == 0 {
		require.Greater(t, sum.counts["grants in a new root"], 3)
		require.Greater(t, sum.faults["lock root deleted"], 50)
	}
}
