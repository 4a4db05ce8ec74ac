package shards

// This test is the specification of when the planner plans.

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestDecide(t *testing.T) {
	const n, quiet = 60, 10 * time.Second
	six := next(plan{}, n, members("a", "b", "c", "d", "e", "f"), nil, true)
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	type step struct {
		now, changed float64 // seconds
		present      string  // a letter for each member
		left         string
		owners       string  // of the plan that is due; "" if it is the old one
		wait         float64 // seconds; 0: no need to look again
	}
	for what, c := range map[string]struct {
		old   plan
		steps []step
	}{
		"a start waits a second, and 5 s at most": {plan{}, []step{
			{0, 0, "a", "", "", 1}, {0.9, 0.9, "ab", "", "", 1}, {1.8, 1.8, "abc", "", "", 1}, {2.8, 1.8, "abc", "", "abc", 9},
		}},
		"a start with joins all the time": {plan{}, []step{
			{0, 0, "a", "", "", 1}, {4.5, 4.5, "abc", "", "", 0.5}, {5, 4.9, "abc", "", "abc", 9.9},
		}},
		"a leave in order moves at once": {six, []step{{0, 0, "abcde", "f", "abcde", 10}}},
		"a crash waits a second":         {six, []step{{0, 0, "abcde", "", "", 1}, {1, 0, "abcde", "", "abcde", 9}}},
		"a crash, and the member is back": {six, []step{
			{0, 0, "abcde", "", "", 1}, {0.5, 0.5, "abcdef", "", "", 10}, {10.5, 0.5, "abcdef", "", "", 0},
		}},
		"a crash while others join": {six, []step{
			{0, 0, "abcde", "", "", 1}, {0.9, 0.9, "abcdeg", "", "", 1}, {4.9, 4.9, "abcdegh", "", "", 0.1}, {5, 4.9, "abcdegh", "", "abcdegh", 9.9},
		}},
		"a leave during the wait for a crash": {six, []step{{0, 0, "abcde", "", "", 1}, {0.5, 0.5, "abcd", "e", "abcdf", 1}, {1.5, 0.5, "abcd", "e", "abcd", 9}}},
		"most have disappeared":               {six, []step{{0, 0, "a", "", "", 5}, {2, 2, "ab", "", "", 3}, {4, 4, "abc", "", "", 1}, {5, 4, "abcd", "", "abcd", 9}}},
		"all are back under new names":        {six, []step{{0, 0, "g", "", "", 1}, {1, 0, "gh", "", "gh", 9}}},
		"a join waits until it is quiet":      {six, []step{{0, 0, "abcdefg", "", "", 10}, {10, 0, "abcdefg", "", "abcdefg", 0}}},
		"nobody is there":                     {six, []step{{0, 0, "", "abcdef", "", 0}}},
	} {
		t.Run(what, func(t *testing.T) {
			s, old := schedule{quiet: quiet}, c.old
			for _, step := range c.steps {
				var present []candidate
				for _, letter := range step.present { // a capital: it is not ready
					m := members(strings.ToLower(string(letter)))[0]
					present = append(present, candidate{Member: m, isReady: unicode.IsLower(letter)})
				}
				left := map[string]bool{}
				for _, letter := range step.left {
					left["id-"+string(letter)] = true
				}
				s.changed, s.steady = at(step.changed), at(step.changed)
				p, _, wait := s.decide(at(step.now), old, n, present, left)
				require.InDelta(t, step.wait, wait.Seconds(), 0.001, "%+v", step)
				if step.owners == "" {
					require.True(t, p.sameOwners(old), "%+v: %v", step, loads(p))
					continue
				}
				owners := ""
				for _, letter := range "abcdefgh" {
					if _, ok := p.owners()[string(letter)]; ok {
						owners += string(letter)
					}
				}
				require.Equal(t, step.owners, owners, "%+v", step)
				old = p
			}
		})
	}
}
