package zklock

import (
	"time"

	"github.com/zklock/zklock/internal/nodes"
)

// What the release of a hold has deleted, and when. hold.go waits for it.

// letGo begins the deletions of a released hold, or has its node stay as long as its minimum lasts. Then what the release waits for is a
// check that the node is there: a deletion, as it were, that leaves it, and takes back the record that a lock-delay needs. The node stays
// under the lease: so this Session's waiters hear if somebody deletes it, and the session is ended at the servers if it is given up.
func (d *lockData) letGo() [2]*nodes.Deletion {
	e, check := d.e, &nodes.Deletion{Done: make(chan struct{})}
	left := func() time.Duration { return d.stays.Sub(e.Clock.Now()) }
	if d.stays != 0 && left() > 0 && e.Carrier.Spawn(func() {
		check.Err = e.reaper.TakeBack(d.node, d.record)
		check.OK = check.Err == nil
		close(check.Done)
		for check.OK && left() > 0 {
			if !e.Pause(left()) {
				return // it goes with its session
			}
		}
		d.giveBackNow()
	}) {
		return [2]*nodes.Deletion{check}
	}
	return d.giveBackNow()
}

// unused has the nodes deleted at once when the holds are released: nothing ran under them.
func unused(holds ...*Hold) {
	for _, h := range holds {
		h.d.table.mu.Lock()
		h.stays = 0
		h.d.table.mu.Unlock()
	}
}

// giveBackNow begins the deletions of a released hold.
func (d *lockData) giveBackNow() [2]*nodes.Deletion {
	d.e.LetGo(d, d.held...) // no heartbeat may miss a node
	return d.giveBack(d.held)
}

// giveBack begins the deletions that a released hold waits for. The second of a pair waits for none: its node stays until the first is
// released, too.
func (d *lockData) giveBack(held []string) (xs [2]*nodes.Deletion) {
	if p := d.pair; p != nil && p.first != d {
		xs[0] = d.leavePair(nil)
		return xs
	}
	xs[0] = d.root.release(d.e, held, d.pair != nil, d.record)
	if d.leaves != nil {
		xs[1] = <-d.leaves
		return xs
	}
	xs[1] = d.leavePair(xs[0])
	return xs
}
