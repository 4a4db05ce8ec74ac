package node

import (
	"context"
	"errors"
	"maps"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/queue"
)

// NoteOrphan remembers a create whose node no list has shown, although the node may exist:
//
//	create ──▶ no response ──▶ FindMade ─┬─▶ a node with the id: the caller takes it
//	                                     ├─▶ no node ──────────┐
//	                                     └─▶ list rejected ────┴─▶ NoteOrphan
//
//	noted ─┬─▶ any list of the root shows a node with the id: deleteOrphans, Delete
//	       └─▶ a list that begins T/3 or more later shows none: forgotten
//
// Why a list that shows no node is not the end: the create is sent to server A, the connection
// breaks, and we reconnect to server B. The sync and the list on B show no node. A has not yet read
// the create from the socket of the old connection, where nothing indicates that the session has
// moved. When A reads it, the node appears in the queue and belongs to our live session, so it
// would block every later client as long as the session lives.
//
// An orphan is kept until a later list has been searched for it (R74). Under a root that denies
// lists for a long time, not all of a very large number are kept (I7).
//
// withRoot reports that the create was the transaction that also creates the lock root. Such an
// orphan can appear while the root is missing, and is deleted with it.
func (r *Reaper) NoteOrphan(root, id string, withRoot bool) {
	const most = 1000
	r.mu.Lock()
	begin := r.mu.orphans == nil
	if begin {
		r.mu.orphans = make(map[queue.Orphan]bool)
	}
	if len(r.mu.orphans) < most {
		r.mu.orphans[queue.Orphan{Root: root, ID: id}] = withRoot
	}
	r.mu.Unlock()
	if begin {
		r.z.Carrier.Spawn(r.searchForOrphans)
	}
}

// searchForOrphans lists the roots of orphans every third of a session timeout until no orphan is
// left. A list that succeeds has shown every node that exists (deleteOrphans), so the orphans that
// were noted that long before it need no other list.
func (r *Reaper) searchForOrphans() {
	for {
		r.mu.Lock()
		orphans := maps.Clone(r.mu.orphans)
		if len(orphans) == 0 {
			r.mu.orphans = nil
		}
		r.mu.Unlock()
		if len(orphans) == 0 || !r.z.Pause(r.z.Timeout()/3) {
			return
		}
		listed := map[string]bool{}
		for o := range orphans {
			if _, asked := listed[o.Root]; !asked {
				err := r.lists.ListSynced(o.Root).Wait(context.Background(), r.z)
				listed[o.Root] = err == nil || errors.Is(err, zk.ErrNoNode)
			}
			if listed[o.Root] {
				r.mu.Lock()
				delete(r.mu.orphans, o)
				r.mu.Unlock()
			}
		}
	}
}

func (r *Reaper) deleteOrphans(root string, names []string) {
	r.mu.Lock()
	var found []*Deletion
	names = queue.OrphansIn(r.mu.orphans, root, names)
	for _, name := range names {
		id, _ := queue.ProtectionID(name)
		found = append(found, &Deletion{node: root + "/" + name, root: r.mu.orphans[queue.Orphan{Root: root, ID: id}]})
	}
	for _, name := range names { // several nodes may have one id
		id, _ := queue.ProtectionID(name)
		delete(r.mu.orphans, queue.Orphan{Root: root, ID: id})
	}
	r.mu.Unlock()
	for _, x := range found {
		r.Begin(r.add(x))
	}
}
