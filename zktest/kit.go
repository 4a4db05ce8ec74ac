package zktest

// Helpers with which a test need not poll, nor build its tree node by node.

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// WaitFor returns when a node exists at path, or with an error if ctx ends before.
func (a admin) WaitFor(ctx context.Context, path string) error {
	err := a.wait(ctx, func() bool { return a.c.tree.nodes[path] != nil })
	if err != nil {
		return fmt.Errorf("zktest: there is no node %s: %w", path, err)
	}
	return nil
}

// WaitSessions returns when exactly n sessions are alive, or with an error if ctx ends before.
func (a admin) WaitSessions(ctx context.Context, n int) error {
	alive := 0
	err := a.wait(ctx, func() bool { alive = len(a.c.sessions); return alive == n })
	if err != nil {
		return fmt.Errorf("zktest: %d sessions are alive, not %d: %w", alive, n, err)
	}
	return nil
}

// wait returns when the loop has found the condition true: at once, or after a transaction.
func (a admin) wait(ctx context.Context, so func() bool) error {
	for {
		var changed <-chan struct{}
		a.c.call(func() {
			if !so() {
				changed = a.c.changed.next()
			}
		})
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-a.c.done:
			return fmt.Errorf("the server is closed")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Load creates persistent nodes with the given data, by path, with their parents, and sets the data
// of the nodes that exist. It uses one transaction: if it returns an error, nothing has changed.
func (a admin) Load(nodes map[string]string) error {
	return a.transact(0, func(tx *txn) error {
		for _, path := range slices.Sorted(maps.Keys(nodes)) {
			if a.c.tree.nodes[path] != nil {
				if err := a.c.set(tx, path, []byte(nodes[path])); err != nil {
					return fmt.Errorf("zktest: %s: %w", path, err)
				}
			} else if _, err := a.c.make(tx, path, []byte(nodes[path]), Persistent, nil); err != nil {
				return fmt.Errorf("zktest: %s: %w", path, err)
			}
		}
		return nil
	})
}

// Snapshot holds the nodes of a server at one time, except ephemeral nodes. It is stored as JSON,
// and [ReadSnapshot] reads a snapshot of a real server.
type Snapshot struct{ tree *tree }

// Snapshot returns the server's nodes, for [Server.Restore].
func (a admin) Snapshot() (s Snapshot) {
	a.c.call(func() { s.tree = a.c.tree.clone() })
	return s
}

// Restore deletes, creates and changes nodes in one transaction until they match the snapshot, with
// its data, ACLs and counts for sequential children. It deletes all ephemeral nodes. Sessions,
// connections and watches remain, and clients get their events. A zero Snapshot has only the nodes
// of a new server. Stats that count or order changes, such as czxid and version, do not match the
// snapshot, and /zookeeper/config remains the server's own.
func (a admin) Restore(s Snapshot) {
	if s.tree == nil {
		s.tree = newTree()
	}
	a.c.call(func() { a.c.restore(s.tree) })
}

// Reset resets the server to the state of a new one, for the next test: it ends all sessions,
// deletes all nodes, and clears the history and the counts of requests. Faults remain.
func (a admin) Reset() {
	a.c.call(func() {
		for _, id := range slices.Sorted(maps.Keys(a.c.sessions)) {
			a.c.expireID(id)
		}
		fresh := newTree()
		fresh.nodes[configNode].data = []byte(a.c.members)
		a.c.restore(fresh)
		a.c.history = history{}
		a.c.pings, a.c.events, a.c.ended = 0, 0, nil
		clear(a.c.counts)
	})
}

func (c *cluster) restore(to *tree) {
	tx := c.begin(0)
	for _, path := range slices.Backward(c.tree.sortedNodes()) { // children come after their parents
		n, want := c.tree.nodes[path], to.nodes[path]
		if path == configNode {
			continue
		}
		if want == nil || n.kind == ephemeral || n.kind != want.kind || n.ttl != want.ttl {
			c.do(tx, change{kind: changeDelete, path: path, owner: n.owner})
		}
	}
	for _, path := range to.sortedNodes() {
		n, want := c.tree.nodes[path], to.nodes[path]
		switch {
		case want.kind == ephemeral, path == configNode:
			continue
		case n == nil:
			parent, _ := splitPath(path)
			c.do(tx, change{
				kind: changeCreate, path: path, data: want.data, acl: want.acl, node: want.kind, ttl: want.ttl,
				creates: c.tree.nodes[parent].creates + 1,
			})
			continue
		case string(n.data) != string(want.data):
			c.do(tx, change{kind: changeData, path: path, data: want.data, version: n.version + 1, owner: n.owner})
		}
		if !slices.Equal(n.acl, want.acl) {
			c.do(tx, change{kind: changeACL, path: path, acl: want.acl, version: n.aversion + 1})
		}
	}
	for path, want := range to.nodes {
		if want.kind != ephemeral && path != "" && path != configNode {
			c.do(tx, change{kind: changeCreates, path: path, creates: want.creates})
		}
	}
	c.commit(tx)
}
