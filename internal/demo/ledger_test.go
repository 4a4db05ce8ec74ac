package demo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ledger(t *testing.T, lines string) []entry {
	t.Helper()
	var es []entry
	for _, l := range strings.Split(lines, ", ") {
		e, err := parseEntry(l)
		require.NoError(t, err)
		es = append(es, e)
	}
	return es
}

func TestTurns(t *testing.T) {
	ts, err := turns(ledger(t, "A 5 start, A 5 works, B 9 start, B 9 works, B 9 end, C 12 start"))
	require.NoError(t, err)
	require.Equal(t, []turn{{"A", 5, 2, false}, {"B", 9, 3, true}, {"C", 12, 1, false}}, ts)
}

func TestTurns_PlantedOverlapIsFound(t *testing.T) {
	for lines, say := range map[string]string{
		"A 5 start, B 9 start, A 5 works":            "OVERLAP: line 3 (A 5 works): after B had started with token 9",
		"A 5 start, B 9 start, B 9 works, A 5 end":   "OVERLAP: line 4",
		"A 5 start, B 9 start, B 9 end, A 5 works":   "OVERLAP: line 4",
		"A 5 start, A 5 end, B 9 start, C 9 works":   "OVERLAP: line 4",
		"A 5 start, B 5 start":                       "does not grow",
		"A 9 start, A 9 end, B 5 start":              "does not grow",
		"A 5 works":                                  "without a start",
		"A 5 start, A 5 end, A 5 works":              "after its end",
		"A 5 start, A 5 end, B 9 start, A 5 works":   "OVERLAP",
		"A 5 start, B 9 start, B 9 works, A 5 start": "does not grow",
	} {
		_, err := turns(ledger(t, lines))
		require.ErrorContains(t, err, say, lines)
	}
}

func TestParseEntry_Refuses(t *testing.T) {
	for _, line := range []string{"", "A 5", "A five start", "A 5 sleeps", "A 5 start B 9 start"} {
		_, err := parseEntry(line)
		require.Error(t, err, line)
	}
}
