package zktest

// Who deletes empty containers and overdue TTL nodes.
//
//   - A container goes when it has had children and has none. One that never had any lives on.
//   - A TTL node goes when it has no children and its data is older than its TTL.
//   - Each goes in a transaction of its own.

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
