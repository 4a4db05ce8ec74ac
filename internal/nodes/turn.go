// Package nodes has the lock nodes of one ZooKeeper session: the lists that show them, who waits for whose turn, and the
// deletions. It promises that a node that was given up is deleted while its session lives, and that a turn is passed only when the
// servers have answered that the next node was there.
//
// It must not know of owners and holds, nor decide who is in front: that is internal/queue.
//
// Read turn.go first, then reaper.go and orphans.go; list.go is how all of them see a queue.
package nodes

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zklock/zklock/internal/queue"
)

// ErrTooMany: the session has as many lock nodes as it may.
var ErrTooMany = errors.New("too many lock nodes in one session")

// Own knows the lock nodes of one ZooKeeper session, and which waiters stand behind them with nodes of the same session.
// Such a waiter watches nothing. The release of the node ahead deletes that node and passes the turn to the waiter, in one
// transaction (see queue.TurnAfter). If the node goes in another way, the waiter hears that too. A waiter that gets no turn (HearOf) watches
// its own node.
type Own struct {
	most int

	mu struct {
		sync.Mutex
		reserved int                 // of nodes that are being made
		nodes    map[string]*ownNode // made, or claimed, and not known to be gone
	}
}

// ownNode is a lock node of ours.
type ownNode struct {
	behind []*Waiter // mostly one
	stays  bool      // the servers refuse to delete it: waiters watch it, as they watch other sessions' nodes
}

// Waiter stands behind a node of its own session, directly if it may get the turn.
type Waiter struct {
	Node    string          // its own, absolute
	Ahead   string          // the node that it stands behind
	Told    chan queue.Turn // holds one
	watches bool            // its node is watched, so nobody need look after it
	skipped bool            // it gets no turn: it is not directly behind, or the servers do not let us check its node
}

// NewOwn returns the nodes of a new session, of which there may be most.
func NewOwn(most int) *Own {
	o := &Own{most: most}
	o.mu.nodes = make(map[string]*ownNode)
	return o
}

// Reservation counts nodes against the cap while they are being made.
type Reservation struct {
	o    *Own
	left int // of them; guarded by o.mu
}

// Reserve returns the reservation of nodes that are about to be made. It must be freed. If others is not 0, they need not be made now: there
// must be room for so many others, too.
func (o *Own) Reserve(count, others int) (*Reservation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.fullLocked(count - 1 + others); err != nil {
		return nil, err
	}
	o.mu.reserved += count
	return &Reservation{o, count}, nil
}

// Claim counts a node whose name is known before it is made, from here on until it is gone. Once it counts, it can be claimed again.
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

// Room returns how many nodes more there may be.
func (o *Own) Room() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.most - len(o.mu.nodes) - o.mu.reserved
}

func (o *Own) fullLocked(others int) error {
	if n := len(o.mu.nodes) + o.mu.reserved; n+others >= o.most {
		return fmt.Errorf("%w: %d; use more Sessions, or raise the cap with WithMaxLockNodes and an eye on the servers", ErrTooMany, n)
	}
	return nil
}

// Taken notes that one of the nodes is made.
func (s *Reservation) Taken(node string) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.left > 0 {
		s.left--
		s.o.mu.reserved--
	}
	s.o.addLocked(node)
}

// Free notes that the making of all that are left is over.
func (s *Reservation) Free() {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.mu.reserved -= s.left
	s.left = 0
}

// add notes a node of ours.
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

// Gone notes that a node is there no more. The waiters behind it that have not got the turn must list.
func (o *Own) Gone(node string) { o.gone(node, queue.TurnUnknown) }

// deleted is Gone for nodes of which our own delete was answered with success. That proves something to those behind them.
func (o *Own) deleted(nodes []string) {
	for _, node := range nodes {
		o.gone(node, queue.AheadIsGone)
	}
}

func (o *Own) gone(node string, t queue.Turn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellLocked(node, t)
	delete(o.mu.nodes, node)
}

// stays notes that the servers refuse to delete a node. We cannot tell its waiters of its end: they must watch it.
func (o *Own) stays(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellLocked(node, queue.TurnUnknown)
	if n := o.mu.nodes[node]; n != nil {
		n.behind, n.stays = nil, true
	}
}

func (o *Own) tellLocked(node string, t queue.Turn) {
	if n := o.mu.nodes[node]; n != nil {
		for _, w := range n.behind {
			w.Tell(t)
		}
	}
}

// StandBehind returns a waiter for node that is told when the node ahead goes. It returns nil if the node ahead is not known to
// be ours, or if the servers refuse to delete it.
func (o *Own) StandBehind(ahead, node string) *Waiter {
	return o.behind(Waiter{Node: node, Ahead: ahead})
}

// HearOf is StandBehind for a node that may have others between itself and the one ahead. It gets no turn.
func (o *Own) HearOf(ahead, node string) *Waiter {
	return o.behind(Waiter{Node: node, Ahead: ahead, skipped: true, watches: true})
}

func (o *Own) behind(w Waiter) *Waiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.mu.nodes[w.Ahead]
	if n == nil || n.stays {
		return nil
	}
	it := w // w itself need not be on the heap: mostly the node ahead is not ours
	it.Told = make(chan queue.Turn, 1)
	n.behind = append(n.behind, &it)
	return &it
}

// StepOut takes a waiter out: from here on, no turn is passed to it.
func (o *Own) StepOut(w *Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.mu.nodes[w.Ahead]; n != nil {
		n.behind = slices.DeleteFunc(n.behind, func(other *Waiter) bool { return other == w })
	}
}

// next returns the waiter to which the holder of node passes the turn, nil if there is none.
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

// skip has no turn passed to the waiter: it hears when the node ahead of it is gone.
func (o *Own) skip(w *Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.skipped = true
}

// Waiting returns all waiters that watch nothing.
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

// Tell tells a waiter one thing: later ones say nothing new, and are dropped.
func (w *Waiter) Tell(t queue.Turn) {
	select {
	case w.Told <- t:
	default:
	}
}
