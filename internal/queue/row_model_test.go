package queue

// The model of TestExploreRow: a world of clients that take a lock again and again in one lock root.

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
)

// The model: a lock root that can be deleted, created again and written, at a leader; a server for
// each client, which is some transactions behind. A client decides with PositionOf, IsAlone and
// Row.Precedes, as the library does.
//
//	rIdle ──▶ rCreates ──▶ rLists ──▶ rHolds ──▶ rIdle, rEnded
//	             ├── in a row ───────▲
//	             └── lost: rResolves ▶ rLists ── gives up ──▶ rIdle
//
// A node is deleted while its client continues, as if another goroutine acquired the lock next.
// A read and its response are one step. A write is two: its execution, and its response, which
// arrives when the client's server has executed the write. A server applies one transaction at a
// time, and an event arrives with the transaction, so before every later response. A server that
// the client connects to later may lag behind the last one, but not behind what the client has
// seen. How a waiter is woken is explore_test.go's: a client that waits lists when that would help.
//
// Outside the model: time, and so the clause Recent; READ permission.
const (
	rowClients = 3
	rowLag     = 2
	rowNodes   = 6 // in the queue at the same time
	rowIDs     = 14
)

const (
	rIdle uint8 = iota
	rCreates
	rResolves // the create's response was lost
	rLists
	rHolds
	rEnded
)

// rowNode is a node of the queue. id 0 is none; a larger id is a later node.
type rowNode struct{ id, num uint8 }

// rowState is the lock root at one time.
type rowState struct {
	root  uint8 // changes with each root and each write of its data; 0: no root
	next  uint8 // the number of the next child
	nodes [rowNodes]rowNode
}

type rowClient struct {
	phase, left uint8
	id, num     uint8
	granted     bool
	early       bool // when it created its node, it expected a row

	conn, conns uint8 // conn is 0 without a connection
	lag         uint8 // how many transactions its server is behind
	age         uint8 // how many transactions followed its write

	del      uint8 // the id of the node that it deletes, 0 for none
	delSent  bool  // the delete was executed, and its response has not arrived
	delAge   uint8
	delNotes bool // row is of that node

	seen  uint8 // the root of the list on which its hold rests
	alone bool

	armed bool // the watch on the lock root, at the server
	row   Row  // with the watch, as the client knows it
}

type rowWorld struct {
	hist   [rowLag + 1]rowState // the leader's, and those before it
	c      [rowClients]rowClient
	n      uint8             // nodes made
	roots  uint8             // roots made, and writes of their data
	who    [rowIDs + 1]uint8 // the client of a node, from 1; 0 is another program
	reader uint16            // ids of readers' nodes
	latch  uint16            // ids of latch nodes
	off    uint16            // ids of nodes that are being deleted
	faults uint8
	giveUp uint8
	broken string
}

// rowMistakes are what the rule forbids.
type rowMistakes struct {
	anyKind   bool // a row goes over nodes of different kinds
	ungranted bool // a node that was given up leaves a Row
	anyEvent  bool // no event ends the watch
	early     bool // the verdict of the create's sending counts
	dataEvent bool // an event of the root's data does not end the watch
}

// rowExplorer explores the worlds of some clients.
type rowExplorer struct {
	kinds   []string // of each client: the kind of each of its acquisitions, m for a mutex, r for a reader, c for a candidate, which rejects latch nodes
	acquire []uint8  // how often each
	faults  uint8
	acts    string // the faults: see rowActs
	giveUps uint8
	first   int64 // the number 0 is this one
	wrong   rowMistakes
	rule    func(r Row, number int64, conn uint64) bool

	rows, misses int // grants in a row, and rows that were expected in vain
}

func (w *rowWorld) leader() *rowState { return &w.hist[0] }

func (w *rowWorld) view(c uint8) *rowState { return &w.hist[w.c[c].lag] }

func (s *rowState) has(id uint8) bool {
	return slices.ContainsFunc(s.nodes[:], func(n rowNode) bool { return n.id == id && id != 0 })
}

func (w *rowWorld) canCommit() bool {
	return !slices.ContainsFunc(w.c[:], func(c rowClient) bool { return c.conn != 0 && c.lag == rowLag })
}

// commit is a transaction at the leader.
func (w *rowWorld) commit(f func(s *rowState)) {
	copy(w.hist[1:], w.hist[:rowLag])
	f(w.leader())
	for i := range w.c {
		c := &w.c[i]
		c.lag, c.age, c.delAge = min(c.lag+1, rowLag), min(c.age+1, rowLag), min(c.delAge+1, rowLag)
	}
}

// add creates a node of a client, from 1, or of another program, 0.
func (w *rowWorld) add(s *rowState, who uint8, isReader bool) (n rowNode) {
	w.n++
	n = rowNode{w.n, s.next}
	w.who[n.id] = who
	if isReader {
		w.reader |= 1 << n.id
	}
	s.next++
	w.put(s, n)
	return n
}

func (w *rowWorld) put(s *rowState, n rowNode) {
	i := slices.Index(s.nodes[:], rowNode{})
	if i < 0 {
		w.broken = "too many nodes for the model"
		return
	}
	s.nodes[i] = n
}

func (s *rowState) remove(id uint8) {
	kept := slices.DeleteFunc(slices.Clone(s.nodes[:]), func(n rowNode) bool { return n.id == id || n.id == 0 })
	s.nodes = [rowNodes]rowNode{}
	copy(s.nodes[:], kept)
}

func (w *rowWorld) newRoot(s *rowState) {
	w.roots++
	*s = rowState{root: w.roots}
}

func (x *rowExplorer) ruleOf(isReader bool) Rule {
	if isReader {
		return Rule{ReadName, Markers}
	}
	return Rule{MutexName, Markers}
}

func (x *rowExplorer) kindOf(w *rowWorld, c uint8) byte {
	k := x.kinds[c]
	return k[int(x.acquire[c]-w.c[c].left)%len(k)]
}

func (x *rowExplorer) nameOf(w *rowWorld, n rowNode) string {
	kind := x.ruleOf(w.reader&(1<<n.id) != 0).Name
	if w.latch&(1<<n.id) != 0 {
		kind = LatchName
	}
	return fmt.Sprintf("_c_%08d-0000-4000-8000-000000000000-%s%010d", 99-n.id, kind, x.first+int64(n.num))
}

func (x *rowExplorer) names(w *rowWorld, s *rowState) (all []string) {
	for _, n := range s.nodes {
		if n.id != 0 {
			all = append(all, x.nameOf(w, n))
		}
	}
	return all
}

// grant grants the lock to a client, and checks that no node blocks it.
func (x *rowExplorer) grant(w *rowWorld, c uint8, how string) {
	k := &w.c[c]
	k.phase, k.granted = rHolds, true
	me := rowNode{k.id, k.num}
	isReader, isCandidate := w.reader&(1<<k.id) != 0, x.kindOf(w, c) == 'c'
	if x.first+int64(k.num) >= counterEnd {
		w.broken = "F34: granted past the end of the counter"
	}
	if !w.leader().has(k.id) {
		return // a hold that is lost at once
	}
	for _, n := range w.leader().nodes {
		if n.id == 0 || n == me || isReader && w.reader&(1<<n.id) != 0 || !isCandidate && w.latch&(1<<n.id) != 0 {
			continue
		}
		if w.who[n.id] == c+1 {
			w.broken = "I2: granted " + how + " while its earlier node exists"
		}
		who := w.who[n.id]
		if who != 0 && w.c[who-1].phase == rHolds && w.c[who-1].id == n.id {
			w.broken = "I1: two hold, on live nodes; the later was granted " + how
			return
		}
		if n.num <= me.num && w.off&(1<<n.id) == 0 {
			w.broken = "I8: granted " + how + " before an earlier node"
		}
	}
}

type rowStep func(what string, f func(n *rowWorld, k *rowClient))

// steps gives all worlds that can come next.
func (x *rowExplorer) steps(w *rowWorld, take func(n *rowWorld, what string)) {
	for c := range uint8(len(x.kinds)) {
		add := func(what string, f func(n *rowWorld, k *rowClient)) {
			n := *w
			f(&n, &n.c[c])
			take(&n, string('A'+rune(c))+" "+what)
		}
		x.connectionSteps(w, c, add)
		x.clientSteps(w, c, add)
	}
	if !w.canCommit() {
		return
	}
	for _, node := range w.leader().nodes {
		if node.id != 0 && w.who[node.id] == 0 {
			n := *w
			n.off |= 1 << node.id
			n.commit(func(s *rowState) { s.remove(node.id) })
			take(&n, fmt.Sprintf("another program deletes its node %d", node.num))
		}
	}
	if w.faults > 0 {
		x.act(w, take)
	}
}

// act is what an administrator or another program may do, one letter each.
func (x *rowExplorer) act(w *rowWorld, take func(n *rowWorld, what string)) {
	fault := func(letter, what string, if_ bool, f func(n *rowWorld, s *rowState)) {
		if if_ && strings.Contains(x.acts, letter) {
			n := *w
			n.faults--
			n.commit(func(s *rowState) { f(&n, s) })
			take(&n, "FAULT "+what)
		}
	}
	now := w.leader()
	isThere, isEmpty := now.root != 0, now.nodes == [rowNodes]rowNode{}
	fault("r", "the lock root is deleted", isThere && isEmpty, func(_ *rowWorld, s *rowState) { *s = rowState{} })
	fault("a", "the lock root is deleted and created again, and another program queues, in one transaction", isThere && isEmpty, func(n *rowWorld, s *rowState) {
		n.newRoot(s)
		n.add(s, 0, false)
	})
	fault("o", "another child is created", isThere, func(_ *rowWorld, s *rowState) { s.next++ })
	fault("q", "another program queues", isThere, func(n *rowWorld, s *rowState) { n.add(s, 0, false) })
	fault("k", "another program queues with a latch node", isThere, func(n *rowWorld, s *rowState) {
		n.latch |= 1 << n.add(s, 0, false).id
	})
	fault("t", "another program creates a node by name, with the number after the next", isThere, func(n *rowWorld, s *rowState) {
		s.next++
		n.n++
		n.put(s, rowNode{n.n, s.next + 1})
	})
	fault("s", "the root's data is written", isThere, func(n *rowWorld, s *rowState) { n.roots++; s.root = n.roots })
	for _, node := range now.nodes {
		fault("d", fmt.Sprintf("the node %d is deleted", node.num), node.id != 0, func(_ *rowWorld, s *rowState) { s.remove(node.id) })
	}
}

func (x *rowExplorer) connectionSteps(w *rowWorld, c uint8, add rowStep) {
	me := w.c[c]
	switch {
	case me.phase == rEnded:
	case me.conn == 0:
		for lag := range me.lag + 1 {
			if me.phase == rResolves && lag > 0 { // after the sync
				continue
			}
			add(fmt.Sprintf("is connected again, to a server that is %d behind", lag), func(_ *rowWorld, k *rowClient) {
				k.conns++
				k.conn, k.lag = k.conns, lag
			})
		}
	case me.lag > 0:
		add("has its server apply a transaction", func(n *rowWorld, k *rowClient) {
			before := n.view(c).root
			k.lag--
			if now := n.view(c).root; k.armed && now != before {
				k.armed = false
				if x.wrong.anyEvent || now != 0 && x.wrong.dataEvent {
					return
				}
				k.row.WatchConn, k.row.WatchRoot = 0, 0
			}
		})
	}
	if w.faults == 0 || me.conn == 0 || me.phase == rEnded {
		return
	}
	if strings.Contains(x.acts, "l") {
		add("FAULT loses its connection", func(n *rowWorld, k *rowClient) {
			n.faults--
			k.conn, k.armed, k.delSent = 0, false, false
			if k.phase == rCreates {
				k.phase = rResolves
			}
		})
	}
	if strings.Contains(x.acts, "z") {
		add("FAULT gives its session up", func(n *rowWorld, k *rowClient) {
			n.faults--
			for id := range n.who {
				if n.who[id] == c+1 {
					n.who[id] = 0
				}
			}
			k.conns++
			*k = rowClient{left: k.left, conns: k.conns, conn: k.conns, row: k.row}
		})
	}
}

func (x *rowExplorer) clientSteps(w *rowWorld, c uint8, add rowStep) {
	me := w.c[c]
	if me.conn == 0 {
		return
	}
	x.deletes(w, c, add)
	if me.phase == rHolds || me.phase == rIdle {
		x.watch(w, c, add)
	}
	switch me.phase {
	case rIdle:
		x.create(w, c, add)
	case rCreates:
		if me.lag <= me.age {
			add("has its create's response", func(n *rowWorld, k *rowClient) { x.created(n, c, k) })
		}
	case rResolves:
		add("looks for its node", func(n *rowWorld, k *rowClient) {
			if k.phase = rLists; !n.view(c).has(k.id) {
				k.phase = rIdle
			}
		})
	case rLists:
		x.list(w, c, add)
	case rHolds:
		if !w.view(c).has(me.id) {
			add("finds its node deleted", func(n *rowWorld, k *rowClient) {
				n.who[k.id] = 0
				k.id, k.num, k.granted, k.alone, k.phase = 0, 0, false, false, rIdle
				if k.left--; k.left == 0 {
					n.end(k)
				}
			})
		}
		if me.del == 0 {
			add("releases", func(n *rowWorld, _ *rowClient) { x.giveBack(n, c, false) })
		}
	}
}

// watch sets the watch on the lock root, unless it is set on this connection.
func (x *rowExplorer) watch(w *rowWorld, c uint8, add rowStep) {
	if me := w.c[c]; w.view(c).root != 0 && me.row.WatchConn != uint64(me.conn) {
		add("watches the lock root", func(n *rowWorld, k *rowClient) {
			k.armed, k.row.WatchConn, k.row.WatchRoot = true, uint64(k.conn), int64(n.view(c).root)
		})
	}
}

func (x *rowExplorer) create(w *rowWorld, c uint8, add rowStep) {
	if !w.canCommit() || w.c[c].left == 0 {
		return
	}
	if w.leader().root == 0 {
		add("creates the lock root", func(n *rowWorld, _ *rowClient) { n.commit(n.newRoot) })
		return
	}
	add(fmt.Sprintf("creates the node %d", w.leader().next), func(n *rowWorld, k *rowClient) {
		n.commit(func(s *rowState) {
			made := n.add(s, c+1, x.kindOf(n, c) == 'r')
			k.id, k.num = made.id, made.num
		})
		k.phase, k.age, k.granted = rCreates, 0, false
		k.early = x.rule(k.row, k.row.Number+1, uint64(k.conn))
	})
}

// created handles the response to the create, as isInRow does.
func (x *rowExplorer) created(n *rowWorld, c uint8, k *rowClient) {
	sameKind := x.wrong.anyKind || len(x.kinds[c]) == 1
	is := sameKind && k.row.Number >= 0 && x.rule(k.row, x.first+int64(k.num), uint64(k.conn))
	if x.wrong.early {
		is = k.early && k.row.Number+1 == x.first+int64(k.num)
	}
	if !is {
		if k.early {
			x.misses++
		}
		k.phase = rLists
		return
	}
	x.rows++
	k.alone, k.seen = true, uint8(k.row.Root)
	x.grant(n, c, "in a row")
}

func (x *rowExplorer) list(w *rowWorld, c uint8, add rowStep) {
	me, view := w.c[c], w.view(c)
	names := x.names(w, view)
	rule := x.ruleOf(w.reader&(1<<me.id) != 0)
	self := x.nameOf(w, rowNode{me.id, me.num})
	at := PositionOf(rule, self, names)
	if x.kindOf(w, c) == 'c' && at.Kind != Missing && ForeignOf(rule, self, names, []string{LatchName}) != "" {
		add("lists, and finds a latch node", func(n *rowWorld, _ *rowClient) { x.giveBack(n, c, true) })
		return
	}
	switch at.Kind {
	case Front:
		add("lists, and is first", func(n *rowWorld, k *rowClient) {
			k.alone, k.seen = IsAlone(names, rule.Markers), view.root
			x.grant(n, c, "by a list")
		})
	case Missing:
		add("lists, and its node is missing", func(_ *rowWorld, k *rowClient) { k.phase = rIdle })
	case Twin:
		if me.del != 0 {
			return
		}
		add("lists, and another node has its number", func(n *rowWorld, _ *rowClient) { x.giveBack(n, c, false) })
	case Exhausted: // the call fails
		add("lists, and its node is past the end", func(n *rowWorld, _ *rowClient) { x.giveBack(n, c, true) })
	case Behind:
		if w.giveUp > 0 && me.del == 0 {
			add("gives up", func(n *rowWorld, _ *rowClient) { n.giveUp--; x.giveBack(n, c, false) })
		}
	}
}

// giveBack begins the deletion of the client's node, and notes the hold, as lockRoot.handOff does.
// A client that gave up queues again.
func (x *rowExplorer) giveBack(w *rowWorld, c uint8, last bool) {
	k := &w.c[c]
	if k.granted || x.wrong.ungranted {
		r := &k.row
		r.Number, r.Deleted, r.Recent = x.first+int64(k.num), false, true
		r.Alone, r.Root = k.alone || !k.granted, int64(k.seen)
	}
	w.off |= 1 << k.id
	if k.granted {
		k.left--
	}
	if k.left == 0 || last {
		w.end(k)
		return
	}
	k.del, k.delSent, k.delNotes = k.id, false, k.granted || x.wrong.ungranted
	k.id, k.num, k.granted, k.alone, k.phase = 0, 0, false, false, rIdle
}

// end ends a client. Its nodes are deleted some time later.
func (w *rowWorld) end(k *rowClient) {
	w.who[k.id], w.who[k.del] = 0, 0
	*k = rowClient{phase: rEnded}
}

// deletes is nodes.Deletion.
func (x *rowExplorer) deletes(w *rowWorld, c uint8, add rowStep) {
	me := w.c[c]
	done := func(_ *rowWorld, k *rowClient) {
		k.row.Deleted = k.row.Deleted || k.delNotes
		k.del, k.delSent, k.delAge, k.delNotes = 0, false, 0, false
	}
	switch {
	case me.del == 0:
	case me.delSent:
		if me.lag <= me.delAge {
			add("has its delete's response", done)
		}
	case !w.leader().has(me.del):
		if !w.view(c).has(me.del) {
			add("finds its node deleted already", done)
		}
	case w.canCommit():
		add("deletes its node", func(n *rowWorld, k *rowClient) {
			n.commit(func(s *rowState) { s.remove(k.del) })
			k.delSent, k.delAge = true, 0
		})
	}
}

// explore visits all worlds, nearest first. It returns the broken promise, or "", and the steps.
func (x *rowExplorer) explore() (broken string, how []string, worlds int) {
	if x.rule == nil {
		x.rule = Row.Precedes
	}
	type origin struct {
		from int
		what string
	}
	first := rowWorld{faults: x.faults, giveUp: x.giveUps, roots: 1}
	for i := range first.hist {
		first.hist[i].root = 1
	}
	for i := range first.c {
		first.c[i] = rowClient{phase: rEnded}
		if i < len(x.kinds) {
			first.c[i] = rowClient{left: x.acquire[i], conn: 1, conns: 1, row: Row{Number: -9}}
		}
	}
	seed := maphash.MakeSeed()
	seen, origins := map[uint64]struct{}{}, []origin{{-1, ""}}
	level, at := []rowWorld{first}, 0
	for len(level) > 0 && broken == "" {
		var next []rowWorld
		for i := range level {
			x.steps(&level[i], func(n *rowWorld, what string) {
				h := maphash.Comparable(seed, *n)
				if _, ok := seen[h]; ok || broken != "" {
					return
				}
				seen[h] = struct{}{}
				next, origins = append(next, *n), append(origins, origin{at + i, what})
				if broken = n.broken; broken != "" {
					for j := len(origins) - 1; j > 0; j = origins[j].from {
						how = append(how, origins[j].what)
					}
				}
			})
		}
		at += len(level)
		level = next
	}
	slices.Reverse(how)
	return broken, how, len(origins)
}

// explored is explore with a log of the result.
func (x *rowExplorer) explored(t *testing.T) (broken string, how []string) {
	broken, how, worlds := x.explore()
	t.Logf("%d worlds, %d grants in a row, %d misses: %s\n%s", worlds, x.rows, x.misses, broken, strings.Join(how, "\n"))
	return broken, how
}
