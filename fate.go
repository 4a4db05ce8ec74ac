package zklock

// createFate is what the end of a create means for the node that it was to make.
type createFate int

const (
	nodeMade    createFate = iota // it is there, and its name known
	nothingMade                   // try again
	nodeDenied                    // nothing was made, and nothing will be
	nodeUnclear                   // it may be there or not: look for it, and never create again before (I2)
	goneIfMade                    // it dies with its session, which is over (F5)
)

// fateOf decides what has become of a node from the outcome of its create, whether the create's frame has left, as the
// tap saw it, and whether the ZooKeeper session is over.
//
// An answer is believed only if its request was seen to leave in this session: the client may send in one session what it
// kept from another. And what was never seen to leave has made nothing as long as that session lives.
func fateOf(o outcome, left, over bool) createFate {
	switch {
	case o == turnedDown && left:
		return nodeDenied // it was asked in time, and that is the answer
	case over:
		return goneIfMade
	case o == turnedDown:
		return nodeDenied
	case o == notNow:
		return nothingMade
	case o == applied && left:
		return nodeMade
	case o == unknown && !left:
		return nothingMade
	}
	return nodeUnclear
}
