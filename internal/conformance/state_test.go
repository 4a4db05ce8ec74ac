package conformance

// These tests compare the four-letter words about watches and ephemeral nodes after random
// operations.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

// sameWords compares the words about watches and nodes on both sides.
func (d *run) sameWords() {
	d.t.Helper()
	require.Equal(d.t, state(d.t, d.real.addrs[0], d.real.names), state(d.t, d.fake.addrs[0], d.fake.names), "after %d operations", d.n)
}

// TestWords_EmptySets: a connection whose watches have all fired still counts as watching, and a
// session without an ephemeral node as one with some, until they end.
func TestWords_EmptySets(t *testing.T) {
	ours := emptySets(t, zktest.Start(t, zktest.WithConfig("4lw.commands.whitelist=*")).Addr())
	require.Equal(t, `== wchs
1 connections watching 0 paths
Total watches:0
== wchc

session
== wchp

== dump
Sessions with Ephemerals (1):
session:
== mntr
zk_approximate_data_size	52
zk_ephemerals_count	0
zk_global_sessions	1
zk_watch_count	0
zk_znode_count	6
== dump
Sessions with Ephemerals (0):
== mntr
zk_approximate_data_size	52
zk_ephemerals_count	0
zk_global_sessions	0
zk_watch_count	0
zk_znode_count	6
stmk 27: "27", then "27"
`, ours)
	require.Equal(t, ours, emptySets(t, startReal(t)))
}

// emptySets creates such sets, and returns the server's words about them.
func emptySets(t *testing.T, addr string) string {
	t.Helper()
	c := connectTo(t, addr, wire.ConnectRequest{Timeout: 30_000})
	open := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	for _, r := range []request{
		{op: wire.OpMulti, body: wire.MultiRequest{Ops: []wire.MultiOp{ // never took effect
			{Op: wire.OpCreate, Path: "/e", Create: wire.CreateRequest{Path: "/e", ACL: open, Flags: wire.FlagEphemeral}},
			{Op: wire.OpDelete, Path: "/none", Version: -1}}}},
		{op: wire.OpExists, body: wire.PathWatchRequest{Path: "/日本", Watch: true}},
		{op: wire.OpCreate, body: wire.CreateRequest{Path: "/日本", Data: []byte("x"), ACL: open}},
		{op: wire.OpSetData, body: wire.SetDataRequest{Path: "/", Data: []byte("root"), Version: -1}},
		{op: wire.OpCreate, body: wire.CreateRequest{Path: "/e", ACL: open, Flags: wire.FlagEphemeral}},
		{op: wire.OpDelete, body: wire.PathVersionRequest{Path: "/e", Version: -1}},
	} {
		_, _, err := c.Call(r.op, r.body)
		require.NoError(t, err)
	}
	names := map[int64]string{c.Session.SessionID: "session"}
	said := state(t, addr, names)
	_, _, err := c.Call(wire.OpClose, nil)
	require.NoError(t, err)
	after := state(t, addr, names)
	said += after[strings.Index(after, "== dump"):]
	set, err := rawzk.Word(addr, "stmk\x00\x00\x00\x00\x00\x00\x00\x1b")
	require.NoError(t, err)
	get, err := rawzk.Word(addr, "gtmk")
	require.NoError(t, err)
	said += fmt.Sprintf("stmk 27: %q, then %q\n", set, get)
	return said
}

// state returns the server's words about its watches and nodes, with names for the sessions.
func state(t *testing.T, addr string, names map[int64]string) string {
	t.Helper()
	var all strings.Builder
	for _, word := range []string{"wchs", "wchc", "wchp", "dump", "mntr"} {
		said, err := rawzk.Word(addr, word)
		require.NoError(t, err)
		for id, name := range names {
			said = strings.ReplaceAll(said, fmt.Sprintf("%#x", id), name)
		}
		switch word {
		case "dump":
			_, said, _ = strings.Cut(said, "ephemeral nodes dump:\n")
			said, _, _ = strings.Cut(said, "Connections dump:\n")
		case "mntr":
			lines := slices.DeleteFunc(strings.SplitAfter(said, "\n"), func(line string) bool {
				return !slices.Contains(counted, strings.Split(line, "\t")[0])
			})
			said = strings.Join(lines, "")
		}
		fmt.Fprintf(&all, "== %s\n%s", word, strings.Join(inOrder(said), ""))
	}
	return all.String()
}

// counted are the gauges of mntr that follow from the operations alone.
var counted = []string{"zk_znode_count", "zk_watch_count", "zk_ephemerals_count", "zk_approximate_data_size", "zk_global_sessions"}

// inOrder returns the lines of a word, each with the indented ones below it, in one order for all
// servers.
func inOrder(said string) []string {
	var groups [][]string
	for line := range strings.Lines(said) {
		if n := len(groups); n > 0 && strings.HasPrefix(line, "\t") {
			groups[n-1] = append(groups[n-1], line)
		} else {
			groups = append(groups, []string{line})
		}
	}
	var all []string
	for _, g := range groups {
		slices.Sort(g[1:])
		all = append(all, strings.Join(g, ""))
	}
	slices.Sort(all)
	return all
}
