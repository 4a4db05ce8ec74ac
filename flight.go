package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/answer"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/nodes"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// flight makes nodes in several queues by one transaction, and lists those queues in the same flight. Either all nodes are made or none.
type flight struct {
	e      *era
	wanted context.Context // once it has ended, nothing more is sent
	nodes  []*flown
}

// flown is a node of a flight.
type flown struct {
	root *lockRoot
	c    *creation      // has the node, if there is one
	list *nodes.Listing // sent after the transaction
	made *making        // of the root, if that was missing
}

// add adds a node. An error says that the session has no room for it.
func (f *flight) add(root *lockRoot, data []byte) (*flown, error) {
	c, err := f.e.creationOf(f.wanted, root, data)
	if err != nil {
		return nil, err
	}
	n := &flown{root: root, c: c}
	f.nodes = append(f.nodes, n)
	return n, nil
}

func (f *flight) freeSeats() {
	for _, n := range f.nodes {
		n.c.reservation.Free()
	}
}

// make makes the nodes, even if nobody waits any more when the answer is late. If lock roots are missing, it makes them: first without their
// parents, as lockRoot.make does. It returns false if there are not all nodes; some may be there if an answer was lost.
func (f *flight) make() bool {
	for tries := 1; ; tries++ {
		answered, err := f.send()
		if err != nil {
			return false
		}
		var got flightAnswer
		select {
		case got = <-answered:
		case <-f.e.Over():
			return false
		}
		switch answer.FateOf(got.fate, answer.OutcomeOf(got.err), f.e.IsOver()) {
		case answer.NodeMade:
			for _, n := range f.nodes {
				n.c.node, n.c.token = n.c.made.Path, n.c.made.Stat.Czxid
			}
			return true
		case answer.NodeUnclear:
			return f.resolve()
		case answer.NodeDenied:
			if errors.Is(got.err, zk.ErrNoNode) && tries < 3 && f.makeRoots() {
				continue
			}
		case answer.NothingMade, answer.GoneIfMade:
		}
		return false
	}
}

// flightAnswer is what came of the transaction.
type flightAnswer struct {
	fate tap.Fate
	err  error
}

// send sends the transaction, and then the lists. An error says that nothing was sent.
func (f *flight) send() (<-chan flightAnswer, error) {
	var ask wire.MultiRequest
	for _, n := range f.nodes {
		create := n.c.request()
		ask.Ops = append(ask.Ops, wire.MultiOp{Op: wire.OpCreate, Path: create.Path, Create: create})
	}
	answered := make(chan flightAnswer, 1)
	r := tap.NewRequest(wire.OpMulti, ask, func(a tap.Answer) { answered <- flightAnswer{a.Fate, f.answered(a)} })
	switch err := link.TooLong(r, min(f.e.Longest, longestFlight)); {
	case err != nil:
		return nil, err
	case f.wanted.Err() != nil:
		return nil, link.ErrCtxEnded
	case !f.e.Carrier.Send(f.e.Era, r):
		return nil, zk.ErrConnectionClosed
	}
	f.list()
	return answered, nil
}

// longestFlight is how many bytes the transaction may have. Servers that read less than that do not read the heartbeat of a Session that holds
// many locks, either.
const longestFlight = 256 << 10

func (f *flight) list() {
	for _, n := range f.nodes {
		n.list = f.e.lists.List(n.root.path)
	}
}

// answered notes the nodes before any later answer is read, as creation.answered does. Their czxid is the zxid of the answer: servers answer
// a write before they do the next one. (Only from 3.9 on do they put a Stat into the answer.) Their owner is the session of the connection.
func (f *flight) answered(a tap.Answer) error {
	if err := answer.ErrOf(a); err != nil {
		return err
	}
	results, _, err := answer.ResultsOf(a, len(f.nodes))
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
func (f *flight) makeRoots() bool {
	for _, n := range f.nodes {
		if n.made != nil {
			isThere, err := n.root.outcome(f.wanted, f.e.Era, n.made)
			if err != nil {
				return false
			}
			if isThere {
				continue
			}
		}
		m, err := n.root.make(f.wanted, f.e.Era, n.made, n.root.path, nil)
		if err != nil {
			return false
		}
		n.made = m
	}
	return true
}

// takeBack has the containers deleted that were made for nodes that were not made.
func (f *flight) takeBack() {
	for _, n := range f.nodes {
		n.root.takeBack(f.e.Era, n.made)
	}
}

// resolve finds out what became of a transaction whose answer was lost, node by node. It returns false if there are none, or if somebody has
// deleted one meanwhile.
func (f *flight) resolve() bool {
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
func (f *flight) places() []queue.Place {
	places := make([]queue.Place, len(f.nodes))
	for i, n := range f.nodes {
		if n.list.Wait(f.wanted, f.e.Era) == nil {
			places[i] = n.place()
		}
	}
	return places
}

// place returns where the node stands in its list, which has come.
func (n *flown) place() queue.Place {
	return queue.PlaceOf(n.root.rule, nameOf(n.c.node), n.list.Names)
}
