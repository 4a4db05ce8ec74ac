//go:build linux

package cutup_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

// F12, I5, R36: the central case. The holder's server, a follower, is cut off from the other
// servers. It still responds to the holder's pings and reads, while the leader expires the session
// and the next client is granted. Our holder is notified before; Curator's, in the same run on the
// same servers, shows its own behaviour.
func TestF12_HolderOnACutOffFollower_IsNotifiedBeforeTheNextGrant(t *testing.T) {
	minority(t, "f12.svg", f12Title, true, func(_ *zkserver.Server, followers []*zkserver.Server) *zkserver.Server { return followers[0] })
}

// F13, I5, R37: the same with the leader, which is deposed.
func TestF13_HolderOnADeposedLeader_IsNotifiedBeforeTheNextGrant(t *testing.T) {
	minority(t, "f13.svg", "The holder's server, the leader, is cut off from the other servers", false, func(leader *zkserver.Server, _ []*zkserver.Server) *zkserver.Server { return leader })
}

// minority cuts off the server that which returns. With tells, Curator's holder with the shortest
// session must be notified too late: otherwise the run could not detect a violation.
func minority(t *testing.T, file, title string, tells bool, which func(leader *zkserver.Server, followers []*zkserver.Server) *zkserver.Server) {
	asked(t)
	classPath := compileRace(t)
	s := newScene(t)
	own := which(s.roles())
	others := addrs(s.others(own)...)

	var lanes []*lane
	for _, timeout := range []time.Duration{8 * time.Second, 10 * time.Second} {
		lanes = append(lanes, s.open(fmt.Sprintf("zklock %v", timeout),
			s.connect(s.clients[0], own.Addr(), timeout), s.connect(s.clients[1], others, timeout)))
	}
	r := startRace(t, classPath, s.clients[0], own.Addr(), others, 6*time.Second, 8*time.Second, 10*time.Second)
	p := s.probe(s.clients[0], own)
	time.Sleep(rand.N(4 * tick)) // any moment between two of the leader's pings, with sessions young and older
	for _, l := range lanes {
		l.sureToHold()
	}

	cut := s.line.start(fmt.Sprintf("server %d is cut off from the others", own.ID()))
	s.isolate(own)
	results := make([]handedOver, len(lanes))
	for i, l := range lanes {
		results[i] = l.lostInTime(margin)
	}
	r.all(t, "granted")
	r.all(t, "LOST")
	silent := p.silence(t)
	s.line.add(silent, "", fmt.Sprintf("server %d answers its last ping", own.ID()))
	var curator []handedOver
	for _, ms := range []int{6000, 8000, 10000} {
		seen := r.events[ms]
		name := fmt.Sprintf("Curator %v", time.Duration(ms)*time.Millisecond)
		for event, what := range map[string]string{"granted": "the next one has the lock", "SUSPENDED": "the holder's listener is told: SUSPENDED", "LOST": "the holder's listener is told: LOST"} {
			require.True(t, seen[event].After(cut), "%s: %s before the cut", name, event)
			s.line.add(seen[event], name, what)
		}
		curator = append(curator, handedOver{told: seen["SUSPENDED"], granted: seen["granted"]})
	}
	s.line.print(t)
	for i, l := range lanes {
		t.Logf("%s", results[i].say(l.name, cut))
	}
	for i, name := range []string{"Curator 6s", "Curator 8s", "Curator 10s"} {
		t.Logf("%s (SUSPENDED)", curator[i].say(name, cut))
	}
	if tells {
		require.Greater(t, curator[0].told.Sub(curator[0].granted), margin, "waiting for the disconnection is early enough: the server that is cut off does not go on answering")
	}
	var tracks []track
	for i, l := range lanes {
		tracks = append(tracks, track{l.name, "", results[i].told.Sub(cut), results[i].granted.Sub(cut)})
	}
	for i, name := range []string{"Curator 6s", "Curator 8s", "Curator 10s"} {
		tracks = append(tracks, track{name, " SUSPENDED", curator[i].told.Sub(cut), curator[i].granted.Sub(cut)})
	}
	picture(t, file, draw(title, silent.Sub(cut), tracks))
	s.whole()
	for _, l := range lanes {
		l.empty()
	}
}
