package sim

// Worlds in which a client mostly has its lock to itself, so that its nodes are in a row, or the first
// in a new root, and in which lock roots are deleted and written.

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// lonely has short holds with little contention, and faults as busy has. No event of a lock root is
// lost: a row does not outlast that by more than a session timeout (queue.Row), which is too long for
// these roots.
var lonely = worldKind{
	name: "lonely", long: 8 * time.Minute, locks: 2, clients: 3, workers: 1,
	timeouts: []time.Duration{8 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second},
	think:    300 * time.Millisecond, wait: time.Minute, hold: 200 * time.Millisecond, calm: 30 * time.Second, roots: time.Second, recipe: mutexes,
}

// contained has the same with containers, which only the clients create again.
var contained = func() worldKind {
	k := lonely
	k.name, k.recipe = "contained", containers
	return k
}()

// atRoots deletes lock roots that are empty, writes their data, and creates other children. Most
// roots of lonely are created again, and count on from the number of the last hold: so the next node of another
// client has that number, and the one after it seems to be in a row with the hold.
func (f *simFaults) atRoots(ctx context.Context, r *rand.Rand) {
	for pause(ctx, upTo(r, f.w.kind.roots)) {
		root, what := f.w.locks[r.IntN(len(f.w.locks))], r.IntN(8)
		switch {
		case what < 6:
			stat, _ := f.w.ens.Stat(root)
			if f.w.ens.Delete(root) != nil { // it is not empty
				continue
			}
			f.did("lock root deleted")
			if what > 0 && f.w.kind.recipe != containers {
				_, _ = f.w.ens.Create(root, nil, zktest.Persistent)
				f.w.ens.SetCreates(root, max(0, stat.Cversion/2-1))
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

// countUnlisted counts a grant without a list.
func (w *world) countUnlisted(h *zklock.Hold) {
	if strings.HasSuffix(h.Node(), "-0000000000") {
		w.count("grants in a new root")
	} else {
		w.count("grants in a row")
	}
}

// lists returns how many lists a session has sent.
func (w *world) lists(session int64) int { return w.ens.Requests().Of(session, zktest.GetChildren) }

// I1, I8, F57: grants without a list, while lock roots are deleted and created again.
func TestVirtual_SimulationOfRows(t *testing.T) {
	sum := newTally()
	for _, seed := range seedsOf(max(3, *simSeeds/5)) {
		sum.add(simulate(t, seed, lonely).sum)
	}
	t.Log(sum)
	if *simSeed == 0 {
		require.Greater(t, sum.counts["grants in a row"], 20) // a world has 35 to 230, and some have none
		require.Greater(t, sum.faults["lock root deleted"], 50)
	}
}

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
