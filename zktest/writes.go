package zktest

// create, create2, createContainer, createTTL, delete, setData, setACL, reconfig, multi.
//
//   - Each takes one zxid, even if it fails: for bad arguments, a missing node, or a body that does
//     not parse (from 3.9 on only a multi's).
//   - All operations of a multi share one zxid; an empty multi has one, too.
//   - A multi that fails has a reply header without an error. Its results contain the error: 0
//     before the operation that failed, its code, and -2 after it.

import (
	"github.com/zklock/zklock/internal/wire"
)

// write runs a transaction with one change.
func write[T any, P decodable[T]](c *cluster, req *request, decide func(rules, T, []wire.ID) (change, error)) (ch change, err error) {
	ask, err := decode[T, P](req.body)
	if err != nil && c.cfg.since("3.9.3") {
		return change{}, err
	}
	tx := c.begin(req.conn.session.id)
	defer c.commit(tx)
	if err == nil {
		ch, err = decide(c.rules(), ask, req.ids)
	}
	if err != nil {
		return change{}, err
	}
	c.do(tx, ch)
	if req.paths != nil {
		req.paths = append(req.paths, ch.path)
	}
	return ch, nil
}

func (c *cluster) statOf(ch change, err error) (wire.Record, error) {
	if err != nil {
		return nil, err
	}
	return c.tree.nodes[ch.path].stat(), nil
}

func (c *cluster) create(req *request) (wire.Record, error) {
	decide := func(r rules, ask wire.CreateRequest, ids []wire.ID) (change, error) {
		return r.create(req.op, ask, req.conn.session.id, ids)
	}
	var ch change
	var err error
	if req.op == wire.OpCreateTTL {
		ch, err = write(c, req, func(r rules, ask wire.CreateTTLRequest, ids []wire.ID) (change, error) {
			return decide(r, ask.CreateRequest, ids)
		})
	} else {
		ch, err = write(c, req, decide)
	}
	if err != nil {
		return nil, err
	}
	if req.op == wire.OpCreate {
		return wire.PathResponse{Path: ch.path}, nil
	}
	return wire.PathStatResponse{Path: ch.path, Stat: c.tree.nodes[ch.path].stat()}, nil
}

func (c *cluster) delete(req *request) (wire.Record, error) {
	_, err := write(c, req, rules.delete)
	return nil, err
}

func (c *cluster) setData(req *request) (wire.Record, error) {
	return c.statOf(write(c, req, rules.setData))
}

func (c *cluster) setACL(req *request) (wire.Record, error) {
	return c.statOf(write(c, req, rules.setACL))
}

// reconfig is disabled, which is the default. One that does not parse takes no zxid.
func (c *cluster) reconfig(req *request) (wire.Record, error) {
	d := wire.NewDecoder(req.body)
	for range 3 { // the servers that join, those that leave, and the new members
		d.NullableString()
	}
	if d.Int64(); d.Err() != nil {
		return nil, d.Err()
	}
	c.commit(c.begin(req.conn.session.id))
	return nil, wire.ReconfigDisabled
}

func (c *cluster) multi(req *request) (wire.Record, error) {
	ask, err := decode[wire.MultiRequest](req.body)
	zxid := true
	if err == nil && c.cfg.since("3.9.3") {
		zxid, err = misfit(ask.Ops)
	}
	if !zxid {
		return nil, err
	}
	tx := c.begin(req.conn.session.id)
	defer c.commit(tx)
	if err != nil {
		return nil, err
	}
	r := c.rules()
	if r.quotas {
		r.stats = c.tree.allStats()
	}
	var answer wire.MultiResponse
	for i, op := range ask.Ops {
		ch, as, err := c.multiOp(r, op, req)
		if err != nil {
			c.rollback(tx)
			code := codeOf(err)
			if code == wire.MarshallingError {
				return nil, err
			}
			answer.Results = make([]wire.MultiResult, len(ask.Ops))
			for j := range answer.Results {
				answer.Results[j].Op = wire.OpError
				if j > i {
					answer.Results[j].Err = wire.RuntimeInconsistency
				}
			}
			answer.Results[i].Err = code
			break
		}
		c.do(tx, ch)
		res := wire.MultiResult{Op: as}
		switch as {
		case wire.OpCreate:
			res.Path = ch.path
		case wire.OpCreate2:
			res.Path, res.Stat = ch.path, c.tree.nodes[ch.path].stat()
		case wire.OpSetData:
			res.Stat = c.tree.nodes[ch.path].stat()
		}
		answer.Results = append(answer.Results, res)
	}
	if req.paths != nil {
		for _, ch := range tx.changes {
			req.paths = append(req.paths, ch.path)
		}
	}
	return answer, nil
}

// misfit finds a create that 3.9 fails to read: with flags that no type of node has, with the flags
// of a TTL node but no TTL, or with a null ACL. The last costs the multi no zxid.
func misfit(ops []wire.MultiOp) (zxid bool, err error) {
	for _, op := range ops {
		switch op.Op {
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
			flags := op.Create.Flags
			switch {
			case flags < wire.FlagPersistent || flags > wire.FlagTTLSequential:
				return true, wire.MarshallingError
			case op.Create.ACL == nil:
				return false, wire.MarshallingError
			case flags > wire.FlagContainer:
				return true, wire.MarshallingError
			}
		}
	}
	return true, nil
}

// createIn returns the type that a multi executes for a create, and the type of the result that it
// sends. The flags make a container or a TTL node. The request's type does not, up to 3.8; from 3.9
// on, it does if the flags do not. The results of containers and TTL nodes are sent as create2.
func (c *cluster) createIn(op wire.MultiOp) (kind, as wire.Op, err error) {
	modern := c.cfg.since("3.9.3")
	switch op.Create.Flags {
	case wire.FlagContainer:
		return wire.OpCreateContainer, wire.OpCreate2, nil
	case wire.FlagTTL, wire.FlagTTLSequential:
		if op.Op != wire.OpCreateTTL {
			return 0, 0, wire.MarshallingError // the server fails to cast it
		}
		return wire.OpCreateTTL, wire.OpCreate2, nil
	}
	switch {
	case modern && op.Op == wire.OpCreateContainer:
		return wire.OpCreateContainer, wire.OpCreate2, nil
	case modern && op.Op == wire.OpCreate2:
		return wire.OpCreate, wire.OpCreate2, nil
	}
	return wire.OpCreate, wire.OpCreate, nil
}

// multiOp decides one operation of a multi, and returns the type of its result.
func (c *cluster) multiOp(r rules, op wire.MultiOp, req *request) (ch change, as wire.Op, err error) {
	ids := req.ids
	switch op.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		kind, as, err := c.createIn(op)
		if err == nil {
			ch, err = r.create(kind, op.Create, req.conn.session.id, ids)
		}
		return ch, as, err
	case wire.OpDelete:
		ch, err = r.delete(wire.PathVersionRequest{Path: op.Path, Version: op.Version}, ids)
	case wire.OpSetData:
		ch, err = r.setData(wire.SetDataRequest{Path: op.Path, Data: op.Data, Version: op.Version}, ids)
	case wire.OpCheck:
		ch, err = r.check(wire.PathVersionRequest{Path: op.Path, Version: op.Version}, ids)
	default:
		return change{}, 0, wire.MarshallingError
	}
	return ch, op.Op, err
}
