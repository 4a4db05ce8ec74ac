package zklock

import (
	"errors"
	"maps"
	"slices"

	"github.com/zklock/zklock/internal/clock"
)

// A hold that ends without a release: its lease has ended, its session, or its node is gone.

// Lose ends the hold on the node, once. A late call for a node that the acquisition has left ends nothing. Of a hold that rests on several
// nodes none is kept when one is lost.
func (d *lockData) Lose(node string, cause error, end clock.Instant) (told bool) {
	told = d.loseNode(node, cause, end)
	if !told || d.e.HasEnded() {
		return told
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
	lost, tell := d.lost, []chan struct{}{d.lostCh, d.ended}
	if isClosed(d.ended) { // released before
		tell = tell[:1]
	}
	handles := slices.Collect(maps.Keys(d.handles))
	d.table.mu.Unlock()
	for _, h := range handles {
		h.ctx.cancel(lost)
	}
	for _, ch := range tell { // last: a goroutine that wakes here finds that Context and Err have ended
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
