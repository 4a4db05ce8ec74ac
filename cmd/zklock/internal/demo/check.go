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

// checks are the verifications. Each function returns its finding, or an error.
var checks = []struct {
	name string
	f    func(facts) (string, error)
}{
	{"no overlap", facts.overlap},
	{"one holder", facts.beliefs},
	{"take-over", facts.takeover},
	{"notified", facts.notified},
	{"stale write", facts.stale},
	{"clean", facts.clean},
}

// verify prints what each check found, and returns an error if one failed.
func verify(out io.Writer, f facts) error {
	bad := 0
	fmt.Fprintf(out, "\nVerified\n")
	for _, c := range checks {
		if c.name == "stale write" && stopSignal == nil {
			continue
		}
		found, err := c.f(f)
		mark := "ok"
		if err != nil {
			mark, found = "FAILED", err.Error()
			bad++
		}
		fmt.Fprintf(out, "  %-6s  %-11s  %s\n", mark, c.name, found)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d checks failed", bad, len(checks))
	}
	return nil
}

func (f facts) at(t time.Time) string { return fmt.Sprintf("%.2fs", t.Sub(f.began).Seconds()) }

// struck returns the first event of the kind, the next grant to another worker, and the later
// events of the same worker. It fails without such events: a demo in which nothing happened proves
// nothing.
func (f facts) struck(kind string) (was, next event, own []event, err error) {
	for _, e := range f.events {
		switch {
		case was.Kind == "":
			if e.Kind == kind {
				was = e
			}
		case e.Who == was.Who:
			own = append(own, e)
		case e.Kind == holds && next.Kind == "":
			next = e
		}
	}
	if next.Kind == "" {
		err = fmt.Errorf("no event %q, or no event %q after it", kind, holds)
	}
	return was, next, own, err
}

// overlap: by the order of the writes alone, no two workers were at work at once, except for the
// one that was stopped. That relies on no clock, and on no worker's word.
func (f facts) overlap() (string, error) {
	late, _, _, _ := f.struck(stopped)
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
	var first, holder, end event // the first and the last grant, and what ended the last
	n, least := 0, time.Hour
	for _, e := range events {
		switch {
		case endsBelief[e.Kind] && e.Token == holder.Token && end.Kind == "":
			end = e
		case e.Kind != holds:
		case e.Token <= holder.Token:
			return "", fmt.Errorf("%s has token %d after %s had %d", e.Who, e.Token, holder.Who, holder.Token)
		case n > 0 && end.Kind == "":
			return "", fmt.Errorf("%s was granted at %s, when %s still believed to hold, since %s", e.Who, f.at(e.At), holder.Who, f.at(holder.At))
		case n == 0:
			n, first, holder = 1, e, e
		default:
			n, least, holder, end = n+1, min(least, e.At.Sub(end.At)), e, event{}
		}
	}
	if n < 2 {
		return "", errors.New("there was no handoff")
	}
	return fmt.Sprintf("%d holds, at least %.1fms apart; tokens grow, %d to %d",
		n, float64(least.Microseconds())/1000, first.Token, holder.Token), nil
}

// takeover: after a holder was killed, the next one holds within the time that a session can
// outlive its client.
func (f facts) takeover() (string, error) {
	was, next, _, err := f.struck(killed)
	took := next.At.Sub(was.At)
	found := fmt.Sprintf("%s was granted %.2fs after %s was killed", next.Who, took.Seconds(), was.Who)
	if err == nil && took > f.sessionEnd {
		err = fmt.Errorf("%s; %.2fs is the most", found, f.sessionEnd.Seconds())
	}
	return found, err
}

// notified: the holder that was cut off noticed the loss before the next one was granted.
func (f facts) notified() (string, error) {
	was, next, own, err := f.struck(cut)
	i := slices.IndexFunc(own, func(e event) bool { return e.Kind == notified })
	switch {
	case err != nil:
		return "", err
	case i < 0:
		return "", fmt.Errorf("no event %q", notified)
	}
	found := fmt.Sprintf("%s notified at %s, %s granted at %s", was.Who, f.at(own[i].At), next.Who, f.at(next.At))
	if !own[i].At.Before(next.At) {
		return "", errors.New(found)
	}
	return fmt.Sprintf("%s, %.2fs later", found, next.At.Sub(own[i].At).Seconds()), nil
}

// stale: when the stopped worker continued, its write with its old token was rejected, because the
// resource had seen a larger one. The worker's next event was that it noticed the loss.
func (f facts) stale() (string, error) {
	was, _, own, err := f.struck(stopped)
	if err != nil {
		return "", err
	}
	for i, kind := range []string{continues, refused, notified} {
		if i >= len(own) || own[i].Kind != kind || own[i].Token != was.Token {
			return "", fmt.Errorf("after %s was stopped, event %d is not %q", was.Who, i+1, kind)
		}
	}
	return fmt.Sprintf("%s stopped for %.2fs, rejected; saw the loss after %.0fms",
		was.Who, own[0].At.Sub(was.At).Seconds(), float64(own[2].At.Sub(own[0].At).Microseconds())/1000), nil
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
