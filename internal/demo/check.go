package demo

// What is verified at the end: pure functions of what happened.

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// facts is all that the checks look at.
type facts struct {
	events     []Event // of all workers, in the order in which they reached the demo; each worker's are in its order
	writes     []write // as the resource saw them
	left       int     // nodes in the queue after all workers had ended
	began      time.Time
	sessionEnd time.Duration // the longest time from a client's end to that of its session
	pausing    bool          // whether workers could be stopped
}

// check is one thing that is verified. Its function returns what it found, or an error.
type check struct {
	name string
	f    func(facts) (string, error)
}

func checks(pausing bool) []check {
	all := []check{
		{"no overlap", (facts).overlap},
		{"one holder", (facts).beliefs},
		{"tokens grow", (facts).tokens},
		{"take-over", (facts).takeover},
		{"told in time", (facts).told},
	}
	if pausing {
		all = append(all,
			check{"stale write", (facts).stale},
			check{"first look", (facts).firstLook})
	}
	return append(all, check{"clean", (facts).clean})
}

func (f facts) at(t time.Time) string { return fmt.Sprintf("%.2fs", t.Sub(f.began).Seconds()) }

// of returns the worker's events after the first that fits.
func (f facts) after(e Event) []Event {
	i := slices.Index(f.events, e)
	return f.events[i+1:]
}

// find returns the first event of the kind, and fails without one: a demo in which nothing happened proves nothing.
func find(events []Event, who string, kind Kind) (Event, error) {
	for _, e := range events {
		if e.Kind == kind && (who == "" || e.Who == who) {
			return e, nil
		}
	}
	return Event{}, fmt.Errorf("there is no event %q %s", kind, who)
}

// nextGrant is the first grant to another worker after the event.
func (f facts) nextGrant(e Event) (Event, error) {
	for _, g := range f.after(e) {
		if g.Kind == Granted && g.Who != e.Who {
			return g, nil
		}
	}
	return Event{}, fmt.Errorf("nobody was granted after %s was %s", e.Who, e.Kind)
}

// fenced is the token of the worker that was stopped: its write afterwards is the one that is meant to come too late.
func (f facts) fenced() (e Event, ok bool) {
	e, err := find(f.events, "", Stopped)
	return e, err == nil
}

// overlap: by the order of the writes alone, no two workers were at work at once, but for the one that was stopped.
func (f facts) overlap() (string, error) {
	var record []write
	stopped, _ := f.fenced()
	for _, w := range f.writes {
		if w.accepted || w.Who != stopped.Who || w.Token != stopped.Token {
			record = append(record, w)
		}
	}
	ts, err := turns(record)
	if err != nil {
		return "", err
	}
	if len(ts) < 3 {
		return "", fmt.Errorf("only %d turns", len(ts))
	}
	return fmt.Sprintf("%d turns in order, by %d writes at the resource", len(ts), len(f.writes)), nil
}

// beliefs: by the clock, no worker believed to hold while another did, but for the time in which it was stopped.
func (f facts) beliefs() (string, error) {
	type belief struct {
		Event
		end time.Time
	}
	var all []belief
	open := map[string]int{}
	for _, e := range f.events {
		switch e.Kind {
		case Granted:
			open[e.Who] = len(all)
			all = append(all, belief{Event: e})
		case Released, Lost, Killed, Stopped:
			if i, ok := open[e.Who]; ok {
				all[i].end = e.At
				delete(open, e.Who)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b belief) int { return a.At.Compare(b.At) })
	least := time.Duration(-1)
	for i := 1; i < len(all); i++ {
		was, is := all[i-1], all[i]
		if was.end.IsZero() || is.At.Before(was.end) {
			return "", fmt.Errorf("%s was granted at %s, when %s still believed to hold, since %s", is.Who, f.at(is.At), was.Who, f.at(was.At))
		}
		if gap := is.At.Sub(was.end); least < 0 || gap < least {
			least = gap
		}
	}
	if len(all) < 2 {
		return "", errors.New("there was no hand-over")
	}
	return fmt.Sprintf("%d holds, by the clock %.1fms or more apart", len(all), float64(least.Microseconds())/1000), nil
}

// tokens: they grow in the order of the grants.
func (f facts) tokens() (string, error) {
	var grants []Event
	for _, e := range f.events {
		if e.Kind == Granted {
			grants = append(grants, e)
		}
	}
	slices.SortStableFunc(grants, func(a, b Event) int { return a.At.Compare(b.At) })
	for i, g := range grants {
		if i > 0 && g.Token <= grants[i-1].Token {
			return "", fmt.Errorf("%s has token %d after %s had %d", g.Who, g.Token, grants[i-1].Who, grants[i-1].Token)
		}
	}
	if len(grants) == 0 {
		return "", errors.New("there was no grant")
	}
	return fmt.Sprintf("%d grants, from %d to %d, each larger", len(grants), grants[0].Token, grants[len(grants)-1].Token), nil
}

// takeover: after a holder was killed the next one holds within the time that a session can live on.
func (f facts) takeover() (string, error) {
	killed, err := find(f.events, "", Killed)
	if err != nil {
		return "", err
	}
	next, err := f.nextGrant(killed)
	if err != nil {
		return "", err
	}
	took := next.At.Sub(killed.At)
	if took > f.sessionEnd {
		return "", fmt.Errorf("%s was granted %.2fs after %s was killed; %.2fs is the most", next.Who, took.Seconds(), killed.Who, f.sessionEnd.Seconds())
	}
	return fmt.Sprintf("%s was granted %.2fs after the SIGKILL of %s", next.Who, took.Seconds(), killed.Who), nil
}

// told: the holder that was cut off knew that it had lost the lock before the next one was granted.
func (f facts) told() (string, error) {
	cut, err := find(f.events, "", Cut)
	if err != nil {
		return "", err
	}
	next, err := f.nextGrant(cut)
	if err != nil {
		return "", err
	}
	told, err := find(f.after(cut), cut.Who, Lost)
	if err != nil {
		return "", err
	}
	if !told.At.Before(next.At) {
		return "", fmt.Errorf("%s was told at %s, and %s was granted at %s, %.2fs before", told.Who, f.at(told.At), next.Who, f.at(next.At), told.At.Sub(next.At).Seconds())
	}
	return fmt.Sprintf("%s told at %s, %s granted at %s: %.2fs later", told.Who, f.at(told.At), next.Who, f.at(next.At), next.At.Sub(told.At).Seconds()), nil
}

// stale: the worker that was stopped wrote after it went on, with the token it had; the resource had seen a larger
// one, and refused. Nothing of it was taken after that larger one, and nobody else was refused.
func (f facts) stale() (string, error) {
	stopped, ok := f.fenced()
	if !ok {
		return "", errors.New("nobody was stopped")
	}
	continued, err := find(f.after(stopped), stopped.Who, Continued)
	if err != nil {
		return "", err
	}
	next, err := f.nextGrant(stopped)
	if err != nil {
		return "", err
	}
	if next.At.After(continued.At) {
		return "", fmt.Errorf("%s was granted only after %s went on", next.Who, stopped.Who)
	}
	var seen int64
	tried := false
	for i, w := range f.writes {
		late := w.Who == stopped.Who && w.Token == stopped.Token && w.Token < seen
		switch {
		case w.accepted && w.Token < seen:
			return "", fmt.Errorf("write %d: the resource took %s's token %d after it had seen %d", i+1, w.Who, w.Token, seen)
		case !w.accepted && !late:
			return "", fmt.Errorf("write %d: the resource refused %s's token %d", i+1, w.Who, w.Token)
		case late:
			tried = true
		}
		if w.accepted {
			seen = max(seen, w.Token)
		}
	}
	if !tried {
		return "", fmt.Errorf("%s did not write with its old token %d", stopped.Who, stopped.Token)
	}
	return fmt.Sprintf("%s's %d, after %s's %d: refused (it was stopped %.2fs)", stopped.Who, stopped.Token, next.Who, next.Token, continued.At.Sub(stopped.At).Seconds()), nil
}

// firstLook: after the write that was on its way, the first thing that the worker noticed is that it had lost the lock.
func (f facts) firstLook() (string, error) {
	stopped, ok := f.fenced()
	if !ok {
		return "", errors.New("nobody was stopped")
	}
	continued, err := find(f.after(stopped), stopped.Who, Continued)
	if err != nil {
		return "", err
	}
	for _, e := range f.after(continued) {
		switch {
		case e.Who != stopped.Who, e.Kind == Refused:
		case e.Kind == Lost:
			return fmt.Sprintf("%s saw the loss %.0fms after it went on", e.Who, float64(e.At.Sub(continued.At).Microseconds())/1000), nil
		default:
			return "", fmt.Errorf("%s %s after it was stopped past the end of its lease", e.Who, e.Kind)
		}
	}
	return "", fmt.Errorf("%s has not noticed the loss", stopped.Who)
}

// clean: every process ended as it was asked to, and the queue is empty.
func (f facts) clean() (string, error) {
	running := map[string]bool{}
	for _, e := range f.events {
		switch e.Kind {
		case Started:
			running[e.Who] = true
		case Killed, Ended:
			delete(running, e.Who)
		case Failed:
			return "", fmt.Errorf("%s failed: %s", e.Who, e.Text)
		}
	}
	if len(running) > 0 {
		return "", fmt.Errorf("%d workers did not end in order", len(running))
	}
	if f.left > 0 {
		return "", fmt.Errorf("%d nodes in the queue, and nobody there", f.left)
	}
	return "all workers have ended, the queue is empty", nil
}
