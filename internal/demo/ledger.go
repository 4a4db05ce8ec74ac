package demo

// The ledger is the file that the contenders' jobs append to. Nothing but the order of its lines says whether two jobs
// ran at the same time: no clock has to be trusted.

import (
	"fmt"
	"strconv"
	"strings"
)

// What a line says happened.
const (
	started = "start"
	works   = "works"
	ended   = "end"
)

// entry is one line of the ledger: CONTENDER TOKEN WHAT.
type entry struct {
	who   string
	token int64
	what  string
}

func parseEntry(line string) (entry, error) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return entry{}, fmt.Errorf("%q is not CONTENDER TOKEN WHAT", line)
	}
	token, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return entry{}, fmt.Errorf("%q has no token", line)
	}
	switch f[2] {
	case started, works, ended:
		return entry{f[0], token, f[2]}, nil
	}
	return entry{}, fmt.Errorf("%q: what is %s?", line, f[2])
}

// turn is one holder's part of the ledger.
type turn struct {
	who   string
	token int64
	lines int
	ended bool // it wrote its last line, and was not killed
}

// turns reads the ledger as a sequence of holders, and returns an error if two of them overlapped: once one has
// started, nothing of an earlier one may follow; and each token must be larger than all before.
func turns(ledger []entry) ([]turn, error) {
	var ts []turn
	for i, e := range ledger {
		at := fmt.Sprintf("line %d (%s %d %s)", i+1, e.who, e.token, e.what)
		var cur *turn
		if len(ts) > 0 {
			cur = &ts[len(ts)-1]
		}
		if e.what == started {
			if cur != nil && e.token <= cur.token {
				return ts, fmt.Errorf("%s: the token does not grow: %s had %d", at, cur.who, cur.token)
			}
			ts = append(ts, turn{who: e.who, token: e.token, lines: 1})
			continue
		}
		switch {
		case cur == nil:
			return ts, fmt.Errorf("%s: without a start", at)
		case e.token != cur.token || e.who != cur.who:
			return ts, fmt.Errorf("OVERLAP: %s: after %s had started with token %d", at, cur.who, cur.token)
		case cur.ended:
			return ts, fmt.Errorf("%s: after its end", at)
		}
		cur.lines++
		cur.ended = e.what == ended
	}
	return ts, nil
}
