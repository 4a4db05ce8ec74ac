package main

// The witness: what each client said, in the order of its time stamps, and what follows from it. The clients run on one
// machine and read one clock, and each says that it holds after it was granted and that it holds no more before it releases:
// what the ledger knows of is within the real belief.

import (
	"slices"
	"sync"
	"time"
)

// what is a word of the ledger.
type what string

const (
	enter  what = "enter"  // it believes that it holds, from now on
	leave  what = "leave"  // it believes so no more: it releases, or it was told
	write  what = "write"  // it writes to the resource
	killed what = "killed" // the lab killed it
	stop   what = "stop"   // the lab stopped it: it cannot act, and cannot be told
	cont   what = "cont"   // and let it go on
	fault  what = "fault"  // the lab did something else, which the picture shows
)

// entry is one line of the ledger.
type entry struct {
	At     time.Time
	Who    string
	What   what
	Token  int64 // of an enter or a write; 0 if the system has none
	Looked bool  // the writer looked at its belief first
	Shared bool  // of an enter: it shares with others who do
	// Sequencer is what a resource can ask the lock's servers about, if there is one; Refused says that it did, and refused the write.
	Sequencer string
	Refused   bool
	Text      string
}

// ledger collects what is said of one lock. It is safe for use by several goroutines.
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

// read returns the entries by time.
func (l *ledger) read() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	es := slices.Clone(l.mu.entries)
	slices.SortStableFunc(es, func(a, b entry) int { return a.At.Compare(b.At) })
	return es
}

// verdict is what a ledger shows.
type verdict struct {
	Enters    int
	Doubles   int           // pairs of holds that were believed in at one time, by clients that ran
	Both      time.Duration // how long at least one such pair was
	Writes    int
	Unfenced  int  // writes that came after the next one had entered: a resource that looks at nothing takes them
	Fenced    int  // those of them that a resource takes which refuses a smaller token than it has seen
	Refused   int  // writes that such a resource refuses
	Tokens    bool // there are such tokens, or sequencers
	Backwards int  // grants whose token was not larger than that of the one before
}

// judge reads the entries of one lock, in their order, in which there is room for so many who do not share.
//
// Two believe at one time when one enters while the other is in and runs. A client that is stopped believes nothing: if it
// still says that it believes when it goes on, by a write before which it looked, that is when the two do. The resource sees
// the token of each enter, because a holder that begins its work tells it.
//
// A write by one who shares is a read: it is stale once a writer has entered, and a resource compares its token with writers' only.
func judge(entries []entry, room int) (v verdict) {
	in := map[string]bool{}  // who believes
	last := map[string]int{} // the order of each one's last enter
	shared := map[string]bool{}
	stopped := map[string]bool{}
	twice := map[[2]string]bool{} // the pairs of those that are in that were counted
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
	clash := func(who string) { // with those who are in and run
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
		latest           string // who entered last
		largest, granted int64  // tokens: seen, and given out
	}
	var (
		order      int
		all, alone mark      // of all, and of those who do not share
		since      time.Time // since when two are in
	)
	before := func(who string) *mark { // what may exclude it
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
