package zklock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/clock"
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
	mu    sync.Mutex // guards all below, and every lockData, acquisition and handle in it; never held across a channel that blocks, a user's callback or a ZooKeeper call
	byKey map[lockKey]*lockData
	left  []*acquisition // that their calls have left, and that still have something to do
}

// lockData is one owner's share in one lock:
//
//	acquiring (acquisition) ──▶ held (handles) ──▶ released: taken from the map, then the node is deleted
//	                              └──▶ lost: stays in the map until the last handle is released
type lockData struct {
	table      *lockTable
	key        lockKey
	root       *lockRoot
	acquiring  *acquisition       // nil from the grant on
	grantBasis                    // set when the grant is prepared; a recipe may set the state at other times, too
	handles    map[*Hold]struct{} // I2: the count; re-entry adds one and sends nothing
	shared     bool               // reentered has logged that two calls share the hold
	trace      handleTrace        // of the handle to which the lock was granted; otherwise nil
	lost       error
	lostAt     clock.Instant // when that was seen, or the end of the lease if that came first
	stays      clock.Instant // of the handle that was granted, once that is released
	lostCh     chan struct{} // closed with lost
	ended      chan struct{} // closed when lost, or with the last handle's release
}

// grantBasis is what a hold rests on. It is the attempt's, until that is granted.
type grantBasis struct {
	e         *zkSession
	node      string   // absolute; an attempt's is the one in the queue, a hold's the first of held
	held      []string // all the nodes that the hold rests on; none before the grant is prepared if that is the one in the queue
	token     int64    // the czxid of the node: see Hold.Token
	rootCzxid int64    // of the node above, as last listed: no grant without a list that shows ours
	state     recipeState
}

// recipeState is the data that a recipe keeps for a node: during the attempt, and then with the
// hold. The engine stores it and does not read it. It calls the methods when the nodes have to be
// deleted, and when the hold is lost. A recipe without data has noState.
type recipeState interface {
	// record returns the record of the grant, which is taken back with the node; nil for none.
	record() *nodes.GrantRecord
	// deleteNodes begins the deletion of the nodes of an attempt that gave up, as lockRoot.deleteNode.
	deleteNodes(root *lockRoot, of *grantBasis) (x *nodes.Deletion, restarted <-chan error)
	// giveBack begins the deletions that the hold's release waits for; the second may be nil.
	giveBack(d *lockData) [2]*nodes.Deletion
	// lossLocked is called when the hold is marked as lost, and then afterLoss if the session continues.
	lossLocked(d *lockData)
	afterLoss(d *lockData, cause error)
	// isNewsLocked reports whether a revocation with that zxid is for this hold.
	isNewsLocked(d *lockData, written int64) bool
}

// keyLocked returns the key under which the caller may already have the lock.
//
// A hold of another lock gives no permission: goroutines that work under it exclude each other in this lock (R67). A hold of
// this lock gives none either when its last handle was released: contexts that still carry it would share the next hold. A share
// and the other that an owner may have beside it are one lock here.
func (t *lockTable) keyLocked(root *lockRoot, by caller) (key lockKey, ok bool) {
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

// enter re-enters a lock that the caller holds: then a is nil. Otherwise it begins an acquisition, which Mutex.take starts. If
// offline is not nil, enter returns it rather than that. With errBusy a is the owner's acquisition that has to end first, and with
// ErrNotAcquired one that a try does not wait for. beside is the recipe's.
func (t *lockTable) enter(h *Hold, root *lockRoot, by caller, offline error, beside besideFunc) (a *acquisition, err error) {
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
		d = &lockData{table: t, key: key, root: root}
		busy, err := beside(t, d)
		if busy != nil {
			return busy, h.busyLocked(busy)
		}
		if err != nil {
			return nil, err
		}
		d.handles, d.lostCh, d.ended = make(map[*Hold]struct{}), make(chan struct{}), make(chan struct{})
		d.acquiring = &acquisition{d: d, done: make(chan struct{}), call: h, since: time.Now(), nextLog: firstWaitLog}
		d.acquiring.ctx, d.acquiring.cancel = context.WithCancel(context.Background())
		for _, other := range t.left {
			if other.d.key.path == key.path {
				d.acquiring.left = append(d.acquiring.left, other)
			}
		}
		t.byKey[key] = d
		return d.acquiring, nil
	case d.lost != nil:
		return nil, d.lost
	case d.e.HasEnded(): // its holds are just hearing of it, one by one
		return nil, lostBecause(d.e.Cause())
	case root.noReentry:
		return nil, errReentry
	}
	d.addLocked(h)
	return nil, nil
}

// besideFunc is called under the table's lock for an owner's new share, and may give it a state. It
// returns the acquisition that has to end first, or the reason why the owner cannot have both shares.
type besideFunc func(t *lockTable, d *lockData) (busy *acquisition, err error)

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

// noteBehind notes who is ahead, if anybody is known to be, and says whether the call waits. A try does not. Its acquisition fails when its node is
// deleted, unless the recipe goes on.
func (t *lockTable) noteBehind(a *acquisition, at position) (wait bool) {
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

// noteBlocker notes who made the predecessor.
func (t *lockTable) noteBlocker(a *acquisition, predecessor, who string) {
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

func (d *lockData) errorf(op string, err error) error {
	return &Error{Op: op, Path: d.root.given, Node: d.node, Err: err}
}

// attrs are what log lines say of a hold.
func (d *lockData) attrs() []any {
	return []any{"path", d.root.shownPath(), "node", d.node, "token", d.token, "owner", d.key.owner.String(), "session", fmt.Sprintf("%#x", d.e.ID)}
}

// noState is the state of a recipe that keeps no data. A hold of the recipe is its node in the
// queue. States with data embed noState.
type noState struct{}
