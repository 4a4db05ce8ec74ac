package queue

// This test attacks walk.go: the inputs are a node's position and the result of a request, the
// output is the next step.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I1, I3, R55, R58: every stage, and every possible result there. The walk drops its facts when it
// returns to an earlier stage.
func TestWalk(t *testing.T) {
	const us, them = 7, 8
	begun := Walk{session: us}
	behindOne := Place{Kind: Behind, Predecessor: "n", Ahead: 1}
	listed := begun.Listed(behindOne, 3)
	alone := listed.StoodBehind(false)
	watchesOwn := alone.Watched(IsThere, us, 3)
	waits := watchesOwn.Watched(IsThere, them, 3)
	early := Walk{session: us, Early: true}
	tied := Place{Kind: Behind, Predecessor: "n", Ahead: 2, NoTurn: true}

	// With two ahead: both are watched; with three, two of them are.
	two := begun.Listed(Place{Kind: Behind, Predecessor: "n", Further: []string{"m"}, Ahead: 2}, 3).StoodBehind(false).Watched(IsThere, us, 3)
	three := begun.Listed(Place{Kind: Behind, Predecessor: "n", Further: []string{"m"}, Ahead: 3}, 3).StoodBehind(false).Watched(IsThere, us, 3)
	ofTwo := func(w Walk) Walk { // a walk that has found two blockers, and has watched both
		w.session, w.Ahead, w.watched, w.listConn, w.ownConn = us, 2, 2, 3, 3
		return w
	}
	both := two.Watched(IsThere, them, 3).Watched(IsThere, them, 3)
	hears := two.Watched(IsThere, them, 3).WillBeTold()
	some := three.Watched(IsThere, them, 3).Watched(IsThere, them, 3)
	without := two.Watched(IsThere, them, 3).Watched(NotTold, 0, 0)
	replaced := both
	replaced.replaced = true

	at := func(next Stage) Walk { return Walk{Next: next, session: us} }
	for _, tt := range []struct {
		what      string
		got, want Walk
	}{
		{"nobody is ahead", begun.Listed(Place{Kind: Front}, 3), at(ToGrant)},
		{"somebody is", listed, Walk{Next: ToStandBehind, session: us, Ahead: 1, watched: 1, listConn: 3, aheadConn: 3}},
		{"two are, with one number", begun.Listed(tied, 3), Walk{Next: ToStandBehind, session: us, Ahead: 2, NoTurn: true, watched: 1, listConn: 3, aheadConn: 3}},
		{"there a turn proves nothing", begun.Listed(tied, 3).StoodBehind(true), Walk{Next: ToWatchOwn, session: us, Ahead: 2, NoTurn: true, watched: 1, listConn: 3, aheadConn: 3}},
		{"the predecessor is not ours", alone, Walk{Next: ToWatchOwn, session: us, Ahead: 1, watched: 1, listConn: 3, aheadConn: 3}},
		{"the predecessor is ours", listed.StoodBehind(true), Walk{Next: ToAwaitTurn, session: us, Ahead: 1, watched: 1, listConn: 3, aheadConn: 3}},
		{"it passes the turn", listed.StoodBehind(true).Turned(TurnIsYours), at(ToGrant)},
		{"it goes, and has none to pass", listed.StoodBehind(true).Turned(TurnUnknown), at(ToList)},
		{"nor does it prove anything to one that does not watch its own node", listed.StoodBehind(true).Turned(AheadIsGone), at(ToList)},
		{"it finds our node gone", listed.StoodBehind(true).Turned(NodeIsGone), at(ToQueueAgain)},
		{"our node is not in the list", begun.Listed(Place{Kind: Missing}, 3), at(ToQueueAgain)},
		{"nor in one that was sent before it was made", early.Listed(Place{Kind: Missing}, 3), at(ToList)},
		{"another has our number", begun.Listed(Place{Kind: Twin}, 3), at(ToQueueAgain)},
		{"the counter is at its end", begun.Listed(Place{Kind: Exhausted}, 3), at(ToEnd)},
		{"another may take the predecessor's place", begun.Listed(Place{Kind: Behind, Ahead: 1, Replaced: true}, 3), Walk{Next: ToStandBehind, session: us, Ahead: 1, watched: 1, replaced: true, listConn: 3, aheadConn: 3}},
		{"the lock root is gone", begun.NotListed(IsGone), at(ToQueueAgain)},
		{"there was none before our node was made", early.NotListed(IsGone), at(ToList)},
		{"there was no list", early.NotListed(NotTold), at(ToList)},

		{"our node is there", watchesOwn, Walk{Next: ToWatchAhead, session: us, Ahead: 1, watched: 1, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"our node is gone", alone.Watched(IsGone, 0, 0), at(ToQueueAgain)},
		{"it is not known whether", alone.Watched(NotTold, 0, 0), at(ToList)},
		{"the predecessor is watched", waits, Walk{Next: ToAwait, session: us, Ahead: 1, At: 1, watched: 1, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"and is of our own session", watchesOwn.Watched(IsThere, us, 3), Walk{Next: ToAwait, session: us, Ahead: 1, At: 1, watched: 1, ours: true, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"or is gone: the rule is asked, as after its event", watchesOwn.Watched(IsGone, us, 4), Walk{Next: ToAwait, session: us, Ahead: 1, At: 1, watched: 1, listConn: 3, ownConn: 3}},
		{"it is not known whether the predecessor is", watchesOwn.Watched(NotTold, 0, 0), at(ToList)},

		{"two are ahead", two.Watched(IsThere, them, 3), ofTwo(Walk{Next: ToWatchAhead, At: 1, aheadConn: 3})},
		{"both are watched", both, ofTwo(Walk{Next: ToAwait, At: 2, aheadConn: 3})},
		{"on two connections", two.Watched(IsThere, them, 4).Watched(IsThere, them, 3), ofTwo(Walk{Next: ToAwait, At: 2})},
		{"the farther one on another", two.Watched(IsThere, them, 3).Watched(IsThere, them, 4), ofTwo(Walk{Next: ToAwait, At: 2})},
		{"the farther one is watched, and of our own session", two.Watched(IsThere, them, 3).Watched(IsThere, us, 3), ofTwo(Walk{Next: ToAwait, At: 2, ours: true, aheadConn: 3})},
		{"the farther one is gone", two.Watched(IsThere, them, 3).Watched(IsGone, 0, 3), both},
		{"or is of our own session, and will tell us", hears, both},
		{"or cannot be watched", without, Walk{Next: ToAwait, session: us, Ahead: 2, At: 1, watched: 1, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"the farther one goes", both.AheadEvent(1, true, 3, false), ofTwo(Walk{Next: ToAwait, At: 2, gone: 2, aheadConn: 3})},
		{"then the predecessor", both.AheadEvent(1, true, 3, false).AheadEvent(0, true, 3, false), at(ToGrant)},
		{"the other way round", both.AheadEvent(0, true, 3, false).AheadEvent(1, true, 3, false), at(ToGrant)},
		{"one of them is written to", both.AheadEvent(0, true, 3, false).AheadEvent(1, false, 3, false), at(ToList)},
		{"another may take its place", replaced.AheadEvent(1, true, 3, false), at(ToList)},
		{"of three ahead, two are watched, and one goes", some.AheadEvent(1, true, 3, false), at(ToList)},
		{"or the other", some.AheadEvent(0, true, 3, false), at(ToList)},
		{"of two, one is, and goes", without.AheadEvent(0, true, 3, false), at(ToList)},

		{"the connection stands", waits.Moved(3), waits},
		{"it is gone", waits.Moved(0), waits},
		{"there is another", waits.Moved(4), at(ToList)},
		{"our node is deleted", waits.OwnEvent(true), at(ToQueueAgain)},
		{"our node is written to", waits.OwnEvent(false), at(ToList)},

		{"the rule grants", waits.ruled(true, 1), at(ToGrant)},
		{"the rule says list", waits.ruled(false, 1), at(ToList)},
	} {
		t.Run(tt.what, func(t *testing.T) { require.Equal(t, tt.want, tt.got) })
	}

	require.Equal(t, evidence{
		left: 2, replaced: true, ours: true, conn: 4, listConn: 3, ownConn: 3, aheadConn: 3, ownFired: true,
	}, func() Walk { w := replaced; w.ours = true; return w }().evidence(4, true), "all of it reaches the rule")
}

// I8: which blocker is waited for. Another one's event matters if it makes a list worthwhile.
func TestWalk_Awaited(t *testing.T) {
	for _, tt := range []struct {
		what       string
		w          Walk
		next, also int
	}{
		{"the only one", Walk{Ahead: 1, watched: 1}, 0, -1},
		{"all of several", Walk{Ahead: 3, watched: 3}, 0, 2},
		{"the first that is there", Walk{Ahead: 3, watched: 3, gone: 1}, 1, 2},
		{"the farthest that is there", Walk{Ahead: 4, watched: 4, gone: 8}, 0, 2},
		{"one between", Walk{Ahead: 3, watched: 3, gone: 5}, 1, -1},
		{"the last", Walk{Ahead: 8, watched: 8, gone: 127}, 7, -1},
		{"the nearest two of many", Walk{Ahead: 9, watched: 2}, 0, 1},
		{"two of whom one may be replaced", Walk{Ahead: 2, watched: 2, replaced: true}, 0, 1},
		{"the nearest of many", Walk{Ahead: 9, watched: 1}, 0, -1},
	} {
		next, also := tt.w.Awaited()
		require.Equal(t, []int{tt.next, tt.also}, []int{next, also}, tt.what)
	}
}
