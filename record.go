package zklock

import (
	"fmt"
	"strings"
)

// The record of a long queue. A list has some 60 bytes for each waiter. So where a list was long, a release leaves the name of
// its node in the data of the lock root, in the transaction that deletes the node. A waiter reads that, in place of a list, when
// the node ahead of its predecessor goes: if that node was a hold's, nobody is ahead of the predecessor any more.
//
// Only the release of a hold leaves a record, never a waiter that gives up: others may be ahead of that one.

// recordVersion begins the data. Data that begins otherwise is not ours, and is never overwritten.
const recordVersion = "zklock/1"

// recordOf returns the data that a release leaves: a line of words, name=value. A reader ignores those that it does not know.
// The token is for people.
func recordOf(name string, token int64) []byte {
	return fmt.Appendf(nil, "%s released=%s token=%d\n", recordVersion, name, token)
}

// releasedBy reads the data of a lock root: the name of the node that was released last, "" if there is no record. It returns
// false if the data is not ours.
func releasedBy(data []byte) (name string, ours bool) {
	words := strings.Fields(string(data))
	switch {
	case len(data) == 0:
		return "", true
	case len(words) == 0 || words[0] != recordVersion:
		return "", false
	}
	for _, w := range words[1:] {
		if released, ok := strings.CutPrefix(w, "released="); ok {
			return released, true
		}
	}
	return "", true
}
