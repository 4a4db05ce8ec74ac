package queue

// These tests attack newroot.go: the rules of a lock root that is created and deleted with a node.

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// I1, I4, I8, F61: no interleaving breaks a promise.
func TestExploreNewRoot(t *testing.T) {
	exploreAllOf(t, []scene[newExplorer]{
		{"one client, a connection is lost", false, newExplorer{acquire: []uint8{2}, others: "-", faults: 1, acts: "l"}},
		{"no fault", false, newExplorer{acquire: []uint8{2, 1}, others: "--"}},
		{"one act of another", false, newExplorer{acquire: []uint8{1, 1}, others: "--", faults: 1, acts: "rRaqd"}},
		{"a session is given up", false, newExplorer{acquire: []uint8{1, 1}, others: "--", faults: 1, acts: "z"}},
		{"with a client that creates the root by itself", false, newExplorer{acquire: []uint8{2, 1}, others: "-o"}},

		{"one client, two connections are lost", true, newExplorer{acquire: []uint8{2}, others: "-", faults: 2, acts: "l"}},
		{"two in turn", true, newExplorer{acquire: []uint8{2, 2}, others: "--"}},
		{"a connection is lost", true, newExplorer{acquire: []uint8{1, 1}, others: "--", faults: 1, acts: "l", leaves: true}},
		{"two connections are lost", true, newExplorer{acquire: []uint8{1, 1}, others: "--", faults: 2, acts: "l", leaves: true}},
		{"two in turn, again and again", true, newExplorer{acquire: []uint8{3, 2}, others: "--"}},
		{"one act of another, again and again", true, newExplorer{acquire: []uint8{2, 1}, others: "--", faults: 1, acts: "rRaqdz"}},
		{"a connection is lost, again and again", true, newExplorer{acquire: []uint8{2, 1}, others: "--", faults: 1, acts: "l", leaves: true}},
		{"more than one act of another", true, newExplorer{acquire: []uint8{1, 1}, others: "--", faults: 2, acts: "rRaqdz"}},
		{"a connection is lost, beside a client that creates the root by itself", true, newExplorer{acquire: []uint8{1, 1}, others: "-o", faults: 1, acts: "l", leaves: true}},
		{"three", true, newExplorer{acquire: []uint8{1, 1, 1}, others: "---"}},
	}, (*newExplorer).explore, func(t *testing.T, x *newExplorer) {
		require.Positive(t, x.firsts, "no client was first in a new root")
		require.Positive(t, x.deleted, "no root was deleted")
	})
}

// I1, I2, I4, I8, F61: each rule is left out, and the explorer finds the consequence, by the fewest
// steps. With -v it prints them.
func TestExploreNewRoot_WithoutARule(t *testing.T) {
	refuteAllOf(t, []mistake[newExplorer]{
		{"only the success of the transaction grants", newExplorer{acquire: []uint8{1, 1}, others: "--", mistakes: newMistakes{aloneGrants: true}}, "I8: granted alone before an earlier node"},
		{"a node that was created alone and is found is listed", newExplorer{acquire: []uint8{1, 1}, others: "--", faults: 1, acts: "l", mistakes: newMistakes{foundGrants: true}}, "I8: granted when found before an earlier node"},
		{"after a lost response, the node is searched for", newExplorer{acquire: []uint8{1}, others: "-", faults: 1, acts: "l", mistakes: newMistakes{createsAgain: true}}, "a client waits, and nothing happens"},
		{"a node in a root with another node is deleted alone", newExplorer{acquire: []uint8{1, 1}, others: "--", mistakes: newMistakes{notEmptyEnds: true}}, "a client waits, and nothing happens"},
		{"an orphan is noted although the root is missing", newExplorer{acquire: []uint8{1}, others: "-", faults: 1, acts: "l", mistakes: newMistakes{forgets: true}}, "a client waits, and nothing happens"},
		{"an orphan is deleted with its root", newExplorer{acquire: []uint8{1}, others: "-", faults: 1, acts: "l", mistakes: newMistakes{orphanAlone: true}}, "the lock root is left"},
		{"only the creator deletes the root", newExplorer{acquire: []uint8{1, 1}, others: "-o", mistakes: newMistakes{anyDeletes: true}}, "the lock root of another client is deleted"},
	}, (*newExplorer).explore)
}

// I1, I4, I8, F61: the next step after a rejection. The table has each rejection that differs.
func TestRejection_Next(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Rejection
		want CreateStep
	}{
		{"the lock root is missing", Rejection{NoNode: true, CanBeNew: true}, CreateWithRoot},
		{"of a semaphore", Rejection{NoNode: true}, CreateRoot},
		{"again and again", Rejection{NoNode: true, CanBeNew: true, Tries: mostTries}, CreateRoot},
		{"although its creates were sent", Rejection{NoNode: true, CanBeNew: true, Roots: true}, CreateRoot},
		{"the lock root exists", Rejection{WithRoot: true, Exists: true, CanBeNew: true, Tries: 1}, CreateAlone},
		{"a parent is missing", Rejection{WithRoot: true, NoNode: true, CanBeNew: true, Tries: 1}, CreateParents},
		{"although the creates of the parents were sent", Rejection{WithRoot: true, NoNode: true, CanBeNew: true, Tries: 2, Roots: true}, CreateRoot},
		{"no CREATE on the parent", Rejection{WithRoot: true, CanBeNew: true, Tries: 1}, CreateRoot},
		{"no CREATE for the node", Rejection{WithRoot: true, OfNode: true, CanBeNew: true, Tries: 1}, CreateDenied},
	} {
		require.Equal(t, tt.want, tt.r.Next(), tt.name)
	}
}

// I4: when the node is deleted without its lock root.
func TestKeepsRoot(t *testing.T) {
	require.True(t, KeepsRoot(1, false), "the root is not empty")
	require.True(t, KeepsRoot(0, false), "the node may not be deleted with the root")
	require.True(t, KeepsRoot(-1, false), "a reply that names no operation")
	require.True(t, KeepsRoot(-1, true))
	require.False(t, KeepsRoot(0, true), "the node is deleted")
}
