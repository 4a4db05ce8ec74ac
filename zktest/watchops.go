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
	var ask wire.AddWatchRequest
	d := wire.NewDecoder(req.body)
	if ask.Decode(d); d.Err() != nil {
		return nil, d.Err()
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

// tables returns the tables a kind of watch is looked for in.
func (ep *endpoint) tables(kind int32) ([]*watchTable, error) {
	switch kind {
	case wire.WatcherChildren:
		return []*watchTable{ep.child}, nil
	case wire.WatcherData:
		return []*watchTable{ep.data}, nil
	case wire.WatcherAny:
		return []*watchTable{ep.child, ep.data}, nil
	}
	return nil, wire.MarshallingError
}

func (c *cluster) checkWatches(req *request) (wire.Record, error) {
	var ask wire.WatchesRequest
	d := wire.NewDecoder(req.body)
	if ask.Decode(d); d.Err() != nil {
		return nil, d.Err()
	}
	tables, err := req.conn.ep.tables(ask.Type)
	if err != nil {
		return nil, err
	}
	found := false
	for _, w := range tables {
		there, err := w.contains(ask.Path)
		if err != nil {
			return nil, err
		}
		found = found || there
	}
	if !found {
		return nil, wire.NoWatcher
	}
	return nil, nil
}

func (c *cluster) removeWatches(req *request) (wire.Record, error) {
	var ask wire.WatchesRequest
	d := wire.NewDecoder(req.body)
	if ask.Decode(d); d.Err() != nil {
		return nil, d.Err()
	}
	tables, err := req.conn.ep.tables(ask.Type)
	if err != nil {
		return nil, err
	}
	found := false
	for _, w := range tables {
		found = w.remove(ask.Path, req.conn) || found
	}
	if !found {
		return nil, wire.NoWatcher
	}
	return nil, nil
}
