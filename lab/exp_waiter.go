package main

import (
	"errors"
	"fmt"
	"time"
)

func init() {
	for name, how := range map[string]string{"waiter-crash": "crashes", "waiter-cut": "is cut off"} {
		experiment(Experiment{
			Name: name, Title: "A waiter " + how,
			Says:    "A holds, B waits, then C. B " + how + ". After a pause of 300 ms A releases. How long until C has it, and what is left at the servers when A and C have gone?",
			Steps:   func(t *trial) { waiter(t, name == "waiter-crash") },
			Columns: []column{{"granted", "C has it after", seconds}, {"doubles", "two held at once", inCases}, {"left", "left at the servers", number}},
		})
	}
	experiment(Experiment{
		Name: "lost-grant", Title: "The answer to an acquire is lost",
		Says: "Nobody holds; A has held before. A asks, and what the servers answer is lost; after 300 ms A's connections end, and new ones work. Does A find out that it holds? If it reports an error instead, how long is the lock blocked for B?",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire() // its connections exist
			a.release()
			t.zero(a.agent.loseAnswers())
			asked := time.Now()
			a.asks(t.limit())
			t.pause(300 * time.Millisecond)
			a.agent.hangUp()
			s, err := a.agent.await(t.limit()+5*time.Second, "acquired", "failed", "busy")
			t.must(err)
			a.asking = false
			t.was("acquired", s.Word == "acquired")
			t.was("failed", s.Word == "failed")
			t.was("blocked", s.Word == "busy")
			t.took("answered", s.At.Sub(asked))
			if s.Word == "acquired" {
				a.release()
			}
			began := time.Now()
			b.asks(t.limit())
			b.turn(began)
			a.quit()
			b.quit()
			t.left()
		},
		Columns: []column{{"acquired", "A holds", inCases}, {"failed", "A has an error", inCases}, {"blocked", "A waits for itself", inCases}, {"answered", "after", lasted}, {"granted", "then B has it after", seconds},
			{"left", "left at the servers", number}},
		Cell: func(r *Result) string {
			word := fmt.Sprintf("acquired in %d", r.in("acquired"))
			if n := r.in("blocked"); n > 0 {
				word = fmt.Sprintf("waits for itself in %d", n)
			} else if n := r.in("failed"); n > 0 {
				word = fmt.Sprintf("error in %d", n)
			}
			if r.in("granted") == 0 {
				return word + ", then B never"
			}
			return word + ", then B after " + granted(r)
		},
		Bad: func(r *Result) bool { return r.in("granted") < r.n() || r.in("blocked") > 0 },
	})
	experiment(Experiment{
		Name: "lost-wakeup", Title: "What would wake the waiter is lost",
		Says: "A holds and B waits. What the servers send to B is lost; A releases; after 300 ms B's connections end, and new ones work. How long from A's release until B has it?",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			b.agent.loseAnswers()
			began := t.zero(time.Now())
			a.release()
			t.pause(300 * time.Millisecond)
			b.agent.hangUp()
			b.turn(began)
			a.quit()
			b.quit()
			t.left()
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"left", "left at the servers", number}},
	})
	experiment(Experiment{
		Name: "rush", Title: "Many come when the holder's time is over", Raced: true, TTL: 2 * time.Second,
		Says: "A holds and eight clients wait. A's process is killed. Each of the eight that is granted holds for 20 ms. The lock's time is 2 s. Do two hold at once?",
		Steps: func(t *trial) {
			a, crowd := t.client("A"), t.client("B")
			a.acquire()
			crowd.tell("crowd 8 0 20")
			_, err := crowd.agent.await(time.Minute, "waiting")
			t.must(err)
			t.settle()
			killed := t.zero(a.kill())
			s, err := crowd.agent.await(t.limit(), "done", "failed")
			if errors.Is(err, errQuiet) {
				return
			}
			t.must(err)
			if s.Word == "failed" {
				t.failf("a waiter: %s", s.text())
			}
			t.took("granted", s.At.Sub(killed))
		},
		Columns: []column{{"granted", "all have had it after", seconds}, {"doubles", "two held at once", inCases}},
		Cell: func(r *Result) string {
			if n := r.in("doubles"); n > 0 {
				return fmt.Sprintf("two held in %d", n)
			}
			if r.in("granted") == 0 {
				return "never given away"
			}
			return "no two held"
		},
		Bad: twoHeldOrNever,
	})
	experiment(Experiment{
		Name: "lost-release", Title: "The answer to a release is lost",
		Says: "A holds and B waits. A releases, and what the servers answer is lost; after 300 ms A's connections end, and new ones work. When has B the lock, and what does A's release say?",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			t.zero(a.agent.loseAnswers())
			asked := time.Now()
			a.tell("release")
			t.pause(300 * time.Millisecond)
			a.agent.hangUp()
			at, ok := b.granted(t.limit())
			if ok {
				t.took("granted", at.Sub(asked))
			}
			s, err := a.agent.await(20*time.Second, "released", "unreleased")
			t.must(err)
			t.was("said", s.Word == "released")
			t.took("answered", s.At.Sub(asked))
			if ok {
				b.release()
			}
			a.quit()
			b.quit()
			t.left()
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"said", "A's release says that all is well", inCases}, {"answered", "after", lasted}, {"doubles", "two held at once", inCases}, {"left", "left at the servers", number}},
	})
}

func waiter(t *trial, crash bool) {
	a, b, c := t.client("A"), t.client("B"), t.client("C")
	a.acquire()
	b.waits()
	c.waits()
	if crash {
		b.kill()
	} else {
		b.agent.cut()
	}
	t.pause(300 * time.Millisecond)
	began := t.zero(time.Now())
	a.release()
	c.turn(began)
	a.quit()
	c.quit()
	if !crash {
		b.kill()
		b.agent.heal()
		t.pause(t.ttl + time.Second) // its session or its key may last this long
	}
	t.left()
}
