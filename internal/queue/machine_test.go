package queue

// This test attacks machine.go: the inputs are a node's position and the result of a request, the
// output is the next step.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I1, I3, R55, R58: every stage, and every possible result there. The walk drops its facts when it
// returns to an earlier stage.
func TestMachine(t *testing.T) {
	const us, them = 7, 8
	begun := Machine{session: us}
	behindOne := Position{Kind: Behind, Predecessor: "n", Blockers: 1}
	listed := begun.Listed(behindOne, 3)
	alone := listed.WaitsBehind(false)
	watchesOwn := alone.Watched(Exists, us, 3)
	waits := watchesOwn.Watched(Exists, them, 3)
	early := Machine{session: us, Early: true}
	tied := Position{Kind: Behind, Predecessor: "n", Blockers: 2, NoHandoff: true}

	// With two ahead: both are watched; with three, two of them are.
	two := begun.Listed(Position{Kind: Behind, Predecessor: "n", Further: []string{"m"}, Blockers: 2}, 3).WaitsBehind(false).Watched(Exists, us, 3)
	three := begun.Listed(Position{Kind: Behind, Predecessor: "n", Further: []string{"m"}, Blockers: 3}, 3).WaitsBehind(false).Watched(Exists, us, 3)
	ofTwo := func(w Machine) Machine { // a walk that has found two blockers, and has watched both
		w.session, w.Blockers, w.watched, w.listConn, w.ownConn = us, 2, 2, 3, 3
		return w
	}
	both := two.Watched(Exists, them, 3).Watched(Exists, them, 3)
	hears := two.Watched(Exists, them, 3).WillBeNotified()
	some := three.Watched(Exists, them, 3).Watched(Exists, them, 3)
	without := two.Watched(Exists, them, 3).Watched(Unknown, 0, 0)
	replaced := both
	replaced.replaced = true

	at := func(next Stage) Machine { return Machine{Next: next, session: us} }
	for _, tt := range []struct {
		what      string
		got, want Machine
	}{
		{"nobody is ahead", begun.Listed(Position{Kind: Front}, 3), at(ToGrant)},
		{"somebody is", listed, Machine{Next: ToWaitBehind, session: us, Blockers: 1, watched: 1, listConn: 3, blockerConn: 3}},
		{"two are, with one number", begun.Listed(tied, 3), Machine{Next: ToWaitBehind, session: us, Blockers: 2, NoHandoff: true, watched: 1, listConn: 3, blockerConn: 3}},
		{"there a turn proves nothing", begun.Listed(tied, 3).WaitsBehind(true), Machine{Next: ToWatchOwn, session: us, Blockers: 2, NoHandoff: true, watched: 1, listConn: 3, blockerConn: 3}},
		{"the predecessor is not ours", alone, Machine{Next: ToWatchOwn, session: us, Blockers: 1, watched: 1, listConn: 3, blockerConn: 3}},
		{"the predecessor is ours", listed.WaitsBehind(true), Machine{Next: ToAwaitHandoff, session: us, Blockers: 1, watched: 1, listConn: 3, blockerConn: 3}},
		{"it passes the turn", listed.WaitsBehind(true).HandedOff(HandoffIsOurs), at(ToGrant)},
		{"it goes, and has none to pass", listed.WaitsBehind(true).HandedOff(HandoffUnknown), at(ToList)},
		{"nor does it prove anything to one that does not watch its own node", listed.WaitsBehind(true).HandedOff(BlockerDeleted), at(ToList)},
		{"it finds our node gone", listed.WaitsBehind(true).HandedOff(NodeDeleted), at(ToQueueAgain)},
		{"our node is not in the list", begun.Listed(Position{Kind: Missing}, 3), at(ToQueueAgain)},
		{"nor in one that was sent before it was made", early.Listed(Position{Kind: Missing}, 3), at(ToList)},
		{"another has our number", begun.Listed(Position{Kind: Twin}, 3), at(ToQueueAgain)},
		{"the counter is at its end", begun.Listed(Position{Kind: Exhausted}, 3), at(ToEnd)},
		{"another may take the predecessor's place", begun.Listed(Position{Kind: Behind, Blockers: 1, Replaced: true}, 3), Machine{Next: ToWaitBehind, session: us, Blockers: 1, watched: 1, replaced: true, listConn: 3, blockerConn: 3}},
		{"the lock root is gone", begun.NotListed(Absent), at(ToQueueAgain)},
		{"there was none before our node was made", early.NotListed(Absent), at(ToList)},
		{"there was no list", early.NotListed(Unknown), at(ToList)},

		{"our node is there", watchesOwn, Machine{Next: ToWatchBlocker, session: us, Blockers: 1, watched: 1, listConn: 3, ownConn: 3, blockerConn: 3}},
		{"our node is gone", alone.Watched(Absent, 0, 0), at(ToQueueAgain)},
		{"it is not known whether", alone.Watched(Unknown, 0, 0), at(ToList)},
		{"the predecessor is watched", waits, Machine{Next: ToAwait, session: us, Blockers: 1, At: 1, watched: 1, listConn: 3, ownConn: 3, blockerConn: 3}},
		{"and is of our own session", watchesOwn.Watched(Exists, us, 3), Machine{Next: ToAwait, session: us, Blockers: 1, At: 1, watched: 1, ours: true, listConn: 3, ownConn: 3, blockerConn: 3}},
		{"or is gone: the rule is asked, as after its event", watchesOwn.Watched(Absent, us, 4), Machine{Next: ToAwait, session: us, Blockers: 1, At: 1, watched: 1, listConn: 3, ownConn: 3}},
		{"it is not known whether the predecessor is", watchesOwn.Watched(Unknown, 0, 0), at(ToList)},

		{"two are ahead", two.Watched(Exists, them, 3), ofTwo(Machine{Next: ToWatchBlocker, At: 1, blockerConn: 3})},
		{"both are watched", both, ofTwo(Machine{Next: ToAwait, At: 2, blockerConn: 3})},
		{"on two connections", two.Watched(Exists, them, 4).Watched(Exists, them, 3), ofTwo(Machine{Next: ToAwait, At: 2})},
		{"the farther one on another", two.Watched(Exists, them, 3).Watched(Exists, them, 4), ofTwo(Machine{Next: ToAwait, At: 2})},
		{"the farther one is watched, and of our own session", two.Watched(Exists, them, 3).Watched(Exists, us, 3), ofTwo(Machine{Next: ToAwait, At: 2, ours: true, blockerConn: 3})},
		{"the farther one is gone", two.Watched(Exists, them, 3).Watched(Absent, 0, 3), both},
		{"or is of our own session, and will tell us", hears, both},
		{"or cannot be watched", without, Machine{Next: ToAwait, session: us, Blockers: 2, At: 1, watched: 1, listConn: 3, ownConn: 3, blockerConn: 3}},
		{"the farther one goes", both.BlockerEvent(1, true, 3, false), ofTwo(Machine{Next: ToAwait, At: 2, deleted: 2, blockerConn: 3})},
		{"then the predecessor", both.BlockerEvent(1, true, 3, false).BlockerEvent(0, true, 3, false), at(ToGrant)},
		{"the other way round", both.BlockerEvent(0, true, 3, false).BlockerEvent(1, true, 3, false), at(ToGrant)},
		{"one of them is written to", both.BlockerEvent(0, true, 3, false).BlockerEvent(1, false, 3, false), at(ToList)},
		{"another may take its place", replaced.BlockerEvent(1, true, 3, false), at(ToList)},
		{"of three ahead, two are watched, and one goes", some.BlockerEvent(1, true, 3, false), at(ToList)},
		{"or the other", some.BlockerEvent(0, true, 3, false), at(ToList)},
		{"of two, one is, and goes", without.BlockerEvent(0, true, 3, false), at(ToList)},

		{"the connection stands", waits.Reconnected(3), waits},
		{"it is gone", waits.Reconnected(0), waits},
		{"there is another", waits.Reconnected(4), at(ToList)},
		{"our node is deleted", waits.OwnEvent(true), at(ToQueueAgain)},
		{"our node is written to", waits.OwnEvent(false), at(ToList)},

		{"the rule grants", waits.ruled(true, 1), at(ToGrant)},
		{"the rule says list", waits.ruled(false, 1), at(ToList)},
	} {
		t.Run(tt.what, func(t *testing.T) { require.Equal(t, tt.want, tt.got) })
	}

	require.Equal(t, evidence{
		left: 2, replaced: true, ours: true, conn: 4, listConn: 3, ownConn: 3, blockerConn: 3, ownFired: true,
	}, func() Machine { w := replaced; w.ours = true; return w }().evidence(4, true), "all of it reaches the rule")
}

// I8: which blocker is waited for. Another one's event matters if it makes a list worthwhile.
func TestMachine_Awaited(t *testing.T) {
	for _, tt := range []struct {
		what       string
		w          Machine
		next, also int
	}{
		{"the only one", Machine{Blockers: 1, watched: 1}, 0, -1},
		{"all of several", Machine{Blockers: 3, watched: 3}, 0, 2},
		{"the first that is there", Machine{Blockers: 3, watched: 3, deleted: 1}, 1, 2},
		{"the farthest that is there", Machine{Blockers: 4, watched: 4, deleted: 8}, 0, 2},
		{"one between", Machine{Blockers: 3, watched: 3, deleted: 5}, 1, -1},
		{"the last", Machine{Blockers: 8, watched: 8, deleted: 127}, 7, -1},
		{"the nearest two of many", Machine{Blockers: 9, watched: 2}, 0, 1},
		{"two of whom one may be replaced", Machine{Blockers: 2, watched: 2, replaced: true}, 0, 1},
		{"the nearest of many", Machine{Blockers: 9, watched: 1}, 0, -1},
	} {
		next, also := tt.w.Awaited()
		require.Equal(t, []int{tt.next, tt.also}, []int{next, also}, tt.what)
	}
}
