package zklock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/node"
)

// The lock table: which owners of this Session hold, or try to get, which locks. rwmutex.go has the
// rules for an owner with two shares, and session.go counts the holds.

// lockKey identifies an owner's share in a lock. A Session has at most one node for each key (I2):
// two Mutexes on one path are one lock.
type lockKey struct {
	path  string // absolute
	share string // the share's name: lockRoot.share
	owner Owner
	call  *Hold // set if each call takes a new share (lockRoot.isFresh); otherwise nil
}

// lockRoot is the root of a lock's queue, and the share that an owner of the lock has.
type lockRoot struct {
	*node.Root

	// Set by a recipe.
	share   string // the name of an owner's share: each share has owners of its own
	other   string // the second share that an owner may have; "" for none
	isFresh bool   // each call takes a new share, and never re-enters one
}

// lockTable records each owner that holds or tries to get a lock, and the number of its handles.
type lockTable struct {
	// mu guards the fields up to leaving, and every lockData, acquisition and handle in the table. It
	// is never held across a channel that blocks, a user's callback or a ZooKeeper call.
	mu      invariants.Mutex
	byKey   map[lockKey]*lockData
	leaving []*acquisition // acquisitions whose calls have left, and that have not ended

	unconfirmed atomic.Int64 // releases that no server confirmed
}

// lockData is one owner's share in one lock:
//
//	acquiring (acquisition) ─▶ held (handles) ─▶ released: leaves the map, then its node is deleted
//	                            └─▶ lost: stays in the map until the last handle is released
type lockData struct {
	table        *lockTable
	key          lockKey
	root         *lockRoot
	acquiring    *acquisition       // nil once the lock is granted
	grantBasis                      // set when the grant is prepared; a recipe may also set the state at other times
	handles      map[*Hold]struct{} // I2: their number is the hold count; re-entry adds a handle and sends nothing
	trace        handleTrace        // the trace of the handle to which the lock was granted; nil for none
	lost         error
	lostAt       clock.Instant // when the loss was detected, or the end of the lease if that was earlier
	minHoldUntil clock.Instant // set when the handle to which the lock was granted is released
	lostCh       chan struct{} // closed with lost
	ended        chan struct{} // closed when the hold is lost, or when the last handle is released
}

// grantBasis is the data that a hold rests on. It belongs to the attempt until the lock is granted.
type grantBasis struct {
	e         *node.ZKSession
	node      string   // absolute; for an attempt its node in the queue, for a hold the first of held
	held      []string // all nodes that the hold rests on; empty before the grant is prepared if that is only the node in the queue
	token     int64    // the czxid of the node: see Hold.Token
	madeRoot  bool     // the transaction that created the node also created the lock root
	rootCzxid int64    // of the lock root, as a list or that transaction has shown it
	state     recipeState
	heard     *int64            // the zxid of the last message that a hold on the node was given; nil if it is the node's first hold. Guarded by the lockTable
	record    *node.GrantRecord // taken back when the node is deleted; nil until the grant is recorded, and without a lock-delay
}

// keyLocked returns the key under which the caller may already have the lock: with the owner that
// its context sets, or else with the owner of the hold that the context carries. In the second case
// only a writer that reads is admitted (enter).
//
// A hold of another lock gives no permission: goroutines that work under that hold exclude each
// other in this lock (R67). A hold of this lock has no effect if its last handle was released. A
// share and the other share that its owner may have are one lock here.
func (t *lockTable) keyLocked(root *lockRoot, by caller) (key lockKey, ok bool) {
	key = lockKey{path: root.Path(), share: root.share, owner: by.owner}
	if h := by.under; by.owner == (Owner{}) && h != nil && t.byKey[h.d.key] == h.d {
		key.owner = h.d.key.owner
	}
	return key, key.owner != (Owner{})
}

// enter re-enters a lock that the caller holds, and then a is nil. Otherwise it begins an
// acquisition, which Mutex.take starts; if offline is not nil, enter returns offline instead. If
// another acquisition of the owner has to end first, enter returns it with errBusy, or with
// ErrNotAcquired to a try that does not wait for it. admit is the recipe's admitLocked.
func (t *lockTable) enter(h *Hold, root *lockRoot, by caller, offline error, admit func(*lockTable, *lockData) (busy *acquisition, err error)) (a *acquisition, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, ok := t.keyLocked(root, by)
	if !ok {
		key = lockKey{path: root.Path(), share: root.share, owner: NewOwner("")} // two plain calls contend
	}
	if root.isFresh {
		key.call = h
	}
	d := t.byKey[key]
	switch {
	case offline != nil && (d == nil || d.acquiring != nil):
		return nil, offline
	case d != nil && d.acquiring != nil: // if the loss precedes the grant, the acquisition deals with it
		return d.acquiring, h.busyLocked(d.acquiring)
	case d == nil:
		d = &lockData{table: t, key: key, root: root}
		busy, err := admit(t, d)
		if busy != nil {
			return busy, h.busyLocked(busy)
		}
		if err != nil {
			return nil, err
		}
		d.handles, d.lostCh, d.ended = make(map[*Hold]struct{}), make(chan struct{}), make(chan struct{})
		d.acquiring = &acquisition{d: d, done: make(chan struct{}), call: h, since: time.Now(), nextLog: firstWaitLog}
		d.acquiring.ctx, d.acquiring.cancel = context.WithCancel(context.Background())
		for _, other := range t.leaving {
			if other.d.key.path == key.path {
				d.acquiring.earlier = append(d.acquiring.earlier, other)
			}
		}
		t.byKey[key] = d
		return d.acquiring, nil
	case d.lost != nil:
		return nil, d.lost
	case d.e.HasEnded(): // its holds are being marked as lost, one by one
		return nil, lostBecause(d.e.Cause())
	case by.owner == (Owner{}) && !by.reads(root): // goroutines that share the context would all hold the lock
		return nil, errReentry
	}
	d.addLocked(h)
	return nil, nil
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

// noteBehind stores the position and its blockers, if any are known. It reports whether the call
// waits; a try does not. The acquisition of a try fails when its node is deleted, unless the recipe
// continues.
func (t *lockTable) noteBehind(a *acquisition, at position) (wait bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.at = at
	a.first.CompareAndSwap(0, int32(at.rank))
	return a.call != nil && !a.call.try
}

// isTry reports whether the call is a try, which does not wait.
func (t *lockTable) isTry(a *acquisition) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a.call != nil && a.call.try
}

// noteBlocker stores the watch that has read the predecessor.
func (t *lockTable) noteBlocker(a *acquisition, on *node.Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.at.predecessor == on.Path {
		a.at.read, a.at.blockerText = on, ""
	}
}

// position returns the acquisition's position in the queue, or its last one if the acquisition has
// ended.
func (t *lockTable) position(a *acquisition) position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a.at
}

// prepare stores the nodes and the session that a hold rests on, before the hold is granted.
func (t *lockTable) prepare(d *lockData, basis grantBasis, held []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.grantBasis = basis
	d.node, d.held = held[0], held
	if d.lost != nil { // an earlier node was lost, and was never granted
		d.lost, d.lostCh, d.ended = nil, make(chan struct{}), make(chan struct{})
	}
}

// grant turns the acquisition's call into a handle. It returns false if no call waits any more, or
// if the hold was lost before any call had it. The caller must then give the node up.
func (t *lockTable) grant(a *acquisition, minHoldUntil clock.Instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := a.d
	if a.call == nil || d.lost != nil {
		return false
	}
	d.acquiring = nil
	d.e.Log.Debug("zklock: granted", func() []any { return append(d.attrs(), "waited", time.Since(a.since)) }) // before a release is possible
	a.call.minHoldUntil = minHoldUntil
	d.addLocked(a.call)
	a.endLocked(nil)
	return true
}

// leave ends an acquisition whose call's context has ended. It returns false if the call already
// has an outcome, and then the outcome counts. A call never gets both, and never neither (F33).
func (t *lockTable) leave(a *acquisition) (left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.call == nil {
		return false
	}
	a.call = nil
	t.forgetLocked(a.d)
	t.leaving = append(t.leaving, a)
	a.cancel()
	return true
}

// fail ends the acquisition with an error.
func (t *lockTable) fail(a *acquisition, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(a.d)
	a.endLocked(err)
}

// release removes one handle. Local ownership ends here, before the node is deleted: the owner's
// next call starts a new acquisition (R17). first is false if the handle was released before.
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
	if h.minHoldUntil != 0 {
		d.minHoldUntil = h.minHoldUntil
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

// has reports whether a share is held, or lost and not released.
func (t *lockTable) has(d *lockData) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKey[d.key] == d
}

// held reports whether any owner holds the lock.
func (t *lockTable) held(root *lockRoot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, d := range t.byKey {
		if key.path == root.Path() && key.share == root.share && d.isHeldLocked() {
			return true
		}
	}
	return false
}

// heldBy reports whether the caller holds the lock.
func (t *lockTable) heldBy(root *lockRoot, by caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, ok := t.keyLocked(root, by)
	return ok && t.byKey[key].isHeldLocked()
}

func (d *lockData) isHeldLocked() bool {
	return d != nil && len(d.handles) > 0 && d.lost == nil && !d.e.HasEnded()
}

// count returns the numbers of Stats.
func (t *lockTable) count() (waiting, held, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.byKey {
		switch {
		case d.acquiring != nil:
			waiting++
		case d.isHeldLocked():
			held++
		default:
			lost++
		}
	}
	return waiting, held, lost
}

func (d *lockData) errorf(op string, err error) error {
	return &Error{Op: op, Path: d.root.Given(), Node: d.node, Err: err}
}

// attrs returns the attributes of a log line about a hold.
func (d *lockData) attrs() []any {
	return []any{"path", d.root.ShownPath(), "node", d.node, "token", d.token, "owner", d.key.owner.String(), "session", fmt.Sprintf("%#x", d.e.ID)}
}

// checkInvariants is run when the mutex of the table is unlocked.
func (t *lockTable) checkInvariants() {
	if !invariants.Enabled {
		return
	}
	holdOn := make(map[string]*lockData) // by node
	for key, d := range invariants.Sample(t.byKey) {
		invariants.Check(d.table == t && d.key == key, "a share is in its Session's table under its key",
			"under %s there is the share of %s", key, d.key)
		d.checkLocked()
		if !d.isHeldLocked() {
			continue
		}
		for _, node := range d.held {
			if other := holdOn[node]; other != nil {
				invariants.Check(false, "a node has at most one hold (I1)", "%s has a hold of %s and one of %s", node, d.key, other.key)
			}
			holdOn[node] = d
		}
	}
	for _, a := range t.leaving {
		invariants.Check(a.call == nil && t.byKey[a.d.key] != a.d && !link.IsClosed(a.done), "a call that has left has no share, and is listed until its node is deleted (I4)",
			"of %s: waits %t, in the table %t, finished %t", a.d.key, a.call != nil, t.byKey[a.d.key] == a.d, link.IsClosed(a.done))
	}
}

// checkLocked checks a share that is in the table.
func (d *lockData) checkLocked() {
	a, held := d.acquiring, len(d.handles) > 0
	invariants.Check((a != nil) != held, "a share in the table is acquired, or has handles (I7)", "%s has %d handles, acquiring %t", d.key, len(d.handles), a != nil)
	invariants.Check(a == nil || a.d == d && a.call != nil, "an acquisition in the table has a call that waits", "%s has none", d.key)
	for h := range d.handles {
		invariants.Check(h.d == d && h.end == nil, "a handle in the table is not released, and has no other share", "%s: the handle ended with %v", d.key, h.end)
	}
	invariants.Check(d.lost != nil || !link.IsClosed(d.lostCh) && !link.IsClosed(d.ended), "the channels of a hold that is not lost are open (I5)",
		"%s: lost %t, ended %t", d.key, link.IsClosed(d.lostCh), link.IsClosed(d.ended))
	if held && d.isHeldLocked() {
		missing := d.e.Own.Missing(d.held)
		invariants.Check(len(d.held) > 0 && d.node == d.held[0] && missing == "", "a hold rests on nodes of node.Own (I3)",
			"%s rests on %q, its first node is %q, and Own does not have %q", d.key, d.held, d.node, missing)
	}
}

// String names the share in the facts of a check.
func (k lockKey) String() string { return fmt.Sprintf("%s, share %q of %v", k.path, k.share, k.owner) }
