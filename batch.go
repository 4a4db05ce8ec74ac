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

// batch makes nodes in several queues by one transaction, and lists those queues in the same flight. Either all nodes are made or none.
type batch struct {
	e      *zkSession
	wanted context.Context // once it has ended, nothing more is sent
	nodes  []*batchResult
}

// batchResult is a node of a flight.
type batchResult struct {
	root *lockRoot
	c    *nodeCreate    // has the node, if there is one
	list *nodes.Listing // sent after the transaction
	made *rootCreate    // of the root, if that was missing
}

// add adds a node. An error says that the session has no room for it.
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

// make makes the nodes, even if nobody waits any more when the answer is late. If lock roots are missing, it makes them: first without their
// parents, as lockRoot.make does. It returns false if there are not all nodes; some may be there if an answer was lost.
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

// batchReply is what came of the transaction.
type batchReply struct {
	fate mux.Fate
	err  error
}

// send sends the transaction, and then the lists. An error says that nothing was sent.
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
	f.list()
	return answered, nil
}

// longestBatch is how many bytes the transaction may have. Servers that read less than that do not read the heartbeat of a Session that holds
// many locks, either.
const longestBatch = 256 << 10

func (f *batch) list() {
	for _, n := range f.nodes {
		n.list = f.e.lists.List(n.root.path)
	}
}

// noteReplies notes the nodes before any later answer is read, as nodeCreate.noteReply does. Their czxid is the zxid of the answer: servers answer
// a write before they do the next one. (Only from 3.9 on do they put a Stat into the answer.) Their owner is the session of the connection.
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
			return wire.ErrMalformed // as good as no answer
		}
	}
	return nil
}

// makeRoots sends the creation of the lock roots that are not known to be there.
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

// takeBack has the containers deleted that were made for nodes that were not made.
func (f *batch) takeBack() {
	for _, n := range f.nodes {
		n.root.undoCreate(f.e.ZKSession, n.made)
	}
}

// resolve finds out what became of a transaction whose answer was lost, node by node. It returns false if there are none, or if somebody has
// deleted one meanwhile.
func (f *batch) resolve() bool {
	all := true
	for _, n := range f.nodes {
		if err := n.c.resolve(); err != nil || n.c.node == "" {
			all = false
		}
	}
	if all {
		f.list()
	}
	return all
}

// places waits for the lists, and returns where the nodes stand: Missing, if a list does not say.
func (f *batch) places() []queue.Position {
	places := make([]queue.Position, len(f.nodes))
	for i, n := range f.nodes {
		if n.list.Wait(f.wanted, f.e.ZKSession) == nil {
			places[i] = n.place()
		}
	}
	return places
}

// place returns where the node stands in its list, which has come.
func (n *batchResult) place() queue.Position {
	return queue.PositionOf(n.root.rule, nameOf(n.c.node), n.list.Names)
}
