package queue

// The model of TestExploreSeveral: a world of clients that take several locks each.

import (
	"fmt"
	"testing"

	"github.com/zklock/zklock/internal/explore"
)

// The model: a few queues at one server. All clients want all locks, in the order of the queues. A
// client that opens makes its nodes in all of them by one transaction, lists one queue after the
// other, and decides with PositionOf and InFront. A client that does not open takes a lock at a time,
// as Curator's multi-lock does.
//
//	begins ──▶ listing ──▶ waiting ──▶ begins with the next lock, or holds ──▶ ended
//	    lost:  resolving
//
// A lost response leaves the transaction not executed, executed, or in flight; one in flight
// arrives at any time. The nodes that a client gives up are deleted some time later. How a waiter
// is woken is explore_test.go's.
const (
	mostTakers = 3
	mostQueues = 3
	mostNodes  = 10
)

const (
	sBegins uint8 = iota
	sSingly       // makes one node, because it had to queue again
	sListing
	sResolving
	sWaiting
	sHolds
	sEnded
)

type severalClient struct {
	phase uint8
	try   uint8 // the nodes of each try have another id
	at    uint8 // the locks before this one are granted
	until uint8 // up to which queue it has kept its nodes; while it lists, up to which it has listed
	front uint8 // the queues in whose lists it is first, as bits
	left  uint8 // how often it continues to take the locks
	late  uint8 // a transaction of this try, from 1, is on its way
	from  uint8 // its first queue
	got   bool  // it has held all
	again bool  // it had to queue again, and has nodes of later locks
}

type severalNode struct {
	id  uint8 // client*16 + try, from 16
	off bool  // it is being deleted
}

type severalWorld struct {
	c       [mostTakers]severalClient
	queues  [mostQueues][mostNodes]severalNode
	faults  uint8
	giveUps uint8
	broken  string
}

// severalMistakes are what the rule forbids.
type severalMistakes struct {
	waitsInAll bool // keeps all nodes
	keepsFront bool // keeps all nodes that are first
	keepsLater bool // keeps those after one that has to queue again
	sendsAgain bool // after a lost answer, and does not look
	pipelined  bool // each node is made by a request of its own
}

type severalExplorer struct {
	takers   string // of each client: o opens, t tries so, c takes one lock after the other
	queues   uint8
	acquire  uint8
	faults   uint8
	giveUps  uint8
	mistakes severalMistakes
}

func (w *severalWorld) append(q uint8, n severalNode) {
	for i := range w.queues[q] {
		if w.queues[q][i].id == 0 {
			w.queues[q][i] = n
			return
		}
	}
	w.broken = "too many nodes for the model"
}

func (w *severalWorld) remove(q uint8, gone func(n severalNode) bool) {
	kept := 0
	for _, n := range w.queues[q] {
		if !gone(n) {
			w.queues[q][kept] = n
			kept++
		}
	}
	clear(w.queues[q][kept:])
}

// giveUp has nodes of a client deleted, of all its tries, from a queue on.
func (w *severalWorld) giveUp(c, from uint8) {
	for q := range w.queues {
		for i := range w.queues[q] {
			if n := &w.queues[q][i]; n.id/16 == c+1 && q >= int(from) {
				n.off = true
			}
		}
	}
}

// has reports whether the client has its node of a queue.
func (w *severalWorld) has(c, q uint8) bool {
	for _, n := range w.queues[q] {
		if n.id/16 == c+1 && !n.off {
			return true
		}
	}
	return false
}

// place is what a list shows of the client's node.
func (w *severalWorld) place(c, q uint8) Position {
	var self string
	var all []string
	for i, n := range w.queues[q] {
		if n.id == 0 {
			break
		}
		name := fmt.Sprintf("_c_%08d-0000-4000-8000-000000000000-lock-%010d", n.id, i)
		if all = append(all, name); n.id/16 == c+1 && !n.off {
			self = name
		}
	}
	return PositionOf(Rule{MutexName, Markers}, self, all)
}

// steps gives all worlds that can come next.
func (x *severalExplorer) steps(from *severalWorld, take func(next *severalWorld, must bool, what func() string)) {
	w := *from
	add := func(f func(n *severalWorld)) {
		n := w
		f(&n)
		x.check(&n)
		take(&n, true, nil)
	}
	for q := range x.queues {
		for i, node := range w.queues[q] {
			if node.off {
				add(func(n *severalWorld) {
					n.queues[q][i].id = 0
					n.remove(q, func(n severalNode) bool { return n.id == 0 })
				})
			}
		}
	}
	for c := range uint8(len(x.takers)) {
		x.strikes(w, c, add)
		x.stepsOf(w, c, add)
	}
}

// check looks for what must never be.
func (x *severalExplorer) check(w *severalWorld) {
	for q := range x.queues {
		holders := 0
		for c := range w.c {
			if w.c[c].at > q && w.has(uint8(c), q) {
				holders++
			}
		}
		if holders > 1 {
			w.broken = "two hold one lock"
		}
	}
}

// strikes applies a fault to a client: a transaction arrives late, it crashes, gives up, or another
// client deletes one of its nodes.
func (x *severalExplorer) strikes(w severalWorld, c uint8, add func(func(n *severalWorld))) {
	me := w.c[c]
	if me.late > 0 {
		add(func(n *severalWorld) { // its created nodes are found by its id, and deleted
			n.c[c].late = 0
			for q := me.from; q < x.queues; q++ {
				n.append(q, severalNode{(c+1)*16 + me.late - 1, true})
			}
		})
	}
	if w.giveUps > 0 && me.phase == sWaiting {
		add(func(n *severalWorld) { n.giveUps--; n.giveUp(c, 0); n.c[c].phase, n.c[c].at = sEnded, 0 })
	}
	if w.faults == 0 || me.phase == sEnded {
		return
	}
	add(func(n *severalWorld) { // it crashes
		n.faults--
		for q := range x.queues {
			n.remove(q, func(n severalNode) bool { return n.id/16 == c+1 })
		}
		n.c[c] = severalClient{phase: sEnded}
	})
	for q := range x.queues {
		if w.has(c, q) {
			add(func(n *severalWorld) {
				n.faults--
				n.remove(q, func(n severalNode) bool { return n.id/16 == c+1 && !n.off })
			})
		}
	}
}

func (x *severalExplorer) stepsOf(w severalWorld, c uint8, add func(func(n *severalWorld))) {
	me := w.c[c]
	end := func(n *severalWorld) {
		n.giveUp(c, 0)
		n.c[c] = severalClient{phase: sEnded, try: me.try + 1, left: me.left - 1, late: me.late, from: me.from, got: me.got || me.phase == sHolds}
		if me.left > 1 {
			n.c[c].phase = sBegins
		}
	}
	for q := range me.at {
		if me.phase != sEnded && !w.has(c, q) { // it has lost one
			add(end)
			return
		}
	}
	switch me.phase {
	case sBegins:
		x.begins(w, c, add)
	case sSingly:
		x.makesOne(w, c, add)
	case sResolving:
		x.resolves(w, c, add)
	case sListing:
		if x.mistakes.pipelined && !w.has(c, me.until) { // the next create comes before the list
			add(func(n *severalWorld) { n.append(me.until, severalNode{(c+1)*16 + me.try, false}) })
			return
		}
		add(func(n *severalWorld) {
			if n.place(c, me.until).Kind == Front {
				n.c[c].front |= 1 << me.until
			}
			if n.c[c].until++; n.c[c].until == x.queues {
				x.decides(n, c, end)
			}
		})
	case sWaiting:
		switch {
		case !w.has(c, me.at):
			add(func(n *severalWorld) { n.c[c].phase, n.c[c].try = sSingly, me.try+1 })
		case w.place(c, me.at).Kind == Front:
			add(func(n *severalWorld) { x.granted(n, c) })
		case me.again && !x.mistakes.keepsLater: // it has to wait after all
			add(func(n *severalWorld) { n.giveUp(c, me.at+1); n.c[c].until, n.c[c].again = me.at+1, false })
		}
	case sHolds:
		add(end)
	}
}

// granted continues after the lock that it has waited for.
func (x *severalExplorer) granted(n *severalWorld, c uint8) {
	me := &n.c[c]
	me.at++
	me.again = false
	switch {
	case me.at == x.queues:
		me.phase = sHolds
	case me.at >= me.until:
		me.phase, me.try = sBegins, me.try+1
	}
}

// makesOne makes the next node.
func (x *severalExplorer) makesOne(w severalWorld, c uint8, add func(func(n *severalWorld))) {
	me := w.c[c]
	add(func(n *severalWorld) {
		n.append(me.at, severalNode{(c+1)*16 + me.try, false})
		n.c[c].phase, n.c[c].until, n.c[c].again = sWaiting, max(me.until, me.at+1), me.until > me.at+1
	})
}

// begins makes the next node, or all that are wanted.
func (x *severalExplorer) begins(w severalWorld, c uint8, add func(func(n *severalWorld))) {
	me := w.c[c]
	if x.takers[c] == 'c' || me.at+1 == x.queues {
		x.makesOne(w, c, add)
		return
	}
	makes := func(n *severalWorld, phase uint8) {
		n.c[c].phase, n.c[c].until, n.c[c].front = phase, me.at, 0
		for q := me.at; q < x.queues && !x.mistakes.pipelined; q++ {
			n.append(q, severalNode{(c+1)*16 + me.try, false})
		}
	}
	add(func(n *severalWorld) { makes(n, sListing) })
	if w.faults > 0 {
		add(func(n *severalWorld) { n.faults--; makes(n, sResolving) })
		add(func(n *severalWorld) {
			n.faults--
			n.c[c].phase, n.c[c].late, n.c[c].from = sResolving, me.try+1, me.at
		})
	}
}

// decides keeps the nodes that it may keep.
func (x *severalExplorer) decides(n *severalWorld, c uint8, end func(n *severalWorld)) {
	me := &n.c[c]
	var places []Position
	for q := me.at; q < x.queues; q++ {
		places = append(places, Position{Kind: Behind})
		if me.front&(1<<q) != 0 {
			places[len(places)-1].Kind = Front
		}
	}
	first := me.at + uint8(InFront(places)) // the first lock whose node is not first in its queue
	if x.takers[c] == 't' && first < x.queues {
		end(n)
		return
	}
	me.phase, me.until = sWaiting, first+1
	if x.mistakes.waitsInAll {
		me.until = x.queues
	}
	for q := first + 1; q < x.queues; q++ {
		if !x.mistakes.waitsInAll && !(x.mistakes.keepsFront && me.front&(1<<q) != 0) {
			for i := range n.queues[q] {
				n.queues[q][i].off = n.queues[q][i].off || n.queues[q][i].id/16 == c+1
			}
		}
	}
}

// resolves looks for the nodes of a transaction whose answer was lost.
func (x *severalExplorer) resolves(w severalWorld, c uint8, add func(func(n *severalWorld))) {
	me, all := w.c[c], true
	for q := me.at; q < x.queues; q++ {
		all = all && w.has(c, q)
	}
	switch {
	case x.mistakes.sendsAgain:
		add(func(n *severalWorld) { n.c[c].phase, n.c[c].try = sBegins, me.try+1 })
	case all:
		add(func(n *severalWorld) { n.c[c].phase = sListing; n.c[c].until, n.c[c].front = me.at, 0 })
	default:
		add(func(n *severalWorld) { n.giveUp(c, me.at); n.c[c].phase, n.c[c].try = sSingly, me.try+1 })
	}
}

// explore visits all worlds. It returns the broken promise, or "".
func (x *severalExplorer) explore(t *testing.T) string {
	w := severalWorld{faults: x.faults, giveUps: x.giveUps}
	for i := range w.c {
		w.c[i].phase = sEnded
		if i < len(x.takers) {
			w.c[i] = severalClient{left: x.acquire}
		}
	}
	f := explore.Model[severalWorld]{First: w, Steps: x.steps, Broken: func(w *severalWorld) string { return w.broken }, Stuck: x.atTheEnd}.Run()
	if f.Broken == "" {
		t.Logf("%s, %d queues: %d worlds", x.takers, x.queues, f.States)
	}
	return f.Broken
}

// atTheEnd checks a world without a next step.
func (x *severalExplorer) atTheEnd(w *severalWorld) string {
	one := x.faults > 0 // whether a client has held all
	for c := range x.takers {
		if w.c[c].phase != sEnded {
			return "a client waits for ever"
		}
		one = one || w.c[c].got
	}
	if w.queues != [mostQueues][mostNodes]severalNode{} {
		return "a node is left"
	}
	if !one && x.giveUps == 0 {
		return "nobody got the locks"
	}
	return ""
}
