package zktest

// The reaper, which deletes empty containers and overdue TTL nodes.
//
//   - A container is deleted when it has had children and has none. A container that never had any
//     remains.
//   - A TTL node is deleted when it has no children and its data is older than its TTL.
//   - Each deletion is a transaction of its own.

import (
	"maps"
	"slices"
	"time"
)

func (c *cluster) reap(now time.Time) {
	for _, path := range slices.Sorted(maps.Keys(c.tree.reapable)) {
		n := c.tree.nodes[path]
		overdue := n.kind == container && n.creates > 0 ||
			n.kind == ttl && c.cfg.millis(now)-n.mtime > n.ttl
		if !overdue || len(n.children) > 0 {
			continue
		}
		tx := c.begin(0)
		c.do(tx, change{kind: changeDelete, path: path})
		c.commit(tx)
	}
}
