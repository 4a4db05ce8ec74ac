package main

import "fmt"

func init() {
	experiment(Experiment{
		Name: "crash", Title: "The holder crashes", Picture: true, Sizes: true,
		Says: "A holds and B waits. A's process is killed (SIGKILL); its machine runs on and closes its connections. How long until B has the lock, and what do the servers have of it when B has released it and gone?",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			t.settle()
			killed := t.zero(a.kill())
			if at, ok := b.granted(t.limit()); ok {
				t.took("granted", at.Sub(killed))
				b.release()
			}
			b.quit()
			t.left()
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"doubles", "two held at once", inCases}, {"left", "left at the servers", number}},
		Cell:    func(r *Result) string { return granted(r, "granted") },
		Bad:     func(r *Result) bool { return r.in("granted") < r.n() || r.in("doubles") > 0 },
	})
	experiment(Experiment{
		Name: "step", Title: "A client crashes in the middle of an acquire", Runs: 7,
		Says: "A, which has held before, asks for the free lock, and its process is killed when it has sent 0, 1, … 6 requests of it, in a trial each; what it sends then does not arrive. B asks 100 ms later. How long until B has the lock?",
		Steps: func(t *trial) {
			a := t.client("A")
			a.acquire() // its connections are there
			a.release()
			a.agent.letPass(t.number, false)
			a.asks(t.limit())
			t.pause(300e6)
			killed := t.zero(a.kill())
			b := t.client("B")
			b.asks(t.limit())
			if at, ok := b.granted(t.limit()); ok {
				t.took("granted", at.Sub(killed))
				b.release()
			}
			b.quit()
			t.left()
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"left", "left at the servers", number}},
		Cell:    func(r *Result) string { return granted(r, "granted") },
		Bad:     func(r *Result) bool { return r.in("granted") < r.n() },
	})
	experiment(Experiment{
		Name: "restart", Title: "The holder is started again",
		Says: "A holds, and nobody waits. A's process is killed, and started again at once under the same name; it asks. How long until it has the lock again?",
		Steps: func(t *trial) {
			a := t.client("A")
			a.acquire()
			t.settle()
			killed := t.zero(a.kill())
			again := t.client("A")
			again.asks(t.limit())
			if at, ok := again.granted(t.limit()); ok {
				t.took("granted", at.Sub(killed))
				again.release()
			}
			again.quit()
			t.left()
		},
		Columns: []column{{"granted", "it has it after", seconds}, {"left", "left at the servers", number}},
		Cell:    func(r *Result) string { return granted(r, "granted") },
		Bad:     func(r *Result) bool { return r.in("granted") < r.n() },
	})
}

// granted spells how long a grant took, or that it never came.
func granted(r *Result, key string) string {
	got := r.values(key)
	switch {
	case len(got) == 0:
		return "never"
	case len(got) < r.n():
		return fmt.Sprintf("%s, never in %d of n=%d", timeOf(median(got)), r.n()-len(got), r.n())
	}
	return timeOf(median(got))
}
