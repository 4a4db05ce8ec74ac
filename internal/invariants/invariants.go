// Package invariants lets the library check the state that a mutex guards when the mutex is
// unlocked: each of the first 64 times, and then every 64th time. It promises that a build without
// the tag "invariants" contains neither the checks nor the state that only they need.
//
// Put the code of a check below "if invariants.Enabled", which is a constant.
package invariants

import (
	"fmt"
	"iter"
)

// Check panics if an invariant does not hold. The text names the invariant and the facts that
// contradict it.
func Check(holds bool, invariant, facts string, args ...any) {
	if !holds {
		panic(fmt.Sprintf("zklock: invariant %q does not hold: %s", invariant, fmt.Sprintf(facts, args...)))
	}
}

// Sample returns the entries of a map, if there are many a few that differ from call to call. So
// the cost of a check does not grow with the map.
func Sample[K comparable, V any](m map[K]V) iter.Seq2[K, V] {
	const most = 16
	return func(yield func(K, V) bool) {
		n := 0
		for k, v := range m { // a map begins its iteration at a random entry
			if n++; n > most || !yield(k, v) {
				return
			}
		}
	}
}
