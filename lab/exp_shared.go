package main

// Locks that several may hold at a time: a reader together with a writer, and more holders than
// permits, under the faults of the other experiments.

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ofReaders is the same experiment with a lock for readers and writers, in which A and B exclude
// each other.
func ofReaders(e Experiment) Experiment {
	e.Name += "-readers"
	e.Says = "The same as [there](#" + anchor(e.Title) + "), with a lock for readers and writers. In every second trial A reads and B waits to write, in the others A writes and B waits to read. A reader's write is a read."
	e.Title = "A reader beside a writer: " + lowerFirst(e.Title)
	e.Kind, e.Runs, e.Sizes, e.Picture = readers, 4, false, false
	e.Columns = without(e.Columns, "left")
	steps := e.Steps
	e.Steps = func(t *trial) {
		t.shared = map[string]bool{[]string{"A", "B"}[t.number%2]: true}
		steps(t)
	}
	return e
}

// ofPermits is the same experiment with two permits: C has the second one.
func ofPermits(e Experiment) Experiment {
	e.Name += "-permits"
	e.Says = "The same as [there](#" + anchor(e.Title) + "), with a semaphore of two permits, so that two may hold. C has one of them all the time. Do three hold?"
	e.Title = "More than two permits: " + lowerFirst(e.Title)
	e.Kind, e.Runs, e.Sizes, e.Picture = permits, 3, false, false
	e.Columns = without(e.Columns, "left", "fenced")
	for i := range e.Columns {
		e.Columns[i].Head = strings.Replace(e.Columns[i].Head, "two", "three", 1)
	}
	steps, cell := e.Steps, e.Cell
	e.Steps = func(t *trial) {
		t.client("C").acquire()
		steps(t)
	}
	e.Bad = func(r *Result) bool { return twoHeldOrNever(r) || r.in("believes") > 0 }
	if cell != nil {
		e.Cell = func(r *Result) string {
			text, _ := strings.CutSuffix(strings.Replace(cell(r), "two", "three", 1), ", no token")
			return text
		}
	}
	return e
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// without returns a copy without some columns.
func without(columns []column, keys ...string) (cs []column) {
	for _, c := range columns {
		if !slices.Contains(keys, c.Key) {
			cs = append(cs, c)
		}
	}
	return cs
}

func init() {
	experiment(Experiment{
		Name: "downgrade", Title: "A writer becomes a reader", Kind: readers, Runs: 7,
		Says: "A holds as a writer, and B waits to write. A becomes a reader. In the first trial nothing fails, and A reads on for the lock's time. In the others A is cut off when it has sent 0, 1, … 5 requests from then on; 200 ms after B was granted the network is whole. Does B write beside A?",
		Skip: func(s *System) string {
			if !s.Downgrades {
				return "a writer cannot become a reader"
			}
			return ""
		},
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			t.settle()
			if t.number > 0 {
				a.agent.letPass(t.number-1, true)
			}
			began := t.zero(time.Now())
			a.tell("downgrade")
			if t.number == 0 {
				_, err := a.agent.await(t.ttl, "downgraded")
				t.must(err)
				_, beside := b.granted(t.ttl)
				t.was("beside", beside)
				a.write()
				releasing := time.Now()
				a.release()
				if beside {
					b.release()
				} else {
					b.turn(releasing)
				}
				return
			}
			at, given := b.granted(t.limit())
			if given {
				t.took("granted", at.Sub(began))
				t.pause(200 * time.Millisecond)
			}
			a.agent.heal()
			t.toldAfter(a, began, at, given)
			if given {
				b.release()
			}
		},
		Columns: append([]column{{"beside", "B writes beside A in the first trial", inCases}}, without(cutColumns, "unfenced", "fenced")...),
		Cell: func(r *Result) string {
			if n := r.in("doubles"); n > 0 {
				return fmt.Sprintf("two held in %d", n)
			}
			return cutCell(r)
		},
		Bad: twoHeldOrNever,
	})
}
