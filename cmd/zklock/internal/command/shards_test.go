//go:build linux || darwin

package command

// These tests attack zklock shards: a shard, a member or a waiter that it leaves out or counts for
// another, and a path that is no group.

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/shards"
	"github.com/zklock/zklock/zktest"
)

func shardsAt(srv *zktest.Server, args ...string) (code int, out, said string) {
	var stdout, stderr bytes.Buffer
	code = execute(append([]string{"shards", "--servers", srv.Addr()}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// groupNodes writes the nodes of a group with six shards, in which each member has another state.
func groupNodes(t *testing.T, srv *zktest.Server, s *zklock.Session) {
	t.Helper()
	create := func(path, data string, flags int32) {
		if flags == 0 {
			_, err := srv.Create(path, []byte(data), 0)
			require.NoError(t, err)
			return
		}
		_, err := s.Conn().Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	create("/g", `{"format":1,"shards":6}`, 0)
	create("/g/members", "", 0)
	create("/g/shards", "", 0)
	create("/g/plan", `{"format":1,"members":[{"name":"a","weight":2,"id":"1"},{"name":"b","weight":1,"id":"2"},{"name":"gone","weight":1,"id":"3"}],"shards":[0,0,0,1,2,-1]}`, 0)
	const node = zk.FlagEphemeral | zk.FlagSequence
	for _, m := range []string{`"a","weight":2,"id":"1","data":"MTAuMC4wLjc6ODA="`, `"b","weight":1,"id":"2"`, `"a","weight":1,"id":"4"`, `"new","weight":1,"id":"5"`} {
		create("/g/members/_c_x-lock-", `{"name":`+m+`,"shards":6}`, node)
	}
	for shard, queue := range [][]string{{"a"}, {"b", "a"}, {"a"}, {"b"}, {}, {"operator", "b"}} {
		root := "/g/shards/000" + string(rune('0'+shard))
		create(root, "", 0)
		for _, name := range queue {
			create(root+"/_c_x-lock-", name, node)
		}
	}
}

func TestShards_EachState(t *testing.T) {
	srv := zktest.Start(t)
	groupNodes(t, srv, sessionAt(t, srv.Addr()))
	code, out, said := shardsAt(srv, "/g")
	require.Equal(t, 0, code, said)
	require.Empty(t, said)
	require.Regexp(t, `^SHARDS  PLAN  MEMBERS  HELD  UNOWNED  WAITERS  IMBALANCE
6       0     4        5     1        2        1.5

PLANNED  HOLDS  WAITS  WEIGHT  STATE    MEMBER    DATA
3        2      1      2       plans    a         10.0.0.7:80
1        2      1      1       follows  b         -
0        0      0      1       waits    a         -
0        0      0      1       joined   new       -
1        0      0      -       absent   gone      -
0        1      0      -       absent   operator  -

SHARD  TOKEN  PLANNED  HOLDER    WAITS
1      \d+ +a        b         a
4      -      gone     -         -
5      \d+ +-        operator  b
$`, out)
	code, out, _ = shardsAt(srv, "--all", "/g")
	require.Equal(t, 0, code)
	require.Equal(t, 3+8+7, strings.Count(out, "\n"))

	var g groupEntry
	code, out, _ = shardsAt(srv, "--json", "/g")
	require.Equal(t, 0, code)
	require.NoError(t, json.Unmarshal([]byte(out), &g))
	require.Equal(t, []int{4}, g.Unowned)
	require.Equal(t, []any{6, 5, 2, 1.5}, []any{g.Shards, g.Held, g.Waiters, g.Imbalance})
	require.Len(t, g.Members, 6)
	require.Len(t, g.Queues, 6)
	require.Equal(t, []any{"a", "b", g.Queues[1].Queue[0].Token, "a"}, []any{g.Queues[1].Planned, g.Queues[1].Holder, g.Queues[1].Token, g.Queues[1].Queue[1].Data})

	for data, says := range map[string]string{
		"garbage":                                 "not a plan that this program can follow",
		`{"format":1,"members":[],"shards":[-1]}`: "it has 1 shards, and the group has 6",
	} {
		require.NoError(t, srv.SetData("/g/plan", []byte(data)))
		code, out, said = shardsAt(srv, "/g")
		require.Equal(t, exitUsage, code)
		require.Contains(t, said, says)
		require.Contains(t, said, "set the data of PATH/plan to that of an earlier plan, or to none for a new plan")
		require.Contains(t, out, "6       -     4        5     1        2        0\n", "the rest is printed")
		require.Regexp(t, `\n1      \d+ +-        b         a\n`, out, "all tables")
	}
}

// What a member writes is what the command reads.
func TestShards_OfAMember(t *testing.T) {
	srv := zktest.Start(t)
	g, err := shards.New(sessionAt(t, srv.Addr()), "/jobs/workers", 12, shards.WithMember("w1", []byte("here")), shards.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- g.Run(ctx, func(ctx context.Context, _ int, _ *zklock.Hold) error { <-ctx.Done(); return nil })
	}()
	require.Eventually(t, func() bool { return g.Stats().Working == 12 }, patience, 10*time.Millisecond)
	code, out, said := shardsAt(srv, "/jobs/workers")
	require.Equal(t, 0, code, said)
	require.Equal(t, `SHARDS  PLAN  MEMBERS  HELD  UNOWNED  WAITERS  IMBALANCE
12      1     1        12    0        0        0

PLANNED  HOLDS  WAITS  WEIGHT  STATE  MEMBER  DATA
12       12     0      1       plans  w1      here
`, out)
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	code, out, said = shardsAt(srv, "/jobs/workers")
	require.Equal(t, 0, code, said)
	require.Contains(t, out, "12      1     0        0     12       0        0\n")
	require.Contains(t, out, "absent  w1", "the plan names it still")
}

func TestShards_NoGroup(t *testing.T) {
	srv := zktest.Start(t)
	_, err := srv.Create("/lock", []byte("theirs"), 0)
	require.NoError(t, err)
	for path, says := range map[string]string{
		"/none": "there is no group at /none", "/lock": "does not belong to a group", "none": "must begin with a slash", "/": "/",
	} {
		code, out, said := shardsAt(srv, path)
		require.Equal(t, exitUsage, code)
		require.Empty(t, out)
		require.Contains(t, said, says)
	}
	code, _, said := shardsAt(srv)
	require.Equal(t, exitUsage, code)
	require.Contains(t, said, "give the PATH of a group")
}
