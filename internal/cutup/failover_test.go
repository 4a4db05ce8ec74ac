//go:build linux

package cutup_test

// Servers that are killed and restarted.

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// F11, I1, I5: the leader is killed and another elected. A hold whose lease has a large enough
// margin remains valid; any other is lost before the next grant. Holders were on the leader and on
// a follower.
func TestF11_LeaderKilled_HoldsStandOrAreLostInTime(t *testing.T) {
	s := newScene(t)
	leader, followers := s.roles()
	all := s.ens.ConnectString()
	var lanes []*lane
	for _, timeout := range []time.Duration{8 * time.Second, 10 * time.Second, 20 * time.Second} {
		for _, at := range []string{"leader", "follower"} {
			srv := leader
			if at == "follower" {
				srv = followers[0]
			}
			lanes = append(lanes, s.open(fmt.Sprintf("%v on the %s", timeout, at),
				s.connect(s.clients[0], all, timeout, firstTo(s.clients[0], srv)), s.connect(s.clients[1], all, timeout)))
		}
	}
	for _, l := range lanes {
		l.sureToHold()
	}
	killed := s.line.start("the leader is killed")
	require.NoError(t, leader.Kill())
	_, err := s.ens.Leader()
	require.NoError(t, err)
	elected := time.Now()
	s.line.add(elected, "", "another leads, and is followed")

	stood, lost := 0, 0
	for _, l := range lanes {
		// After the election it takes a connection, which may first be tried with the killed
		// server, and a check.
		room := zklock.QuorumLease(0).Margin(l.timeout)
		if l.renewed(killed) {
			s.line.add(time.Now(), l.name, "the hold stands")
			l.kept()
			stood++
			continue
		}
		require.Less(t, room, elected.Sub(killed)+3*time.Second, "%s: lost, although there was room", l.name)
		told := l.lostInTime(0).told
		require.GreaterOrEqual(t, told.Sub(killed), room-100*time.Millisecond, "%s: told too early", l.name)
		lost++
	}
	s.line.print(t)
	t.Logf("election %.3f s; %d holds stood, %d were lost in time", elected.Sub(killed).Seconds(), stood, lost)
	require.NoError(t, leader.Start())
	s.whole()
	for _, l := range lanes {
		l.empty()
	}
}

// F11, I5: the leader and a follower are killed, so that there is no election until they are back.
// A holder without a new proof is notified at the end of its lease; the next one gets the lock when
// there is a quorum again.
func TestF11_QuorumGone_LostAtTheEndOfTheLease(t *testing.T) {
	s := newScene(t)
	leader, followers := s.roles()
	all := s.ens.ConnectString()
	l := s.open("no quorum", s.connect(s.clients[0], all, 10*time.Second), s.connect(s.clients[1], all, 10*time.Second))
	l.sureToHold()
	killed := s.line.start("the leader and a follower are killed")
	require.NoError(t, leader.Kill())
	require.NoError(t, followers[0].Kill())
	told := l.awaitTold()
	require.GreaterOrEqual(t, told.Sub(killed), zklock.QuorumLease(0).Margin(l.timeout)-100*time.Millisecond, "told too early")
	require.Less(t, told.Sub(killed), l.timeout)
	s.line.add(time.Now(), "", "they are started again")
	require.NoError(t, leader.Launch())
	require.NoError(t, followers[0].Launch())
	l.told <- told
	l.lostInTime(0)
	s.line.print(t)
	s.whole()
	l.empty()
}

// F22: the one server that holder and waiter use is killed and started again, with its data, and
// then each server in turn under a pair that uses them all. The holds remain valid; the waiters'
// watches are set again, or they would never wake.
func TestF22_ServersRestarted_HoldsStandAndWaitersWake(t *testing.T) {
	s := newScene(t)
	_, followers := s.roles()
	one := followers[0]
	bound := s.open("on one server", s.connect(s.clients[0], one.Addr(), 20*time.Second), s.connect(s.clients[1], one.Addr(), 20*time.Second))
	killed := s.line.start("their server is killed")
	require.NoError(t, one.Kill())
	require.NoError(t, one.Start())
	s.line.add(time.Now(), "", "it serves again")
	require.True(t, bound.renewed(killed), "lost: %v", bound.hold.Err())
	s.line.add(time.Now(), bound.name, "the hold stands")
	bound.kept()
	s.line.print(t)

	all := s.ens.ConnectString()
	free := s.open("on all servers", s.connect(s.clients[0], all, 30*time.Second), s.connect(s.clients[1], all, 30*time.Second))
	for _, srv := range s.ens.Servers() {
		killed := time.Now()
		require.NoError(t, srv.Kill())
		require.NoError(t, srv.Start())
		s.whole()
		require.True(t, free.renewed(killed), "server %d: lost: %v", srv.ID(), free.hold.Err())
	}
	free.kept()
	bound.empty()
	free.empty()
}

// F38: the server that a holder moves to grants a shorter session timeout than the one it had. The
// ensemble uses the shorter one from then on, and so does the lease.
func TestF38_TimeoutShortenedOnReattach_CountsAtOnce(t *testing.T) {
	short := []string{"maxSessionTimeout=8000"}
	s := newScene(t, nil, short, short)
	one := s.ens.Servers()[0]
	own := s.connect(s.clients[0], s.ens.ConnectString(), 30*time.Second, firstTo(s.clients[0], one))
	require.Equal(t, 30*time.Second, own.Stats().SessionTimeout)
	l := s.open("30s then 8s", own, s.connect(s.clients[1], addrs(s.others(one)...), 8*time.Second))

	moved := s.line.start("the holder's server is killed")
	require.NoError(t, one.Kill())
	require.Eventually(t, func() bool { return own.Stats().SessionTimeout == 8*time.Second }, soon, time.Millisecond, "the holder has not moved: %v", own.Stats().State)
	s.line.add(time.Now(), l.name, "moved; the server granted 8 s")
	require.LessOrEqual(t, time.Until(l.hold.Deadline()), 8*time.Second)
	if _, err := s.ens.Leader(); err != nil { // if it was the leader
		require.NoError(t, err)
	}
	require.True(t, l.renewed(moved), "lost: %v", l.hold.Err())

	// When the client is cut off, the lock is granted to the next after the short timeout; the
	// holder must notice.
	cut := time.Now()
	s.line.add(cut, "", "the holder's host is cut off")
	require.NoError(t, s.net.Cut(s.clients[0], s.net.Host("zk1"), s.net.Host("zk2"), s.net.Host("zk3")))
	got := l.lostInTime(margin)
	require.Less(t, got.told.Sub(cut), 8*time.Second)
	require.Less(t, got.granted.Sub(cut), 20*time.Second, "the ensemble counts the short timeout, or there is nothing to see here")
	s.line.print(t)
	require.NoError(t, one.Start())
	s.whole()
	l.empty()
}
