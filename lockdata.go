package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
)

// Owner is who may re-enter a lock. Goroutines have no identity, so the context says who asks: by the hold of that lock
// which it carries, or by an owner set with WithOwner. Owners are comparable, and equal only if they come from one NewOwner.
type Owner struct {
	id   uuid.UUID
	name string
}

// NewOwner returns an owner unlike any other. The name is for logs.
func NewOwner(name string) Owner { return Owner{uuid.New(), name} }

// String returns the name, and a part of the id that tells owners of one name apart.
func (o Owner) String() string {
	if o == (Owner{}) {
		return "nobody"
	}
	short := o.id.String()[:8]
	if o.name == "" {
		return short
	}
	return o.name + "/" + short
}

type ownerKey struct{}

// WithOwner returns a context in which Acquire acts for the owner, in every lock and whatever holds the context carries:
// it re-enters what the owner holds. Goroutines that share an owner do not exclude each other. The zero Owner sets none.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// OwnerFrom returns the owner that WithOwner set, or else the one of the innermost hold that the context carries, of
// whichever lock. It returns false if there is neither.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	if o := ownerSet(ctx); o != (Owner{}) {
		return o, true
	}
	if h := heldIn(ctx, holdKey{}); h != nil {
		return h.Owner(), true
	}
	return Owner{}, false
}

func ownerSet(ctx context.Context) Owner {
	o, _ := ctx.Value(ownerKey{}).(Owner)
	return o
}

// holdKey asks a context for the innermost hold that it carries: of the lock root, or of any if that is ""; through the
// Session, or through any if that is nil.
type holdKey struct {
	s    *Session
	root string // absolute
}

func heldIn(ctx context.Context, k holdKey) *Hold {
	h, _ := ctx.Value(k).(*Hold)
	return h
}

// asker is who calls, as the context says.
type asker struct {
	owner Owner // set with WithOwner; the zero Owner if none was
	under *Hold // of this lock and Session; nil if the context carries none
}

func askerIn(ctx context.Context, s *Session, root string) asker {
	return asker{ownerSet(ctx), heldIn(ctx, holdKey{s, root})}
}

// lockKey is what there is at most one node for in a Session (I2): two Mutexes on one path are one lock.
type lockKey struct {
	path  string // absolute
	owner Owner
}

// lockTable is the per-owner map: who holds, or tries to get, which lock, how often.
type lockTable struct {
	mu    sync.Mutex // guards all below and every lockData, attempt and Hold in it; never held across a channel that blocks, a callback or a ZooKeeper call
	byKey map[lockKey]*lockData
}

// lockData is one owner's share in one lock:
//
//	acquiring (attempt) ──▶ held (handles) ──▶ released: taken from the map, then the node is deleted
//	                          └──▶ lost: stays in the map until the last handle is released
type lockData struct {
	table   *lockTable
	key     lockKey
	path    string             // as given to NewMutex
	attempt *attempt           // while acquiring
	e       *era               // in which the node was made; set, as node and token, at the grant
	node    string             // absolute
	token   int64              // its czxid
	handles map[*Hold]struct{} // I2: the count; re-entry adds one and sends nothing
	lost    error
	lostCh  chan struct{} // closed with lost
	ended   chan struct{} // closed when lost, or with the last handle's release
}

// keyLocked returns the key under which the asker has the lock already, if it can have it.
//
// A hold of another lock is nobody's permission: goroutines that work under it exclude each other in this one (R67). Nor
// is a hold of this lock when its last handle was released: those who still carry it would share the next hold.
func (t *lockTable) keyLocked(path string, by asker) (key lockKey, ok bool) {
	if by.owner != (Owner{}) {
		return lockKey{path, by.owner}, true
	}
	if by.under != nil && t.byKey[by.under.d.key] == by.under.d {
		return by.under.d.key, true
	}
	return lockKey{}, false
}

// joiner is one call to Acquire or TryAcquire that waits for an attempt.
type joiner struct {
	ctx    context.Context
	try    bool
	result chan joined // holds one: whoever takes the joiner from the attempt sends it
}

type joined struct {
	hold *Hold
	err  error
}

// enter re-enters a lock that the asker holds (hold or err is set), joins the attempt that is under way for its owner, or
// begins one (isNew: the caller must run it). a is the attempt also if a try may not join it.
func (t *lockTable) enter(ctx context.Context, m *Mutex, by asker, try bool) (hold *Hold, a *attempt, j *joiner, isNew bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, ok := t.keyLocked(m.root, by)
	if !ok {
		key = lockKey{m.root, NewOwner("")} // two plain calls contend
	}
	d := t.byKey[key]
	switch {
	case d == nil:
		d = &lockData{table: t, key: key, path: m.path, handles: make(map[*Hold]struct{}), lostCh: make(chan struct{}), ended: make(chan struct{})}
		d.attempt = newAttempt(m, d)
		t.byKey[key] = d
		isNew = true
	case d.attempt != nil: // a loss before the grant is the attempt's own affair
		if try && d.attempt.at.place > 1 {
			return nil, d.attempt, nil, false, ErrNotAcquired
		}
	case d.lost != nil:
		return nil, nil, nil, false, d.lost
	case d.e.isOver(): // its holds are just being told, one by one
		return nil, nil, nil, false, lostBecause(d.e.why())
	default:
		return d.newHandleLocked(ctx, m), nil, nil, false, nil
	}
	j = &joiner{ctx: ctx, try: try, result: make(chan joined, 1)}
	d.attempt.joiners[j] = struct{}{}
	return nil, d.attempt, j, isNew, nil
}

// leave takes a joiner whose context has ended from its attempt; the last one ends it. It returns false if the outcome
// was there before: then the result is, too, and counts. Never both, never neither (F33).
func (t *lockTable) leave(a *attempt, j *joiner) (left, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := a.joiners[j]; !ok {
		return false, false
	}
	delete(a.joiners, j)
	if len(a.joiners) == 0 {
		t.forgetLocked(a.d)
		a.cancel(errAbandoned)
		return true, true
	}
	return true, false
}

// grant turns every joiner of the attempt into a handle. It returns false if nobody waits any more, or if the hold was
// lost before anybody had it; the caller then gives the node up.
func (t *lockTable) grant(a *attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := a.d
	if len(a.joiners) == 0 || d.lost != nil {
		return false
	}
	d.attempt = nil
	for j := range a.joiners {
		j.result <- joined{hold: d.newHandleLocked(j.ctx, a.m)} // has room: one result a joiner
	}
	clear(a.joiners)
	return true
}

// prepare notes the node the attempt is about to be granted on.
func (t *lockTable) prepare(a *attempt, e *era, node string, token int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := a.d
	d.e, d.node, d.token = e, node, token
	if d.lost != nil { // of an earlier node, that nobody got a handle of
		d.lost, d.lostCh, d.ended = nil, make(chan struct{}), make(chan struct{})
	}
}

// fail ends the attempt with an error for every joiner.
func (t *lockTable) fail(a *attempt, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(a.d)
	for j := range a.joiners {
		j.result <- joined{err: err}
	}
	clear(a.joiners)
}

// standing is where an attempt stands behind others, as last listed. The zero value says that it has not stood there yet.
type standing struct {
	node        string // ours, absolute
	place       int    // in the queue, from 1
	predecessor string // absolute
}

// standing returns where the attempt stands, or stood when it ended.
func (t *lockTable) standing(a *attempt) standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a.at
}

// behind notes that somebody is ahead. Tries do not wait: if others do, they are sent away; if there are only tries,
// the attempt is over (it takes no more joiners) and fails when its node is deleted.
func (t *lockTable) behind(a *attempt, at standing) (wait bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.at = at
	for j := range a.joiners {
		wait = wait || !j.try
	}
	if !wait {
		t.forgetLocked(a.d)
		return false
	}
	for j := range a.joiners {
		if j.try {
			delete(a.joiners, j)
			j.result <- joined{err: ErrNotAcquired}
		}
	}
	return true
}

func (t *lockTable) forgetLocked(d *lockData) {
	if t.byKey[d.key] == d {
		delete(t.byKey, d.key)
	}
}

// release takes one handle. Local ownership ends here, before the node is deleted: whoever comes next starts afresh
// (R17). first is false if the handle was released before.
func (t *lockTable) release(h *Hold) (first, last bool, lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.released {
		return false, false, nil
	}
	d := h.d
	h.released, h.end = true, d.lost
	if d.lost == nil {
		h.end = h.errorf("hold", errReleased)
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

// lose marks a lock as lost, once, and ends the contexts of its handles. It returns whether there was anybody to tell.
func (t *lockTable) lose(d *lockData, node string, cause error) bool {
	t.mu.Lock()
	if d.node != node || d.lost != nil || len(d.handles) == 0 && d.attempt == nil { // of another node, told before, or released
		t.mu.Unlock()
		return false
	}
	d.lost = &Error{Op: "hold", Path: d.path, Node: d.node, Err: cause}
	lost, tell := d.lost, []chan struct{}{d.lostCh, d.ended}
	select {
	case <-d.ended: // released before
		tell = tell[:1]
	default:
	}
	var handles []*Hold
	for h := range d.handles {
		handles = append(handles, h)
	}
	t.mu.Unlock()
	for _, h := range handles {
		h.cancel(lost)
	}
	for _, ch := range tell { // last: who hears it finds Context and Err ended
		close(ch)
	}
	return len(handles) > 0
}

// lose ends the hold on the node, once, and logs which was lost, when and why (tenant). Who comes late, and means a node that
// the attempt has left, ends nothing.
func (d *lockData) lose(node string, cause error, end instant) (told bool) {
	told = d.table.lose(d, node, lostBecause(cause))
	if !told || errors.Is(cause, ErrClosed) {
		return told
	}
	d.e.log.warn("zklock: hold lost", "path", d.key.path, "node", node, "token", d.token, "owner", d.key.owner.String(),
		"session", fmt.Sprintf("%#x", d.e.id), "reason", cause, "leaseEnd", d.e.clock.wall(end))
	return true
}

// heldBy says whether the asker holds the lock.
func (t *lockTable) heldBy(path string, by asker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, ok := t.keyLocked(path, by)
	return ok && t.byKey[key].isHeldLocked()
}

// held says whether any owner holds the lock.
func (t *lockTable) held(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, d := range t.byKey {
		if key.path == path && d.isHeldLocked() {
			return true
		}
	}
	return false
}

func (d *lockData) isHeldLocked() bool {
	return d != nil && len(d.handles) > 0 && d.lost == nil && !d.e.isOver()
}
