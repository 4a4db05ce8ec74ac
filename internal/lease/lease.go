// Package lease computes until when a ZooKeeper session is guaranteed to live, and when to leave a
// server that does not respond. Its inputs are exchanges and times, its results are times. It
// promises that under the assumptions of its mode the lease ends before the servers can end the
// session.
//
// It is pure arithmetic. It must not read a clock, start a timer, wait, log or hold a lock.
//
// Read lease.go first: only Attached, Answered and Quorum move the end. Then silence.go.
package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/zklock/zklock/internal/clock"
)

// ErrSessionTimeoutTooShort: the session timeout leaves the lease no margin, that is, no time in
// which a hold could be relied on.
var ErrSessionTimeoutTooShort = errors.New("session timeout too short for the lease")

// Mode decides which exchanges prove that the ZooKeeper session is alive. The zero value is no
// mode.
type Mode struct {
	singleServer bool
	leaderPing   time.Duration // otherwise G: the leader pings each follower at least this often
	every        time.Duration // h, if it is not Heartbeat
}

// Quorum counts an exchange only if it was answered long enough before a successful quorum
// operation. It assumes that the leader pings each healthy follower at least every leaderPing.
func Quorum(leaderPing time.Duration) Mode { return Mode{leaderPing: leaderPing} }

// SingleServer counts every exchange.
func SingleServer() Mode { return Mode{singleServer: true} }

// RenewedEvery returns the mode with the given heartbeat interval.
func (m Mode) RenewedEvery(d time.Duration) Mode {
	m.every = d
	return m
}

// String returns the mode and its durations in readable form.
func (m Mode) String() string {
	s := "single server"
	if !m.singleServer {
		s = fmt.Sprintf("quorum (leader ping %v)", m.leaderPing)
	}
	if m.every != 0 {
		s += fmt.Sprintf(", heartbeat %v", m.every)
	}
	return s
}

const (
	clockRate = 1.01                  // 1 + ρ: our clock may run this much slower than the server's
	leaseSlop = 50 * time.Millisecond // ε: how late a timer may fire and a goroutine run
	roundTrip = 50 * time.Millisecond // allowance of the margin check for a round trip
)

// LeastHeartbeat limits a Session to four requests a second.
const LeastHeartbeat = 250 * time.Millisecond

// ClockCheck is how often a Session that holds something compares the clock with the lease. Timers
// stop while the machine is suspended, so a timer for the end of the lease would fire too late.
const ClockCheck = 250 * time.Millisecond

// Heartbeat is how often the lease is renewed while something is held, unless the mode has its own
// interval: a tenth of the session timeout. In every mode it is also the unit for how long to wait
// for a server.
func Heartbeat(timeout time.Duration) time.Duration { return max(timeout/10, LeastHeartbeat) }

// IdleRead is how often an idle session sends a cheap read.
func IdleRead(timeout time.Duration) time.Duration { return timeout / 6 }

// worth is how long an exchange proves the session alive, from its sending and without G.
func worth(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout)/clockRate) - leaseSlop
}

// heartbeat is h, the interval of this mode.
func (m Mode) heartbeat(timeout time.Duration) time.Duration {
	if m.every != 0 {
		return m.every
	}
	return Heartbeat(timeout)
}

// Room is the margin: the least time that remains of the lease, just before the response to a
// heartbeat, on a session that was idle before. It must be positive. The quorum lease counts from
// the last exchange but one, so the margin subtracts two gaps.
func (m Mode) Room(timeout time.Duration) time.Duration {
	h := m.heartbeat(timeout)
	r := worth(timeout) - h - 2*roundTrip
	if !m.singleServer {
		r -= m.leaderPing + 2*max(h, IdleRead(timeout))
	}
	return r
}

// Check rejects a session timeout in which the mode has no margin; the error names a timeout that
// has one.
func (m Mode) Check(timeout time.Duration) error {
	if m.leaderPing <= 0 && !m.singleServer {
		return fmt.Errorf("%w: the leader ping of WithLease is %v; give QuorumLease(0) for the default", ErrSessionTimeoutTooShort, m.leaderPing)
	}
	if m.leaderPing > 24*time.Hour {
		return fmt.Errorf("%w: QuorumLease(%v) is more than 24h", ErrSessionTimeoutTooShort, m.leaderPing)
	}
	r := m.Room(timeout)
	if r > 0 {
		return nil
	}
	need := timeout
	for m.Room(need) <= 0 {
		need += 100 * time.Millisecond
	}
	advice := ""
	if !m.singleServer {
		advice = ", or a shorter leader ping if two ticks of the servers are shorter (QuorumLease)"
		if SingleServer().RenewedEvery(m.every).Room(timeout) > 0 {
			advice += ", or, if there is one server, SingleServerLease()"
		}
	}
	if m.RenewedEvery(0).Room(timeout) > 0 {
		advice += ", or a shorter heartbeat (WithHeartbeat)"
	}
	return fmt.Errorf("%w: %v with lease %v; use at least %v for this lease (WithSessionTimeout)%s; docs/lease.md has the formula", ErrSessionTimeoutTooShort, timeout, m, need, advice)
}

// Exchange is an answered request: when it was sent, and when its response was read.
type Exchange struct{ Sent, Answered clock.Instant }

// Lease computes until when one ZooKeeper session is guaranteed to live. It is arithmetic only: no
// clock, no lock, no I/O.
//
// Why the quorum lease is sound: when exchange k was answered, its server had noted the session as
// touched. The leader pings that server at least every G and receives the touches with the reply. A
// quorum operation that is sent G after k's reply and succeeds on the same connection shows that
// the server was still following then. So the server has answered a ping of the leader in between,
// and the leader counts T from a moment after k was sent. The lease takes the last exchange but
// one, because a touch that arrives while the follower hands its table over can be lost.
type Lease struct {
	mode      Mode
	timeout   time.Duration // T: the smallest that was granted in this session
	conn      uint64        // the connection of the exchanges
	connect   Exchange      // its connect exchange
	exchanges []Exchange    // its answered exchanges, oldest first, thinned; the connect exchange is the first
	end       clock.Instant // L
}

// New returns the lease of a ZooKeeper session before its first connection.
func New(mode Mode) Lease { return Lease{mode: mode} }

// End returns when the lease ends.
func (l *Lease) End() clock.Instant { return l.end }

// From returns the time of sending from which the lease counts: since then nothing has proved the
// session alive.
func (l *Lease) From() clock.Instant { return l.end.Add(-worth(l.timeout)) }

// Timeout returns T.
func (l *Lease) Timeout() time.Duration { return l.timeout }

// Heartbeat returns how often the lease is renewed while something is held.
func (l *Lease) Heartbeat() time.Duration { return l.mode.heartbeat(l.timeout) }

// Room returns the margin: how long no server may respond until the lease ends.
func (l *Lease) Room() time.Duration { return l.mode.Room(l.timeout) }

// Check rejects a session timeout without a margin: servers may grant less than they did at first.
func (l *Lease) Check() error { return l.mode.Check(l.timeout) }

// Grants reports whether enough of the lease remains for a grant: the first heartbeat must be able
// to renew it.
func (l *Lease) Grants(now clock.Instant) bool {
	return l.end.Sub(now) >= min(l.Heartbeat(), l.Room())
}

// NeedsHeartbeat reports whether the lease is too near its end to wait a whole interval for the
// next heartbeat.
func (l *Lease) NeedsHeartbeat(now clock.Instant) bool {
	return l.end.Sub(now) < l.Heartbeat()+2*roundTrip
}

// Attached notes the connect exchange of a new connection. For a new session it is a quorum
// operation itself: the leader created the session. For an old session it counts only with a quorum
// operation after it. A shorter timeout counts at once (F38). A longer one never counts: a leader
// that is elected later uses the timeout of the session's creation again (F45).
func (l *Lease) Attached(conn uint64, c Exchange, timeout time.Duration, newSession bool) {
	l.conn, l.connect, l.exchanges = conn, c, append(l.exchanges[:0], c)
	shorter := timeout < l.timeout
	if newSession || shorter {
		l.timeout = timeout
	}
	if newSession || l.mode.singleServer {
		l.extend(c.Sent)
	}
	if shorter {
		l.end = min(l.end, c.Sent.Add(worth(timeout)))
	}
}

// Answered notes an exchange whose response shows that the server serves this session.
func (l *Lease) Answered(conn uint64, f Exchange) {
	if conn != l.conn {
		return
	}
	if l.mode.singleServer {
		l.extend(f.Sent)
		return
	}
	// Of frames much closer together than the heartbeat the first and the last are kept. Omitting
	// one is safe, and the next one that is kept is no later than the next frame.
	if n := len(l.exchanges); n > 1 && f.Sent.Sub(l.exchanges[n-2].Sent) < l.Heartbeat()/4 {
		l.exchanges = l.exchanges[:n-1]
	}
	l.exchanges = append(l.exchanges, f)
	// If every later quorum operation may use two exchanges, those before them are useless.
	for len(l.exchanges) > 3 && l.exchanges[2].Answered <= f.Answered.Add(-l.mode.leaderPing-l.timeout) {
		l.exchanges = l.exchanges[1:]
	}
}

// Quorum notes a successful quorum operation that was sent at the given time.
func (l *Lease) Quorum(conn uint64, sent clock.Instant) {
	if conn != l.conn || l.mode.singleServer {
		return
	}
	base := l.connect.Sent // answered by the leader, before anything sent later on this connection
	cutoff := sent.Add(-l.mode.leaderPing)
	for i := len(l.exchanges) - 1; i > 0; i-- {
		if l.exchanges[i].Answered <= cutoff {
			base = max(base, l.exchanges[i-1].Sent)
			break
		}
	}
	l.extend(base)
}

func (l *Lease) extend(base clock.Instant) { l.end = max(l.end, base.Add(worth(l.timeout))) }
