package main

import (
	"slices"
	"time"
)

func init() {
	minority := Experiment{
		Name: "minority", Title: "The holder's server is cut off from the others", Own: true, Split: true, Picture: true, Runs: 6,
		Says: "Three servers. A is connected to one of them, the two followers and the leader in turn, and holds; B, at the two others, waits. A's server and the others do not hear each other any more, while all clients reach their servers. 200 ms after B was granted, A writes if it believes that it holds, and then the write comes that it had decided on before. When A is told, or seven of ZooKeeper's ticks after the cut, the servers hear each other again. \"Never\" is twice as long here, because an election may come first.",
		Steps: func(t *trial) {
			c, ok := t.cluster.(Splitter)
			if !ok {
				t.failf("the servers cannot be cut off from each other")
			}
			addrs := t.cluster.Addrs()
			var servers []int // the followers, then the leader
			for i := range addrs {
				leads, err := c.Leads(i)
				t.must(err)
				if leads {
					servers = append(servers, i)
				} else {
					servers = append([]int{i}, servers...)
				}
			}
			i := servers[t.number%len(servers)]
			a := t.clientOf("A", addrs[i])
			b := t.clientOf("B", slices.Delete(slices.Clone(addrs), i, i+1)...)
			a.acquire()
			b.waits()
			t.settle()
			cut := t.zero(time.Now())
			t.ledger.say(entry{At: cut, What: fault})
			t.must(c.Isolate(i))
			at, given := b.granted(2 * t.limit()) // an election may come first, and sessions begin again at the new leader
			if given {
				t.writesLate(a, cut, at)
			}
			// By now an isolated ZooKeeper server has noticed: it serves for syncLimit (5) ticks
			// after the last message from another server, and a deposed leader for one more.
			a.told(time.Until(cut.Add(7 * t.tick)))
			t.must(c.Heal())
			t.toldAfter(a, cut, at, given)
			if ahead, there := t.out["ahead"]; there && i == servers[len(servers)-1] {
				delete(t.out, "ahead")
				t.figure("leader ahead", ahead)
			}
			if given {
				b.release()
			}
		},
		Columns: slices.Insert(slices.Clone(cutColumns), 3, column{"leader ahead", "and if that server was the leader, by", lasted}), Cell: cutCell, Bad: twoHeldOrNever,
	}
	experiment(minority)
	experiment(atSlowTicks(minority))
}
