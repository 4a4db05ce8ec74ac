package main

import "fmt"

func init() {
	experiment(Experiment{
		Name: "reenter", Title: "A holder asks again",
		Says: "A holds, and asks for the lock a second time, for a third of its time. If it gets it, A releases once, and B asks. Does the second question wait for A itself, and is the first of two releases the last? (zklock re-enters for an owner only; A sets none.)",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			a.asks(t.ttl / 3)
			s, err := a.agent.await(t.limit()+20e9, "acquired", "failed", "busy")
			t.must(err)
			t.was("reentered", s.Word == "acquired")
			t.was("failed", s.Word == "failed")
			if s.Word != "acquired" {
				return
			}
			a.release()
			b.asks(t.limit())
			_, freed := b.granted(t.ttl / 3)
			t.was("freed", freed)
		},
		Columns: []column{{"reentered", "A has it twice", inCases}, {"failed", "A has an error", inCases}, {"freed", "then the first release frees it", inCases}},
		Cell: func(r *Result) string {
			switch in := r.in("reentered"); {
			case in == 0 && r.in("failed") > 0:
				return fmt.Sprintf("error in %d", r.in("failed"))
			case in == 0:
				return "waits for itself"
			case r.in("freed") > 0:
				return fmt.Sprintf("again, and the first release frees it in %d", r.in("freed"))
			}
			return "again, and counted"
		},
		Bad: func(r *Result) bool { return r.in("freed") > 0 },
	})
}
