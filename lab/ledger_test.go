package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A witness earns its place by the violations that it detects. Each entry is a second after the
// previous one.
func TestJudge(t *testing.T) {
	in := func(who string, token int64) entry { return entry{Who: who, What: enter, Token: token} }
	out := func(who string) entry { return entry{Who: who, What: leave} }
	wr := func(who string, token int64, looked bool) entry {
		return entry{Who: who, What: write, Token: token, Looked: looked}
	}
	rd := func(who string, token int64) entry { return entry{Who: who, What: enter, Token: token, Shared: true} }
	refused := func(who string) entry { return entry{Who: who, What: write, Refused: true} }
	is := func(who string, w what) entry { return entry{Who: who, What: w} }
	for _, c := range []struct {
		name    string
		entries []entry
		want    verdict
		room    int // 1 by default
	}{
		{name: "one after the other", entries: []entry{in("a", 1), out("a"), in("b", 2), out("b")}, want: verdict{Tokens: true, Enters: 2}},
		{name: "two at once, for two seconds", entries: []entry{in("a", 0), in("b", 0), is("", fault), out("a"), out("b")}, want: verdict{Enters: 2, Doubles: 1, Both: 2 * time.Second}},
		{name: "three at once are three pairs", entries: []entry{in("a", 0), in("b", 0), in("c", 0), out("a"), out("b"), out("c")}, want: verdict{Enters: 3, Doubles: 3, Both: 3 * time.Second}},
		{name: "again after it was out is a second pair", entries: []entry{in("a", 0), in("b", 0), out("b"), in("b", 0), out("a")}, want: verdict{Enters: 3, Doubles: 2, Both: 2 * time.Second}},
		{name: "the dead do not believe", entries: []entry{in("a", 0), is("a", killed), in("b", 0)}, want: verdict{Enters: 2}},
		{name: "the stopped do not believe", entries: []entry{in("a", 0), is("a", stop), in("b", 0), is("a", cont), out("a")}, want: verdict{Enters: 2}},
		{name: "the stopped wakes and believes", entries: []entry{in("a", 0), is("a", stop), in("b", 0), is("a", cont), wr("a", 0, true), out("a")},
			want: verdict{Enters: 2, Doubles: 1, Both: time.Second, Writes: 1, Unfenced: 1, Fenced: 1}},
		{name: "the stopped wakes and does not look", entries: []entry{in("a", 5), is("a", stop), in("b", 9), is("a", cont), wr("a", 5, false), out("a")},
			want: verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Refused: 1}},
		{name: "a write in time", entries: []entry{in("a", 5), wr("a", 5, true), out("a")}, want: verdict{Tokens: true, Enters: 1, Writes: 1}},
		{name: "a write after the next one has come and gone", entries: []entry{in("a", 5), out("a"), in("b", 9), out("b"), wr("a", 5, false)},
			want: verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Refused: 1}},
		{name: "a write of its own second hold", entries: []entry{in("a", 5), out("a"), in("b", 9), out("b"), in("a", 12), wr("a", 12, true)},
			want: verdict{Tokens: true, Enters: 3, Writes: 1}},
		{name: "tokens that do not grow", entries: []entry{in("a", 5), out("a"), in("b", 5), out("b"), in("c", 4)}, want: verdict{Tokens: true, Enters: 3, Backwards: 2}},
		{name: "a fence that lets a stale write pass", entries: []entry{in("a", 5), out("a"), in("b", 4), wr("a", 5, false)},
			want: verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Fenced: 1, Backwards: 1}},
		{name: "readers share, in any order of their tokens", entries: []entry{rd("a", 5), rd("b", 4), wr("a", 5, true), wr("b", 4, true)},
			want: verdict{Tokens: true, Enters: 2, Writes: 2}},
		{name: "a writer beside two readers", entries: []entry{rd("a", 0), rd("b", 0), in("c", 0), out("a"), out("b")},
			want: verdict{Enters: 3, Doubles: 2, Both: 2 * time.Second}},
		{name: "a reader reads after a writer has come", entries: []entry{rd("a", 5), out("a"), in("b", 9), wr("a", 5, false)},
			want: verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Refused: 1}},
		{name: "a writer writes after a reader has come", entries: []entry{in("a", 5), out("a"), rd("b", 9), wr("a", 5, false)},
			want: verdict{Tokens: true, Enters: 2, Writes: 1, Unfenced: 1, Refused: 1}},
		{name: "a writer becomes a reader, and a writer comes", entries: []entry{in("a", 5), rd("a", 0), rd("b", 7), out("b"), in("c", 9), out("a")},
			want: verdict{Tokens: true, Enters: 4, Doubles: 1, Both: time.Second}},
		{name: "two have two permits", entries: []entry{in("a", 0), in("b", 0), out("a"), in("c", 0)}, room: 2, want: verdict{Enters: 3}},
		{name: "a third beside two", entries: []entry{in("a", 0), in("b", 0), in("c", 0), out("b"), out("a")}, room: 2,
			want: verdict{Enters: 3, Doubles: 2, Both: time.Second}},
		{name: "a third for one who is stopped, and wakes", entries: []entry{in("a", 0), in("b", 0), is("a", stop), in("c", 0), is("a", cont), wr("a", 0, true), out("a")}, room: 2,
			want: verdict{Enters: 3, Doubles: 2, Both: time.Second, Writes: 1, Unfenced: 1, Fenced: 1}},
		{name: "a resource asks the servers", entries: []entry{in("a", 0), in("b", 0), refused("a")}, want: verdict{Enters: 2, Doubles: 1, Both: time.Second, Writes: 1, Unfenced: 1, Refused: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l ledger
			began := time.Now()
			for i, e := range c.entries {
				e.At = began.Add(time.Duration(i) * time.Second)
				l.say(e)
			}
			require.Equal(t, c.want, judge(l.read(), max(1, c.room)))
		})
	}
}

// Lines arrive over as many pipes as there are clients: the timestamps determine their order.
func TestLedger_ReadsByTime(t *testing.T) {
	var l ledger
	at := time.Now()
	l.say(entry{At: at.Add(time.Second), Who: "b", What: enter})
	l.say(entry{At: at, Who: "a", What: leave})
	require.Equal(t, "a", l.read()[0].Who)
}
