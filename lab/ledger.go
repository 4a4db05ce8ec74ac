package main

// The witness: the events that each client printed, in the order of their timestamps, and the
// conclusions. The clients run on one machine and read one clock. Each prints that it holds after
// the grant, and that it holds no more before it releases, so the recorded hold is within the real
// one.

import (
	"slices"
	"sync"
	"time"
)

type what string

const (
	enter  what = "enter"  // it believes that it holds, from now on
	leave  what = "leave"  // it no longer believes so: it releases, or it was notified
	write  what = "write"  // it writes to the resource
	killed what = "killed" // the lab killed it
	stop   what = "stop"   // the lab stopped it: it can neither act nor be notified
	cont   what = "cont"   // the lab continued it
	fault  what = "fault"  // the lab did something else, which the picture shows
)

type entry struct {
	At     time.Time
	Who    string
	What   what
	Token  int64 // of an enter or a write; 0 if the system has none
	Looked bool  // the writer checked its belief first
	Shared bool  // of an enter: other clients may share the hold
	// Sequencer is for a resource that asks the lock's servers, if there is one. Refused means that
	// it asked, and rejected the write.
	Sequencer string
	Refused   bool
	Text      string
}

// ledger collects the events of one lock. It is safe for use by several goroutines.
type ledger struct {
	mu struct {
		sync.Mutex
		entries []entry
	}
}

func (l *ledger) say(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.entries = append(l.mu.entries, e)
}

// read returns the entries, sorted by time.
func (l *ledger) read() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	es := slices.Clone(l.mu.entries)
	slices.SortStableFunc(es, func(a, b entry) int { return a.At.Compare(b.At) })
	return es
}

type verdict struct {
	Enters    int
	Doubles   int           // pairs of holds that clients that ran believed in at the same time
	Both      time.Duration // for how long at least one pair existed
	Writes    int
	Unfenced  int  // writes after the next holder had entered: a resource without checks accepts them
	Fenced    int  // the unfenced writes that a resource accepts if it rejects a smaller token than it has seen
	Refused   int  // the writes that such a resource rejects
	Tokens    bool // the system has tokens or sequencers
	Backwards int  // grants whose token was not larger than the previous grant's
}

// judge reads the entries of one lock, in their order. At most room exclusive holds are allowed at
// a time.
//
// Two clients believe at the same time if one enters while the other is in and runs. A stopped
// client believes nothing. If it still shows belief after it continues, by a write before which it
// looked, the overlap begins then. The resource sees the token of each enter, because a holder
// presents it when it begins its work.
//
// A write by a shared hold is a read: it is stale once a writer has entered, and a resource
// compares its token only with writers' tokens.
func judge(entries []entry, room int) (v verdict) {
	in := map[string]bool{}  // clients that believe
	last := map[string]int{} // the order of each client's last enter
	shared := map[string]bool{}
	stopped := map[string]bool{}
	twice := map[[2]string]bool{} // the counted pairs of clients that are in
	pair := func(a, b string) {
		key := [2]string{min(a, b), max(a, b)}
		if !twice[key] {
			twice[key] = true
			v.Doubles++
		}
	}
	out := func(who string) {
		delete(in, who)
		for key := range twice {
			if key[0] == who || key[1] == who {
				delete(twice, key)
			}
		}
		if len(in) <= room {
			clear(twice)
		}
	}
	clash := func(who string) { // with the clients that are in and run
		var others []string
		for other := range in {
			if other != who && !stopped[other] && !(shared[who] && shared[other]) {
				others = append(others, other)
			}
		}
		if len(others) >= room {
			for _, other := range others {
				pair(who, other)
			}
		}
	}
	type mark struct {
		latest           string // the client that entered last
		largest, granted int64  // tokens: seen, and granted
	}
	var (
		order      int
		all, alone mark      // of all holds, and of exclusive ones
		since      time.Time // the time since which two are in
	)
	before := func(who string) *mark { // the marks that may exclude it
		if shared[who] {
			return &alone
		}
		return &all
	}
	marks := func(who string, set func(m *mark)) {
		set(&all)
		if !shared[who] {
			set(&alone)
		}
	}
	for _, e := range entries {
		if len(twice) > 0 {
			v.Both += e.At.Sub(since)
		}
		since = e.At
		switch e.What {
		case enter:
			v.Enters++
			order++
			out(e.Who)
			shared[e.Who] = e.Shared
			clash(e.Who)
			in[e.Who], last[e.Who] = true, order
			v.Tokens = v.Tokens || e.Token != 0 || e.Sequencer != ""
			if e.Token != 0 && e.Token <= before(e.Who).granted {
				v.Backwards++
			}
			marks(e.Who, func(m *mark) {
				m.latest, m.granted, m.largest = e.Who, max(m.granted, e.Token), max(m.largest, e.Token)
			})
		case leave, killed:
			out(e.Who)
		case stop:
			stopped[e.Who] = true
		case cont:
			delete(stopped, e.Who)
		case write:
			v.Writes++
			m := before(e.Who)
			stale := m.latest != e.Who && last[m.latest] > last[e.Who]
			refused := e.Refused || e.Token != 0 && e.Token < m.largest
			marks(e.Who, func(m *mark) { m.largest = max(m.largest, e.Token) })
			if refused {
				v.Refused++
			}
			if stale {
				v.Unfenced++
				if !refused {
					v.Fenced++
				}
			}
			if in[e.Who] && e.Looked {
				clash(e.Who)
			}
		}
	}
	return v
}
