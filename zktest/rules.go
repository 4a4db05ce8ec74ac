package zktest

// The rules for writes, in the order in which ZooKeeper 3.8 checks them: the first violation
// determines the reply. They are pure: a tree and a request in, a change or an error code out.

import (
	"fmt"
	"math"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

// maxTTL is the longest TTL, in milliseconds, that fits into ZooKeeper's 40 bits.
const maxTTL = 0xffffffffff

// rules decides writes. pending holds counts of creates that were assigned beyond the wrap; see
// suffix.
type rules struct {
	tree       *tree
	ttlEnabled bool
	sasl       bool              // ACLs may have the scheme
	ipv6       bool              // the scheme ip has IPv6 addresses
	quotas     bool              // whether they are enforced
	stats      map[string][]byte // of quotas before the multi; nil outside of one
	pending    map[string]int32
}

func (r rules) create(op wire.Op, req wire.CreateRequest, session int64, ids []wire.ID) (change, error) {
	if req.Flags < wire.FlagPersistent || req.Flags > wire.FlagTTLSequential {
		return change{}, wire.BadArguments
	}
	wantsTTL := req.Flags == wire.FlagTTL || req.Flags == wire.FlagTTLSequential
	if wantsTTL && !r.ttlEnabled {
		return change{}, wire.Unimplemented
	}
	ms := int64(-1) // only a createTTL request has one
	if op == wire.OpCreateTTL {
		ms = req.TTL
	}
	if wantsTTL && (ms <= 0 || ms > maxTTL) || !wantsTTL && ms >= 0 {
		return change{}, wire.BadArguments
	}
	path := req.Path
	if !strings.Contains(path, "/") || strings.ContainsRune(path, 0) {
		return change{}, wire.BadArguments
	}
	acl, err := r.fixACL(req.ACL, ids)
	if err != nil {
		return change{}, err
	}
	parentPath, _ := splitPath(path)
	parent, err := r.tree.permitted(parentPath, wire.PermCreate, ids)
	if err != nil {
		return change{}, err
	}
	creates, waiting := r.pending[parentPath]
	if !waiting {
		creates = parent.creates
	}
	switch req.Flags {
	case wire.FlagSequential, wire.FlagEphemeralSequential, wire.FlagTTLSequential:
		path += suffix(creates)
	}
	if !validPath(path) {
		return change{}, wire.BadArguments
	}
	if r.tree.nodes[path] != nil {
		return change{}, wire.NodeExists
	}
	if parent.kind == ephemeral {
		return change{}, wire.NoChildrenForEphemerals
	}
	if err := r.quota(path, 1, int64(len(req.Data))); err != nil {
		return change{}, err
	}
	// Beyond the wrap the tree does not take over the new count (see tree.create). So only requests
	// that are decided before this one is applied see it: later operations of a multi, and
	// pipelined requests.
	if creates++; creates == math.MinInt32 || waiting {
		r.pending[parentPath] = creates
	}
	ch := change{kind: changeCreate, path: path, data: req.Data, acl: acl, creates: creates}
	// The type decides about containers and TTL, the flags about ephemerals: go-zookeeper's Create
	// with FlagContainer creates a plain persistent node.
	switch {
	case op == wire.OpCreateContainer:
		ch.node = container
	case op == wire.OpCreateTTL:
		ch.node, ch.ttl = ttl, ms
	case req.Flags == wire.FlagEphemeral || req.Flags == wire.FlagEphemeralSequential:
		ch.node, ch.owner = ephemeral, session
	}
	return ch, nil
}

// suffix returns the suffix of a sequential node: ten digits, or a minus sign and ten digits.
func suffix(creates int32) string { return fmt.Sprintf("%010d", creates) }

func (r rules) delete(req wire.PathVersionRequest, ids []wire.ID) (change, error) {
	if !strings.Contains(req.Path, "/") || strings.ContainsRune(req.Path, 0) || specialPath(req.Path) {
		return change{}, wire.BadArguments
	}
	parentPath, _ := splitPath(req.Path)
	if _, err := r.tree.permitted(parentPath, wire.PermDelete, ids); err != nil {
		return change{}, err
	}
	n := r.tree.nodes[req.Path]
	switch {
	case n == nil:
		return change{}, wire.NoNode
	case req.Version != -1 && req.Version != n.version:
		return change{}, wire.BadVersion
	case len(n.children) > 0:
		return change{}, wire.NotEmpty
	}
	return change{kind: changeDelete, path: req.Path, owner: n.owner}, nil
}

func (r rules) setData(req wire.SetDataRequest, ids []wire.ID) (change, error) {
	if !validPath(req.Path) {
		return change{}, wire.BadArguments
	}
	n, err := r.tree.permitted(req.Path, wire.PermWrite, ids)
	if err != nil {
		return change{}, err
	}
	if err := r.quota(req.Path, 0, int64(len(req.Data)-len(n.data))); err != nil {
		return change{}, err
	}
	if req.Version != -1 && req.Version != n.version {
		return change{}, wire.BadVersion
	}
	return change{kind: changeData, path: req.Path, data: req.Data, version: n.version + 1, owner: n.owner}, nil
}

func (r rules) setACL(req wire.SetACLRequest, ids []wire.ID) (change, error) {
	if !validPath(req.Path) {
		return change{}, wire.BadArguments
	}
	acl, err := r.fixACL(req.ACL, ids)
	if err != nil {
		return change{}, err
	}
	n, err := r.tree.permitted(req.Path, wire.PermAdmin, ids)
	if err != nil {
		return change{}, err
	}
	if req.Version != -1 && req.Version != n.aversion {
		return change{}, wire.BadVersion
	}
	return change{kind: changeACL, path: req.Path, acl: acl, version: n.aversion + 1}, nil
}

func (r rules) check(req wire.PathVersionRequest, ids []wire.ID) (change, error) {
	if !validPath(req.Path) {
		return change{}, wire.BadArguments
	}
	n, err := r.tree.permitted(req.Path, wire.PermRead, ids)
	if err != nil {
		return change{}, err
	}
	if req.Version != -1 && req.Version != n.version {
		return change{}, wire.BadVersion
	}
	return change{kind: changeNothing, path: req.Path}, nil
}
