package main

import (
	"fmt"
	"strings"
	"time"
)

func init() {
	check := func(s *System) string {
		if s.Checks {
			return "its server is the lab"
		}
		return ""
	}
	isRedis := func(s *System) bool { return strings.HasPrefix(s.Server.Name, "redis") }
	restart := func(t *trial) {
		if t.sys.Expires && !t.sys.Renews { // a database that starts together with others takes some seconds
			t.ttl *= 4
		}
		meanwhile(t, func(_, _ *player) {
			t.must(t.cluster.Kill(0))
			t.must(t.cluster.Restart(0))
		})
	}

	experiment(Experiment{
		Name: "server-crash", Title: "A server crashes and starts again", Own: true, Sizes: true, Skip: check,
		Says:    "A holds and B waits. The first server is killed (SIGKILL) and started again at once with what it has on its disk. Does A keep the lock? After twice the lock's time A writes if it believes that it holds, and releases; if nothing extends the lock, its time is four times as long, and A writes just before its end.",
		Steps:   restart,
		Columns: meanwhileColumns, Cell: meanwhileCell, Bad: twoHeld,
	})
	experiment(Experiment{
		Name: "server-crash-fsync", Title: "Redis crashes and starts again, with fsync on every write", Own: true,
		Server: func(*System) *ServerKind { return redisOnDisk },
		Skip: func(s *System) string {
			if s.Server != redisServers {
				return "it is about Redis without a replica"
			}
			return ""
		},
		Says:    "The same on Redis that answers when a write is on the disk (`appendfsync always`).",
		Steps:   restart,
		Columns: meanwhileColumns, Cell: meanwhileCell, Bad: twoHeld,
	})
	experiment(Experiment{
		Name: "server-stop", Title: "A server is stopped beyond the lock's time", Own: true, Sizes: true,
		Skip: func(s *System) string {
			if s.Expires && !s.Renews {
				return "nothing extends the lock: it runs out meanwhile"
			}
			return check(s)
		},
		Says: "A holds and B waits. The first server is stopped (SIGSTOP) for the lock's time and a second, and goes on. Does A keep the lock? After twice the lock's time A writes if it believes that it holds, and releases.",
		Steps: func(t *trial) {
			meanwhile(t, func(_, _ *player) {
				t.must(t.cluster.Stop(0))
				t.pause(t.ttl + time.Second)
				t.must(t.cluster.Cont(0))
			})
		},
		Columns: meanwhileColumns, Cell: meanwhileCell, Bad: twoHeld,
	})
	for _, fsync := range []bool{false, true} {
		e := Experiment{
			Name: "amnesia", Title: "One of five restarts and has forgotten", Own: true,
			Says: "A gets the lock from servers 1, 2 and 3 of five; it does not reach 4 and 5. Server 3 is killed and started again without persistence. B, which does not reach 1 and 2, asks.",
			Skip: func(s *System) string {
				if s.Name != "redlock" {
					return "it is about a majority of servers that do not know each other"
				}
				return ""
			},
			Steps: func(t *trial) {
				a, b := t.client("A"), t.client("B")
				a.agent.cutServers(3, 4)
				b.agent.cutServers(0, 1)
				a.acquire()
				t.must(t.cluster.Kill(2))
				t.must(t.cluster.Restart(2))
				b.asks(t.limit())
				at := t.zero(time.Now())
				got, ok := b.granted(t.ttl / 2)
				t.was("taken", ok)
				if ok {
					t.took("granted", got.Sub(at))
				}
				a.write()
			},
			Columns: []column{{"taken", "B gets it too", inCases}, {"granted", "after", lasted}, {"doubles", "two held at once", inCases}, {"unfenced", "stale writes taken", total}},
			Cell:    meanwhileCell, Bad: twoHeld,
		}
		if fsync {
			e.Name, e.Title = "amnesia-fsync", "One of five restarts, with fsync on every write"
			e.Says = "The same on servers that answer when a write is on the disk (`appendfsync always`)."
			e.Server = func(*System) *ServerKind { return redisOnDisk }
		}
		experiment(e)
	}
	experiment(Experiment{
		Name: "failover", Title: "A replica is promoted before it has the write", Own: true,
		Says: "The replica is cut off from the server that writes. A acquires. That server is killed, the replica is promoted, and all clients are sent to it, as a sentinel does. B asks.",
		Skip: func(s *System) string {
			if s.Server != redisWithReplica {
				return "its servers have no replica of this kind"
			}
			return ""
		},
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			c, ok := t.cluster.(Replica)
			if !ok {
				t.failf("no replica")
			}
			t.must(c.CutReplication())
			a.acquire()
			t.must(t.cluster.Kill(0))
			t.must(c.Promote())
			for _, p := range t.players {
				p.agent.relays[0].point(t.cluster.Addrs()[1])
			}
			at := t.zero(time.Now())
			b.asks(t.limit())
			got, ok := b.granted(t.ttl / 2)
			t.was("taken", ok)
			if ok {
				t.took("granted", got.Sub(at))
			}
			if lost, told := a.told(t.ttl); told {
				t.took("told", lost.Sub(at))
			}
			a.write()
		},
		Columns: []column{{"taken", "B gets it too", inCases}, {"granted", "after", lasted}, {"told", "A is told after", lasted}, {"doubles", "two held at once", inCases}, {"both", "for", lasted}, {"unfenced", "stale writes taken", total}},
		Cell:    meanwhileCell, Bad: twoHeld,
	})
	for _, jumps := range []int{1, 3} {
		experiment(Experiment{
			Name: fmt.Sprintf("clock-%d", jumps), Title: fmt.Sprintf("The clock jumps on %s", []string{"", "one server", "", "three servers of five"}[jumps]), Own: true, Clocks: true,
			Says: fmt.Sprintf("A holds and B waits. The wall clock of %s jumps ahead by an hour, as it does when somebody sets it. After twice the lock's time, or just before its end if nothing extends it, A writes if it believes that it holds, and releases.", []string{"", "the first server", "", "three of the five servers"}[jumps]),
			Skip: func(s *System) string {
				switch {
				case jumps == 3 && s.Name != "redlock":
					return "it is about five servers"
				case isRedis(s), strings.HasPrefix(s.Server.Name, "postgres"), strings.HasPrefix(s.Server.Name, "mariadb"):
					return ""
				}
				return "its servers' clock cannot be set by a preloaded library: ZooKeeper counts on a clock that only goes forward, and programs in Go ask the kernel themselves"
			},
			Steps: func(t *trial) {
				meanwhile(t, func(_, _ *player) {
					for i := range jumps {
						t.must(t.clocks.jump(i, time.Hour))
					}
				})
			},
			Columns: meanwhileColumns, Cell: meanwhileCell, Bad: twoHeld,
		})
	}
}

// meanwhile has A hold and B wait while happens runs, and counts whether B is granted within twice
// the lock's time. For a lock that is not extended it checks less: whether B is granted before the
// lock's time has expired.
func meanwhile(t *trial, happens func(a, b *player)) {
	a, b := t.client("A"), t.client("B")
	acquired := a.acquire().At
	b.waits()
	window := 2 * t.ttl
	runsOut := t.sys.Expires && !t.sys.Renews
	if !runsOut {
		t.settle()
	}
	began := t.zero(time.Now())
	t.ledger.say(entry{At: began, What: fault})
	happens(a, b)
	if runsOut {
		// A quarter of a second allows for rounding by the clients and the servers.
		if window = time.Until(acquired.Add(t.ttl - 250*time.Millisecond)); window <= 0 {
			t.failf("the lock's time is over before the servers are back")
		}
	}
	_, taken := b.granted(window)
	t.was("taken", taken)
	if lost, told := a.told(0); told {
		t.took("told", lost.Sub(began))
	}
	a.write()
	if taken {
		b.release()
		return
	}
	releasing := time.Now()
	a.release()
	b.turn(releasing)
}

var meanwhileColumns = []column{{"taken", "B gets it meanwhile", inCases}, {"told", "A is told after", lasted}, {"granted", "B has it after A's release after", lasted},
	{"doubles", "two held at once", inCases}, {"both", "for", lasted}, {"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}}

func meanwhileCell(r *Result) string {
	switch n := r.in("doubles"); {
	case n > 0 && r.in("told") == 0:
		return fmt.Sprintf("two held in %d, A never told", n)
	case n > 0:
		return fmt.Sprintf("two held in %d, A told after %s", n, timeOf(r.median("told")))
	case r.in("taken") > 0 && r.in("told") > 0:
		return fmt.Sprintf("lost in %d, A told first", r.in("taken"))
	case r.in("taken") > 0:
		return fmt.Sprintf("lost in %d", r.in("taken"))
	}
	return "kept"
}
