package queue

// This test compares Sorted with its specification, PositionOf, on random lists.

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var sortedLists = flag.Int("sorted.lists", 2000, "how many random lists are sorted; each has some 20 positions")

// I1, I8: a waiter that shares its list has the position that it has in a list of its own.
func TestSorted_RandomLists_PositionOf(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	seen := map[string]int{}
	for range *sortedLists {
		children, rules := randomList(rnd)
		markers := rules[rnd.IntN(len(rules))].Markers
		sorted := Sort(children, markers)
		for _, self := range append(slices.Clone(children), "", randomName(rnd, 6)) {
			rule := rules[rnd.IntN(len(rules))]
			want, got := PositionOf(rule, self, children), sorted.PositionOf(rule, self)
			if fmt.Sprint(want) != fmt.Sprint(got) { // require.Equal for each takes longer than all the rest
				require.Equal(t, want, got, "%s of %+v in %q, sorted for %q", self, rule, children, markers)
			}
			seen[fmt.Sprint("kind ", want.Kind)]++
			seen[fmt.Sprint("further ", len(want.Further))]++
			seen[fmt.Sprint("holds ", want.Holds, " last ", want.LastHolds, " replaced ", want.Replaced, " no handoff ", want.NoHandoff)]++
		}
	}
	for kind := Missing; kind <= Exhausted; kind++ {
		require.NotZero(t, seen[fmt.Sprint("kind ", kind)], "the lists do not cover kind %d: %v", kind, seen)
	}
	for further := range fewReaders {
		require.NotZero(t, seen[fmt.Sprint("further ", further)], "the lists do not cover %d further blockers: %v", further, seen)
	}
	require.Len(t, seen, 5+fewReaders+11, "every combination of facts that is possible: %v", seen)
}

// randomList returns the children of a root and the rules of its waiters. Many numbers are equal,
// and some are at the counter's ends.
func randomList(rnd *rand.Rand) (children []string, rules []Rule) {
	names := map[string]bool{}
	span := 1 + rnd.IntN(60)
	if rnd.IntN(2) == 0 {
		for range rnd.IntN(40) {
			names[randomName(rnd, span)] = true
		}
	}
	if rnd.IntN(2) == 0 { // a queue of one kind
		kind := endingsOfAll[rnd.IntN(len(endingsOfAll))]
		for i := range rnd.IntN(24) {
			names[fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-%s%010d", rnd.Uint32(), kind, i)] = true
		}
	}
	for name := range names {
		children = append(children, name)
	}
	slices.Sort(children)
	rnd.Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
	for _, name := range []string{MutexName, ReadName, WriteName} {
		rules = append(rules, Rule{name, Markers}, Rule{name, Markers})
	}
	return children, append(rules, Rule{LatchName, []string{LatchName}}, Rule{ReadName, append(slices.Clone(Markers), "__rlock__", "-")})
}

var endingsOfAll = []string{MutexName, LatchName, ReadName, WriteName, "__lock__", "__rlock__"}

// randomName returns the name of a child with one of span numbers, or of a child that takes no part
// in any queue.
func randomName(rnd *rand.Rand, span int) string {
	seq := int64(rnd.IntN(span))
	switch rnd.IntN(400) {
	case 0:
		seq = counterEnd - 2 + int64(rnd.IntN(4))
	case 1:
		seq = counterPinned
	case 2:
		seq = -1<<31 + int64(rnd.IntN(4))
	case 3:
		return []string{"config", "lock-abc", "lock-9999999999", ""}[rnd.IntN(4)]
	}
	return fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-%s%010d", rnd.Uint32(), endingsOfAll[rnd.IntN(len(endingsOfAll))], seq)
}

// BenchmarkSorted measures the cost of a list of 10,000 nodes to waiters that share it, for each.
func BenchmarkSorted(b *testing.B) {
	for _, waiters := range []int{1, 2, 10, 250} {
		b.Run(fmt.Sprintf("sharing=%d", waiters), func(b *testing.B) {
			var children []string
			for i := range 10_000 {
				children = append(children, ours(i, i))
			}
			rand.New(rand.NewPCG(1, 1)).Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if waiters == 1 {
					PositionOf(mutexRule, children[i%len(children)], children)
					continue
				}
				sorted := Sort(children, Markers)
				for n := range waiters {
					sorted.PositionOf(mutexRule, children[(i+n)%len(children)])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*waiters), "µs/waiter")
		})
	}
}
