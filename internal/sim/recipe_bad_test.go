package sim

// These tests give bad histories to the checks of single recipes, which must reject each.

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// shareStory is a correct history of readers and writers: r1 and r2 read together, w writes, reads
// as well, and reads on after it has released the write lock; x writes.
type shareStory struct {
	story
	r1, r2, w, wr, x *op
}

func (s *shareStory) node(name string, owner string, session, zxid int64, made, deleted float64) string {
	p := "/locks/a/_c_1d245847-89dc-4579-b9f5-ad7ea6894cb6-" + name
	s.server(zktest.Applied{Kind: zktest.Created, Path: p, Session: session, Owner: session, Data: []byte(owner), Zxid: zxid}, made)
	s.server(zktest.Applied{Kind: zktest.Deleted, Path: p, Session: session, Owner: session, Zxid: zxid + 100}, deleted)
	return p
}

func newShareStory() *shareStory {
	s := &shareStory{story: story{record: record{start: at(0), last: order(100)}}}
	grant := func(g op, node string, session int64, from, to, until float64) *op {
		g.did, g.bound, g.node, g.session = acquired, time.Minute, node, session
		o := s.do(g, from, to)
		o.believes(until, false)
		s.do(op{did: released, owner: g.owner, bound: time.Second, grant: o, shared: g.shared}, until, until+0.1)
		return o
	}
	s.r1 = grant(op{owner: "a/1", shared: true, token: 1}, s.node("__READ__0000000001", "a/1", 1, 1, 1.05, 5), 1, 1, 1.1, 4.95)
	s.r2 = grant(op{owner: "b/1", shared: true, token: 2}, s.node("__READ__0000000002", "b/1", 2, 2, 2.05, 6), 2, 2, 2.1, 5.95)
	s.w = grant(op{owner: "c/1", token: 3}, s.node("__WRIT__0000000003", "c/1", 3, 3, 3.05, 9), 3, 3, 6.1, 8.95)
	s.wr = grant(op{owner: "c/1", token: 3, shared: true, beside: s.w}, s.node("__READ__0000000003", "c/1", 3, 5, 7.05, 12), 3, 7, 7.1, 11.95)
	s.x = grant(op{owner: "d/1", token: 4}, s.node("__WRIT__0000000004", "d/1", 4, 4, 4.05, 14), 4, 4, 12.1, 13.95)
	return s
}

// The checks and the model find a reader beside a writer, and wrong tokens.
func TestSimulation_SharesRefuseBadHistories(t *testing.T) {
	for _, c := range []struct {
		what, want string
		isInModel  bool
		bad        func(s *shareStory)
	}{
		{"as it should be", "", false, func(*shareStory) {}},
		{"a writer beside a reader", "I5: granted while the holder", true, func(s *shareStory) { s.r2.believes(7, false); s.ops[3].call = order(7); s.ops[3].ret = order(7.1) }},
		{"a writer granted past a reader's node", "I1, I8: granted while", false, func(s *shareStory) { s.applied[3].Time = at(6.2) }},
		{"a writer beside the read hold of a writer", "I5: granted while the holder", true, func(s *shareStory) { s.x.ret, s.x.end = order(10), at(10) }},
		{"granted past the reader's node of a writer", "I1, I8: granted while", false, func(s *shareStory) { s.applied[7].Time = at(12.2) }},
		{"a reader beside a writer", "I5: granted while the holder", true, func(s *shareStory) {
			g := s.do(op{did: acquired, owner: "e/1", shared: true, token: 6, bound: time.Minute, node: s.node("__READ__0000000006", "e/1", 5, 6, 12.5, 15), session: 5}, 12.4, 13)
			g.believes(14, false)
		}},
		{"a reader granted past a writer's node", "I1, I8: granted while", true, func(s *shareStory) {
			g := s.do(op{did: acquired, owner: "e/1", shared: true, token: 6, bound: time.Minute, node: s.node("__READ__0000000006", "e/1", 5, 6, 12.5, 15), session: 5}, 12.4, 13)
			g.believes(14, false)
		}},
		{"the read hold of a writer has its own token", "I1: the token is not the czxid", true, func(s *shareStory) { s.wr.token = 5 }},
		{"a reader has an earlier token than the last writer", "I1: after the token 0x4", true, func(s *shareStory) {
			g := s.do(op{did: acquired, owner: "e/1", shared: true, token: 2, bound: time.Minute, node: s.node("__READ__0000000006", "e/1", 5, 6, 15, 18), session: 5}, 15, 16)
			g.believes(17, false)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newShareStory()
			c.bad(s)
			said, model := strings.Join(s.check(map[string]int{}), "\n"), strings.Join(s.linearizable(map[string]int{}), "\n")
			if c.want == "" {
				require.Empty(t, said+model)
				return
			}
			require.Contains(t, said, c.want)
			require.Equal(t, c.isInModel, strings.Contains(model, "not linearizable"), model)
		})
	}
}

// The check of the permits finds a permit too many, and a call that is not woken.
func TestSimulation_PermitsRefuseBadHistories(t *testing.T) {
	for _, c := range []struct {
		what, want string
		bad        func(r *record, gs []*op)
	}{
		{"as it should be", "", func(*record, []*op) {}},
		{"one permit too many", "I1: 4 permits in use, and a limit of at most 3", func(_ *record, gs []*op) { gs[0].until = order(30) }},
		{"with a limit that was larger during the call", "", func(r *record, gs []*op) {
			gs[0].until = order(30)
			r.limits = append(r.limits, limit{n: 4, from: order(14), to: order(15)}, limit{n: 3, from: order(16), to: order(17)})
		}},
		{"with a limit that was larger before the call", "I1: 4 permits in use", func(r *record, gs []*op) {
			gs[0].until = order(30)
			r.limits = append(r.limits, limit{n: 4, from: order(1), to: order(2)}, limit{n: 3, from: order(3), to: order(4)})
		}},
		{"one too many behind the last of the grant", "", func(r *record, gs []*op) {
			gs[0].until = order(30)
			gs[2].nodes = []string{"/locks/a/leases/x-lease-0000000000"}
			r.applied = append(r.applied, zktest.Applied{Kind: zktest.Created, Path: gs[2].nodes[0], Owner: 1, Zxid: 1})
		}},
		{"an admin deleted a lease of the first", "", func(r *record, gs []*op) {
			gs[0].until = order(30)
			r.applied = append(r.applied, zktest.Applied{Kind: zktest.Deleted, Path: gs[0].nodes[0], Zxid: 9, Time: at(12)})
		}},
		{"leases are missing", "I1: 1 leases for 2 permits", func(_ *record, gs []*op) { gs[0].nodes = gs[0].nodes[:1] }},
		{"a call that waits on", "F48: waited in vain", func(r *record, _ []*op) {
			r.ops = append(r.ops, &op{did: acquired, permits: 1, err: context.DeadlineExceeded, at: at(41), end: at(40).Add(patience + time.Second)})
		}},
		{"a call that ended before it had to be granted", "", func(r *record, _ []*op) {
			r.ops = append(r.ops, &op{did: acquired, permits: 1, err: context.DeadlineExceeded, at: at(41), end: at(40).Add(patience - time.Second)})
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := &record{healed: at(40), limits: []limit{{n: 3, to: 1}}}
			number := 0
			grant := func(k int, from, to, until float64) *op {
				g := &op{did: acquired, permits: k, call: order(from), ret: order(to), until: order(until), at: at(from), end: at(to)}
				for range k {
					number++
					g.nodes = append(g.nodes, fmt.Sprintf("/locks/a/leases/x-lease-%010d", number))
					r.applied = append(r.applied, zktest.Applied{Kind: zktest.Created, Path: g.nodes[len(g.nodes)-1], Owner: 1, Zxid: int64(number)})
				}
				r.ops = append(r.ops, g)
				return g
			}
			gs := []*op{grant(2, 1, 2, 15), grant(1, 5, 6, 30), grant(1, 13, 18, 25)}
			c.bad(r, gs)
			byPath, _ := r.nodes()
			said := strings.Join(r.checkPermits(byPath, map[string]int{}), "\n")
			if c.want == "" {
				require.Empty(t, said)
				return
			}
			require.Contains(t, said, c.want)
		})
	}
}

// The check of work that is done once finds work that begins again.
func TestSimulation_OnceRefusesBadHistories(t *testing.T) {
	for _, c := range []struct {
		what, want string
		bad        func(first, second *op)
	}{
		{"as it should be", "", func(_, _ *op) {}},
		{"begun again", "work-7 is begun again", func(_, second *op) { second.point, second.believed = order(6), true }},
		{"begun again without the lock", "", func(_, second *op) { second.point = order(6) }},
		{"begun again, its node deleted by an admin", "", func(_, second *op) { second.point, second.believed, second.grant.node = order(6), true, "taken" }},
		{"begun again, and an admin deleted its node later", "work-7 is begun again", func(_, second *op) {
			second.point, second.believed, second.grant.node = order(6), true, "taken later"
		}},
		{"begun again on a node that never was", "work-7 is begun again", func(_, second *op) {
			second.point, second.believed, second.grant.node = order(6), true, "none"
		}},
		{"begun again after a call without success", "", func(first, second *op) {
			first.err = context.DeadlineExceeded
			second.point, second.believed = order(6), true
		}},
		{"other work is begun", "", func(_, second *op) { second.value, second.point, second.believed = 8, order(6), true }},
		{"reported as done, and not begun", "work-7 is reported as done", func(first, _ *op) { first.point = 0 }},
	} {
		t.Run(c.what, func(t *testing.T) {
			first := &op{did: once, value: 7, call: order(1), point: order(2), believed: true, ret: order(4)}
			second := &op{did: once, value: 7, call: order(3), ret: order(7), grant: &op{node: "own", end: at(6)}}
			c.bad(first, second)
			byPath := map[string]*lockNode{"own": {}, "taken": {touched: true, deleted: at(5)}, "taken later": {touched: true, deleted: at(8)}}
			said := strings.Join((&record{ops: []*op{first, second}}).checkOnce(byPath, map[string]int{}), "\n")
			require.Equal(t, c.want == "", said == "", said)
			require.Contains(t, said, c.want)
		})
	}
}

// The check of the lock-delay finds a grant that is too early, and records that are wrong.
func TestSimulation_LockDelayRefusesBadHistories(t *testing.T) {
	node := func(k zktest.Kind, name string, zxid int64, seconds float64) zktest.Applied {
		return zktest.Applied{Kind: k, Path: "/locks/a/" + name, Zxid: zxid, Time: at(seconds)}
	}
	names := func(data string, zxid int64, seconds float64) zktest.Applied {
		return zktest.Applied{Kind: zktest.DataSet, Path: "/locks/a", Data: []byte(data), Zxid: zxid, Time: at(seconds)}
	}
	for _, c := range []struct {
		what, want string
		bad        func(h []zktest.Applied) []zktest.Applied
	}{
		{"as it should be", "", func(h []zktest.Applied) []zktest.Applied { return h }},
		{"granted too early", "n2 is granted 2.5s after n1 disappeared", func(h []zktest.Applied) []zktest.Applied { h[4].Time = at(7.5); return h }},
		{"the record names a node that is gone", "which does not exist", func(h []zktest.Applied) []zktest.Applied { h[4].Data = []byte("held=n9"); return h }},
		{"granted beside the holder", "is granted beside n1", func(h []zktest.Applied) []zktest.Applied { return append(h[:3:3], h[4:]...) }},
		{"a record is deleted without its node", "is deleted without its node", func(h []zktest.Applied) []zktest.Applied { h[5].Path = "/locks/b/n2"; return h }},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := []zktest.Applied{
				node(zktest.Created, "n1", 1, 1), names("held=n1", 2, 1.1), node(zktest.Created, "n2", 3, 2),
				node(zktest.Deleted, "n1", 4, 5), names("x=1 held=n2", 5, 8.1),
				node(zktest.Deleted, "n2", 6, 9), names("x=1", 6, 9), // a release
				node(zktest.Created, "n3", 7, 9.1), names("x=1 held=n3", 8, 9.2),
			}
			said := strings.Join(checkDelays(c.bad(h), "/locks/a", delay, map[string]int{}), "\n")
			require.Equal(t, c.want == "", said == "", said)
			require.Contains(t, said, c.want)
		})
	}
}
