package main

func init() {
	crash := Experiment{
		Name: "crash", Title: "The holder crashes", Picture: true, Sizes: true,
		Says: "A holds and B waits. A's process is killed (SIGKILL); its machine runs on and closes its connections. How long until B has the lock, and what do the servers have of it when B has released it and gone?",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			t.settle()
			killed := t.zero(a.kill())
			b.turn(killed)
			b.quit()
			t.left()
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"doubles", "two held at once", inCases}, {"left", "left at the servers", number}},
	}
	experiment(crash)
	experiment(ofReaders(crash))
	experiment(ofPermits(crash))
	experiment(Experiment{
		Name: "step", Title: "A client crashes in the middle of an acquire", Runs: 7,
		Says: "A, which has held before, asks for the free lock, and its process is killed when it has sent 0, 1, … 6 requests of it, in a trial each; what it sends then does not arrive. B asks 100 ms later. How long until B has the lock?",
		Steps: func(t *trial) {
			a := t.client("A")
			a.acquire() // its connections exist
			a.release()
			a.agent.letPass(t.number, false)
			a.asks(t.limit())
			t.pause(300e6)
			killed := t.zero(a.kill())
			b := t.client("B")
			b.asks(t.limit())
			b.turn(killed)
			b.quit()
			t.left()
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"left", "left at the servers", number}},
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
			again.turn(killed)
			again.quit()
			t.left()
		},
		Columns: []column{{"granted", "it has it after", seconds}, {"left", "left at the servers", number}},
	})
}
