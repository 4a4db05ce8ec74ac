package main

import (
	"fmt"
	"time"
)

func init() {
	cut := Experiment{
		Name: "cut", Title: "The holder is cut off, and comes back after the lock's time", Picture: true, Sizes: true,
		Says: "A holds and B waits. Nothing passes between A and the lock's servers any more, not even the end of a connection, while A's way to the resource works. 200 ms after B was granted, A writes if it believes that it holds, and then the write comes that it had decided on before the cut. 300 ms later the network is whole; who is told only then has held beside B for that long.",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			t.settle()
			cut := t.zero(a.agent.cut())
			at, given := b.granted(t.limit())
			if given {
				t.writesLate(a, cut, at)
				t.pause(300 * time.Millisecond)
			}
			t.was("given away", given)
			a.agent.heal()
			t.toldAfter(a, cut, at, given)
			if given {
				b.release()
			} else {
				a.release()
			}
		},
		Columns: cutColumns, Cell: cutCell, Bad: twoHeldOrNever,
	}
	experiment(cut)
	experiment(atSlowTicks(cut))
	experiment(ofReaders(cut))
	experiment(ofPermits(cut))
	experiment(Experiment{
		Name: "blink", Title: "The holder is cut off, and comes back before the lock's time",
		Says: "The same, and the network is whole again after a third of the lock's time. Does A keep the lock, or lose it for nothing? After twice the lock's time A releases it.",
		Skip: func(s *System) string {
			if s.Expires && !s.Renews {
				return "nothing extends the lock: it runs out, whether its holder is cut off or not"
			}
			return ""
		},
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			t.settle()
			t.zero(a.agent.cut())
			t.pause(t.ttl / 3)
			a.agent.heal()
			_, lost := b.granted(2 * t.ttl)
			t.was("taken", lost)
			t.was("kept", !lost && a.write())
			releasing := time.Now()
			a.release()
			if lost {
				b.release()
			} else {
				b.turn(releasing)
			}
		},
		Columns: []column{{"kept", "A keeps it", inCases}, {"taken", "B gets it meanwhile", inCases}, {"granted", "B has it after A's release after", seconds},
			{"doubles", "two held at once", inCases}, {"both", "for", lasted}},
		Cell: func(r *Result) string {
			if n := r.in("doubles"); n > 0 {
				return fmt.Sprintf("two held in %d", n)
			}
			return fmt.Sprintf("kept in %d", r.in("kept"))
		},
		Bad: twoHeld,
	})
}

// atSlowTicks is the same experiment at ZooKeeper's usual tick, with a session of four ticks
// instead of six: a server that is cut off serves its clients for about five.
func atSlowTicks(e Experiment) Experiment {
	e.Name += "-2s"
	e.Title += ", at ticks of 2 s"
	e.Says = "The same on ZooKeeper with its usual tick, 2 s in place of 0.5 s, and sessions of 8 s in place of 3 s: four ticks in place of six."
	e.Tick, e.TTL = 2*time.Second, 8*time.Second
	return e
}

// writesLate has A write, 200 ms after B was granted.
func (t *trial) writesLate(a *player, cut, granted time.Time) {
	t.took("granted", granted.Sub(cut))
	t.pause(200 * time.Millisecond)
	a.write()
	a.tell("blind")
	a.wrote()
}

// toldAfter notes when A was notified of the loss, and how long before B's grant, if B was granted.
func (t *trial) toldAfter(a *player, cut, granted time.Time, given bool) {
	if lost, told := a.told(t.ttl + 2*time.Second); told {
		t.took("told", lost.Sub(cut))
		if given {
			t.took("ahead", granted.Sub(lost))
		}
	}
}

var cutColumns = []column{{"granted", "B has it after", seconds}, {"told", "A is told after", seconds}, {"ahead", "that is before B is granted by", lasted},
	{"doubles", "two held at once", inCases}, {"both", "for", lasted}, {"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}}

// cutCell summarizes which clients believed that they held.
func cutCell(r *Result) string {
	switch n := r.in("doubles"); {
	case n > 0 && r.in("told") == 0:
		return fmt.Sprintf("two held in %d, A never told", n)
	case n > 0:
		return fmt.Sprintf("two held in %d, for %s", n, timeOf(r.median("both")))
	case r.in("granted") == 0:
		return "never given away"
	case r.in("told") == 0:
		return granted(r)
	}
	return fmt.Sprintf("told %s ahead, next after %s", timeOf(r.median("ahead")), granted(r))
}
