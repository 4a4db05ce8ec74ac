// Package node manages the nodes of locks in one ZooKeeper session: lock roots and their lock nodes
// are created, found again, listed, watched, handed off and deleted. It promises that a create
// whose reply was lost leaves one node that is known, or none; that a node that was given up is
// deleted while its session lives; and that a lock is handed off only after the servers have
// confirmed that the next node exists.
//
// It has no access to owners, calls or holds, and internal/queue decides which node is granted.
//
// Read session.go first: it names the parts. Then root.go, create.go and newroot.go, which create
// nodes; own.go, list.go, watch.go, watches.go and check.go, which observe them; and reaper.go,
// deletion.go, record.go and orphans.go, which delete them.
package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/zklock/zklock/internal/invariants"
	"github.com/zklock/zklock/internal/queue"
)

// ErrTooMany: the session has as many lock nodes as its cap permits.
var ErrTooMany = errors.New("too many lock nodes in one session")

// ErrNoChroot: the chroot does not exist.
var ErrNoChroot = errors.New("the chroot does not exist")

// Own has the lock nodes of one ZooKeeper session, and the waiters of the same session behind each
// of them. Such a waiter sets no watch, because the end of the session deletes both nodes, and the
// predecessor's event could arrive first and look like a grant. It is notified in another way:
//
//	the blocker                                 the waiter gets   and then
//	─────────────────────────────────────────── ───────────────── ────────────────────────────────
//	is released: one transaction checks the
//	waiter's node and deletes the blocker
//	  success                                   HandoffIsOurs     is granted without a request
//	  the waiter's node is missing              NodeDeleted       queues again
//	  not clear which is missing, or no
//	  permission to check the node (skip)       nothing           waits for one of the next rows
//	was deleted alone, by our own delete        BlockerDeleted    lists; WaitForEnd: an event
//	no longer exists, for any other reason      HandoffUnknown    lists
//	stays: the servers reject its deletion      HandoffUnknown    lists, then watches the node
//
// Why check and delete are one transaction (queue.HandoffAfter): suppose that the holder deletes
// its node and then grants the waiter. If another client deletes the waiter's node in between, a
// third client is first in the queue and takes the lock, and then two clients hold (I1).
//
// A waiter that may have other nodes between itself and the blocker (WaitForEnd) gets no handoff,
// and watches its own node.
type Own struct {
	most int

	mu struct {
		invariants.Mutex
		reserved int                 // number of nodes that are being created
		nodes    map[string]*ownNode // created or claimed, and not known to be deleted
	}
}

type ownNode struct {
	behind   []*Waiter // mostly one
	rejected bool      // the servers reject its deletion: waiters watch it, as they watch nodes of other sessions
}

// Waiter waits behind a node of its own session; directly behind it, if it may get the handoff.
type Waiter struct {
	Node     string             // its own, absolute
	Blocker  string             // the node that it waits for
	Notified chan queue.Handoff // buffered: holds one
	watches  bool               // its node is watched, so it needs no other check
	skipped  bool               // it gets no handoff: it is not directly behind, or the servers do not let us check its node
}

// newOwn returns the nodes of a new session, which may have up to most of them.
func newOwn(most int) *Own {
	o := &Own{most: most}
	o.mu.nodes = make(map[string]*ownNode)
	o.mu.OnUnlock(o.checkInvariants)
	return o
}

// checkInvariants is run when the mutex is unlocked.
func (o *Own) checkInvariants() {
	if !invariants.Enabled {
		return
	}
	for node, n := range invariants.Sample(o.mu.nodes) {
		invariants.Check(!n.rejected || len(n.behind) == 0, "no client waits unnotified behind a node whose deletion the servers reject", "%d behind %s", len(n.behind), node)
		for _, w := range n.behind {
			invariants.Check(w.Blocker == node && w.Node != node, "a waiter is behind the node ahead of it", "%s waits for %s, behind %s", w.Node, w.Blocker, node)
			invariants.Check(w.skipped || o.mu.nodes[w.Node] != nil, "a waiter that may get the handoff has a node (I1)", "%s waits for %s, and was deleted", w.Node, w.Blocker)
		}
	}
	invariants.Check(o.mu.reserved >= 0, "a reserved node is freed once (I7)", "%d nodes are reserved", o.mu.reserved)
}

// Missing returns the first of the nodes that does not count as a node of this session, "" if all
// of them do. It is for checks of invariants.
func (o *Own) Missing(of []string) string {
	o.mu.Lock()
	defer o.mu.Mutex.Unlock() // no check: the caller is one
	for _, node := range of {
		if o.mu.nodes[node] == nil {
			return node
		}
	}
	return ""
}

// Reservation counts nodes against the cap while they are being created.
type Reservation struct {
	o       *Own
	missing int // how many are not created yet; guarded by o.mu
}

// Reserve reserves capacity for count nodes that are about to be created. The caller must free the
// reservation. A caller that could do without the nodes passes others: capacity for that many other
// nodes must then remain.
func (o *Own) Reserve(count, others int) (Reservation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.fullLocked(count - 1 + others); err != nil {
		return Reservation{}, err
	}
	o.mu.reserved += count
	return Reservation{o, count}, nil
}

// Claim counts a node whose name is known before it is created, from the call until its deletion. A
// node that is counted already can be claimed again.
func (o *Own) Claim(node string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.nodes[node] != nil {
		return nil
	}
	if err := o.fullLocked(0); err != nil {
		return err
	}
	o.addLocked(node)
	return nil
}

func (o *Own) fullLocked(others int) error {
	if n := len(o.mu.nodes) + o.mu.reserved; n+others >= o.most {
		return fmt.Errorf("%w: %d; use more Sessions, or raise the cap with WithMaxLockNodes and an eye on the servers", ErrTooMany, n)
	}
	return nil
}

// Taken notes that one of the reserved nodes was created.
func (s *Reservation) Taken(node string) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.missing > 0 {
		s.missing--
		s.o.mu.reserved--
	}
	s.o.addLocked(node)
}

// Free ends the reservation: none of the remaining nodes will be created.
func (s *Reservation) Free() {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.mu.reserved -= s.missing
	s.missing = 0
}

func (o *Own) add(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addLocked(node)
}

func (o *Own) addLocked(node string) {
	if o.mu.nodes[node] == nil {
		o.mu.nodes[node] = &ownNode{}
	}
}

// Gone notes that a node no longer exists. The waiters behind it that got no handoff must list.
func (o *Own) Gone(node string) { o.gone(node, queue.HandoffUnknown) }

// deleted is Gone for nodes that a successful delete of ours has deleted: the success proves to the
// waiters behind them that their own nodes were not deleted with it.
func (o *Own) deleted(nodes []string) {
	for _, node := range nodes {
		o.gone(node, queue.BlockerDeleted)
	}
}

// handedOff notes that the node ahead of w was deleted and w gets the lock. The deleted node no
// longer counts when w is notified: w may need the capacity for a lease.
func (o *Own) handedOff(w *Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.Notify(queue.HandoffIsOurs)
	o.goneLocked(w.Blocker, queue.BlockerDeleted)
}

func (o *Own) gone(node string, t queue.Handoff) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goneLocked(node, t)
}

func (o *Own) goneLocked(node string, t queue.Handoff) {
	o.notifyLocked(node, t)
	delete(o.mu.nodes, node)
}

// noteRejected notes that the servers reject the deletion of a node. We cannot notify its waiters
// of its deletion, so they must watch it.
func (o *Own) noteRejected(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notifyLocked(node, queue.HandoffUnknown)
	if n := o.mu.nodes[node]; n != nil {
		n.behind, n.rejected = nil, true
	}
}

func (o *Own) notifyLocked(node string, t queue.Handoff) {
	if n := o.mu.nodes[node]; n != nil {
		for _, w := range n.behind {
			w.Notify(t)
		}
	}
}

// WaitBehind returns a waiter for node that is notified when its blocker is deleted. It returns nil
// if the blocker is not known to be ours, or if the servers reject its deletion.
func (o *Own) WaitBehind(blocker, node string) *Waiter {
	return o.addWaiter(Waiter{Node: node, Blocker: blocker})
}

// WaitForEnd is WaitBehind for a node that may not be directly behind the blocker. It gets no
// handoff.
func (o *Own) WaitForEnd(blocker, node string) *Waiter {
	return o.addWaiter(Waiter{Node: node, Blocker: blocker, skipped: true, watches: true})
}

func (o *Own) addWaiter(w Waiter) *Waiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.mu.nodes[w.Blocker]
	if n == nil || n.rejected {
		return nil
	}
	it := w // keeps w off the heap in the usual case, where the blocker is not ours
	it.Notified = make(chan queue.Handoff, 1)
	n.behind = append(n.behind, &it)
	return &it
}

// Leave removes a waiter: from now on it gets no handoff.
func (o *Own) Leave(w *Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.mu.nodes[w.Blocker]; n != nil {
		n.behind = slices.DeleteFunc(n.behind, func(other *Waiter) bool { return other == w })
	}
}

// next returns the waiter that gets the lock from the holder of node; nil if no waiter can get it.
func (o *Own) next(node string) *Waiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.mu.nodes[node]; n != nil {
		for _, w := range n.behind {
			if !w.skipped {
				return w
			}
		}
	}
	return nil
}

// skip excludes the waiter from handoffs: it is notified when its blocker has been deleted.
func (o *Own) skip(w *Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.skipped = true
}

// Waiting returns all waiters that have no watch.
func (o *Own) Waiting() (all []*Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.mu.nodes {
		for _, w := range n.behind {
			if !w.watches {
				all = append(all, w)
			}
		}
	}
	return all
}

// Notify notifies a waiter once: a later notification adds nothing, and is dropped.
func (w *Waiter) Notify(t queue.Handoff) {
	select {
	case w.Notified <- t:
	default:
	}
}
