//go:build linux

package cutup_test

// An unresponsive server: no packet of it arrives any more, and no error reports that.

import (
	"flag"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/cutup"
	"github.com/zklock/zklock/internal/zkserver"
)

var darkHolds = flag.Int("chaos.dark", 4, "how many holds of each session timeout are on the server that goes dark")

// attachedTo has a Session attach to one server of several. Until sendOn is called, all other
// servers refuse it.
func attachedTo(from *cutup.Host, only *zkserver.Server) (opt zklock.Option, sendOn func()) {
	var free atomic.Bool
	return zklock.WithDialer(func(network, addr string, timeout time.Duration) (net.Conn, error) {
		if addr != only.Addr() && !free.Load() {
			return nil, syscall.ECONNREFUSED
		}
		return from.Dial(network, addr, timeout)
	}), func() { free.Store(true) }
}

// darken opens lanes of usual session timeouts on a server, and cuts it off from all hosts, when
// the lanes are at different points between two heartbeats.
func (s *scene) darken(srv *zkserver.Server, what string) (lanes []*lane, at time.Time) {
	s.t.Helper()
	all := s.ens.ConnectString()
	var free []func()
	for _, timeout := range []time.Duration{10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second} {
		for i := range *darkHolds {
			only, sendOn := attachedTo(s.clients[0], srv)
			free = append(free, sendOn)
			lanes = append(lanes, s.open(fmt.Sprintf("T %v no %d", timeout, i+1),
				s.connect(s.clients[0], all, timeout, only), s.connect(s.clients[1], all, timeout)))
		}
	}
	for _, sendOn := range free {
		sendOn()
	}
	others := []*cutup.Host{s.clients[0], s.clients[1]}
	for _, o := range s.others(srv) {
		others = append(others, s.host(o))
	}
	for _, l := range lanes {
		l.sureToHold()
	}
	at = s.line.start(what)
	require.NoError(s.t, s.net.Cut(s.host(srv), others...))
	return lanes, at
}

// F41, I5: a follower stops responding, and the other servers are healthy. Every hold remains
// valid, for any usual session timeout with the default lease.
func TestF41_FollowerGoesDark_NoHoldIsLost(t *testing.T) {
	s := newScene(t)
	_, followers := s.roles()
	lanes, dark := s.darken(followers[0], "a follower goes dark")
	for _, l := range lanes {
		require.True(t, l.renewed(dark), "F41: %s: lost: %v", l.name, l.hold.Err())
		l.kept()
	}
	t.Logf("dark follower: %d of %d holds stood", len(lanes), len(lanes))
	s.whole()
	for _, l := range lanes {
		l.empty()
	}
}

// F41, I5: the leader stops responding. A hold remains valid if its lease outlasts the time to the
// next leader; otherwise the holder is notified before the next grant.
func TestF41_LeaderGoesDark_HoldsStandOrAreLostInTime(t *testing.T) {
	s := newScene(t)
	leader, _ := s.roles()
	lanes, dark := s.darken(leader, "the leader goes dark")
	stood, lost := map[time.Duration]int{}, map[time.Duration]int{}
	for _, l := range lanes {
		if l.renewed(dark) {
			stood[l.timeout]++
			l.kept()
			continue
		}
		lost[l.timeout]++
		l.lostInTime(0)
	}
	for _, timeout := range []time.Duration{10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second} {
		t.Logf("dark leader, T = %v: %d holds stood, %d were lost in time", timeout, stood[timeout], lost[timeout])
	}
	s.whole()
	for _, l := range lanes {
		l.empty()
	}
}
