package queue

// These tests attack once.go: work that is marked is not begun again, in every interleaving of a
// few holders.

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/explore"
)

// The model: a lock root and a mark, and holders with a session each (servers). A holder does its
// works one after the other under one hold, each by its own state machine (Once). A request and its
// response are one step. On a connection that is lost, a write may have been executed, or arrive
// later, or never. A grant is an event. How a node is granted is explored elsewhere: here the first
// that lives is granted when its server has applied all earlier writes.
//
// The servers may begin to deny writes of the mark permanently, unless a holder is between the
// proof and the mark of a work.
//
// The explorer looks for: work that is begun by a holder whose node lives, although a mark of it
// existed; a mark that disappears; a mark written by a holder that has lost the lock; a mark that
// is reported as written and is not; work that is begun although its mark is denied; a stop.
const oHolders = 2

const (
	oQueued uint8 = iota
	oHolding
	oReleased
	oGone
)

type oState struct {
	alive uint8 // nodes, by holder
	marks uint8 // by work
	ver   uint8
}

type oHolder struct {
	phase, work      uint8 // of the works that it has, the number of the one that it is at
	walk             Once
	read             oState
	late             bool // a write of the following is on its way
	lateVer, lateSet uint8
}

type oWorld struct {
	servers[oState]
	h      [oHolders]oHolder
	faults uint8
	denied bool // no holder may write the mark
	broken string
}

// oMistakes are what the rules forbid.
type oMistakes struct {
	grantProves bool // the mark is read without a proof
	onlyChecks  bool // or the proof checks the node, and does not write the mark as it was read
	rewrites    bool // or it writes that without naming a version
	unchecked   bool // the write does not check the node
	unversioned bool // or does not name a version
	believes    bool // a write without an answer counts as done
}

type onceExplorer struct {
	works    [oHolders][]uint8
	faults   uint8
	denies   bool // one of the faults is that no holder may write the mark
	mistakes oMistakes
	begun    int
	done     bool
}

func (s *oState) has(i uint8) bool                   { return s.alive&(1<<i) != 0 }
func (s *oState) front(i uint8) bool                 { return s.has(i) && s.alive&(1<<i-1) == 0 }
func (x *onceExplorer) of(c *oHolder, i uint8) uint8 { return 1 << x.works[i][c.work] }

// leaves ends the client of a node, whose session deletes it or has lost it.
func (w *oWorld) leaves(i, phase uint8) {
	w.h[i].phase = phase
	w.lose(i)
}

// deletes deletes a node.
func (w *oWorld) deletes(i uint8) { w.commit(func(s *oState) { s.alive &^= 1 << i }) }

// steps gives all worlds that can come next.
func (x *onceExplorer) steps(w oWorld, take func(n *oWorld, what string)) {
	works := func(c oHolder) bool {
		return c.phase == oHolding && (c.walk.Next == OnceWork || c.walk.Next == OnceWrite)
	}
	if x.denies && w.faults > 0 && !w.denied && !slices.ContainsFunc(w.h[:], works) {
		n := w
		n.denied = true
		n.faults--
		take(&n, "FAULT nobody may write the mark any more")
	}
	for i := range uint8(oHolders) {
		add := func(what string, f func(n *oWorld, c *oHolder)) {
			n := w
			f(&n, &n.h[i])
			take(&n, string('A'+rune(i))+" "+what)
		}
		x.connectionSteps(w, i, add)
		me := w.h[i]
		if me.late && w.canCommit() {
			add("has a write that comes late", func(n *oWorld, c *oHolder) { x.comesLate(n, c, i) })
		}
		switch {
		case me.phase > oHolding || !w.isOn(i):
		case me.phase == oQueued:
			switch v := w.view(i); {
			case v.front(i):
				add("is granted by an event", func(_ *oWorld, c *oHolder) { c.phase = oHolding; x.begin(c) })
			case !v.has(i):
				add("hears that its node is gone", func(n *oWorld, _ *oHolder) { n.leaves(i, oGone) })
			}
		default:
			x.walks(w, i, add)
		}
	}
}

type oAdd func(what string, f func(n *oWorld, c *oHolder))

// begin begins the next work, or releases.
func (x *onceExplorer) begin(c *oHolder) {
	c.walk, c.read = Once{}, oState{}
}

func (x *onceExplorer) connectionSteps(w oWorld, i uint8, add oAdd) {
	if w.h[i].phase > oHolding {
		return
	}
	w.next(i, func(what string, l link) { add(what, func(n *oWorld, _ *oHolder) { n.link[i] = l }) })
	if w.faults == 0 {
		return
	}
	if w.isOn(i) {
		add("FAULT loses its connection", func(n *oWorld, _ *oHolder) { n.faults--; n.lose(i) })
	}
	if w.canCommit() {
		add("FAULT is gone, and its session expires", func(n *oWorld, _ *oHolder) { n.faults--; n.leaves(i, oGone); n.deletes(i) })
		add("FAULT has its node deleted, and does not hear of it", func(n *oWorld, _ *oHolder) { n.faults--; n.deletes(i) })
	}
}

func (x *onceExplorer) walks(w oWorld, i uint8, add oAdd) {
	me := w.h[i]
	switch me.walk.Next {
	case OnceRead:
		add("reads the mark", func(n *oWorld, c *oHolder) {
			c.read = n.read(i)
			f := Absent
			if c.read.marks&x.of(c, i) != 0 {
				f = Exists
			}
			if c.walk = c.walk.Read(f); c.walk.Next == OnceProve && x.mistakes.grantProves {
				c.walk = c.walk.Wrote(Exists)
			}
		})
	case OnceWork:
		add("works", func(n *oWorld, c *oHolder) {
			x.begun++
			switch {
			case n.leader().has(i) && n.leader().marks&x.of(c, i) != 0:
				n.broken = "work that is marked is begun"
			case n.denied:
				n.broken = "work is begun that cannot be marked"
			}
			c.walk = c.walk.Worked()
		})
	case OnceProve:
		if x.mistakes.onlyChecks {
			add("proves its node", func(n *oWorld, c *oHolder) {
				n.answered(i)
				f := Exists
				if !n.leader().has(i) {
					f = Absent
				}
				c.walk = c.walk.Wrote(f)
			})
			return
		}
		x.writes(w, i, me.read.marks, x.mistakes.rewrites, add)
	case OnceWrite:
		x.writes(w, i, me.read.marks|x.of(&me, i), x.mistakes.unversioned, add)
	case OnceMarked, OnceDone:
		add("goes on", func(n *oWorld, c *oHolder) {
			x.done = x.done || c.walk.Next == OnceDone
			if n.leader().marks&x.of(c, i) == 0 {
				n.broken = "it says that the work is marked"
			}
			if c.work++; int(c.work) < len(x.works[i]) {
				x.begin(c)
				return
			}
			x.begin(c)
			n.leaves(i, oReleased) // its delete is not explored: it is executed
			n.deletes(i)
		})
	case OnceLost:
		add("has lost the lock", func(n *oWorld, _ *oHolder) { n.leaves(i, oGone) })
	}
}

// set is the write, as it is done.
func (x *onceExplorer) set(n *oWorld, i, marks uint8) {
	if !n.leader().has(i) {
		n.broken = "who has lost the lock marks"
	}
	if n.leader().marks&^marks != 0 {
		n.broken = "a mark is gone"
	}
	n.commit(func(s *oState) { s.marks = marks; s.ver++ })
}

func (x *onceExplorer) comesLate(n *oWorld, c *oHolder, i uint8) {
	c.late = false
	if st := n.leader(); !n.denied && (st.has(i) || x.mistakes.unchecked) && (st.ver == c.lateVer || x.mistakes.unversioned) {
		x.set(n, i, c.lateSet)
	}
	c.lateVer, c.lateSet = 0, 0
}

// writes is the proof or the write: both write the mark against the version that was read, and then
// check the node.
func (x *onceExplorer) writes(w oWorld, i, marks uint8, unversioned bool, add oAdd) {
	me, st := w.h[i], w.leader()
	switch {
	case w.denied:
		add("is denied, and gives the lock back", func(n *oWorld, c *oHolder) {
			n.answered(i)
			x.begin(c)
			n.leaves(i, oReleased)
			n.deletes(i)
		})
		return
	case !st.has(i) && !x.mistakes.unchecked:
		add("finds its node gone", func(n *oWorld, c *oHolder) { n.answered(i); c.walk = c.walk.Wrote(Absent) })
	case st.ver != me.read.ver && !unversioned:
		add("meets a version conflict", func(n *oWorld, c *oHolder) { n.answered(i); c.walk = c.walk.Wrote(Unknown) })
	case w.canCommit():
		add("writes the mark", func(n *oWorld, c *oHolder) {
			x.set(n, i, marks)
			n.answered(i)
			c.read.marks, c.read.ver = marks, n.leader().ver
			c.walk = c.walk.Wrote(Exists)
		})
	}
	if w.faults == 0 || !w.canCommit() {
		return
	}
	unanswered := func(n *oWorld, c *oHolder) {
		n.faults--
		n.lose(i)
		if c.walk = c.walk.Wrote(Unknown); x.mistakes.believes {
			c.walk.Next = OnceMarked
		}
	}
	if st.has(i) && st.ver == me.read.ver {
		add("FAULT writes the mark; the connection is lost with the answer", func(n *oWorld, c *oHolder) {
			x.set(n, i, marks)
			unanswered(n, c)
		})
	}
	if !me.late {
		add("FAULT loses the connection when it writes the mark, which may come late", func(n *oWorld, c *oHolder) {
			c.late, c.lateVer, c.lateSet = true, c.read.ver, marks
			unanswered(n, c)
		})
	}
}

// explore visits all worlds.
func (x *onceExplorer) explore() explore.Found {
	first := oWorld{faults: x.faults}
	first.start(oHolders, oState{alive: 1<<oHolders - 1})
	return explore.Model[oWorld]{First: first, Broken: func(w *oWorld) string { return w.broken },
		Steps: func(w *oWorld, take func(next *oWorld, must bool, what func() string)) {
			x.steps(*w, func(n *oWorld, what string) { take(n, n.faults == w.faults, func() string { return what }) })
		},
		Stuck: func(w *oWorld) string {
			if slices.ContainsFunc(w.h[:], func(c oHolder) bool { return c.phase < oReleased }) {
				return "somebody waits for ever"
			}
			return ""
		}}.Run()
}

var sameWork, otherWorks, twoWorks = [oHolders][]uint8{{0}, {0}}, [oHolders][]uint8{{0}, {1}}, [oHolders][]uint8{{0, 1}, {0, 1}}

// No interleaving begins marked work, loses a mark or stops.
func TestExploreOnce(t *testing.T) {
	var scenes []scene[onceExplorer]
	for name, works := range map[string][oHolders][]uint8{"one work": sameWork, "two works": otherWorks, "two works each under a hold": twoWorks} {
		scenes = append(scenes, scene[onceExplorer]{name, false, onceExplorer{works: works, faults: 2, denies: true}},
			scene[onceExplorer]{name + ", another fault", true, onceExplorer{works: works, faults: 3, denies: true}})
	}
	exploreAllOf(t, scenes, (*onceExplorer).explore, func(t *testing.T, x *onceExplorer) {
		require.Positive(t, x.begun)
		require.True(t, x.done || x.works[0][0] != x.works[1][0], "nobody found the work done")
	})
}

// Each rule is left out, and the explorer finds the consequence.
func TestExploreOnce_WithoutTheRule(t *testing.T) {
	const again, forgotten, lost = "work that is marked is begun", "a mark is gone", "who has lost the lock marks"
	refuteAllOf(t, []mistake[onceExplorer]{
		{"a grant is no proof to reads", onceExplorer{works: sameWork, faults: 1, mistakes: oMistakes{grantProves: true}}, again},
		{"the proof writes the mark as it was read", onceExplorer{works: sameWork, faults: 1, mistakes: oMistakes{onlyChecks: true}}, again},
		{"the proof writes the mark", onceExplorer{works: sameWork, faults: 1, denies: true, mistakes: oMistakes{onlyChecks: true}}, "work is begun that cannot be marked"},
		{"the proof names the version", onceExplorer{works: sameWork, faults: 1, mistakes: oMistakes{rewrites: true}}, forgotten},
		{"the write checks the node", onceExplorer{works: sameWork, faults: 2, mistakes: oMistakes{unchecked: true}}, lost},
		{"the write names the version", onceExplorer{works: twoWorks, faults: 1, mistakes: oMistakes{unversioned: true}}, forgotten},
		{"a write without an answer is looked for", onceExplorer{works: sameWork, faults: 1, mistakes: oMistakes{believes: true}}, "it says that the work is marked"},
	}, (*onceExplorer).explore)
}
