package zklock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// hangUps counts in a row how often servers have ended the connection in place of an answer to a long request.
type hangUps int

// count takes the fate of one more such request. It returns an error when there have been three in a row: servers do that to requests above
// their jute.maxbuffer, without a word. Others may take it. The link counts requests of a kind that servers do not know.
func (n *hangUps) count(a mux.Reply) error {
	if a.Why != nil {
		return a.Why
	}
	if *n++; a.HungUpOn <= link.LongRequest {
		*n = 0
	}
	if *n < 3 {
		return nil
	}
	return fmt.Errorf("%w: %d times in a row, over a request of %d bytes, which is perhaps longer than the servers' jute.maxbuffer: give less data, or raise that", zk.ErrConnectionClosed, int(*n), a.HungUpOn)
}

// position is where an acquisition stands behind others, as last listed. The zero value says that it has not stood there yet.
type position struct {
	node        string    // ours, absolute
	rank        int       // in the queue, from 1
	predecessor string    // absolute
	holds       bool      // who is who holds
	blockerText string    // who made the predecessor, as whoIs says it, or holds; "" if nobody has read it
	until       time.Time // until when nobody is granted, if we wait for that; nobody is ahead
	why         string    // what keeps it waiting beside those ahead, for people; "" if nothing does
}

// holder is who holds, if that is known.
func (p position) holder() string {
	if p.holds {
		return p.blockerText
	}
	return ""
}

// waits says whether it does not have the lock for a reason that a server has given.
func (p position) waits() bool { return p.rank > 0 }

// firstWaitLog is after how long a wait is logged. It is logged again each time that it has lasted twice as long.
const firstWaitLog = time.Minute

// grace is how long a call whose context has ended waits for its clean-up to be confirmed. I6 promises half a second: a busy machine needs
// the rest to run the call's timer and its goroutine.
const grace = 400 * time.Millisecond

// acquisition is a call's way to a lock. An owner has one at a time for a lock, its other share included (recipe.otherShare): its other
// calls wait until that one's call has its outcome or has left, and look again.
type acquisition struct {
	link   *link.Link
	opts   *nodeOptions
	d      *lockData
	ctx    context.Context // ends when the call has left, at the latest with done
	cancel context.CancelFunc
	done   chan struct{}  // closed when nothing is left to do, except for the reaper
	call   *Hold          // nil when it has its outcome, or has left
	left   []*acquisition // of the same lock, that were left before this one began and had not ended
	at     position
	first  atomic.Int32 // the place when it first stood behind somebody
	made   atomic.Int32 // how many nodes it has made in the queue
	before recipeState  // of its last attempt, nil for none; for the goroutine that carries it out
	last   link.LastError

	since   time.Time
	nextLog time.Duration    // how long the wait has lasted when it is logged next; as logNow, for the goroutine that carries it out
	logNow  <-chan time.Time // fires then
}

// nodeOptions are those of a Mutex's options that an acquisition goes by.
type nodeOptions struct {
	data    []byte
	minHold time.Duration
	revoke  func(*Hold)
}

// caller identifies the caller of an acquire by its context. Each call looks it up once.
type caller struct {
	owner Owner        // set with WithOwner; zero if none is set
	under [2]*lockData // the holds of this lock and its other share, through this Session; nil for none
	inner *Hold        // the innermost hold of the lock's path, through any Session; nil for none
	wait  multiWait    // the wait of the Multi that makes the call
}

// isKnown reports whether the context identifies the owner, who may have the lock already.
func (c caller) isKnown() bool { return c.owner != (Owner{}) || c.under != [2]*lockData{} }

// endLocked gives the call its outcome, unless it has left.
func (a *acquisition) endLocked(err error) {
	if a.call != nil {
		a.call.outcome <- err // has room
		a.call = nil
	}
}

// waitKey finds in a context what a Multi tells the locks that it calls (multiWait). Acquire takes a context alone, and the end of that would
// say something else. No context of a hold has it.
type waitKey struct{}

// multiWait is a Multi's wait for one of its locks.
type multiWait struct {
	path  string    // of the lock, absolute: a wrapper's method may take others with that context
	until time.Time // until when it may wait, zero for ever
	multi string    // what the Multi is called in traces
}

// waitIn returns the Multi's wait that the context carries for the lock; the zero one if it carries none.
func waitIn(ctx context.Context, path string) multiWait {
	if w, _ := ctx.Value(waitKey{}).(multiWait); w.path == path {
		return w
	}
	return multiWait{}
}

// left returns how long the call may wait.
func (w multiWait) left() time.Duration {
	if w.until.IsZero() {
		return forever
	}
	return max(time.Until(w.until), 1) // 0 would be a try
}

// positionOf returns the position of a node that is behind in the queue of a lock root, "" if it is not made yet.
func positionOf(e *zkSession, root *lockRoot, node string, p queue.Position) position {
	at := position{node: node, rank: p.Ahead + 1, predecessor: root.path + "/" + p.Predecessor, holds: p.Holds}
	if e.IsHeld(at.predecessor) {
		at.blockerText = ourselves
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
