package zklock

import (
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
)

// ahead is a node whose end an attempt waits for. One of them is set, until what was told is taken.
type ahead struct {
	on   *watch
	told *nodes.Waiter // if the node is of the same session, and no watch is needed
}

// isOf says whether it tells of the end of the node at path.
func (m ahead) isOf(path string) bool {
	return m.on != nil && m.on.path == path || m.told != nil && m.told.Ahead == path
}

// isOver says whether it has told something, or never will.
func (m ahead) isOver() bool {
	switch {
	case m.told != nil:
		return len(m.told.Told) > 0
	case m.on != nil:
		return m.on.hasFired() || m.on.hasFailed()
	}
	return true
}

// ends returns what tells of the node's end; one of them is nil.
func (m ahead) ends() (fired <-chan struct{}, told <-chan queue.Turn) {
	if m.told != nil {
		return nil, m.told.Told
	}
	return m.on.fired, nil
}
