package zktest

// setWatches, setWatches2, addWatch, checkWatches, removeWatches.
//
//   - setWatches sends at once the events that the client missed while it was away, in the order of the request and before
//     its reply. It sets the other watches. It trusts the client's zxid. From 3.9.6 on the client must be allowed to read
//     the node.
//   - addWatch sets a watch in both tables. checkWatches counts any connection's watch, as 3.8.0 does.

import "github.com/zklock/zklock/internal/wire"

func (c *cluster) setWatches(req *request) (wire.Record, error) {
	var ask wire.SetWatches2Request
	d := wire.NewDecoder(req.body)
	if req.op == wire.OpSetWatches2 {
		ask.Decode(d)
	} else {
		ask.SetWatchesRequest.Decode(d)
	}
	if d.Err() != nil {
		return nil, d.Err()
	}
	cn := req.conn
	t := cn.ep.tree
	missed := func(event EventType, path string) {
		n := t.nodes[path]
		if n == nil || !c.cfg.since("3.9.6") || allowed(n.acl, wire.PermRead, cn.ids) {
			c.event(cn, event, path, noZxid)
		}
	}
	for _, path := range ask.Data {
		switch n := t.nodes[path]; {
		case n == nil:
			missed(NodeDeleted, path)
		case n.mzxid > ask.RelativeZxid:
			missed(NodeDataChanged, path)
		default:
			cn.ep.data.add(path, cn, oneShot)
		}
	}
	for _, path := range ask.Exist {
		if t.nodes[path] != nil {
			missed(NodeCreated, path)
		} else {
			cn.ep.data.add(path, cn, oneShot)
		}
	}
	for _, path := range ask.Child {
		switch n := t.nodes[path]; {
		case n == nil:
			missed(NodeDeleted, path)
		case n.pzxid > ask.RelativeZxid:
			missed(NodeChildrenChanged, path)
		default:
			cn.ep.child.add(path, cn, oneShot)
		}
	}
	for _, path := range ask.Persistent {
		cn.ep.child.add(path, cn, persisting)
		cn.ep.data.add(path, cn, persisting)
	}
	for _, path := range ask.Recursive {
		cn.ep.child.add(path, cn, recursing)
		cn.ep.data.add(path, cn, recursing)
	}
	return nil, nil
}

func (c *cluster) addWatch(req *request) (wire.Record, error) {
	ask, err := decode[wire.AddWatchRequest](req.body)
	if err != nil {
		return nil, err
	}
	var mode watchMode
	switch ask.Mode {
	case wire.AddWatchPersistent:
		mode = persisting
	case wire.AddWatchPersistentRecursive:
		mode = recursing
	default:
		return nil, wire.MarshallingError
	}
	req.conn.ep.data.add(ask.Path, req.conn, mode)
	req.conn.ep.child.add(ask.Path, req.conn, mode)
	return wire.IntResponse{}, nil
}

// eachTable asks about a watch in the tables that hold its kind, and answers that there is none unless one of them has it.
func eachTable(req *request, ask func(w *watchTable, path string) (found bool, err error)) error {
	what, err := decode[wire.WatchesRequest](req.body)
	if err != nil {
		return err
	}
	tables := map[int32][]*watchTable{
		wire.WatcherChildren: {req.conn.ep.child}, wire.WatcherData: {req.conn.ep.data},
		wire.WatcherAny: {req.conn.ep.child, req.conn.ep.data},
	}[what.Type]
	if tables == nil {
		return wire.MarshallingError
	}
	anywhere := false
	for _, w := range tables {
		found, err := ask(w, what.Path)
		if err != nil {
			return err
		}
		anywhere = anywhere || found
	}
	if !anywhere {
		return wire.NoWatcher
	}
	return nil
}

func (c *cluster) checkWatches(req *request) (wire.Record, error) {
	return nil, eachTable(req, (*watchTable).contains)
}

func (c *cluster) removeWatches(req *request) (wire.Record, error) {
	return nil, eachTable(req, func(w *watchTable, path string) (bool, error) { return w.remove(path, req.conn), nil })
}
