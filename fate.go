package zklock

import "github.com/zklock/zklock/internal/tap"

// createFate is what the end of a create means for the node that it was to make.
type createFate int

const (
	nodeMade    createFate = iota // it is there, and its name known
	nothingMade                   // try again
	nodeDenied                    // nothing was made, and nothing will be
	nodeUnclear                   // it may be there or not: look for it, and never create again before (I2)
	goneIfMade                    // it dies with its session, which is over (F5)
)

// fateOf says what has become of a node. It goes by the fate of its create, by the answer if there was one, and by whether
// the ZooKeeper session is over.
func fateOf(f tap.Fate, o outcome, over bool) createFate {
	switch {
	case f == tap.WasAnswered && o == turnedDown:
		return nodeDenied // it was asked in time, and that is the answer
	case over:
		return goneIfMade
	case f == tap.NeverSent:
		return nothingMade
	case f == tap.WasAnswered && o == notNow:
		return nothingMade
	case f == tap.WasAnswered && o == applied:
		return nodeMade
	}
	return nodeUnclear
}
