package lease

// These tests attack lease.go: how long a hold may be relied on (I5).

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
)

const sec = time.Second

// at is an instant a number of seconds after the beginning.
func at(s float64) clock.Instant { return clock.Instant(s * float64(time.Second)) }

// The formula of the design, section 5, once more by hand. G is in the choice of the exchange, not
// in its worth.
func TestWorth(t *testing.T) {
	require.Equal(t, 9900990099*time.Nanosecond-50*time.Millisecond, worth(10*sec), "10 s / 1.01 − ε")
	require.Less(t, worth(10*sec), 10*sec, "a lease never outlasts the session timeout (R37)")
}

func TestHeartbeat(t *testing.T) {
	require.Equal(t, 3*sec, Heartbeat(30*sec))
	require.Equal(t, 250*time.Millisecond, Heartbeat(2*sec), "at least 250 ms")
}

// A grant needs as much of the lease as the first heartbeat takes to renew it, and a heartbeat is
// sent early if a whole interval and two round trips do not remain.
func TestLease_Grants_AndNeedsHeartbeat(t *testing.T) {
	l := Lease{mode: SingleServer(), timeout: 10 * sec, end: at(10)} // the heartbeat is 1 s
	require.True(t, l.Grants(at(9)))
	require.False(t, l.Grants(at(9)+1))
	last := at(10).Add(-sec - 2*roundTrip)
	require.False(t, l.NeedsHeartbeat(last))
	require.True(t, l.NeedsHeartbeat(last+1))

	l.timeout = 500 * time.Millisecond // the margin is less than the heartbeat
	room := l.Room()
	require.Less(t, room, l.Heartbeat())
	require.True(t, l.Grants(at(10).Add(-room)))
	require.False(t, l.Grants(at(10).Add(-room)+1))
}

// A timeout without a margin is rejected, and the error names settings that have one, by the names
// of the options.
func TestLeaseMode_Check(t *testing.T) {
	for _, tt := range []struct {
		mode Mode
		T    time.Duration
		says []string // nil: accepted
	}{
		{Quorum(4 * sec), 30 * sec, nil},
		{Quorum(4 * sec), 8 * sec, nil}, // T ≥ 8 s at G = 4 s
		{Quorum(2 * sec), 4 * sec, nil},
		{Quorum(4 * sec), 7 * sec, []string{"7s with lease quorum (leader ping 4s); use at least 7.5s for this lease (WithSessionTimeout), or a shorter leader ping if two ticks of the servers are shorter (QuorumLease), or, if there is one server, SingleServerLease(); docs/lease.md has the formula"}},
		{Quorum(2 * sec), 3500 * time.Millisecond, []string{": 3.5s", "at least 3.9s"}},
		{Quorum(4 * sec), 5 * sec, []string{": 5s", "SingleServerLease()"}},
		{Quorum(4 * sec), 2 * sec, []string{"at least 7.5s"}},
		{SingleServer(), 2 * sec, nil},
		{SingleServer(), 300 * time.Millisecond, []string{": 300ms", "single server", "at least 500ms"}},
		{Quorum(-1), 30 * sec, []string{"is -1ns"}},
		{Mode{}, 30 * sec, []string{"QuorumLease(0)"}},
	} {
		t.Run(fmt.Sprint(tt.mode, " ", tt.T), func(t *testing.T) {
			err := tt.mode.Check(tt.T)
			if tt.says == nil {
				require.NoError(t, err)
				require.Positive(t, tt.mode.Room(tt.T))
				return
			}
			require.ErrorIs(t, err, ErrSessionTimeoutTooShort)
			for _, s := range tt.says {
				require.ErrorContains(t, err, s)
			}
			if SingleServer().Room(tt.T) <= 0 {
				require.NotContains(t, err.Error(), "SingleServerLease", "it has no room either")
			}
		})
	}
}

// What check recommends is accepted, and a tenth of a second less is not.
func TestLeaseMode_Check_RecommendsTheLeast(t *testing.T) {
	for _, mode := range []Mode{Quorum(4 * sec), Quorum(2 * sec), SingleServer()} {
		for T := 100 * time.Millisecond; T < 40*sec; T += 100 * time.Millisecond {
			err := mode.Check(T)
			if err == nil {
				break
			}
			_, tail, _ := strings.Cut(err.Error(), "use at least ")
			need, _, _ := strings.Cut(tail, " ")
			d, perr := time.ParseDuration(need)
			require.NoError(t, perr)
			require.NoError(t, mode.Check(d), "recommended for %v", T)
			require.Error(t, mode.Check(d-100*time.Millisecond))
		}
	}
}

// R39: very long timeouts do not overflow.
func TestLease_VeryLongTimeouts(t *testing.T) {
	for _, T := range []time.Duration{24 * time.Hour, 24 * 24 * time.Hour} {
		for _, mode := range []Mode{Quorum(4 * sec), SingleServer()} {
			require.NoError(t, mode.Check(T))
			require.Greater(t, mode.Room(T), T/2)
			require.Less(t, mode.Room(T), T)
		}
	}
}

func TestLease_QuorumLease(t *testing.T) {
	const T, G = 30 * sec, 4 * sec
	mode := Quorum(G)
	w := worth(T)
	begin := func() *Lease {
		l := &Lease{mode: mode}
		l.Attached(1, Exchange{at(0), at(0.1)}, T, true)
		return l
	}
	end := func(s float64) clock.Instant { return at(s).Add(w) }

	t.Run("a new session's connect exchange is a quorum operation", func(t *testing.T) {
		require.Equal(t, end(0), begin().end)
	})
	t.Run("answers alone renew nothing: a follower that is cut off answers too (F12)", func(t *testing.T) {
		l := begin()
		for s := 1.0; s < 60; s++ {
			l.Answered(1, Exchange{at(s), at(s + 0.1)})
		}
		require.Equal(t, end(0), l.end)
	})
	t.Run("the last exchange but one of those answered G before the operation was sent", func(t *testing.T) {
		l := begin()
		for s := 1.0; s <= 10; s++ {
			l.Answered(1, Exchange{at(s), at(s + 0.1)})
		}
		// Sent at 10: answered by 6 were the exchanges sent at 0 … 5, and 4 is the last but one.
		l.Quorum(1, at(10))
		require.Equal(t, end(4), l.end)
	})
	t.Run("exactly G counts, a nanosecond less does not", func(t *testing.T) {
		for _, tt := range []struct {
			sent clock.Instant
			want clock.Instant
		}{{at(6.1), end(1)}, {at(6.1) - 1, end(0)}} {
			l := begin()
			l.Answered(1, Exchange{at(1), at(1.1)})
			l.Answered(1, Exchange{at(2), at(2.1)})
			l.Quorum(1, tt.sent)
			require.Equal(t, tt.want, l.end)
		}
	})
	t.Run("one exchange before the cutoff is not two: only the connect exchange is left", func(t *testing.T) {
		l := begin()
		l.Answered(1, Exchange{at(5), at(5.1)})
		l.Quorum(1, at(20))
		require.Equal(t, end(0), l.end)
	})
	t.Run("the answer's time counts, not only the sending's", func(t *testing.T) {
		l := begin()
		l.Answered(1, Exchange{at(1), at(1.1)})
		l.Answered(1, Exchange{at(2), at(9)}) // slow (F16)
		l.Quorum(1, at(10))
		require.Equal(t, end(0), l.end)
	})
	t.Run("an operation on an earlier connection counts for nothing", func(t *testing.T) {
		l := begin()
		l.Answered(1, Exchange{at(1), at(1.1)})
		l.Answered(1, Exchange{at(2), at(2.1)})
		l.Attached(2, Exchange{at(10), at(10.1)}, T, false)
		require.Equal(t, end(0), l.end, "attaching again is no proof by itself")
		l.Quorum(1, at(10))
		l.Answered(1, Exchange{at(10), at(10)})
		require.Equal(t, end(0), l.end)
	})
	t.Run("after attaching again, the connect exchange needs no wait of G, but a quorum operation", func(t *testing.T) {
		l := begin()
		l.Attached(2, Exchange{at(10), at(10.1)}, T, false)
		l.Quorum(2, at(10.2))
		require.Equal(t, end(10), l.end)
	})
	t.Run("exchanges of the earlier connection do not count on the later one", func(t *testing.T) {
		l := begin()
		for s := 1.0; s <= 9; s++ {
			l.Answered(1, Exchange{at(s), at(s + 0.1)})
		}
		l.Attached(2, Exchange{at(9.5), at(9.6)}, T, false)
		l.Answered(2, Exchange{at(10), at(10.1)})
		l.Quorum(2, at(30))
		require.Equal(t, end(9.5), l.end)
	})
	t.Run("an old operation's late success takes nothing back", func(t *testing.T) {
		l := begin()
		for s := 1.0; s <= 20; s++ {
			l.Answered(1, Exchange{at(s), at(s + 0.1)})
		}
		l.Quorum(1, at(20))
		require.Equal(t, end(14), l.end)
		l.Quorum(1, at(10))
		require.Equal(t, end(14), l.end)
	})
}

func TestLease_SingleServerLease(t *testing.T) {
	const T = 10 * sec
	mode := SingleServer()
	l := &Lease{mode: mode}
	l.Attached(1, Exchange{at(0), at(0.1)}, T, true)
	l.Answered(1, Exchange{at(3), at(3.1)})
	require.Equal(t, at(3).Add(worth(T)), l.end)
	l.Answered(1, Exchange{at(2), at(3.2)})
	require.Equal(t, at(3).Add(worth(T)), l.end, "never backwards")
	l.Quorum(1, at(5))
	require.Equal(t, at(3).Add(worth(T)), l.end, "a quorum operation counts as the answer that it is, which came before")
	l.Answered(2, Exchange{at(9), at(9.1)})
	require.Equal(t, at(3).Add(worth(T)), l.end, "another connection's answers do not count")
	l.Attached(2, Exchange{at(12), at(12.1)}, T, false)
	require.Equal(t, at(12).Add(worth(T)), l.end)
}

// F38, R38: the timeout that counts is the one granted on the current connection, at once if it is
// shorter.
func TestLease_TimeoutChangesOnAttachingAgain(t *testing.T) {
	for _, mode := range []Mode{Quorum(2 * sec), SingleServer()} {
		t.Run(mode.String(), func(t *testing.T) {
			l := &Lease{mode: mode}
			l.Attached(1, Exchange{at(0), at(0.1)}, 30*sec, true)
			require.Equal(t, at(0).Add(worth(30*sec)), l.end)

			l.Attached(2, Exchange{at(1), at(1.1)}, 10*sec, false)
			require.Equal(t, at(1).Add(worth(10*sec)), l.end, "the server counts 10 s from its hearing of us")
			l.Quorum(2, at(1.2))
			require.Equal(t, at(1).Add(worth(10*sec)), l.end)

			l.Attached(3, Exchange{at(2), at(2.1)}, 20*sec, false)
			l.Quorum(3, at(2.2))
			require.Equal(t, at(2).Add(worth(10*sec)), l.end, "F45: a leader that is elected later does not know of a longer one")
		})
	}
	t.Run("a shorter timeout does not prolong a lease that was nearly over", func(t *testing.T) {
		l := &Lease{mode: Quorum(4 * sec)}
		l.Attached(1, Exchange{at(0), at(0.1)}, 30*sec, true)
		before := l.end
		l.Attached(2, Exchange{at(25), at(25.1)}, 20*sec, false)
		require.Equal(t, before, l.end)
	})
}

// naiveLease is the rule as the design words it, over all exchanges of a connection, none left out.
type naiveLease struct {
	mode    Mode
	timeout time.Duration
	connect Exchange
	all     []Exchange
	end     clock.Instant
}

func (n *naiveLease) prove(base clock.Instant) { n.end = max(n.end, base.Add(worth(n.timeout))) }

func (n *naiveLease) attached(c Exchange, timeout time.Duration, newSession bool) {
	if timeout < n.timeout {
		n.end = min(n.end, c.Sent.Add(worth(timeout)))
	}
	n.connect, n.all, n.timeout = c, []Exchange{c}, timeout
	if newSession || n.mode.singleServer {
		n.prove(c.Sent)
	}
}

func (n *naiveLease) answered(f Exchange) {
	n.all = append(n.all, f)
	if n.mode.singleServer {
		n.prove(f.Sent)
	}
}

func (n *naiveLease) quorum(sent clock.Instant) {
	if n.mode.singleServer {
		return
	}
	n.prove(n.connect.Sent)
	var early []Exchange // answered at least G before
	for _, f := range n.all {
		if f.Answered.Add(n.mode.leaderPing) <= sent {
			early = append(early, f)
		}
	}
	if len(early) >= 2 {
		n.prove(early[len(early)-2].Sent)
	}
}

// I5: exchanges are thinned out and dropped to bound memory (I7), which may cost some margin but
// never yields a later end than the rule over all of them. Within a connection the end never moves
// back.
func TestLease_RandomTraffic_NeverBeyondTheRule(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(rnd.Int64N(int64(hi-lo))) }
	equal, steps := 0, 0
	for range 200 {
		mode := []Mode{Quorum(4 * sec), Quorum(2 * sec), SingleServer()}[rnd.IntN(3)]
		T := between(8*sec, 40*sec)
		l, n := &Lease{mode: mode}, &naiveLease{mode: mode}
		now, conn := clock.Instant(0), uint64(0)
		attach := func(newSession bool) {
			conn++
			c := Exchange{now, now.Add(between(0, sec))}
			now = c.Answered
			l.Attached(conn, c, T, newSession)
			n.attached(c, T, newSession)
			require.LessOrEqual(t, l.end, n.end)
		}
		attach(true)
		lastSent := now
		gap := []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 3 * sec}[rnd.IntN(3)]
		for range 300 {
			steps++
			if rnd.IntN(60) == 0 {
				if rnd.IntN(2) == 0 {
					T = between(8*sec, 40*sec)
				}
				attach(false)
				lastSent = now
				continue
			}
			// Responses arrive in the order of the requests, each some time after its own; several
			// may be in flight.
			sent := lastSent.Add(between(0, 2*gap))
			answered := max(now, sent.Add(between(0, gap)))
			lastSent = sent
			if rnd.IntN(100) == 0 {
				answered = answered.Add(between(0, 60*sec)) // the process was paused before it read the answer (F18),
				lastSent = answered                         // and sent nothing meanwhile
			}
			now = answered
			f := Exchange{sent, answered}
			before := l.end
			l.Answered(conn, f)
			n.answered(f)
			if rnd.IntN(3) == 0 {
				l.Quorum(conn, sent)
				n.quorum(sent)
			}
			require.LessOrEqual(t, l.end, n.end, "%v, T %v: beyond the rule", mode, T)
			require.GreaterOrEqual(t, l.end, before, "%v: backwards within a connection", mode)
			require.LessOrEqual(t, l.end, sent.Add(T), "%v: beyond T after the last exchange that was answered (R37)", mode)
			if l.end == n.end {
				equal++
			}
		}
		kept := 16 + int(4*(mode.leaderPing+2*T)/Heartbeat(T)) // exchanges a quarter of a heartbeat apart, for G + T and some
		require.LessOrEqual(t, len(l.exchanges), kept, "I7: memory does not grow with the traffic")
	}
	require.Greater(t, equal, steps/4, "the model and the code mostly agree, or this test compares nothing")
}

// LeaseMode.Margin is the margin that users see: a shorter outage does not end a hold. This is its
// worst case, at every phase: an idle session acquires, and the responses to its heartbeats stop.
// The ZooKeeper client's pings come in between, sometimes just before a heartbeat.
func TestLeaseRoom_IsThere(t *testing.T) {
	const rtt = roundTrip
	for _, mode := range []Mode{
		Quorum(4 * sec), Quorum(2 * sec), SingleServer(),
		Quorum(4 * sec).RenewedEvery(sec), Quorum(4 * sec).RenewedEvery(4 * sec), Quorum(4 * sec).RenewedEvery(8 * sec), SingleServer().RenewedEvery(8 * sec),
	} {
		for _, T := range []time.Duration{10 * sec, 20 * sec, 30 * sec} {
			if mode.Room(T) <= 0 {
				continue
			}
			least := time.Hour
			for phase := time.Duration(0); phase < IdleRead(T); phase += 37 * time.Millisecond {
				l := &Lease{mode: mode}
				l.Attached(1, Exchange{0, at(0).Add(rtt)}, T, true)
				ping := at(0)
				answered := func(sent clock.Instant) {
					for ; ping <= sent; ping = ping.Add(T / 3) {
						l.Answered(1, Exchange{ping, ping.Add(rtt)})
					}
					l.Answered(1, Exchange{sent, sent.Add(rtt)})
				}
				now := at(0)
				for range 20 { // idle: a cheap read every T/6
					now = now.Add(IdleRead(T))
					answered(now)
				}
				grant := now.Add(phase)
				for i := range 30 { // held: a heartbeat every h, the first at once
					sent := grant.Add(time.Duration(i) * mode.heartbeat(T))
					if i > 0 {
						// Just before this heartbeat's answer the lease is at its shortest.
						least = min(least, l.end.Sub(sent.Add(rtt)))
					}
					answered(sent)
					l.Quorum(1, sent)
				}
			}
			require.GreaterOrEqual(t, least, mode.Room(T), "%v at %v", mode, T)
		}
	}
}
