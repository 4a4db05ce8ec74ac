package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	inLine     = 20
	longEnough = 30 * time.Second // the lock's time if no client fails: it must not expire while many wait
)

func init() {
	experiment(Experiment{
		Name: "order", Title: "Fairness", TTL: longEnough,
		Says: fmt.Sprintf("A holds. %d clients come, one every 60 ms, and wait. A releases; each that is granted holds for 5 ms. How many pairs were granted against the order in which they came? Was each granted within a minute?", inLine),
		Steps: func(t *trial) {
			a, crowd := t.client("A"), t.client("B")
			a.acquire()
			crowd.tell("crowd %d 60 5", inLine)
			_, err := crowd.agent.await(time.Minute, "waiting")
			t.must(err)
			t.pause(500 * time.Millisecond)
			began := t.zero(time.Now())
			a.release()
			switch s, err := crowd.agent.await(time.Minute, "done", "failed"); {
			case err == nil && s.Word == "failed":
				t.failf("a waiter: %s", s.text())
			case err == nil:
				t.took("took", s.At.Sub(began))
			case !errors.Is(err, errQuiet): // errQuiet means that a client was skipped
				t.must(err)
			}
			var order []int
			for _, e := range t.ledger.read() {
				if i, ok := strings.CutPrefix(e.Who, "B-"); ok && e.What == enter {
					var n int
					_, err := fmt.Sscan(i, &n)
					t.must(err)
					order = append(order, n)
				}
			}
			against := 0
			for i := range order {
				for j := i + 1; j < len(order); j++ {
					if order[j] < order[i] {
						against++
					}
				}
			}
			t.figure("against", float64(against)*100/float64(inLine*(inLine-1)/2))
		},
		Columns: []column{{"against", "pairs against the order, %", number}, {"took", "until all had their turn", seconds}, {"doubles", "two held at once", inCases}},
		Cell: func(r *Result) string {
			word := fmt.Sprintf("%s %% against", amount(r.median("against")))
			if n := r.n() - r.in("took"); n > 0 {
				word += fmt.Sprintf(", not all had their turn in %d of n=%d", n, r.n())
			}
			return word
		},
		Bad: func(r *Result) bool { return twoHeld(r) || r.in("took") < r.n() },
	})
	experiment(Experiment{
		Name: "cycle", Title: "Speed: one client", Alone: true, TTL: longEnough, Runs: 3,
		Says:    "One client acquires and releases for 2 s. No fsync: the servers' data is on what the temporary directory is on.",
		Steps:   func(t *trial) { speed(t, 1) },
		Columns: []column{{"rate", "acquisitions a second", number}},
		Cell:    func(r *Result) string { return amount(r.median("rate")) + "/s" },
	})
	experiment(Experiment{
		Name: "contend", Title: "Speed: eight clients", Alone: true, TTL: longEnough, Runs: 3,
		Says:    "Eight clients, a process each, acquire and release one lock for 2 s. (With so many processes on two processors the rates are below those of `make bench`.)",
		Steps:   func(t *trial) { speed(t, 8) },
		Columns: []column{{"rate", "acquisitions a second", number}},
		Cell:    func(r *Result) string { return amount(r.median("rate")) + "/s" },
	})
}

func speed(t *trial, clients int) {
	const d = 2 * time.Second
	var all []*player
	for i := range clients {
		all = append(all, t.client(fmt.Sprintf("C%d", i)))
	}
	for _, p := range all {
		p.tell("cycle %d", d.Milliseconds())
	}
	total := 0
	for _, p := range all {
		s, err := p.agent.await(d+40*time.Second, "cycled", "failed")
		t.must(err)
		var n int
		if _, err := fmt.Sscan(s.text(), &n); err != nil || s.Word == "failed" {
			t.failf("%s: %s %s", p.agent.name, s.Word, s.text())
		}
		total += n
	}
	t.figure("rate", float64(total)/d.Seconds())
}
