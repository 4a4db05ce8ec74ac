package zktest

// setWatches, setWatches2, addWatch, checkWatches, removeWatches.
//
//   - setWatches first sends the events that the client missed while it was disconnected, in the
//     order of the request and before its reply. It sets the other watches. It trusts the client's
//     zxid. From 3.9.6 on, the client must be allowed to read the node.
//   - addWatch sets a watch in both tables. checkWatches counts any connection's watch, as 3.8.0
//     does; from 3.9 on, only the connection's own.

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
		if n == nil || !c.cfg.since("3.9.6") || allowed(n.acl, wire.PermRead, req.ids) {
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
		cn.watch(path, persisting)
	}
	for _, path := range ask.Recursive {
		cn.watch(path, recursing)
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
	req.conn.watch(ask.Path, mode)
	return wire.IntResponse{}, nil
}

// watch sets a persistent watch. From 3.9 on, a recursive one is only in the table for data.
func (c *conn) watch(path string, mode watchMode) {
	c.ep.data.add(path, c, mode)
	if mode != recursing || !c.ep.child.manyModes {
		c.ep.child.add(path, c, mode)
	}
}

// watchSet holds the watches that a type of checkWatches and removeWatches covers.
type watchSet struct {
	data, child watchMode // of these modes in each table
}

// watchSets returns the types by their number. 4 and 5 are new in 3.9, where 1 and 2 no longer
// cover persistent watches.
func (c *cluster) watchSets() map[int32]watchSet {
	if !c.cfg.since("3.9.3") {
		return map[int32]watchSet{
			wire.WatcherChildren: {child: anyMode}, wire.WatcherData: {data: anyMode}, wire.WatcherAny: {data: anyMode, child: anyMode},
		}
	}
	return map[int32]watchSet{
		wire.WatcherChildren: {child: oneShot}, wire.WatcherData: {data: oneShot}, wire.WatcherAny: {data: anyMode, child: anyMode},
		wire.WatcherPersistent: {data: persisting, child: persisting}, wire.WatcherPersistentRecursive: {data: recursing},
	}
}

// eachTable calls ask for each table that the type covers. It returns NoWatcher unless one of the
// calls finds a watch.
func (c *cluster) eachTable(req *request, ask func(w *watchTable, path string, modes watchMode) (found bool, err error)) error {
	what, err := decode[wire.WatchesRequest](req.body)
	if err != nil {
		return err
	}
	set, known := c.watchSets()[what.Type]
	if !known {
		return wire.MarshallingError
	}
	anywhere := false
	for _, in := range []struct {
		table *watchTable
		modes watchMode
	}{{req.conn.ep.child, set.child}, {req.conn.ep.data, set.data}} {
		if in.modes == 0 {
			continue
		}
		found, err := ask(in.table, what.Path, in.modes)
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
	return nil, c.eachTable(req, func(w *watchTable, path string, modes watchMode) (bool, error) {
		if !w.manyModes {
			return w.contains(path)
		}
		return w.byPath[path][req.conn]&modes != 0, nil
	})
}

func (c *cluster) removeWatches(req *request) (wire.Record, error) {
	return nil, c.eachTable(req, func(w *watchTable, path string, modes watchMode) (bool, error) {
		return w.remove(path, req.conn, modes), nil
	})
}
