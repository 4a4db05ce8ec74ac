package zklock

import (
	"time"

	"github.com/zklock/zklock/internal/lease"
)

// LeaseMode says what a Session takes as proof that its ZooKeeper session is alive, and so how long a hold may be relied
// on. docs/lease.md helps to choose.
type LeaseMode struct{ mode lease.Mode }

// defaultLeaderPing is two ticks of ZooKeeper's default tickTime. The leader pings every half tick.
const defaultLeaderPing = 4 * time.Second

// QuorumLease is the default mode. An exchange counts only if it was answered long enough before a
// successful quorum operation. So no follower that is cut off from the leader, and no deposed
// leader, can reassure a holder. The mode is sound if the leader pings each healthy follower at
// least every leaderPing; zero means 4 s, two ticks of ZooKeeper's default tickTime. A client
// cannot read the servers' tickTime: if it is not 2 s, give two ticks.
func QuorumLease(leaderPing time.Duration) LeaseMode {
	if leaderPing == 0 {
		leaderPing = defaultLeaderPing
	}
	return LeaseMode{lease.Quorum(leaderPing)}
}

// SingleServerLease takes every answer as a proof. It is sound with one server. With an ensemble, a holder that is connected
// to a server without quorum learns of the loss too late.
func SingleServerLease() LeaseMode { return LeaseMode{lease.SingleServer()} }

// String spells the mode and its duration, for people.
func (m LeaseMode) String() string {
	return m.mode.String()
}

// LeaseMargin returns the longest outage that is guaranteed to end no hold, with this lease mode and session timeout, unless
// WithHeartbeat is given. If it is zero or less, Connect refuses the pair.
func LeaseMargin(mode LeaseMode, sessionTimeout time.Duration) time.Duration {
	return mode.mode.Room(sessionTimeout)
}
