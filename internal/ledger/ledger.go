// Package ledger checks from outside which clients believe that they hold which lock. No client may
// get a lock while another believes that it holds it (I5), and tokens must increase (I1). Readers,
// which the names of their nodes identify, may hold together, and alongside the writer whose token
// they have. Tests that attack the lock with faults report to it.
package ledger

import (
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/queue"
)

// Hold is the part of a *zklock.Hold that the ledger uses.
type Hold interface {
	Err() error
	Token() int64
	Node() string
	Deadline() time.Time
}

// Ledger is notified of each grant after Acquire has returned, and of each end before Release is
// called. So a belief that it records lies within the real one. It is safe for use by several
// goroutines.
//
// An admin may delete a lock node or end a session. That is outside the assumptions of I5: the
// holder is notified afterwards. The ledger is notified beforehand, and excuses those holds and no
// others.
type Ledger struct {
	errorf func(format string, args ...any)

	mu struct {
		sync.Mutex
		held    map[string]belief    // by lock path: the last grant, until its end
		readers map[string][]belief  // by lock path: those granted since the last exclusive grant
		tokens  map[string]int64     // by lock path: the largest granted
		alone   map[string]int64     // by lock path: the largest of an exclusive grant
		latest  map[string]time.Time // by lock path: the last grant
		deleted map[string]bool      // by node: an admin deletes it
		killed  map[string]kills     // by client: an admin ends its sessions
		paused  map[string][]belief  // by paused client: its holds during which another client was granted
		grants  int
	}
}

type belief struct {
	client string
	hold   Hold
}

// kills are the ends of a client's ZooKeeper sessions by an admin.
type kills struct {
	underWay int
	before   int64 // nodes with a smaller czxid were deleted with a killed session, or before it
}

// New returns a ledger that reports violations to errorf.
func New(errorf func(format string, args ...any)) *Ledger {
	l := &Ledger{errorf: errorf}
	l.mu.held = make(map[string]belief)
	l.mu.readers = make(map[string][]belief)
	l.mu.tokens, l.mu.alone = make(map[string]int64), make(map[string]int64)
	l.mu.latest = make(map[string]time.Time)
	l.mu.deleted = make(map[string]bool)
	l.mu.killed, l.mu.paused = make(map[string]kills), make(map[string][]belief)
	return l
}

// Granted checks a new hold of a client, and reports whether it still believes.
func (l *Ledger) Granted(lock, client string, h Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.grants++
	if h.Err() != nil {
		return false // the holder checks before it acts, and so notices that the lock was lost meanwhile
	}
	shared, atLeast, others := queue.IsReader(h.Node()), l.mu.tokens[lock]+1, append(slices.Clone(l.mu.readers[lock]), l.mu.held[lock])
	if shared {
		atLeast, others = l.mu.alone[lock], []belief{l.mu.held[lock]}
	}
	if h.Token() < atLeast {
		if l.excusedLocked(client, h) {
			return true // it held before the present holder, whose Acquire returned first
		}
		l.errorf("I1: %s: token %d, and not %d or more", lock, h.Token(), atLeast)
	} else {
		for _, old := range others {
			if old.hold == nil || shared && old.hold.Token() == h.Token() { // a writer that reads has one token
				continue
			}
			if overtaken, still := l.mu.paused[old.client]; still {
				l.mu.paused[old.client] = append(overtaken, old)
				continue
			}
			if old.hold.Err() == nil && !l.excusedLocked(old.client, old.hold) { // Err compares the clock
				l.errorf("I5: %s granted with token %d while the holder of token %d believes that it holds, for another %v", lock, h.Token(), old.hold.Token(),
					time.Until(old.hold.Deadline()))
			}
		}
	}
	l.mu.tokens[lock], l.mu.latest[lock] = max(l.mu.tokens[lock], h.Token()), time.Now()
	if shared {
		l.mu.readers[lock] = append(l.mu.readers[lock], belief{client, h})
		return true
	}
	l.mu.held[lock], l.mu.alone[lock] = belief{client, h}, h.Token()
	delete(l.mu.readers, lock)
	return true
}

// Ended records that the holder no longer believes.
func (l *Ledger) Ended(lock string, h Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.held[lock].hold == h {
		delete(l.mu.held, lock)
	}
	l.mu.readers[lock] = slices.DeleteFunc(l.mu.readers[lock], func(b belief) bool { return b.hold == h })
}

// Deleting records that an admin is about to delete a lock node.
func (l *Ledger) Deleting(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.deleted[node] = true
}

// Killing records that an admin is about to end the client's ZooKeeper session. It returns a
// function: call that when the session has ended, with a zxid that the servers assigned afterwards.
func (l *Ledger) Killing(client string) (killed func(zxid int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.killed[client]
	k.underWay++
	l.mu.killed[client] = k
	return func(zxid int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		k := l.mu.killed[client]
		k.underWay--
		k.before = max(k.before, zxid)
		l.mu.killed[client] = k
	}
}

// Pausing records that a client is paused, and its clock, too: it does not act on its holds. When
// the client continues, and before it receives anything, call the returned function. That makes the
// first check (F18): if another client was granted meanwhile, the hold must show its loss. It
// returns how many did.
func (l *Ledger) Pausing(client string) (resumed func() (firstLooks int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.paused[client] = nil
	return func() (firstLooks int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		overtaken := l.mu.paused[client]
		delete(l.mu.paused, client)
		for _, old := range overtaken {
			switch {
			case old.hold.Err() != nil:
				firstLooks++
			case !l.excusedLocked(old.client, old.hold):
				l.errorf("I5: %s was paused and believes in token %d, for another %v, although another was granted meanwhile", client, old.hold.Token(),
					time.Until(old.hold.Deadline()))
			}
		}
		return firstLooks
	}
}

func (l *Ledger) excusedLocked(client string, h Hold) bool {
	k := l.mu.killed[client]
	return k.underWay > 0 || h.Token() < k.before || l.mu.deleted[h.Node()]
}

// Grants returns the number of grants.
func (l *Ledger) Grants() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.grants
}

// Latest returns when the lock was last granted, or the zero time.
func (l *Ledger) Latest(lock string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.latest[lock]
}

// LargestToken returns the largest token granted for the lock.
func (l *Ledger) LargestToken(lock string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.tokens[lock]
}
