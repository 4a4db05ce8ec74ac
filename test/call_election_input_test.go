package zklock_test

// These tests give an election invalid names, paths and calls.

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// Bad input is rejected with the remedy, and leaves nothing behind.
func TestVirtual_Election_BadInput(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtual) {
		s := v.connect()
		for name, says := range map[string]string{"": "leave the option out", "\xff": "UTF-8", "__REVOKE__": "no candidate",
			strings.Repeat("x", 512<<10+1): "at most 512 KiB"} {
			_, err := zklock.NewElection(s, "/job", zklock.WithData([]byte(name)))
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, "new election /job")
			require.True(t, zklock.IsFinal(err))
		}
		_, err := zklock.NewElection(s, "job")
		require.ErrorContains(t, err, "new election job: path \"job\" is relative")
		_, err = zklock.NewElection(nil, "/job")
		require.ErrorContains(t, err, "Session")
		e := newElection(t, s, "/job", "a")
		lead := func(context.Context, *zklock.Hold) error { t.Error("it led"); return nil }
		require.ErrorContains(t, e.Campaign(within(t, soon), nil), "nil function")
		for _, err := range new(zklock.Election).Observe(within(t, soon)) {
			require.ErrorContains(t, err, "use the one that NewElection returns")
		}

		c := v.stand(e, untilItEnds)
		err = e.Campaign(within(t, soon), lead)
		require.ErrorContains(t, err, "create another with NewElection")
		require.True(t, zklock.IsFinal(err))
		require.EqualValues(t, 1, c.leads.Load())
		require.Len(t, v.srv.Children("/job"), 1)
	})
}

// An election on the path of another recipe reports that, and leaves nothing behind.
func TestVirtual_Election_PathOfAnotherRecipe(t *testing.T) {
	id := "_c_00000000-0000-0000-0000-000000000000-"
	for _, c := range []struct {
		child string
		latch bool
		says  string
	}{
		{id + "latch-0000000001", false, "give WithLatchNodes"},
		{id + "lock-0000000001", true, "leave that out"},
		{"x__lock__0000000001", false, "a path of its own"},
		{"x__lock__0000000001", true, "a path of its own"},
		{id + "__READ__0000000001", false, "a path of its own"},
		{id + "__WRIT__0000000001", true, "a path of its own"},
		{"leases", false, "a path of its own"},
		{id + "lease-0000000001", true, "a path of its own"},
		{id + "lock-0000000001", false, ""},
		{id + "latch-0000000001", true, ""},
		{"config", false, ""},
	} {
		t.Run(fmt.Sprint(c.child, " ", c.latch), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, v *virtual) {
				_, err := v.srv.Create("/job/"+c.child, nil, 0)
				require.NoError(t, err)
				var opts []zklock.ElectionOption
				if c.latch {
					opts = append(opts, zklock.WithLatchNodes())
				}
				e := newElection(t, v.connect(), "/job", "a", opts...)
				_, leaderErr := e.Leader(within(t, soon))
				if c.says == "" {
					require.NoError(t, leaderErr)
					return
				}
				var observed error
				for _, observed = range e.Observe(within(t, soon)) {
					break
				}
				campaign := e.Campaign(within(t, soon), func(context.Context, *zklock.Hold) error { t.Error("it led"); return nil })
				for _, err := range []error{campaign, leaderErr, observed} {
					require.ErrorContains(t, err, c.child)
					require.ErrorContains(t, err, c.says)
					require.True(t, zklock.IsFinal(err))
				}
				require.Len(t, v.srv.Children("/job"), 1)
			})
		})
	}
}
