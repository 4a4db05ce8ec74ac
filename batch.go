package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
	"github.com/zklock/zklock/internal/wire"
)

// batch creates nodes in several queues by one transaction, and requests the lists of those queues
// right after it. The transaction creates all nodes or none.
type batch struct {
	e      *zkSession
	wanted context.Context // once it ends, nothing further is sent
	nodes  []*batchResult
}

// batchResult is a node of a batch.
type batchResult struct {
	root *lockRoot
	c    *nodeCreate    // has the node, once created
	list *nodes.Listing // requested after the transaction; nil if the node was searched for
	made *rootCreate    // creation of the root, if it was missing
}

// add adds a node. It returns an error if the session has no capacity for it.
func (f *batch) add(root *lockRoot, data []byte) (*batchResult, error) {
	c, err := f.e.newNodeCreate(f.wanted, root, data)
	if err != nil {
		return nil, err
	}
	n := &batchResult{root: root, c: c}
	f.nodes = append(f.nodes, n)
	return n, nil
}

func (f *batch) freeSeats() {
	for _, n := range f.nodes {
		n.c.reservation.Free()
	}
}

// make creates the nodes, even if the caller has left before the response arrives. If lock roots
// are missing, it creates them, at first without their parents, as lockRoot.make does. It returns
// false unless all nodes exist; if a response was lost, some may exist.
func (f *batch) make() bool {
	for tries := 1; ; tries++ {
		answered, err := f.send()
		if err != nil {
			return false
		}
		var got batchReply
		select {
		case got = <-answered:
		case <-f.e.Ended():
			return false
		}
		switch reply.FateOf(got.fate, reply.OutcomeOf(got.err), f.e.HasEnded()) {
		case reply.NodeMade:
			for _, n := range f.nodes {
				n.c.node, n.c.token = n.c.made.Path, n.c.made.Stat.Czxid
			}
			return true
		case reply.NodeUnclear:
			return f.resolve()
		case reply.NodeDenied:
			if errors.Is(got.err, zk.ErrNoNode) && tries < 3 && f.makeRoots() {
				continue
			}
		case reply.NothingMade, reply.GoneIfMade:
		}
		return false
	}
}

// batchReply is the outcome of the transaction.
type batchReply struct {
	fate mux.Fate
	err  error
}

// send sends the transaction and then the lists. If it returns an error, it has sent nothing.
func (f *batch) send() (<-chan batchReply, error) {
	var ask wire.MultiRequest
	for _, n := range f.nodes {
		create := n.c.request()
		ask.Ops = append(ask.Ops, wire.MultiOp{Op: wire.OpCreate, Path: create.Path, Create: create})
	}
	answered := make(chan batchReply, 1)
	r := mux.NewRequest(wire.OpMulti, ask, func(a mux.Reply) { answered <- batchReply{a.Fate, f.noteReplies(a)} })
	switch err := link.TooLong(r, min(f.e.Longest, longestBatch)); {
	case err != nil:
		return nil, err
	case f.wanted.Err() != nil:
		return nil, link.ErrCtxEnded
	case !f.e.Carrier.Send(f.e.ZKSession, r):
		return nil, zk.ErrConnectionClosed
	}
	for _, n := range f.nodes {
		n.list = f.e.lists.List(n.root.path)
	}
	return answered, nil
}

// longestBatch is the largest transaction, in bytes. A server that rejects this length also rejects
// the heartbeat of a Session that holds many locks.
const longestBatch = 256 << 10

// noteReplies records the nodes before any later response is read, as nodeCreate.noteReply does.
// Their czxid is the zxid of the response, because a server responds to a write before it executes
// the next one. (Servers add a Stat only from 3.9 on.) Their owner is the session of the
// connection.
func (f *batch) noteReplies(a mux.Reply) error {
	if err := reply.ErrOf(a); err != nil {
		return err
	}
	results, _, err := reply.ResultsOf(a, len(f.nodes))
	if err != nil {
		return err
	}
	for i, n := range f.nodes {
		stat := wire.Stat{Czxid: a.Zxid, EphemeralOwner: f.e.ID}
		if !n.c.note(wire.PathStatResponse{Path: results[i].Path, Stat: stat}) {
			return wire.ErrMalformed // counts as no response
		}
	}
	return nil
}

// makeRoots sends the creates of lock roots that are not known to exist.
func (f *batch) makeRoots() bool {
	for _, n := range f.nodes {
		if n.made != nil {
			isThere, err := n.root.outcome(f.wanted, f.e.ZKSession, n.made)
			if err != nil {
				return false
			}
			if isThere {
				continue
			}
		}
		m, err := n.root.make(f.wanted, f.e.ZKSession, n.made, n.root.path, nil)
		if err != nil {
			return false
		}
		n.made = m
	}
	return true
}

// takeBack deletes containers that were created for nodes that do not exist.
func (f *batch) takeBack() {
	for _, n := range f.nodes {
		n.root.undoCreate(f.e.ZKSession, n.made)
	}
}

// resolve determines, node by node, the outcome of a transaction whose response was lost. It
// returns false if the nodes do not exist, or if another client has deleted one meanwhile.
func (f *batch) resolve() bool {
	all := true
	for _, n := range f.nodes {
		if err := n.c.resolve(); err != nil || n.c.node == "" {
			all = false
		}
	}
	for _, n := range f.nodes {
		n.list = nil // the list may be older than the node
	}
	return all
}

// places waits for the lists and returns the positions of the nodes, Missing if a list failed. It
// requests a list again if the node was searched for.
func (f *batch) places() []queue.Position {
	for _, n := range f.nodes {
		if n.list == nil {
			n.list = f.e.lists.List(n.root.path)
		}
	}
	places := make([]queue.Position, len(f.nodes))
	for i, n := range f.nodes {
		if n.list.Wait(f.wanted, f.e.ZKSession) == nil {
			places[i] = n.place()
		}
	}
	return places
}

// place returns the position of the node in its list, which has arrived.
func (n *batchResult) place() queue.Position {
	return queue.PositionOf(n.root.rule, nameOf(n.c.node), n.list.Names)
}
