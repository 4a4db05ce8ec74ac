package zklock_test

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

// The Go of the README and of docs/performance.md is that of the examples, which compile and run.
func TestREADME_GoIsInTheExamples(t *testing.T) {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	examples := squeeze(readFile(t, "example_test.go"))
	for _, name := range []string{"README.md", "docs/performance.md"} {
		blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(readFile(t, name), -1)
		require.NotEmpty(t, blocks)
		for _, b := range blocks {
			if !strings.Contains(examples, squeeze(b[1])) {
				t.Errorf("this block of %s is not in example_test.go; change them together:\n%s", name, b[1])
			}
		}
	}
}

// The README's table of what room is left is what the code computes, rounded down to a tenth of a second.
func TestREADME_LeaseTable(t *testing.T) {
	readme := readFile(t, "README.md")
	for _, row := range []struct {
		title string
		mode  zklock.LeaseMode
	}{
		{"`QuorumLease(0)`: G = 4 s, `tickTime` 2000", zklock.QuorumLease(0)},
		{"`QuorumLease(2 * time.Second)`: `tickTime` 1000", zklock.QuorumLease(2 * time.Second)},
		{"`PingLease(13 * time.Second)`: `tickTime` 2000, `syncLimit` 5", zklock.PingLease(13 * time.Second)},
		{"`SingleServerLease()`", zklock.SingleServerLease()},
	} {
		want := "| " + row.title + " |"
		for _, T := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			room := zklock.LeaseRoom(row.mode, T)
			if room <= 0 {
				want += " refused |"
				continue
			}
			want += fmt.Sprintf(" %.1f s |", math.Floor(room.Seconds()*10)/10)
		}
		least := 100 * time.Millisecond
		for zklock.LeaseRoom(row.mode, least) <= 0 {
			least += 100 * time.Millisecond
		}
		want += fmt.Sprintf(" %.1f s |", least.Seconds())
		require.Contains(t, readme, want+"\n", "README.md, How the lease works: write this row")
	}
}

// Links to files of this repository lead somewhere.
func TestREADME_Links(t *testing.T) {
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"} {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(readFile(t, name), -1) {
			_, err := os.Stat(m[1])
			require.NoError(t, err, "%s links to it", name)
		}
	}
}
