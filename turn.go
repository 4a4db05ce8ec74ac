package zklock

import (
	"fmt"
	"slices"
	"sync"
)

// ownNodes knows the lock nodes of one ZooKeeper session, and who stands behind which of them with a node of the same session.
// Such a waiter watches nothing: the release of the node ahead passes the turn to it, in the transaction that deletes that node
// (see turnAfter), or it is told that there was none to pass.
type ownNodes struct {
	most int

	mu struct {
		sync.Mutex
		making map[any]bool        // by whom a node is being made; whether it is there, and among the nodes
		unmade int                 // how many of them are not
		nodes  map[string]*ownNode // made and not known to be gone
	}
}

// ownNode is a lock node of ours.
type ownNode struct {
	behind []*waiter // who stands directly behind it: mostly one
	stays  bool      // the servers refuse to delete it: who comes watches it, as any other
}

// waiter is one who stands directly behind a node of its own session.
type waiter struct {
	node    string    // its own, absolute
	ahead   string    // the node that it stands behind
	markers []string  // who takes part in the queue as it sees it
	told    chan turn // holds one
	skipped bool      // the servers do not let us check its node
}

func newOwnNodes(most int) *ownNodes {
	o := &ownNodes{most: most}
	o.mu.making = make(map[any]bool)
	o.mu.nodes = make(map[string]*ownNode)
	return o
}

// reserve counts a node that is about to be made against the cap.
func (o *ownNodes) reserve(by any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.mu.nodes) + o.mu.unmade; n >= o.most {
		return fmt.Errorf("%w: %d; use more Sessions, or raise the cap with WithMaxLockNodes and an eye on the servers", ErrTooManyWaiters, n)
	}
	o.mu.making[by] = false
	o.mu.unmade++
	return nil
}

// made is add, for a node that was reserved; whoever makes it may have more to ask about it.
func (o *ownNodes) made(node string, by any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if there, ok := o.mu.making[by]; ok && !there {
		o.mu.making[by] = true
		o.mu.unmade--
	}
	o.addLocked(node)
}

// unmake takes that back: the node was gone, and another is being made.
func (o *ownNodes) unmake(by any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.making[by] {
		o.mu.making[by] = false
		o.mu.unmade++
	}
}

// finished says that nobody makes that node any more: it is there, or none.
func (o *ownNodes) finished(by any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if there, ok := o.mu.making[by]; ok && !there {
		o.mu.unmade--
	}
	delete(o.mu.making, by)
}

// making is how many are being made.
func (o *ownNodes) making() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.making)
}

// add notes a node of ours.
func (o *ownNodes) add(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addLocked(node)
}

func (o *ownNodes) addLocked(node string) {
	if o.mu.nodes[node] == nil {
		o.mu.nodes[node] = &ownNode{}
	}
}

// gone notes that a node is there no more. Who stood behind it and has not got the turn is to list.
func (o *ownNodes) gone(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellLocked(node)
	delete(o.mu.nodes, node)
}

// stays notes that the servers refuse to delete a node: nobody hears from us of its end.
func (o *ownNodes) stays(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellLocked(node)
	if n := o.mu.nodes[node]; n != nil {
		n.behind, n.stays = nil, true
	}
}

func (o *ownNodes) tellLocked(node string) {
	if n := o.mu.nodes[node]; n != nil {
		for _, w := range n.behind {
			w.tell(turnUnknown)
		}
	}
}

// standBehind has the one with this node told when the node ahead of it goes. It returns nil if that is not known to be ours, or not
// for us to delete.
func (o *ownNodes) standBehind(ahead, node string, markers []string) *waiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.mu.nodes[ahead]
	if n == nil || n.stays {
		return nil
	}
	w := &waiter{node: node, ahead: ahead, markers: markers, told: make(chan turn, 1)}
	n.behind = append(n.behind, w)
	return w
}

// stepOut is for who waits no more: no turn is passed to it from here on.
func (o *ownNodes) stepOut(w *waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.mu.nodes[w.ahead]; n != nil {
		n.behind = slices.DeleteFunc(n.behind, func(other *waiter) bool { return other == w })
	}
}

// next returns who the turn is to be passed to by a holder who sees the same queue, nil if there is nobody.
func (o *ownNodes) next(node string, markers []string) *waiter {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.mu.nodes[node]; n != nil {
		for _, w := range n.behind {
			if !w.skipped && slices.Equal(w.markers, markers) {
				return w
			}
		}
	}
	return nil
}

// skip leaves the waiter out: it is told when the node ahead of it is gone.
func (o *ownNodes) skip(w *waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.skipped = true
}

// waiting returns all who wait for a turn.
func (o *ownNodes) waiting() (all []*waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.mu.nodes {
		all = append(all, n.behind...)
	}
	return all
}

// tell is heard once: what comes later says nothing new.
func (w *waiter) tell(t turn) {
	select {
	case w.told <- t:
	default:
	}
}
