package demo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// record reads "WHO TOKEN WHAT, WHO TOKEN WHAT".
func record(t *testing.T, lines string) []write {
	t.Helper()
	var ws []write
	for _, l := range strings.Split(lines, ", ") {
		var w write
		_, err := fmt.Sscan(l, &w.Who, &w.Token, &w.What)
		require.NoError(t, err)
		w.accepted = true
		ws = append(ws, w)
	}
	return ws
}

func TestTurns(t *testing.T) {
	ts, err := turns(record(t, "A 5 start, A 5 works, B 9 start, B 9 works, B 9 end, C 12 start"))
	require.NoError(t, err)
	require.Equal(t, []turn{{"A", 5, 2, false}, {"B", 9, 3, true}, {"C", 12, 1, false}}, ts)
}

func TestTurns_PlantedOverlapIsFound(t *testing.T) {
	for lines, say := range map[string]string{
		"A 5 start, B 9 start, A 5 works":            "OVERLAP: write 3 (A 5 works): after B had started with token 9",
		"A 5 start, B 9 start, B 9 works, A 5 end":   "OVERLAP: write 4",
		"A 5 start, B 9 start, B 9 end, A 5 works":   "OVERLAP: write 4",
		"A 5 start, A 5 end, B 9 start, C 9 works":   "OVERLAP: write 4",
		"A 5 start, B 5 start":                       "does not grow",
		"A 9 start, A 9 end, B 5 start":              "does not grow",
		"A 5 works":                                  "without a start",
		"A 5 start, A 5 end, A 5 works":              "after its end",
		"A 5 start, A 5 end, B 9 start, A 5 works":   "OVERLAP",
		"A 5 start, B 9 start, B 9 works, A 5 start": "does not grow",
	} {
		_, err := turns(record(t, lines))
		require.ErrorContains(t, err, say, lines)
	}
}
