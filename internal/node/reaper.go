package node

import (
	"path"
	"sync"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
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
func (r *Reaper) Delete(node string) *Deletion { return r.start(&Deletion{node: node}, nil) }

// DeleteAll deletes nodes of ours in one transaction. If one of them is missing, it deletes the
// rest one by one. If the first is being deleted already, it returns that deletion. If the nodes
// are in several lock roots and one root rejects the delete, it deletes each node by itself, and
// the returned Deletion is for one of them.
func (r *Reaper) DeleteAll(nodes []string) *Deletion {
	return r.start(&Deletion{node: nodes[0], rest: nodes[1:]}, nil)
}

// DeleteAfter is Delete, and begins when the first deletion has ended: until then, a transaction
// whose response was lost could create the node again. first may be nil.
func (r *Reaper) DeleteAfter(first *Deletion, node string) *Deletion {
	return r.start(&Deletion{node: node}, first)
}

// handOff deletes the node of a hold that is released. If the hold may hand off the lock
// (queue.Rule.HandsOff), the next waiter gets it: a waiter of this ZooKeeper session that is
// directly behind the node. The same transaction removes the record. If withRoot is set and no such
// waiter exists, the lock root is deleted as by deleteWithRoot.
func (r *Reaper) handOff(node string, rule queue.Rule, downgraded, withRoot bool, record *GrantRecord) *Deletion {
	x := &Deletion{node: node, root: withRoot}
	if rule.HandsOff(downgraded) {
		x.record, x.handsOff = record, true
	}
	return r.start(x, nil)
}

// deleteRecorded is Delete for a node whose grant may be recorded.
func (r *Reaper) deleteRecorded(node string, record *GrantRecord) *Deletion {
	return r.start(&Deletion{node: node, record: record}, nil)
}

// deleteWithRoot is Delete for a node with which its lock root was created. If no other node is in
// the root, it deletes the root in the same transaction.
func (r *Reaper) deleteWithRoot(node string) *Deletion {
	return r.start(&Deletion{node: node, root: true}, nil)
}

// start begins a deletion, when the deletion after has ended, if there is one.
func (r *Reaper) start(x *Deletion, after *Deletion) *Deletion {
	r.mu.Lock()
	if running := r.mu.deletions[x.node]; running != nil {
		r.mu.Unlock()
		return running
	}
	x.r, x.Done, x.Refused = r, make(chan struct{}), make(chan struct{})
	x.root = x.root && r.mu.keeps != path.Dir(x.rootPath())
	r.mu.deletions[x.node] = x
	r.mu.Unlock()
	for _, n := range x.nodes() {
		r.nodes.add(n)
	}
	if after != nil {
		x.goOnAfter(after)
		return x
	}
	if x.record != nil && !x.record.IsKnown {
		x.goOn(false)
		return x
	}
	w := x.nextWaiter()
	op, body := x.request(w)
	first := mux.NewRequest(op, body, func(a mux.Reply) { // mostly the only one
		if a.Fate == mux.NeverSent {
			x.goOn(false)
		} else if ended, wait := x.tried(w, a, r.z.ErrOf(a)); !ended {
			x.goOn(wait)
		}
	})
	if !r.z.Carrier.Send(r.z, first) {
		x.goOn(false)
	}
	return x
}
