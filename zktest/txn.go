package zktest

// A transaction: one zxid, any number of changes, and the events that they trigger.

import (
	"slices"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

type txn struct {
	zxid    int64
	at      time.Time
	session int64 // of the request; 0 for the server and for the test
	changes []change
	undo    []func()
	opens   int64 // the session this transaction creates
	closes  int64 // the session this transaction ends
	expired bool  // it expired, or the test ended it
	spare   *conn // the connection of that session that still gets its reply
}

// begin creates a zxid. Every write takes one, whether it succeeds or fails.
func (c *cluster) begin(session int64) *txn {
	c.zxid++
	return &txn{zxid: c.zxid, at: time.Now(), session: session}
}

func (c *cluster) rules() rules {
	return rules{
		tree: c.tree, ttlEnabled: c.cfg.ttl, sasl: c.cfg.saslUsers != nil, ipv6: c.cfg.since("3.9.6"), quotas: c.cfg.quotas,
		pending: c.pending,
	}
}

// do makes a checked change. No client can see it before commit, because the loop does nothing else
// in between.
func (c *cluster) do(tx *txn, ch change) {
	ch.readers = ch.acl
	if n := c.tree.nodes[ch.path]; n != nil {
		ch.readers = n.acl
	}
	parent, _ := splitPath(ch.path)
	ch.parentReaders = c.tree.nodes[parent].acl
	tx.changes = append(tx.changes, ch)
	tx.undo = append(tx.undo, c.tree.apply(ch, tx.zxid, c.cfg.millis(tx.at)))
}

// rollback undoes all changes. The zxid remains used.
func (c *cluster) rollback(tx *txn) {
	for _, undo := range slices.Backward(tx.undo) {
		undo()
	}
	tx.changes, tx.undo = nil, nil
	clear(c.pending)
}

// commit publishes the transaction to the history and to every endpoint.
func (c *cluster) commit(tx *txn) {
	tx.undo = nil
	c.record(tx)
	c.changed.send()
	for _, ep := range c.endpoints {
		if ep.replica == nil {
			ep.apply(tx)
		} else {
			c.quorum.deliver(ep, tx)
		}
	}
}

// apply makes a transaction visible at this endpoint.
func (ep *endpoint) apply(tx *txn) {
	if ep.tree != ep.c.tree {
		for _, ch := range tx.changes {
			ep.tree.apply(ch, tx.zxid, ep.c.cfg.millis(tx.at))
		}
	}
	if tx.closes != 0 {
		delete(ep.tree.ephemerals, tx.closes)
	}
	ep.zxid = tx.zxid
	ep.notify(tx)
	if cn := ep.attached[tx.closes]; cn != nil && cn != tx.spare {
		ep.c.forget(cn)
	}
}

// notify triggers the watches of this endpoint. Events are queued here, before the reply to the
// writer and before any reply that could show the change; the events of a multi follow after all
// its operations have been applied.
func (ep *endpoint) notify(tx *txn) {
	for _, ch := range tx.changes {
		parent := shownParent(ch.path)
		switch ch.kind {
		case changeCreate:
			ep.tell(ep.data.fire(ch.path, NodeCreated), NodeCreated, ch.path, ch.readers, tx.zxid)
			ep.tell(ep.child.fire(parent, NodeChildrenChanged), NodeChildrenChanged, parent, ch.parentReaders, tx.zxid)
		case changeDelete:
			told := ep.data.fire(ch.path, NodeDeleted)
			ep.tell(told, NodeDeleted, ch.path, ch.readers, tx.zxid)
			others := ep.child.fire(ch.path, NodeDeleted)
			others = slices.DeleteFunc(others, func(cn *conn) bool { return slices.Contains(told, cn) })
			ep.tell(others, NodeDeleted, ch.path, ch.readers, tx.zxid)
			ep.tell(ep.child.fire(parent, NodeChildrenChanged), NodeChildrenChanged, parent, ch.parentReaders, tx.zxid)
		case changeData:
			ep.tell(ep.data.fire(ch.path, NodeDataChanged), NodeDataChanged, ch.path, ch.readers, tx.zxid)
		}
	}
}

// tell sends an event to the watchers that may read the node. The remaining watchers lose their
// watch without an event. ZooKeeper does so from 3.8.4 on, and so does Debian's 3.8.0
// (CVE-2024-23944).
func (ep *endpoint) tell(watchers []*conn, event EventType, path string, readers []wire.ACL, zxid int64) {
	for _, cn := range watchers {
		if allowed(readers, wire.PermRead, cn.ids) {
			ep.c.event(cn, event, path, zxid)
		}
	}
}

// noZxid is the zxid of an event without a transaction of its own, and, up to ZooKeeper 3.8, of
// every event.
const noZxid = -1

// event sends one event to one connection, unless a fault prevents it.
func (c *cluster) event(cn *conn, event EventType, path string, zxid int64) {
	if cn.gone || cn.deafened {
		return
	}
	var v verdict
	if c.faults.active() {
		v = c.faults.match(happening{when: onEvent, event: event, paths: []string{path}, session: cn.sessionID(), member: cn.ep.id})
	}
	c.freezeBy(&v, cn.ep)
	if !c.cfg.since("3.9.3") {
		zxid = noZxid
	}
	if !v.drop {
		frame := wire.Frame(
			wire.ReplyHeader{Xid: wire.XidEvent, Zxid: zxid},
			wire.WatcherEvent{Type: int32(event), State: wire.StateSyncConnected, Path: path})
		first := c.elsewhere(v.wait)
		for range 1 + v.duplicates {
			cn.out.put(outItem{data: frame, wait: first})
			first = wait{}
			c.events++
			cn.gave(int64(len(frame) - 4))
		}
	}
	if v.expire && cn.session != nil {
		c.later(func() { c.expireID(cn.sessionID()) })
	}
	if v.close {
		c.forget(cn)
	}
}

func (cn *conn) sessionID() int64 {
	if cn.session == nil {
		return 0
	}
	return cn.session.id
}
