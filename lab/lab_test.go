package main

// These tests check the harness with a correct lock and one that admits every client.

import (
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests' own binary is also the clients' process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "client" {
		if err := clientMain(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// outcomes runs experiments once each with a lock.
func outcomes(t *testing.T, only string) map[string]outcome {
	t.Helper()
	s := settings{Staged: 1, Raced: 1, Seed: 1, TTL: time.Second, Jobs: 20, Log: io.Discard}
	require.NoError(t, s.choose(only, false))
	l, err := newLab(s)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.close()) }()
	require.NoError(t, l.run(t.Context()))
	got := map[string]outcome{}
	for _, r := range l.sorted() {
		require.Empty(t, r.Failed, "%s", r.Experiment)
		if r.Skipped == "" {
			require.NotEmpty(t, r.Outcomes, r.Experiment)
			got[r.Experiment] = r.Outcomes[0]
		}
	}
	return got
}

func TestKnownRight_NoExperimentFindsItWrong(t *testing.T) {
	got := outcomes(t, "known-right.*/.*")
	for name, o := range got {
		require.Zero(t, o["doubles"], name)
		require.Zero(t, o["fenced"], name)
		require.Zero(t, o["backwards"], name)
	}
	require.Contains(t, got["crash"], "granted")
	require.Zero(t, got["order"]["against"])
	require.Contains(t, got["order"], "took")
	require.EqualValues(t, 100, got["herd-100"]["grants"])
	require.Positive(t, got["contend"]["rate"])
	require.EqualValues(t, 1, got["delay"]["unfenced"])
	require.Zero(t, got["cut"]["given away"], "it never gives away what is held")
	require.Zero(t, got["stop"]["given away"])
	for _, name := range []string{"crash-readers", "crash-permits", "downgrade"} {
		require.Contains(t, got[name], "granted", name)
	}
	require.Zero(t, got["downgrade"]["beside"])
}

func TestKnownWrong_IsFoundWhereTwoCouldBeIn(t *testing.T) {
	got := outcomes(t, "known-wrong.*/((crash|cut|stop)(-readers|-permits)?|downgrade|blink|rush|late|late-step|long|order|delay)")
	for name, o := range got {
		switch name {
		case "delay": // its holders are never in at one time
			require.EqualValues(t, 1, o["unfenced"])
		default:
			require.Positive(t, o["doubles"], name)
		}
	}
	require.EqualValues(t, 2, got["cut"]["unfenced"])
	require.EqualValues(t, 1, got["stop"]["believes"])
	require.EqualValues(t, 1, got["late"]["broken"])
}

func TestEveryExperimentHasItsPlace(t *testing.T) {
	var all, placed []string
	for _, e := range experiments {
		all = append(all, e.Name)
	}
	for _, e := range inOrder() {
		placed = append(placed, e.Name)
	}
	require.ElementsMatch(t, all, placed)
	for _, name := range quickSystems {
		_, err := find(name)
		require.NoError(t, err)
	}
	for _, s := range systems {
		require.GreaterOrEqual(t, place(s), 0, s.Name)
	}
}

func TestShow(t *testing.T) {
	r := &Result{Outcomes: []outcome{{"granted": 3, "doubles": 1}, {"granted": 0.0042, "doubles": 0}, {"doubles": 0}}}
	for _, c := range []struct {
		column column
		want   string
	}{
		{column{"granted", "", seconds}, "3.0 s (4 ms to 3.0 s), in 2 of 3"},
		{column{"doubles", "", inCases}, "1 of 3"},
		{column{"doubles", "", total}, "1"},
		{column{"told", "", seconds}, "never, n=3"},
		{column{"told", "", lasted}, ""},
	} {
		require.Equal(t, c.want, r.show(c.column))
	}
	require.Equal(t, "3.0 s, never in 1 of n=3", granted(r))
	require.Equal(t, "1,234,567", amount(1234567))
}

// Every cell of the page is derived from the counts, and every missing result has a reason.
func TestPage(t *testing.T) {
	s := settings{Staged: 1, Raced: 1, Seed: 1, TTL: time.Second, Jobs: 20, Log: io.Discard}
	require.NoError(t, s.choose("known-.*/(crash|server-crash)", false))
	l, err := newLab(s)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.close()) }()
	require.NoError(t, l.run(t.Context()))
	page := l.page(time.Now(), "go run . -only this")
	require.Contains(t, page, "[The holder crashes](#the-holder-crashes)")
	require.Regexp(t, `\| a lock that lets everybody in \| ✗ .* \|`, page)
	require.Contains(t, page, "Not run with the others: its server is the lab.")
	require.Regexp(t, `(?s)<svg .*a queue in one process.*</svg>`, l.pictures()["crash"])
}

// The picture shows two holders at the same time where the judge counts them, and for as long.
func TestSpans_AgreeWithTheJudge(t *testing.T) {
	zero := time.Now()
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	stopped := []entry{{At: at(0), Who: "A", What: enter}, {At: at(1), Who: "A", What: stop}, {At: at(2), Who: "B", What: enter}, {At: at(3), Who: "A", What: cont}}
	for _, c := range []struct {
		name string
		rest []entry
		both float64
	}{
		{"it wakes and is told", []entry{{At: at(4), Who: "A", What: leave}, {At: at(5), Who: "B", What: leave}}, 0},
		{"it wakes and writes", []entry{{At: at(4), Who: "A", What: write, Looked: true}, {At: at(6), Who: "A", What: leave}, {At: at(7), Who: "B", What: leave}}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := append(slices.Clone(stopped), c.rest...)
			both := 0.0
			for _, s := range spans(all, zero) {
				if s.Kind == "both" {
					both += s.To - s.From
				}
			}
			require.Equal(t, c.both, both)
			require.Equal(t, c.both, judge(all, 1).Both.Seconds())
		})
	}
}
