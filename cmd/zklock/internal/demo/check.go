package demo

// The checks at the end: pure functions of the events.

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

type facts struct {
	events     []event // of all workers, in the order in which they reached the demo; each worker's are in its order
	left       int     // nodes in the queue after all workers had ended
	began      time.Time
	sessionEnd time.Duration // the longest time from a client's end to that of its session
}

// check is one verification. Its function returns its finding, or an error.
type check struct {
	name string
	f    func(facts) (string, error)
}

func checks() []check {
	all := []check{
		{"no overlap", (facts).overlap},
		{"one holder", (facts).beliefs},
		{"take-over", (facts).takeover},
		{"notified", (facts).notified},
		{"stale write", (facts).stale},
		{"clean", (facts).clean},
	}
	if !canStop {
		return slices.DeleteFunc(all, func(c check) bool { return c.name == "stale write" })
	}
	return all
}

// verify prints what each check found, and returns an error if one failed.
func verify(out io.Writer, f facts) error {
	bad := 0
	fmt.Fprintf(out, "\nVerified\n")
	for _, c := range checks() {
		found, err := c.f(f)
		mark := "ok"
		if err != nil {
			mark, found = "FAILED", err.Error()
			bad++
		}
		fmt.Fprintf(out, "  %-6s  %-11s  %s\n", mark, c.name, found)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d checks failed", bad, len(checks()))
	}
	return nil
}

func (f facts) at(t time.Time) string { return fmt.Sprintf("%.2fs", t.Sub(f.began).Seconds()) }

func anybody(string) bool { return true }
func is(who string) func(string) bool {
	return func(s string) bool { return s == who }
}
func but(who string) func(string) bool {
	return func(s string) bool { return s != who }
}

// first returns the first event of the kind, and the events after it. It fails without one: a demo
// in which nothing happened proves nothing.
func first(events []event, kind string, who func(string) bool) (event, []event, error) {
	i := slices.IndexFunc(events, func(e event) bool { return e.Kind == kind && who(e.Who) })
	if i < 0 {
		return event{}, nil, fmt.Errorf("no event %q", kind)
	}
	return events[i], events[i+1:], nil
}

// overlap: by the order of the writes alone, no two workers were at work at once, except for the
// one that was stopped. That relies on no clock, and on no worker's word.
func (f facts) overlap() (string, error) {
	late, _, _ := first(f.events, stopped, anybody)
	var last event
	turns, n := 0, 0
	for _, e := range f.events {
		if e.Kind != writes && e.Kind != refused {
			continue
		}
		n++
		switch {
		case e.Token > last.Token:
			turns, last = turns+1, e
		case (e.Token < last.Token || e.Who != last.Who) && (e.Kind == writes || e.Token != late.Token):
			return "", fmt.Errorf("OVERLAP: write %d: %s with token %d, after %s with token %d", n, e.Who, e.Token, last.Who, last.Token)
		}
	}
	if turns < 3 {
		return "", fmt.Errorf("only %d holds", turns)
	}
	return fmt.Sprintf("%d holds in order, by %d writes to the resource", turns, n), nil
}

// endsBelief are the events after which a worker no longer believes that it holds; a stopped worker
// believes nothing.
var endsBelief = map[string]bool{releases: true, notified: true, killed: true, stopped: true}

// beliefs: by the clock, no worker was granted while another believed that it held, and each had a
// larger token.
func (f facts) beliefs() (string, error) {
	events := slices.Clone(f.events)
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	var holder, end event // the last grant, and what ended it
	var tokens []int64
	least := time.Hour
	for _, e := range events {
		switch {
		case endsBelief[e.Kind] && e.Token == holder.Token && end.Kind == "":
			end = e
		case e.Kind != holds:
		case e.Token <= holder.Token:
			return "", fmt.Errorf("%s has token %d after %s had %d", e.Who, e.Token, holder.Who, holder.Token)
		case len(tokens) > 0 && end.Kind == "":
			return "", fmt.Errorf("%s was granted at %s, when %s still believed to hold, since %s", e.Who, f.at(e.At), holder.Who, f.at(holder.At))
		default:
			if len(tokens) > 0 {
				least = min(least, e.At.Sub(end.At))
			}
			holder, end, tokens = e, event{}, append(tokens, e.Token)
		}
	}
	if len(tokens) < 2 {
		return "", errors.New("there was no handoff")
	}
	return fmt.Sprintf("%d holds, at least %.1fms apart; tokens grow, %d to %d",
		len(tokens), float64(least.Microseconds())/1000, tokens[0], holder.Token), nil
}

// takeover: after a holder was killed, the next one holds within the time that a session can
// outlive its client.
func (f facts) takeover() (string, error) {
	was, after, err := first(f.events, killed, anybody)
	if err != nil {
		return "", err
	}
	next, _, err := first(after, holds, but(was.Who))
	if err != nil {
		return "", err
	}
	took := next.At.Sub(was.At)
	if took > f.sessionEnd {
		return "", fmt.Errorf("%s was granted %.2fs after %s was killed; %.2fs is the most", next.Who, took.Seconds(), was.Who, f.sessionEnd.Seconds())
	}
	return fmt.Sprintf("%s was granted %.2fs after %s was killed", next.Who, took.Seconds(), was.Who), nil
}

// notified: the holder that was cut off noticed the loss before the next one was granted.
func (f facts) notified() (string, error) {
	was, after, err := first(f.events, cut, anybody)
	if err != nil {
		return "", err
	}
	next, _, err := first(after, holds, but(was.Who))
	if err != nil {
		return "", err
	}
	knew, _, err := first(after, notified, is(was.Who))
	if err != nil {
		return "", err
	}
	found := fmt.Sprintf("%s notified at %s, %s granted at %s", was.Who, f.at(knew.At), next.Who, f.at(next.At))
	if !knew.At.Before(next.At) {
		return "", errors.New(found)
	}
	return fmt.Sprintf("%s, %.2fs later", found, next.At.Sub(knew.At).Seconds()), nil
}

// stale: when the stopped worker continued, its write with its old token was rejected, because the
// resource had seen a larger one. The worker's next event was that it noticed the loss.
func (f facts) stale() (string, error) {
	was, _, err := first(f.events, stopped, anybody)
	if err != nil {
		return "", err
	}
	on, after, err := first(f.events, continues, is(was.Who))
	if err != nil {
		return "", err
	}
	tried := false
	for _, e := range after {
		switch {
		case e.Who != was.Who:
		case e.Kind == refused && e.Token == was.Token:
			tried = true
		case e.Kind == notified && tried:
			return fmt.Sprintf("%s stopped for %.2fs, rejected; saw the loss after %.0fms",
				was.Who, on.At.Sub(was.At).Seconds(), float64(e.At.Sub(on.At).Microseconds())/1000), nil
		default:
			return "", fmt.Errorf("after %s was stopped: %s, rejected before: %t", was.Who, e.Kind, tried)
		}
	}
	return "", fmt.Errorf("%s has not noticed the loss", was.Who)
}

// clean: every process ended as it was asked to, and the queue is empty.
func (f facts) clean() (string, error) {
	running := map[string]bool{}
	for _, e := range f.events {
		switch e.Kind {
		case starts:
			running[e.Who] = true
		case killed, ends:
			delete(running, e.Who)
		case failed:
			return "", fmt.Errorf("%s failed: %s", e.Who, e.Text)
		}
	}
	if len(running) > 0 {
		return "", fmt.Errorf("%d workers did not end in order", len(running))
	}
	if f.left > 0 {
		return "", fmt.Errorf("%d nodes in the queue, and no client that is alive", f.left)
	}
	return "all workers have ended, the queue is empty", nil
}
