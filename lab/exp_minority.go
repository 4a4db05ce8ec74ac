package main

import (
	"slices"
	"time"
)

func init() {
	experiment(Experiment{
		Name: "minority", Title: "The holder's server is cut off from the others", Own: true, Split: true, Picture: true,
		Says: "Three servers. A is connected to one of them, in turn, and holds; B, at the two others, waits. A's server and the others do not hear each other any more, while all clients reach their servers. 200 ms after B was granted, A writes if it believes that it holds, and then the write comes that it had decided on before. Then the servers hear each other again. \"Never\" is twice as long here, because an election may come first.",
		Steps: func(t *trial) {
			c, ok := t.cluster.(Splitter)
			if !ok {
				t.failf("the servers cannot be cut off from each other")
			}
			addrs := t.cluster.Addrs()
			i := t.number % len(addrs)
			a := t.clientOf("A", addrs[i])
			b := t.clientOf("B", slices.Delete(slices.Clone(addrs), i, i+1)...)
			a.acquire()
			b.waits()
			t.settle()
			cut := t.zero(time.Now())
			t.ledger.say(entry{At: cut, What: fault})
			t.must(c.Isolate(i))
			at, granted := b.granted(2 * t.limit()) // an election may come first, and sessions begin anew at the new leader
			if granted {
				t.took("granted", at.Sub(cut))
				t.pause(200 * time.Millisecond)
				t.was("believes", a.write())
				a.tell("blind")
				a.wrote()
			}
			t.must(c.Heal())
			if lost, told := a.told(t.ttl + 2*time.Second); told {
				t.took("told", lost.Sub(cut))
				if granted {
					t.took("ahead", at.Sub(lost))
				}
			}
			if granted {
				b.release()
			}
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"told", "A is told after", seconds}, {"ahead", "that is before B is granted by", lasted},
			{"doubles", "two held at once", inCases}, {"both", "for", lasted}, {"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}},
		Cell: cutCell,
		Bad:  func(r *Result) bool { return r.in("doubles") > 0 || r.in("granted") < r.n() },
	})
}
