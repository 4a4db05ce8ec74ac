package zklock

import (
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/clock"
)

// LeaseMode says what a Session takes as proof that its ZooKeeper session is alive, and so how long a hold may be relied
// on. docs/lease.md helps to choose.
type LeaseMode struct {
	singleServer bool
	leaderPing   time.Duration // otherwise G: the leader pings each follower at least so often
}

// DefaultLeaderPing is QuorumLease's assumption about the longest time between two pings of the leader to a follower: two
// ticks of ZooKeeper's default tickTime of 2 s. (The leader really pings every half tick.)
const DefaultLeaderPing = 4 * time.Second

// QuorumLease is the default mode. An exchange counts only if it was answered long enough before a successful quorum
// operation. So no follower that is cut off from the leader, and no deposed leader, can reassure a holder. The mode is sound
// if the leader pings each healthy follower at least every leaderPing; zero means DefaultLeaderPing. A client cannot read
// the servers' tickTime: if it is not 2 s, give two ticks.
func QuorumLease(leaderPing time.Duration) LeaseMode {
	if leaderPing == 0 {
		leaderPing = DefaultLeaderPing
	}
	return LeaseMode{leaderPing: leaderPing}
}

// SingleServerLease takes every answer as a proof. It is sound with one server. With an ensemble, a holder that is connected
// to a server without quorum learns of the loss too late.
func SingleServerLease() LeaseMode { return LeaseMode{singleServer: true} }

// String spells the mode and its duration, for people.
func (m LeaseMode) String() string {
	if m.singleServer {
		return "single server"
	}
	return fmt.Sprintf("quorum (leader ping %v)", m.leaderPing)
}

const (
	clockRate = 1.01                  // 1 + ρ: our clock may run this much slower than the server's
	leaseSlop = 50 * time.Millisecond // ε: how late a timer may fire and a goroutine run
	roundTrip = 50 * time.Millisecond // what the room check allows for a round trip
)

// heartbeat is h: how often the lease is renewed while something is held, a tenth of the session timeout and at
// least 250 ms.
func heartbeat(timeout time.Duration) time.Duration { return max(timeout/10, 250*time.Millisecond) }

// idleRead is how often an idle session sends a cheap read. The quorum lease stands on the last exchange but one, so room
// counts two gaps: T/3.
func idleRead(timeout time.Duration) time.Duration { return timeout / 6 }

// worth is how long after its sending an exchange proves the session alive, G aside.
func worth(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout)/clockRate) - leaseSlop
}

// room is how far the lease is ahead at the least: just before a heartbeat's answer, on a session that was idle before. It
// must be positive.
func (m LeaseMode) room(timeout time.Duration) time.Duration {
	r := worth(timeout) - heartbeat(timeout) - 2*roundTrip
	if !m.singleServer {
		r -= m.leaderPing + timeout/3
	}
	return r
}

// LeaseRoom returns the longest outage that surely ends no hold, with this lease mode and session timeout. If it is zero or
// less, Connect refuses the pair.
func LeaseRoom(mode LeaseMode, sessionTimeout time.Duration) time.Duration {
	return mode.room(sessionTimeout)
}

// check refuses a session timeout in which the mode has no room, and says what would do.
func (m LeaseMode) check(timeout time.Duration) error {
	if m.leaderPing <= 0 && !m.singleServer {
		return fmt.Errorf("%w: the leader ping of WithLease is %v; give QuorumLease(0) for the default", ErrNoRoom, m.leaderPing)
	}
	if m.leaderPing > 24*time.Hour {
		return fmt.Errorf("%w: QuorumLease(%v) is more than 24h", ErrNoRoom, m.leaderPing)
	}
	r := m.room(timeout)
	if r > 0 {
		return nil
	}
	need := timeout
	for m.room(need) <= 0 {
		need += 100 * time.Millisecond
	}
	advice := ""
	if !m.singleServer {
		advice = ", or a shorter leader ping if two ticks of the servers are shorter (QuorumLease)"
		if SingleServerLease().room(timeout) > 0 {
			advice += ", or, if there is one server, SingleServerLease()"
		}
	}
	return fmt.Errorf("%w: %v with lease %v; use at least %v for this lease (WithSessionTimeout)%s; docs/lease.md has the formula", ErrNoRoom, timeout, m, need, advice)
}

// exchange is a request that was answered: when it was sent, and when its answer was seen.
type exchange struct{ sent, answered clock.Instant }

// lease computes until when one ZooKeeper session is surely alive. It is arithmetic only: no clock, no lock, no I/O.
//
// Why the quorum lease is sound: when exchange k was answered, its server had noted the session as touched. The leader
// pings that server at least every G and gets the touches with the answer. A quorum operation that is sent G after
// k's answer and succeeds on the same connection shows that the server was still following then. So the server has answered
// a ping of the leader in between, and the leader counts T from a moment after k was sent. The lease takes the last exchange
// but one, because a touch can be lost that arrives while the server hands its table over.
type lease struct {
	mode      LeaseMode
	timeout   time.Duration // T: the smallest that was granted in this session
	conn      uint64        // the connection that exchanges are from
	connect   exchange      // its connect exchange
	exchanges []exchange    // answered on it, oldest first, thinned; the connect exchange is the first
	end       clock.Instant // L
}

// attached notes the connect exchange of a new connection. For a new session it is a quorum operation itself: the
// leader created the session. For an old session it counts only with a quorum operation after it. A shorter timeout
// counts at once (F38). A longer one never counts: a leader that is elected later goes by the timeout of the session's
// creation again (F45).
func (l *lease) attached(conn uint64, c exchange, timeout time.Duration, newSession bool) {
	l.conn, l.connect, l.exchanges = conn, c, append(l.exchanges[:0], c)
	shorter := timeout < l.timeout
	if newSession || shorter {
		l.timeout = timeout
	}
	if newSession || l.mode.singleServer {
		l.extend(c.sent)
	}
	if shorter {
		l.end = min(l.end, c.sent.Add(worth(timeout)))
	}
}

// minRoom is how far the lease must be ahead for a grant: the first heartbeat must be able to renew it.
func (l *lease) minRoom() time.Duration { return min(heartbeat(l.timeout), l.mode.room(l.timeout)) }

// answered notes an exchange whose answer shows that the server serves this session.
func (l *lease) answered(conn uint64, f exchange) {
	if conn != l.conn {
		return
	}
	if l.mode.singleServer {
		l.extend(f.sent)
		return
	}
	// Frames much closer together than the heartbeat add nothing. To leave out the later one is the safe side.
	if f.sent.Sub(l.exchanges[len(l.exchanges)-1].sent) < heartbeat(l.timeout)/4 {
		return
	}
	l.exchanges = append(l.exchanges, f)
	// If every later quorum operation may use two exchanges, those before them are useless.
	for len(l.exchanges) > 3 && l.exchanges[2].answered <= f.answered.Add(-l.mode.leaderPing-l.timeout) {
		l.exchanges = l.exchanges[1:]
	}
}

// quorum notes a successful quorum operation that was sent at the given time.
func (l *lease) quorum(conn uint64, sent clock.Instant) {
	if conn != l.conn || l.mode.singleServer {
		return
	}
	base := l.connect.sent // answered by the leader, before anything sent later on this connection
	cutoff := sent.Add(-l.mode.leaderPing)
	for i := len(l.exchanges) - 1; i > 0; i-- {
		if l.exchanges[i].answered <= cutoff {
			base = max(base, l.exchanges[i-1].sent)
			break
		}
	}
	l.extend(base)
}

func (l *lease) extend(base clock.Instant) { l.end = max(l.end, base.Add(worth(l.timeout))) }
