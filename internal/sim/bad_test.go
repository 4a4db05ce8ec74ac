package sim

// These tests give bad histories to the simulation's checks, which must reject each.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// story is a correct history, with times in seconds: a holds, is paused, releases; c tries in vain
// meanwhile; b holds, is cut off and notified, and its session expires; a holds again. Events are
// ordered by their time.
type story struct {
	record
	a1, b1, c1, a2                *op // attempts
	again, inner, out1, out2      *op // a's re-entry and releases
	outB                          *op
	first, second, stale, reading *op // writes, and a read
}

func at(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }

func order(seconds float64) int64 { return int64(seconds * 1000) }

func (s *story) do(o op, from, to float64) *op {
	o.call, o.ret, o.at, o.end = order(from), order(to), at(from), at(to)
	s.ops = append(s.ops, &o)
	return &o
}

func (s *story) server(a zktest.Applied, seconds float64) {
	a.Time = at(seconds)
	s.applied = append(s.applied, a)
}

func node(i int) string { return fmt.Sprintf("/locks/a/n%d", i) }

func (s *story) creates(i int, owner string, session int64, zxid int64, seconds float64) {
	s.server(zktest.Applied{Kind: zktest.Created, Path: node(i), Session: session, Owner: session, Data: []byte(owner), Zxid: zxid}, seconds)
}

func (s *story) deletes(i int, session int64, zxid int64, seconds float64) {
	s.server(zktest.Applied{Kind: zktest.Deleted, Path: node(i), Session: session, Owner: session, Zxid: zxid}, seconds)
}

func (o *op) believes(until float64, lost bool) {
	o.until, o.untilAt, o.lost = order(until), at(until), lost
}

func newStory() *story {
	s := &story{record: record{start: at(0), last: order(100), pauses: []lapse{{0, order(5.2), order(5.8)}}}}
	s.creates(1, "a/1", 1, 1, 1.05)
	s.creates(2, "b/1", 2, 2, 2.05)
	s.creates(3, "c/1", 3, 3, 3.05)
	s.deletes(3, 3, 4, 3.5)
	s.deletes(1, 1, 5, 10)
	s.deletes(2, 2, 6, 20)
	s.server(zktest.Applied{Kind: zktest.Expired, Session: 2, Zxid: 6}, 20)
	s.creates(4, "a/2", 1, 7, 25)
	s.deletes(4, 1, 8, 30)

	s.a1 = s.do(op{did: acquired, owner: "a/1", client: 0, bound: time.Minute, node: node(1), token: 1, session: 1}, 1, 1.1)
	s.a1.believes(9.9, false)
	s.b1 = s.do(op{did: acquired, owner: "b/1", client: 1, bound: time.Minute, node: node(2), token: 2, session: 2}, 2, 10.1)
	s.b1.believes(18, true)
	s.c1 = s.do(op{did: tried, owner: "c/1", client: 2, bound: time.Second, err: zklock.ErrNotAcquired}, 3, 3.6)
	s.again = s.do(op{did: reentered, owner: "a/1", bound: time.Second, grant: s.a1, node: node(1), token: 1}, 5, 5.1)
	s.first = s.do(op{did: wrote, owner: "a/1", grant: s.a1, token: 1, value: 1, believed: true, accepted: true}, 6, 7)
	s.inner = s.do(op{did: released, owner: "a/1", bound: time.Second, grant: s.a1}, 9, 9.1)
	s.out1 = s.do(op{did: released, owner: "a/1", bound: time.Second, grant: s.a1}, 9.9, 10.05)
	s.second = s.do(op{did: wrote, owner: "b/1", client: 1, grant: s.b1, token: 2, value: 2, believed: true, accepted: true}, 11, 12)
	s.stale = s.do(op{did: wrote, owner: "a/1", grant: s.a1, token: 1, value: 3}, 13, 14)
	s.reading = s.do(op{did: readBack, token: 2, value: 2}, 15, 16)
	s.outB = s.do(op{did: released, owner: "b/1", client: 1, bound: time.Second, grant: s.b1, err: zklock.ErrLost}, 19, 19.1)
	s.a2 = s.do(op{did: acquired, owner: "a/2", client: 0, bound: time.Minute, node: node(4), token: 7, session: 1}, 24, 25.1)
	s.a2.believes(29, false)
	s.out2 = s.do(op{did: released, owner: "a/2", bound: time.Second, grant: s.a2, err: zklock.ErrNotConfirmed}, 29, 30.4)
	return s
}

func (s *story) appliedTo(i int, k zktest.Kind) *zktest.Applied {
	for j := range s.applied {
		if s.applied[j].Path == node(i) && s.applied[j].Kind == k {
			return &s.applied[j]
		}
	}
	panic("no such change")
}

// The checks detect mistakes: each gets the history above with one event wrong.
func TestSimulation_ChecksRefuseBadHistories(t *testing.T) {
	for _, c := range []struct {
		what string
		want string // a part of the violation; "" if the history is good
		bad  func(s *story)
	}{
		{"as it should be", "", func(*story) {}},
		{"granted on a node that never was", "I3: granted on a node that never was", func(s *story) { s.b1.node = "/locks/a/other" }},
		{"granted on somebody else's node", "I2: granted on the node of b/1", func(s *story) { s.appliedTo(1, zktest.Created).Data = []byte("b/1") }},
		{"granted on a node of another session", "I3: granted in session 0x9", func(s *story) { s.b1.session = 9 }},
		{"granted after the node was deleted", "I3: granted", func(s *story) { s.appliedTo(2, zktest.Deleted).Time = at(10.08) }},
		{"granted after an admin deleted the node", "", func(s *story) {
			d := s.appliedTo(2, zktest.Deleted)
			d.Time, d.Session = at(10.08), 0
		}},
		{"granted past somebody in the queue", "I1, I8: granted while /locks/a/n1", func(s *story) { s.appliedTo(1, zktest.Deleted).Time = at(10.2) }},
		{"a node ahead is there for ever", "I1, I8: granted while /locks/a/n3", func(s *story) { s.appliedTo(3, zktest.Deleted).Path = "/locks/a/other" }},
		{"the token is another node's", "I1: the token is not the czxid", func(s *story) { s.b1.token = 3 }},
		{"tokens fall", "I1: after the token 0x2", func(s *story) { s.a2.token = 1 }},
		{"told after the next grant", "I5: granted while the holder", func(s *story) { s.b1.believes(26, true) }},
		{"told after the next grant, whose node an admin deleted later", "I5: granted while the holder", func(s *story) {
			s.b1.believes(26, true)
			s.appliedTo(4, zktest.Deleted).Session = 0
		}},
		{"tokens fall, and an admin deleted the node later", "I1: after the token 0x2", func(s *story) {
			s.a2.token = 1
			s.appliedTo(2, zktest.Deleted).Session = 0
		}},
		{"never told", "I5: granted while the holder", func(s *story) { s.b1.until = 0 }},
		{"told after the next grant, its session killed", "", func(s *story) {
			s.killed = []int64{2}
			s.b1.believes(26, true)
			s.outB.call, s.outB.ret = order(27), order(28)
		}},
		{"told at the first look after a pause, after the next grant", "", func(s *story) {
			s.pauses = append(s.pauses, lapse{1, order(17), order(26.5)})
			s.b1.believes(26, true)
			s.outB.call, s.outB.ret = order(27), order(28)
		}},
		{"not told at the first look after a pause", "I5: granted while the holder", func(s *story) {
			s.pauses = append(s.pauses, lapse{1, order(17), order(25.5)})
			s.b1.believes(26, true)
		}},
		{"an owner with two nodes", "I2: a/1 made /locks/a/n3 while its /locks/a/n1", func(s *story) { s.appliedTo(3, zktest.Created).Data = []byte("a/1") }},
		{"an owner with two nodes, of two attempts", "I2: a/2 made /locks/a/n4 while its /locks/a/n1", func(s *story) { s.appliedTo(1, zktest.Deleted).Zxid = 9 }},
		{"an owner with a node whose release was not confirmed", "", func(s *story) {
			s.appliedTo(1, zktest.Deleted).Zxid, s.out1.err = 9, zklock.ErrNotConfirmed
		}},
		{"re-entered on another node", "I2: re-entered", func(s *story) { s.again.node = node(2) }},
		{"a call that outstays its bound", "I6: took 1.2s", func(s *story) { s.c1.end, s.c1.bound = at(4.2), 600*time.Millisecond }},
		{"a release that is confirmed too early", "I4: confirmed, and /locks/a/n1 was there", func(s *story) { s.out1.end = at(9.95) }},
		{"a try that looked, and made no node", "", func(s *story) {
			s.c1.owner, s.c1.err = "c/9", &zklock.Error{Path: "/locks/a", Err: zklock.ErrNotAcquired}
		}},
		{"a try that looked, refused by nobody", "refused, and nobody was ahead", func(s *story) {
			s.c1.owner, s.c1.err = "c/9", &zklock.Error{Path: "/locks/b", Err: zklock.ErrNotAcquired}
		}},
		{"a try during a lock-delay", "", func(s *story) {
			s.c1.owner, s.c1.err = "c/9", &zklock.Error{Path: "/locks/b", Err: zklock.ErrNotAcquired, DelayUntil: s.c1.end.Add(delay)}
			s.server(zktest.Applied{Kind: zktest.Created, Path: "/locks/b/n9", Session: 9, Owner: 9, Zxid: 0x101}, 0.4)
			s.server(zktest.Applied{Kind: zktest.DataSet, Path: "/locks/b", Data: []byte("held=n9")}, 0.5)
			s.server(zktest.Applied{Kind: zktest.Deleted, Path: "/locks/b/n9", Session: 9, Owner: 9, Zxid: 0x102}, 0.6)
		}},
		{"a try during a lock-delay without a holder that disappeared", "refused, and nobody was ahead", func(s *story) {
			s.c1.owner, s.c1.err = "c/9", &zklock.Error{Path: "/locks/b", Err: zklock.ErrNotAcquired, DelayUntil: s.c1.end.Add(delay)}
		}},
		{"a try refused by nobody", "refused, and nobody was ahead", func(s *story) {
			s.appliedTo(1, zktest.Deleted).Zxid = 0x2
			s.appliedTo(2, zktest.Deleted).Zxid = 0x2
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newStory()
			c.bad(s)
			said := s.check(map[string]int{})
			if c.want == "" {
				require.Empty(t, said)
				return
			}
			require.Contains(t, strings.Join(said, "\n"), c.want)
		})
	}
}

// The models that porcupine compares a history with also detect mistakes.
func TestSimulation_ModelsRefuseBadHistories(t *testing.T) {
	for _, c := range []struct {
		what string
		want string // which model; "" if the history is good
		bad  func(s *story)
	}{
		{"as it should be", "", func(*story) {}},
		{"two holders", "mutex", func(s *story) { s.b1.ret = order(9) }},
		{"two holders, in the release of the first", "", func(s *story) { s.b1.ret = order(9.95) }},
		{"granted before the holder was told", "mutex", func(s *story) { s.a2.call, s.a2.ret = order(16), order(17) }},
		{"granted before a holder that was told by its release", "mutex", func(s *story) {
			s.b1.believes(19, false)
			s.a2.call, s.a2.ret = order(16), order(17)
		}},
		{"granted after a holder that was told by its release", "", func(s *story) { s.b1.believes(19, false) }},
		{"granted before the holder was told, whose node an admin deleted", "", func(s *story) {
			s.appliedTo(2, zktest.Deleted).Session = 0
			s.a2.call, s.a2.ret = order(16), order(17)
		}},
		{"granted before the holder was told, which was paused", "", func(s *story) {
			s.pauses = append(s.pauses, lapse{1, order(15), order(18.5)})
			s.a2.call, s.a2.ret = order(16), order(17)
		}},
		{"a token given twice", "mutex", func(s *story) { s.a2.token = 2 }},
		{"a hold re-entered that was lost", "mutex", func(s *story) {
			s.do(op{did: reentered, owner: "b/1", grant: s.b1, node: node(2), token: 2}, 18.5, 18.6)
		}},
		{"a hold re-entered by somebody else", "mutex", func(s *story) { s.again.owner = "b/1" }},
		{"a release of a hold that was lost", "mutex", func(s *story) { s.outB.err = nil }},
		{"a release of a lock that was released", "mutex", func(s *story) {
			s.do(op{did: released, owner: "a/1", grant: s.a1}, 22, 23)
		}},
		{"a re-entry that was not counted", "mutex", func(s *story) { s.b1.ret = order(9.2) }},
		{"an unconfirmed release that takes effect late", "", func(s *story) {
			g := s.do(op{did: acquired, owner: "b/2", client: 1, node: node(5), token: 9}, 31, 32)
			g.believes(33, false)
		}},
		{"granted before an unconfirmed release", "mutex", func(s *story) {
			g := s.do(op{did: acquired, owner: "b/2", client: 1, node: node(5), token: 9}, 27, 28)
			g.believes(33, false)
		}},
		{"a stale write accepted", "register", func(s *story) { s.stale.accepted = true }},
		{"a holder's write refused", "register", func(s *story) { s.second.accepted = false }},
		{"a believer's write refused for a later token", "register", func(s *story) { s.stale.believed = true }},
		{"a read of what was overwritten", "register", func(s *story) { s.reading.token, s.reading.value = 1, 1 }},
		{"a read of what was never written", "register", func(s *story) { s.reading.value = 3 }},
		{"a read beside the write", "", func(s *story) {
			s.reading.call, s.reading.token, s.reading.value = order(11.5), 1, 1
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newStory()
			c.bad(s)
			said := strings.Join(s.linearizable(map[string]int{}), "\n")
			if c.want == "" {
				require.Empty(t, said)
				return
			}
			require.Contains(t, said, "the history of the "+c.want+" is not linearizable")
		})
	}
}
