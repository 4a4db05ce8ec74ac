package queue

// This test attacks walk.go: where a node stands and what was found in, what is next out.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I1, I3, R55, R58: every stage, and everything that can be found there. What the walk rests on is forgotten when it goes back.
func TestWalk(t *testing.T) {
	const us, them = 7, 8
	begun := Walk{session: us}
	behindOne := Place{Kind: Behind, Predecessor: "n", Ahead: 1}
	listed := begun.Listed(behindOne, 3)
	alone := listed.StoodBehind(false)
	watchesOwn := alone.Watched(IsThere, us, 3)
	waits := watchesOwn.Watched(IsThere, them, 3)
	require.Equal(t, Walk{Next: ToAwait, session: us, Ahead: 1, owner: them, listConn: 3, ownConn: 3, aheadConn: 3}, waits)
	early := Walk{session: us, Early: true}
	twoAhead := begun.Listed(Place{Kind: Behind, Predecessor: "n", Second: "m", Ahead: 2}, 3).StoodBehind(false).Watched(IsThere, us, 3)

	at := func(next Stage) Walk { return Walk{Next: next, session: us} }
	for _, tt := range []struct {
		what      string
		got, want Walk
	}{
		{"nobody is ahead", begun.Listed(Place{Kind: Front}, 3), at(ToGrant)},
		{"somebody is", listed, Walk{Next: ToStandBehind, session: us, Ahead: 1, listConn: 3}},
		{"two are, with one number", begun.Listed(Place{Kind: Behind, Ahead: 2, Tied: true}, 3), Walk{Next: ToStandBehind, session: us, Ahead: 2, Tied: true, listConn: 3}},
		{"there a turn proves nothing", begun.Listed(Place{Kind: Behind, Ahead: 2, Tied: true}, 3).StoodBehind(true), Walk{Next: ToWatchOwn, session: us, Ahead: 2, Tied: true, listConn: 3}},
		{"the predecessor is not ours", alone, Walk{Next: ToWatchOwn, session: us, Ahead: 1, listConn: 3}},
		{"the predecessor is ours", listed.StoodBehind(true), Walk{Next: ToAwaitTurn, session: us, Ahead: 1, listConn: 3}},
		{"it passes the turn", listed.StoodBehind(true).Turned(TurnIsYours), at(ToGrant)},
		{"it goes, and has none to pass", listed.StoodBehind(true).Turned(TurnUnknown), at(ToList)},
		{"it finds our node gone", listed.StoodBehind(true).Turned(NodeIsGone), at(ToQueueAgain)},
		{"our node is not in the list", begun.Listed(Place{Kind: Missing}, 3), at(ToQueueAgain)},
		{"nor in one that was sent before it was made", early.Listed(Place{Kind: Missing}, 3), at(ToList)},
		{"another has our number", begun.Listed(Place{Kind: Twin}, 3), at(ToQueueAgain)},
		{"the counter is at its end", begun.Listed(Place{Kind: Exhausted}, 3), at(ToEnd)},
		{"another may take the predecessor's place", begun.Listed(Place{Kind: Behind, Ahead: 1, Replaced: true}, 3), Walk{Next: ToStandBehind, session: us, Ahead: 1, replaced: true, listConn: 3}},
		{"the lock root is gone", begun.NotListed(IsGone), at(ToQueueAgain)},
		{"there was none before our node was made", early.NotListed(IsGone), at(ToList)},
		{"there was no list", early.NotListed(NotTold), at(ToList)},

		{"two are ahead, and it is known who", twoAhead.Watched(IsThere, us, 3), Walk{Next: ToWatchSecond, session: us, Ahead: 2, Second: true, owner: us, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"the one ahead of the predecessor is watched", twoAhead.Watched(IsThere, us, 3).Watched(IsThere, them, 3), Walk{Next: ToAwait, session: us, Ahead: 2, Second: true, owner: us, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"or cannot be", twoAhead.Watched(IsThere, us, 3).Watched(NotTold, 0, 0), Walk{Next: ToAwait, session: us, Ahead: 2, Second: true, owner: us, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"or is gone", twoAhead.Watched(IsThere, us, 3).Watched(IsGone, 0, 0), at(ToList)},
		{"the one ahead of the predecessor goes", waits.SecondEvent(), at(ToList)},
		{"our node is there", watchesOwn, Walk{Next: ToWatchAhead, session: us, Ahead: 1, listConn: 3, ownConn: 3}},
		{"our node is gone", alone.Watched(IsGone, 0, 0), at(ToQueueAgain)},
		{"it is not known whether", alone.Watched(NotTold, 0, 0), at(ToList)},
		{"the predecessor is gone: the rule is asked, as after its event", watchesOwn.Watched(IsGone, 0, 4), Walk{Next: ToAwait, session: us, Ahead: 1, listConn: 3, ownConn: 3, aheadConn: 4}},
		{"also where others are ahead of it", twoAhead.Watched(IsGone, 0, 3), Walk{Next: ToAwait, session: us, Ahead: 2, Second: true, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"it is not known whether the predecessor is", watchesOwn.Watched(NotTold, 0, 0), at(ToList)},

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
		ahead: 1, deleted: true, session: us, owner: them, conn: 4, listConn: 3, ownConn: 3, aheadConn: 3, ownFired: true,
	}, waits.evidence(true, 4, true), "all of it reaches the rule")
}
