package zklock

import (
	"errors"
	"maps"
	"slices"

	"github.com/zklock/zklock/internal/clock"
)

// A hold that ends without a release: its lease has ended, its session, or its node is gone.

// Lose ends the hold on the node, once, and logs which hold was lost, when and why (holder). A late call for a node that the
// acquisition has left ends nothing. Of a hold that rests on several nodes none is kept when one is lost.
func (d *lockData) Lose(node string, cause error, end clock.Instant) (told bool) {
	told = d.tell(node, lostBecause(cause))
	if told && len(d.held) > 1 && !d.e.IsOver() {
		others := slices.DeleteFunc(slices.Clone(d.held), func(n string) bool { return n == node })
		d.e.LetGo(d, others...)
		d.e.reaper.EraseAll(others)
	}
	if !told || errors.Is(cause, ErrClosed) {
		return told
	}
	d.e.Log.Warn("zklock: hold lost", append(d.attrs(), "reason", cause, "leaseEnd", d.e.Clock.Wall(end))...)
	d.losePair(cause)
	return true
}

// tell marks the hold on the node as lost, once, and ends the contexts of its handles. It returns whether it had any.
func (d *lockData) tell(node string, cause error) bool {
	d.table.mu.Lock()
	if !slices.Contains(d.held, node) || d.lost != nil || len(d.handles) == 0 && d.acquiring == nil { // of another node, told before, or released
		d.table.mu.Unlock()
		return false
	}
	d.lost = d.errorf("hold", cause)
	if d.pair != nil && d.pair.first != d && len(d.handles) > 0 {
		d.pair.lost = d.lost
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
	return len(handles) > 0
}

// loseIfLate ends the hold if the lease has ended. If Era.Lose is just ending the holds one by one, loseIfLate does not wait
// until that comes to this one.
func (d *lockData) loseIfLate() {
	d.e.LoseIfLate(d.e.Clock.Now())
	if d.e.IsOver() {
		d.tell(d.node, lostBecause(d.e.Why()))
	}
}
