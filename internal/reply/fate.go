package reply

import "github.com/zklock/zklock/internal/mux"

// CreateFate is the effect of a create, as its end shows.
type CreateFate int

const (
	NodeMade    CreateFate = iota // the node exists, and its name is known
	NothingMade                   // try again
	NodeDenied                    // no node was created, and none will be
	NodeUnclear                   // the node may exist or not: search for it, and never create again before (I2)
	GoneIfMade                    // the node is deleted with its session, which has ended (F5)
)

// FateOf returns what happened to a node, from the fate of its create, the response if there was
// one, and whether the ZooKeeper session has ended.
func FateOf(f mux.Fate, o Outcome, over bool) CreateFate {
	switch {
	case f == mux.WasAnswered && o == TurnedDown:
		return NodeDenied // it was sent in time, and this is its response
	case over:
		return GoneIfMade
	case f == mux.NeverSent:
		return NothingMade
	case f == mux.WasAnswered && o == NotNow:
		return NothingMade
	case f == mux.WasAnswered && o == Applied:
		return NodeMade
	}
	return NodeUnclear
}
