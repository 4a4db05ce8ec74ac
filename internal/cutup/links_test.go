//go:build linux

package cutup_test

// Links between hosts that are blocked, in one direction or in both.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/cutup"
	"github.com/zklock/zklock/internal/oneway"
	"github.com/zklock/zklock/internal/zkserver"
)

// F14, I5: one direction of one link is blocked, each in turn. No response that needs both
// directions arrives, but the remaining packets may look healthy: a leader receives from a follower
// that does not receive from it, and vice versa.
func TestF14_OneDirectionBlocked_IsNotifiedBeforeTheNextGrant(t *testing.T) {
	const timeout = 8 * time.Second
	s := newScene(t)
	for _, c := range []struct {
		name     string
		onLeader bool
		from, to func(leader, own *cutup.Host) []*cutup.Host
	}{
		{"follower to leader", false,
			func(_, own *cutup.Host) []*cutup.Host { return []*cutup.Host{own} },
			func(leader, _ *cutup.Host) []*cutup.Host { return []*cutup.Host{leader} }},
		{"leader to follower", false,
			func(leader, _ *cutup.Host) []*cutup.Host { return []*cutup.Host{leader} },
			func(_, own *cutup.Host) []*cutup.Host { return []*cutup.Host{own} }},
		{"client to server", false,
			func(_, _ *cutup.Host) []*cutup.Host { return s.clients[:1] },
			func(_, own *cutup.Host) []*cutup.Host { return []*cutup.Host{own} }},
		{"server to client", false,
			func(_, own *cutup.Host) []*cutup.Host { return []*cutup.Host{own} },
			func(_, _ *cutup.Host) []*cutup.Host { return s.clients[:1] }},
		{"leader to all others", true,
			func(leader, _ *cutup.Host) []*cutup.Host { return []*cutup.Host{leader} },
			func(leader, _ *cutup.Host) (others []*cutup.Host) {
				for _, srv := range s.ens.Servers() {
					if h := s.host(srv); h != leader {
						others = append(others, h)
					}
				}
				return others
			}},
	} {
		leader, followers := s.roles()
		own := followers[0]
		if c.onLeader {
			own = leader
		}
		l := s.open(c.name, s.connect(s.clients[0], own.Addr(), timeout), s.connect(s.clients[1], addrs(s.others(own)...), timeout))
		l.sureToHold()
		cut := s.line.start("blocked: " + c.name)
		for _, from := range c.from(s.host(leader), s.host(own)) {
			for _, to := range c.to(s.host(leader), s.host(own)) {
				require.NoError(t, s.net.Block(from, to))
			}
		}
		got := l.lostInTime(margin)
		t.Logf("%-20s %s", c.name, got.say("", cut))
		s.whole()
		l.empty()
	}
}

// F15, I5: the holder's host is cut off from all servers. If it is healed within the margin, the
// hold remains valid. If it is healed after the loss, the holder was notified although its
// ZooKeeper session may live. Without healing, it was notified before the next grant.
func TestF15_ClientCutOff_HealedBeforeAndAfterTheEnd(t *testing.T) {
	s := newScene(t)
	all := s.ens.ConnectString()
	servers := func(list []*zkserver.Server) (hosts []*cutup.Host) {
		for _, srv := range list {
			hosts = append(hosts, s.host(srv))
		}
		return hosts
	}(s.ens.Servers())
	open := func(name string, timeout time.Duration) *lane {
		return s.open(name, s.connect(s.clients[0], all, timeout), s.connect(s.clients[1], all, timeout))
	}
	cutOff := func(what string) time.Time {
		at := s.line.start(what)
		require.NoError(t, s.net.Cut(s.clients[0], servers...))
		return at
	}

	l := open("healed within the room", 20*time.Second)
	room := zklock.QuorumLease(0).Margin(20 * time.Second)
	l.sureToHold()
	cut := cutOff("cut off")
	time.Sleep(room / 2)
	require.NoError(t, s.net.Heal())
	require.True(t, l.renewed(cut), "lost: %v", l.hold.Err())
	l.kept()
	t.Logf("%s: cut off for %v with a room of %v: the hold stood", l.name, room/2, room.Round(time.Millisecond))
	l.empty()

	l = open("healed when lost", 8*time.Second)
	l.sureToHold()
	cut = cutOff("cut off")
	at := l.awaitTold()
	require.NoError(t, s.net.Heal())
	l.told <- at
	t.Logf("%-24s %s", l.name, l.lostInTime(0).say("", cut))
	l.empty()

	l = open("not healed", 8*time.Second)
	l.sureToHold()
	cut = cutOff("cut off")
	t.Logf("%-24s %s", l.name, l.lostInTime(margin).say("", cut))
	require.NoError(t, s.net.Heal())
	l.empty()
}

// F51, I5: all responses of the servers to a client's host are lost, and its requests still arrive:
// the holder is notified before the next grant, which follows within 2 T, whether the client has
// one server or all. The same behind a waiter.
func TestF51_AnswersLost_NextIsGranted(t *testing.T) {
	const timeout = 8 * time.Second
	s := newScene(t)
	_, followers := s.roles()
	for _, servers := range []string{followers[0].Addr(), s.ens.ConnectString()} {
		way := oneway.New(s.clients[0].Dial)
		deaf := s.connect(s.clients[0], servers, timeout, zklock.WithDialer(way.Dial))
		l := s.open("answers lost", deaf, s.connect(s.clients[1], s.ens.ConnectString(), timeout))
		l.sureToHold()
		cut := s.line.start("answers lost")
		way.LoseAnswers()
		got := l.lostInTime(0)
		require.Less(t, got.granted.Sub(cut), 2*timeout)
		require.Positive(t, way.Arrived(), "no request arrived: this shows nothing")
		t.Logf("%-20s %s", servers, got.say("", cut))
		way.Heal()
		l.empty()

		way = oneway.New(s.clients[0].Dial)
		waiter := s.connect(s.clients[0], servers, timeout, zklock.WithDialer(way.Dial))
		l = s.open("a waiter hears nothing", s.connect(s.clients[1], s.ens.ConnectString(), timeout), waiter)
		third, err := zklock.NewMutex(s.connect(s.clients[1], s.ens.ConnectString(), timeout), l.path)
		require.NoError(t, err)
		cut = s.line.start("a waiter hears nothing")
		way.LoseAnswers()
		require.NoError(t, l.hold.Release(within(t, soon)))
		h, err := third.Acquire(within(t, late))
		require.NoError(t, err)
		require.Less(t, time.Since(cut), 2*timeout)
		t.Logf("%-20s the one behind the waiter was granted after %.1f s", servers, time.Since(cut).Seconds())
		require.NoError(t, h.Release(within(t, soon)))
		way.Heal()
		g := l.awaitGrant()
		require.NoError(t, g.hold.Release(within(t, late)))
		l.empty()
	}
}
