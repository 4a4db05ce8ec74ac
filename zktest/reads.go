package zktest

// exists, getData, getChildren, getChildren2, getACL, sync, getAllChildrenNumber, getEphemerals,
// whoAmI, multiRead.
//
//   - None of them creates a zxid; the reply has the zxid of the last transaction.
//   - A read sets a watch only if it succeeds; only exists also sets one on a missing node.
//   - exists needs no permission before 3.9, and READ from 3.9 on.

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/zklock/internal/wire"
)

func readable(path string, req *request) (*node, error) {
	return req.conn.ep.tree.permitted(path, wire.PermRead, req.ids)
}

// read finds the node of a read. If the read succeeds and requests a watch, read adds the watch to
// the table.
func (c *cluster) read(req *request, table *watchTable) (*node, error) {
	ask, err := decode[wire.PathWatchRequest](req.body)
	if err != nil {
		return nil, err
	}
	n, err := readable(ask.Path, req)
	if err == nil && ask.Watch {
		table.add(ask.Path, req.conn, oneShot)
	}
	return n, err
}

func (c *cluster) exists(req *request) (wire.Record, error) {
	ask, err := decode[wire.PathWatchRequest](req.body)
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(ask.Path, 0) {
		return nil, wire.BadArguments
	}
	n := req.conn.ep.tree.nodes[ask.Path]
	if n != nil && c.cfg.since("3.9.3") && !allowed(n.acl, wire.PermRead, req.ids) {
		return nil, wire.NoAuth
	}
	if ask.Watch {
		req.conn.ep.data.add(ask.Path, req.conn, oneShot)
	}
	if n == nil {
		return nil, wire.NoNode
	}
	return n.stat(), nil
}

func (c *cluster) getData(req *request) (wire.Record, error) {
	n, err := c.read(req, req.conn.ep.data)
	if err != nil {
		return nil, err
	}
	return wire.DataResponse{Data: n.data, Stat: n.stat()}, nil
}

func (c *cluster) getChildren(req *request) (wire.Record, error) {
	n, err := c.read(req, req.conn.ep.child)
	if err != nil {
		return nil, err
	}
	names := c.childNames(req.conn.ep, n)
	if req.op == wire.OpGetChildren {
		return wire.StringsResponse{Strings: names}, nil
	}
	return wire.ChildrenStatResponse{Children: names, Stat: n.stat()}, nil
}

// childNames returns the names in the order of a hash, so that no client can rely on another order.
// As on a real server, the order remains the same until the children change. It differs for every
// node and every server.
func (c *cluster) childNames(ep *endpoint, n *node) []string {
	if c.cfg.shuffled {
		names := slices.Collect(maps.Keys(n.children))
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		return names
	}
	if n.listed != nil {
		return n.listed
	}
	type hashed struct {
		hash uint64
		name string
	}
	seed := fnv(fnv(14695981039346656037, ep.addr), strconv.FormatInt(n.czxid, 16))
	all := make([]hashed, 0, len(n.children))
	for name := range n.children {
		h := fnv(seed, name)
		// Without this step, names that differ only in their last byte have similar hashes.
		h = (h ^ h>>32) * 0x9e3779b97f4a7c15
		all = append(all, hashed{h ^ h>>29, name})
	}
	slices.SortFunc(all, func(a, b hashed) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.name, b.name))
	})
	names := make([]string, len(all))
	for i, h := range all {
		names[i] = h.name
	}
	n.listed = names
	return names
}

// fnv continues an FNV-1a hash. Those of hash/fnv allocate for each name.
func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func (c *cluster) getACL(req *request) (wire.Record, error) {
	ask, err := decode[wire.PathRequest](req.body)
	if err != nil {
		return nil, err
	}
	n, err := req.conn.ep.tree.permitted(ask.Path, wire.PermRead|wire.PermAdmin, req.ids)
	if err != nil {
		return nil, err
	}
	acl := n.acl
	if !allowed(n.acl, wire.PermAdmin, req.ids) {
		acl = hideDigests(acl)
	}
	return wire.ACLResponse{ACL: acl, Stat: n.stat()}, nil
}

// sync does not check that the node exists.
func (c *cluster) sync(req *request) (wire.Record, error) {
	ask, err := decode[wire.PathRequest](req.body)
	return wire.PathResponse(ask), err
}

// getAllChildrenNumber counts all nodes below a path. The root's count includes every node but its
// own two names.
func (c *cluster) getAllChildrenNumber(req *request) (wire.Record, error) {
	ask, err := decode[wire.PathRequest](req.body)
	if err != nil {
		return nil, err
	}
	if _, err := readable(ask.Path, req); err != nil {
		return nil, err
	}
	t := req.conn.ep.tree
	if ask.Path == "/" {
		return wire.IntResponse{N: int32(len(t.nodes) - 2)}, nil
	}
	below := int32(0)
	for p := range t.nodes {
		if strings.HasPrefix(p, ask.Path+"/") {
			below++
		}
	}
	return wire.IntResponse{N: below}, nil
}

func (c *cluster) getEphemerals(req *request) (wire.Record, error) {
	ask, err := decode[wire.GetEphemeralsRequest](req.body)
	if err != nil {
		return nil, err
	}
	var paths []string
	trimmed := strings.TrimFunc(ask.Prefix, func(r rune) bool { return r <= ' ' }) // as Java's trim
	all := trimmed == "" || trimmed == "/"
	for path := range req.conn.ep.tree.ephemerals[req.conn.session.id] {
		if all || strings.HasPrefix(path, ask.Prefix) {
			paths = append(paths, path)
		}
	}
	return wire.StringsResponse{Strings: paths}, nil
}

func (c *cluster) whoAmI(req *request) (wire.Record, error) {
	return wire.WhoAmIResponse{IDs: whoAmI(req.ids)}, nil
}

// multiRead executes each read separately: a failed read does not stop the next. It sets no
// watches.
func (c *cluster) multiRead(req *request) (wire.Record, error) {
	ask, err := decode[wire.MultiRequest](req.body)
	if err != nil {
		return nil, err
	}
	var answer wire.MultiResponse
	for _, op := range ask.Ops {
		res := wire.MultiResult{Op: op.Op}
		switch n, err := readable(op.Path, req); {
		case op.Op != wire.OpGetData && op.Op != wire.OpGetChildren:
			return nil, wire.MarshallingError
		case err != nil:
			res = wire.MultiResult{Op: wire.OpError, Err: codeOf(err)}
		case op.Op == wire.OpGetData:
			res.Data, res.Stat = n.data, n.stat()
		default:
			res.Children = c.childNames(req.conn.ep, n)
		}
		answer.Results = append(answer.Results, res)
	}
	return answer, nil
}

// auth adds an id to the connection. Its reply has zxid 0; a failure closes the connection.
func (c *cluster) auth(req *request) {
	cn := req.conn
	ask, err := decode[wire.AuthRequest](req.body)
	if err != nil {
		c.forget(cn)
		return
	}
	add := func(id wire.ID) {
		if !slices.Contains(cn.ids, id) {
			cn.ids = append(slices.Clip(cn.ids), id)
		}
	}
	switch {
	case ask.Scheme == "digest" && ask.Auth != nil:
		digest := Digest(string(ask.Auth))
		if digest == c.cfg.superDigest {
			add(wire.ID{Scheme: "super"})
		}
		add(wire.ID{Scheme: "digest", ID: digest})
	case ask.Scheme == "ip":
		add(wire.ID{Scheme: "ip", ID: cn.host()})
	default:
		c.refuse(req, wire.AuthFailed, nil)
		return
	}
	c.reply(req, wire.ReplyHeader{Xid: req.xid}, nil)
}

func (t *tree) sortedNodes() []string {
	return slices.Sorted(maps.Keys(t.nodes))[1:] // the first is the root's other name, ""
}
