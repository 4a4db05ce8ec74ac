package queue

import (
	"slices"
	"strings"
)

// The names of lock nodes, before the number. They are Curator's.
const (
	MutexName = "lock-"    // of a mutex, of Curator's LeaderSelector, and of go-zookeeper's lock
	LatchName = "latch-"   // of Curator's LeaderLatch
	ReadName  = "__READ__" // of a reader
	WriteName = "__WRIT__" // of a writer
)

// Rule is all that differs between the recipes that stand in one queue: a mutex, a writer, a reader. Nodes of all three are ordered
// by their numbers. A mutex and a writer wait for everybody ahead; a reader, for all but readers.
type Rule struct {
	Name    string   // how our nodes are called, before the number
	Markers []string // the name endings that take part in the queue
}

// IsShared says whether nodes of this rule hold beside each other.
func (r Rule) IsShared() bool { return r.Name == ReadName }

// Blocks says whether a node ahead keeps ours waiting. A name that we do not know may be anything, so it blocks.
func (r Rule) Blocks(ahead Member) bool { return !r.IsShared() || !IsReader(ahead.Name) }

// IsReader says whether a node of the queue is a reader's.
func IsReader(name string) bool { return is(name, ReadName) }

func is(name string, markers ...string) bool {
	return hasMarker(name[:max(0, len(name)-digits)], markers)
}

// staysAlone says whether nothing that blocks comes after a node in its place. A writer that takes the read lock, too, makes a
// reader's node with its own number, and then deletes the writer's: so a reader appears ahead of waiters that have listed (R73).
// Mutexes, latches and readers leave no such node, and what clients of other names do nobody knows.
func (r Rule) staysAlone(ahead string) bool {
	return is(ahead, MutexName, LatchName, "__lock__", ReadName) || r.IsShared() && is(ahead, WriteName)
}

// How many nodes ahead a waiter watches to be granted without a list. Each of them costs the waiter an event.
const (
	fewWriters = 4  // a reader: all behind a writer have its event
	fewReaders = 16 // a mutex or a writer: mostly it alone has a reader's event
)

// watches says how many of the nodes ahead are watched. near has the nearest ones, mostly all.
//
// If all are watched, the deletion of the last one grants. Otherwise the event of the predecessor, or of the farthest one that is watched,
// leads to a list. A mutex or a writer behind a few readers watches those and the node that they wait for: when that goes, it lists while they
// hold, and then needs no more than their events. In other places it watches the next node but one, too: when that goes, it is probably second in line.
// Readers do not: each behind a writer would list.
func (r Rule) watches(near []Member, ahead int) int {
	every := func(is func(name string) bool) bool {
		return !slices.ContainsFunc(near, func(m Member) bool { return !is(m.Name) })
	}
	switch {
	case areTied(near):
		return 1
	case r.IsShared():
		if ahead <= fewWriters && every(r.staysAlone) {
			return ahead
		}
		return 1
	case ahead <= fewReaders && every(IsReader):
		return ahead
	}
	readers := slices.IndexFunc(near, func(m Member) bool { return !IsReader(m.Name) })
	return min(ahead, max(readers, 1)+1)
}

// PassesTurn says whether a hold's release may pass the turn (TurnAfter). A reader may not: others may read on. Nor may a writer
// that may have taken the read lock, too: its reader's node may still be there.
func (r Rule) PassesTurn(downgraded bool) bool { return !r.IsShared() && !downgraded }

// DowngradedPath returns the path of the reader's node that a writer makes beside its own: with the writer's number, so that
// whoever stands behind the writer stands behind the reader too.
func DowngradedPath(writer, id string) string {
	root := writer[:strings.LastIndexByte(writer, '/')]
	return ProtectedPath(root, id, ReadName) + writer[len(writer)-digits:]
}
