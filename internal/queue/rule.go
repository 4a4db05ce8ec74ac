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

// Rule contains the differences between the recipes that share one queue: a mutex, a writer, a
// reader. Nodes of all three are ordered by their numbers. A mutex and a writer wait for every node
// before theirs; a reader, for all except readers.
type Rule struct {
	Name    string   // the name of our nodes, before the number
	Markers []string // the name endings that take part in the queue
}

// IsShared reports whether several nodes of this rule can hold at the same time.
func (r Rule) IsShared() bool { return r.Name == ReadName }

// Blocks reports whether an earlier node blocks ours. A name that we do not recognize may be
// anything, so it blocks.
func (r Rule) Blocks(other Member) bool { return !r.IsShared() || !IsReader(other.Name) }

// IsReader reports whether a node of the queue is a reader's.
func IsReader(name string) bool { return is(name, ReadName) }

func is(name string, markers ...string) bool {
	return hasMarker(name[:max(0, len(name)-digits)], markers)
}

// staysAlone reports whether no blocker can replace a node after its deletion. A writer that also
// takes the read lock creates a reader's node with its own number, and then deletes the writer's:
// so a reader appears before waiters that have listed (R73). Mutexes, latches and readers leave no
// such node; clients that use other names may do anything.
func (r Rule) staysAlone(blocker string) bool {
	return is(blocker, MutexName, LatchName, "__lock__", ReadName) || r.IsShared() && is(blocker, WriteName)
}

// How many blockers a waiter may watch to be granted without a list. Each of them costs the waiter
// an event.
const (
	fewWriters = 4  // a reader: all readers behind a writer receive its event
	fewReaders = 16 // a mutex or a writer: mostly it alone receives a reader's event
)

// watches returns how many blockers to watch. near has the nearest ones, mostly all.
//
// If all are watched, the deletion of the last one grants. Otherwise the event of the predecessor,
// or of the farthest watched node, leads to a list. A mutex or a writer behind a few readers
// watches them and the node that they wait for: when that is deleted, it lists while they hold, and
// afterwards needs only their events. In all other positions it also watches the node before its
// predecessor: when that is deleted, ours is probably second in the queue. Readers do not: every
// reader behind a writer would list.
func (r Rule) watches(near []Member, blockers int) int {
	every := func(is func(name string) bool) bool {
		return !slices.ContainsFunc(near, func(m Member) bool { return !is(m.Name) })
	}
	switch {
	case areTied(near):
		return 1
	case r.IsShared():
		if blockers <= fewWriters && every(r.staysAlone) {
			return blockers
		}
		return 1
	case blockers <= fewReaders && every(IsReader):
		return blockers
	}
	readers := slices.IndexFunc(near, func(m Member) bool { return !IsReader(m.Name) })
	return min(blockers, max(readers, 1)+1)
}

// HandsOff reports whether a hold's release may hand off the lock (HandoffAfter). A reader may not:
// other readers may still hold. Nor may a writer that may also have taken the read lock: its
// reader's node may still exist.
func (r Rule) HandsOff(downgraded bool) bool { return !r.IsShared() && !downgraded }

// DowngradedPath returns the path of the reader's node that a writer creates beside its own: it has
// the writer's number, so every node behind the writer is behind the reader too.
func DowngradedPath(writer, id string) string {
	root := writer[:strings.LastIndexByte(writer, '/')]
	return ProtectedPath(root, id, ReadName) + writer[len(writer)-digits:]
}
