package zktest

// The nodes, and the application of a change to them. Nothing here checks a rule or uses a
// connection or a clock.

import (
	"maps"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

// nodeKind determines which event, besides a client's delete, deletes a node.
type nodeKind int

const (
	persistent nodeKind = iota
	ephemeral           // its session's end
	container           // the reaper, once it has had children and has none
	ttl                 // the reaper, when it has no children and is old
)

type node struct {
	data         []byte // nil is null, which is not empty
	acl          []wire.ACL
	kind         nodeKind
	owner        int64               // session of an ephemeral node
	ttl          int64               // milliseconds
	children     map[string]struct{} // changed by addChild and removeChild
	listed       []string            // the children as a client last saw them; nil once they have changed
	czxid, mzxid int64
	pzxid        int64
	ctime, mtime int64
	version      int32
	aversion     int32
	creates      int32 // children ever created; the server's internal cversion
}

// stat returns the node's stat as clients see it. Cversion also counts the deletes: each create,
// except the creates of the present children, has had one.
func (n *node) stat() wire.Stat {
	children := int32(len(n.children))
	return wire.Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: n.pzxid, Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Aversion: n.aversion, Cversion: n.creates*2 - children,
		EphemeralOwner: n.owner, DataLength: int32(len(n.data)), NumChildren: children,
	}
}

func (n *node) addChild(name string)    { n.children[name], n.listed = struct{}{}, nil }
func (n *node) removeChild(name string) { delete(n.children, name); n.listed = nil }

type changeKind int

const (
	changeCreate changeKind = iota
	changeDelete
	changeData
	changeACL
	changeNothing // a check that held
	changeCreates // of the node itself, by a test
)

// change is one node's part of a transaction: the effect, after all rules have been checked.
type change struct {
	kind    changeKind
	path    string
	data    []byte
	acl     []wire.ACL
	node    nodeKind
	owner   int64
	ttl     int64
	version int32 // the node's new version, or aversion
	creates int32 // the new count of creates: the parent's, or the node's in changeCreates

	// The ACLs of the node and of its parent: only clients that may read the node get its events.
	readers, parentReaders []wire.ACL
}

// tree holds all nodes by path. The root is stored under "/" and under "", as in ZooKeeper, which
// therefore serves reads of the empty path.
type tree struct {
	nodes map[string]*node
	// Has an entry for each session that has had one: the dump counts empty entries, too.
	ephemerals map[int64]map[string]struct{}
	reapable   map[string]struct{} // containers and TTL nodes
}

var worldAnyone = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}

func newTree() *tree {
	open := func(children ...string) *node {
		n := &node{data: []byte{}, acl: worldAnyone, children: make(map[string]struct{})}
		for _, c := range children {
			n.children[c] = struct{}{}
		}
		return n
	}
	root := open("zookeeper")
	config := open()
	config.acl = []wire.ACL{{Perms: wire.PermRead, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	config.aversion = -1
	return &tree{
		nodes: map[string]*node{
			"":           root,
			"/":          root,
			"/zookeeper": open("config", "quota"),
			configNode:   config,
			quotaRoot:    open(),
		},
		ephemerals: make(map[int64]map[string]struct{}),
		reapable:   make(map[string]struct{}),
	}
}

// configNode holds the members of an ensemble.
const configNode = "/zookeeper/config"

// configure does the same as ZKDatabase.initConfigInZKDatabase, which is no transaction: the zxid
// is the version of the configuration, and the version of the node is -1.
func (n *node) configure(members string, millis int64) {
	n.data, n.version, n.mzxid, n.mtime = []byte(members), -1, 0, millis
}

// permitted returns a node for which the ids have one of the permissions.
func (t *tree) permitted(path string, perm int32, ids []wire.ID) (*node, error) {
	n := t.nodes[path]
	if n == nil {
		return nil, wire.NoNode
	}
	if !allowed(n.acl, perm, ids) {
		return nil, wire.NoAuth
	}
	return n, nil
}

// splitPath splits a path at its last slash; the parent of "/a" is "".
func splitPath(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i], path[i+1:]
}

// shownParent returns the parent's path as it appears in events.
func shownParent(path string) string {
	parent, _ := splitPath(path)
	if parent == "" {
		return "/"
	}
	return parent
}

// apply makes a change that has been checked, and returns a function that undoes it.
func (t *tree) apply(ch change, zxid, now int64) (undo func()) {
	switch ch.kind {
	case changeCreate:
		return t.create(ch, zxid, now)
	case changeDelete:
		return t.delete(ch.path, zxid)
	case changeData:
		n := t.nodes[ch.path]
		before := *n
		n.data, n.version, n.mzxid, n.mtime = ch.data, ch.version, zxid, now
		unaccount := t.account(ch.path, 0, int64(len(ch.data)-len(before.data)))
		return func() {
			unaccount()
			n.data, n.version, n.mzxid, n.mtime = before.data, before.version, before.mzxid, before.mtime
		}
	case changeACL:
		n := t.nodes[ch.path]
		before := *n
		n.acl, n.aversion = ch.acl, ch.version
		return func() { n.acl, n.aversion = before.acl, before.aversion }
	case changeCreates:
		n := t.nodes[ch.path]
		before := n.creates
		n.creates = ch.creates
		return func() { n.creates = before }
	}
	return func() {}
}

func (t *tree) create(ch change, zxid, now int64) (undo func()) {
	parentPath, name := splitPath(ch.path)
	parent := t.nodes[parentPath]
	creates, pzxid := parent.creates, parent.pzxid
	// The counter only grows. When it wraps, the new value is lower, so the node keeps the old one,
	// and with it 2147483647 as the suffix of every later child.
	if ch.creates > parent.creates {
		parent.creates, parent.pzxid = ch.creates, zxid
	}
	parent.addChild(name)
	first := ch.node == ephemeral && t.ephemerals[ch.owner] == nil
	t.insert(ch.path, &node{
		data: ch.data, acl: ch.acl, kind: ch.node, owner: ch.owner, ttl: ch.ttl,
		children: make(map[string]struct{}),
		czxid:    zxid, mzxid: zxid, pzxid: zxid, ctime: now, mtime: now,
	})
	t.startStats(ch.path)
	unaccount := t.account(ch.path, 1, int64(len(ch.data)))
	return func() {
		unaccount()
		t.remove(ch.path)
		if first {
			delete(t.ephemerals, ch.owner)
		}
		parent.removeChild(name)
		parent.creates, parent.pzxid = creates, pzxid
	}
}

func (t *tree) delete(path string, zxid int64) (undo func()) {
	parentPath, name := splitPath(path)
	parent, n := t.nodes[parentPath], t.nodes[path]
	pzxid := parent.pzxid
	parent.removeChild(name)
	parent.pzxid = max(pzxid, zxid)
	t.remove(path)
	unaccount := t.account(path, -1, -int64(len(n.data)))
	return func() {
		unaccount()
		parent.addChild(name)
		parent.pzxid = pzxid
		t.insert(path, n)
	}
}

func (t *tree) insert(path string, n *node) {
	t.nodes[path] = n
	switch n.kind {
	case ephemeral:
		if t.ephemerals[n.owner] == nil {
			t.ephemerals[n.owner] = make(map[string]struct{})
		}
		t.ephemerals[n.owner][path] = struct{}{}
	case container, ttl:
		t.reapable[path] = struct{}{}
	}
}

func (t *tree) remove(path string) {
	n := t.nodes[path]
	delete(t.nodes, path)
	delete(t.reapable, path)
	if n.kind == ephemeral {
		delete(t.ephemerals[n.owner], path)
	}
}

// clone returns a copy that shares no node with t. It shares data and ACLs, which are never changed
// in place.
func (t *tree) clone() *tree {
	c := &tree{
		nodes:      make(map[string]*node, len(t.nodes)),
		ephemerals: make(map[int64]map[string]struct{}),
		reapable:   make(map[string]struct{}),
	}
	for path, n := range t.nodes {
		if path == "" {
			continue
		}
		dup := *n
		dup.listed = nil // another server has a different order
		dup.children = maps.Clone(n.children)
		c.insert(path, &dup)
	}
	c.nodes[""] = c.nodes["/"]
	return c
}
