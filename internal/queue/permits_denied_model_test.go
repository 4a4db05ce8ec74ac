package queue

// The model of TestExplorePermits where the servers deny requests for a while: the leases that a
// client then still has on record, and those that it deletes later.

import "fmt"

// What the servers may deny. Whatever is denied is allowed again in the end.
const (
	denyList   uint8 = 1 << iota // READ of the leases' root
	denyLeave                    // DELETE of the queue's root
	denyDelete                   // DELETE of the leases' root
)

// denialSteps are the changes of what the servers deny.
func (x *permitExplorer) denialSteps(w permitWorld, add func(func(n *permitWorld))) {
	if w.denied != 0 {
		add(func(n *permitWorld) { n.denied = 0 })
	}
	for _, what := range []uint8{denyList, denyLeave, denyDelete} {
		if w.denials > 0 && w.denied&what == 0 {
			add(func(n *permitWorld) { n.denials--; n.denied |= what })
		}
	}
}

// orphanSteps are what a client's Session does beside its calls: it lists the roots for other calls
// and to search for orphans, and it deletes the nodes whose deletion was denied.
func (x *permitExplorer) orphanSteps(w permitWorld, i uint8, add func(func(n *permitWorld))) {
	me := w.c[i]
	if me.crashed {
		return
	}
	if me.deleting != 0 && w.denied&denyDelete == 0 {
		add(func(n *permitWorld) {
			n.drop(i, func(try uint8) bool { return me.deleting&(1<<try) != 0 })
			n.c[i].deleting = 0
		})
	}
	if w.denied&denyLeave == 0 {
		own := w.own(i)
		for _, q := range w.queue {
			if q/16 == i+1 && q != own { // its attempt has ended
				add(func(n *permitWorld) { n.dequeue(i, func(id uint8) bool { return id != own }) })
				break
			}
		}
	}
	if me.orphans == 0 {
		return
	}
	// The queue is listed by another call of the Session.
	add(func(n *permitWorld) { x.listed(n, i, "locks", w.queue[:]) })
	// A transaction that is late comes within T/3, or never.
	isLate := me.late > 0 && me.orphans&(1<<(me.late-1)) != 0
	if w.denied&denyList == 0 && !isLate {
		add(func(n *permitWorld) { x.listed(n, i, "leases", w.leases[:]); n.c[i].orphans = 0 })
	}
}

// listed is the end of a list: the orphans that it shows are deleted, and no longer noted.
func (x *permitExplorer) listed(w *permitWorld, i uint8, root string, nodes []uint8) {
	orphans, names, byName := map[Orphan]bool{}, []string{}, map[string]uint8{}
	idOf := func(node uint8) string { id, _ := ProtectionID(protectedAs(node) + "-"); return id }
	for try := range uint8(16) {
		if w.c[i].orphans&(1<<try) == 0 {
			continue
		}
		o := Orphan{Root: "leases", ID: idOf((i+1)*16 + try)}
		if x.mistakes.orphanByID {
			o.Root = root
		}
		orphans[o] = true
	}
	for at, node := range nodes {
		if node != 0 {
			name := fmt.Sprintf("%s-%s-%010d", protectedAs(node), root, at)
			names, byName[name] = append(names, name), node
		}
	}
	for _, name := range OrphansIn(orphans, root, names) {
		try := byName[name] % 16
		w.c[i].orphans &^= 1 << try
		if root == "leases" {
			w.drop(i, func(other uint8) bool { return other == try })
		} else if w.denied&denyLeave == 0 {
			w.dequeue(i, func(id uint8) bool { return id%16 == try })
		}
	}
}
