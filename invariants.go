package zklock

import (
	"fmt"

	"github.com/zklock/zklock/internal/invariants"
)

// check is run each time the mutex of the table is unlocked.
func (t *lockTable) check() {
	if !invariants.Enabled {
		return
	}
	holdOn := make(map[string]*lockData) // by node
	for key, d := range invariants.Sample(t.byKey) {
		invariants.Check(d.table == t && d.key == key, "a share is in its Session's table under its key",
			"under %s there is the share of %s", key, d.key)
		d.checkLocked()
		if !d.isHeldLocked() {
			continue
		}
		for _, node := range d.held {
			if other := holdOn[node]; other != nil {
				invariants.Check(false, "a node has at most one hold (I1)", "%s has a hold of %s and one of %s", node, d.key, other.key)
			}
			holdOn[node] = d
		}
	}
	for _, a := range t.left {
		invariants.Check(a.call == nil && t.byKey[a.d.key] != a.d && !isClosed(a.done), "a call that has left has no share, and is listed until its node is deleted (I4)",
			"of %s: waits %t, in the table %t, finished %t", a.d.key, a.call != nil, t.byKey[a.d.key] == a.d, isClosed(a.done))
	}
}

// checkLocked checks a share that is in the table.
func (d *lockData) checkLocked() {
	a, held := d.acquiring, len(d.handles) > 0
	invariants.Check((a != nil) != held, "a share in the table is acquired, or has handles (I7)", "%s has %d handles, acquiring %t", d.key, len(d.handles), a != nil)
	invariants.Check(a == nil || a.d == d && a.call != nil, "an acquisition in the table has a call that waits", "%s has none", d.key)
	for h := range d.handles {
		invariants.Check(h.d == d && h.end == nil, "a handle in the table is not released, and has no other share", "%s: the handle ended with %v", d.key, h.end)
	}
	invariants.Check(d.lost != nil || !isClosed(d.lostCh) && !isClosed(d.ended), "the channels of a hold that is not lost are open (I5)",
		"%s: lost %t, ended %t", d.key, isClosed(d.lostCh), isClosed(d.ended))
	if held && d.isHeldLocked() {
		missing := d.e.nodes.Missing(d.held)
		invariants.Check(len(d.held) > 0 && d.node == d.held[0] && missing == "", "a hold rests on nodes of nodes.Own (I3)",
			"%s rests on %q, its first node is %q, and Own does not have %q", d.key, d.held, d.node, missing)
	}
}

// String names the share in the facts of a check.
func (k lockKey) String() string { return fmt.Sprintf("%s, share %q of %v", k.path, k.share, k.owner) }
