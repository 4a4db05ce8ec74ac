package answer

import "github.com/zklock/zklock/internal/tap"

// CreateFate is what the end of a create means for the node that it was to make.
type CreateFate int

const (
	NodeMade    CreateFate = iota // it is there, and its name known
	NothingMade                   // try again
	NodeDenied                    // nothing was made, and nothing will be
	NodeUnclear                   // it may be there or not: look for it, and never create again before (I2)
	GoneIfMade                    // it dies with its session, which is over (F5)
)

// FateOf says what has become of a node. It goes by the fate of its create, by the answer if there was one, and by whether
// the ZooKeeper session is over.
func FateOf(f tap.Fate, o Outcome, over bool) CreateFate {
	switch {
	case f == tap.WasAnswered && o == TurnedDown:
		return NodeDenied // it was asked in time, and that is the answer
	case over:
		return GoneIfMade
	case f == tap.NeverSent:
		return NothingMade
	case f == tap.WasAnswered && o == NotNow:
		return NothingMade
	case f == tap.WasAnswered && o == Applied:
		return NodeMade
	}
	return NodeUnclear
}
