package main

import (
	"context"
	"fmt"
	"time"
)

func init() {
	experiment(Experiment{
		Name: "late", Title: "A holder releases what has expired",
		Says: "A holds; B and C wait. A is stopped until B or C has it, goes on, and releases: what a program does that does not look, or whose last look was before it was stopped. Does the third get the lock while the second holds?",
		Steps: func(t *trial) {
			a, b, c := t.client("A"), t.client("B"), t.client("C")
			a.acquire()
			b.waits()
			c.waits()
			stopped := t.zero(a.stop())
			second, third, at, ok := either(b, c, t.limit())
			t.was("given away", ok)
			a.tell("release")
			a.cont()
			s, err := a.agent.await(20*time.Second, "released", "unreleased")
			t.must(err)
			t.was("told", s.Word == "unreleased")
			if !ok {
				return
			}
			t.took("granted", at.Sub(stopped))
			t.third(second, third)
		},
		Columns: []column{{"broken", "the release frees the other's lock", inCases}, {"doubles", "two held at once", inCases}, {"told", "A's release says so", inCases}},
		Cell: func(r *Result) string {
			if r.in("given away") == 0 {
				return "never given away"
			}
			if n := r.in("broken"); n > 0 {
				return fmt.Sprintf("frees the other's in %d", n)
			}
			return fmt.Sprintf("harmless, said in %d", r.in("told"))
		},
		Bad: func(r *Result) bool { return r.in("broken") > 0 },
	})
	experiment(Experiment{
		Name: "late-step", Title: "The network fails in the middle of a release", Runs: 4,
		Says: "A holds; B and C wait. A releases when it still holds, and is cut off when it has sent 0, 1, 2 or 3 requests of it, in a trial each; the network is whole again when B or C has the lock, and what A had sent arrives. Does the third get the lock while the second holds?",
		Steps: func(t *trial) {
			a, b, c := t.client("A"), t.client("B"), t.client("C")
			a.acquire()
			b.waits()
			c.waits()
			a.agent.letPass(t.number, true)
			began := t.zero(time.Now())
			a.tell("release")
			second, third, at, ok := either(b, c, t.limit())
			t.was("given away", ok)
			a.agent.heal()
			if !ok {
				return
			}
			t.took("granted", at.Sub(began))
			t.third(second, third)
		},
		Columns: []column{{"granted", "the second has it after", seconds}, {"broken", "the release frees the other's lock", inCases}, {"doubles", "two held at once", inCases}},
		Cell: func(r *Result) string {
			if n := r.in("broken"); n > 0 {
				return fmt.Sprintf("frees the other's in %d", n)
			}
			if r.in("granted") < r.n() {
				return granted(r)
			}
			return "harmless"
		},
		Bad: func(r *Result) bool { return r.in("broken") > 0 },
	})
	experiment(Experiment{
		Name: "stranger", Title: "Somebody else releases",
		Says: "A holds and B waits. Somebody who does not hold frees the lock, with what the system gives to clients. Is B granted while A believes, and is A told?",
		Skip: func(s *System) string {
			if s.Break == nil {
				return "a client has no call for it"
			}
			return ""
		},
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
			defer cancel()
			began := t.zero(time.Now())
			broke, err := t.sys.Break(ctx, t.cluster.Addrs(), t.lock)
			t.must(err)
			t.was("broken", broke)
			at, ok := b.granted(t.ttl / 3) // and not because A's time has expired
			if ok {
				t.took("granted", at.Sub(began))
			}
			if ok {
				if lost, told := a.told(t.ttl); told {
					t.took("told", lost.Sub(began))
				}
				t.was("believes", a.write())
			}
		},
		Columns: []column{{"broken", "the servers let it", inCases}, {"granted", "B has it after", lasted}, {"told", "A is told after", lasted}, {"believes", "A believes on", inCases},
			{"doubles", "two held at once", inCases}, {"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}},
		Cell: func(r *Result) string {
			switch n := r.in("doubles"); {
			case r.in("broken") == 0:
				return "refused"
			case n == 0:
				return "no two held"
			case r.in("told") == 0:
				return fmt.Sprintf("two held in %d, A never told", n)
			default:
				return fmt.Sprintf("two held in %d, A told after %s", n, timeOf(r.median("told")))
			}
		},
		Bad: twoHeld,
	})
	experiment(Experiment{
		Name: "long", Title: "A lock is held for longer than its time",
		Says: "A is healthy and holds for two and a half times the lock's time; B waits. Does B get it?",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			began := t.zero(time.Now())
			b.waits()
			at, ok := b.granted(time.Until(began.Add(t.ttl * 5 / 2)))
			t.was("taken", ok)
			if ok {
				t.took("granted", at.Sub(began))
			}
			t.was("believes", a.write())
			t.was("said", a.release())
			if !ok {
				if _, ok = b.granted(t.limit()); !ok {
					t.failf("B is not granted what A has released")
				}
			}
			b.release()
		},
		Columns: []column{{"taken", "B gets it", inCases}, {"granted", "after", lasted}, {"believes", "A believes on", inCases}, {"doubles", "two held at once", inCases},
			{"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}},
		Cell: func(r *Result) string {
			if n := r.in("doubles"); n > 0 {
				return fmt.Sprintf("two held in %d", n)
			}
			if n := r.in("taken"); n > 0 {
				return fmt.Sprintf("taken in %d", n)
			}
			return "kept"
		},
		Bad: twoHeld,
	})
}

// third notes whether a late release has admitted the third client while the second one holds.
func (t *trial) third(second, third *player) {
	// Well below the lock's time, so that a grant results from the release and not from an expiry.
	_, broken := third.granted(t.ttl / 3)
	t.was("broken", broken)
	if broken {
		third.release()
	}
	second.release()
}

// either returns the one of two clients that is granted first, and the other one.
func either(b, c *player, d time.Duration) (second, third *player, at time.Time, ok bool) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if at, ok = b.granted(20 * time.Millisecond); ok {
			return b, c, at, true
		}
		if at, ok = c.granted(20 * time.Millisecond); ok {
			return c, b, at, true
		}
	}
	return b, c, at, false
}
