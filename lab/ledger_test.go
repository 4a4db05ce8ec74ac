package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A witness earns its place by what it sees. Each entry comes a second after the one before.
func TestJudge(t *testing.T) {
	in := func(who string, token int64) entry { return entry{Who: who, What: enter, Token: token} }
	out := func(who string) entry { return entry{Who: who, What: leave} }
	wr := func(who string, token int64, looked bool) entry {
		return entry{Who: who, What: write, Token: token, Looked: looked}
	}
	is := func(who string, w what) entry { return entry{Who: who, What: w} }
	for _, c := range []struct {
		name    string
		entries []entry
		want    verdict
	}{
		{"one after the other", []entry{in("a", 1), out("a"), in("b", 2), out("b")}, verdict{Tokens: true, Enters: 2}},
		{"two at once, for two seconds", []entry{in("a", 0), in("b", 0), is("", fault), out("a"), out("b")}, verdict{Enters: 2, Doubles: 1, Both: 2 * time.Second}},
		{"three at once are three pairs", []entry{in("a", 0), in("b", 0), in("c", 0), out("a"), out("b"), out("c")}, verdict{Enters: 3, Doubles: 3, Both: 3 * time.Second}},
		{"again after it was out is a second pair", []entry{in("a", 0), in("b", 0), out("b"), in("b", 0), out("a")}, verdict{Enters: 3, Doubles: 2, Both: 2 * time.Second}},
		{"the dead do not believe", []entry{in("a", 0), is("a", killed), in("b", 0)}, verdict{Enters: 2}},
		{"the stopped do not believe", []entry{in("a", 0), is("a", stop), in("b", 0), is("a", cont), out("a")}, verdict{Enters: 2}},
		{"the stopped wakes and believes", []entry{in("a", 0), is("a", stop), in("b", 0), is("a", cont), wr("a", 0, true), out("a")},
			verdict{Enters: 2, Doubles: 1, Both: time.Second, Writes: 1, Unfenced: 1, Fenced: 1}},
		{"the stopped wakes and does not look", []entry{in("a", 5), is("a", stop), in("b", 9), is("a", cont), wr("a", 5, false), out("a")},
			verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Refused: 1}},
		{"a write in time", []entry{in("a", 5), wr("a", 5, true), out("a")}, verdict{Tokens: true, Enters: 1, Writes: 1}},
		{"a write after the next one has come and gone", []entry{in("a", 5), out("a"), in("b", 9), out("b"), wr("a", 5, false)},
			verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Refused: 1}},
		{"a write of its own second hold", []entry{in("a", 5), out("a"), in("b", 9), out("b"), in("a", 12), wr("a", 12, true)},
			verdict{Tokens: true, Enters: 3, Writes: 1}},
		{"tokens that do not grow", []entry{in("a", 5), out("a"), in("b", 5), out("b"), in("c", 4)}, verdict{Tokens: true, Enters: 3, Backwards: 2}},
		{"a fence that lets a stale write pass", []entry{in("a", 5), out("a"), in("b", 4), wr("a", 5, false)},
			verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Fenced: 1, Backwards: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l ledger
			began := time.Now()
			for i, e := range c.entries {
				e.At = began.Add(time.Duration(i) * time.Second)
				l.say(e)
			}
			require.Equal(t, c.want, judge(l.read()))
		})
	}
}

// Lines come over as many pipes as there are clients: the time stamps say in which order they were said.
func TestLedger_ReadsByTime(t *testing.T) {
	var l ledger
	at := time.Now()
	l.say(entry{At: at.Add(time.Second), Who: "b", What: enter})
	l.say(entry{At: at, Who: "a", What: leave})
	require.Equal(t, "a", l.read()[0].Who)
}
