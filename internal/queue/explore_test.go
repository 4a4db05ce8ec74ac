package queue

// The explorer runs through every interleaving of a few clients, and finds broken promises.

import (
	"flag"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/explore"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/reply"
)

// explore visits all worlds that steps lead to. Two that differ only in facts without effect are
// the same.
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
	used := w.alive
	for i := range w.nSess {
		s := &w.s[i]
		used |= s.view | s.client | s.server | s.armed | s.missed | s.toldGone | s.toldWritten
		for k := range s.n {
			used |= s.lag[k].nodes
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
		s := &w.s[i]
		b = append(b, s.gen, s.conn, s.conns, s.n)
		flags(s.ended, s.cut, s.open, s.restored)
		for k := range s.n {
			b = append(b, s.lag[k].kind)
			put(s.lag[k].nodes)
		}
		put(s.view, s.last, s.quiet, s.armed, s.server, s.client, s.missed, s.toldGone, s.toldWritten)
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
	put(w.alive, w.foreign)
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

func (x *explorer) String() string {
	return fmt.Sprintf("%d clients on %d sessions, %d acquisitions each, %d give up, %d faults of %d kinds, servers up to %d transactions behind",
		len(x.sessions), x.start().nSess, x.acquire, x.giveUps, x.faults, bits.OnesCount16(uint16(x.kinds)), x.lagging)
}

// I1, I2, I3, I8, F34: no interleaving breaks a promise, and the queue never stops, although no
// client checks again after a while.
func TestExplore(t *testing.T) {
	for _, tt := range []struct {
		name string
		big  bool
		x    explorer
	}{
		{"no fault", false, explorer{sessions: three, acquire: 2, lagging: 2}},
		{"one gives up", false, explorer{sessions: three, acquire: 1, lagging: 2, giveUps: 1}},
		{"one fault", false, explorer{sessions: two, acquire: 2, lagging: 2, faults: 1, kinds: all}},
		{"one session, two faults", false, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: all}},
		{"a session is given up", false, explorer{sessions: two, acquire: 2, lagging: 2, faults: 1, kinds: givenUps}},
		{"a session that two share is given up", false, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: givenUps | disconnects | foreigners}},
		{"a writer that reads, too", false, explorer{sessions: two, acquire: 1, lagging: 2, faults: 2, kinds: writers | disconnects}},
		{"across the counter's end", false, explorer{sessions: two, acquire: 3, lagging: 2, faults: 1, kinds: usual, suffixes: acrossTheEnd}},

		{"a writer that reads, three faults", true, explorer{sessions: two, acquire: 1, lagging: 2, faults: 3, kinds: writers | disconnects}},
		{"two faults", true, explorer{sessions: two, acquire: 2, lagging: 2, faults: 2, kinds: usual}},
		{"two faults of more kinds", true, explorer{sessions: two, acquire: 1, lagging: 2, faults: 2, kinds: all}},
		{"one session, two turns, two faults", true, explorer{sessions: oneForTwo, acquire: 2, lagging: 2, faults: 2, kinds: usual}},
		{"two of three share, one fault", true, explorer{sessions: twoOfOne, acquire: 1, lagging: 2, faults: 1, kinds: usual}},
		{"two of three share, one gives up, one fault", true, explorer{sessions: twoOfOne, acquire: 1, lagging: 1, giveUps: 1, faults: 1, kinds: usual}},
		{"sessions are given up, another fault", true, explorer{sessions: two, acquire: 2, lagging: 2, faults: 2, kinds: usual | givenUps}},
		{"three, one fault", true, explorer{sessions: three, acquire: 2, lagging: 2, faults: 1, kinds: usual}},
	} {
		if tt.big && !*exploreAll { // minutes: make explore
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			f := tt.x.explore()
			require.Empty(t, f.Broken, "%s:\n%s", &tt.x, strings.Join(f.Trace, "\n"))
			require.Positive(t, tt.x.grants[ToList], "nobody was granted on a list")
			if of := tt.x.start().nSess; tt.x.suffixes == nil { // past the counter's end there is no such number
				require.True(t, of == 1 || tt.x.grants[ToAwait] > 0, "nobody was granted on an event")
				require.Equal(t, int(of) < len(tt.x.sessions), tt.x.grants[ToAwaitHandoff] > 0, "granted by a turn")
			}
			t.Logf("%s: %d states in %.1f s, and no promise broken in any", &tt.x, f.States, f.Took.Seconds())
		})
	}
}

var exploreAll = flag.Bool("explore.all", false, "explore the large bounds too, which takes minutes and some GB")

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
	shared := explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: usual}
	for _, tt := range []struct {
		clause string
		rule   func(evidence) bool
		x      explorer
		want   string
	}{
		{"all that were ahead are gone", without(func(k *evidence) { k.left = 0 }),
			explorer{sessions: []uint8{0, 1, 2, 3}, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, giveUps: 1}, "I1: two hold, on live nodes"},
		{"nothing comes in the predecessor's place", without(func(k *evidence) { k.replaced = false }),
			explorer{sessions: two, acquire: 1, lagging: 2, faults: 2, kinds: writers}, "I1: granted beside a writer that reads"},
		{"only deletions count", isFirstNow, explorer{sessions: two, acquire: 1, lagging: 2, faults: 1, kinds: adminWrites, wrong: anyEvent}, overtook},

		{"none of them is of our own session", without(func(k *evidence) { k.ours = false }), shared, believes},
		// No connection is known for certain, and none exists now: the two must not count as the
		// same.
		{"there is a connection", func(k evidence) bool {
			if k.conn == 0 && k.listConn == 0 && k.ownConn == 0 && k.blockerConn == 0 {
				k.conn, k.listConn, k.ownConn, k.blockerConn = 1, 1, 1, 1
			}
			return isFirstNow(k)
		}, explorer{sessions: two, queued: true, upTo: ToList, acquire: 1, lagging: 1, faults: 5, kinds: disconnects | adminDeletes}, believes},
		{"the watch on our own node is of this connection", without(func(k *evidence) { k.ownConn = k.conn }),
			explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 4, kinds: reset}, believes},
		{"both watches are", without(func(k *evidence) { k.ownConn, k.blockerConn = k.conn, k.conn }),
			explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 3, kinds: reset}, believes},
		{"all is known from this connection", without(func(k *evidence) { k.listConn, k.ownConn, k.blockerConn = k.conn, k.conn, k.conn }),
			explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 3, kinds: reset}, believes},
		// A watch on our own node that was set on this connection after the last was lost shows
		// that our node existed then, and reports its deletion before anything later. So the two
		// clauses beside it follow from it in this model, alone and together. They stay: with them,
		// the argument is that all evidence is from one connection, and does not depend on which
		// watches are restored when.
		{"the list is of this connection", without(func(k *evidence) { k.listConn = k.conn }),
			explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 3, kinds: reset}, ""},
		{"the watch on the predecessor is of this connection", without(func(k *evidence) { k.blockerConn = k.conn }),
			explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 3, kinds: reset}, ""},
		{"the list and the watch on the predecessor are", without(func(k *evidence) { k.listConn, k.blockerConn = k.conn, k.conn }),
			explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 3, kinds: reset}, ""},
		// The grant checks once more whether its node was deleted: that does not see a watch that
		// was used up by another event.
		{"no event of our own node has come", without(func(k *evidence) { k.ownFired = false }),
			explorer{sessions: two, queued: true, upTo: ToAwait, acquire: 1, lagging: 1, faults: 2, kinds: adminWrites | adminDeletes}, believes},
	} {
		t.Run(tt.clause, func(t *testing.T) {
			tt.x.rule = tt.rule
			if tt.want == "" && *exploreAll {
				tt.x.faults++
			}
			f := tt.x.explore()
			if tt.want == "" {
				require.Empty(t, f.Broken, "this clause is needed after all: say so\n%s", strings.Join(f.Trace, "\n"))
				t.Logf("%s: nothing breaks without it; %d states", &tt.x, f.States)
				return
			}
			require.Contains(t, f.Broken, tt.want, "after %d states", f.States)
			require.Greater(t, len(f.Trace), 5)
			t.Logf("%s; found after %d states:\n%s", &tt.x, f.States, strings.Join(f.Trace, "\n"))
		})
	}
}

// I1, I3, I8: each part of a release's handoff is left out.
func TestExplore_WithoutThePassing(t *testing.T) {
	const (
		unproved = "I1, I3: granted by a turn that no transaction has passed"
		overtook = "I8: granted before an earlier node"
	)
	for _, tt := range []struct {
		part  string
		wrong mistakes
		after func(done bool, failed int, noNode bool) Handoff
		x     explorer
		want  string
	}{
		{"the next node is checked", noCheck, nil, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 1, kinds: adminDeletes}, unproved},
		{"also when the answer was lost", noCheckAgain, nil, explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 2, kinds: adminDeletes | disconnects}, unproved},
		{"the next waits for the answer", passedEarly, nil, explorer{sessions: oneForTwo, acquire: 1, lagging: 2}, unproved},
		{"only a hold passes it", passedByAll, nil, explorer{sessions: twoOfOne, acquire: 1, lagging: 2, giveUps: 1}, overtook},
		{"a check that fails grants nothing", 0, func(done bool, failed int, noNode bool) Handoff {
			return HandoffAfter(done || failed == 0, failed, noNode)
		},
			explorer{sessions: oneForTwo, acquire: 1, lagging: 2, faults: 1, kinds: adminDeletes}, unproved},
		{"whoever gets no turn is told", tellsNobody, nil, explorer{sessions: twoOfOne, acquire: 1, lagging: 2, giveUps: 1}, "the queue stops"},
	} {
		t.Run(tt.part, func(t *testing.T) {
			tt.x.wrong, tt.x.after = tt.wrong, tt.after
			f := tt.x.explore()
			require.Contains(t, f.Broken, tt.want, "after %d states", f.States)
			t.Logf("%s; found after %d states:\n%s", &tt.x, f.States, strings.Join(f.Trace, "\n"))
		})
	}
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
	t.Logf("found after %d states:\n%s", f.States, strings.Join(f.Trace, "\n"))
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
	require.Contains(t, f.Broken, "I8: granted before an earlier node")
	t.Logf("found after %d states:\n%s", f.States, strings.Join(f.Trace, "\n"))
}
