package queue

// These tests attack holders.go: the holders that observers see, and that no position of a waiter
// contradicts them.

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The specification of HoldersOf.
func TestHoldersOf(t *testing.T) {
	for _, tt := range []struct{ name, nodes string }{ // "!" marks the holders
		{"mutexes", "!lock-0000000001 lock-0000000002"},
		{"readers up to the first writer", "!__READ__0000000001 !__READ__0000000002 __WRIT__0000000003 __READ__0000000004"},
		{"a writer", "!__WRIT__0000000001 __READ__0000000002 __READ__0000000003"},
		{"a mutex before readers", "!lock-0000000001 __READ__0000000002"},
		{"a mutex behind readers", "!__READ__0000000001 lock-0000000002 __READ__0000000003"},
		{"a writer that reads, too", "!__WRIT__0000000001 !__READ__0000000001 __READ__0000000002"},
		{"one that reads on", "!__READ__0000000001 !__READ__0000000002 __WRIT__0000000003"},
		{"a kind that we do not know keeps readers waiting", "!other-0000000001 __READ__0000000002"},
		{"numbers and not names", "b-lock-0000000002 !z-lock-0000000001"},
		{"past the counter's end", "lock-" + strconv.Itoa(counterEnd)},
		{"a reader there", "!__READ__0000000001 __READ__" + strconv.Itoa(counterEnd)},
		{"nobody", ""},
	} {
		var names, want, got []string
		for _, node := range strings.Fields(tt.nodes) {
			name, holds := strings.CutPrefix(node, "!")
			if names = append(names, name); holds {
				want = append(want, name)
			}
		}
		ms := Members(names, append([]string{"other-"}, Markers...))
		slices.SortStableFunc(ms, ByNumber)
		for i, holds := range HoldersOf(ms) {
			if holds {
				got = append(got, ms[i].Name)
			}
		}
		require.ElementsMatch(t, want, got, tt.name)
	}
}

// I1, for observers: in every queue, each holder is granted by its own list, too, and no other node
// is. The exception is the reader of a writer that also took the read lock: it was granted beside
// its writer.
func TestHoldersOf_AgreesWithPositionOf(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		var names []string
		for n := range r.IntN(6) {
			names = append(names, Markers[r.IntN(len(Markers))]+"000000000"+strconv.Itoa(n))
		}
		ms := Members(names, Markers)
		slices.SortFunc(ms, ByNumber)
		for i, holds := range HoldersOf(ms) {
			kind := []string{MutexName, ReadName}[map[bool]int{true: 1}[IsReader(ms[i].Name)]]
			place := PositionOf(Rule{Name: kind, Markers: Markers}, ms[i].Name, names)
			require.Equal(t, place.Kind == Front, holds, "%s among %v", ms[i].Name, names)
		}
	}
}
