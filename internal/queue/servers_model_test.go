package queue

// What the explorers' worlds have in common: ZooKeeper's servers. Each explorer adds its clients.

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/explore"
)

var exploreAll = flag.Bool("explore.all", false, "explore the large bounds too, which takes minutes and some GB")

const (
	mostBehind   = 2 // transactions that a server may be behind, if not fewer
	mostSessions = 4
)

// servers are a leader, which executes transactions in one order, and a server for each session,
// which applies them in that order, some time later. S is the state that they change. An event
// carries no zxid, so the server of the next connection may be behind it, but never behind a
// response. (The explorer of the queue is stricter: its sessions never see less than an event.)
type servers[S any] struct {
	hist     [mostBehind + 1]S // the leader's state, and those before it
	link     [mostSessions]link
	most     uint8 // transactions that a server may be behind
	numbered bool  // connections differ by their number
}

// link is the connection of one session.
type link struct {
	conn, lost uint8 // its number, 0 if it is not connected; how many were lost, if they are numbered
	cut        bool  // its server ends it, because the session has ended
	lag, seen  uint8 // how many transactions its server is behind, and how many the last response was
}

func (v *servers[S]) leader() *S { return &v.hist[0] }

func (v *servers[S]) view(i uint8) *S { return &v.hist[v.link[i].lag] }

func (v *servers[S]) isOn(i uint8) bool { return v.link[i].conn > 0 }

// start connects the sessions to servers that have applied all transactions.
func (v *servers[S]) start(sessions int, s S) {
	if v.most == 0 {
		v.most = mostBehind
	}
	for i := range v.hist {
		v.hist[i] = s
	}
	for i := range sessions {
		v.link[i].conn = 1
	}
}

func (v *servers[S]) canCommit() bool {
	for _, l := range v.link {
		if l.conn > 0 && !l.cut && l.lag >= v.most {
			return false
		}
	}
	return true
}

// commit executes a transaction at the leader.
func (v *servers[S]) commit(f func(s *S)) {
	copy(v.hist[1:], v.hist[:mostBehind])
	f(v.leader())
	for i := range v.link {
		l := &v.link[i]
		l.lag, l.seen = min(l.lag+1, v.most), min(l.seen+1, v.most)
	}
}

// answered is the response to a transaction or a sync.
func (v *servers[S]) answered(i uint8) { v.link[i].lag, v.link[i].seen = 0, 0 }

// read is the response to a read.
func (v *servers[S]) read(i uint8) S {
	v.link[i].seen = v.link[i].lag
	return *v.view(i)
}

func (v *servers[S]) lose(i uint8) {
	if v.link[i].conn = 0; v.numbered {
		v.link[i].lost++
	}
}

// next gives what a session's connection may become by itself: its server applies a transaction, or
// it is connected again.
func (v *servers[S]) next(i uint8, take func(what string, l link)) {
	l := v.link[i]
	if l.conn > 0 && l.lag > 0 {
		l.lag--
		take("has its server apply a transaction", l)
	}
	if l.conn == 0 {
		l.conn = l.lost + 1
		for l.lag = range l.seen + 1 {
			take(fmt.Sprintf("is connected again, to a server that is %d behind", l.lag), l)
		}
	}
}

// scene is a world of an explorer X. A big one takes minutes: -explore.all.
type scene[X any] struct {
	name string
	big  bool
	x    X
}

// exploreAllOf explores the scenes: no promise breaks in any. reached then checks that a scene has
// reached the states that it is for.
func exploreAllOf[X any](t *testing.T, scenes []scene[X], run func(x *X) explore.Found, reached func(t *testing.T, x *X)) {
	for _, s := range scenes {
		if s.big && !*exploreAll {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			f := run(&s.x)
			require.Empty(t, f.Broken, "%v", f)
			t.Logf("%d states in %.1f s, and no promise broken in any", f.States, f.Took.Seconds())
			reached(t, &s.x)
		})
	}
}

// mistake is a world in which a rule is left out, and the promise that then breaks.
type mistake[X any] struct {
	rule string
	x    X
	want string // a regular expression; "" if none breaks, because other rules suffice in the model
}

// refuteAllOf finds the consequence of each mistake, by the fewest steps. With -v it prints them.
func refuteAllOf[X any](t *testing.T, mistakes []mistake[X], run func(x *X) explore.Found) {
	for _, m := range mistakes {
		t.Run(m.rule, func(t *testing.T) {
			f := run(&m.x)
			require.Regexp(t, "^("+m.want+")$", f.Broken, "%v", f)
			t.Log(f)
		})
	}
}
