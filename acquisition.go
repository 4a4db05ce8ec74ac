package zklock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// The data of one acquisition: its call, its wait and its position in the queue. acquire.go carries
// it out.

// position is an acquisition's position behind other nodes in the queue, as last listed. The zero
// value means that the acquisition has not been behind a node yet.
type position struct {
	node        string      // our node, absolute
	rank        int         // in the queue, counted from 1
	predecessor string      // absolute
	holds       bool        // the predecessor's client holds the lock
	read        *node.Watch // the watch that reads the predecessor; nil for none
	blockerText string      // describes the predecessor's client, or the holder, if that is known otherwise
	until       time.Time   // no client is granted before, and no node blocks ours; zero if that is not the reason for the wait
	why         string      // for people: what delays the grant apart from the blockers; "" for nothing
}

// blocker describes the client that created the predecessor, or the holder; "" if that is not
// known.
func (p position) blocker() string {
	if p.blockerText != "" || p.read == nil || !p.read.IsArmed() || p.read.Err != nil {
		return p.blockerText
	}
	return whoIs(p.read.Path, p.read.Data, p.read.Stat)
}

// holder describes the client that holds the lock; "" if that is not known.
func (p position) holder() string {
	if p.holds {
		return p.blocker()
	}
	return ""
}

// waits reports whether the acquisition waits for a reason that a server has reported.
func (p position) waits() bool { return p.rank > 0 }

// firstWaitLog is the duration after which a wait is logged. The wait is logged again each time its
// duration has doubled.
const firstWaitLog = time.Minute

// grace is how long a call whose context has ended waits for the confirmation of its clean-up. I6
// promises half a second: a busy machine needs the rest to run the call's timer and its goroutine.
const grace = 400 * time.Millisecond

// acquisition is the part of a call that gets the lock. An owner has one acquisition at a time for
// a lock, the other share included (lockRoot.other). The owner's other calls wait until the call
// of that acquisition has its outcome or has left, and then try again.
type acquisition struct {
	link    *link.Link
	opts    *lockOptions
	d       *lockData
	ctx     context.Context // ends when the call has left, and no later than done
	cancel  context.CancelFunc
	done    chan struct{}  // closed when the acquisition has nothing left to do; the reaper may still be deleting nodes
	call    *Hold          // nil once the call has its outcome, or has left
	earlier []*acquisition // acquisitions of the same lock whose calls had left, and that had not ended, when this one began
	at      position
	first   atomic.Int32 // the position when it was first behind another node
	made    atomic.Int32 // how many nodes it has created in the queue
	newLost bool         // the last attempt has lost the transaction that creates the lock root (node.RootUse); owned by the run, like the next two
	before  recipeState  // the state of its last attempt, nil for none; owned by the goroutine that runs the acquisition
	last    link.LastError

	since   time.Time
	nextLog time.Duration    // the wait is logged when it has lasted this long; owned by the goroutine that runs the acquisition, like logNow
	logNow  <-chan time.Time // fires at that time
}

// lockOptions are the options of a lock (options.go).
type lockOptions struct {
	container bool
	acl       []wire.ACL
	name      string // of the nodes
	label     string
	limit     string // the node with a semaphore's limit
	keptRuns  int    // of Once's marks
	wrong     error  // an option's invalid argument

	// An acquisition uses these:
	data    []byte
	minHold time.Duration
	delay   time.Duration // the lock-delay; 0 for none
	revoke  func(*Hold)
}

// endLocked gives the call its outcome, unless it has left.
func (a *acquisition) endLocked(err error) {
	if a.call != nil {
		a.call.outcome <- err // does not block: buffered
		a.call = nil
	}
}

// positionOf returns the position of a node that is behind another in the queue of a lock root.
// node is "" if ours does not exist yet.
func positionOf(e *node.ZKSession, root *lockRoot, node string, p queue.Position) position {
	at := position{node: node, rank: p.Blockers + 1, predecessor: root.Path() + "/" + p.Predecessor, holds: p.Holds}
	if e.IsHeld(at.predecessor) {
		at.blockerText = ourselves
	}
	return at
}

// ourselves describes the holder if a hold of this Session has the lock.
const ourselves = "another owner in this Session"

// whoIs describes the client that created a node: by the node's data, which is usually host and
// pid, by its session, and by the time since which the node is queued.
func whoIs(path string, data []byte, stat wire.Stat) string {
	who := string(data[:min(len(data), node.MaxShown)])
	if who == "" {
		who = nameOf(path)
	}
	who = shown(who)
	if stat.EphemeralOwner != 0 {
		who += fmt.Sprintf(", session %#x", uint64(stat.EphemeralOwner))
	} else {
		who += ", not ephemeral: it stays until it is deleted (zklock delete)"
	}
	return who + ", queued since " + time.UnixMilli(stat.Ctime).Format(time.RFC3339)
}
