package zklock

import (
	"errors"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
)

// What the release of a hold has deleted, and when. hold.go waits for it.

// letGo begins the deletions of a released hold, or has its node stay as long as its minimum
// lasts. Then the release waits for a check that the node is there.
func (d *lockData) letGo() [2]*nodes.Deletion {
	m := minHold{d, make(chan error, 1)}
	check := &nodes.Deletion{Done: make(chan struct{})}
	if d.stays != 0 && m.left() > 0 && d.e.Carrier.Spawn(func() { m.awaitEnd(check) }) {
		return [2]*nodes.Deletion{check}
	}
	return d.giveBackNow()
}

// minHold is a released hold whose node stays for the rest of its minimum. No caller relies on it,
// so it is not under the lease: an outage does not end the session for its sake. The heartbeat
// checks the node, so that its deletion is logged and reaches the waiters of this Session.
type minHold struct {
	d    *lockData
	gone chan error // holds one: why the node is gone, or is not checked any more
}

// Lose is for link.Holder.
func (m minHold) Lose(_ string, cause error, _ clock.Instant) (told bool) {
	m.gone <- cause
	return false
}

func (m minHold) left() time.Duration { return m.d.stays.Sub(m.d.e.Clock.Now()) }

// awaitEnd checks that the node is there, waits for the end of the minimum, and deletes the node. The
// check takes the place of a deletion that leaves the node. It takes back the record that a
// lock-delay needs, too.
func (m minHold) awaitEnd(check *nodes.Deletion) {
	e, node := m.d.e, m.d.node
	e.Keep(node, m)
	check.Err = e.reaper.TakeBack(node, m.d.state.record())
	check.OK = check.Err == nil
	close(check.Done)
	if !check.OK || m.lasts() {
		e.LetGo(m, node)
		m.d.giveBackNow()
	}
}

// lasts waits for the end of the minimum. It returns false, and logs that, if the node is gone
// before. Close is no loss for readers of the log.
func (m minHold) lasts() bool {
	e, gone := m.d.e, error(nil)
	for gone == nil && m.left() > 0 {
		t := time.NewTimer(m.left())
		select {
		case <-t.C:
		case why := <-m.gone:
			// Otherwise the node exists, and READ was taken from it.
			if errors.Is(why, link.ErrNodeGone) || e.HasEnded() {
				gone = why
			}
		case <-e.Ended():
			gone = e.Cause()
		}
		t.Stop()
	}
	if gone != nil && !errors.Is(gone, ErrClosed) {
		e.Log.Warn("zklock: minimum hold ended early", append(m.d.attrs(), "reason", gone, "until", e.Clock.Wall(m.d.stays))...)
	}
	return gone == nil
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
	return d.state.giveBack(d)
}

// noState is the state of a recipe that keeps no data. A hold of the recipe is its node in the
// queue. States with data embed noState.
type noState struct{}

func (noState) record() *nodes.GrantRecord { return nil }

func (noState) deleteNodes(root *lockRoot, of *grantBasis) (*nodes.Deletion, <-chan error) {
	return root.deleteNode(of.e, of.state.record(), of.node, of.held...)
}

func (noState) giveBack(d *lockData) [2]*nodes.Deletion {
	return [2]*nodes.Deletion{d.root.handOff(d.e, d.node, false, d.state.record())}
}

func (noState) lossLocked(*lockData) {}

func (noState) afterLoss(*lockData, error) {}

func (noState) isNewsLocked(*lockData, int64) bool { return true }
