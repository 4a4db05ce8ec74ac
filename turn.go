package zklock

import (
	"fmt"
	"slices"
	"sync"
)

// ownNodes knows the lock nodes of one ZooKeeper session, and which waiters stand behind them with nodes of the same session.
// Such a waiter watches nothing. The release of the node ahead deletes that node and passes the turn to the waiter, in one
// transaction (see turnAfter). If the node goes in another way, the waiter hears that too.
type ownNodes struct {
	most int

	mu struct {
		sync.Mutex
		seats int                 // of nodes that are being made
		nodes map[string]*ownNode // made and not known to be gone
	}
}

// ownNode is a lock node of ours.
type ownNode struct {
	behind []*waiter // directly behind it: mostly one
	stays  bool      // the servers refuse to delete it: waiters watch it, as they watch other sessions' nodes
}

// waiter stands directly behind a node of its own session.
type waiter struct {
	node    string    // its own, absolute
	ahead   string    // the node that it stands behind
	markers []string  // the name endings that take part in the queue as it sees it
	told    chan turn // holds one
	skipped bool      // the servers do not let us check its node
}

func newOwnNodes(most int) *ownNodes {
	o := &ownNodes{most: most}
	o.mu.nodes = make(map[string]*ownNode)
	return o
}

// seat counts a node against the cap while it is being made.
type seat struct {
	o     *ownNodes
	freed bool // guarded by o.mu
}

// reserve returns the seat of a node that is about to be made. It must be freed.
func (o *ownNodes) reserve() (*seat, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.mu.nodes) + o.mu.seats; n >= o.most {
		return nil, fmt.Errorf("%w: %d; use more Sessions, or raise the cap with WithMaxLockNodes and an eye on the servers", ErrTooManyWaiters, n)
	}
	o.mu.seats++
	return &seat{o: o}, nil
}

// taken notes that the node is made.
func (s *seat) taken(node string) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.freeLocked()
	s.o.addLocked(node)
}

// free notes that the node's making is over.
func (s *seat) free() {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.freeLocked()
}

func (s *seat) freeLocked() {
	if !s.freed {
		s.freed = true
		s.o.mu.seats--
	}
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

// gone notes that a node is there no more. The waiters behind it that have not got the turn must list.
func (o *ownNodes) gone(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellLocked(node)
	delete(o.mu.nodes, node)
}

// stays notes that the servers refuse to delete a node. We cannot tell its waiters of its end: they must watch it.
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

// standBehind returns a waiter for node that is told when the node ahead goes. It returns nil if the node ahead is not known to
// be ours, or if the servers refuse to delete it.
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

// stepOut takes a waiter out: from here on, no turn is passed to it.
func (o *ownNodes) stepOut(w *waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.mu.nodes[w.ahead]; n != nil {
		n.behind = slices.DeleteFunc(n.behind, func(other *waiter) bool { return other == w })
	}
}

// next returns the waiter to which the holder of node passes the turn, nil if there is none. Both must see the same queue.
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

// skip has no turn passed to the waiter: it hears when the node ahead of it is gone.
func (o *ownNodes) skip(w *waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.skipped = true
}

// waiting returns all waiters.
func (o *ownNodes) waiting() (all []*waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.mu.nodes {
		all = append(all, n.behind...)
	}
	return all
}

// tell tells a waiter one thing: later ones say nothing new, and are dropped.
func (w *waiter) tell(t turn) {
	select {
	case w.told <- t:
	default:
	}
}
