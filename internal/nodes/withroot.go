package nodes

import "path"

// The deletion of a node together with its lock root, which was created with it
// (queue.DeletesRoot).

// DeleteWithRoot is Delete for a node with which its lock root was created. If no other node is in
// the root, it deletes the root in the same transaction.
func (r *Reaper) DeleteWithRoot(node string) *Deletion {
	return r.start(&Deletion{node: node, root: true}, nil)
}

func (x *Deletion) rootPath() string { return path.Dir(x.node) }

// keepRoot has the node deleted without its lock root. If DELETE on the parent is denied, later
// deletions there do not try.
func (x *Deletion) keepRoot(denied bool) {
	x.root = false
	if denied {
		x.r.mu.Lock()
		x.r.mu.keeps = path.Dir(x.rootPath())
		x.r.mu.Unlock()
	}
}
