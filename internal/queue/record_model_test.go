package queue

// The model of TestExploreDelay: a world of clients with a lock-delay, which disappear.

import (
	"fmt"
	"slices"

	"github.com/zklock/zklock/internal/explore"
)

// The model: a lock root with nodes and a record, at a leader; servers that are some transactions
// behind; sessions, each with one or two clients. A client decides with Machine, PositionOf and
// Record's rules, as the library does.
//
//	dIdle ──▶ dWalking (Machine) ──▶ dHolding ──▶ dDeleting ──▶ dIdle, dEnded
//	              └── gives up ─────────────────────▲
//
// A request and its response are one step. On a connection that is lost, a transaction may have
// been executed, or arrive later, or never. Time is one step: d passes.
//
// The explorer looks for: a grant before d has passed since a client observed that the last holder
// had disappeared; a wait for one that released, or gave up in order; a record that names one of
// those; a wait that starts again for a Session that has waited; a stop.
const (
	dClients = 3
	dNodes   = 7
)

const (
	dIdle uint8 = iota
	dWalking
	dHolding
	dDeleting
	dEnded
)

// The fate of a node.
const (
	lives uint8 = iota
	released
	gaveUp
	disappeared // with a hold
	neverHeld   // it went before it was granted, or in its release: whether others wait for that does not matter
)

type dState struct {
	alive uint16
	held  uint8 // the node that the record names, from 1; 0 for none
	ver   uint8
}

type dRead struct {
	held, ver, conn uint8
	is              bool
}

type dClient struct {
	phase, left, node, ahead uint8
	walk                     Machine
	early                    dRead
	read                     dRead // the record by which the walk decides
	told                     Handoff

	mark, known        bool // the record may name us; what follows is known
	mHeld, mVer        uint8
	isGiveUp           bool
	late               uint8 // a transaction on its way: lateGrant, lateDelete
	lNode, lHeld, lVer uint8
	look               uint8 // the node that was first known to be deleted, as the Session remembers it
	over               bool  // d has passed since
	knew               uint8 // the same, as it is in truth
	knewLongAgo        bool
	deletesPlain       bool // the record belongs to another program
}

const (
	lateGrant uint8 = iota + 1
	lateDelete
)

type dWorld struct {
	servers[dState]
	c       [dClients]dClient
	isGone  [dClients]bool // the session has expired
	fate    [dNodes + 1]uint8
	n       uint8 // nodes made
	last    uint8 // the node that was granted last
	paid    uint8 // d has passed since a client first observed that this node, and all before it, were deleted
	faults  uint8
	giveUps uint8
	writes  uint8 // of another word
	anew    uint8 // how often the root may be recreated
	broken  string
}

// dMistakes are what the rules forbid.
type dMistakes struct {
	anewEmpty     bool // the root is recreated without its record
	replaces      bool // another word's writer drops ours
	plainConflict bool // a release that meets a version conflict deletes the node alone
	plainGiveUp   bool // a client that gives up deletes the node alone, although the grant's write was sent
	turnGrants    bool // the handoff grants, and records nothing
	lagging       bool // a record from before the proof is believed
	earlyCounts   bool // so is one that was asked for with the node
	earlyLook     bool // the delay counts from when that came
	looksAnew     bool // each call looks for itself
	unversioned   bool // the grant's write does not name a version
	unchecked     bool // or does not check the node
	unrecorded    bool // or is left out
}

type delayExplorer struct {
	sessions     []uint8
	acquire      uint8
	faults       uint8
	giveUps      uint8
	writes, anew uint8
	mistakes     dMistakes
	places       map[[2]uint16]Position
	granted      int
	waited       bool
}

func dName(i uint8) string {
	return fmt.Sprintf("_c_%08d-0000-4000-8000-000000000000-lock-%010d", 90-i, i)
}

func (s *dState) has(node uint8) bool     { return node > 0 && s.alive&(1<<node) != 0 }
func (w *dWorld) isLive(node uint8) bool  { return w.leader().has(node) }
func (x *delayExplorer) of(i uint8) uint8 { return x.sessions[i] }
func (c *dClient) does(stages ...Stage) bool {
	return c.phase == dWalking && slices.Contains(stages, c.walk.Next)
}

// commit executes a transaction at the leader.
func (w *dWorld) commit(f func(s *dState)) {
	w.servers.commit(f)
	if h := w.leader().held; w.fate[h] == released || w.fate[h] == gaveUp {
		w.broken = "the record names a node that was released or given up"
	}
}

// place asks PositionOf.
func (x *delayExplorer) place(alive uint16, self uint8) (Position, uint8) {
	key := [2]uint16{alive, uint16(self)}
	p, ok := x.places[key]
	if !ok {
		var names []string
		for i := uint8(1); i <= dNodes; i++ {
			if alive&(1<<i) != 0 {
				names = append(names, dName(i))
			}
		}
		p = PositionOf(Rule{Name: MutexName, Markers: Markers}, dName(self), names)
		x.places[key] = p
	}
	for i := uint8(1); i < self; i++ {
		if p.Predecessor == dName(i) {
			return p, i
		}
	}
	return p, 0
}

type dAdd func(what string, f func(n *dWorld, c *dClient))

// steps gives all worlds that can come next.
func (x *delayExplorer) steps(w dWorld, take func(n *dWorld, what string)) {
	out := func(what string, f func(n *dWorld)) {
		n := w
		f(&n)
		take(&n, what)
	}
	for i := range x.sessions {
		i := uint8(i)
		add := func(what string, f func(n *dWorld, c *dClient)) {
			out(string('A'+rune(i))+" "+what, func(n *dWorld) { f(n, &n.c[i]) })
		}
		x.clientSteps(w, i, add)
	}
	for s := range slices.Max(x.sessions) + 1 {
		x.sessionSteps(w, s, out)
	}
	if w.canCommit() {
		if w.writes > 0 {
			out("another word is written", func(n *dWorld) {
				n.writes--
				n.commit(func(s *dState) {
					if s.ver++; x.mistakes.replaces {
						s.held = 0
					}
				})
			})
		}
		if w.anew > 0 && w.leader().alive == 0 && w.n > 0 {
			out("the root is made anew", func(n *dWorld) {
				n.anew--
				n.commit(func(s *dState) {
					if s.ver = 0; x.mistakes.anewEmpty {
						s.held = 0
					}
				})
			})
		}
	}
}

// catchUp makes a session's server apply transactions, or connects the session. The events of the
// transactions come before any response.
func (x *delayExplorer) catchUp(n *dWorld, s uint8, l link) {
	before, isOn := *n.view(s), n.isOn(s)
	n.link[s] = l
	now := n.view(s)
	for i := range x.sessions {
		switch c := &n.c[i]; {
		case x.of(uint8(i)) != s || !c.does(ToAwait):
		case !isOn:
			c.walk = c.walk.Reconnected(uint64(l.conn))
		case before.has(c.ahead) && !now.has(c.ahead):
			c.walk = c.walk.BlockerEvent(0, true, uint64(l.conn), !now.has(c.node))
		}
	}
}

// answered is an answer from a server that has done all there is.
func (x *delayExplorer) answered(n *dWorld, s uint8) {
	l := n.link[s]
	l.lag, l.seen = 0, 0
	x.catchUp(n, s, l)
}

// sessionSteps is what becomes of a session and its connection.
func (x *delayExplorer) sessionSteps(w dWorld, s uint8, out func(string, func(n *dWorld))) {
	if w.isGone[s] {
		return
	}
	w.next(s, func(what string, l link) {
		out(fmt.Sprintf("session %d: %s", s, what), func(n *dWorld) { x.catchUp(n, s, l) })
	})
	if w.faults == 0 {
		return
	}
	if w.isOn(s) {
		out(fmt.Sprintf("session %d: FAULT its connection is lost", s), func(n *dWorld) { n.faults--; n.lose(s) })
	}
	if w.canCommit() {
		out(fmt.Sprintf("session %d: FAULT it expires", s), func(n *dWorld) {
			n.faults--
			n.link[s], n.isGone[s] = link{}, true
			n.commit(func(st *dState) {
				for i := range x.sessions {
					if c := &n.c[i]; x.of(uint8(i)) == s {
						if st.has(c.node) {
							n.fate[c.node] = neverHeld
							if c.phase == dHolding {
								n.fate[c.node] = disappeared
							}
							st.alive &^= 1 << c.node
						}
						*c = dClient{phase: dEnded}
					}
				}
			})
		})
	}
}

func (x *delayExplorer) clientSteps(w dWorld, i uint8, add dAdd) {
	me, s := w.c[i], x.of(i)
	ready := w.isOn(s) && !w.isGone[s]
	if me.late > 0 && w.canCommit() {
		add("has a transaction that comes late", func(n *dWorld, c *dClient) { c.late = 0; x.comesLate(n, me) })
	}
	if (me.look > 0 && !me.over) || (me.knew > 0 && !me.knewLongAgo) {
		add("sees d pass", func(n *dWorld, c *dClient) {
			c.over, c.knewLongAgo = c.look > 0, c.knew > 0
			n.paid = max(n.paid, c.knew)
		})
	}
	switch me.phase {
	case dIdle:
		if ready && w.canCommit() && w.n < dNodes {
			add("queues", func(n *dWorld, c *dClient) { x.queues(n, c, s) })
		}
	case dWalking:
		if w.giveUps > 0 {
			add("gives up", func(n *dWorld, c *dClient) {
				n.giveUps--
				c.phase, c.isGiveUp, c.deletesPlain = dDeleting, true, !c.mark || x.mistakes.plainGiveUp
			})
		}
		x.walks(w, i, ready, add)
	case dHolding:
		add("releases", func(_ *dWorld, c *dClient) { c.phase, c.deletesPlain = dDeleting, x.mistakes.unrecorded || !c.mark })
		if w.faults > 0 && w.isLive(me.node) && w.canCommit() {
			add("FAULT has its node deleted", func(n *dWorld, c *dClient) {
				n.faults--
				n.fate[c.node] = disappeared
				n.commit(func(s *dState) { s.alive &^= 1 << c.node })
				x.finish(n, i, HandoffUnknown)
			})
		}
	case dDeleting:
		if ready {
			x.deletes(w, i, add)
		}
	}
}

func (x *delayExplorer) queues(n *dWorld, c *dClient, s uint8) {
	n.n++
	*c = dClient{phase: dWalking, left: c.left, node: n.n, look: c.look, over: c.over, knew: c.knew, knewLongAgo: c.knewLongAgo, late: c.late, lNode: c.lNode, lHeld: c.lHeld, lVer: c.lVer}
	if x.mistakes.looksAnew {
		c.look, c.over = 0, false
	}
	n.commit(func(st *dState) { st.alive |= 1 << c.node })
	x.answered(n, s)
	c.walk = Begin(int64(s)+1, true)
	c.early = n.record(s)
	if x.mistakes.earlyLook && c.early.held > 0 && c.look != c.early.held {
		c.look, c.over = c.early.held, false
	}
}

// comesLate does a transaction that had no answer.
func (x *delayExplorer) comesLate(n *dWorld, by dClient) {
	st := n.leader()
	switch {
	case !st.has(by.lNode) && !(x.mistakes.unchecked && by.late == lateGrant), st.ver != by.lVer && !(x.mistakes.unversioned && by.late == lateGrant):
	case by.late == lateGrant:
		n.commit(func(s *dState) { s.held = by.lNode; s.ver++ })
	default:
		by.node = by.lNode
		x.commitDelete(n, by, by.lHeld)
	}
}

// commitDelete deletes a client's node, and removes the record if it named that node when it was
// read.
func (x *delayExplorer) commitDelete(n *dWorld, c dClient, held uint8) {
	n.fate[c.node] = released
	if c.isGiveUp {
		n.fate[c.node] = gaveUp
	}
	n.commit(func(s *dState) {
		if s.alive &^= 1 << c.node; held == c.node && !c.deletesPlain {
			s.held = 0
			s.ver++
		}
	})
}

// finish ends an acquisition, and notifies the waiters behind it in the session.
func (x *delayExplorer) finish(n *dWorld, i uint8, t Handoff) {
	c := &n.c[i]
	for o := range x.sessions {
		if k := &n.c[o]; x.of(uint8(o)) == x.of(i) && k.does(ToAwaitHandoff) && k.ahead == c.node && k.told == NoHandoff {
			k.told = t
		}
	}
	*c = dClient{phase: dIdle, left: c.left - 1, look: c.look, over: c.over, knew: c.knew, knewLongAgo: c.knewLongAgo, late: c.late, lNode: c.lNode, lHeld: c.lHeld, lVer: c.lVer}
	if c.left == 0 {
		*c = dClient{phase: dEnded, late: c.late, lNode: c.lNode, lHeld: c.lHeld, lVer: c.lVer}
	}
}

func (x *delayExplorer) walks(w dWorld, i uint8, ready bool, add dAdd) {
	me, s := w.c[i], x.of(i)
	switch me.walk.Next {
	case ToList:
		if ready {
			add("lists", func(n *dWorld, c *dClient) { x.lists(n, c, i) })
		}
	case ToAwaitHandoff:
		if me.told != NoHandoff {
			add("is told by its predecessor", func(_ *dWorld, c *dClient) {
				c.walk = c.walk.HandedOff(c.told)
				if x.mistakes.turnGrants && c.walk.Next == ToReadRecord {
					c.walk.Next = ToGrant
				}
			})
		}
	case ToReadRecord:
		if me.early.is {
			add("has the record that it asked for with its node", func(n *dWorld, c *dClient) { x.reads(n, c, c.early, !x.mistakes.earlyCounts, false) })
		} else if ready {
			add(fmt.Sprint("reads the record; synced: ", me.walk.Sync), func(n *dWorld, c *dClient) {
				synced := c.walk.Sync
				if synced {
					x.answered(n, s)
				}
				x.reads(n, c, n.record(s), false, synced)
			})
		}
	case ToAwaitDelay:
		if me.over {
			add("has waited", func(_ *dWorld, c *dClient) { c.walk = c.walk.DelayOver() })
		}
	case ToWriteRecord:
		if x.mistakes.unrecorded {
			add("records nothing", func(_ *dWorld, c *dClient) { c.walk = c.walk.RecordWritten(Exists) })
		} else if ready {
			x.records(w, i, add)
		}
	case ToGrant:
		add("is granted", func(n *dWorld, c *dClient) { x.grants(n, c) })
	case ToQueueAgain:
		add("queues again", func(_ *dWorld, c *dClient) { c.phase = dIdle })
	}
}

func (x *delayExplorer) lists(n *dWorld, c *dClient, i uint8) {
	s := x.of(i)
	conn := uint64(n.link[s].conn)
	p, ahead := x.place(n.read(s).alive, c.node)
	c.walk, c.ahead, c.told = c.walk.Listed(p, conn), ahead, NoHandoff
	if c.walk.Next != ToWaitBehind {
		return
	}
	mates := func(o uint8) bool {
		return x.of(o) == s && n.c[o].node == ahead && n.c[o].phase != dEnded && n.c[o].phase != dIdle
	}
	for o := range x.sessions {
		if mates(uint8(o)) {
			c.walk = c.walk.WaitsBehind(true)
			return
		}
	}
	// Both watches are set at once, and report all events.
	c.walk = c.walk.WaitsBehind(false).Watched(Exists, int64(s)+1, conn).Watched(Exists, 99, conn)
	if c.walk.Next == ToWatchBlocker { // we can do without another
		c.walk = c.walk.Watched(Unknown, 0, 0)
	}
}

// record reads the record.
func (w *dWorld) record(s uint8) dRead {
	v := w.read(s)
	return dRead{v.held, v.ver, w.link[s].conn, true}
}

// reads takes a record that was read.
func (x *delayExplorer) reads(n *dWorld, c *dClient, r dRead, isEarly, synced bool) {
	c.early, c.read = dRead{}, r
	name := ""
	if r.held > 0 {
		name = dName(r.held)
	}
	reading := Reading{Held: name, Own: dName(c.node), Conn: uint64(r.conn), Early: isEarly, Synced: synced, Over: r.held > 0 && c.look == r.held && c.over}
	if x.mistakes.lagging && !isEarly {
		reading.Synced = true
	}
	if c.walk = c.walk.RecordRead(reading); c.walk.Next == ToGrant {
		c.mark, c.known, c.mHeld, c.mVer = true, true, r.held, r.ver
	}
	if c.walk.Next != ToAwaitDelay {
		return
	}
	x.waited = true
	switch f := n.fate[r.held]; {
	case f == released, f == gaveUp:
		n.broken = "waits for one that released"
	case f == lives:
		n.broken = "the delay begins while the holder lives"
	case c.knew == r.held && c.knewLongAgo:
		n.broken = "waits again for one for which its Session has waited"
	}
	if c.knew != r.held {
		c.knew, c.knewLongAgo = r.held, false
	}
	if c.look != r.held {
		c.look, c.over = r.held, false
	}
}

// records writes the grant.
func (x *delayExplorer) records(w dWorld, i uint8, add dAdd) {
	me, s, st := w.c[i], x.of(i), w.leader()
	isGone, conflicts := !st.has(me.node) && !x.mistakes.unchecked, st.ver != me.read.ver && !x.mistakes.unversioned
	begin := func(c *dClient) { c.mark, c.known = true, false }
	switch {
	case isGone:
		add("finds its node gone", func(n *dWorld, c *dClient) { begin(c); x.answered(n, s); c.walk = c.walk.RecordWritten(Absent) })
		return
	case conflicts:
		add("meets a version conflict", func(n *dWorld, c *dClient) { begin(c); x.answered(n, s); c.walk = c.walk.RecordWritten(Unknown) })
		return
	case !w.canCommit():
		return
	}
	write := func(n *dWorld, c *dClient) {
		begin(c)
		n.commit(func(t *dState) { t.held = c.node; t.ver++ })
	}
	add("records its grant", func(n *dWorld, c *dClient) {
		write(n, c)
		x.answered(n, s)
		c.known, c.mHeld, c.mVer = true, c.node, n.leader().ver
		c.walk = c.walk.RecordWritten(Exists)
	})
	if w.faults > 0 {
		add("FAULT records its grant; the connection is lost with the answer", func(n *dWorld, c *dClient) {
			n.faults--
			write(n, c)
			n.lose(s)
			c.walk = c.walk.RecordWritten(Unknown)
		})
		add("FAULT loses the connection when it records its grant, which may come late", func(n *dWorld, c *dClient) {
			n.faults--
			begin(c)
			n.lose(s)
			c.late, c.lNode, c.lVer = lateGrant, c.node, c.read.ver
			c.walk = c.walk.RecordWritten(Unknown)
		})
	}
}

func (x *delayExplorer) grants(n *dWorld, c *dClient) {
	for o := range x.sessions {
		if k := &n.c[o]; k != c && (k.phase == dHolding) && n.isLive(k.node) && n.isLive(c.node) {
			n.broken = "I1: two hold"
		}
	}
	if n.last > 0 && n.fate[n.last] == disappeared && n.paid < n.last && n.isLive(c.node) {
		n.broken = "the delay was skipped"
	}
	c.phase = dHolding
	if n.last = c.node; !n.isLive(c.node) && n.fate[c.node] == neverHeld {
		n.fate[c.node] = disappeared
	}
	x.granted++
}

// deletes is node.Deletion with a record.
func (x *delayExplorer) deletes(w dWorld, i uint8, add dAdd) {
	me, s, st := w.c[i], x.of(i), w.leader()
	switch {
	case !me.deletesPlain && !me.known:
		add("reads the record that it takes back", func(n *dWorld, c *dClient) {
			x.answered(n, s)
			c.known, c.mHeld, c.mVer = true, n.leader().held, n.leader().ver
		})
	case !st.has(me.node):
		add("finds its node gone", func(n *dWorld, _ *dClient) { x.answered(n, s); x.finish(n, i, HandoffUnknown) })
	case !me.deletesPlain && st.ver != me.mVer:
		add("meets a version conflict in its deletion", func(n *dWorld, c *dClient) {
			x.answered(n, s)
			c.known, c.deletesPlain = false, x.mistakes.plainConflict
		})
	case w.canCommit():
		turn := HandoffIsOurs
		if me.isGiveUp {
			turn = HandoffUnknown
		}
		add("has its node deleted", func(n *dWorld, _ *dClient) {
			x.commitDelete(n, me, me.mHeld)
			x.answered(n, s)
			x.finish(n, i, turn)
		})
		if w.faults > 0 {
			add("FAULT has its node deleted; the connection is lost with the answer", func(n *dWorld, _ *dClient) {
				n.faults--
				x.commitDelete(n, me, me.mHeld)
				n.lose(s)
			})
			add("FAULT loses the connection when it deletes its node, which may come late", func(n *dWorld, c *dClient) {
				n.faults--
				n.lose(s)
				c.late, c.lNode, c.lHeld, c.lVer = lateDelete, c.node, c.mHeld, c.mVer
				if c.deletesPlain {
					c.late = 0
				}
			})
		}
	}
}

// explore visits all worlds.
func (x *delayExplorer) explore() explore.Found {
	first := dWorld{faults: x.faults, giveUps: x.giveUps, writes: x.writes, anew: x.anew}
	for i := range first.c {
		if first.c[i].phase = dEnded; i < len(x.sessions) {
			first.c[i] = dClient{left: max(x.acquire, 1)}
		}
	}
	first.numbered = true
	first.start(int(slices.Max(x.sessions))+1, dState{})
	x.places = map[[2]uint16]Position{}
	return explore.Model[dWorld]{First: first, Broken: func(w *dWorld) string { return w.broken },
		Steps: func(w *dWorld, take func(next *dWorld, must bool, what func() string)) {
			x.steps(*w, func(n *dWorld, what string) {
				must := n.faults == w.faults && n.giveUps == w.giveUps && n.writes == w.writes && n.anew == w.anew && *n != *w
				take(n, must, func() string { return what })
			})
		},
		Stuck: func(w *dWorld) string {
			if w.n < dNodes && slices.ContainsFunc(w.c[:], func(c dClient) bool { return c.phase != dEnded }) {
				return "somebody waits for ever"
			}
			return ""
		}}.Run()
}
