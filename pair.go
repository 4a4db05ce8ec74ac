package zklock

import (
	"errors"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
)

// pair is two shares of one owner in a lock, of which the second stands on the first's node: a node of its own that is made only while that
// is there, under a name that is chosen once. A transaction whose answer was lost is sent again, and "node exists" is success. It may also
// arrive late, as long as the first's node is there. So the second's node goes after the first's, and after the second was released. Its
// token is the first's.
type pair struct {
	noState
	first *lockData
	node  string // the second's, absolute

	// Guarded by the lockTable.
	byFirst bool            // the first needs it
	second  *lockData       // the share that needs it, which can be the next one before the last one has left
	after   *nodes.Deletion // of the first's node, if that is being deleted
	lost    error           // somebody has taken the second's node away: another with its name could be deleted, too
	heard   int64           // the zxid of the last message in the second's node that a hold was given
}

// leavePair removes a share from its pair. after is the deletion of the first's node; nil if that
// does not exist, or if the second leaves. If neither needs the second's node any more, leavePair
// has it deleted.
func (p *pair) leavePair(d *lockData, after *nodes.Deletion) *nodes.Deletion {
	d.table.mu.Lock()
	switch d {
	case p.first:
		p.byFirst, p.after = false, after
	case p.second:
		p.second = nil
	}
	needed := p.byFirst || p.second != nil
	d.table.mu.Unlock()
	if needed {
		return nil
	}
	return p.first.e.reaper.DeleteAfter(p.after, p.node)
}

// giveBack of the second waits for no deletion: its node stays until the first is released, too.
func (p *pair) giveBack(d *lockData) (xs [2]*nodes.Deletion) {
	if p.first != d {
		xs[0] = p.leavePair(d, nil)
		return xs
	}
	xs[0] = d.root.handOff(d.e, d.node, true, nil)
	xs[1] = p.leavePair(d, xs[0])
	return xs
}

func (p *pair) lossLocked(d *lockData) {
	if p.first != d {
		p.lost = d.lost
	}
}

// afterLoss removes the lost share, so that the other share's node is not kept for it.
func (p *pair) afterLoss(d *lockData, cause error) {
	if d.e.HasEnded() {
		return
	}
	var after *nodes.Deletion
	if p.first == d && !errors.Is(cause, link.ErrNodeGone) {
		after = d.e.reaper.Delete(d.node)
	}
	p.leavePair(d, after)
}

// isNewsLocked rejects a message that an earlier second was given: the node stays after its hold,
// with the message in it.
func (p *pair) isNewsLocked(d *lockData, written int64) bool {
	if p.first == d {
		return true
	}
	isNews := written > p.heard
	p.heard = max(p.heard, written)
	return isNews
}
