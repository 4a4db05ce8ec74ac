package zklock

import (
	"errors"
	"maps"
	"slices"
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
	if d.minHoldUntil != 0 && m.left() > 0 && d.e.Carrier.Spawn(func() { m.awaitEnd(check) }) {
		return [2]*nodes.Deletion{check}
	}
	return d.giveBackNow()
}

// minHold is a released hold whose node stays for the rest of its minimum. No caller relies on it,
// so it is not under the lease: an outage does not end the session for its sake. The heartbeat
// checks the node, so that its deletion is logged and reaches the waiters of this Session.
type minHold struct {
	d     *lockData
	ended chan error // holds one: why the node is gone, or is not checked any more
}

// Lose is for link.Holder.
func (m minHold) Lose(_ string, cause error, _ clock.Instant) (hadHandles bool) {
	m.ended <- cause
	return false
}

func (m minHold) left() time.Duration { return m.d.minHoldUntil.Sub(m.d.e.Clock.Now()) }

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
	e, endedEarly := m.d.e, error(nil)
	for endedEarly == nil && m.left() > 0 {
		t := time.NewTimer(m.left())
		select {
		case <-t.C:
		case why := <-m.ended:
			// Otherwise the node exists, and READ was taken from it.
			if errors.Is(why, link.ErrNodeGone) || e.HasEnded() {
				endedEarly = why
			}
		case <-e.Ended():
			endedEarly = e.Cause()
		}
		t.Stop()
	}
	if endedEarly != nil && !errors.Is(endedEarly, ErrClosed) {
		e.Log.Warn("zklock: minimum hold ended early", append(m.d.attrs(), "reason", endedEarly, "until", e.Clock.Wall(m.d.minHoldUntil))...)
	}
	return endedEarly == nil
}

// unused has the nodes deleted at once when the holds are released: nothing ran under them.
func unused(holds ...*Hold) {
	for _, h := range holds {
		h.d.table.mu.Lock()
		h.minHoldUntil = 0
		h.d.table.mu.Unlock()
	}
}

// giveBackNow begins the deletions of a released hold.
func (d *lockData) giveBackNow() [2]*nodes.Deletion {
	d.e.LetGo(d, d.held...) // no heartbeat may miss a node
	return d.state.giveBack(d)
}

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

// Lose ends the hold on the node, once. A late call for a node that the acquisition has left ends nothing. Of a hold that rests on several
// nodes none is kept when one is lost.
func (d *lockData) Lose(node string, cause error, end clock.Instant) (hadHandles bool) {
	hadHandles = d.loseNode(node, cause, end)
	if !hadHandles || d.e.HasEnded() {
		return hadHandles
	}
	if len(d.held) > 1 {
		others := slices.DeleteFunc(slices.Clone(d.held), func(n string) bool { return n == node })
		d.e.LetGo(d, others...)
		d.e.reaper.DeleteAll(others)
	}
	d.table.mu.Lock()
	state := d.state
	d.table.mu.Unlock()
	state.afterLoss(d, cause)
	return true
}

// loseNode marks the hold on the node as lost, once: it ends the contexts of its handles, and logs and traces which hold was lost, when and why
// (holder). A release that finds the node gone says so itself (releasing.wait). It returns whether it did and the hold had handles. end is when the lease ends or has ended.
func (d *lockData) loseNode(node string, cause error, end clock.Instant) bool {
	d.table.mu.Lock()
	if !slices.Contains(d.held, node) || d.lost != nil || len(d.handles) == 0 && d.acquiring == nil { // of another node, told before, or released
		d.table.mu.Unlock()
		return false
	}
	d.lost, d.lostAt = d.errorf("hold", lostBecause(cause)), min(d.e.Clock.Now(), end)
	if len(d.handles) > 0 {
		d.state.lossLocked(d)
	}
	lost, closing := d.lost, []chan struct{}{d.lostCh, d.ended}
	if isClosed(d.ended) { // released before
		closing = closing[:1]
	}
	handles := slices.Collect(maps.Keys(d.handles))
	d.table.mu.Unlock()
	for _, h := range handles {
		h.ctx.cancel(lost)
	}
	for _, ch := range closing { // last: a goroutine that wakes here finds that Context and Err have ended
		close(ch)
	}
	if len(handles) > 0 {
		d.logLost(cause, end)
		d.traceLoss(lost, d.lostAt)
	}
	return len(handles) > 0
}

// logLost logs a loss, once for all its handles. Close is none for those who read the log.
func (d *lockData) logLost(cause error, end clock.Instant) {
	if !errors.Is(cause, ErrClosed) {
		d.e.Log.Warn("zklock: hold lost", append(d.attrs(), "reason", cause, "leaseEnd", d.e.Clock.Wall(end))...)
	}
}

// traceLoss traces the loss, unless it has been traced.
func (d *lockData) traceLoss(lost error, at clock.Instant) {
	if d.trace != nil {
		d.trace.lost(lost, at)
	}
}

// loseIfLate ends the hold if the lease has ended. If ZKSession.Lose is just ending the holds one by one, loseIfLate does not wait
// until that comes to this one.
func (d *lockData) loseIfLate() {
	d.e.LoseIfLate(d.e.Clock.Now())
	if d.e.HasEnded() {
		d.loseNode(d.node, d.e.Cause(), d.e.LeaseEnd())
	}
}
