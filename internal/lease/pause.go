package lease

import "time"

// Stake is the potential loss of a Session that has no server for too long.
type Stake struct {
	Kind   StakeKind
	Left   time.Duration // until a hold's lease ends, or otherwise until the servers may end the session
	Wanted bool          // a caller waits for a connection, or has recently needed one
}

// StakeKind is the kind of the potential loss.
type StakeKind int

const (
	NoSession StakeKind = iota // nothing: there is no ZooKeeper session
	GivenUp                    // other clients' time: a session has just ended for us, and the servers may still have it
	Lingers                    // the same, and a first try to end it got no response
	Leftover                   // the same, with all servers unreachable: when they return, they keep it for T again
	Alive                      // a session, and with it positions in queues
	Held                       // a hold
)

const (
	mostLate   = 500 * time.Millisecond // when a session is about to expire, or other clients wait for its end
	mostWanted = 1500 * time.Millisecond
	mostIdle   = 30 * time.Second
)

// Pause returns the longest pause before the next server is tried, in addition to the second that
// the client pauses after each lap. laps is how many laps through all servers have failed.
//
// The pauses grow with the laps. The potential loss limits the sum of the pauses in a lap: to an
// eighth of the time that a hold has left, so that they vanish towards the end of its lease; to a
// quarter of the time that a session without a hold has left, and to a little at its end, because
// it is given up T/6 and a second after its timeout (Unheard). If nothing can be lost, a waiting
// caller waits no more than two seconds for the next dial, and a Session without callers dials
// every thirty seconds, or every T/3 if the nodes of its last session may block other clients.
func (s Stake) Pause(timeout time.Duration, laps, servers int) time.Duration {
	most := mostIdle
	switch n := time.Duration(servers); {
	case s.Kind == Held:
		most = max(0, s.Left/8/n)
	case s.Kind == Alive:
		most = max(s.Left/4, min(timeout/16, mostLate)) / n
	case s.Kind == GivenUp:
		most = 0
	case s.Kind == Lingers:
		most = min(timeout/32, mostLate) / n
	case s.Wanted:
		most = min(timeout/3, mostWanted)
	case s.Kind == Leftover:
		most = min(timeout/3, mostIdle)
	}
	return min(most, 250*time.Millisecond<<min(max(laps-1, 0), 10))
}
