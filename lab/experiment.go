package main

// An experiment, and its result.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// An Experiment is a column of the page's summary, and a section of its own. Each is a file.
type Experiment struct {
	Name  string // as in -only
	Title string
	Says  string // what is done and counted, for the page

	Kind        kind                        // of the systems that take part
	Raced       bool                        // its outcome depends on which client is first: it runs often, and otherwise a few times
	Alone       bool                        // it measures time or load: nothing else runs at the same time
	Own         bool                        // it injects faults into the servers: each trial has its own
	Server      func(s *System) *ServerKind // with Own: instead of the system's
	Split       bool                        // with Own: the servers can be cut off from each other; it runs only with three or more
	Clocks      bool                        // with Own: the servers' clocks can be set
	ClientClock bool                        // the clients' clocks can be set
	Long        bool                        // it runs only if it is named, and with -quick
	Sizes       bool                        // it runs with every number of servers that a system has, not only with the first
	Skip        func(s *System) string      // the reason why a system does not take part; nil and "" if it does
	TTL         time.Duration               // the lock's time, if it differs from the run's
	Tick        time.Duration               // ZooKeeper's, if it differs from zkTick; then no other servers take part
	Runs        int                         // how often, if Raced does not decide it

	Steps   func(t *trial)
	Columns []column
	Cell    func(r *Result) string // the summary's cell: a word and a number; nil for the time until the grant, with its Bad
	Bad     func(r *Result) bool   // marks a result in the summary; nil for none
	Picture bool                   // its timeline is drawn
}

type column struct {
	Key  string
	Head string
	Unit unit
}

type unit int

const (
	inCases unit = iota // in how many of the trials
	seconds             // the time of an event: the median, with the least and the most
	lasted              // the same, for an event that need not occur
	number              // the same, for a number
	total               // the sum over all trials
)

type group struct {
	Title string
	Names []string
}

var groups = []group{
	{"The holder fails", []string{"crash", "cut", "cut-2s", "blink", "stop", "delay", "flight", "rush", "restart"}},
	{"Others fail, and answers are lost", []string{"step", "waiter-crash", "waiter-cut", "lost-grant", "lost-release", "lost-wakeup"}},
	{"Servers fail, and clocks jump", []string{"server-crash", "server-crash-fsync", "server-stop", "amnesia", "amnesia-fsync", "failover", "minority", "minority-2s", "clock-1", "clock-3", "client-clock"}},
	{"Misuse", []string{"late", "late-step", "stranger", "long", "reenter", "missing-row", "no-index"}},
	{"Readers beside a writer, and more than two permits", []string{"crash-readers", "cut-readers", "stop-readers", "downgrade", "crash-permits", "cut-permits", "stop-permits"}},
	{"What it costs", []string{"order", "herd-10", "herd-100", "herd-500", "cycle", "contend"}},
}

var experiments []*Experiment

// inOrder returns the experiments in the order of the page.
func inOrder() (es []*Experiment) {
	for _, g := range groups {
		for _, name := range g.Names {
			for _, e := range experiments {
				if e.Name == name {
					es = append(es, e)
				}
			}
		}
	}
	return es
}

func experiment(e Experiment) {
	if slices.ContainsFunc(experiments, func(o *Experiment) bool { return o.Name == e.Name }) {
		panic("two experiments are called " + e.Name)
	}
	if e.Cell == nil {
		e.Cell, e.Bad = granted, twoHeldOrNever
	}
	experiments = append(experiments, &e)
}

// Result is the result of an experiment with a system.
type Result struct {
	System     string
	Size       int
	Experiment string
	Outcomes   []outcome // of the trials that ran
	Failed     []string  // the reasons why other trials did not
	Missing    bool      // because a program is not installed
	Skipped    string    // why the system does not take part
	Spans      []span    // of the first trial, for the picture
}

// n is the number of trials that count.
func (r *Result) n() int { return len(r.Outcomes) }

// values returns a figure from all trials that have it, sorted.
func (r *Result) values(key string) (vs []float64) {
	for _, o := range r.Outcomes {
		if v, ok := o[key]; ok {
			vs = append(vs, v)
		}
	}
	slices.Sort(vs)
	return vs
}

func (r *Result) sum(key string) (sum float64) {
	for _, v := range r.values(key) {
		sum += v
	}
	return sum
}

// in is the number of trials in which a figure exists and is not zero.
func (r *Result) in(key string) (n int) {
	for _, v := range r.values(key) {
		if v != 0 {
			n++
		}
	}
	return n
}

func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[len(sorted)/2]
}

func (r *Result) median(key string) float64 { return median(r.values(key)) }

func (r *Result) show(c column) string {
	vs := r.values(c.Key)
	if c.Unit == inCases {
		if len(vs) == 0 {
			return ""
		}
		return fmt.Sprintf("%d of %d", r.in(c.Key), r.n())
	}
	if len(vs) == 0 {
		if c.Unit == seconds {
			return fmt.Sprintf("never, n=%d", r.n())
		}
		return ""
	}
	if c.Key == "fenced" && r.in("tokens") == 0 && r.sum("enters") > 0 {
		return "no token"
	}
	if c.Unit == total {
		return amount(r.sum(c.Key))
	}
	format := amount
	if c.Unit == seconds || c.Unit == lasted {
		format = timeOf
	}
	text := format(median(vs))
	if least, most := format(vs[0]), format(vs[len(vs)-1]); least != most {
		_, unit, _ := strings.Cut(most, " ")
		text += fmt.Sprintf(" (%s to %s)", strings.TrimSuffix(least, " "+unit), most)
	}
	if len(vs) < r.n() {
		text += fmt.Sprintf(", in %d of %d", len(vs), r.n())
	}
	return text
}

// timeOf formats seconds; a negative time is one before.
func timeOf(s float64) string {
	switch a := math.Abs(s); {
	case a < 0.0995:
		return fmt.Sprintf("%.0f ms", s*1000)
	case a < 9.95:
		return fmt.Sprintf("%.1f s", s)
	default:
		return fmt.Sprintf("%.0f s", s)
	}
}

func amount(f float64) string {
	switch a := math.Abs(f); {
	case f == math.Trunc(f) && a < 1e4:
		return fmt.Sprintf("%.0f", f)
	case a < 10:
		return fmt.Sprintf("%.1f", f)
	case a < 1e4:
		return fmt.Sprintf("%.0f", f)
	}
	return thousands(fmt.Sprintf("%.0f", f))
}

func thousands(digits string) string {
	var parts []string
	for len(digits) > 3 {
		parts = append([]string{digits[len(digits)-3:]}, parts...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, parts...), ",")
}

// granted formats the time of a grant, or that there was no grant.
func granted(r *Result) string {
	switch got := r.values("granted"); {
	case len(got) == 0:
		return "never"
	case len(got) < r.n():
		return fmt.Sprintf("%s, never in %d of n=%d", timeOf(median(got)), r.n()-len(got), r.n())
	default:
		return timeOf(median(got))
	}
}

func twoHeld(r *Result) bool { return r.in("doubles") > 0 }

func twoHeldOrNever(r *Result) bool { return twoHeld(r) || r.in("granted") < r.n() }

// cell returns the summary's cell, or why it has none. It states its number of trials if that is
// not n.
func (e *Experiment) cell(r *Result, n int) string {
	switch {
	case r.Skipped != "":
		return "–"
	case r.n() == 0:
		return "failed"
	}
	text := e.Cell(r)
	if !strings.Contains(text, "n=") && r.n() != n {
		text += fmt.Sprintf(", n=%d", r.n())
	}
	if e.Bad != nil && e.Bad(r) {
		text = "✗ " + text
	}
	return text
}
