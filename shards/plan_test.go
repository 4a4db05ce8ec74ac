package shards

// These tests attack the planning function: it must be even, move as little as possible, and change
// nothing when called again.

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var cases = flag.Int("shards.cases", 10_000, "how many random cases TestNext_Random plans")

func members(names ...string) (ms []Member) {
	for _, name := range names {
		ms = append(ms, Member{Name: name, Weight: 1, ID: "id-" + name})
	}
	return ms
}

func loads(p plan) map[string]int {
	l := map[string]int{}
	for _, m := range p.Members {
		l[m.Name] = 0
	}
	for shard := range p.Shards {
		if m, ok := p.owner(shard); ok {
			l[m.Name]++
		}
	}
	return l
}

// randomMembers returns up to most members with random names out of twice as many, and random
// weights if weighted.
func randomMembers(r *rand.Rand, most int, weighted bool) (ms []Member) {
	for _, i := range r.Perm(2 * most)[:r.IntN(most+1)] {
		m := Member{Name: fmt.Sprintf("m%d", i), Weight: 1, ID: fmt.Sprint(r.Uint32())}
		if weighted {
			m.Weight = r.IntN(6)
		}
		ms = append(ms, m)
	}
	return ms
}

// randomPlan returns a plan of any shape: uneven, with shards of nobody, with members that own
// nothing.
func randomPlan(r *rand.Rand, n int, ms []Member) plan {
	p := next(plan{}, n, ms, nil, false)
	for shard := range p.Shards {
		if p.Shards[shard] = r.IntN(len(p.Members)+1) - 1; len(p.Members) > 0 && r.IntN(3) == 0 {
			p.Shards[shard] = 0
		}
	}
	return p
}

// webster computes quotas from the definition, in floating point and by other means than the code:
// it looks for a divisor d such that the sum of the rounded weight/d is n. ok is false if there is
// none, because several members are equal.
func webster(weights []int, n int) (quotas []int, ok bool) {
	var bounds []float64 // the values of d at which a quota changes
	for _, w := range weights {
		for q := range n + 1 {
			bounds = append(bounds, float64(w)/(float64(q)+0.5))
		}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(append(bounds, bounds[len(bounds)-1]+1))
	lo, hi := 0, len(bounds)-1
	for lo < hi { // a larger divisor has a smaller sum
		mid := (lo + hi) / 2
		d := (bounds[mid] + bounds[mid+1]) / 2
		quotas, sum := make([]int, len(weights)), 0
		for i, w := range weights {
			quotas[i] = int(float64(w)/d + 0.5)
			sum += quotas[i]
		}
		switch {
		case sum == n:
			return quotas, true
		case sum > n:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return nil, false
}

// leastMoves returns the smallest number of moves from the old plan to one in which the loads are a
// Webster apportionment. Its tied seats may go to any of the members that are tied.
func leastMoves(old plan, n int, present []Member) int {
	have := loads(old)
	// All seats before the tie are certain. Of the tied ones, each given to a member with a shard
	// to spare saves a move.
	quota, takers := map[string]int{}, slices.DeleteFunc(slices.Clone(present), func(m Member) bool { return m.Weight == 0 })
	if len(takers) == 0 {
		return 0
	}
	for given := 0; given < n; {
		var tied []string
		bestW, bestQ := 0, 0
		for _, m := range takers {
			switch c := m.Weight*(2*bestQ+1) - bestW*(2*quota[m.Name]+1); {
			case c > 0:
				tied, bestW, bestQ = []string{m.Name}, m.Weight, quota[m.Name]
			case c == 0:
				tied = append(tied, m.Name)
			}
		}
		if given+len(tied) > n {
			slices.SortFunc(tied, func(a, b string) int { return (have[b] - quota[b]) - (have[a] - quota[a]) })
			tied = tied[:n-given]
		}
		for _, name := range tied {
			quota[name]++
		}
		given += len(tied)
	}
	taken := 0
	for name, q := range quota {
		taken += max(0, q-have[name])
	}
	return taken
}

// The plan is even by Webster's method, makes the fewest moves, is the same on each call, and
// changes nothing when called on itself.
func TestNext_Random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range *cases {
		n, weighted := 1+r.IntN(40), r.IntN(2) == 0
		old := randomPlan(r, n, randomMembers(r, 8, weighted))
		present := randomMembers(r, 8, weighted)
		name := func() string { return fmt.Sprintf("seed %d: n=%d old=%+v present=%+v", seed, n, old, present) }

		p := next(old, n, present, nil, true)
		requireValid(t, p, n, present, nil, name)
		var weights []int
		for _, m := range p.Members {
			weights = append(weights, m.Weight)
		}
		if len(weights) > 0 && slices.Max(weights) > 0 {
			if want, ok := webster(weights, n); ok {
				for i, m := range p.Members {
					if loads(p)[m.Name] != want[i] {
						t.Fatalf("%s: %v, not %v", name(), loads(p), want)
					}
				}
			}
			if !weighted {
				l := slices.Collect(maps.Values(loads(p)))
				if slices.Max(l)-slices.Min(l) > 1 {
					t.Fatalf("%s: uneven %v", name(), l)
				}
			}
			if got, want := p.movesFrom(old), leastMoves(old, n, present); got != want {
				t.Fatalf("%s: %d moves instead of %d", name(), got, want)
			}
		}
		r.Shuffle(len(present), func(i, j int) { present[i], present[j] = present[j], present[i] })
		if again := next(old, n, present, nil, true); !equal(p, again) {
			t.Fatalf("%s: not deterministic", name())
		}
		if again := next(p, n, present, nil, true); !equal(p, again) {
			t.Fatalf("%s: not idempotent: %+v then %+v", name(), p, again)
		}
		if again := next(p, n, present, nil, false); !equal(p, again) {
			t.Fatalf("%s: an even plan changes without balance", name())
		}
	}
}

// Without balance only orphans move; the shards of a member that may return stay with it.
func TestNext_RandomOrphans(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range *cases / 10 {
		n := 1 + r.IntN(40)
		old := randomPlan(r, n, randomMembers(r, 8, true))
		present := randomMembers(r, 8, true)
		var kept []Member
		for _, m := range old.Members {
			if r.IntN(3) == 0 && !slices.ContainsFunc(present, func(p Member) bool { return p.Name == m.Name }) {
				kept = append(kept, m)
			}
		}
		p := next(old, n, present, kept, false)
		name := func() string {
			return fmt.Sprintf("seed %d: n=%d old=%+v present=%+v kept=%+v", seed, n, old, present, kept)
		}
		requireValid(t, p, n, present, kept, name)
		before := loads(old)
		for shard := range n {
			was, had := old.owner(shard)
			is, _ := p.owner(shard)
			stays := func(m Member) bool { return m.Name == was.Name && m.Weight > 0 }
			if had && slices.ContainsFunc(append(slices.Clone(present), kept...), stays) && is.Name != was.Name {
				t.Fatalf("%s: shard %d moves", name(), shard)
			}
		}
		for _, m := range kept {
			if m.Weight > 0 && loads(p)[m.Name] != before[m.Name] {
				t.Fatalf("%s: %s is absent and takes shards", name(), m.Name)
			}
		}
	}
}

// One more member never gives another member one more shard.
func TestNext_Join_OnlyTakes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range *cases / 10 {
		n := 1 + r.IntN(60)
		ms := randomMembers(r, 8, true)
		p := next(plan{}, n, ms, nil, true)
		joined := Member{Name: "new", Weight: 1 + r.IntN(5)}
		q := next(p, n, append(ms, joined), nil, true)
		moves := 0
		for shard := range n {
			was, _ := p.owner(shard)
			if is, _ := q.owner(shard); is.Name != was.Name {
				require.Equal(t, "new", is.Name, "seed %d", seed)
				moves++
			}
		}
		require.Equal(t, loads(q)["new"], moves, "seed %d", seed)
	}
}

func TestNext(t *testing.T) {
	p := next(plan{}, 1000, members("a", "b", "c"), nil, true)
	require.ElementsMatch(t, []int{334, 333, 333}, slices.Collect(maps.Values(loads(p))))

	t.Run("a join moves a member's part", func(t *testing.T) {
		q := next(p, 1000, members("a", "b", "c", "d"), nil, true)
		require.Equal(t, 250, q.movesFrom(p))
	})
	t.Run("a leave moves what the member had", func(t *testing.T) {
		q := next(p, 1000, members("a", "c"), nil, false)
		require.Equal(t, loads(p)["b"], q.movesFrom(p))
		require.Equal(t, map[string]int{"a": 500, "c": 500}, loads(q))
	})
	t.Run("a member that returns under its name moves nothing", func(t *testing.T) {
		again := members("a", "b", "c")
		again[1].ID = "another"
		q := next(p, 1000, again, nil, true)
		require.Zero(t, q.movesFrom(p))
		require.False(t, q.sameOwners(p), "its id must be in the plan")
	})
	t.Run("of two with one name the first counts", func(t *testing.T) {
		twice := members("a", "b", "c", "a")
		twice[3].ID = "later"
		require.True(t, next(p, 1000, twice, nil, true).sameOwners(p))
	})
	t.Run("weight 0 takes none", func(t *testing.T) {
		ms := members("a", "b", "c")
		ms[1].Weight = 0
		require.Equal(t, 0, loads(next(p, 1000, ms, nil, true))["b"])
		ms[0].Weight, ms[2].Weight = 0, 0
		q := next(plan{}, 10, ms, nil, true)
		_, ok := q.owner(0)
		require.False(t, ok)
	})
	t.Run("nobody is there", func(t *testing.T) {
		q := next(p, 1000, nil, nil, true)
		_, ok := q.owner(999)
		require.False(t, ok)
		require.True(t, q.sameOwners(next(plan{}, 1000, nil, nil, false)))
	})
}

func equal(a, b plan) bool {
	return slices.Equal(a.Shards, b.Shards) && slices.EqualFunc(a.Members, b.Members, Member.equal)
}

// requireValid fails unless each shard has an owner, if a present member can take one, and all
// members are in the plan.
func requireValid(t *testing.T, p plan, n int, present, kept []Member, name func() string) {
	t.Helper()
	if len(p.Shards) != n || len(p.Members) != len(present)+len(kept) {
		t.Fatalf("%s: %d shards, %d members", name(), len(p.Shards), len(p.Members))
	}
	takes := slices.ContainsFunc(present, func(m Member) bool { return m.Weight > 0 })
	for shard := range p.Shards {
		if _, ok := p.owner(shard); !ok && takes {
			t.Fatalf("%s: shard %d has no owner", name(), shard)
		}
	}
}

func BenchmarkNext_1000Members10000Shards(b *testing.B) {
	var ms []Member
	for i := range 1000 {
		ms = append(ms, Member{Name: fmt.Sprintf("host-%04d:1234-abcdef", i), Weight: 1})
	}
	for b.Loop() {
		next(plan{}, 10_000, ms, nil, true)
	}
}
