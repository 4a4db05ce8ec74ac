package zklock

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
)

// lockKey names an owner's share in a lock. A Session has at most one node for each (I2): two Mutexes on one path are one
// lock.
type lockKey struct {
	path  string // absolute
	share string // its name: lockRoot.share
	owner Owner
	call  *Hold // of a share that each call takes afresh (lockRoot.isFresh); otherwise nil
}

// lockTable is the per-owner map: who holds, or tries to get, which lock, how often.
type lockTable struct {
	mu    invariants.Mutex // guards all below, and every lockData, acquisition and handle in it; never held across a channel that blocks, a user's callback or a ZooKeeper call
	byKey map[lockKey]*lockData
	left  []*acquisition // that their calls have left, and that still have something to do
}

// lockData is one owner's share in one lock:
//
//	acquiring (acquisition) ──▶ held (handles) ──▶ released: taken from the map, then the node is deleted
//	                              └──▶ lost: stays in the map until the last handle is released
type lockData struct {
	table     *lockTable
	key       lockKey
	root      *lockRoot
	acquiring *acquisition       // nil from the grant on
	footing                      // set when the grant is prepared
	record    *nodes.GrantRecord // where grants are recorded: the record of this one, from when it may be written. The attempt's, until the grant
	pair      *pair              // both shares of a pair have it. Otherwise nil
	handles   map[*Hold]struct{} // I2: the count; re-entry adds one and sends nothing
	trace     handleTrace        // of the handle to which the lock was granted; otherwise nil
	lost      error
	lostAt    clock.Instant // when that was seen, or the end of the lease if that came first
	stays     clock.Instant // of the handle that was granted, once that is released
	lostCh    chan struct{} // closed with lost
	ended     chan struct{} // closed when lost, or with the last handle's release

	// Of a hold that rests on other nodes than its own in the queue: gets the deletion of that one, right after the grant. Otherwise nil.
	leaves chan *nodes.Deletion
}

// footing is what a hold rests on. It is the attempt's, until that is granted.
type footing struct {
	e         *era
	node      string   // absolute; an attempt's is the one in the queue, a hold's the first of held
	held      []string // all the nodes that the hold rests on; none before the grant is prepared if that is the one in the queue
	token     int64    // the czxid of the node: see Hold.Token
	rootCzxid int64    // of the node above, as last listed: no grant without a list that shows ours
}

// acquisition is a call's way to a lock. An owner has one at a time for a lock, its other share included (lockRoot.other): its other
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
	hungUp hangUps      // over a recipe's transactions; for the goroutine that carries it out
	last   link.LastError

	since  time.Time
	toSay  time.Duration    // how long the wait has lasted when it is logged next; as sayNow, for the goroutine that carries it out
	sayNow <-chan time.Time // fires then
}

// Hold is one successful acquire. It is released once, from any goroutine. All its methods are safe for use from many
// goroutines. All except Release answer from memory.
//
// While its call waits, it is that of an acquisition; from the grant on, one of its owner's handles.
type Hold struct {
	try     bool       // a call of TryAcquire
	outcome chan error // holds one: nil with the grant. The call gets it when it is taken from the acquisition, unless it leaves
	ctx     *holdContext
	d       *lockData       // from the grant on
	end     error           // after the release: what Err says from then on; guarded by the lockTable, as is the next
	stays   clock.Instant   // of the handle that was granted: until when the node stays at least (WithMinHold); otherwise 0
	trace   handleTrace     // nil if nobody traces; and
	values  context.Context // of the context that its AcquireStart returned
}

// handleTrace is notified of what becomes of a handle and of its hold, if the Session has traces.
type handleTrace interface {
	joins(h *Hold, granted handleTrace)
	lost(err error, at clock.Instant) // the hold, whatever handles it has
	ended(at clock.Instant, err error, isLost bool)
}

// holdContext carries the hold. Its Err compares the clock with the lease: after a pause the first look shows the loss, even
// if no timer has run yet (F18).
type holdContext struct {
	context.Context
	outer  context.Context // the caller's, for work; nil for the hold's own
	h      *Hold
	cancel context.CancelCauseFunc // ends it
}

// pair is two shares of one owner in a lock, of which the second stands on the first's node: a node of its own that is made only while that
// is there, under a name that is chosen once. A transaction whose answer was lost is sent again, and "node exists" is success. It may also
// arrive late, as long as the first's node is there. So the second's node goes after the first's, and after the second was released. Its
// token is the first's.
type pair struct {
	first *lockData
	node  string // the second's, absolute

	// Guarded by the lockTable.
	byFirst bool            // the first needs it
	second  *lockData       // the share that needs it, which can be the next one before the last one has left
	after   *nodes.Deletion // of the first's node, if that is being deleted
	lost    error           // somebody has taken the second's node away: another with its name could be deleted, too
	heard   int64           // the zxid of the last message in the second's node that a hold was given
}

// nodeOptions are those of a Mutex's options that an acquisition goes by.
type nodeOptions struct {
	data       []byte
	failOnLoss bool
	minHold    time.Duration
	revoke     func(*Hold)
}

// asker is who calls, as the context says.
type asker struct {
	owner Owner        // set with WithOwner; the zero Owner if none was
	under [2]*lockData // whose hold of this lock and Session the context carries, and whose of its other share; nil if it carries none
}

// keyLocked returns the key under which the asker may already have the lock.
//
// A hold of another lock gives no permission: goroutines that work under it exclude each other in this lock (R67). A hold of
// this lock gives none either when its last handle was released: contexts that still carry it would share the next hold. A share
// and the other that an owner may have beside it are one lock here.
func (t *lockTable) keyLocked(root *lockRoot, by asker) (key lockKey, ok bool) {
	key = lockKey{path: root.path, share: root.share, owner: by.owner}
	if by.owner != (Owner{}) {
		return key, true
	}
	for _, d := range by.under {
		if d != nil && t.byKey[d.key] == d {
			key.owner = d.key.owner
			return key, true
		}
	}
	return lockKey{}, false
}

// enter re-enters a lock that the asker holds: then a is nil. Otherwise it begins an acquisition, which the caller must start. If
// offline is not nil, enter returns it rather than that. With errBusy a is the owner's acquisition that has to end first, and with
// ErrNotAcquired one that a try does not wait for. beside is the recipe's.
func (t *lockTable) enter(h *Hold, root *lockRoot, by asker, offline error, beside besideFunc) (a *acquisition, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, ok := t.keyLocked(root, by)
	if !ok {
		key = lockKey{path: root.path, share: root.share, owner: NewOwner("")} // two plain calls contend
	}
	if root.isFresh {
		key.call = h
	}
	d := t.byKey[key]
	switch {
	case offline != nil && (d == nil || d.acquiring != nil):
		return nil, offline
	case d != nil && d.acquiring != nil: // a loss before the grant is the acquisition's own affair
		return d.acquiring, h.busyLocked(d.acquiring)
	case d == nil:
		pair, busy, err := beside(t, lockKey{path: root.path, share: root.other, owner: key.owner})
		if busy != nil {
			return busy, h.busyLocked(busy)
		}
		if err != nil {
			return nil, err
		}
		d = &lockData{table: t, key: key, root: root, pair: pair, handles: make(map[*Hold]struct{}), lostCh: make(chan struct{}), ended: make(chan struct{})}
		d.acquiring = &acquisition{d: d, done: make(chan struct{}), call: h, since: time.Now(), toSay: firstSaid}
		d.acquiring.ctx, d.acquiring.cancel = context.WithCancel(context.Background())
		for _, other := range t.left {
			if other.d.key.path == key.path {
				d.acquiring.left = append(d.acquiring.left, other)
			}
		}
		if pair != nil {
			pair.second = d
		}
		t.byKey[key] = d
		return d.acquiring, nil
	case d.lost != nil:
		return nil, d.lost
	case d.e.IsOver(): // its holds are just hearing of it, one by one
		return nil, lostBecause(d.e.Why())
	}
	d.addLocked(h)
	return nil, nil
}

// besideFunc says, under the table's lock, what follows for a new share of an owner from the other share that it may have in the lock: the
// pair that the new one is the second of, the acquisition that has to end first, or an error.
type besideFunc func(t *lockTable, other lockKey) (p *pair, busy *acquisition, err error)

// busyLocked is what a call gets when its owner is being served in another. A try does not wait for one that stands behind somebody.
func (h *Hold) busyLocked(a *acquisition) error {
	if h.try && a.at.waits() {
		return ErrNotAcquired
	}
	return errBusy
}

func (d *lockData) addLocked(h *Hold) {
	h.d = d
	d.handles[h] = struct{}{}
	if h.trace != nil {
		if d.trace == nil {
			d.trace = h.trace
		}
		h.trace.joins(h, d.trace)
	}
}

// behind notes who is ahead, if anybody is known to be, and says whether the call waits. A try does not. Its acquisition fails when its node is
// deleted, unless the recipe goes on.
func (t *lockTable) behind(a *acquisition, at position) (wait bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.at = at
	a.first.CompareAndSwap(0, int32(at.place))
	return a.call != nil && !a.call.try
}

// isTry says whether the call does not wait.
func (t *lockTable) isTry(a *acquisition) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a.call != nil && a.call.try
}

// noteAhead notes who made the predecessor.
func (t *lockTable) noteAhead(a *acquisition, predecessor, who string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.at.predecessor == predecessor {
		a.at.who = who
	}
}

// position returns where the acquisition stands, or stood when it ended.
func (t *lockTable) position(a *acquisition) position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a.at
}

// grant makes the call of the acquisition a handle. It returns false if nobody waits any more, or if the hold was
// lost before anybody had it. Then the caller gives the node up.
func (t *lockTable) grant(a *acquisition, stays clock.Instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := a.d
	if a.call == nil || d.lost != nil {
		return false
	}
	d.acquiring = nil
	d.e.Log.Debug("zklock: granted", func() []any { return append(d.attrs(), "waited", time.Since(a.since)) }) // before anybody can release it
	a.call.stays = stays
	d.addLocked(a.call)
	a.endLocked(nil)
	return true
}

// leave ends an acquisition whose call's context has ended. It returns false if the call already has an outcome: then the outcome
// counts. Never both, never neither (F33).
func (t *lockTable) leave(a *acquisition) (left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.call == nil {
		return false
	}
	a.call = nil
	t.forgetLocked(a.d)
	t.left = append(t.left, a)
	a.cancel()
	return true
}

// leftover notes that a node of no acquisition may be in a queue, until its finished is called: as if a call had left it there.
func (t *lockTable) leftover(root *lockRoot) *acquisition {
	a := &acquisition{d: &lockData{table: t, key: lockKey{path: root.path}}, done: make(chan struct{}), cancel: func() {}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = append(t.left, a)
	return a
}

// hasLeft says whether a call has left, and may have left a node in the queue.
func (t *lockTable) hasLeft(root *lockRoot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.left, func(a *acquisition) bool { return a.d.key.path == root.path })
}

// fail ends the acquisition with an error.
func (t *lockTable) fail(a *acquisition, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(a.d)
	a.endLocked(err)
}

// endLocked gives the call its outcome, unless it has left.
func (a *acquisition) endLocked(err error) {
	if a.call != nil {
		a.call.outcome <- err // has room
		a.call = nil
	}
}

// release takes one handle away. Local ownership ends here, before the node is deleted: the next call starts afresh (R17).
// first is false if the handle was released before.
func (t *lockTable) release(h *Hold) (first, last bool, lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.end != nil {
		return false, false, nil
	}
	d := h.d
	h.end = d.lost
	if d.lost == nil {
		h.end = d.errorf("hold", errReleased)
	}
	if h.stays != 0 {
		d.stays = h.stays
	}
	delete(d.handles, h)
	last = len(d.handles) == 0
	if last {
		t.forgetLocked(d)
		if d.lost == nil {
			close(d.ended)
		}
	}
	return true, last, d.lost
}

func (t *lockTable) forgetLocked(d *lockData) {
	if t.byKey[d.key] == d {
		delete(t.byKey, d.key)
	}
}

// held says whether any owner holds the lock.
func (t *lockTable) held(root *lockRoot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, d := range t.byKey {
		if key.path == root.path && key.share == root.share && d.isHeldLocked() {
			return true
		}
	}
	return false
}

// heldBy says whether the asker holds the lock.
func (t *lockTable) heldBy(root *lockRoot, by asker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, ok := t.keyLocked(root, by)
	return ok && t.byKey[key].isHeldLocked()
}

func (d *lockData) isHeldLocked() bool {
	return d != nil && len(d.handles) > 0 && d.lost == nil && !d.e.IsOver()
}

func (d *lockData) errorf(op string, err error) error {
	return &Error{Op: op, Path: d.root.given, Node: d.node, Err: err}
}

// attrs are what log lines say of a hold.
func (d *lockData) attrs() []any {
	return []any{"path", d.root.shownPath(), "node", d.node, "token", d.token, "owner", d.key.owner.String(), "session", fmt.Sprintf("%#x", d.e.ID)}
}
