package queue

// The model of TestExploreNewRoot: a world of clients that take a lock whose root is created and
// deleted with a node.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zklock/zklock/internal/explore"
)

// The model: a lock root, and clients with a session each (servers). A client decides with
// Rejection, PositionOf and KeepsRoot, as the library does.
//
//	nIdle ──▶ nCreates ─┬─ with the root ─────▶ nHolds ──▶ nIdle, nEnded
//	            ▲   ▲   └─ alone ──▶ nLists ──────▲
//	            │   └─ rejected: Rejection.Next
//	            └───── lost: nResolves
//
// A node is deleted while its client continues, as if another goroutine acquired the lock next. A
// request is sent, executed, and answered when the client's server has executed all before it. When
// the connection is lost, a request that was not executed may arrive later. A read and its response
// are one step. A client that waits lists when that would help (explore_test.go has how it is
// woken).
const (
	nClients = 3
	nNodes   = 4 // in the queue at the same time
	nIDs     = 13
)

const (
	nIdle uint8 = iota
	nCreates
	nResolves // the response was lost
	nLists
	nHolds
	nEnded
)

// The requests. nRoot is a create of the lock root alone.
const (
	nAlone uint8 = iota + 1
	nBoth
	nRoot
	nDelete
	nDeleteBoth
)

var nNames = []string{"", "create", "create both", "create the root", "delete", "delete both"}

// The responses.
const (
	nOK uint8 = iota
	nNoNode
	nExists
	nNotEmpty
)

// newNode is a node of the queue. id 0 is none; a larger id is a later node.
type newNode struct{ id, num uint8 }

type newState struct {
	root  bool
	by    uint8 // the client that created it, from 1; 0 is another program
	next  uint8 // the number of the next child
	nodes [nNodes]newNode
}

// newRequest is a request of a client. age is how many transactions followed it.
type newRequest struct{ op, node, response, age, sent uint8 }

// sent is 0 for no request, 1 until it is executed, and 2 until the response.
const (
	nSent uint8 = iota + 1
	nExecuted
)

type newClient struct {
	phase, left     uint8
	id, num         uint8
	isFirst         bool // its own transaction created the root with its node
	tries, rejected uint8
	roots           bool
	req, del        newRequest
	lateNote        bool // a late create is noted as an orphan
	late            newRequest
}

type newWorld struct {
	servers[newState]
	c        [nClients]newClient
	n        uint8
	who      [nIDs + 1]uint8 // the client of a node, from 1; 0 is another program, or a session that is given up
	off      uint16          // ids of nodes that are being deleted
	orphans  uint16          // ids of nodes that a client has to find
	both     uint16          // those that were created with the root
	faults   uint8
	last     uint8 // the node that was granted last
	wasTaken bool  // a client has found the root of another client, or another node in its own; or an administrator acted
	broken   string
}

// newMistakes are what the rules forbid.
type newMistakes struct {
	aloneGrants  bool // a node that was created alone is granted without a list
	foundGrants  bool // so is one that was found after its create was lost
	notEmptyEnds bool // a root that is not empty ends the deletion
	forgets      bool // no orphan is noted if the root is missing
	createsAgain bool // after a lost response, the node is created again without a search
	anyDeletes   bool // a client deletes a root that another created
	orphanAlone  bool // an orphan is deleted without its root
}

type newExplorer struct {
	acquire  []uint8 // how often each client
	others   string  // the clients that create the root by itself, and never delete it: o; - for ours
	faults   uint8
	acts     string
	mistakes newMistakes
	leaves   bool // the root may remain

	firsts, deleted int
}

func (s *newState) has(id uint8) bool {
	return slices.ContainsFunc(s.nodes[:], func(n newNode) bool { return n.id == id && id != 0 })
}

// commit executes a transaction at the leader, which may be an error.
func (w *newWorld) commit(f func(s *newState)) {
	w.servers.commit(f)
	for i := range w.c {
		c := &w.c[i]
		c.req.age, c.del.age = min(c.req.age+1, mostBehind), min(c.del.age+1, mostBehind)
	}
}

func (w *newWorld) add(s *newState, who uint8) newNode {
	w.n++
	n := newNode{w.n, s.next}
	w.who[n.id] = who
	s.next++
	if i := slices.Index(s.nodes[:], newNode{}); i >= 0 {
		s.nodes[i] = n
	} else {
		w.broken = "too many nodes for the model"
	}
	return n
}

func (s *newState) remove(id uint8) {
	kept := slices.DeleteFunc(slices.Clone(s.nodes[:]), func(n newNode) bool { return n.id == id || n.id == 0 })
	s.nodes = [nNodes]newNode{}
	copy(s.nodes[:], kept)
}

func (s *newState) names() (all []string) {
	for _, n := range s.nodes {
		if n.id != 0 {
			all = append(all, newName(n))
		}
	}
	return all
}

func newName(n newNode) string {
	return fmt.Sprintf("_c_%08d-0000-4000-8000-000000000000-lock-%010d", 99-n.id, n.num)
}

// execute executes a request of a client at the leader.
func (w *newWorld) execute(c uint8, r *newRequest) {
	w.commit(func(s *newState) {
		is, isAlone := s.has(r.node), s.nodes[1] == newNode{}
		switch {
		case r.op == nAlone && !s.root, r.op >= nDelete && !is:
			r.response = nNoNode
		case (r.op == nBoth || r.op == nRoot) && s.root:
			r.response = nExists
		case r.op == nDeleteBoth && !isAlone:
			r.response = nNotEmpty
		case r.op == nDelete:
			s.remove(r.node)
		case r.op == nDeleteBoth:
			if s.by != c+1 {
				w.broken = "the lock root of another client is deleted"
			}
			*s = newState{}
		default:
			if r.op != nAlone {
				*s = newState{root: true, by: c + 1}
			}
			if r.op != nRoot {
				r.node = w.add(s, c+1).id
			}
		}
	})
	r.sent, r.age = nExecuted, 0
}

// grant grants the lock to a client, and checks that no node blocks it.
func (x *newExplorer) grant(w *newWorld, c uint8, how string) {
	k := &w.c[c]
	k.phase = nHolds
	if !w.leader().has(k.id) {
		return // a hold that is lost at once
	}
	if k.id <= w.last {
		w.broken = "I1: the token does not grow"
	}
	w.last = k.id
	for _, n := range w.leader().nodes {
		if n.id == 0 || n.id == k.id {
			continue
		}
		who := w.who[n.id]
		switch {
		case who == c+1 && w.off&(1<<n.id) == 0 && n.num < k.num:
			w.broken = "I2: granted " + how + " while its earlier node exists"
		case who != 0 && w.c[who-1].phase == nHolds && w.c[who-1].id == n.id:
			w.broken = "I1: two hold, on live nodes; the later was granted " + how
			return
		case n.num <= k.num && w.off&(1<<n.id) == 0:
			w.broken = "I8: granted " + how + " before an earlier node"
		}
	}
}

// explore visits all worlds, nearest first.
func (x *newExplorer) explore() explore.Found {
	first := newWorld{faults: x.faults}
	for i := range first.c {
		first.c[i] = newClient{phase: nEnded}
		if i < len(x.acquire) {
			first.c[i] = newClient{left: x.acquire[i]}
		}
	}
	first.start(len(x.acquire), newState{})
	return explore.Model[newWorld]{First: first, Steps: x.steps, Broken: func(w *newWorld) string { return w.broken }, Stuck: x.stuck}.Run()
}

// stuck checks a world in which nothing must happen any more.
func (x *newExplorer) stuck(w *newWorld) string {
	for i := range x.acquire {
		if w.c[i].phase != nEnded {
			return "a client waits, and nothing happens"
		}
	}
	switch now := w.leader(); {
	case now.nodes != [nNodes]newNode{}:
		return "I4: a node is left"
	case now.root && !x.leaves && !w.wasTaken:
		return "the lock root is left"
	}
	return ""
}

type newStep func(must bool, what string, f func(n *newWorld, k *newClient))

// steps gives all worlds that can come next.
func (x *newExplorer) steps(w *newWorld, take func(n *newWorld, must bool, what func() string)) {
	for c := range uint8(len(x.acquire)) {
		x.clientSteps(w, c, func(must bool, what string, f func(n *newWorld, k *newClient)) {
			n := *w
			f(&n, &n.c[c])
			take(&n, must, func() string { return string('A'+rune(c)) + " " + what })
		})
	}
	if !w.canCommit() {
		return
	}
	commit := func(must bool, what string, f func(n *newWorld, s *newState)) {
		n := *w
		n.commit(func(s *newState) { f(&n, s) })
		take(&n, must, func() string { return what })
	}
	now := w.leader()
	for _, node := range now.nodes {
		if node.id != 0 && w.who[node.id] == 0 {
			commit(true, "the node of another program is deleted", func(n *newWorld, s *newState) { n.off |= 1 << node.id; s.remove(node.id) })
		}
	}
	act := func(letter, what string, can bool, f func(n *newWorld, s *newState)) {
		if can && w.faults > 0 && strings.Contains(x.acts, letter) {
			commit(false, "FAULT "+what, func(n *newWorld, s *newState) { n.faults--; n.wasTaken = true; f(n, s) })
		}
	}
	isEmpty := now.root && now.nodes == [nNodes]newNode{}
	act("r", "the lock root is deleted", isEmpty, func(_ *newWorld, s *newState) { *s = newState{} })
	act("R", "the lock root is created", !now.root, func(_ *newWorld, s *newState) { *s = newState{root: true} })
	act("a", "the lock root is deleted and created again, and another program queues", isEmpty, func(n *newWorld, s *newState) {
		*s = newState{root: true}
		n.add(s, 0)
	})
	act("q", "another program queues", now.root && now.nodes[nNodes-1].id == 0, func(n *newWorld, s *newState) { n.add(s, 0) })
	for _, node := range now.nodes {
		act("d", fmt.Sprintf("the node %d is deleted", node.num), node.id != 0, func(_ *newWorld, s *newState) { s.remove(node.id) })
	}
}

func (x *newExplorer) clientSteps(w *newWorld, c uint8, add newStep) {
	me := w.c[c]
	x.late(w, c, add)
	isOn := w.isOn(c)
	w.next(c, func(what string, l link) {
		if !isOn && (me.phase == nEnded && me.del.op == 0 && w.orphans == 0 || me.phase == nResolves && l.lag > 0) { // after the sync
			return
		}
		add(true, what, func(n *newWorld, k *newClient) {
			l.seen = l.lag
			if n.link[c] = l; !isOn && k.del.op != 0 {
				k.del.sent = nSent
			}
		})
	})
	if !isOn {
		return
	}
	x.requests(w, c, add)
	x.lose(w, c, add)
	if w.faults > 0 && strings.Contains(x.acts, "z") && me.phase != nEnded {
		add(false, "FAULT gives its session up", func(n *newWorld, k *newClient) {
			n.faults--
			n.wasTaken = true
			for id := range n.who {
				if n.who[id] == c+1 {
					n.who[id] = 0
				}
			}
			*k = newClient{left: k.left}
			n.link[c] = link{conn: 1}
		})
	}
	for _, node := range w.view(c).nodes {
		if w.orphans&(1<<node.id) != 0 && w.who[node.id] == c+1 && w.leader().has(node.id) && w.canCommit() {
			add(true, "finds its orphan, and deletes it", func(n *newWorld, _ *newClient) {
				n.off, n.orphans = n.off|1<<node.id, n.orphans&^(1<<node.id)
				n.commit(func(s *newState) {
					if s.remove(node.id); *s == (newState{root: true, by: c + 1, next: s.next}) && n.both&(1<<node.id) != 0 && !x.mistakes.orphanAlone {
						*s = newState{}
					}
				})
			})
		}
	}
	switch me.phase {
	case nIdle:
		x.begin(c, add)
	case nResolves:
		add(true, "looks for its node", func(n *newWorld, k *newClient) { x.resolve(n, c, k) })
	case nLists:
		x.list(w, c, add)
	case nHolds:
		if !w.view(c).has(me.id) {
			add(true, "finds its node deleted", func(_ *newWorld, k *newClient) { k.ends() })
		} else if me.del.op == 0 {
			add(true, "releases", func(n *newWorld, k *newClient) { x.giveBack(n, k) })
		}
	}
}

// begin sends the first create, by either expectation.
func (x *newExplorer) begin(c uint8, add newStep) {
	send := func(op uint8) {
		add(true, "sends: "+nNames[op], func(_ *newWorld, k *newClient) {
			k.phase, k.tries, k.rejected, k.roots = nCreates, 0, 0, false
			k.send(op)
		})
	}
	if x.others[c] == 'o' {
		send(nRoot)
		return
	}
	send(nAlone)
	send(nBoth)
}

func (k *newClient) send(op uint8) {
	k.phase, k.req = nCreates, newRequest{op: op, sent: nSent}
	if op == nBoth {
		k.tries++
	}
}

// requests executes and answers the requests of a client.
func (x *newExplorer) requests(w *newWorld, c uint8, add newStep) {
	me := w.c[c]
	if w.canCommit() && w.leader().nodes[nNodes-1].id == 0 && me.req.sent == nSent {
		add(true, "has its request executed: "+nNames[me.req.op], func(n *newWorld, k *newClient) { r := k.req; n.execute(c, &r); k.req = r })
	}
	if w.canCommit() && me.del.sent == nSent {
		add(true, "has its request executed: "+nNames[me.del.op], func(n *newWorld, k *newClient) { r := k.del; n.execute(c, &r); k.del = r })
	}
	if me.req.sent == nExecuted && w.link[c].lag <= me.req.age {
		add(true, "has the response: "+nNames[me.req.op], func(n *newWorld, k *newClient) { x.answered(n, c, k) })
	}
	if me.del.sent == nExecuted && w.link[c].lag <= me.del.age {
		add(true, "has the response: "+nNames[me.del.op], func(n *newWorld, k *newClient) {
			n.wasTaken = n.wasTaken || k.del.response == nNotEmpty
			if k.del.response == nNotEmpty && KeepsRoot(1, false) && !x.mistakes.notEmptyEnds {
				k.del = newRequest{op: nDelete, node: k.del.node, sent: nSent}
				return
			}
			if k.del.op == nDeleteBoth && k.del.response == nOK {
				x.deleted++
			}
			k.del = newRequest{}
			k.rests()
		})
	}
}

// lose ends the connection. A request that was not executed may arrive later.
func (x *newExplorer) lose(w *newWorld, c uint8, add newStep) {
	me := w.c[c]
	if w.faults == 0 || !strings.Contains(x.acts, "l") {
		return
	}
	for _, r := range []newRequest{{}, me.req, me.del} {
		if r.op != 0 && (r.sent != nSent || me.late.op != 0) {
			continue
		}
		what := "FAULT loses its connection"
		if r.op != 0 {
			what += ", and a request is late: " + nNames[r.op]
		}
		add(false, what, func(n *newWorld, k *newClient) {
			n.faults--
			n.lose(c)
			if r.op != 0 {
				k.late, k.lateNote = r, false
			}
			if k.phase == nCreates {
				k.phase = nResolves
			}
			k.req.sent, k.del.sent = 0, 0
		})
	}
}

// late executes a request of a connection that was lost, or never does.
func (x *newExplorer) late(w *newWorld, c uint8, add newStep) {
	me := w.c[c]
	if me.late.op == 0 {
		return
	}
	drop := func(k *newClient) { k.late, k.lateNote = newRequest{}, false; k.rests() }
	add(false, "has a late request that never arrives", func(_ *newWorld, k *newClient) { drop(k) })
	if !w.canCommit() || w.leader().nodes[nNodes-1].id != 0 {
		return
	}
	add(false, "has a late request executed: "+nNames[me.late.op], func(n *newWorld, k *newClient) {
		r := k.late
		n.execute(c, &r)
		isNew := (r.op == nAlone || r.op == nBoth) && r.response == nOK
		switch {
		case isNew && k.phase == nResolves && !k.lateNote: // before the search
			k.req.node = r.node
		case isNew && k.lateNote:
			n.orphans |= 1 << r.node
			if r.op == nBoth {
				n.both |= 1 << r.node
			}
		}
		drop(k)
	})
}

// resolve is the search after a lost response: a sync and a list.
func (x *newExplorer) resolve(n *newWorld, c uint8, k *newClient) {
	n.answered(c)
	if view := n.view(c); k.req.node != 0 && view.has(k.req.node) && !x.mistakes.createsAgain {
		k.take(view, k.req.node, k.req.op == nBoth)
		if k.isFirst || x.mistakes.foundGrants {
			x.grant(n, c, "when found")
		}
		return
	}
	if k.late.op == nAlone || k.late.op == nBoth {
		k.lateNote = k.lateNote || !x.mistakes.forgets || n.view(c).root
	}
	op := k.req.op
	if op == nBoth {
		op = nAlone
	}
	if x.mistakes.createsAgain {
		op = k.req.op
	}
	k.send(op)
}

// take notes the client's node.
func (k *newClient) take(s *newState, id uint8, isFirst bool) {
	i := slices.IndexFunc(s.nodes[:], func(n newNode) bool { return n.id == id })
	k.id, k.num, k.isFirst, k.phase, k.req = id, 0, isFirst, nLists, newRequest{}
	if i >= 0 {
		k.num = s.nodes[i].num
	}
}

// answered handles the response to a create.
func (x *newExplorer) answered(n *newWorld, c uint8, k *newClient) {
	r := k.req
	if r.op == nRoot {
		k.roots = true
		k.send(nAlone)
		return
	}
	if r.response == nOK {
		k.take(n.view(c), r.node, r.op == nBoth)
		if r.op == nBoth {
			x.firsts++
			x.grant(n, c, "first in a new root")
		} else if x.mistakes.aloneGrants {
			x.grant(n, c, "alone")
		}
		return
	}
	n.wasTaken = n.wasTaken || r.response == nExists
	if k.rejected++; int(k.rejected) > 2*(x.acquires()+int(x.faults)) { // two for each root that is deleted
		n.broken = "I8: a client is rejected again and again"
	}
	switch (Rejection{
		WithRoot: r.op == nBoth, NoNode: r.response == nNoNode, Exists: r.response == nExists,
		CanBeNew: x.others[c] == '-', Tries: int(k.tries), Roots: k.roots,
	}).Next() {
	case CreateAlone:
		k.send(nAlone)
	case CreateWithRoot:
		k.send(nBoth)
	case CreateRoot:
		k.send(nRoot)
	default:
		n.broken = "the call fails"
	}
}

// acquires returns how often all clients acquire the lock.
func (x *newExplorer) acquires() (n int) {
	for _, a := range x.acquire {
		n += int(a)
	}
	return n
}

func (x *newExplorer) list(w *newWorld, c uint8, add newStep) {
	me, names := w.c[c], w.view(c).names()
	switch PositionOf(Rule{Name: MutexName, Markers: Markers}, newName(newNode{me.id, me.num}), names).Kind {
	case Front:
		add(true, "lists, and is first", func(n *newWorld, k *newClient) {
			x.grant(n, c, "by a list")
		})
	case Missing:
		add(true, "lists, and its node is missing", func(_ *newWorld, k *newClient) { k.phase, k.id, k.num, k.isFirst = nIdle, 0, 0, false })
	}
}

// giveBack begins the deletion of the client's node.
func (x *newExplorer) giveBack(n *newWorld, k *newClient) {
	k.del = newRequest{op: nDelete, node: k.id, sent: nSent}
	if k.isFirst || x.mistakes.anyDeletes {
		k.del.op = nDeleteBoth
	} else {
		n.wasTaken = true // the root remains
	}
	n.off |= 1 << k.id
	k.ends()
}

// ends ends a hold.
func (k *newClient) ends() {
	k.id, k.num, k.isFirst, k.phase = 0, 0, false, nIdle
	if k.left--; k.left == 0 {
		k.phase = nEnded
		k.rests()
	}
}

// rests forgets what no longer matters of a client that has ended.
func (k *newClient) rests() {
	if k.phase == nEnded && k.del.op == 0 && k.late.op == 0 {
		*k = newClient{phase: nEnded}
	}
}
