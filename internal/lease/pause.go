package lease

import "time"

// Stake is what a Session loses if it is without a server for too long.
type Stake struct {
	Kind   StakeKind
	Left   time.Duration // until a hold's lease ends, or else until the servers may end the session
	Wanted bool          // somebody waits for a connection, or has asked for one lately
}

// StakeKind is what is at stake.
type StakeKind int

const (
	NoSession StakeKind = iota // nothing: there is no ZooKeeper session
	GivenUp                    // the time of others: a session is over for us since just now, and the servers may still have it
	Lingers                    // the same, and a first try to end it had no answer
	Leftover                   // the same, with all servers away: returned, they keep it for T again
	Alive                      // a session, and with it places in queues
	Held                       // a hold
)

const (
	mostLate   = 500 * time.Millisecond // when a session's time is nearly over, or others wait for its end
	mostWanted = 1500 * time.Millisecond
	mostIdle   = 30 * time.Second
)

// Pause returns how long to pause at the most before another server is tried, after so many laps through so many servers in vain, beside the
// second that the client pauses after each lap.
//
// The pauses grow with the laps. What can be lost bounds those of a lap: an eighth of the time that is left to a hold, so that towards the end
// of its lease they are nothing; a quarter of what is left to a session without a hold, and a little in the end, because it is given up
// T/6 and a second after its time (Unheard). If nothing can be lost, somebody who waits has no more than two seconds to wait for the next
// dial, and a Session that nobody asks for anything dials each thirty seconds, or each T/3 if its
// last session may keep others waiting.
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
