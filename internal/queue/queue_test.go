package queue

// These tests attack queue.go: names, places, and the rules by which an event or a release grants.

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

// ours returns a lock node's name as zklock and Curator write it; i distinguishes the clients.
func ours(i, seq int) string {
	return fmt.Sprintf("_c_%08d-0000-4000-8000-000000000000-lock-%010d", i, seq)
}

// Names are written by ZooKeeper as %010d of a 32-bit counter, after whatever the client asked for.
func TestParseMember(t *testing.T) {
	const id = "0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72"
	const hex = "0e4ef0ac8eb94d628b7fcb2a3ab6ad72"
	for _, tt := range []struct {
		name string
		seq  int64
		ok   bool
	}{
		// those that queue with us (F36)
		{"_c_" + id + "-lock-0000000007", 7, true},    // zklock, Curator
		{"_c_" + hex + "-lock-0000000007", 7, true},   // go-zookeeper
		{hex + "__lock__0000000007", 7, true},         // kazoo
		{"_c_" + id + "-__READ__0000000007", 7, true}, // Curator's read lock
		{"_c_" + id + "-__WRIT__0000000007", 7, true}, // Curator's write lock
		{"lock-0000000007", 7, true},                  // by hand
		{"a-lock-1000000000", 1_000_000_000, true},    // all ten digits in use
		{"lock-0134217727", 1<<27 - 1, true},          //
		{"lock-2147483646", counterPinned - 1, true},
		{"lock-2147483647", counterPinned, true},      // the counter stays there (F34)
		{"lock--2147483648", -1 << 31, true},          // pipelined creates past it (F34)
		{"lock--2147483640", -1<<31 + 8, true},        //
		{hex + "__lock__-2147483648", -1 << 31, true}, //
		{"_c_" + id + "-__READ__-2147483648", -1 << 31, true},

		// foreign children, which take no part
		{"", 0, false},
		{"config", 0, false},
		{"0", 0, false},
		{"_c_x", 0, false},
		{"lock-abc", 0, false},
		{"lock-", 0, false},
		{"lock--", 0, false},
		{"0000000007", 0, false},                // a number and no marker
		{"-2147483648", 0, false},               //
		{"leases", 0, false},                    // Curator's semaphore
		{"lease-0000000007", 0, false},          // another recipe's nodes
		{"_c_" + id + "-0000000007", 0, false},  //
		{"lock-000000007", 0, false},            // nine digits
		{"lock-00000000007", 0, false},          // eleven
		{"lock--000000007", 0, false},           // a minus sign and nine
		{"lock---2147483648", 0, false},         // two minus signs
		{"lock-+000000007", 0, false},           //
		{"lock- 000000007", 0, false},           //
		{"lock-000000000a", 0, false},           //
		{"lock-٠٠٠٠٠٠٠٠٠٧", 0, false},           // digits, but not ASCII
		{"lock-0000000007 ", 0, false},          //
		{"LOCK-0000000007", 0, false},           //
		{"lock_0000000007", 0, false},           //
		{"lock-2147483648", 0, false},           // one more than the counter can say
		{"lock-9999999999", 0, false},           // a huge number
		{"lock--2147483649", 0, false},          //
		{"lock--9999999999", 0, false},          //
		{"lock-99999999999999999999", 0, false}, // longer than an int64
		{"__READ__0000000007x", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, ok := Parse(tt.name, Markers)
			require.Equal(t, tt.ok, ok)
			if ok {
				require.Equal(t, Member{tt.name, tt.seq}, m)
				require.Equal(t, tt.seq < 0 || tt.seq >= counterEnd, m.PastTheEnd())
			}
		})
	}
}

func TestParseMember_QueuePattern_AddsMembers(t *testing.T) {
	_, ok := Parse("job#0000000003", Markers)
	require.False(t, ok)
	with := func(ending string) []string { return append(slices.Clone(Markers), ending) }
	m, ok := Parse("job#0000000003", with("job#"))
	require.True(t, ok)
	require.EqualValues(t, 3, m.Seq)
	_, ok = Parse(ours(1, 3), with("job#"))
	require.True(t, ok, "the known names stay known")

	// The first endings take a number's minus sign for a part of the name, if they may.
	for _, ending := range []string{"-", "lock--", "lock-"} {
		for name, seq := range map[string]int64{
			"_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-lock--2147483648": -1 << 31, "lock--2147483640": -1<<31 + 8, "lock-0000000007": 7,
		} {
			m, ok := Parse(name, with(ending))
			require.True(t, ok, "%s: %s", ending, name)
			require.Equal(t, seq, m.Seq, "%s: %s", ending, name)
		}
	}
	for name, seq := range map[string]int64{"job-0000000003": 3, "job--0000000003": 3, "job--2147483648": -1 << 31} {
		m, ok := Parse(name, with("-"))
		require.True(t, ok, name)
		require.Equal(t, seq, m.Seq, name)
	}
}

func TestProtectionID(t *testing.T) {
	const id = "0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72"
	for _, tt := range []struct{ name, id string }{
		{"_c_" + id + "-lock-0000000000", id},
		{"_c_" + id + "-__READ__0000000000", id},
		{"_c_" + id + "-", id},
		{"_c_" + id, ""},                                            // nothing after the id
		{"_c_" + id + "_lock-0000000000", ""},                       // no dash after the id
		{"_c_0e4ef0ac8eb94d628b7fcb2a3ab6ad72-lock-0000000000", ""}, // go-zookeeper: 32 digits, no dashes
		{"_c_0e4ef0ac-8eb9-4d62-8b7fxcb2a3ab6ad72-lock-", ""},       // a dash is missing
		{"0e4ef0ac8eb94d628b7fcb2a3ab6ad72__lock__0000000000", ""},  // kazoo
		{id + "-lock-0000000000", ""},                               // no prefix
		{"_c_x", ""},                                                // shorter than an id; zk's own helper panics here
		{"_c_", ""},
		{"", ""},
	} {
		got, ok := ProtectionID(tt.name)
		require.Equal(t, tt.id, got, tt.name)
		require.Equal(t, tt.id != "", ok, tt.name)
	}
}

// counterPinned is the last number that ZooKeeper gives, again and again.
const counterPinned = 1<<31 - 1

var mutexRule = Rule{MutexName, Markers}

func TestPositionOf(t *testing.T) {
	const kazoo5 = "0e4ef0ac8eb94d628b7fcb2a3ab6ad72__lock__0000000005"
	const goZK5 = "_c_0e4ef0ac8eb94d628b7fcb2a3ab6ad72-lock-0000000005"
	self := ours(1, 7)
	foreign := []string{"config", "0", "_c_x", "lock-abc", "lock-9999999999", "leases", "lease-0000000001"}
	for _, tt := range []struct {
		name     string
		self     string
		children []string
		want     Position
	}{
		{"alone", self, []string{self}, Position{Kind: Front}},
		{"front with others behind", self, []string{ours(2, 9), self, ours(3, 8)}, Position{Kind: Front}},
		{"second: its predecessor is the front", self, []string{self, ours(2, 6), ours(3, 8)},
			Position{Kind: Behind, Predecessor: ours(2, 6), Blockers: 1, Holds: true}},
		{"further back: the one just ahead, whatever the order of the list", self,
			[]string{ours(2, 2), ours(3, 5), self, ours(4, 4), ours(5, 8)},
			Position{Kind: Behind, Predecessor: ours(3, 5), Further: []string{ours(4, 4)}, Blockers: 3}},
		{"gaps in the numbers mean nothing", self, []string{ours(2, 0), self},
			Position{Kind: Behind, Predecessor: ours(2, 0), Blockers: 1, Holds: true}},
		{"foreign children take no part", self, append(slices.Clone(foreign), self), Position{Kind: Front}},
		{"foreign children are no predecessors", self, append(slices.Clone(foreign), ours(2, 3), self),
			Position{Kind: Behind, Predecessor: ours(2, 3), Blockers: 1, Holds: true}},
		{"F36: behind kazoo's lock", self, []string{self, kazoo5}, Position{Kind: Behind, Predecessor: kazoo5, Blockers: 1, Holds: true}},
		{"F36: behind go-zookeeper's lock", self, []string{self, goZK5}, Position{Kind: Behind, Predecessor: goZK5, Blockers: 1, Holds: true}},
		{"F36: ten digits compare as numbers", self, []string{self, ours(2, 10)}, Position{Kind: Front}},

		// R73: a writer may leave a reader with its number; nodes with other names may leave
		// anything.
		{"R73: behind a writer", self, []string{self, "_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__WRIT__0000000005"},
			Position{Kind: Behind, Predecessor: "_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__WRIT__0000000005", Blockers: 1, Holds: true, Replaced: true}},
		{"R73: behind a reader", self, []string{self, "_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__READ__0000000005"},
			Position{Kind: Behind, Predecessor: "_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__READ__0000000005", Blockers: 1, Holds: true, NoHandoff: true}},

		// A missing node is no index and no last position (R13): it is reported.
		{"R13: own node missing", self, []string{ours(2, 6), ours(3, 8)}, Position{Kind: Missing}},
		{"R13: empty queue", self, nil, Position{Kind: Missing}},
		{"R13: another node with our number", self, []string{ours(2, 7)}, Position{Kind: Missing}},
		{"R13: our id under another number", self, []string{ours(1, 8)}, Position{Kind: Missing}},

		// F35: two nodes with one number: another client has made one by name.
		{"F35: another node has our number", self, []string{self, ours(2, 7)}, Position{Kind: Twin}},
		{"F35: and somebody is ahead", self, []string{self, ours(2, 7), ours(3, 5)}, Position{Kind: Twin}},
		{"F35: two ahead of us have one number: nobody knows who is the predecessor", self, []string{self, ours(2, 6), ours(3, 6)},
			Position{Kind: Behind, Predecessor: ours(2, 6), Blockers: 2, NoHandoff: true}},
		{"F35: also the first", self, []string{self, ours(2, 0), ours(3, 0)}, Position{Kind: Behind, Predecessor: ours(2, 0), Blockers: 2, NoHandoff: true}},
		{"F35: two ahead of the predecessor have: either may be watched", self, []string{ours(2, 5), ours(4, 6), ours(3, 5), self},
			Position{Kind: Behind, Predecessor: ours(4, 6), Further: []string{ours(2, 5)}, LastHolds: true, Blockers: 3}},

		// F34: no node is granted past the end of the counter.
		{"F34: the last that is granted", ours(1, counterEnd-1), []string{ours(1, counterEnd-1), ours(2, counterEnd)}, Position{Kind: Front}},
		{"F34: past the end, alone", ours(1, counterEnd), []string{ours(1, counterEnd)}, Position{Kind: Exhausted}},
		{"F34: at its very end", ours(1, counterPinned), []string{ours(1, counterPinned)}, Position{Kind: Exhausted}},
		{"F34: negative, alone", ours(1, -1<<31), []string{ours(1, -1<<31)}, Position{Kind: Exhausted}},
		{"F34: behind an ordinary number", ours(1, counterEnd), []string{ours(2, 9), ours(1, counterEnd)}, Position{Kind: Exhausted, Predecessor: ours(2, 9)}},
		{"F34: beside one with the same number", ours(1, counterPinned), []string{ours(2, counterPinned), ours(1, counterPinned)}, Position{Kind: Exhausted, Predecessor: ours(2, counterPinned)}},
		{"F34: beside a negative number nobody is granted", ours(1, 5), []string{ours(1, 5), "lock--2147483648"}, Position{Kind: Exhausted, Predecessor: "lock--2147483648"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, PositionOf(mutexRule, tt.self, tt.children))
		})
	}
}

// I1, I8, R73: what a reader and a writer wait for, in queues of each kind of node.
func TestPositionOf_ReadersAndWriters(t *testing.T) {
	node := func(kind string, n int) string {
		return fmt.Sprintf("_c_%08x-0000-4000-8000-%012d-%s%010d", 99-n, len(kind)+int(kind[3]), kind, n)
	}
	r, w, m := func(n int) string { return node(ReadName, n) }, func(n int) string { return node(WriteName, n) }, func(n int) string { return node(MutexName, n) }
	readers := func(n int) (names []string) { // from the first on
		for i := range n {
			names = append(names, r(i+1))
		}
		return names
	}
	nearestOf := func(n int) []string {
		names := readers(n)
		slices.Reverse(names)
		return names
	}
	const kazoo5, kazooReader5 = "0e4ef0ac8eb94d628b7fcb2a3ab6ad72__lock__0000000005", "0e4ef0ac8eb94d628b7fcb2a3ab6ad72__rlock__0000000005"
	const kazoo2 = "0e4ef0ac8eb94d628b7fcb2a3ab6ad72__lock__0000000002"
	front := Position{Kind: Front}
	for _, tt := range []struct {
		name string
		self string
		list []string
		want Position
	}{
		{"a reader among readers", r(7), []string{r(5), r(6), r(7), r(8)}, front},
		{"a reader behind a writer that holds", r(7), []string{w(5), r(6), r(7)}, Position{Kind: Behind, Predecessor: w(5), Blockers: 1, Holds: true, NoHandoff: true}},
		{"a reader behind a writer that waits for a reader", r(7), []string{r(4), w(5), r(6), r(7)}, Position{Kind: Behind, Predecessor: w(5), Blockers: 1, NoHandoff: true}},
		{"a reader behind two writers watches both", r(9), []string{w(3), r(4), w(5), r(6), r(9)}, Position{Kind: Behind, Predecessor: w(5), Further: []string{w(3)}, LastHolds: true, Blockers: 2, NoHandoff: true}},
		{"behind four of all kinds, too", r(9), []string{m(6), w(3), r(4), w(5), kazoo2, r(9)}, Position{Kind: Behind, Predecessor: m(6), Further: []string{w(5), w(3), kazoo2}, LastHolds: true, Blockers: 4, NoHandoff: true}},
		{"behind more than four, the nearest", r(9), []string{w(3), w(4), w(5), w(6), w(7), r(9)}, Position{Kind: Behind, Predecessor: w(7), Blockers: 5}},
		{"and behind several, one of which may leave anything", r(9), []string{kazooReader5, w(6), r(9)}, Position{Kind: Behind, Predecessor: w(6), Blockers: 2}},
		{"a reader waits for a mutex", r(7), []string{m(5), r(7)}, Position{Kind: Behind, Predecessor: m(5), Blockers: 1, Holds: true, NoHandoff: true}},
		{"and for kazoo's", r(7), []string{kazoo5, r(7)}, Position{Kind: Behind, Predecessor: kazoo5, Blockers: 1, Holds: true, NoHandoff: true}},
		{"a name that we do not know may be anything, and leave anything", r(7), []string{kazooReader5, r(7)}, Position{Kind: Behind, Predecessor: kazooReader5, Blockers: 1, Holds: true, Replaced: true}},
		{"a reader behind a writer that reads: who comes in its place does not block", r(7), []string{w(5), r(5), r(7)}, Position{Kind: Behind, Predecessor: w(5), Blockers: 1, Holds: true, NoHandoff: true}},
		{"a reader behind one that did", r(7), []string{r(5), r(7)}, front},

		{"a writer waits for all, and watches each if all are readers", w(7), []string{r(5), r(4), r(6), w(7)}, Position{Kind: Behind, Predecessor: r(6), Further: []string{r(5), r(4)}, LastHolds: true, Blockers: 3, NoHandoff: true}},
		{"up to sixteen", w(20), append(readers(16), w(20)), Position{Kind: Behind, Predecessor: r(16), Further: nearestOf(15), LastHolds: true, Blockers: 16, NoHandoff: true}},
		{"of more, two", w(20), append(readers(17), w(20)), Position{Kind: Behind, Predecessor: r(17), Further: []string{r(16)}, Blockers: 17, NoHandoff: true}},
		{"of up to fifteen readers behind a writer, each, and that writer", w(20), append(readers(15), w(20), w(0)), Position{Kind: Behind, Predecessor: r(15), Further: append(nearestOf(14), w(0)), LastHolds: true, Blockers: 16, NoHandoff: true, Replaced: true}},
		{"and not what is ahead of it", w(9), []string{r(8), w(7), r(6), m(5), w(9)}, Position{Kind: Behind, Predecessor: r(8), Further: []string{w(7)}, Blockers: 4, NoHandoff: true, Replaced: true}},
		{"of more readers behind a writer, two", w(20), append(readers(16), w(20), w(0)), Position{Kind: Behind, Predecessor: r(16), Further: []string{r(15)}, Blockers: 17, NoHandoff: true}},
		{"a mutex, too", m(7), []string{r(5), r(4), r(6), m(7)}, Position{Kind: Behind, Predecessor: r(6), Further: []string{r(5), r(4)}, LastHolds: true, Blockers: 3, NoHandoff: true}},
		{"a writer behind the last reader", w(7), []string{r(6), w(7)}, Position{Kind: Behind, Predecessor: r(6), Blockers: 1, Holds: true, NoHandoff: true}},
		{"a writer behind a mutex", w(7), []string{m(6), w(7)}, Position{Kind: Behind, Predecessor: m(6), Blockers: 1, Holds: true}},
		{"readers behind a mutex", w(7), []string{r(5), m(4), r(6), w(7)}, Position{Kind: Behind, Predecessor: r(6), Further: []string{r(5), m(4)}, LastHolds: true, Blockers: 3, NoHandoff: true}},
		{"R73: a writer behind a writer, in whose place a reader may come", w(7), []string{w(6), w(7)}, Position{Kind: Behind, Predecessor: w(6), Blockers: 1, Holds: true, Replaced: true}},
		{"R73: also if others stand between them", w(7), []string{w(5), r(6), w(7)}, Position{Kind: Behind, Predecessor: r(6), Further: []string{w(5)}, LastHolds: true, Blockers: 2, Replaced: true, NoHandoff: true}},
		{"R73: a writer behind a writer that reads: the numbers do not order them", w(7), []string{w(5), r(5), w(7)}, Position{Kind: Behind, Predecessor: w(5), Blockers: 2, NoHandoff: true, Replaced: true}},
		{"R73: a writer behind one that did", w(7), []string{r(5), w(7)}, Position{Kind: Behind, Predecessor: r(5), Blockers: 1, Holds: true, NoHandoff: true}},
		{"R73: a mutex behind a writer that reads", m(7), []string{r(5), w(5), m(7)}, Position{Kind: Behind, Predecessor: r(5), Blockers: 2, NoHandoff: true}},
		{"a writer in front", w(5), []string{w(5), r(6), m(7)}, front},

		{"F34: past the end, among readers", r(counterEnd), []string{r(5), r(counterEnd)}, Position{Kind: Exhausted, Predecessor: r(5)}},
		{"F35: a reader that has somebody's number", r(5), []string{r(5), m(5)}, Position{Kind: Twin}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := MutexName
			for _, n := range []string{ReadName, WriteName} {
				if is(tt.self, n) {
					name = n
				}
			}
			require.Equal(t, tt.want, PositionOf(Rule{name, append(slices.Clone(Markers), "__rlock__")}, tt.self, tt.list))
		})
	}
}

// I1: which holders may hand off, and to which waiters.
func TestRule_PassesTurn(t *testing.T) {
	reader, writer := Rule{ReadName, Markers}, Rule{WriteName, Markers}
	for _, tt := range []struct {
		name       string
		r          Rule
		downgraded bool
		want       bool
	}{
		{"a mutex", mutexRule, false, true},
		{"a writer", writer, false, true},
		{"a writer that may have read: its reader's node may stand", writer, true, false},
		{"a reader: it was not alone", reader, false, false},
	} {
		require.Equal(t, tt.want, tt.r.HandsOff(tt.downgraded), tt.name)
	}
}

// I1: of two nodes that do not wait for each other, the one whose number is not smaller finds the
// other, wherever the numbers are.
func TestForeignOf(t *testing.T) {
	latch := func(seq int64) string { return fmt.Sprintf("_c_00000009-0000-4000-8000-000000000000-latch-%010d", seq) }
	for _, tt := range []struct {
		name, self string
		others     []string
		want       string
	}{
		{"nobody", ours(1, 7), []string{ours(2, 3), "config", "latch-x"}, ""},
		{"ahead", ours(1, 7), []string{latch(6)}, latch(6)},
		{"ahead, behind others", ours(1, 7), []string{ours(2, 1), ours(3, 6), latch(2)}, latch(2)},
		{"behind", ours(1, 7), []string{latch(8)}, ""},
		{"with the same number", ours(1, 7), []string{latch(7)}, latch(7)},
		{"past the counter's end", ours(1, 7), []string{latch(-1 << 31)}, ""},
		{"anywhere", "", []string{ours(2, 1), latch(8)}, latch(8)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, ForeignOf(mutexRule, tt.self, append(tt.others, ours(1, 7)), []string{LatchName}))
		})
	}
}

// R73: the reader's node has the writer's number, and a name of its own.
func TestDowngradedPath(t *testing.T) {
	const id, other = "0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72", "1e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72"
	require.Equal(t, "/a/b/_c_"+other+"-__READ__0000000042", DowngradedPath("/a/b/_c_"+id+"-__WRIT__0000000042", other))
}

// I1: whatever is in the queue, and in whatever order it is listed, at most one node is first, and
// it is the one with the smallest number. Every other node follows one with a smaller number, so
// there is no circle of waiters (I8).
func TestPositionOf_RandomQueues_OneIsFirst(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		numbers, count := map[string]int{}, map[int]int{}
		for i := range 1 + rnd.IntN(12) {
			seq := counterEnd - 12 + rnd.IntN(13) // F34: some are past the end; F35: some have one number
			numbers[ours(i, seq)] = seq
			count[seq]++
		}
		children := append(slices.Collect(maps.Keys(numbers)), "config", "lock-abc", "lock-9999999999")
		rnd.Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
		for name, seq := range numbers {
			lower, nearest := 0, -1
			for _, n := range numbers {
				if n < seq {
					lower, nearest = lower+1, max(nearest, n)
				}
			}
			p := PositionOf(mutexRule, name, children)
			switch {
			case seq >= counterEnd:
				require.Equal(t, Exhausted, p.Kind, "%s in %v", name, children)
			case count[seq] > 1:
				require.Equal(t, Position{Kind: Twin}, p, "%s in %v", name, children)
			case lower == 0:
				require.Equal(t, Position{Kind: Front}, p, "%s in %v", name, children)
			default:
				require.Equal(t, Behind, p.Kind, "%s in %v", name, children)
				require.Equal(t, lower, p.Blockers, "%s in %v", name, children)
				require.Equal(t, nearest, numbers[p.Predecessor], "%s in %v", name, children)
				require.Equal(t, count[nearest] > 1, p.NoHandoff, "%s in %v", name, children)
				if p.NoHandoff || lower == 1 {
					require.Empty(t, p.Further)
				} else {
					require.Len(t, p.Further, 1)
					require.Less(t, numbers[p.Further[0]], nearest)
				}
			}
		}
	}
}

// I1, I3: the rule by which the last event grants. Each row changes one fact of a waiter whose
// evidence is otherwise complete. TestExplore_WithoutAClause shows what happens without a clause.
func TestIsFirstNow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(k *evidence)
		want   bool
	}{
		{"all is well", func(*evidence) {}, true},

		{"others were ahead, and may be still", func(k *evidence) { k.left = 1 }, false},
		{"R73: a reader may have taken the place of one", func(k *evidence) { k.replaced = true }, false},

		{"one of them was our session's", func(k *evidence) { k.ours = true }, false},

		{"there is no connection now", func(k *evidence) { k.conn = 0 }, false},
		{"nor ever was a sure one", func(k *evidence) { k.conn, k.listConn, k.ownConn, k.blockerConn = 0, 0, 0, 0 }, false},
		{"the list is of an earlier connection", func(k *evidence) { k.listConn-- }, false},
		{"the watch on our own node is restored", func(k *evidence) { k.ownConn-- }, false},
		{"the watch on one ahead is restored", func(k *evidence) { k.blockerConn-- }, false},
		{"both are", func(k *evidence) { k.ownConn--; k.blockerConn-- }, false},
		{"all is of an earlier connection", func(k *evidence) { k.conn++ }, false},

		{"an event of our own node has come", func(k *evidence) { k.ownFired = true }, false},
	} {
		k := evidence{conn: 3, listConn: 3, ownConn: 3, blockerConn: 3}
		tt.change(&k)
		require.Equal(t, tt.want, isFirstNow(k), tt.name)
	}
}

// I1, I3: the rule by which a release grants.
func TestHandoffAfter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		done   bool
		failed int
		noNode bool
		want   Handoff
	}{
		{"both were there, and ours is deleted", true, -1, false, HandoffIsOurs},
		{"the next one's node was not there", false, 0, true, NodeDeleted},
		{"we may not look at it", false, 0, false, HandoffUnknown},
		{"our own node was not there", false, 1, true, NoHandoff},
		{"we may not delete it", false, 1, false, NoHandoff},
		{"one of them was not there", false, -1, true, HandoffUnknown},
		{"there was no answer", false, -1, false, NoHandoff},
	} {
		require.Equal(t, tt.want, HandoffAfter(tt.done, tt.failed, tt.noNode), tt.name)
	}
}

// BenchmarkPlaceOf measures the cost of a list to a waiter in the middle of the queue, from the
// received bytes.
func BenchmarkPlaceOf(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("waiters=%d", n), func(b *testing.B) {
			var list wire.ChildrenStatResponse
			for i := range n {
				list.Children = append(list.Children, fmt.Sprintf("_c_%08x-0000-4000-8000-000000000000-lock-%010d", n-i, i))
			}
			self := list.Children[n/2]
			body := wire.Frame(list)[4:]
			b.ReportAllocs()
			for b.Loop() {
				var got wire.ChildrenStatResponse
				got.Decode(wire.NewDecoder(body))
				if p := PositionOf(mutexRule, self, got.Children); p.Blockers != n/2 {
					b.Fatal(p)
				}
			}
		})
	}
}

// The position of a node for observers: a granted node stays first, whatever nodes were created
// since.
func TestSeenAt(t *testing.T) {
	mutex, reader := Rule{Name: MutexName, Markers: Markers}, Rule{Name: ReadName, Markers: Markers}
	latch := Rule{Name: LatchName, Markers: []string{LatchName}}
	for _, tt := range []struct {
		name     string
		rule     Rule
		self     string
		children string
		want     Kind
	}{
		{"alone", mutex, "a-lock-0000000005", "a-lock-0000000005", Front},
		{"with others behind", mutex, "a-lock-0000000005", "b-lock-0000000007 a-lock-0000000005 c__READ__0000000006", Front},
		{"behind another", mutex, "a-lock-0000000005", "b-lock-0000000004 a-lock-0000000005", Behind},
		{"behind a reader", mutex, "a-lock-0000000005", "b__READ__0000000004 a-lock-0000000005", Behind},
		{"gone", mutex, "a-lock-0000000005", "b-lock-0000000004 b-lock-0000000006", Missing},
		{"of an empty root", mutex, "a-lock-0000000005", "", Missing},
		{"beside readers", reader, "a__READ__0000000005", "b__READ__0000000004 a__READ__0000000005", Front},
		{"behind a writer", reader, "a__READ__0000000005", "b__WRIT__0000000004 a__READ__0000000005", Behind},
		{"a writer's reader", reader, "a__READ__0000000005", "b__WRIT__0000000005 a__READ__0000000005", Front},
		{"a writer that reads", mutex, "b__WRIT__0000000005", "b__WRIT__0000000005 a__READ__0000000005", Front},
		{"of a latch, beside other kinds", latch, "a-latch-0000000005", "b-lock-0000000004 a-latch-0000000005", Front},
		{"behind a latch", latch, "a-latch-0000000005", "b-latch-0000000004 a-latch-0000000005", Behind},
		{"with one past the counter's end", mutex, "a-lock-0000000005", "b-lock--2147483648 a-lock-0000000005", Front},
	} {
		require.Equal(t, tt.want, SeenAt(tt.rule, tt.self, strings.Fields(tt.children)), tt.name)
	}
}

// What does without a node sees what a node would see that is made now.
func TestPositionOfNext(t *testing.T) {
	last, ok := Parse("_c_"+strings.Repeat("0", idLength)+"-lock-"+lastNumber, Markers)
	require.True(t, ok)
	require.EqualValues(t, counterEnd-1, last.Seq)
	r := func(n int) string { return fmt.Sprintf("_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__READ__%010d", n) }
	w := func(n int) string { return fmt.Sprintf("_c_0e4ef0ac-8eb9-4d62-8b7f-cb2a3ab6ad72-__WRIT__%010d", n) }
	for _, tt := range []struct {
		name     string
		children []string
	}{
		{MutexName, nil},
		{MutexName, []string{"config"}},
		{MutexName, []string{ours(1, 5)}},
		{MutexName, []string{ours(1, 5), ours(2, 7), ours(3, 6)}},
		{MutexName, []string{ours(1, -5)}},
		{ReadName, []string{r(5), r(6)}},
		{ReadName, []string{r(5), w(6), r(7)}},
		{WriteName, []string{r(5), r(6)}},
	} {
		rule := Rule{Name: tt.name, Markers: Markers}
		self := "_c_" + strings.Repeat("1", idLength) + "-" + tt.name + "0000000099"
		require.Equal(t, PositionOf(rule, self, append(slices.Clone(tt.children), self)), PositionOfNext(rule, tt.children), "%v", tt.children)
	}
}
