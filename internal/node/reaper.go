package node

import (
	"path"
	"sync"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
)

// Reaper deletes lock nodes of one ZooKeeper session, and retries when requests fail. Own has the
// list of the nodes.
type Reaper struct {
	z     *link.ZKSession
	lists *Lists
	nodes *Own

	mu struct {
		sync.Mutex
		deletions map[string]*Deletion  // deletions under way, by node
		orphans   map[queue.Orphan]bool // creates whose nodes no list has shown; true if the lock root was to be created with the node. Nil before the first, and after a search that has found all
		keeps     string                // the last parent that rejected the deletion of a lock root
	}
}

// newReaper returns the reaper of a session. It receives every list, to search it for orphans.
func newReaper(z *link.ZKSession, lists *Lists, nodes *Own) *Reaper {
	r := &Reaper{z: z, lists: lists, nodes: nodes}
	r.mu.deletions = make(map[string]*Deletion)
	lists.seen = r.deleteOrphans
	return r
}

// Deleting returns how many nodes are being deleted; nodes that are deleted together count once.
func (r *Reaper) Deleting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.deletions)
}

// Delete deletes a node of ours. If the node is being deleted already, it returns that deletion.
func (r *Reaper) Delete(node string) *Deletion { return r.DeleteAfter(nil, node) }

// ToDelete is Delete for nodes of one lock root, in one transaction, and the caller begins it
// (Begin). If one of the nodes is missing, the rest are deleted one by one.
func (r *Reaper) ToDelete(nodes ...string) *Deletion {
	return r.add(&Deletion{node: nodes[0], rest: nodes[1:]})
}

// DeleteAfter is Delete, and begins when the first deletion has ended: until then, a transaction
// whose response was lost could create the node again. first may be nil.
func (r *Reaper) DeleteAfter(first *Deletion, node string) *Deletion {
	x := r.add(&Deletion{node: node, after: first})
	r.Begin(x)
	return x
}

// add returns a deletion that Begin has to begin. If the node is being deleted already, that is the
// deletion under way.
func (r *Reaper) add(x *Deletion) *Deletion {
	r.mu.Lock()
	if running := r.mu.deletions[x.node]; running != nil {
		r.mu.Unlock()
		return running
	}
	x.r, x.toBegin, x.Done, x.Refused = r, true, make(chan struct{}), make(chan struct{})
	x.root = x.root && r.mu.keeps != path.Dir(x.rootPath())
	r.mu.deletions[x.node] = x
	r.mu.Unlock()
	for _, n := range x.nodes() {
		r.nodes.add(n)
	}
	return x
}
