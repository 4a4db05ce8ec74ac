package zklock

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/reply"
)

// The end of a hold: the nodes that its release deletes and when, and its loss. hold.go waits for
// the deletions.

// letGo returns the deletions of a released hold, which the caller begins. If a minimum hold time
// remains, letGo keeps the node until its end, and the release waits for a check that the node
// exists.
func (d *lockData) letGo() [2]*node.Deletion {
	if d.minHoldUntil == 0 {
		return d.giveBackNow()
	}
	m := minHold{d, make(chan error, 1)}
	check := &node.Deletion{Done: make(chan struct{}), Refused: make(chan struct{})}
	if m.remaining() > 0 && d.e.Carrier.Spawn(func() { m.awaitEnd(check) }) {
		return [2]*node.Deletion{check}
	}
	return d.giveBackNow()
}

// minHold is a released hold whose node remains until the end of its minimum hold time. No caller
// relies on the hold, so it is not under the lease: an outage does not end the session because of
// it. The heartbeat checks the node, so that its deletion is logged and the waiters of this Session
// are notified.
type minHold struct {
	d     *lockData
	ended chan error // buffered: holds the reason why the node was deleted or is no longer checked
}

// Lose implements link.Holder.
func (m minHold) Lose(_ string, cause error, _ clock.Instant) (hadHandles bool) {
	m.ended <- cause
	return false
}

func (m minHold) remaining() time.Duration { return m.d.minHoldUntil.Sub(m.d.e.Clock.Now()) }

// awaitEnd checks that the node exists, waits for the end of the minimum, and deletes the node. The
// release waits for the check instead of a deletion. The check also takes back the record that a
// lock-delay needs. If the servers reject the check, the node probably exists, so it stays, too.
func (m minHold) awaitEnd(check *node.Deletion) {
	e, node := m.d.e, m.d.node
	e.Keep(node, m)
	err := e.Reaper.TakeBack(node, m.d.record)
	isGone := errors.Is(err, zk.ErrNoNode)
	if reply.IsRefusal(err) && !isGone {
		check.Refusal = err
		close(check.Refused)
	} else {
		check.Err = err
		close(check.Done)
	}
	if isGone || m.lasts() {
		e.LetGo(m, node)
		xs := m.d.giveBackNow()
		e.Reaper.Begin(xs[:]...)
	}
}

// lasts waits for the end of the minimum. If the node is deleted earlier, lasts logs that and
// returns false. Close is not logged, because readers of the log do not count it as a loss.
func (m minHold) lasts() bool {
	e, endedEarly := m.d.e, error(nil)
	for endedEarly == nil && m.remaining() > 0 {
		select {
		case <-time.After(m.remaining()):
		case why := <-m.ended:
			// With any other reason the node exists, and its READ permission was removed.
			if errors.Is(why, link.ErrNodeGone) || e.HasEnded() {
				endedEarly = why
			}
		case <-e.Ended():
			endedEarly = e.Cause()
		}
	}
	if endedEarly != nil && !errors.Is(endedEarly, ErrClosed) {
		e.Log.Warn("zklock: minimum hold ended early", append(m.d.attrs(), "reason", endedEarly, "until", e.Clock.Wall(m.d.minHoldUntil))...)
	}
	return endedEarly == nil
}

// cancelMinHold cancels the minimum hold time of holds under which nothing ran, so that their nodes
// are deleted immediately on release.
func cancelMinHold(holds ...*Hold) {
	for _, h := range holds {
		h.d.table.mu.Lock()
		h.minHoldUntil = 0
		h.d.table.mu.Unlock()
	}
}

// giveBackNow is letGo without a minimum hold time.
func (d *lockData) giveBackNow() [2]*node.Deletion {
	d.e.LetGo(d, d.held...) // first, so that no heartbeat misses a node
	return d.state.giveBack(d)
}

// recipeState is the data that a recipe keeps for a node: first during the attempt, then with the
// hold. The engine stores the data and does not read it. It calls the methods when the nodes have
// to be deleted, and when the hold is lost. A recipe without data has noState.
type recipeState interface {
	// giveBack returns the deletions that the hold's release waits for, which the caller begins; the
	// second may be nil.
	giveBack(d *lockData) [2]*node.Deletion
	// afterLoss is called when the hold was lost while its ZooKeeper session continues, after its
	// handles were notified.
	afterLoss(d *lockData, cause error)
}

// noState is the state of a recipe that keeps no data. A hold of the recipe is its node in the
// queue. States with data embed noState.
type noState struct{}

func (noState) giveBack(d *lockData) [2]*node.Deletion {
	return [2]*node.Deletion{d.root.HandOff(d.e, d.node, false, d.madeRoot, d.record)}
}

func (noState) afterLoss(*lockData, error) {}

// Lose ends the hold on the node, once. A late call for a node that the acquisition no longer uses
// has no effect. If a hold rests on several nodes and one is lost, the remaining ones are deleted.
func (d *lockData) Lose(node string, cause error, end clock.Instant) (hadHandles bool) {
	hadHandles = d.loseNode(node, cause, end)
	if !hadHandles || d.e.HasEnded() {
		return hadHandles
	}
	if len(d.held) > 1 {
		others := slices.DeleteFunc(slices.Clone(d.held), func(n string) bool { return n == node })
		d.e.LetGo(d, others...)
		d.e.Reaper.Begin(d.e.Reaper.ToDelete(others...))
	}
	d.table.mu.Lock()
	state := d.state
	d.table.mu.Unlock()
	state.afterLoss(d, cause)
	return true
}

// loseNode marks the hold on the node as lost, once: it ends the contexts of its handles, and logs
// and traces which hold was lost, when and why. A release that finds the node deleted
// reports that itself (releasing.wait). loseNode reports whether it ended a hold that had handles.
// end is when the lease ends or has ended.
func (d *lockData) loseNode(node string, cause error, end clock.Instant) bool {
	d.table.mu.Lock()
	// The node is another hold's, the loss was reported before, or the hold was released.
	if !slices.Contains(d.held, node) || d.lost != nil || len(d.handles) == 0 && d.acquiring == nil {
		d.table.mu.Unlock()
		return false
	}
	d.lost, d.lostAt = d.errorf("hold", lostBecause(cause)), min(d.e.Clock.Now(), end)
	lost, lostCh, ended := d.lost, d.lostCh, d.ended
	handles := slices.Collect(maps.Keys(d.handles))
	d.table.mu.Unlock()
	if errors.Is(cause, link.ErrNodeGone) { // the caller's next acquire may need the capacity (WithMaxLockNodes)
		d.e.Own.Gone(node)
	}
	for _, h := range handles {
		h.ctx.cancel(lost)
	}
	close(lostCh) // last: a goroutine that wakes here finds that Context and Err have ended
	close(ended)
	if len(handles) > 0 {
		d.logLost(cause, end)
		d.traceLoss(lost, d.lostAt)
	}
	return len(handles) > 0
}

// logLost logs a loss, once for all handles of the hold. Close is not logged, because readers of
// the log do not count it as a loss.
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

// loseIfLate ends the hold if the lease has ended. If ZKSession.Lose is ending the holds one by
// one, loseIfLate does not wait until that reaches this hold.
func (d *lockData) loseIfLate() {
	d.e.LoseIfLate(d.e.Clock.Now())
	if d.e.HasEnded() {
		d.loseNode(d.node, d.e.Cause(), d.e.LeaseEnd())
	}
}
