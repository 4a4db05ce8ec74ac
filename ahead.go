package zklock

import (
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// blocker is a node whose end an attempt waits for. One of them is set, until what was told is taken.
type blocker struct {
	on   *watch
	told *nodes.Waiter // if the node is of the same session, and no watch is needed
}

// path returns the node's path, "" if what was told is taken.
func (m blocker) path() string {
	switch {
	case m.told != nil:
		return m.told.Ahead
	case m.on != nil:
		return m.on.path
	}
	return ""
}

// who says who made the node, "" if nobody has read it.
func (m blocker) who() string {
	if m.on == nil || !m.on.isArmed() || m.on.err != nil {
		return ""
	}
	return whoIs(m.on.path, m.on.data, m.on.stat)
}

// hasEnded says whether it has told something, or never will.
func (m blocker) hasEnded() bool {
	switch {
	case m.told != nil:
		return len(m.told.Told) > 0
	case m.on != nil:
		return m.on.hasFired() || m.on.hasFailed()
	}
	return true
}

// ends returns what tells of the node's end; one of them is nil.
func (m blocker) ends() (fired <-chan struct{}, told <-chan queue.Handoff) {
	if m.told != nil {
		return nil, m.told.Told
	}
	return m.on.fired, nil
}

// stopWatching ends the wait for the node's end.
func (m blocker) stopWatching(e *zkSession) {
	if m.told != nil {
		e.nodes.Leave(m.told)
	}
	e.watches.leave(m.on)
}

// positionOf returns the position of a node that is behind in the queue of a lock root, "" if it is not made yet.
func positionOf(e *zkSession, root *lockRoot, node string, p queue.Position) position {
	at := position{node: node, place: p.Ahead + 1, predecessor: root.path + "/" + p.Predecessor, holds: p.Holds}
	if e.IsHeld(at.predecessor) {
		at.who = ourselves
	}
	return at
}

// ourselves is who holds if a hold of this Session does.
const ourselves = "another owner in this Session"

// whoIs says who made a node: by its data, mostly host and pid, by its session, and by since when it is queued.
func whoIs(node string, data []byte, stat wire.Stat) string {
	who := string(data[:min(len(data), maxShown)])
	if who == "" {
		who = nameOf(node)
	}
	who = shown(who)
	if stat.EphemeralOwner != 0 {
		who += fmt.Sprintf(", session %#x", uint64(stat.EphemeralOwner))
	} else {
		who += ", not ephemeral: it stays until it is deleted (zklock delete)"
	}
	return who + ", queued since " + time.UnixMilli(stat.Ctime).Format(time.RFC3339)
}
