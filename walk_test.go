package zklock

// This test attacks walk.go: where a node stands and what was found in, what is next out.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I1, I3, R55, R58: every stage, and everything that can be found there. What the walk rests on is forgotten when it goes back.
func TestWalk(t *testing.T) {
	const us, them = 7, 8
	begun := walk{session: us}
	behindOne := place{kind: behind, predecessor: "n", ahead: 1}
	listed := begun.listed(behindOne, 3)
	alone := listed.stoodBehind(false)
	watchesOwn := alone.watched(isThere, us, 3)
	waits := watchesOwn.watched(isThere, them, 3)
	require.Equal(t, walk{next: toAwait, session: us, ahead: 1, owner: them, listConn: 3, ownConn: 3, aheadConn: 3}, waits)
	early := walk{session: us, early: true}
	twoAhead := begun.listed(place{kind: behind, predecessor: "n", second: "m", ahead: 2}, 3).stoodBehind(false).watched(isThere, us, 3)

	at := func(next stage) walk { return walk{next: next, session: us} }
	for _, tt := range []struct {
		what      string
		got, want walk
	}{
		{"nobody is ahead", begun.listed(place{kind: front}, 3), at(toGrant)},
		{"somebody is", listed, walk{next: toStandBehind, session: us, ahead: 1, listConn: 3}},
		{"two are, with one number", begun.listed(place{kind: behind, ahead: 2, tied: true}, 3), walk{next: toStandBehind, session: us, ahead: 2, tied: true, listConn: 3}},
		{"there a turn proves nothing", begun.listed(place{kind: behind, ahead: 2, tied: true}, 3).stoodBehind(true), walk{next: toWatchOwn, session: us, ahead: 2, tied: true, listConn: 3}},
		{"the predecessor is not ours", alone, walk{next: toWatchOwn, session: us, ahead: 1, listConn: 3}},
		{"the predecessor is ours", listed.stoodBehind(true), walk{next: toAwaitTurn, session: us, ahead: 1, listConn: 3}},
		{"it passes the turn", listed.stoodBehind(true).turned(turnIsYours), at(toGrant)},
		{"it goes, and has none to pass", listed.stoodBehind(true).turned(turnUnknown), at(toList)},
		{"it finds our node gone", listed.stoodBehind(true).turned(nodeIsGone), at(toQueueAgain)},
		{"our node is not in the list", begun.listed(place{kind: missing}, 3), at(toQueueAgain)},
		{"nor in one that was sent before it was made", early.listed(place{kind: missing}, 3), at(toList)},
		{"another has our number", begun.listed(place{kind: twin}, 3), at(toQueueAgain)},
		{"the counter is at its end", begun.listed(place{kind: exhausted}, 3), at(toEnd)},
		{"another may take the predecessor's place", begun.listed(place{kind: behind, ahead: 1, replaced: true}, 3), walk{next: toStandBehind, session: us, ahead: 1, replaced: true, listConn: 3}},
		{"the lock root is gone", begun.notListed(isGone), at(toQueueAgain)},
		{"there was none before our node was made", early.notListed(isGone), at(toList)},
		{"there was no list", early.notListed(notTold), at(toList)},

		{"two are ahead, and it is known who", twoAhead.watched(isThere, us, 3), walk{next: toWatchSecond, session: us, ahead: 2, second: true, owner: us, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"the one ahead of the predecessor is watched", twoAhead.watched(isThere, us, 3).watched(isThere, them, 3), walk{next: toAwait, session: us, ahead: 2, second: true, owner: us, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"or cannot be", twoAhead.watched(isThere, us, 3).watched(notTold, 0, 0), walk{next: toAwait, session: us, ahead: 2, second: true, owner: us, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"or is gone", twoAhead.watched(isThere, us, 3).watched(isGone, 0, 0), at(toList)},
		{"the one ahead of the predecessor goes", waits.secondEvent(), at(toList)},
		{"our node is there", watchesOwn, walk{next: toWatchAhead, session: us, ahead: 1, listConn: 3, ownConn: 3}},
		{"our node is gone", alone.watched(isGone, 0, 0), at(toQueueAgain)},
		{"it is not known whether", alone.watched(notTold, 0, 0), at(toList)},
		{"the predecessor is gone: the rule is asked, as after its event", watchesOwn.watched(isGone, 0, 4), walk{next: toAwait, session: us, ahead: 1, listConn: 3, ownConn: 3, aheadConn: 4}},
		{"also where others are ahead of it", twoAhead.watched(isGone, 0, 3), walk{next: toAwait, session: us, ahead: 2, second: true, listConn: 3, ownConn: 3, aheadConn: 3}},
		{"it is not known whether the predecessor is", watchesOwn.watched(notTold, 0, 0), at(toList)},

		{"the connection stands", waits.moved(3), waits},
		{"it is gone", waits.moved(0), waits},
		{"there is another", waits.moved(4), at(toList)},
		{"our node is deleted", waits.ownEvent(true), at(toQueueAgain)},
		{"our node is written to", waits.ownEvent(false), at(toList)},

		{"the rule grants", waits.ruled(true), at(toGrant)},
		{"the rule says list", waits.ruled(false), at(toList)},
	} {
		t.Run(tt.what, func(t *testing.T) { require.Equal(t, tt.want, tt.got) })
	}

	require.Equal(t, evidence{
		ahead: 1, deleted: true, session: us, owner: them, conn: 4, listConn: 3, ownConn: 3, aheadConn: 3, ownFired: true,
	}, waits.evidence(true, 4, true), "all of it reaches the rule")
}
