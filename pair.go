package zklock

import (
	"errors"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
)

// How the shares of a pair end.

// leavePair takes a share from its pair, if there is one. after is the deletion of the first's node, nil if that is gone or it is the second
// that leaves. If neither needs the second's node any more, leavePair has it deleted.
func (d *lockData) leavePair(after *nodes.Deletion) *nodes.Deletion {
	d.table.mu.Lock()
	p := d.pair
	if p == nil {
		d.table.mu.Unlock()
		return nil
	}
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
	return p.first.e.reaper.EraseAfter(p.after, p.node)
}

// losePair is for a hold that was lost while its session may go on: the other's node must not go on for its sake.
func (d *lockData) losePair(cause error) {
	if d.e.IsOver() {
		return
	}
	d.table.mu.Lock()
	p := d.pair
	d.table.mu.Unlock()
	if p == nil {
		return
	}
	var after *nodes.Deletion
	if p.first == d && !errors.Is(cause, link.ErrNodeGone) {
		after = d.e.reaper.Erase(d.node)
	}
	d.leavePair(after)
}
