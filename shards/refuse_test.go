package shards

// These tests attack a group by its input, in virtual time: other numbers of shards, names that are
// taken, plans and paths that are not ours, and what the servers refuse. Nothing may move, and
// errors say what to do.

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// about returns the lines that have the text.
func (b *logBook) about(text string) (lines []string) {
	for _, line := range b.all() {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// steady fails if a shard moves or is without an owner in the next minute.
func (w *world) steady(what string) {
	w.t.Helper()
	w.reset()
	starts := w.starts
	time.Sleep(time.Minute)
	require.True(w.t, w.isComplete(), what)
	require.Equal(w.t, starts, w.starts, what)
}

func TestVirtual_New_BadInput(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		for _, c := range []struct {
			path string
			n    int
			opt  Option
			says string
		}{
			{"orders", 1, WithWeight(1), "path"},
			{"/orders/", 1, WithWeight(1), "path"},
			{"/orders", 0, WithWeight(1), "0 shards: give 1 to 10000"},
			{"/orders", 10_001, WithWeight(1), "10001 shards: give 1 to 10000"},
			{"/orders", 1, WithWeight(-1), "WithWeight(-1): give 0 to 1000"},
			{"/orders", 1, WithWeight(1001), "WithWeight(1001)"},
			{"/orders", 1, WithMember("", nil), "WithMember"},
			{"/orders", 1, WithMember(strings.Repeat("x", 129), nil), "WithMember"},
			{"/orders", 1, WithMember("a\xff", nil), "WithMember"},
			{"/orders", 1, WithMember("a", make([]byte, 1025)), "1025 bytes of data"},
			{"/orders", 1, WithQuiet(-time.Second), "WithQuiet(-1s)"},
			{"/orders", 1, WithACL(nil), "ACL"},
			{"/orders", 1, nil, "nil Option"},
		} {
			_, err := New(s, c.path, c.n, c.opt)
			require.ErrorContains(t, err, c.says)
		}
		_, err := New(nil, "/orders", 1)
		require.ErrorContains(t, err, "Session")
		g, err := New(s, groupPath, 1)
		require.NoError(t, err)
		require.ErrorContains(t, g.Run(w.t.Context(), nil), "nil")
		_, err = g.Holder(w.t.Context(), 1)
		require.ErrorContains(t, err, "shard 1: give 0 to 0")
		_, err = g.SetShards(w.t.Context(), 0)
		require.ErrorContains(t, err, "0 shards")
	})
}

func TestVirtual_Run_Twice(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.started(1)
		p := w.procs[0]
		require.ErrorContains(t, p.g.Run(w.t.Context(), p.work), "under way")
		p.cancel()
		<-p.done
		p.start() // again
		w.within(3*time.Second, "again", w.isComplete)
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Two members have one name: the earlier one counts. The other waits, says so, and takes over when
// the earlier one leaves.
func TestVirtual_SameName(t *testing.T) {
	for _, how := range []string{"leaves", "crashes"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, 64, func(t *testing.T, w *world) {
				w.started(2)
				first := w.procs[0]
				second := w.join(first.name)
				w.steady("after a second member of one name")
				loads, _ := w.loads()
				require.Equal(t, 64, loads["m00"]+loads["m01"])
				require.True(t, second.g.Stats().NameTaken)
				require.Zero(t, second.g.Stats().Working)
				require.NotEmpty(t, w.logs.about("another member has this name"))
				if how == "leaves" {
					first.leave()
				} else {
					first.crash()
				}
				w.within(afterCrash, "taken over", w.isComplete)
				require.False(t, second.g.Stats().NameTaken)
				require.Equal(t, 32, second.g.Stats().Working)
				moves, _ := w.reset()
				require.Zero(t, moves)
			})
		})
	}
}

// Somebody writes garbage, or a plan of a later format: nobody touches it, and everybody works on.
// When it is emptied, the members follow it again, and nothing moves.
func TestVirtual_BadPlan(t *testing.T) {
	for what, data := range map[string]string{
		"garbage":                           "hello",
		"another's":                         `{"leader":"me"}`,
		"a wrong index":                     `{"format":1,"members":[],"shards":[0]}`,
		"a later format":                    `{"format":2,"owners":{}}`,
		"a later format, with other shards": `{"format":2,"shards":{"a":[1,2]}}`,
		"a negative number":                 `{"format":1,"members":[],"shards":[],"crashes":-1}`,
		"half of the plan":                  `{"format":1,"members":[{"na`,
		"a number too long":                 `{"format":1,"members":[],"shards":[99999999999999999999]}`,
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 64, func(t *testing.T, w *world) {
				w.started(2)
				w.join("m02") // so that the plan is not that of a start
				w.within(w.quiet+time.Second, "even", w.isEven)
				good, _ := w.srv.Get(groupPath + "/plan")
				require.NoError(t, w.srv.SetData(groupPath+"/plan", []byte(data)))
				w.steady("with a bad plan")
				got, _ := w.srv.Get(groupPath + "/plan")
				require.Equal(t, data, string(got))
				require.NotEmpty(t, w.logs.about("cannot read the plan"))
				require.Len(t, w.logs.about("cannot plan"), 1)

				p := w.join("new")
				w.within(time.Second, "rejected", func() bool { return isClosed(p.done) })
				require.ErrorIs(t, p.err, errPlan)
				if strings.HasPrefix(what, "a later format") {
					require.ErrorContains(t, p.err, "update the program")
				}
				p.gone()
				p.s.Close()

				require.NoError(t, w.srv.SetData(groupPath+"/plan", nil))
				w.steady("with a plan that is emptied")
				w.steady("with a plan that is written again")
				again, _ := w.srv.Get(groupPath + "/plan")
				require.JSONEq(t, string(good), string(again))
				w.join("new")
				w.within(w.quiet+time.Second, "even", w.isEven)
			})
		})
	}
}

// Somebody deletes the plan: the planner writes it again, and nothing moves.
func TestVirtual_PlanDeleted(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.started(2)
		w.join("m02")
		w.within(w.quiet+time.Second, "even", w.isEven)
		require.NoError(t, w.srv.Delete(groupPath+"/plan"))
		w.steady("without a plan")
		w.steady("with a plan again")
		w.join("new")
		w.within(w.quiet+time.Second, "even", w.isEven)
	})
}

// The path is that of another recipe, or of a later format, or its data are somebody else's.
func TestVirtual_OtherPath(t *testing.T) {
	for what, c := range map[string]struct{ data, child, says string }{
		"a lock":                            {"", "_c_1-lock-0000000000", "not of a group"},
		"data":                              {"hello", "", "does not belong to a group"},
		"other JSON":                        {"{}", "", "does not belong to a group"},
		"a later format":                    {`{"format":2,"shards":8}`, "", "update the program"},
		"a later format, with other shards": {`{"format":2,"shards":["a"]}`, "", "update the program"},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 8, func(t *testing.T, w *world) {
				for _, p := range []string{"/orders", groupPath} {
					_, err := w.srv.Create(p, nil, 0)
					require.NoError(t, err)
				}
				require.NoError(t, w.srv.SetData(groupPath, []byte(c.data)))
				if c.child != "" {
					_, err := w.srv.Create(groupPath+"/"+c.child, nil, 0)
					require.NoError(t, err)
				}
				p := w.join("m")
				w.within(time.Second, "rejected", func() bool { return isClosed(p.done) })
				require.ErrorContains(t, p.err, c.says)
				data, _ := w.srv.Get(groupPath)
				require.Equal(t, c.data, string(data))
			})
		})
	}
	t.Run("an empty node", func(t *testing.T) {
		inWorld(t, 8, func(t *testing.T, w *world) {
			for _, p := range []string{"/orders", groupPath, groupPath + "/shards"} {
				_, err := w.srv.Create(p, nil, 0)
				require.NoError(t, err)
			}
			w.started(2)
		})
	})
}

// Without CREATE the member is rejected; IsFinal is true.
func TestVirtual_NoCreate(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		s, _ := w.connect()
		defer s.Close()
		_, err := s.Conn().Create("/orders", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(t, err)
		p := w.join("m")
		w.within(time.Second, "rejected", func() bool { return isClosed(p.done) })
		require.ErrorIs(t, p.err, zk.ErrNoAuth)
		require.True(t, zklock.IsFinal(p.err))
	})
}

// The servers reject a member in all its shards, or in the queue of members, from its start on: it
// leaves, and the others take over.
func TestVirtual_Refused(t *testing.T) {
	for what, fault := range map[string]zktest.Fault{
		"the shards":  zktest.Before(zktest.Create).Path(groupPath + "/shards/*/*"),
		"the members": zktest.Before(zktest.Create).Path(groupPath + "/members/*"),
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 64, func(t *testing.T, w *world) {
				w.started(3)
				p := w.other(w.planner())
				w.srv.Inject(fault.Session(p.s.Stats().SessionID).Fail(zktest.NoAuth).Optional())
				p.cancel()
				<-p.done
				p.start()
				w.within(w.quiet+5*time.Second, "left", func() bool { return isClosed(p.done) })
				require.ErrorIs(t, p.err, zk.ErrNoAuth)
				require.True(t, zklock.IsFinal(p.err))
				p.gone()
				p.s.Close()
				w.within(w.quiet+5*time.Second, "even", w.isEven)
			})
		})
	}
}

// The Session is closed under a Run.
func TestVirtual_SessionClosed(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.started(3)
		p := w.procs[1]
		p.s.Close()
		w.within(10*time.Second, "ended", func() bool { return isClosed(p.done) })
		require.ErrorIs(t, p.err, zklock.ErrClosed)
		p.gone()
		w.within(w.quiet+5*time.Second, "even", w.isEven)
	})
}

// The plan may be written by one member alone. It becomes the planner, and no shard moves
// meanwhile.
func TestVirtual_PlannerMayNotWrite(t *testing.T) {
	inWorld(t, 24, func(t *testing.T, w *world) {
		w.started(3)
		last := w.join("m03")
		time.Sleep(w.quiet + 2*time.Second)
		for _, p := range w.procs[:3] {
			w.srv.Inject(zktest.Before(zktest.Multi).Path(groupPath + "/plan").Session(p.s.Stats().SessionID).Fail(zktest.NoAuth).Optional())
		}
		w.reset()
		w.join("new")
		w.within(5*w.quiet, "even", w.isEven) // each planner waits until it has seen no change for Quiet
		require.True(t, last.g.Stats().Planner)
		moves, gaps := w.reset()
		require.Equal(t, 4, moves)
		require.LessOrEqual(t, longest(gaps), 20*time.Millisecond)
	})
}
