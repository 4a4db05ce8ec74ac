package zklock_test

// These tests hold the README to the code: its Go, its table of leases, its figures, its length.

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// The Go of the pages is that of the examples, which compile and run. (docs/testing.md and docs/experiments.md have
// examples of their own: see zktest and lab.)
func TestREADME_GoIsInTheExamples(t *testing.T) {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	examples := squeeze(readFile(t, "example_test.go"))
	with := 0
	for _, name := range pages(t) {
		if name == "docs/testing.md" || name == "docs/experiments.md" {
			continue
		}
		blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(readFile(t, name), -1)
		if len(blocks) > 0 {
			with++
		}
		for _, b := range blocks {
			if !strings.Contains(examples, squeeze(b[1])) {
				t.Errorf("this block of %s is not in example_test.go; change them together:\n%s", name, b[1])
			}
		}
	}
	require.GreaterOrEqual(t, with, 5, "README.md, and lease, fencing, curator and performance in docs")
}

// The tables of what room is left are what the code computes, rounded down to a tenth of a second.
func TestREADME_LeaseTable(t *testing.T) {
	const page = "docs/lease.md"
	for _, row := range []struct {
		file, title string
		mode        zklock.LeaseMode
	}{
		{page, "`QuorumLease(0)`: G = 4 s, `tickTime` 2000", zklock.QuorumLease(0)},
		{page, "`QuorumLease(2 * time.Second)`: `tickTime` 1000", zklock.QuorumLease(2 * time.Second)},
		{page, "`SingleServerLease()`", zklock.SingleServerLease()},
		{"README.md", "`QuorumLease(0)`, the default", zklock.QuorumLease(0)},
		{"README.md", "`SingleServerLease()`", zklock.SingleServerLease()},
	} {
		want := "| " + row.title + " |"
		for _, T := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			want += fmt.Sprintf(" %.1f s |", math.Floor(zklock.LeaseRoom(row.mode, T).Seconds()*10)/10)
		}
		if row.file == page {
			least := 100 * time.Millisecond
			for zklock.LeaseRoom(row.mode, least) <= 0 {
				least += 100 * time.Millisecond
			}
			want += fmt.Sprintf(" %.1f s |", least.Seconds())
		}
		require.Contains(t, readFile(t, row.file), want+"\n", "%s, the table of rooms: write this row", row.file)
	}
}

// The README's figures are those of the run in docs/bench.
func TestREADME_Figures(t *testing.T) {
	number := func(cell string) string { return regexp.MustCompile(`^ *([\d.]*)`).FindStringSubmatch(cell)[1] }
	row := func(page, title string) []string {
		m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(title) + ` \|(.*)\|$`).FindStringSubmatch(readFile(t, page))
		require.NotNil(t, m, "%s has no row for %s", page, title)
		return strings.Split(m[1], "|")
	}
	for title, workload := range map[string]string{
		"acquire and release, nobody else":            "cycle",
		"8 clients contend":                           "contend 8",
		"2 clients contend":                           "contend 2",
		"16 goroutines take 1,000 locks in turn":      "many 1,000",
		"1,000 Sessions hold: requests to the server": "holding 1,000",
	} {
		ours, run := row("README.md", title), row("docs/bench/single.md", workload)
		require.Len(t, run, 5, "floor, zk.Lock, Curator, kazoo, zklock")
		want := []string{number(run[1]), number(run[2]), number(run[4])}
		require.NotEmpty(t, want[2])
		require.Equal(t, want, []string{number(ours[0]), number(ours[1]), number(ours[2])}, "README.md, Figures: write zk.Lock, Curator and zklock of %q, as docs/bench/single.md has them", workload)
	}
}

// The README is read in one sitting.
func TestREADME_IsAFrontPage(t *testing.T) {
	const most = 1200
	if n := len(strings.Fields(readFile(t, "README.md"))); n > most {
		t.Errorf("README.md has %d words, more than %d: move something to a page in docs/ and link to it", n, most)
	}
	before, _, found := strings.Cut(readFile(t, "README.md"), "```go\n")
	require.True(t, found)
	require.LessOrEqual(t, strings.Count(before, "\n"), 12, "the first example begins on the first screen")
}
