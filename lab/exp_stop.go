package main

import (
	"fmt"
	"time"
)

func init() {
	stop := Experiment{
		Name: "stop", Title: "The holder is stopped, wakes and writes", Picture: true, Sizes: true,
		Says: "A holds and B waits. A's process is stopped (SIGSTOP), as a long garbage collection or a virtual machine that is moved does. 200 ms after B was granted, or when that does not happen, A goes on: it writes if it believes that it holds, and then the write comes before which it had looked when it was stopped.",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			a.acquire()
			b.waits()
			t.settle()
			stopped := t.zero(a.stop())
			at, ok := b.granted(t.limit())
			t.was("given away", ok)
			if ok {
				t.took("granted", at.Sub(stopped))
				t.pause(200 * time.Millisecond)
			}
			a.tell("write")
			a.tell("blind")
			woke := a.cont()
			t.was("believes", a.wrote() && ok)
			a.wrote()
			if lost, told := a.told(t.ttl + 2*time.Second); told {
				t.took("told", lost.Sub(woke))
			}
			if ok {
				b.release()
			} else {
				a.release()
			}
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"believes", "A wakes and believes", inCases}, {"told", "A is told after waking", seconds},
			{"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}},
		Cell: func(r *Result) string {
			if r.in("granted") == 0 {
				return "never given away"
			}
			word := "knows"
			if n := r.in("believes"); n > 0 {
				word = fmt.Sprintf("believes in %d", n)
			}
			return word + ", " + fence(r)
		},
		Bad: func(r *Result) bool { return r.in("believes") > 0 || r.sum("fenced") > 0 || r.in("granted") < r.n() },
	}
	experiment(stop)
	experiment(ofReaders(stop))
	experiment(ofPermits(stop))
	experiment(Experiment{
		Name: "flight", Title: "A write arrives after its holder has crashed", Runs: 3,
		Says: "A holds, writes and is killed; B waits. The write is on its way for the lock's time and a second. Has B been granted before it arrives? A lock that stays with nobody for that long makes up for a resource that compares nothing; how long B waits is the price.",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			got := a.acquire()
			b.waits()
			t.settle()
			killed := t.zero(a.kill())
			at, ok := b.granted(time.Until(killed.Add(t.ttl + time.Second)))
			t.pause(time.Until(killed.Add(t.ttl + time.Second)))
			late := got.entries("A")[0]
			late.At, late.What, late.Looked = time.Now(), write, false
			t.arrive(late)
			if !ok {
				at, ok = b.granted(t.limit())
			}
			if ok {
				t.took("granted", at.Sub(killed))
				b.release()
			}
		},
		Columns: []column{{"granted", "B has it after", seconds}, {"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}},
		Cell: func(r *Result) string {
			if r.sum("unfenced") == 0 {
				return "in time, next after " + granted(r)
			}
			return fence(r)
		},
		Bad: func(r *Result) bool { return r.sum("fenced") > 0 || r.in("granted") < r.n() },
	})
	experiment(Experiment{
		Name: "delay", Title: "A healthy holder's write is delayed on its way",
		Says: "A holds, and writes. The write is on its way for long: A releases, B is granted, and then the write arrives. No lock can help; a fence can.",
		Steps: func(t *trial) {
			a, b := t.client("A"), t.client("B")
			got := a.acquire()
			b.waits()
			t.zero(time.Now())
			a.release()
			if _, ok := b.granted(t.limit()); !ok {
				t.failf("B is not granted what A has released")
			}
			arrived := got.entries("A")[0]
			arrived.At, arrived.What, arrived.Looked = time.Now(), write, false
			t.arrive(arrived)
			b.release()
		},
		Columns: []column{{"unfenced", "stale writes taken", total}, {"fenced", "with a fence", total}},
		Cell:    fence,
		Bad:     func(r *Result) bool { return r.sum("fenced") > 0 },
	})
}

// fence describes how many stale writes a resource that checks tokens accepts.
func fence(r *Result) string {
	if r.in("tokens") == 0 {
		return "no token"
	}
	return fmt.Sprintf("fence takes %.0f", r.sum("fenced"))
}
