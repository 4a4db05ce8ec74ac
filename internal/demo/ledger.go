package demo

// The resource's own record of the writes, in the order in which they came. Nothing but that order says whether two workers
// were at work at the same time: no clock has to be trusted, and no word of a worker's.

import "fmt"

// What a write says its worker does.
const (
	started = "start"
	works   = "works"
	ended   = "end"
)

// turn is one holder's part of the record.
type turn struct {
	who   string
	token int64
	lines int
	ended bool // it wrote its last line, and was not killed or cut off
}

// turns reads the record as a sequence of holders, and returns an error if two of them overlapped: once one has
// started, nothing of an earlier one may follow; and each token must be larger than all before.
func turns(record []write) ([]turn, error) {
	var ts []turn
	for i, w := range record {
		at := fmt.Sprintf("write %d (%s %d %s)", i+1, w.Who, w.Token, w.What)
		var cur *turn
		if len(ts) > 0 {
			cur = &ts[len(ts)-1]
		}
		if w.What == started {
			if cur != nil && w.Token <= cur.token {
				return ts, fmt.Errorf("%s: the token does not grow: %s had %d", at, cur.who, cur.token)
			}
			ts = append(ts, turn{who: w.Who, token: w.Token, lines: 1})
			continue
		}
		switch {
		case cur == nil:
			return ts, fmt.Errorf("%s: without a start", at)
		case w.Token != cur.token || w.Who != cur.who:
			return ts, fmt.Errorf("OVERLAP: %s: after %s had started with token %d", at, cur.who, cur.token)
		case cur.ended:
			return ts, fmt.Errorf("%s: after its end", at)
		}
		cur.lines++
		cur.ended = w.What == ended
	}
	return ts, nil
}
