package conformance

// Random operations, with good and bad arguments of every kind.

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

// request is one operation, the same for both sides.
type request struct {
	op        wire.Op
	body      wire.Record
	closes    bool // the server closes the connection after its reply
	unordered bool // its events have no defined order
}

func (r request) String() string { return fmt.Sprintf("%v %+v", r.op, r.body) }

type generator struct {
	*rand.Rand
	is39   bool // has types of watches that 3.8 does not support
	zxid   func() int64
	recent *[]string // paths that creates have returned
	last   *written  // the last successful write
}

// written is the effect of an earlier write, for requests that compare zxids with it.
type written struct {
	path string
	zxid int64
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// path returns mostly a path of a small tree, so that operations meet, and sometimes another one.
func (g generator) path() string {
	if g.IntN(20) == 0 {
		return pick(g, "", "/", "a", "/a/", "//", "//a", "/a//b", "/a/./b", "/a/..", "/.", "/..a", "/a.", "/a\x00b", "/é", "/日本",
			"/\u0001", "/\u0085", "/\U0001F512", "/\uFFFD", "/\uE000", "/zookeeper", "/zookeeper/config", "/zookeeper/quota",
			"/zookeeper/x", "/a b", "/missing/child", "/a/b/c/d/e")
	}
	if g.recent != nil && len(*g.recent) > 0 && g.IntN(3) == 0 {
		return (*g.recent)[len(*g.recent)-1-g.IntN(min(20, len(*g.recent)))]
	}
	path := "/" + pick(g, "a", "b", "c")
	for g.IntN(3) == 0 {
		path += "/" + pick(g, "x", "y")
	}
	if g.IntN(12) == 0 {
		path += fmt.Sprintf("/n-%010d", g.IntN(12))
	}
	return path
}

// echoed returns a path that appears in a reply or event although no node can have it. Java encodes
// characters beyond the basic plane differently.
func (g generator) echoed() string { return strings.ReplaceAll(g.path(), "\U0001F512", "lock") }

func (g generator) data() []byte { return pick(g, nil, []byte{}, []byte("d"), []byte("some data")) }

func (g generator) version() int32 { return pick[int32](g, -1, -1, -1, -1, -1, -1, 0, 0, 1, 2, -2) }

func (g generator) acl() []wire.ACL {
	acl := func(perms int32, scheme, id string) wire.ACL {
		return wire.ACL{Perms: perms, ID: wire.ID{Scheme: scheme, ID: id}}
	}
	open := acl(wire.PermAll, "world", "anyone")
	if g.IntN(8) > 0 {
		return []wire.ACL{open}
	}
	return pick(g,
		nil, []wire.ACL{},
		[]wire.ACL{acl(wire.PermRead, "world", "anyone")},
		[]wire.ACL{acl(wire.PermRead|wire.PermCreate, "world", "anyone"), acl(wire.PermAll, "auth", "")},
		[]wire.ACL{acl(wire.PermAll, "auth", "")},
		[]wire.ACL{acl(wire.PermAll, "digest", digestOfU), open, open},
		[]wire.ACL{acl(wire.PermAll, "digest", digestOfU), acl(wire.PermRead, "world", "anyone")},
		[]wire.ACL{acl(wire.PermAll, "digest", "nocolon")},
		[]wire.ACL{acl(wire.PermAll, "digest", "a:b:c")},
		[]wire.ACL{acl(wire.PermAll, "digest", "a:b:")},
		[]wire.ACL{acl(wire.PermAll, "ip", "127.0.0.1"), acl(wire.PermRead, "world", "anyone")},
		[]wire.ACL{acl(wire.PermAll, "ip", "127.0.0.0/8")},
		[]wire.ACL{acl(wire.PermAll, "ip", "10.0.0.0/8"), acl(wire.PermRead|wire.PermDelete, "world", "anyone")},
		[]wire.ACL{acl(wire.PermAll, "ip", "127.0.0.1/33")},
		[]wire.ACL{acl(wire.PermAll, "ip", "::1")},
		[]wire.ACL{acl(wire.PermAll, "nonsense", "x")},
		[]wire.ACL{acl(wire.PermAll, "world", "somebody")},
		[]wire.ACL{acl(wire.PermAll, "super", "")},
		[]wire.ACL{{Perms: wire.PermAll, Null: true}},
		[]wire.ACL{{Perms: wire.PermAll, NullID: true, ID: wire.ID{Scheme: pick(g, "auth", "world", "digest", "ip", "nonsense")}}},
		[]wire.ACL{acl(wire.PermWrite|wire.PermAdmin, "world", "anyone")},
		[]wire.ACL{acl(wire.PermAll&^wire.PermRead, "world", "anyone")},
		[]wire.ACL{acl(wire.PermAll&^wire.PermRead, "world", "anyone")},
		[]wire.ACL{acl(wire.PermAll&^wire.PermRead, "world", "anyone"), acl(wire.PermRead, "digest", digestOfU)},
		[]wire.ACL{acl(0, "world", "anyone")},
	)
}

// digestOfU is Digest("u:p").
const digestOfU = "u:WKjzq4gvAbprKWzTSTcsdWfRBqQ="

func (g generator) create(op wire.Op) wire.CreateRequest {
	path := g.path()
	flags := pick[int32](g, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, -1)
	if flags == 2 || flags == 3 || flags == 6 {
		path += pick(g, "/n-", "/", "", "/lock-")
	}
	ttl := int64(-1)
	if op == wire.OpCreateTTL {
		// Negative TTLs are omitted: 3.8.0 treats one as no TTL, and then fails internally.
		ttl = pick[int64](g, 0, 1, 1_000_000, 0xffffffffff, 0x10000000000)
		flags = pick[int32](g, 5, 5, 6, 0, 2)
	}
	return wire.CreateRequest{Path: path, Data: g.data(), ACL: g.acl(), Flags: flags, TTL: ttl}
}

func (g generator) multi() wire.MultiRequest {
	var m wire.MultiRequest
	if g.IntN(4) == 0 { // one that has a chance
		for range 1 + g.IntN(3) {
			op := wire.MultiOp{Op: pick(g, wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL), Path: fmt.Sprintf("/m%d", g.IntN(1000))}
			op.Create = wire.CreateRequest{Path: op.Path, Data: g.data(), ACL: g.acl(), Flags: pick[int32](g, 0, 1, 2, 3, 4), TTL: -1}
			if op.Op == wire.OpCreateTTL {
				op.Create.Flags, op.Create.TTL = pick[int32](g, 5, 6), 1000
			}
			m.Ops = append(m.Ops, op, wire.MultiOp{Op: wire.OpCheck, Path: "/", Version: -1})
		}
		return m
	}
	for range pick(g, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 6) {
		op := wire.MultiOp{Path: g.path(), Data: g.data(), Version: g.version()}
		op.Op = pick(g, wire.OpCreate, wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL,
			wire.OpDelete, wire.OpDelete, wire.OpSetData, wire.OpSetData, wire.OpCheck, wire.OpCheck)
		op.Create = g.create(op.Op)
		m.Ops = append(m.Ops, op)
	}
	return m
}

func (g generator) multiRead() wire.MultiRequest {
	var m wire.MultiRequest
	for range g.IntN(5) {
		m.Ops = append(m.Ops, wire.MultiOp{Op: pick(g, wire.OpGetData, wire.OpGetChildren), Path: g.path(), Watch: g.IntN(2) == 0})
	}
	return m
}

func (g generator) paths() (all []string) {
	for range g.IntN(4) {
		all = append(all, g.echoed())
	}
	return all
}

func (g generator) setWatches() wire.SetWatchesRequest {
	if g.last.path != "" && g.IntN(3) == 0 { // at the limit of the zxids that the client has seen
		parent := g.last.path[:max(1, strings.LastIndexByte(g.last.path, '/'))]
		return wire.SetWatchesRequest{
			RelativeZxid: g.last.zxid + pick[int64](g, -1, 0, 1),
			Data:         []string{g.last.path}, Child: []string{parent}, Exist: []string{g.last.path},
		}
	}
	return wire.SetWatchesRequest{
		RelativeZxid: g.zxid() - int64(g.IntN(30)),
		Data:         g.paths(), Exist: g.paths(), Child: g.paths(), Persistent: g.paths(), Recursive: g.paths(),
	}
}

// watchTypes returns the types of watches, and one that 3.8 does not support.
func (g generator) watchTypes(unknown int32) []int32 {
	if g.is39 {
		return []int32{1, 2, 3, 4, 5, 0}
	}
	return []int32{1, 2, 3, unknown}
}

// next returns the next operation. The caller adds operations on connections and sessions.
func (g generator) next() request {
	watch := func() wire.PathWatchRequest { return wire.PathWatchRequest{Path: g.path(), Watch: g.IntN(2) == 0} }
	switch n := g.IntN(1000); {
	case n < 180:
		op := pick(g, wire.OpCreate, wire.OpCreate, wire.OpCreate2, wire.OpCreate2, wire.OpCreateContainer)
		return request{op: op, body: g.create(op)}
	case n < 200:
		return request{op: wire.OpCreateTTL, body: wire.CreateTTLRequest{CreateRequest: g.create(wire.OpCreateTTL)}}
	case n < 300:
		return request{op: wire.OpDelete, body: wire.PathVersionRequest{Path: g.path(), Version: g.version()}}
	case n < 370:
		return request{op: wire.OpSetData, body: wire.SetDataRequest{Path: g.path(), Data: g.data(), Version: g.version()}}
	case n < 450:
		return request{op: wire.OpExists, body: watch()}
	case n < 520:
		return request{op: wire.OpGetData, body: watch()}
	case n < 560:
		return request{op: wire.OpGetChildren, body: watch()}
	case n < 610:
		return request{op: wire.OpGetChildren2, body: watch()}
	case n < 640:
		return request{op: wire.OpGetACL, body: wire.PathRequest{Path: g.path()}}
	case n < 670:
		ask := wire.SetACLRequest{Path: g.path(), ACL: g.acl(), Version: g.version()}
		if ask.Path == "/" {
			ask.Path = "/a" // a root that no client may write ends the variety
		}
		return request{op: wire.OpSetACL, body: ask}
	case n < 680:
		return request{op: wire.OpSync, body: wire.PathRequest{Path: g.echoed()}}
	case n < 780:
		return request{op: wire.OpMulti, body: g.multi()}
	case n < 800:
		return request{op: wire.OpMultiRead, body: g.multiRead()}
	case n < 830:
		return request{op: wire.OpSetWatches, body: g.setWatches()}
	case n < 850:
		return request{op: wire.OpSetWatches2, body: wire.SetWatches2Request{SetWatchesRequest: g.setWatches()}}
	case n < 875:
		return request{op: wire.OpAddWatch, body: wire.AddWatchRequest{Path: g.path(), Mode: pick[int32](g, 0, 0, 1, 1, 2, -1)}}
	case n < 890:
		return request{op: wire.OpCheckWatches, body: wire.WatchesRequest{Path: g.path(), Type: pick(g, g.watchTypes(0)...)}}
	case n < 910:
		return request{op: wire.OpRemoveWatches, body: wire.WatchesRequest{Path: g.path(), Type: pick(g, g.watchTypes(4)...)}}
	case n < 920:
		return request{op: wire.OpGetEphemerals, body: wire.GetEphemeralsRequest{Prefix: pick(g, "", "/", " ", "/a", "/b/x", "a")}}
	case n < 930:
		return request{op: wire.OpGetAllChildrenNumber, body: wire.PathRequest{Path: g.path()}}
	case n < 935:
		return request{op: wire.OpWhoAmI}
	case n < 950:
		return request{op: wire.OpAuth, body: wire.AuthRequest{Scheme: pick(g, "digest", "digest", "ip"), Auth: []byte(pick(g, "u:p", "v:q", "root:secret", "nocolon"))}}
	case n < 953:
		return request{op: wire.OpAuth, body: wire.AuthRequest{Scheme: pick(g, "nonsense", "world", "auth", "super")}, closes: true}
	case n < 956:
		return request{op: wire.OpReconfig, body: wire.Raw{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	case n < 959:
		return request{op: pick[wire.Op](g, 0, 10, 23, 77, -3), closes: true}
	case n < 970:
		return request{op: pick(g, wire.OpCreate, wire.OpCreate2, wire.OpDelete, wire.OpSetData, wire.OpExists, wire.OpGetData, wire.OpGetChildren,
			wire.OpGetChildren2, wire.OpMulti, wire.OpSetWatches, wire.OpAddWatch, wire.OpGetACL, wire.OpSetACL, wire.OpCreateTTL),
			body: pick(g, wire.Raw(nil), wire.Raw{0xff, 0xff, 0xff, 0xff}, wire.Raw{0, 0, 0, 9, '/', 'a'}, wire.Raw{0xff, 0xff, 0xff, 0xfe, 0, 0})}
	default:
		return request{op: wire.OpPing}
	}
}
