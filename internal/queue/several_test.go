package queue

// These tests attack several.go: which of several nodes are kept, by a table, and in every
// interleaving of a few clients.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The specification of InFront.
func TestInFront(t *testing.T) {
	front := Position{Kind: Front}
	for _, tt := range []struct {
		places []Position
		want   int
	}{
		{nil, 0},
		{[]Position{front}, 1},
		{[]Position{front, front, front}, 3},
		{[]Position{{Kind: Behind}, front}, 0},
		{[]Position{front, {Kind: Behind}, front}, 1},
		{[]Position{front, front, {Kind: Behind}}, 2},
		{[]Position{front, {Kind: Missing}, front}, 1}, // or its list has not come
		{[]Position{front, {Kind: Twin}, front}, 1},
		{[]Position{front, {Kind: Exhausted}, front}, 1},
	} {
		require.Equal(t, tt.want, InFront(tt.places), "%v", tt.places)
	}
}

// I1, I4, I6 of several locks: each has one holder, no client waits indefinitely, and no node is
// left. Of tries at one time, without another client, one gets all.
func TestExploreSeveral(t *testing.T) {
	for _, x := range []severalExplorer{
		{takers: "oo", queues: 2, acquire: 2, faults: 1},
		{takers: "oc", queues: 2, acquire: 2, faults: 1, giveUps: 1},
		{takers: "ooc", queues: 2, acquire: 1, faults: 1, giveUps: 1},
		{takers: "occ", queues: 2, acquire: 1, faults: 1},
		{takers: "oc", queues: 3, acquire: 1, faults: 2, giveUps: 1},
		{takers: "oo", queues: 3, acquire: 1, faults: 1},
		{takers: "otc", queues: 2, acquire: 1, faults: 1},
		{takers: "tt", queues: 2, acquire: 1},
		{takers: "ttt", queues: 2, acquire: 1},
	} {
		require.Empty(t, x.explore(t), "%s, %d queues", x.takers, x.queues)
	}
}

// The rule is needed: without a part of it the explorer finds the stated consequence.
func TestExploreSeveral_WithoutTheRule(t *testing.T) {
	for _, c := range []struct {
		name string
		x    severalExplorer
		want string
	}{
		{"waits in all, beside one that takes them in order", severalExplorer{takers: "oc", mistakes: severalMistakes{waitsInAll: true}}, "a client waits for ever"},
		{"waits in all, as all do", severalExplorer{takers: "ooo", mistakes: severalMistakes{waitsInAll: true}}, ""},
		{"keeps what is in front", severalExplorer{takers: "oc", mistakes: severalMistakes{keepsFront: true}}, "a client waits for ever"},
		{"keeps what comes after a node that is gone", severalExplorer{takers: "oc", faults: 1, mistakes: severalMistakes{keepsLater: true}}, "a client waits for ever"},
		{"sends again, and does not look", severalExplorer{takers: "o", faults: 1, mistakes: severalMistakes{sendsAgain: true}}, "a client waits for ever"},
		{"tries, with a request for each node", severalExplorer{takers: "tt", mistakes: severalMistakes{pipelined: true}}, "nobody got the locks"},
	} {
		c.x.acquire, c.x.queues = 1, 2
		require.Equal(t, c.want, c.x.explore(t), c.name)
	}
}
