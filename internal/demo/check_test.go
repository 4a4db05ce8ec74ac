package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// event is one at so many tenths of a second.
func event(tenths int, who string, kind Kind, token int64) Event {
	return Event{At: epoch.Add(time.Duration(tenths) * 100 * time.Millisecond), Who: who, Kind: kind, Token: token}
}

// good is a demo in which all went well: A is killed, B is cut off, C is stopped.
func good(t *testing.T) facts {
	return facts{
		began: epoch, sessionEnd: 5 * time.Second, pausing: true,
		events: []Event{
			event(0, "A", Started, 0), event(0, "B", Started, 0), event(0, "C", Started, 0),
			event(1, "A", Granted, 5), event(5, "A", Killed, 5),
			event(45, "B", Granted, 9), event(50, "A", Started, 0), event(51, "B", Cut, 9),
			event(80, "B", Lost, 9), event(91, "C", Granted, 12),
			event(92, "C", Checked, 12), event(93, "C", Stopped, 12),
			event(133, "A", Granted, 20), event(135, "C", Continued, 12), event(135, "C", Refused, 12), event(136, "C", Lost, 12),
			event(140, "A", Released, 20), event(141, "A", Ended, 0), event(141, "B", Ended, 0), event(141, "C", Ended, 0),
		},
		writes: func() []write {
			ws := record(t, "A 5 start, A 5 works, B 9 start, B 9 works, C 12 start, A 20 start, C 12 works, A 20 end")
			ws[6].accepted = false
			return ws
		}(),
	}
}

func (f facts) without(who string, kind Kind) facts {
	f.events = slices.DeleteFunc(slices.Clone(f.events), func(e Event) bool { return e.Who == who && e.Kind == kind })
	return f
}

// moved is f with one event at another time, in its new place.
func (f facts) moved(who string, kind Kind, tenths int) facts {
	f.events = slices.Clone(f.events)
	i := slices.IndexFunc(f.events, func(e Event) bool { return e.Who == who && e.Kind == kind })
	f.events[i].At = event(tenths, "", "", 0).At
	slices.SortStableFunc(f.events, func(a, b Event) int { return a.At.Compare(b.At) })
	return f
}

func (f facts) token(who string, kind Kind, token int64) facts {
	f.events = slices.Clone(f.events)
	i := slices.IndexFunc(f.events, func(e Event) bool { return e.Who == who && e.Kind == kind })
	f.events[i].Token = token
	return f
}

func (f facts) accepting(i int, accepted bool) facts {
	f.writes = slices.Clone(f.writes)
	f.writes[i].accepted = accepted
	return f
}

func TestChecks_AGoodDemo_PassesAll(t *testing.T) {
	f := good(t)
	require.Len(t, checks(true), len(checks(false))+2)
	for _, c := range checks(true) {
		found, err := c.f(f)
		require.NoError(t, err, c.name)
		require.NotEmpty(t, found, c.name)
		require.LessOrEqual(t, len("  FAILED  ")+12+2+len(found), 79, "%s: it fits into a line: %s", c.name, found)
	}
}

// Each check finds what is planted for it.
func TestChecks_FindPlantedViolations(t *testing.T) {
	f := good(t)
	for name, planted := range map[string]map[string]facts{
		"no overlap": {
			"OVERLAP":        {events: f.events, writes: record(t, "A 5 start, B 9 start, A 5 works")},
			"only 1 turns":   {events: f.events, writes: record(t, "A 5 start")},
			"does not grow":  {events: f.events, writes: record(t, "A 5 start, B 5 start")},
			"OVERLAP: write": f.accepting(6, true), // the stale write was taken
		},
		"one holder": {
			"B was granted at 0.40s, when A still believed": f.moved("B", Granted, 4),
			"C was granted at 9.10s, when B still believed": f.moved("B", Lost, 100),
			"when B still believed to hold, since 4.50s":    f.without("B", Lost),
			"no hand-over": {began: epoch},
		},
		"tokens grow": {
			"B has token 5 after A had 5": f.token("B", Granted, 5),
			"C has token 8 after B had 9": f.token("C", Granted, 8),
			"no grant":                    {},
		},
		"take-over": {
			`"killed"`:                     f.without("A", Killed),
			"granted 6.00s after A was":    f.moved("B", Granted, 65),
			"nobody was granted after A w": {events: f.events[:5]},
		},
		"told in time": {
			`"cut"`: f.without("B", Cut),
			"B was told at 9.20s, and C was granted at 9.10s": f.moved("B", Lost, 92),
			"B was told at 9.10s":                             f.moved("B", Lost, 91), // the same time is too late
			`"lost" B`:                                        f.without("B", Lost),
		},
		"stale write": {
			"nobody was stopped":                 f.without("C", Stopped),
			"the resource took C's token 12":     f.accepting(6, true),
			"the resource refused A's token 20":  f.accepting(7, false),
			"C did not write with its old token": {events: f.events, writes: f.writes[:6]},
			"A was granted only after C went on": {writes: f.writes, events: append(slices.Delete(slices.Clone(f.events), 12, 13), event(138, "A", Granted, 20))},
			`"continued" C`:                      f.without("C", Continued),
		},
		"first look": {
			"C wrote after it was stopped": func() facts {
				f := f
				f.events = slices.Insert(slices.Clone(f.events), 14, event(135, "C", Wrote, 12))
				return f
			}(),
			"C has not noticed":  {events: f.events[:15]},
			"nobody was stopped": f.without("C", Stopped),
		},
		"clean": {
			"1 workers did not end": f.without("A", Ended),
			"2 nodes in the queue":  {left: 2},
			"A failed: oops":        {events: []Event{{Who: "A", Kind: Failed, Text: "oops"}}},
		},
	} {
		i := slices.IndexFunc(checks(true), func(c check) bool { return c.name == name })
		require.GreaterOrEqual(t, i, 0, name)
		for say, facts := range planted {
			facts.began = epoch
			if facts.sessionEnd == 0 {
				facts.sessionEnd = f.sessionEnd
			}
			_, err := checks(true)[i].f(facts)
			require.ErrorContains(t, err, say, name)
		}
	}
}

func TestResource_RefusesSmallerTokens(t *testing.T) {
	r, err := newResource()
	require.NoError(t, err)
	defer r.close()
	a, err := dialResource(r.addr())
	require.NoError(t, err)
	b, err := dialResource(r.addr())
	require.NoError(t, err)
	for _, step := range []struct {
		c        *resourceClient
		token    int64
		accepted bool
	}{{a, 5, true}, {a, 5, true}, {b, 9, true}, {a, 5, false}, {b, 9, true}, {a, 8, false}, {a, 10, true}} {
		v, err := step.c.write(write{Who: "x", Token: step.token, What: works})
		require.NoError(t, err)
		require.Equal(t, step.accepted, v.Accepted, step.token)
	}
	require.Len(t, r.writes(), 7)
	r.close()
	_, err = a.write(write{})
	require.Error(t, err)
}

func TestTimeline(t *testing.T) {
	tl := newTimeline(epoch)
	for _, e := range good(t).events {
		tl.add(e)
	}
	for _, term := range []*Terminal{{unicode: true}, {}} {
		for _, width := range []int{50, 80, 200} {
			for _, until := range []int{0, 50, 141, 900, 100000} {
				for _, line := range tl.render(term, event(until, "", "", 0).At, width) {
					require.Less(t, len([]rune(line)), width, line)
				}
			}
		}
	}
	lines := tl.render(&Terminal{}, event(141, "", "", 0).At, 80)
	require.Equal(t, strings.Split(strings.TrimPrefix(`
-------------------------------------------------------------------------------
 A         #X                                       ##
 B                       #%%%%%%%%%%!
 C                                     #|||||||||||||x!
 resource                                            x
           0s             5s              10s            15s             20s
           # holds  . waits  X killed  % cut off  ! told  | stopped  x refused`, "\n"), "\n"), trimRight(lines))
}

func trimRight(lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimRight(l, " "))
	}
	return out
}
