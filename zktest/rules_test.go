package zktest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

// rulesWorld returns rules for a tree with nodes of every kind, open and closed.
//
//	/p       open, version 3, aversion 1, with a child
//	/p/c     open
//	/closed  no permissions; with a child
//	/ro      read permission for every client
//	/e       ephemeral
func rulesWorld(t *testing.T) rules {
	t.Helper()
	r := rules{tree: newTree(), ttlEnabled: true, pending: make(map[string]int32)}
	acl := func(perms int32) []wire.ACL {
		return []wire.ACL{{Perms: perms, ID: wire.ID{Scheme: "digest", ID: "nobody:x"}}, {Perms: perms, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	}
	for i, ch := range []change{
		{path: "/p", acl: worldAnyone}, {path: "/p/c", acl: worldAnyone}, {path: "/closed", acl: acl(0)}, {path: "/closed/c", acl: worldAnyone},
		{path: "/ro", acl: acl(wire.PermRead)}, {path: "/e", acl: worldAnyone, node: ephemeral, owner: 7},
	} {
		parent, _ := splitPath(ch.path)
		ch.creates = r.tree.nodes[parent].creates + 1
		r.tree.apply(ch, int64(i+1), 1000)
	}
	r.tree.nodes["/p"].version, r.tree.nodes["/p"].aversion = 3, 1
	return r
}

func TestRules_Create_FirstFailureIsTheAnswer(t *testing.T) {
	nobody := []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "nonsense"}}}
	for i, c := range []struct {
		op   wire.Op
		req  wire.CreateRequest
		want error
	}{
		{wire.OpCreate, wire.CreateRequest{Path: "bad", ACL: nobody, Flags: 7}, wire.BadArguments}, // flags
		{wire.OpCreate, wire.CreateRequest{Path: "bad", ACL: nobody, Flags: -1}, wire.BadArguments},
		{wire.OpCreate, wire.CreateRequest{Path: "bad", ACL: nobody, Flags: 5}, wire.BadArguments}, // TTL without its request
		{wire.OpCreateTTL, wire.CreateRequest{Path: "/p/x", ACL: nobody, Flags: 5, TTL: 0}, wire.BadArguments},
		{wire.OpCreateTTL, wire.CreateRequest{Path: "/p/x", ACL: nobody, Flags: 5, TTL: maxTTL + 1}, wire.BadArguments},
		{wire.OpCreateTTL, wire.CreateRequest{Path: "/p/x", ACL: nobody, Flags: 0, TTL: 1}, wire.BadArguments},
		{wire.OpCreate, wire.CreateRequest{Path: "bad", ACL: nobody}, wire.BadArguments}, // path
		{wire.OpCreate, wire.CreateRequest{Path: "/missing/x\x00", ACL: nobody}, wire.BadArguments},
		{wire.OpCreate, wire.CreateRequest{Path: "/missing/x", ACL: nobody}, wire.InvalidACL}, // ACL
		{wire.OpCreate, wire.CreateRequest{Path: "/missing/x"}, wire.InvalidACL},
		{wire.OpCreate, wire.CreateRequest{Path: "/missing/.", ACL: worldAnyone}, wire.NoNode},  // parent
		{wire.OpCreate, wire.CreateRequest{Path: "/closed/..", ACL: worldAnyone}, wire.NoAuth},  // permission
		{wire.OpCreate, wire.CreateRequest{Path: "/p/..", ACL: worldAnyone}, wire.BadArguments}, // whole path
		{wire.OpCreate, wire.CreateRequest{Path: "/p/c/", ACL: worldAnyone}, wire.BadArguments}, // one that ends in a slash
		{wire.OpCreate, wire.CreateRequest{Path: "/p/c", ACL: worldAnyone}, wire.NodeExists},    // existing
		{wire.OpCreate, wire.CreateRequest{Path: "/e/x", ACL: worldAnyone}, wire.NoChildrenForEphemerals},
		{wire.OpCreate, wire.CreateRequest{Path: "/p/x", ACL: worldAnyone}, nil},
		{wire.OpCreateTTL, wire.CreateRequest{Path: "/p/x", ACL: worldAnyone, Flags: 5, TTL: maxTTL}, nil},
		{wire.OpCreate, wire.CreateRequest{Path: "/", ACL: worldAnyone}, wire.NodeExists},
	} {
		_, err := rulesWorld(t).create(c.op, c.req, 1, nil)
		require.Equal(t, c.want, err, "case %d: %v %+v", i, c.op, c.req)
	}
	r := rulesWorld(t)
	r.ttlEnabled = false
	_, err := r.create(wire.OpCreateTTL, wire.CreateRequest{Path: "bad", Flags: 5, TTL: -9}, 1, nil)
	require.Equal(t, wire.Unimplemented, err)
}

func TestRules_Create_WhatIsMade(t *testing.T) {
	for _, c := range []struct {
		op    wire.Op
		flags int32
		want  nodeKind
	}{
		{wire.OpCreate, wire.FlagPersistent, persistent}, {wire.OpCreate2, wire.FlagEphemeral, ephemeral},
		{wire.OpCreate, wire.FlagContainer, persistent}, // the type of the request decides, not the flag
		{wire.OpCreateContainer, wire.FlagContainer, container}, {wire.OpCreateContainer, wire.FlagPersistent, container},
		{wire.OpCreateContainer, wire.FlagEphemeral, container},
	} {
		ch, err := rulesWorld(t).create(c.op, wire.CreateRequest{Path: "/p/x", ACL: worldAnyone, Flags: c.flags}, 9, nil)
		require.NoError(t, err)
		require.Equal(t, c.want, ch.node, "%v with flags %d", c.op, c.flags)
		require.Equal(t, c.want == ephemeral, ch.owner == 9)
	}
}

func TestRules_DeleteSetCheck_FirstFailureIsTheAnswer(t *testing.T) {
	r := rulesWorld(t)
	del := func(path string, version int32) error {
		_, err := r.delete(wire.PathVersionRequest{Path: path, Version: version}, nil)
		return err
	}
	set := func(path string, version int32) error {
		_, err := r.setData(wire.SetDataRequest{Path: path, Version: version}, nil)
		return err
	}
	acl := func(path string, acl []wire.ACL, version int32) error {
		_, err := r.setACL(wire.SetACLRequest{Path: path, ACL: acl, Version: version}, nil)
		return err
	}
	check := func(path string, version int32) error {
		_, err := r.check(wire.PathVersionRequest{Path: path, Version: version}, nil)
		return err
	}
	for i, c := range []struct{ want, got error }{
		{wire.BadArguments, del("bad", 9)}, {wire.BadArguments, del("/", 9)}, {wire.BadArguments, del("/zookeeper", 9)},
		{wire.BadArguments, del("/zookeeper/quota", 9)}, {wire.BadArguments, del("/zookeeper/config", 9)},
		{wire.NoNode, del("/missing/x", 9)}, {wire.NoAuth, del("/closed/missing", 9)}, {wire.NoNode, del("/p/missing", 9)},
		{wire.BadVersion, del("/p", 9)}, {wire.NotEmpty, del("/p", 3)}, {nil, del("/p/c", 0)}, {nil, del("/ro", -1)},

		{wire.BadArguments, set("/missing/", 9)}, {wire.NoNode, set("/missing", 9)}, {wire.NoAuth, set("/ro", 9)},
		{wire.BadVersion, set("/p", 9)}, {nil, set("/p", 3)}, {nil, set("/p", -1)}, {nil, set("/", -1)},

		{wire.BadArguments, acl("bad", nil, 9)}, {wire.InvalidACL, acl("/missing", nil, 9)}, {wire.NoNode, acl("/missing", worldAnyone, 9)},
		{wire.NoAuth, acl("/ro", worldAnyone, 9)}, {wire.BadVersion, acl("/p", worldAnyone, 9)}, {nil, acl("/p", worldAnyone, 1)},

		{wire.BadArguments, check("bad", 9)}, {wire.NoNode, check("/missing", 9)}, {wire.NoAuth, check("/closed", 9)},
		{wire.BadVersion, check("/ro", 9)}, {nil, check("/ro", 0)}, {nil, check("/p", -1)},
	} {
		require.Equal(t, c.want, c.got, "case %d", i)
	}
}

func TestValidPath(t *testing.T) {
	for _, p := range []string{"/", "/a", "/a/b", "/a.b", "/..a", "/...", "/é", "/日本", "/a b"} {
		require.True(t, validPath(p), "%q", p)
	}
	for _, p := range []string{"", "a", "/a/", "//", "//a", "/a//b", "/.", "/..", "/a/./b", "/a/..", "/a\x00", "/a\x1f", "/a\u007f", "/a\u0085",
		"/\uE000", "/\uF8FF", "/\uFFFD", "/\xff", "/\U0001F512"} {
		require.False(t, validPath(p), "%q", p)
	}
}

func TestACL_Fixed(t *testing.T) {
	u := wire.ID{Scheme: "digest", ID: "u:h"}
	one := func(scheme, id string) []wire.ACL {
		return []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: scheme, ID: id}}}
	}
	for i, c := range []struct {
		acl  []wire.ACL
		ids  []wire.ID
		want error
	}{
		{nil, nil, wire.InvalidACL}, {one("world", "somebody"), nil, wire.InvalidACL}, {one("world", "anyone"), nil, nil},
		{one("auth", ""), []wire.ID{{Scheme: "ip", ID: "1.2.3.4"}}, wire.InvalidACL}, {one("auth", ""), []wire.ID{u}, nil},
		{one("digest", "u"), nil, wire.InvalidACL}, {one("digest", "u:h"), nil, nil}, {one("digest", "u:h:x"), nil, wire.InvalidACL},
		{one("digest", "u:h::"), nil, nil}, {one("digest", "u:"), nil, wire.InvalidACL},
		{one("ip", "1.2.3.4"), nil, nil}, {one("ip", "1.2.3.4/0"), nil, nil}, {one("ip", "1.2.3.4/33"), nil, wire.InvalidACL},
		{one("ip", "1.2.3"), nil, wire.InvalidACL}, {one("ip", "1.2.3.256"), nil, wire.InvalidACL}, {one("ip", "::1"), nil, wire.InvalidACL},
		{one("super", ""), nil, wire.InvalidACL},
	} {
		_, err := rules{}.fixACL(c.acl, c.ids)
		require.Equal(t, c.want, err, "case %d: %v", i, c.acl)
	}
	fixed, err := rules{}.fixACL(append(one("auth", ""), one("auth", "")...), []wire.ID{u, {Scheme: "ip", ID: "1.2.3.4"}})
	require.NoError(t, err)
	require.Equal(t, []wire.ACL{{Perms: 31, ID: u}}, fixed, "what the connection has proved, once")
	require.Equal(t, "u:x", hideDigests(one("digest", "u:h"))[0].ID.ID)
	require.Equal(t, []wire.ID{{Scheme: "ip", ID: "1.2.3.4"}, {Scheme: "digest", ID: "u"}, {Scheme: "super"}},
		whoAmI([]wire.ID{{Scheme: "ip", ID: "1.2.3.4"}, u, {Scheme: "super"}}))
}

func TestACL_Allowed(t *testing.T) {
	acl := []wire.ACL{
		{Perms: wire.PermRead, ID: wire.ID{Scheme: "ip", ID: "10.1.0.0/16"}},
		{Perms: wire.PermWrite, ID: wire.ID{Scheme: "digest", ID: "u:h"}},
	}
	from := func(ip string) []wire.ID { return []wire.ID{{Scheme: "ip", ID: ip}} }
	require.True(t, allowed(acl, wire.PermRead, from("10.1.2.3")))
	require.False(t, allowed(acl, wire.PermRead, from("10.2.2.3")))
	require.False(t, allowed(acl, wire.PermWrite, from("10.1.2.3")))
	require.True(t, allowed(acl, wire.PermRead|wire.PermWrite, []wire.ID{{Scheme: "digest", ID: "u:h"}}), "one of them will do")
	require.True(t, allowed(acl, wire.PermAdmin, god))
	require.True(t, allowed(nil, wire.PermAdmin, nil))
}

func TestWatchTable(t *testing.T) {
	w := newWatchTable(config{version: "3.8.0"})
	a, b := &conn{id: 1}, &conn{id: 2}
	w.add("/p", b, oneShot)
	w.add("/p", a, persisting)
	w.add("/p", a, persisting)
	require.Equal(t, 2, w.size())
	require.Equal(t, []*conn{a, b}, w.fire("/p", NodeChildrenChanged), "in the order of connecting")
	require.Equal(t, []*conn{a}, w.fire("/p", NodeChildrenChanged))

	w.add("/", b, recursing)
	require.Equal(t, []*conn{a, b}, w.fire("/p", NodeDataChanged))
	require.Equal(t, []*conn{b}, w.fire("/p/q/r", NodeCreated))
	require.Nil(t, w.fire("/p/q", NodeChildrenChanged))
	require.Equal(t, []*conn{b}, w.fire("/", NodeDataChanged))

	w.add("/p", a, oneShot) // replaces the persistent one
	require.Equal(t, []*conn{a, b}, w.fire("/p", NodeDeleted))
	require.Equal(t, []*conn{b}, w.fire("/p", NodeDeleted))
	require.True(t, w.remove("/", b, anyMode))
	require.False(t, w.remove("/", b, anyMode))
	w.add("/x", b, recursing)
	w.removeConn(b)
	require.Zero(t, w.size())
	require.Zero(t, w.recursive)
	gone := &conn{id: 3, gone: true}
	w.add("/x", gone, oneShot)
	require.Zero(t, w.size(), "a connection that was cut leaves nothing behind")
}

// ZOOKEEPER-4466: from 3.9 on, a path and connection can have a watch of each mode.
func TestWatchTable_ManyModes(t *testing.T) {
	w := newWatchTable(config{version: "3.9.3"})
	a := &conn{id: 1}
	w.add("/p", a, persisting)
	w.add("/p", a, oneShot)
	w.add("/p", a, recursing)
	w.add("/p", a, recursing)
	require.Equal(t, 1, w.size())
	require.Equal(t, 1, w.recursive)
	require.Equal(t, []*conn{a}, w.fire("/p", NodeDataChanged), "one event for all modes")
	require.Equal(t, []*conn{a}, w.fire("/p/q", NodeCreated))
	require.False(t, w.remove("/p", a, oneShot), "it has fired")
	require.True(t, w.remove("/p", a, recursing))
	require.Zero(t, w.recursive)
	require.Nil(t, w.fire("/p/q", NodeCreated))
	require.Equal(t, []*conn{a}, w.fire("/p", NodeDataChanged), "the persistent one stays")
	require.True(t, w.remove("/p", a, anyMode))
	require.Zero(t, w.size())
}

func TestTree_UndoLeavesNothing(t *testing.T) {
	r := rulesWorld(t)
	before := r.tree.clone()
	var undo []func()
	for _, ch := range []change{
		{kind: changeCreate, path: "/p/x", acl: worldAnyone, node: ephemeral, owner: 8, creates: 2},
		{kind: changeCreate, path: "/p/y", acl: worldAnyone, node: container, creates: 3},
		{kind: changeData, path: "/p/x", data: []byte("d"), version: 1},
		{kind: changeACL, path: "/p", acl: []wire.ACL{{Perms: 1, ID: god[0]}}, version: 2},
		{kind: changeDelete, path: "/p/x"}, {kind: changeDelete, path: "/e"}, {kind: changeNothing, path: "/p"},
	} {
		undo = append(undo, r.tree.apply(ch, 99, 2000))
	}
	require.NotEqual(t, before.nodes, r.tree.nodes)
	for i := len(undo) - 1; i >= 0; i-- {
		undo[i]()
	}
	require.Equal(t, before, r.tree)
}

func TestHistory_IsBounded(t *testing.T) {
	c := newCluster(config{})
	for i := range int64(historyLimit + 5) {
		c.record(&txn{zxid: i, opens: 1})
	}
	changes := c.history.changes
	require.Len(t, changes, historyLimit)
	require.EqualValues(t, 5, changes[0].Zxid)
	require.Less(t, cap(changes), 2*historyLimit)

	h := new(history)
	for i := range int64(1000) {
		h.add(Applied{Zxid: i, Data: make([]byte, 500_000)})
	}
	require.Len(t, h.changes, historyBytes/500_000)
	require.EqualValues(t, 999, h.changes[len(h.changes)-1].Zxid)
	h.add(Applied{Zxid: 1000, Data: make([]byte, historyBytes+1)})
	require.Len(t, h.changes, 1, "the last change is kept, whatever its size")
}
