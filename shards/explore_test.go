package shards

// The rule, in every interleaving of a few members and events: plans that are written late or
// never, members that read late, leave, crash, lose their sessions while a function still runs,
// have one name, or cannot follow the plan. The planning function is the real one.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func events(kinds ...int) (b [evKinds]int8) {
	for _, k := range kinds {
		b[k]++
	}
	return b
}

var (
	threeNames = [mProcs]string{"a", "b", "c"}
	twoNames   = [mProcs]string{"a", "b", "a"}
)

// F59: each world is explored to its end: one function for each shard, one planner, and in the end
// all shards are worked on, evenly.
func TestExploreShards(t *testing.T) {
	worlds := []struct {
		names  [mProcs]string
		start  int
		budget [evKinds]int8
	}{
		{threeNames, 1, events(evJoin, evLeave)},
		{threeNames, 2, events(evCrash, evDrop)},
		{threeNames, 2, events(evLose, evDrop)},
		{threeNames, 2, events(evLose, evLose)},
		{threeNames, 2, events(evFail, evJoin)},
		{twoNames, 2, events(evJoin, evLeave)},
		{twoNames, 2, events(evJoin, evCrash)},
		{threeNames, 2, events(evDie)},
	}
	if !testing.Short() {
		worlds = append(worlds, []struct {
			names  [mProcs]string
			start  int
			budget [evKinds]int8
		}{
			{threeNames, 1, events(evJoin, evJoin, evLeave)},
			{threeNames, 2, events(evJoin, evLose, evDrop)},
			{threeNames, 2, events(evLeave, evLose, evJoin)},
			{twoNames, 2, events(evJoin, evLose)},
			{threeNames, 1, events(evJoin, evDie)},
			{threeNames, 2, events(evDie, evDie)},
			{threeNames, 2, events(evDie, evLeave)},
			{threeNames, 1, events(evJoin, evDie, evLeave)},
		}...)
	}
	all := 0
	for _, w := range worlds {
		f := explores(w.names, w.start, w.budget, mistakes{})
		require.Empty(t, f.Broken, "%+v: %v", w, f)
		all += f.States
	}
	t.Logf("%d worlds, %d states", len(worlds), all)
}

// Each planted mistake is found.
func TestExploreShards_Mistakes(t *testing.T) {
	for what, c := range map[string]struct {
		start  int
		budget [evKinds]int8
		plant  mistakes
		says   string
	}{
		"the new function does not wait for that of the lost hold": {2, events(evLose), mistakes{doesNotWait: true}, "two functions"},
		"the shard is released before the function has returned":   {1, events(evJoin), mistakes{releasesEarly: true}, "two processes work"},
		"the plan is written without a check":                      {2, events(evLose), mistakes{noCheck: true}, "not the first member"},
		"a member that cannot follow the plan remains a member":    {2, events(evFail, evJoin), mistakes{staysDeaf: true}, "for ever"},
		"a member that was late remains suspect":                   {2, events(), mistakes{staysSuspect: true}, "for ever"},
	} {
		t.Run(what, func(t *testing.T) {
			require.Contains(t, explores(threeNames, c.start, c.budget, c.plant).Broken, c.says)
		})
	}
}
