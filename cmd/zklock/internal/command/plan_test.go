package command

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

func TestPlan_EndsBeforeTheDeadline(t *testing.T) {
	for _, T := range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second, 2 * time.Minute} {
		for _, mode := range []zklock.LeaseMode{zklock.QuorumLease(time.Second), zklock.SingleServerLease()} {
			p, err := newPlan(mode, T, -1)
			require.NoError(t, err)
			room := mode.Margin(T)
			require.Positive(t, p.KillAfter)
			require.GreaterOrEqual(t, p.Margin, 50*time.Millisecond)
			require.LessOrEqual(t, p.KillAfter+p.Margin+p.Poll, room, "while all is well, SIGTERM is never due")
		}
	}
}

func TestPlan_KillAfterMustFit(t *testing.T) {
	mode := zklock.QuorumLease(4 * time.Second)
	def, err := newPlan(mode, 30*time.Second, -1)
	require.NoError(t, err)
	most := mode.Margin(30*time.Second) - def.Margin - def.Poll
	_, err = newPlan(mode, 30*time.Second, most-1)
	require.NoError(t, err)
	_, err = newPlan(mode, 30*time.Second, most)
	require.ErrorContains(t, err, "give less than "+round(most).String())
	zero, err := newPlan(mode, 30*time.Second, 0)
	require.NoError(t, err)
	require.Zero(t, zero.KillAfter)

	_, err = newPlan(mode, 7600*time.Millisecond, -1)
	require.ErrorContains(t, err, "too small")
	require.ErrorContains(t, err, "--lease single")
	_, err = newPlan(zklock.SingleServerLease(), 450*time.Millisecond, -1)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "--lease")
}

// The table in docs/command.md is what the code computes, rounded down.
func TestPlan_TableInTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/command.md")
	require.NoError(t, err)
	down := func(d, to time.Duration) string { return strconv.FormatFloat(d.Truncate(to).Seconds(), 'f', -1, 64) }
	mode := zklock.QuorumLease(4 * time.Second)
	for _, T := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
		p, err := newPlan(mode, T, -1)
		require.NoError(t, err)
		room := mode.Margin(T)
		row := fmt.Sprintf("| %ss | %ss | %ss | %ss |\n", down(T, time.Second), down(room, 100*time.Millisecond),
			down(room-p.Margin-p.Poll, 10*time.Millisecond), down(p.KillAfter, 10*time.Millisecond))
		if !strings.Contains(strings.ReplaceAll(string(doc), "\r\n", "\n"), row) {
			t.Errorf("docs/command.md: write this row\n%s", row)
		}
	}
}

func TestHostAndPid(t *testing.T) {
	for data, want := range map[string]struct {
		host string
		pid  int
	}{
		"db1:4711": {"db1", 4711}, "a:b:12": {"a:b", 12}, "": {}, ":12": {}, "db1": {}, "db1:": {}, "db1:x": {}, "192.168.0.1": {},
		"db1:-3": {}, "\x1b[2J:12": {}, "db\u202e1:12": {}, "db\u009b1:12": {}, "db\u00a01:12": {},
	} {
		host, pid := hostAndPid(data)
		require.Equal(t, want.host, host, data)
		require.Equal(t, want.pid, pid, data)
	}
}
