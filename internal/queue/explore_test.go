package queue

// The explorer runs through every interleaving of a few clients, and finds broken promises.

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/explore"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
)

// explore visits all worlds that steps lead to. Two that differ only in facts without effect are the
// same.
func (x *explorer) explore() explore.Found {
	if x.place == nil {
		x.place = PositionOf
	}
	if x.rule == nil {
		x.rule = isFirstNow
	}
	if x.fate == nil {
		x.fate = reply.FateOf
	}
	if x.after == nil {
		x.after = HandoffAfter
	}
	if x.turns == nil {
		x.turns = Rule.HandsOff
	}
	x.places = map[placeKey]placed{}
	return explore.Model[world]{First: x.start(), Steps: x.steps, Encode: x.encode, Broken: func(w *world) string { return w.broken },
		Stuck: func(w *world) string {
			if w.done() || w.deaf {
				return ""
			}
			return "the queue stops: nobody holds, nothing is under way, and somebody waits"
		}}.Run()
}

// encode writes the relevant facts of a world. Nodes whose events cannot reach a client any more
// are left out, and the remaining ones renumbered, unless their numbers matter to the run; and
// clients with a session each are in the order of their states.
func (x *explorer) encode(b []byte, w *world) []byte {
	used := w.alive()
	for i := range w.nSess {
		s := &w.s[i]
		used |= w.view(i).alive | s.client | s.server | s.armed | s.missed | s.toldGone | s.toldWritten
		for _, ch := range w.hist[:w.link[i].lag] {
			used |= ch.nodes
		}
	}
	for c := range w.nClients {
		k := &w.c[c]
		for _, i := range append([]uint8{k.node, k.ahead, k.next}, k.watch[:]...) {
			if i < maxNodes {
				used |= only(i)
			}
		}
		used |= k.list | k.watched
	}
	if x.suffixes != nil || x.kinds&writers != 0 || x.rules != nil {
		used = only(w.n) - 1
	}
	var to [maxNodes]uint8
	n := uint8(0)
	used.each(func(i uint8) { to[i] = n; n++ })
	set := func(s nodes) nodes {
		var t nodes
		(s & used).each(func(i uint8) { t |= only(to[i]) })
		return t
	}
	node := func(i uint8) uint8 {
		if i < maxNodes {
			return to[i]
		}
		return i
	}
	put := func(sets ...nodes) {
		for _, s := range sets {
			s = set(s)
			b = append(b, byte(s), byte(s>>8))
		}
	}
	flags := func(fs ...bool) {
		v := byte(0)
		for i, f := range fs {
			if f {
				v |= 1 << i
			}
		}
		b = append(b, v)
	}

	one := func(c uint8) {
		k := &w.c[c]
		b = append(b, k.left, byte(k.phase), node(k.node), byte(k.walk.Next), node(k.ahead), byte(k.walk.Blockers), byte(k.walk.At), byte(k.walk.watched),
			byte(k.walk.deleted), byte(k.walk.listConn), byte(k.walk.ownConn), byte(k.walk.blockerConn), byte(k.ownFired))
		for j, i := range k.watch {
			if i != noNode {
				b = append(b, node(i), byte(k.aheadFired[j]), k.keptConn[j])
			}
		}
		b = append(b, noNode)
		flags(k.committed, k.unsure, k.walk.NoHandoff, k.walk.replaced, k.walk.ours, k.dead)
		b = append(b, byte(k.told), node(k.next))
		flags(k.passes, k.stood)
		put(k.list, k.watched, k.keeps, k.hears)
		if x.rules != nil {
			b = append(b, kindOf(x.ruleOfClient(c)), node(k.down))
			flags(k.tried, k.late, k.reading)
		}
	}
	sess := func(i uint8) {
		s, l := &w.s[i], w.link[i]
		b = append(b, s.gen, l.conn, l.lost, l.lag)
		flags(s.ended, l.cut, s.open, s.restored)
		for _, ch := range w.hist[:l.lag] {
			b = append(b, ch.kind)
			put(ch.nodes)
		}
		put(w.view(i).alive, s.last, s.quiet, s.armed, s.server, s.client, s.missed, s.toldGone, s.toldWritten)
		s.armed.each(func(i uint8) { b = append(b, s.over[i]) })
		var mine nodes
		used.each(func(n uint8) {
			if w.owner[n] == w.id(i) {
				mine |= only(n)
			}
		})
		put(mine)
	}

	b = append(b, n, w.faults, w.giveUps)
	flags(w.deaf)
	put(w.alive(), w.foreign)
	b = append(b, w.writer, w.reader)
	if x.rules != nil {
		b = append(b, w.top, w.topWriter)
		used.each(func(i uint8) { b = append(b, w.is[i], w.as[i]) })
	}
	if w.nSess < w.nClients {
		for i := range w.nSess {
			sess(i)
		}
		for c := range w.nClients {
			one(c)
		}
		return b
	}
	var parts [maxWaiters][]byte
	head := len(b)
	for c := range w.nClients {
		from := len(b)
		one(c)
		sess(w.of[c])
		parts[c] = b[from:]
	}
	tail := slices.Clone(b[head:])
	from := 0
	for c := range w.nClients {
		parts[c] = tail[from : from+len(parts[c])]
		from += len(parts[c])
	}
	sorted := parts[:w.nClients]
	slices.SortFunc(sorted, slices.Compare[[]byte])
	b = b[:head]
	for _, p := range sorted {
		b = append(b, p...)
	}
	return b
}

// Whose session is whose.
var (
	three     = []uint8{0, 1, 2}
	two       = []uint8{0, 1}
	oneForTwo = []uint8{0, 0}
	twoOfOne  = []uint8{0, 0, 1}
)

// acrossTheEnd gives the numbers of nodes made across the end of a lock root's counter, some of
// them pipelined.
func acrossTheEnd(i int) string {
	return []string{"2146435070", "2146435071", "2146435072", "2147483647", "-2147483648"}[min(i, 4)]
}

// pinned gives the numbers of nodes where the counter no longer moves.
func pinned(i int) string { return []string{"2147483647", "-2147483648", "2147483647"}[i%3] }

// I1, I2, I3, I8, F34: no interleaving breaks a promise, and the queue never stops, although no
// client checks again after a while.
func TestExplore(t *testing.T) {
	exploreAllOf(t, []scene[explorer]{
		{"one gives up", false, explorer{sessions: three, acquire: 1, lagging: 2, giveUps: 1}},
		{"one fault", false, explorer{sessions: two, acquire: 2, lagging: 2, faults: 1, kinds: all}},
		{"one session, one fault", false, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 1, kinds: all}},
		{"a session is given up", false, explorer{sessions: two, acquire: 2, lagging: 2, faults: 1, kinds: givenUps}},
		{"a session that two share is given up", false, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 1, kinds: givenUps}},
		{"a writer that reads, too", false, explorer{sessions: two, acquire: 1, lagging: 1, faults: 2, kinds: writers | disconnects}},
		{"across the counter's end", false, explorer{sessions: two, acquire: 3, lagging: 1, suffixes: acrossTheEnd}},

		{"no fault", true, explorer{sessions: three, acquire: 2, lagging: 2}},
		{"one session, two faults", true, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: all}},
		{"a session that two share is given up, another fault", true, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: givenUps | disconnects | foreigners}},
		{"across the counter's end, one fault", true, explorer{sessions: two, acquire: 3, lagging: 2, faults: 1, kinds: usual, suffixes: acrossTheEnd}},
		{"a writer that reads, three faults", true, explorer{sessions: two, acquire: 1, lagging: 2, faults: 3, kinds: writers | disconnects}},
		{"two faults", true, explorer{sessions: two, acquire: 2, lagging: 2, faults: 2, kinds: usual}},
		{"two faults of more kinds", true, explorer{sessions: two, acquire: 1, lagging: 2, faults: 2, kinds: all}},
		{"one session, two turns, two faults", true, explorer{sessions: oneForTwo, acquire: 2, lagging: 2, faults: 2, kinds: usual}},
		{"two of three share, one fault", true, explorer{sessions: twoOfOne, acquire: 1, lagging: 2, faults: 1, kinds: usual}},
		{"two of three share, one gives up, one fault", true, explorer{sessions: twoOfOne, acquire: 1, lagging: 1, giveUps: 1, faults: 1, kinds: usual}},
		{"sessions are given up, another fault", true, explorer{sessions: two, acquire: 2, lagging: 2, faults: 2, kinds: usual | givenUps}},
		{"three, one fault", true, explorer{sessions: three, acquire: 2, lagging: 2, faults: 1, kinds: usual}},
	}, (*explorer).explore, func(t *testing.T, x *explorer) {
		require.Positive(t, x.grants[ToList], "nobody was granted on a list")
		if of := x.start().nSess; x.suffixes == nil { // past the counter's end there is no such number
			require.True(t, of == 1 || x.grants[ToAwait] > 0, "nobody was granted on an event")
			require.Equal(t, int(of) < len(x.sessions), x.grants[ToAwaitHandoff] > 0, "granted by a turn")
		}
	})
}

// without is the rule on evidence that was touched up: so a clause is left out.
func without(touchUp func(k *evidence)) func(evidence) bool {
	return func(k evidence) bool {
		touchUp(&k)
		return isFirstNow(k)
	}
}

// I1, I3, I8: each clause is left out, and the explorer finds the consequence, by the fewest steps.
// With -v it prints them.
func TestExplore_WithoutAClause(t *testing.T) {
	const (
		believes = "I1, I3: granted on the event, when that connection had already shown a state without the own node"
		overtook = "I8: granted before an earlier node"
		reset    = disconnects | adminDeletes | adminWrites | lateRestores
	)
	// A node whose create got no response is not known to be ours yet, and does not hand off.
	shared := explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: usual, rule: without(func(k *evidence) { k.ours = false })}
	more := uint8(0)
	if *exploreAll {
		more = 2
	}
	refuteAllOf(t, []mistake[explorer]{
		{"all that were ahead are gone", explorer{sessions: []uint8{0, 1, 2, 3}, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, giveUps: 1, rule: without(func(k *evidence) { k.left = 0 })}, "I1: two hold, on live nodes"},
		{"nothing comes in the predecessor's place", explorer{sessions: two, acquire: 1, lagging: 2, faults: 2, kinds: writers, rule: without(func(k *evidence) { k.replaced = false })}, "I1: granted beside a writer that reads"},
		{"only deletions count", explorer{sessions: two, acquire: 1, lagging: 2, faults: 1, kinds: adminWrites, wrong: anyEvent}, overtook},

		{"none of them is of our own session", shared, believes},
		// No connection is known for certain, and none exists now: the two must not count as the
		// same.
		{"there is a connection", explorer{sessions: two, queued: true, upTo: ToList, released: true, acquire: 1, lagging: 1, faults: 5, kinds: disconnects | adminDeletes, rule: without(func(k *evidence) {
			if k.conn == 0 && k.listConn == 0 && k.ownConn == 0 && k.blockerConn == 0 {
				k.conn, k.listConn, k.ownConn, k.blockerConn = 1, 1, 1, 1
			}
		})}, believes},
		{"the watch on our own node is of this connection", explorer{sessions: two, queued: true, upTo: ToWatchBlocker, released: true, acquire: 1, lagging: 1, faults: 3, kinds: reset, rule: without(func(k *evidence) { k.ownConn = k.conn })}, believes},
		{"both watches are", explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 3, kinds: reset, rule: without(func(k *evidence) { k.ownConn, k.blockerConn = k.conn, k.conn })}, believes},
		{"all is known from this connection", explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 3, kinds: reset, rule: without(func(k *evidence) { k.listConn, k.ownConn, k.blockerConn = k.conn, k.conn, k.conn })}, believes},
		// A watch on our own node that was set on this connection after the last was lost shows
		// that our node existed then, and reports its deletion before anything later. So the two
		// clauses beside it follow from it in this model, alone and together. They stay: with them,
		// the argument is that all evidence is from one connection, and does not depend on which
		// watches are restored when.
		{"the list is of this connection", explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 2 + more, kinds: reset, rule: without(func(k *evidence) { k.listConn = k.conn })}, ""},
		{"the watch on the predecessor is of this connection", explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 2 + more, kinds: reset, rule: without(func(k *evidence) { k.blockerConn = k.conn })}, ""},
		{"the list and the watch on the predecessor are", explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 2 + more, kinds: reset, rule: without(func(k *evidence) { k.listConn, k.blockerConn = k.conn, k.conn })}, ""},
		// The grant checks once more whether its node was deleted: that does not see a watch that
		// was used up by another event.
		{"no event of our own node has come", explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 2, kinds: adminWrites | adminDeletes, rule: without(func(k *evidence) { k.ownFired = false })}, believes},
	}, (*explorer).explore)
}

// I1, I3, I8: each part of a release's handoff is left out.
func TestExplore_WithoutThePassing(t *testing.T) {
	const (
		unproved = "I1, I3: granted by a turn that no transaction has passed"
		overtook = "I8: granted before an earlier node"
	)
	refuteAllOf(t, []mistake[explorer]{
		{"the next node is checked", explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 1, kinds: adminDeletes, wrong: noCheck}, unproved},
		{"also when the answer was lost", explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: adminDeletes | disconnects, wrong: noCheckAgain}, unproved},
		{"the next waits for the answer", explorer{sessions: oneForTwo, acquire: 1, lagging: 2, wrong: passedEarly}, unproved},
		{"only a hold passes it", explorer{sessions: twoOfOne, acquire: 1, lagging: 2, giveUps: 1, wrong: passedByAll}, overtook},
		{"a check that fails grants nothing", explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 1, kinds: adminDeletes, after: func(done bool, failed int, noNode bool) Handoff {
			return HandoffAfter(done || failed == 0, failed, noNode)
		}}, unproved},
		{"whoever gets no turn is told", explorer{sessions: twoOfOne, acquire: 1, lagging: 2, giveUps: 1, wrong: tellsNobody}, "the queue stops: .*"},
	}, (*explorer).explore)
}

// I2, F3: a create whose answer was lost is taken for one that made nothing.
func TestExplore_WithoutTheList(t *testing.T) {
	x := explorer{sessions: two, acquire: 1, lagging: 2, faults: 1, kinds: disconnects}
	x.fate = func(f mux.Fate, o reply.Outcome, over bool) reply.CreateFate {
		if f == mux.NoAnswer {
			return reply.NothingMade
		}
		return reply.FateOf(f, o, over)
	}
	f := x.explore()
	require.Equal(t, "I2: two nodes of one owner", f.Broken)
	t.Log(f)
}

// F34, I1: nodes past the counter's end are taken in the order of their numbers, as other clients
// do.
func TestExplore_WithoutTheEnd(t *testing.T) {
	x := explorer{sessions: two, acquire: 2, lagging: 2, suffixes: pinned}
	x.place = func(r Rule, self string, children []string) Position {
		mine, _ := Parse(self, r.Markers)
		for _, m := range Members(children, r.Markers) {
			if m.Seq < mine.Seq {
				return Position{Kind: Behind, Predecessor: m.Name, Blockers: 1}
			}
		}
		return Position{Kind: Front}
	}
	f := x.explore()
	require.Equal(t, "I8: granted before an earlier node", f.Broken)
	t.Log(f)
}
