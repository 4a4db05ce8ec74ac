package queue

// Readers and writers in the explorer: a client has a rule, and a writer may take the read lock,
// too.

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	reader = Rule{ReadName, Markers}
	writer = Rule{WriteName, Markers}
)

// names are the names of nodes, by their kind.
var names = []string{MutexName, ReadName, WriteName}

// kinds is what nodes of readers and writers are, and the tokens that were granted.
type kinds struct {
	is             [maxNodes]uint8 // which of the names
	as             [maxNodes]uint8 // of a writer's reader: the writer's node, counted from 1
	top, topWriter uint8           // the largest token of all holders, and of those that hold alone; counted from 1
}

// named is what matters for the names.
func (k kinds) named() kinds {
	k.top, k.topWriter = 0, 0
	return k
}

func (k *kinds) ruleOf(node uint8) Rule { return Rule{names[k.is[node]], Markers} }

func (k *kinds) isReader(node uint8) bool { return names[k.is[node]] == ReadName }

func (k *kinds) number(node uint8) uint8 {
	if w := k.as[node]; w != 0 {
		return w - 1
	}
	return node
}

// writerReads is what a writer has of its reader's node.
type writerReads struct {
	down    uint8 // that node, if it was made
	tried   bool  // a transaction that makes it was sent
	late    bool  // one was not answered, and may still come
	reading bool  // the read lock is held
}

func kindOf(r Rule) uint8 { return uint8(slices.Index(names, r.Name)) }

func (x *explorer) ruleOfClient(c uint8) Rule {
	if x.rules == nil {
		return mutexRule
	}
	return x.rules[c]
}

// mistakes of the downgrade, in addition to the mistakes of the handoff
const (
	readerFirst     mistakes = 1 << (iota + 7) // the reader's node is deleted before the writer's
	uncheckedWriter                            // it is created although the writer's does not exist
	ownToken                                   // the read lock's token is its node's
)

// besideAnother reports whether the holder of a node would hold at the same time as another that
// excludes it.
func (w *world) besideAnother(c, node uint8) bool {
	shared := w.isReader(node)
	for o := range w.nClients {
		h := &w.c[o]
		if o == c || !w.alive().has(node) {
			continue
		}
		if h.phase == holding && w.alive().has(h.node) && !(shared && w.isReader(h.node)) {
			return true
		}
		if h.reading && w.alive().has(h.down) && !shared {
			return true
		}
	}
	return false
}

// earlier reports whether a node exists that blocks this one.
func (w *world) earlier(node uint8) (yes bool) {
	w.alive().each(func(i uint8) {
		yes = yes || w.number(i) < w.number(node) && !(w.isReader(node) && w.isReader(i))
	})
	return yes
}

// takeToken checks a token against the tokens of earlier holders: of all, if the node holds alone,
// otherwise of exclusive holders.
func (w *world) takeToken(node, token uint8) {
	token++
	if w.isReader(node) {
		if token < w.topWriter {
			w.breaks("I1: a reader's token is smaller than that of an earlier writer")
		}
	} else {
		if token <= w.top {
			w.breaks("I1: a token is smaller than that of an earlier holder")
		}
		w.topWriter = max(w.topWriter, token)
	}
	w.top = max(w.top, token)
}

// mayRead reports whether a client that holds may acquire the read lock as well.
func (x *explorer) mayRead(w *world, c uint8) bool {
	k := &w.c[c]
	return x.reads && x.ruleOfClient(c).Name == WriteName && k.phase == holding && !k.tried
}

// makeReader does the transaction at the leader: the writer's node is there, make the reader's.
func (x *explorer) makeReader(w *world, c, writer uint8) {
	i := w.n
	w.n++
	w.owner[i], w.who[i], w.c[c].down = w.id(w.of[c]), c, i
	w.is[i], w.as[i] = kindOf(reader), writer+1
	w.commit(change{kind: made, nodes: only(i)})
}

// readSteps are what a writer does with the read lock.
func (x *explorer) readSteps(w *world, c uint8, can bool, step func(bool, string, func(*world, *client, *session))) {
	k, s := &w.c[c], w.session(c)
	if !x.reads || x.ruleOfClient(c).Name != WriteName {
		return
	}
	ready := w.answers(c) && !s.ended && can && w.n < maxNodes
	there := k.down != noNode && w.alive().has(k.down)
	stands := k.node != noNode && w.alive().has(k.node)
	if k.late && !s.ended && can && w.n < maxNodes && stands && (k.phase == holding || k.phase == deleting) && !there {
		step(false, "has a late transaction done, which makes its reader's node", func(n *world, k *client, _ *session) {
			k.late = false
			x.makeReader(n, c, k.node)
		})
	}
	switch {
	case k.phase == holding && !k.reading && ready && (!k.tried || k.late || there):
		if !there && !stands && x.wrong&uncheckedWriter == 0 {
			step(true, "finds its node gone when it asks for the read lock", func(n *world, k *client, _ *session) { n.finish(c) })
			break
		}
		step(false, "takes the read lock, too", func(n *world, k *client, _ *session) {
			k.tried, k.reading = true, true
			if !there {
				x.makeReader(n, c, k.node)
			}
			if n.besideAnother(c, k.down) {
				n.breaks("I1: two hold, on live nodes")
			}
			token := k.node
			if x.wrong&ownToken != 0 {
				token = k.down
			}
			if n.broken == "" {
				n.takeToken(k.down, token)
			}
		})
	case k.reading:
		if w.answers(c) && !w.sees(c).has(k.down) && !w.alive().has(k.down) {
			step(true, "is told that its reader's node is gone", func(n *world, _ *client, _ *session) { n.tellReaderGone(c) })
		}
		step(true, "releases the read lock", func(n *world, k *client, _ *session) {
			k.reading = false
			if k.phase == readsOn {
				k.phase = leaving
			}
			if x.wrong&readerFirst != 0 && n.alive().has(k.down) {
				n.commit(change{kind: deleted, nodes: only(k.down)})
				k.tried = false
			}
		})
	case k.phase == leaving && w.answers(c) && !s.ended && !k.committed && there && can:
		step(true, "has its reader's node deleted", func(n *world, k *client, _ *session) {
			k.committed = true
			n.commit(change{kind: deleted, nodes: only(k.down)})
		})
	case k.phase == leaving && w.answers(c) && !s.ended && !there && (k.down == noNode || !w.sees(c).has(k.down)):
		step(true, "has that delete's answer", func(n *world, k *client, _ *session) {
			if k.committed {
				n.tellBehind(c, BlockerDeleted)
			}
			k.writerReads, k.committed = writerReads{down: noNode}, false
			n.finish(c)
		})
	}
}

// tellReaderGone ends the read lock of a writer after another client has deleted its node.
func (w *world) tellReaderGone(c uint8) {
	k := &w.c[c]
	k.reading = false
	if k.phase == readsOn {
		k.writerReads = writerReads{down: noNode}
		w.finish(c)
	}
}

// readsOn continues with the reader's node of a writer whose own node was deleted. It returns false
// if there was none.
func (w *world) readsOn(c uint8) bool {
	k := &w.c[c]
	if !k.tried {
		return false
	}
	left := blank(k.left)
	left.phase, left.node, left.writerReads = leaving, k.down, k.writerReads
	left.tried, left.late = false, false // its transaction would find the writer's node missing
	if k.reading {
		left.phase = readsOn
	}
	*k = left
	return true
}

// I1, I2, I8, R73: readers, writers and mutexes in one queue, and writers that also take the read
// lock: no interleaving breaks a promise, and the queue never stops.
func TestExplore_ReadersAndWriters(t *testing.T) {
	mutex := mutexRule
	exploreAllOf(t, []scene[explorer]{
		{"a writer and two readers", false, explorer{sessions: three, rules: []Rule{writer, reader, reader}, acquire: 1, lagging: 2}},
		{"a reader, a writer and a mutex, one gives up", true, explorer{sessions: three, rules: []Rule{reader, writer, mutex}, acquire: 1, lagging: 1, giveUps: 1}},
		{"two writers that read", false, explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 1, faults: 1, kinds: disconnects | adminDeletes}},
		{"a writer that reads, and a mutex", false, explorer{sessions: two, rules: []Rule{writer, mutex}, reads: true, acquire: 1, lagging: 1, faults: 1, kinds: disconnects | adminDeletes}},
		{"a writer that reads and a writer of one session", false, explorer{sessions: oneForTwo, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 1, faults: 1, kinds: usual}},
		{"two readers and a writer of one session", false, explorer{sessions: []uint8{0, 0, 0}, rules: []Rule{reader, reader, writer}, acquire: 1, lagging: 1}},
		{"two writers and a reader, one gives up", true, explorer{sessions: three, rules: []Rule{writer, writer, reader}, acquire: 1, lagging: 1, giveUps: 1}},
		{"two writers that read, and a reader", true, explorer{sessions: three, rules: []Rule{writer, writer, reader}, reads: true, acquire: 1, lagging: 1}},
		{"readers and a writer of two sessions, one gives up", false, explorer{sessions: []uint8{0, 1, 0}, rules: []Rule{reader, reader, writer}, acquire: 1, lagging: 1, giveUps: 1}},
		{"a writer that reads, a mutex and a reader of two sessions, one gives up", true, explorer{sessions: []uint8{0, 1, 0}, rules: []Rule{writer, mutex, reader}, reads: true, acquire: 1, lagging: 1, giveUps: 1}},
		{"a writer that reads, a reader and a writer", true, explorer{sessions: three, rules: []Rule{writer, reader, writer}, reads: true, acquire: 1, lagging: 1}},
		{"a reader and a writer of one session behind a writer, one gives up", true, explorer{sessions: []uint8{0, 1, 1}, rules: []Rule{writer, reader, writer}, acquire: 1, lagging: 1, giveUps: 1}},

		{"two writers that read, one fault", true, explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, faults: 1, kinds: usual}},
		{"a writer that reads, and a mutex, one fault", true, explorer{sessions: two, rules: []Rule{writer, mutex}, reads: true, acquire: 1, lagging: 2, faults: 1, kinds: usual}},
		{"a writer that reads and a writer of one session, one fault", true, explorer{sessions: oneForTwo, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, faults: 1, kinds: usual}},
		{"two writers that read, two faults", true, explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, faults: 2, kinds: disconnects | adminDeletes | expiries}},
		{"a writer that reads, a reader and a mutex, one fault", true, explorer{sessions: three, rules: []Rule{writer, reader, mutex}, reads: true, acquire: 1, lagging: 1, faults: 1, kinds: usual}},
		{"two writers and a reader, one fault", true, explorer{sessions: three, rules: []Rule{writer, writer, reader}, acquire: 1, lagging: 1, faults: 1, kinds: usual}},
		{"readers and a writer of two sessions, one fault", true, explorer{sessions: []uint8{0, 1, 0}, rules: []Rule{reader, reader, writer}, acquire: 1, lagging: 1, faults: 1, kinds: all}},
		{"writers and a reader of two sessions, one fault", true, explorer{sessions: []uint8{0, 1, 0}, rules: []Rule{writer, writer, reader}, reads: true, acquire: 1, lagging: 1, faults: 1, kinds: all}},
		{"three readers and a writer", true, explorer{sessions: []uint8{0, 1, 2, 3}, rules: []Rule{reader, reader, reader, writer}, acquire: 1, lagging: 1}},
		{"three writers, two of one session, and a reader", true, explorer{sessions: []uint8{0, 1, 1, 2}, rules: []Rule{writer, writer, writer, reader}, acquire: 1, lagging: 1}},
		{"a reader and a writer of one session behind a mutex, one fault", true, explorer{sessions: []uint8{0, 1, 1}, rules: []Rule{mutex, reader, writer}, acquire: 1, lagging: 1, faults: 1, kinds: all}},
		{"a writer behind two readers and a writer, one gives up", true, explorer{sessions: []uint8{0, 1, 2, 3}, rules: []Rule{writer, reader, reader, writer}, acquire: 1, lagging: 1, giveUps: 1}},
		{"two readers and a writer, one fault", true, explorer{sessions: three, rules: []Rule{reader, reader, writer}, acquire: 1, lagging: 1, faults: 1, kinds: usual}},
		{"a writer that reads and a reader of one session, and a writer, one fault", true, explorer{sessions: twoOfOne, rules: []Rule{writer, reader, writer}, reads: true, acquire: 1, lagging: 1, faults: 1, kinds: usual}},
		{"two writers that read, twice", true, explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 2, lagging: 1, faults: 2, kinds: disconnects | adminDeletes | expiries}},
	}, (*explorer).explore, func(t *testing.T, x *explorer) {
		require.Positive(t, x.grants[ToList]+x.grants[ToAwait]+x.grants[ToAwaitHandoff])
		require.True(t, len(x.sessions) < 3 || x.last > 0, "nobody was granted on the last of several events")
	})
}

// I1, I4, I8, R73: each rule of readers and writers is left out, and the explorer finds the
// consequence. With -v it prints that.
func TestExplore_WithoutARuleOfReaders(t *testing.T) {
	const (
		excluded = "I1: two hold, on live nodes|I8: granted before an earlier node"
		believes = "I1, I3: granted on the event, .*"
	)
	mutex := mutexRule
	refuteAllOf(t, []mistake[explorer]{
		{"a writer's deletion grants no writer by itself",
			explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, rule: without(func(k *evidence) { k.replaced = false })}, excluded},
		{"nor a mutex",
			explorer{sessions: two, rules: []Rule{writer, mutex}, reads: true, acquire: 1, lagging: 2, rule: without(func(k *evidence) { k.replaced = false })}, excluded},
		{"a reader passes no turn",
			explorer{sessions: []uint8{0, 1, 1}, rules: []Rule{reader, reader, writer}, acquire: 1, lagging: 1, turns: func(r Rule, downgraded bool) bool { return !downgraded }, place: func(r Rule, self string, children []string) Position {
				p := PositionOf(r, self, children)
				p.NoHandoff = false
				return p
			}}, excluded},
		{"a reader waits for each of a few writers",
			explorer{sessions: three, rules: []Rule{writer, writer, reader}, acquire: 1, lagging: 1, giveUps: 1, place: func(r Rule, self string, children []string) Position {
				p := PositionOf(r, self, children)
				if r.IsShared() && p.Blockers > 1 {
					p.Blockers, p.Further = 1, nil
				}
				return p
			}}, excluded},
		{"a writer waits for each of a few readers",
			explorer{sessions: three, rules: []Rule{reader, reader, writer}, acquire: 1, lagging: 1, place: func(r Rule, self string, children []string) Position {
				p := PositionOf(r, self, children)
				if p.Blockers > 1 {
					p.Blockers, p.Further = 1, nil
				}
				return p
			}}, excluded},
		{"it waits for such only if no writer is among them",
			explorer{sessions: three, rules: []Rule{writer, reader, writer}, reads: true, acquire: 1, lagging: 1, place: func(r Rule, self string, children []string) Position {
				p := PositionOf(r, self, children)
				p.Replaced = false
				return p
			}}, excluded},
		{"the event of a node of the same session proves nothing",
			explorer{sessions: oneForTwo, rules: []Rule{reader, writer}, acquire: 1, lagging: 2, faults: 1, kinds: expiries, wrong: watchesOurs, rule: without(func(k *evidence) { k.ours = false })}, believes},
		{"also behind others",
			explorer{sessions: []uint8{0, 1, 1}, rules: []Rule{writer, writer, reader}, acquire: 1, lagging: 1, faults: 1, kinds: expiries, wrong: watchesOurs, rule: without(func(k *evidence) { k.ours = false })}, believes},
		{"a writer that has read passes none",
			explorer{sessions: oneForTwo, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, turns: func(r Rule, _ bool) bool { return !r.IsShared() }}, excluded},
		{"nor one that asked, and had no answer",
			explorer{sessions: oneForTwo, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, faults: 1, kinds: disconnects, turns: func(r Rule, _ bool) bool { return !r.IsShared() }}, excluded},
		{"a mutex blocks a reader",
			explorer{sessions: two, rules: []Rule{mutex, reader}, acquire: 1, lagging: 2, place: func(r Rule, self string, children []string) Position {
				if r.IsShared() {
					children = slices.DeleteFunc(slices.Clone(children), func(n string) bool { return is(n, MutexName) })
				}
				return PositionOf(r, self, children)
			}}, excluded},
		{"readers do not watch the one ahead of the writer",
			explorer{sessions: []uint8{0, 1, 2, 3}, rules: []Rule{writer, writer, reader, reader}, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, place: func(r Rule, self string, children []string) Position {
				p := PositionOf(r, self, children)
				p.Replaced = p.Replaced || r.IsShared() && p.Blockers > 1
				return p
			}}, "I8: one release wakes two, or lets two look"},
		{"the reader's node goes after the writer's",
			explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 1, faults: 1, kinds: disconnects, wrong: readerFirst}, "the queue stops: .*"},
		{"it is made only if the writer's is there",
			explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, faults: 1, kinds: adminDeletes, wrong: uncheckedWriter}, "I1: two hold, on live nodes"},
		{"its token is the writer's",
			explorer{sessions: two, rules: []Rule{writer, writer}, reads: true, acquire: 1, lagging: 2, wrong: ownToken}, "I1: a token is smaller .*"},
	}, (*explorer).explore)
}
