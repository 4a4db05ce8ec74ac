package zklock

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// era is one ZooKeeper session, from its connect response until it is over: its lease, the locks held in it, its watches and
// lists, and the nodes it still has to delete. A Session goes through one era after the other. Nothing of one era is used in
// the next: leases, grants and watches belong to one ZooKeeper session id (I3).
type era struct {
	*zkSession
	*lister
	*reaper
	*watcher
	*beats
	nodes    *ownNodes
	clock    *clock.Clock
	password secret
	attempts atomic.Int32 // under way in this session

	mu struct {
		sync.Mutex // never held across a channel, a callback or a ZooKeeper call
		lease      lease
		heard      clock.Instant     // when its server last answered
		server     string            // which that is
		hangUps    int               // once it is over: how often a server hung up when asked to end the session
		held       map[string]holder // by node: what the heartbeat checks and the lease protects
	}
}

// holder is who holds under the lease.
type holder interface {
	// lose tells the holder that the hold on the node is lost; end is when its lease would have ended. It returns whether it
	// had anybody to tell.
	lose(node string, cause error, end clock.Instant) (told bool)
}

func newEra(z *zkSession, clk *clock.Clock, mode LeaseMode, maxLockNodes int, r tap.Response, server string, conn uint64, shook exchange) *era {
	e := &era{zkSession: z, clock: clk, password: newSecret(r.Password)}
	z.id, z.timeout, z.over = r.SessionID, e.sessionTimeout, make(chan struct{})
	e.lister = newLister(z)
	e.nodes = newOwnNodes(maxLockNodes)
	e.reaper = newReaper(z, e.lister, e.nodes)
	e.watcher = newWatcher(z, e.nodes)
	e.beats = &beats{z: z, holds: e}
	e.mu.lease.mode = mode
	e.mu.lease.attached(conn, shook, r.Timeout, true)
	e.mu.heard, e.mu.server = shook.answered, server
	e.mu.held = make(map[string]holder)
	return e
}

// reattach notes that the same ZooKeeper session goes on over a new connection.
func (e *era) reattach(server string, conn uint64, shook exchange, timeout time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.lease.attached(conn, shook, timeout, false)
	e.mu.heard, e.mu.server = max(e.mu.heard, shook.answered), server
	e.hurry(len(e.mu.held) > 0) // holds are kept on a quorum check, not on the reconnect
}

// nodeEvent is an event of a node, in the order in which the server sent them.
func (e *era) nodeEvent(ev wire.WatcherEvent) {
	e.fire(ev)
	if ev.Type == wire.EventDeleted {
		e.loseNode(ev.Path, errNodeGone) // if it is held: somebody else deleted it (F24)
	}
}

func (e *era) answered(conn uint64, f exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.lease.answered(conn, f)
	e.mu.heard = max(e.mu.heard, f.answered)
}

// quorum renews the lease, unless it has already ended over a hold. A process that was paused past the end sees the loss at
// its first look, even if an answer was waiting in the socket.
func (e *era) quorum(conn uint64, sent clock.Instant) {
	e.loseIfLate(e.clock.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isOver() {
		e.mu.lease.quorum(conn, sent)
	}
}

func (e *era) sessionTimeout() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.lease.timeout
}

// overdue says whether the session should be over by now: no server has answered in it, and nobody has asked after it, for
// two session timeouts.
func (e *era) overdue(now, asked clock.Instant) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.isOver() && now.Sub(max(e.mu.heard, asked)) > 2*e.mu.lease.timeout
}

func (e *era) leaseEnd() clock.Instant {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.lease.end
}

// maxHangUps is how many servers must hang up on the request to end a session until that counts as a refusal.
const maxHangUps = 3

func (e *era) noteHangUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.hangUps++
}

// leftToExpire says that no server will end the session for us.
func (e *era) leftToExpire() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.hangUps >= maxHangUps
}

// plan is what the loop plans by. busy says whether anybody may wait for an answer: in an attempt, or for a node to be deleted.
func (e *era) plan() (held, queued int, busy bool, end clock.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.mu.held), e.queued(), e.attempts.Load() > 0 || e.isErasing(), e.mu.lease.end
}

// loseIfLate compares the clock with the lease, and ends the era if something is held past its end. Every question whether a
// hold stands calls it first: after a pause, no timer needs to have run (F18).
func (e *era) loseIfLate(now clock.Instant) {
	e.mu.Lock()
	var late error
	if !e.isOver() && len(e.mu.held) > 0 && now >= e.mu.lease.end {
		late = e.leaseEndedLocked(now)
	}
	e.mu.Unlock()
	if late != nil {
		e.lose(late)
	}
}

// leaseEndedLocked says what let the lease end: this process stood still, no server answered, or none proved the session alive.
func (e *era) leaseEndedLocked(now clock.Instant) error {
	l, server := &e.mu.lease, e.mu.server
	ago := func(t clock.Instant) time.Duration { return now.Sub(t).Round(100 * time.Millisecond) }
	switch silent := now.Sub(e.mu.heard); {
	case now.Sub(l.end) > time.Second:
		return fmt.Errorf("%w: this process stood still, and saw the end %v too late; the last answer came from %s %v ago", errLeaseEnded, ago(l.end), server, ago(e.mu.heard))
	case silent >= l.mode.room(l.timeout):
		return fmt.Errorf("%w: no server has answered for %v, the last was %s", errLeaseEnded, ago(e.mu.heard), server)
	}
	return fmt.Errorf("%w: %s answers, but no quorum has confirmed the session for %v", errLeaseEnded, server, ago(l.end.Add(-worth(l.timeout))))
}

// lose ends the era, once: every hold in it is lost and every waiter wakes. The ZooKeeper session may still be alive at the
// servers, but Lost is final for it: the client does not attach to it again (see report.Connecting).
func (e *era) lose(cause error) {
	e.mu.Lock()
	if !e.endRequests(cause) { // under the lock: nothing is held from here on
		e.mu.Unlock()
		return
	}
	holds := maps.Clone(e.mu.held)
	clear(e.mu.held)
	end := e.mu.lease.end
	e.mu.Unlock()

	for node, h := range holds {
		h.lose(node, cause, end)
	}
	e.carrier.lost(e.zkSession, cause)
}

// loseNode ends the hold that rests on the node, if there is one, while the ZooKeeper session lives on. Unless the node is
// gone, it must be deleted. If nobody was told of the loss, the hold is just being released, or was not granted yet: then the
// release, or the attempt, deletes the node.
func (e *era) loseNode(node string, cause error) {
	e.mu.Lock()
	h, end := e.mu.held[node], e.mu.lease.end
	delete(e.mu.held, node)
	e.mu.Unlock()
	if h == nil {
		return
	}
	told := h.lose(node, cause, end)
	switch {
	case errors.Is(cause, errNodeGone):
		e.nodes.gone(node)
	case told:
		e.erase(node)
	}
}

// heldNodes returns the nodes that are held now.
func (e *era) heldNodes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.mu.held))
}

// hold puts a granted lock under the lease. It returns an error if the era is over, or if its session timeout leaves no room
// at all. It returns false without an error if the lease is too near its end: then the caller renews it and asks again.
func (e *era) hold(node string, by holder) (ok bool, err error) {
	now := e.clock.Now()
	e.loseIfLate(now)
	e.mu.Lock()
	err = e.why()
	if err == nil {
		err = e.mu.lease.mode.check(e.mu.lease.timeout) // the servers may grant less than they did to Connect
	}
	ok = err == nil && e.mu.lease.end.Sub(now) >= e.mu.lease.minRoom()
	first := ok && len(e.mu.held) == 0
	if ok {
		e.mu.held[node] = by
	}
	// While we only waited, nothing renewed the lease, and a cheap read may have gone out just now. The next beat comes a
	// whole interval after that read: too late for a lease that is near its end.
	if first && e.mu.lease.end.Sub(now) < heartbeat(e.mu.lease.timeout)+2*roundTrip {
		e.hurry(true)
	}
	e.mu.Unlock()
	if first {
		e.carrier.nudge() // the lease's timer, and a heartbeat within h
	}
	return ok, err
}

// unhold takes a lock from under the lease, before its node is deleted.
func (e *era) unhold(node string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.held, node)
}

// holds says whether the node is still held.
func (e *era) holds(node string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.held[node] != nil
}
